//! Who knows everything: every name that was given, its stamp, and which replicas have ever told that they have it.
//!
//! It looks at what nodes claim. That something is reconciled, or may be purged by, is true of a stamp only if each name
//! stamped so or before is in all replicas of its slice or in none; and if in none, nobody may come with it any more. A set that
//! was told must not shrink, except for runs of which everything is everywhere, and what it says was there after a loss of power
//! must be in the log. A write is acknowledged by as many replicas as its level takes, and those have it.

use std::collections::{BTreeMap, BTreeSet};

use trefoil::model::{MutationName, NodeId, Stamp};
use trefoil::received::{ReceivedSet, ReceivedSets, Slice};
use trefoil::store::Store;

use super::scheduler::Sim;
use super::shape::node_id;

/// Whether the log is synced up to where something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synced {
    Already,
    NotYet,
}

#[derive(Default)]
pub struct Oracle {
    stamps: BTreeMap<(Slice, MutationName), Stamp>,
    names: BTreeMap<(Slice, Stamp), Vec<MutationName>>,
    /// By node: every name that it has told, and its last word.
    held: BTreeMap<(NodeId, Slice), (ReceivedSet, ReceivedSet)>,
    /// By name: the nodes that have ever had its record in their log and their memtable.
    applied: BTreeMap<(Slice, MutationName), BTreeSet<NodeId>>,
    /// By node: what was inserted since its log was synced last.
    unsynced: BTreeMap<NodeId, ReceivedSets>,
    /// Up to where a claim was found to be true.
    claimed: BTreeMap<Slice, Stamp>,
}

impl Oracle {
    fn held(&self, node: NodeId, slice: Slice, name: MutationName) -> bool {
        self.held.get(&(node, slice)).is_some_and(|(held, _)| held.contains(name))
    }
}

impl Sim {
    /// A mutation was named.
    pub fn named(&mut self, slice: Slice, name: MutationName, stamp: Stamp) {
        if self.oracle.stamps.insert((slice, name), stamp).is_some() {
            self.fail(format!("two mutations of {slice:?} are named {name:?}"));
        }
        self.oracle.names.entry((slice, stamp)).or_default().push(name);
    }

    /// A node has inserted a mutation; whether its log is synced up to there.
    pub fn applied(&mut self, node: usize, (slice, name): (Slice, MutationName), durability: Synced) {
        let node = node_id(node);
        self.oracle.applied.entry((slice, name)).or_default().insert(node);
        if durability == Synced::NotYet {
            self.oracle.unsynced.entry(node).or_default().entry(slice).or_default().add(name);
        }
    }

    /// The log of a node is synced.
    pub fn synced(&mut self, node: usize) {
        self.oracle.unsynced.remove(&node_id(node));
    }

    /// A client is told that so many replicas have its write.
    pub fn acknowledged(&mut self, slice: Slice, name: MutationName, replicas: usize) {
        let holders = self.oracle.applied.get(&(slice, name)).map_or(0, BTreeSet::len);
        if holders < replicas {
            self.fail(format!("{name:?} of {slice:?} is acknowledged by {replicas} replicas, and {holders} have it"));
        }
    }

    /// A node has started: what it says it has of what no sync had covered must be in its log, whatever it lost.
    pub fn came_back(&mut self, node: usize, store: &Store) {
        let node = node_id(node);
        let Some(unsynced) = self.oracle.unsynced.remove(&node) else { return };
        let told = store.received();
        for (slice, names) in unsynced {
            let claimed = told.get(&slice).map(|told| told.intersection(&names)).unwrap_or_default();
            let wanted = ReceivedSets::from([(slice, claimed.clone())]);
            let found = store.records_named(&wanted, usize::MAX).map_or(0, |records| records.len() as u64);
            if found < claimed.count() {
                self.fail(format!("{node} says that it has {claimed:?} of {slice:?}, and its log has {found} of them"));
            }
        }
    }

    /// A node tells what it has of a slice.
    pub fn told(&mut self, node: usize, slice: Slice, set: &ReceivedSet) {
        let node = node_id(node);
        let (held, last) = self.oracle.held.entry((node, slice)).or_default();
        let (new, gone) = (set.difference(held), last.difference(set));
        last.clone_from(set);
        let claimed = self.oracle.claimed.get(&slice).copied().unwrap_or(Stamp(i64::MIN));
        for name in names(&new) {
            match self.oracle.stamps.get(&(slice, name)) {
                None => self.fail(format!("{node} tells {name:?}, which nobody has named")),
                Some(stamp) if *stamp <= claimed => {
                    self.fail(format!("{node} comes with {name:?} of {slice:?} when {claimed:?} was reconciled"));
                }
                Some(_) => {}
            }
        }
        self.oracle.held.entry((node, slice)).or_default().0.union(set);
        let replicas = self.shape.replicas_of(slice);
        for name in names(&gone) {
            if !replicas.iter().all(|replica| self.oracle.held(*replica, slice, name)) {
                self.fail(format!("{node} has told {name:?} of {slice:?} and tells it no more"));
            }
        }
    }

    /// A node counts on it that everything stamped so or before is in all replicas, or void.
    pub fn claimed(&mut self, node: usize, slice: Slice, through: Stamp) {
        let before = self.oracle.claimed.get(&slice).copied().unwrap_or(Stamp(i64::MIN));
        if through <= before {
            return;
        }
        let replicas = self.shape.replicas_of(slice);
        let range = (slice, Stamp(before.0 + 1))..=(slice, through);
        let holders_of = |name: &MutationName| {
            replicas.iter().copied().filter(|replica| self.oracle.held(*replica, slice, *name)).collect::<Vec<_>>()
        };
        let partly = self.oracle.names.range(range).flat_map(|(_, names)| names).find_map(|name| {
            let holders = holders_of(name);
            (!holders.is_empty() && holders.len() != replicas.len()).then_some((*name, holders))
        });
        if let Some((name, holders)) = partly {
            self.fail(format!(
                "n{node} takes {through:?} of {slice:?} for reconciled, but only {holders:?} have {name:?}"
            ));
        }
        self.oracle.claimed.insert(slice, through);
    }
}

fn names(set: &ReceivedSet) -> Vec<MutationName> {
    let runs = set.runs().flat_map(|(origin, incarnation, intervals)| {
        intervals.iter().map(move |interval| (origin, incarnation, interval.first..=interval.last))
    });
    runs.flat_map(|(origin, incarnation, sequences)| {
        sequences.map(move |sequence| MutationName { origin, incarnation, sequence })
    })
    .collect()
}
