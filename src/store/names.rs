//! Which names this replica has, as far as it may say so.
//!
//! **Invariant:** a name is in a set only if its record is durable in the log *and* inserted. Records are inserted in
//! log order, so two positions decide: up to where the log is synced, and up to where it is inserted.

use std::collections::{BTreeSet, VecDeque};

use super::change::Change;
use crate::commitlog::Position;
use crate::model::{KeyspaceId, MutationName, Vnode};
use crate::received::ReceivedSets;

#[derive(Debug, Default)]
pub(super) struct Names {
    sets: ReceivedSets,
    /// Inserted and not known to be durable, in log order.
    pending: VecDeque<(Position, (KeyspaceId, Vnode), MutationName)>,
    /// Everything that ends here or before is durable.
    synced: Position,
    /// Everything that ends here or before is inserted.
    inserted: Position,
    /// Sets of which the manifest does not know all.
    unsaved: BTreeSet<(KeyspaceId, Vnode)>,
}

impl Names {
    /// What the manifest saved, with the log to be replayed from `replay_from`.
    pub(super) fn new(sets: ReceivedSets, replay_from: Position) -> Names {
        Names { sets, inserted: replay_from, ..Names::default() }
    }

    /// Up to where the log is inserted: where the next record to be inserted begins, or before.
    pub(super) fn inserted(&self) -> Position {
        self.inserted
    }

    /// The record that ends at `end` is inserted.
    pub(super) fn on_inserted(&mut self, end: Position, name: Option<((KeyspaceId, Vnode), MutationName)>) {
        self.inserted = end.max(self.inserted);
        match name {
            Some((place, name)) if end <= self.synced => self.enter(place, name),
            Some((place, name)) => self.pending.push_back((end, place, name)),
            None => {}
        }
    }

    /// The log is durable up to `position`.
    pub(super) fn on_synced(&mut self, position: Position) {
        self.synced = position.max(self.synced);
        while let Some((_, place, name)) = self.pending.pop_front_if(|(end, ..)| *end <= position) {
            self.enter(place, name);
        }
    }

    fn enter(&mut self, place: (KeyspaceId, Vnode), name: MutationName) {
        if self.sets.entry(place).or_default().add(name) {
            self.unsaved.insert(place);
        }
    }

    pub(super) fn sets(&self) -> &ReceivedSets {
        &self.sets
    }

    /// The sets that the manifest does not know all of, as changes for its next edit.
    pub(super) fn take_unsaved(&mut self) -> Vec<Change> {
        let unsaved = std::mem::take(&mut self.unsaved);
        let sets = unsaved.into_iter().filter_map(|place| Some((place, self.sets.get(&place)?.clone())));
        sets.map(|((keyspace, vnode), set)| Change::Received(keyspace, vnode, set)).collect()
    }

    /// Takes back what [`Names::take_unsaved`] gave for an edit that failed.
    pub(super) fn not_saved(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::Received(keyspace, vnode, _) = change {
                self.unsaved.insert((*keyspace, *vnode));
            }
        }
    }
}
