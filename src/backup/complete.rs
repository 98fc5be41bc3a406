//! Whether what is in a bucket is a whole backup.
//!
//! A cut is complete if, for every vnode, a quorum of its replicas in each region have a part and a log that goes on from it
//! without a gap until the node has told that it is closed through the cut. Whoever acknowledges at a quorum has the
//! mutation in one of them; and whoever has seen it stamps later, so no cut has the second of two without the first.

use std::collections::BTreeMap;
use std::fmt;

use super::part::Part;
use super::piece::PieceHead;
use crate::metadata::ClusterState;
use crate::model::{Keyspace, NodeId, Stamp, Vnode};

/// Why a cut is not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incomplete {
    /// A node's log is archived, but not far enough yet.
    NotClosed {
        /// The node.
        node: NodeId,
        /// Up to where its last piece is closed, if there is one.
        told: Option<Stamp>,
    },
    /// Something of a node's log went before it was archived, or an object is missing.
    Gap {
        /// The node.
        node: NodeId,
        /// The number of the piece that is missing, or does not begin where the one before ends.
        piece: u64,
    },
    /// Too few replicas of a vnode take part.
    NoQuorum {
        /// The keyspace.
        keyspace: String,
        /// The vnode.
        vnode: Vnode,
        /// The region.
        region: String,
        /// How many take part.
        present: usize,
        /// How many must.
        needed: usize,
    },
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Incomplete::NotClosed { node, told: Some(told) } => {
                write!(f, "the log of node {node} is archived up to {} µs, which is before the cut", told.0)
            }
            Incomplete::NotClosed { node, told: None } => write!(f, "nothing of the log of node {node} is archived"),
            Incomplete::Gap { node, piece } => {
                write!(f, "the archived log of node {node} has a gap before its piece {piece}")
            }
            Incomplete::NoQuorum { keyspace, vnode, region, present, needed } => write!(
                f,
                "of the replicas of vnode {} of keyspace {keyspace} in region {region} {present} take part, and {needed} must",
                vnode.0
            ),
        }
    }
}

/// How far a log is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// How many pieces, from the part's first.
    pub pieces: usize,
}

impl Chain {
    /// The pieces behind a part that the cut needs. `heads` are those of the node from the part's first piece on, ascending.
    pub fn of(part: &Part, heads: &[PieceHead], cut: Stamp) -> Result<Chain, Incomplete> {
        let node = part.node;
        let (mut number, mut end) = (part.first_piece, None);
        for (at, head) in heads.iter().enumerate() {
            let follows = end.map_or(head.from <= part.position, |end| end == head.from);
            if head.number != number || !follows {
                return Err(Incomplete::Gap { node, piece: number });
            }
            if head.told >= cut && head.to >= part.position {
                return Ok(Chain { pieces: at + 1 });
            }
            (number, end) = (number + 1, Some(head.to));
        }
        Err(Incomplete::NotClosed { node, told: heads.last().map(|head| head.told) })
    }
}

/// Checks that the nodes that are `present`, each with a part and a whole chain, are a quorum of every vnode of `keyspaces`.
pub fn check<'a>(
    state: &ClusterState,
    keyspaces: impl Iterator<Item = &'a Keyspace>,
    present: &BTreeMap<NodeId, Chain>,
) -> Result<(), Incomplete> {
    let ring = state.ring();
    for keyspace in keyspaces {
        for vnode in (0..ring.vnode_bits().count()).map(Vnode) {
            let replicas = ring.replicas_of(keyspace, vnode);
            let mut regions: BTreeMap<_, (usize, usize)> = BTreeMap::new();
            for replica in &replicas.nodes {
                let counts = regions.entry(replica.region).or_default();
                counts.0 += 1;
                counts.1 += usize::from(present.contains_key(&replica.node));
            }
            for (region, (copies, found)) in regions {
                let needed = copies / 2 + 1;
                if found < needed {
                    let region = ring.region_names().nth(usize::from(region.0)).unwrap_or_default();
                    return Err(Incomplete::NoQuorum {
                        keyspace: keyspace.name.clone(),
                        vnode,
                        region: region.to_owned(),
                        present: found,
                        needed,
                    });
                }
            }
        }
    }
    Ok(())
}
