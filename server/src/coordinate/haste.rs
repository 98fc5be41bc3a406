//! Which replicas a lane reads from first and when it asks one more, by what it has seen of how fast each one is.

use std::collections::BTreeMap;

use trefoil::coordinator::{Budget, Load, Speed, best_first, nearest_first};
use trefoil::metadata::ClusterState;
use trefoil::model::NodeId;
use trefoil::ring::Replicas;

use super::Lane;

/// One command in so many takes replicas as they lie, so that one that was slow shows when it is not any more.
const EXPLORED: u64 = 64;

/// What counts as late of a replica that is not known well.
const LATE_UNKNOWN_US: u64 = 50_000;

/// Nothing is late before this: deadlines are looked at a hundred times a second.
const LATE_MIN_US: u64 = 2_000;

/// What a lane has seen of its replicas.
#[derive(Default)]
pub(super) struct Haste {
    speeds: BTreeMap<NodeId, Speed>,
    budget: Budget,
    commands: u64,
}

impl Haste {
    /// The node answered a read after so long.
    pub(super) fn answered(&mut self, node: NodeId, elapsed_us: u64) {
        self.speeds.entry(node).or_default().record(elapsed_us);
    }

    /// The node has not answered for so long, and is not waited for any more.
    pub(super) fn left_waiting(&mut self, node: NodeId, elapsed_us: u64) {
        self.speeds.entry(node).or_default().record_at_least(elapsed_us);
    }

    /// How long answers of all these nodes take at most, unless one is late.
    pub(super) fn late_us(&self, nodes: impl Iterator<Item = NodeId>) -> u64 {
        let late = |node: NodeId| self.speeds.get(&node).and_then(Speed::late_us).unwrap_or(LATE_UNKNOWN_US);
        nodes.map(late).max().unwrap_or(LATE_UNKNOWN_US).max(LATE_MIN_US)
    }

    /// Whether one replica more may be asked; if so it counts.
    pub(super) fn spend(&mut self) -> bool {
        self.budget.spend()
    }
}

impl Lane {
    /// The live replicas of a command, in the order in which they are to be asked. Equally near ones share the work by
    /// `turn`.
    pub(super) fn order(&self, state: &ClusterState, replicas: &Replicas, turn: usize) -> Vec<usize> {
        let distances = self.shared.distances(state, replicas);
        let alive = self.shared.alive_mask(replicas);
        let mut haste = self.haste.lock();
        haste.commands += 1;
        haste.budget.earn();
        if haste.commands.is_multiple_of(EXPLORED) {
            return nearest_first(&distances, alive, turn);
        }
        let links = self.links.read();
        let load = |node: &NodeId| Load {
            usual_us: haste.speeds.get(node).map(Speed::usual_us),
            in_flight: links.get(node).map_or(0, |link| link.in_flight()),
        };
        let loads: Vec<Load> = replicas.nodes.iter().map(|replica| load(&replica.node)).collect();
        best_first(&distances, &loads, alive, turn)
    }
}
