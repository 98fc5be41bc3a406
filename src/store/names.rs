//! Which names this replica has, as far as it may say so.
//!
//! ```text
//!   inserted ──► pending ──synced──► fresh ──somebody asks──► sets
//!                   └── synced already ──►
//! ```
//!
//! **Invariant:** a name is in a set only if its record is durable in the log *and* inserted. Records are inserted in
//! log order, so two positions decide: up to where the log is synced, and up to where it is inserted.
//!
//! What comes name by name is gathered by slice, and joined set by set: in a table that is synced every few seconds, a
//! million names become told at once.

use std::collections::BTreeSet;

use super::change::Change;
use crate::commitlog::Position;
use crate::model::{KeyspaceId, MutationName, Vnode};
use crate::received::ReceivedSets;
use crate::received::gathered::Gathered;

#[derive(Debug, Default)]
pub(super) struct Names {
    sets: ReceivedSets,
    /// To be told, and not in the sets yet.
    fresh: Gathered,
    /// Inserted and not known to be durable.
    pending: Gathered,
    /// Where the last record of `pending` ends.
    pending_to: Position,
    /// Where the last record that was logged in this run ends; inserted it may not be yet.
    appended: Position,
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

    /// Where the last record that was logged in this run ends.
    pub(super) fn appended(&self) -> Position {
        self.appended
    }

    /// Records were logged, up to `end`.
    pub(super) fn on_appended(&mut self, end: Position) {
        self.appended = end.max(self.appended);
    }

    /// The record that ends at `end` is inserted.
    pub(super) fn on_inserted(&mut self, end: Position, name: Option<((KeyspaceId, Vnode), MutationName)>) {
        self.inserted = end.max(self.inserted);
        let Some((place, name)) = name else { return };
        if end <= self.synced {
            self.fresh.add(place, name);
        } else {
            self.pending.add(place, name);
            self.pending_to = end;
        }
    }

    /// The log is durable up to `position`, and nothing that was logged behind it is inserted.
    pub(super) fn on_synced(&mut self, position: Position) {
        debug_assert!(self.pending_to <= position, "the caller holds the log");
        self.synced = position.max(self.synced);
        if self.pending_to <= position {
            self.pending.drain().for_each(|(place, names)| self.fresh.add_all(place, names));
        }
    }

    /// All that may be told.
    pub(super) fn sets(&mut self) -> &ReceivedSets {
        for (place, names) in self.fresh.drain() {
            let set = self.sets.entry(place).or_default();
            if !names.difference(set).is_empty() {
                set.union(&names);
                self.unsaved.insert(place);
            }
        }
        &self.sets
    }

    /// The sets that the manifest does not know all of, as changes for its next edit.
    pub(super) fn take_unsaved(&mut self) -> Vec<Change> {
        self.sets();
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
