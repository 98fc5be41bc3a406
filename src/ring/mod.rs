//! Who holds what: the ring of tokens, shared out over the nodes of each zone.
//!
//! ```text
//!             vnode   0    1    2    3    4    5  ...          owners: one node per (zone, vnode)
//!  eu / a            n1   n4   n4   n1   n1   n4
//!  eu / b            n2   n5   n2   n2   n5   n5               a zone holds one whole copy of the ring
//!  eu / c            n6   n3   n6   n3   n6   n3
//!                     └── the replicas of a token: its column; fewer copies than zones: zones v, v + 1, ... of the column
//! ```
//!
//! A [`Ring`] is immutable: the metadata log makes a new one. Nothing here knows which node is alive.
//!
//! Invariants, checked when a ring is made: every zone of a serving node owns every vnode; each owner is a node of that
//! zone in a state that owns vnodes. Hence the replicas of any token lie in distinct zones.

use std::collections::BTreeMap;

use crate::model::{Keyspace, NodeId, Token, TokenRange, Vnode, VnodeBits};
use crate::{Error, Result};

mod node;
mod placement;
#[cfg(test)]
mod tests;

pub use node::{Node, NodeState, Zone};
pub use placement::{Owners, assign, members_by_zone};

/// Which region of a ring: its place among the ring's regions in ascending order of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionNumber(pub u16);

/// Which zone of a ring: its place among all the ring's zones in ascending order of (region, zone).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneNumber(pub u16);

/// One holder of a vnode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Replica {
    /// The node.
    pub node: NodeId,
    /// Where it is.
    pub region: RegionNumber,
    /// Where it is; no two replicas of a vnode share a zone.
    pub zone: ZoneNumber,
}

/// The holders of one vnode for one keyspace, numbered. Ordered by region, so that the replicas of a region are one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicas {
    /// The vnode.
    pub vnode: Vnode,
    /// The number of this placement of the vnode: 1 at birth, higher with every change of its owners.
    pub placement: u64,
    /// One per zone at most.
    pub nodes: Vec<Replica>,
}

impl Replicas {
    /// How many copies there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none (a keyspace whose only region has left).
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many copies `region` has.
    pub fn count_in(&self, region: RegionNumber) -> usize {
        self.nodes.iter().filter(|replica| replica.region == region).count()
    }

    /// Whether `node` holds a copy.
    pub fn contains(&self, node: NodeId) -> bool {
        self.nodes.iter().any(|replica| replica.node == node)
    }
}

/// Nodes, and which of them owns each (zone, vnode). Immutable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    vnode_bits: VnodeBits,
    nodes: BTreeMap<NodeId, Node>,
    owners: Owners,
    placements: Vec<u64>,
    regions: Vec<Region>,
}

/// A region's zones, with the owners of each by vnode number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Region {
    name: String,
    first_zone: u16,
    zones: Vec<Vec<NodeId>>,
}

impl Ring {
    /// A ring of these nodes and owners; an error names the invariant that does not hold.
    pub fn new(
        vnode_bits: VnodeBits,
        nodes: BTreeMap<NodeId, Node>,
        owners: Owners,
        placements: Vec<u64>,
    ) -> Result<Ring> {
        check(vnode_bits, &nodes, &owners, &placements)?;
        let regions = regions_of(&owners);
        Ok(Ring { vnode_bits, nodes, owners, placements, regions })
    }

    /// The ring of a new cluster: vnodes shared out over these nodes, every placement numbered 1.
    pub fn at_birth(vnode_bits: VnodeBits, nodes: BTreeMap<NodeId, Node>) -> Result<Ring> {
        let owners = assign(&members_by_zone(nodes.values()), &Owners::new(), vnode_bits);
        let placements = vec![1; vnode_bits.count() as usize];
        Ring::new(vnode_bits, nodes, owners, placements)
    }

    /// The number of vnodes.
    pub fn vnode_bits(&self) -> VnodeBits {
        self.vnode_bits
    }

    /// All nodes ever in the cluster, by ascending id.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// The owner of every vnode, zone by zone.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// The number of the placement of each vnode.
    pub fn placements(&self) -> &[u64] {
        &self.placements
    }

    /// The number of the placement of one vnode; 0, which no placement has, for a vnode that does not exist.
    pub fn placement(&self, vnode: Vnode) -> u64 {
        self.placements.get(vnode.0 as usize).copied().unwrap_or(0)
    }

    /// Whether the vnode is `node`'s, in its zone.
    pub fn owns(&self, node: NodeId, vnode: Vnode) -> bool {
        let by_vnode = self.node(node).and_then(|node| self.owners.get(&node.zone));
        by_vnode.and_then(|owners| owners.get(vnode.0 as usize)) == Some(&node)
    }

    /// The same ring with the next number for the placement of each of these vnodes: what was said under the one before
    /// counts no more.
    pub fn renumbered(&self, vnodes: impl IntoIterator<Item = Vnode>) -> Ring {
        let mut next = self.clone();
        for vnode in vnodes {
            if let Some(placement) = next.placements.get_mut(vnode.0 as usize) {
                *placement = placement.saturating_add(1);
            }
        }
        next
    }

