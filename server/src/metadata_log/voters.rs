//! Which nodes vote.

use std::collections::{BTreeMap, BTreeSet};

use trefoil::model::NodeId;
use trefoil::ring::{NodeState, Ring};

/// Most voters: more make every entry slower and the log hardly safer.
const VOTERS_MAX: usize = 5;

/// One node per zone, the one with the smallest number, at most five. Where there are more zones, regions take turns, in
/// the order of their smallest numbers; node 1 always votes.
pub fn voters(ring: &Ring) -> BTreeSet<NodeId> {
    let mut by_zone = BTreeMap::new();
    for node in ring.nodes().filter(|node| node.state == NodeState::Serving) {
        by_zone.entry(&node.zone).or_insert(node.id);
    }
    let mut by_region: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
    for (zone, id) in by_zone {
        by_region.entry(&zone.region).or_default().push(id);
    }
    let mut regions: Vec<Vec<NodeId>> = by_region.into_values().collect();
    regions.iter_mut().for_each(|ids| ids.sort_unstable());
    regions.sort_unstable();
    let turns = regions.iter().map(Vec::len).max().unwrap_or(0);
    (0..turns).flat_map(|turn| regions.iter().filter_map(move |ids| ids.get(turn))).take(VOTERS_MAX).copied().collect()
}
