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

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::change::{Change, State};
use crate::commitlog::Position;
use crate::model::{KeyspaceId, MutationName, Stamp, Vnode};
use crate::received::gathered::Gathered;
use crate::received::told::{Floors, Told};
use crate::received::{ReceivedSet, ReceivedSets, Slice};

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
    /// Sets that have grown since somebody asked which had.
    grown: BTreeSet<(KeyspaceId, Vnode)>,
    /// This node has promised to take nothing stamped at or before, except for what it or another replica has already.
    closed_through: Stamp,
    /// Slices of which nothing may be told: something was lost, and what comes meanwhile is told by others.
    withdrawn: BTreeSet<Slice>,
    /// Of slices that were rebuilt since: what was logged before is not among the names, even if it is met only now.
    named_from: BTreeMap<Slice, Position>,
    /// Groups of records that are about to be logged, or are logged and not all told yet; in log order.
    unsettled: VecDeque<Unsettled>,
}

/// One group of records that is on its way into the sets.
#[derive(Debug)]
struct Unsettled {
    /// The lowest stamp among them.
    lowest: Stamp,
    /// Where the last of them ends; `None` while they are not logged yet.
    end: Option<Position>,
}

impl Names {
    /// What the manifest saved, with the log to be replayed from where it says.
    pub(super) fn new(saved: &State) -> Names {
        Names {
            sets: saved.received.clone(),
            inserted: saved.replay_from,
            withdrawn: saved.withdrawn.keys().copied().collect(),
            named_from: saved.named_from.clone(),
            ..Names::default()
        }
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
        self.unsettled.iter_mut().rev().take_while(|group| group.end.is_none()).for_each(|group| group.end = Some(end));
    }

    /// Records stamped from `lowest` on are about to be logged; answers what is promised. A group that the log refused
    /// counts on, as it may be read back when the log is opened again, until another one was logged behind it.
    pub(super) fn begin(&mut self, lowest: Stamp) -> Stamp {
        self.unsettled.push_back(Unsettled { lowest, end: None });
        self.closed_through
    }

    /// Nothing of what was begun last was written.
    pub(super) fn cancel(&mut self) {
        self.unsettled.pop_back_if(|group| group.end.is_none());
    }

    /// From now on nothing is logged that is stamped at or before `through`, except as the invariant of
    /// [`Names::closed_through`] allows. Answers up to where the sets, as they are now, hold all there will be.
    pub(super) fn close(&mut self, through: Stamp) -> Stamp {
        self.closed_through = through.max(self.closed_through);
        let settled = self.inserted.min(self.synced);
        while self.unsettled.pop_front_if(|group| group.end.is_some_and(|end| end <= settled)).is_some() {}
        let before = |group: &Unsettled| Stamp(group.lowest.0.saturating_sub(1));
        self.unsettled.iter().map(before).fold(self.closed_through, Stamp::min)
    }

    /// What is promised.
    pub(super) fn closed_through(&self) -> Stamp {
        self.closed_through
    }

    /// Whether this replica has the name and may say so.
    pub(super) fn has(&mut self, slice: (KeyspaceId, Vnode), name: MutationName) -> bool {
        self.sets().get(&slice).is_some_and(|set| set.contains(name))
    }

    /// What may be told of one slice.
    pub(super) fn of(&mut self, slice: Slice) -> ReceivedSet {
        self.sets().get(&slice).cloned().unwrap_or_default()
    }

    /// Names that the manifest has, with the data that they stand for.
    pub(super) fn adopted(&mut self, slice: Slice, names: &ReceivedSet) {
        self.sets();
        self.sets.entry(slice).or_default().union(names);
        self.grown.insert(slice);
    }

    /// Leaves out the runs that are settled: nothing is left to be said of them.
    pub(super) fn forget(&mut self, slice: Slice, settled: &Floors) {
        self.sets();
        let Some(set) = self.sets.get_mut(&slice) else { return };
        *set = Told::new(std::mem::take(set), settled.clone()).set().clone();
    }

    /// The sets that have grown since this was asked before.
    pub(super) fn take_grown(&mut self) -> Vec<((KeyspaceId, Vnode), ReceivedSet)> {
        self.sets();
        let grown = std::mem::take(&mut self.grown);
        grown.into_iter().filter_map(|slice| Some((slice, self.sets.get(&slice)?.clone()))).collect()
    }

    /// The record that ends at `end` is inserted.
    pub(super) fn on_inserted(&mut self, end: Position, name: Option<((KeyspaceId, Vnode), MutationName)>) {
        self.inserted = end.max(self.inserted);
        let Some((place, name)) = name else { return };
        if self.is_passed_over(place, end) {
            return;
        }
        if end <= self.synced {
            self.fresh.add(place, name);
        } else {
            self.pending.add(place, name);
            self.pending_to = end;
        }
    }

    /// Whether the name of a record that ends there does not count.
    fn is_passed_over(&self, slice: Slice, end: Position) -> bool {
        self.withdrawn.contains(&slice) || self.named_from.get(&slice).is_some_and(|from| end <= *from)
    }

    /// Nothing is told of these slices any more.
    pub(super) fn withdraw(&mut self, slices: impl Iterator<Item = Slice>) {
        for slice in slices {
            self.withdrawn.insert(slice);
            self.sets.remove(&slice);
            self.fresh.remove(slice);
            self.pending.remove(slice);
            self.unsaved.remove(&slice);
            self.grown.remove(&slice);
        }
    }

    /// A slice has all that its sources had told, as the manifest says; what was logged up to `from` is not among the names.
    pub(super) fn rebuilt(&mut self, slice: Slice, names: &ReceivedSet, from: Position) {
        self.sets();
        self.withdrawn.remove(&slice);
        self.named_from.insert(slice, from);
        self.sets.insert(slice, names.clone());
        self.grown.insert(slice);
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
                self.grown.insert(place);
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
