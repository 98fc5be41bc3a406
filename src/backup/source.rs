//! Whose copy of a vnode is read at a restore.
//!
//! Each replica's part and log together say which mutations it has. If one of them has every name that any has, its copy alone
//! amounts to all of them: then the others need not be read at all. Names that were forgotten, since every replica had them,
//! may be listed by one and not by the other; then nothing is concluded and all copies are read.

use std::collections::BTreeMap;

use crate::model::NodeId;
use crate::received::{ReceivedSet, Slice};

/// So many neighbouring vnodes are read of the same replica where several have everything: a copy is read in long runs.
const TURN_VNODES: u32 = 16;

/// Which copies of a vnode are to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Covered {
    /// This one has everything.
    ByOne(NodeId),
    /// No single one is known to have everything.
    ByAll,
}

/// Chooses among the replicas of a slice, each with what it has. Runs of slices take turns among the replicas that
/// have everything.
pub fn covering(slice: Slice, sets: &BTreeMap<NodeId, ReceivedSet>) -> Covered {
    let mut union = ReceivedSet::default();
    sets.values().for_each(|set| union.union(set));
    let whole: Vec<NodeId> = sets.iter().filter(|(_, set)| set.covers(&union)).map(|(node, _)| *node).collect();
    match whole.get((slice.1.0 / TURN_VNODES) as usize % whole.len().max(1)) {
        Some(node) => Covered::ByOne(*node),
        None => Covered::ByAll,
    }
}
