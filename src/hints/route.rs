//! Where a hint goes: to the present owner of its vnode in the zone of the node that missed it.

use crate::model::{Keyspace, NodeId, Vnode};
use crate::ring::Ring;

/// The node that stands today where `target` stood when it missed a write to `vnode`.
///
/// That is `target` itself as long as it holds the vnode, then whoever holds it in its zone. Where the zone holds no copy any
/// more every copy that is left had an acknowledgement or a hint of its own; the keeper, if it has one, else the first, gets
/// it all the same, since a write that comes twice does no harm. Without a keyspace (it was dropped) or copies `target` is
/// to say itself what becomes of it.
pub fn destination(ring: &Ring, keyspace: Option<&Keyspace>, vnode: Vnode, target: NodeId, keeper: NodeId) -> NodeId {
    let Some(keyspace) = keyspace else { return target };
    let replicas = ring.replicas_of(keyspace, vnode);
    if replicas.contains(target) {
        return target;
    }
    let zone_of = |node| ring.node(node).map(|node| &node.zone);
    let zone = zone_of(target);
    let holders = || replicas.nodes.iter().map(|replica| replica.node);
    let in_zone = holders().find(|node| zone.is_some() && zone_of(*node) == zone);
    let own = holders().find(|node| *node == keeper);
    in_zone.or(own).or_else(|| holders().next()).unwrap_or(target)
}