    /// A number for the placements of all vnodes that `range` touches. Placement numbers only rise, so two states of one
    /// metadata log that answer the same have the same placements there.
    pub fn placement_in(&self, range: TokenRange) -> u64 {
        let first = range.after.map_or(Vnode(0), |after| self.vnode_bits.vnode(Token(after.0.saturating_add(1))));
        let last = range.up_to.map_or(self.placements.len(), |up_to| self.vnode_bits.vnode(up_to).0 as usize + 1);
        self.placements
            .get(first.0 as usize..last)
            .map_or(0, |numbers| numbers.iter().fold(0, |sum, number| sum.wrapping_add(*number)))
    }

    /// Names of the regions; a [`RegionNumber`] is a place among them.
    pub fn region_names(&self) -> impl Iterator<Item = &str> {
        self.regions.iter().map(|region| region.name.as_str())
    }

    /// The region called `name`.
    pub fn region(&self, name: &str) -> Option<RegionNumber> {
        self.regions.iter().position(|region| region.name == name).map(|at| RegionNumber(at as u16))
    }

    /// The region that `node` is in, if it is a node of a region that holds data.
    pub fn region_of(&self, node: NodeId) -> Option<RegionNumber> {
        self.region(&self.node(node)?.zone.region)
    }

    /// How many zones the region called `name` has; 0 if there is no such region.
    pub fn zones_in(&self, name: &str) -> u32 {
        self.regions.iter().find(|region| region.name == name).map_or(0, |region| region.zones.len() as u32)
    }

    /// The holders of `token` in `keyspace`.
    pub fn replicas(&self, keyspace: &Keyspace, token: Token) -> Replicas {
        self.replicas_of(keyspace, self.vnode_bits.vnode(token))
    }

    /// The holders of `vnode` in `keyspace`; none if there is no such vnode.
    pub fn replicas_of(&self, keyspace: &Keyspace, vnode: Vnode) -> Replicas {
        let mut nodes = Vec::with_capacity(self.owners.len());
        for (number, region) in self.regions.iter().enumerate() {
            let zones = region.zones.len();
            for turn in 0..copies(keyspace, region) {
                let at = (vnode.0 as usize + turn) % zones;
                if let Some(&node) = region.zones[at].get(vnode.0 as usize) {
                    let zone = ZoneNumber(region.first_zone + at as u16);
                    nodes.push(Replica { node, region: RegionNumber(number as u16), zone });
                }
            }
        }
        Replicas { vnode, placement: self.placement(vnode), nodes }
    }

    /// Whether `node` holds a copy of `vnode` in `keyspace`.
    pub fn is_replica(&self, keyspace: &Keyspace, vnode: Vnode, node: NodeId) -> bool {
        self.replicas_of(keyspace, vnode).contains(node)
    }
}

/// Copies that `keyspace` keeps in `region`: one per zone unless it says otherwise, and never two in a zone.
fn copies(keyspace: &Keyspace, region: &Region) -> usize {
    let zones = region.zones.len();
    if keyspace.replication.is_empty() {
        return zones;
    }
    let asked = keyspace.replication.get(&region.name).copied().unwrap_or(0);
    zones.min(asked as usize)
}

fn regions_of(owners: &Owners) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for (number, (zone, by_vnode)) in owners.iter().enumerate() {
        match regions.last_mut() {
            Some(region) if region.name == zone.region => region.zones.push(by_vnode.clone()),
            _ => regions.push(Region {
                name: zone.region.clone(),
                first_zone: number as u16,
                zones: vec![by_vnode.clone()],
            }),
        }
    }
    regions
}

/// The invariants at the head of this file.
fn check(bits: VnodeBits, nodes: &BTreeMap<NodeId, Node>, owners: &Owners, placements: &[u64]) -> Result<()> {
    let vnodes = bits.count() as usize;
    if placements.len() != vnodes {
        return Err(Error::invalid("ring", format!("{} placement numbers for {vnodes} vnodes", placements.len())));
    }
    if owners.len() > usize::from(u16::MAX) {
        return Err(Error::invalid("ring", format!("{} zones, at most {} are possible", owners.len(), u16::MAX)));
    }
    for (id, node) in nodes {
        if *id != node.id {
            return Err(Error::invalid("ring", format!("node {} is listed as {id}", node.id)));
        }
        if node.state == NodeState::Serving && !owners.contains_key(&node.zone) {
            return Err(Error::invalid("ring", format!("zone {} has nodes but no owners", node.zone)));
        }
    }
    for (zone, by_vnode) in owners {
        if by_vnode.len() != vnodes {
            return Err(Error::invalid("ring", format!("zone {zone} owns {} of {vnodes} vnodes", by_vnode.len())));
        }
        let stranger = by_vnode
            .iter()
            .find(|id| !nodes.get(id).is_some_and(|node| node.zone == *zone && node.state.owns_vnodes()));
        if let Some(id) = stranger {
            return Err(Error::invalid("ring", format!("{id} owns a vnode of zone {zone} but cannot")));
        }
    }
    Ok(())
}
