//! Sharing the vnodes of each zone out over its nodes.
//!
//! Law of [`assign`], a pure function: in each zone every vnode has one owner; two members of a zone differ by at most one
//! vnode; no assignment that is balanced so moves fewer vnodes; equal arguments give equal answers.
//!
//! Among the assignments that keep this law each vnode goes to the member that a hash of (member, vnode) prefers. So the
//! vnodes of a lost node are spread over all the nodes of the other zones, which share the work of its rebuild, and the
//! choice is independent of the vnode's number, by which keyspaces with fewer copies than zones rotate.

use std::collections::BTreeMap;

use super::node::{Node, NodeState, Zone};
use crate::model::{NodeId, VnodeBits};

/// For each zone the owner of every vnode, by vnode number.
pub type Owners = BTreeMap<Zone, Vec<NodeId>>;

/// The serving nodes of each zone, in ascending order.
pub fn members_by_zone<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> BTreeMap<Zone, Vec<NodeId>> {
    let mut members: BTreeMap<Zone, Vec<NodeId>> = BTreeMap::new();
    for node in nodes.into_iter().filter(|node| node.state == NodeState::Serving) {
        members.entry(node.zone.clone()).or_default().push(node.id);
    }
    members.values_mut().for_each(|ids| ids.sort_unstable());
    members
}

/// Shares the vnodes of every zone out over its `members`, moving as few as possible away from their `previous` owner.
/// A zone without members is not in the answer.
pub fn assign(members: &BTreeMap<Zone, Vec<NodeId>>, previous: &Owners, bits: VnodeBits) -> Owners {
    members
        .iter()
        .filter(|(_, ids)| !ids.is_empty())
        .map(|(zone, ids)| {
            let before = previous.get(zone).map_or(&[][..], Vec::as_slice);
            (zone.clone(), assign_zone(ids, before, bits.count()))
        })
        .collect()
}

fn assign_zone(members: &[NodeId], before: &[NodeId], vnodes: u32) -> Vec<NodeId> {
    let mut held: BTreeMap<NodeId, Vec<u32>> = members.iter().map(|&id| (id, Vec::new())).collect();
    let mut free: Vec<u32> = Vec::new();
    for vnode in 0..vnodes {
        let owner = before.get(vnode as usize);
        match owner.and_then(|owner| held.get_mut(owner)) {
            Some(kept) => kept.push(vnode),
            None => free.push(vnode),
        }
    }
    let quotas = quotas(&held, vnodes);
    for (&id, kept) in &mut held {
        // The vnodes that the hash likes least in their owner's hands are the ones given up.
        kept.sort_unstable_by_key(|&vnode| (preference(id, vnode), vnode));
        free.extend(kept.drain(quotas[&id].min(kept.len())..));
    }
    free.sort_unstable();
    for vnode in free {
        let open = held.iter_mut().filter(|(id, kept)| kept.len() < quotas[*id]);
        if let Some((_, kept)) = open.min_by_key(|(id, _)| (preference(**id, vnode), **id)) {
            kept.push(vnode);
        }
    }
    by_vnode(&held, vnodes)
}

/// How many vnodes each member shall have. The remainder goes to those that hold the most: they keep one more.
fn quotas(held: &BTreeMap<NodeId, Vec<u32>>, vnodes: u32) -> BTreeMap<NodeId, usize> {
    let (share, remainder) = (vnodes as usize / held.len(), vnodes as usize % held.len());
    let mut by_holding: Vec<(NodeId, usize)> = held.iter().map(|(&id, kept)| (id, kept.len())).collect();
    by_holding.sort_by_key(|&(id, kept)| (std::cmp::Reverse(kept), id));
    by_holding.into_iter().enumerate().map(|(rank, (id, _))| (id, share + usize::from(rank < remainder))).collect()
}

fn by_vnode(held: &BTreeMap<NodeId, Vec<u32>>, vnodes: u32) -> Vec<NodeId> {
    let mut owners = vec![NodeId(0); vnodes as usize];
    for (&id, kept) in held {
        for &vnode in kept {
            owners[vnode as usize] = id;
        }
    }
    owners
}

/// How little a hash likes `vnode` at `node` (the finaliser of SplitMix64).
fn preference(node: NodeId, vnode: u32) -> u64 {
    let mut bits = (u64::from(node.0) << 32 | u64::from(vnode)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
