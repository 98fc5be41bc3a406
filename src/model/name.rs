//! Names: of nodes, and of mutations.

use std::fmt;

use uuid::Uuid;

use super::token::VnodeBits;

/// A node's number, given by the metadata log, kept in its data directory and never reused. 0 is not a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// The name of a mutation within one (keyspace, vnode). No two mutations ever share one.
///
/// Names are used to *know* who has what, never to drop: a mutation that arrives twice is merged twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MutationName {
    /// The replica that coordinated the mutation.
    pub origin: NodeId,
    /// The start stamp of that run of the origin: fsynced before its first name, later than that of any run before.
    pub incarnation: u64,
    /// 1, 2, 3, ... within (keyspace, vnode, origin, incarnation).
    pub sequence: u64,
}

/// Whose data a directory holds; stands in the directory, in every log segment and in the handshake of peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's id, given at its birth.
    pub cluster: Uuid,
    /// The node's number in it.
    pub node: NodeId,
    /// The number of vnodes of the cluster.
    pub vnode_bits: VnodeBits,
}
