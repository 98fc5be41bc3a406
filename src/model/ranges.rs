//! The range deletions of one partition as a step function over its clustering order.
//!
//! ```text
//! add [0,10]@5, then [5,15]@7
//!   0──────5───────10────15          changes   0: @5   5: @7   15: none
//!   │  @5  │      @7      │          deletions [0,5)@5  [5,15]@7
//! ```
//!
//! **Invariant:** neighbouring changes differ, the first is a deletion, the last is none. Everything that yields range
//! deletions, in either direction and clipped anywhere, derives from this one form.

use std::borrow::Borrow;
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound::{Excluded, Included, Unbounded};

use super::cell::Deletion;
use super::fragment::Direction;
use super::key::{Bound, Slice};
use super::mutation::RangeDeletion;
use super::reconcile::merge_deletions;

/// Range deletions, normalised. Costs nothing while empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ranges {
    /// From each bound on, in ascending order, this deletion is in force.
    changes: BTreeMap<Bound, Option<Deletion>>,
}

/// Bounds are ordered by their bytes, so they can be looked up by the bytes of a row's key.
impl Borrow<[u8]> for Bound {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

impl Ranges {
    /// No deletion anywhere.
    pub fn new() -> Ranges {
        Ranges::default()
    }

    /// Whether nothing is deleted.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The number of places where the deletion in force changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Deletes everything between `start` and `end`; where something else is deleted too, the winner by
    /// [`super::reconcile::merge_deletions`] is in force. An empty range (`start >= end`) deletes nothing (B104).
    pub fn add(&mut self, start: Bound, end: Bound, deletion: Deletion) {
        if start >= end {
            return;
        }
        let mut previous = self.below(&start);
        self.split(&start);
        self.split(&end);
        let mut redundant = Vec::new();
        for (bound, value) in self.changes.range_mut::<Bound, _>((Included(&start), Included(&end))) {
            if *bound < end {
                *value = merge_deletions(*value, Some(deletion));
            }
            if *value == previous {
                redundant.push(bound.clone());
            }
            previous = *value;
        }
        for bound in redundant {
            self.changes.remove(&bound);
        }
    }

    /// The deletion that covers the place of a row, by the bytes of its key.
    pub fn in_force_at(&self, key: &[u8]) -> Option<Deletion> {
        if self.is_empty() { None } else { self.last_before(Excluded(key)) }
    }

    /// The changes within `slice` as they stand in a stream of this direction: what is in force at its near end is
    /// opened there, what is in force at its far end is closed there. Slices that touch must be joined before.
    pub fn changes(&self, slice: &Slice, direction: Direction) -> impl Iterator<Item = (Bound, Option<Deletion>)> + '_ {
        let Slice { start, end } = slice.clone();
        let empty = self.is_empty() || start >= end;
        let at_start = if empty { None } else { self.above(&start) };
        let at_end = if empty { None } else { self.below(&end) };
        let (near, far) = match direction {
            Direction::Forward => ((start.clone(), at_start), (end.clone(), at_end)),
            Direction::Reverse => ((end.clone(), at_end), (start.clone(), at_start)),
        };
        let within = (!empty).then(|| self.changes.range::<Bound, _>((Excluded(start), Excluded(end))));
        let opened = near.1.map(|deletion| (near.0, Some(deletion)));
        let closed = far.1.map(|_| (far.0, None));
        opened.into_iter().chain(self.directed(within, direction)).chain(closed)
    }

    /// Every range, ascending.
    pub fn deletions(&self) -> impl Iterator<Item = RangeDeletion> + '_ {
        let ends = self.changes.keys().skip(1);
        self.changes.iter().zip(ends).filter_map(|((start, deletion), end)| {
            deletion.map(|deletion| RangeDeletion { start: start.clone(), end: end.clone(), deletion })
        })
    }

    fn directed<'a>(
        &'a self,
        mut within: Option<btree_map::Range<'a, Bound, Option<Deletion>>>,
        direction: Direction,
    ) -> impl Iterator<Item = (Bound, Option<Deletion>)> + 'a {
        std::iter::from_fn(move || {
            let within = within.as_mut()?;
            match direction {
                Direction::Forward => within.next().map(|(bound, deletion)| (bound.clone(), *deletion)),
                // Going down, what comes into force at a bound is what was in force below it.
                Direction::Reverse => within.next_back().map(|(bound, _)| (bound.clone(), self.below(bound))),
            }
        })
    }

    /// Makes `bound` a place of change, even if nothing changes there.
    fn split(&mut self, bound: &Bound) {
        let above = self.above(bound);
        self.changes.entry(bound.clone()).or_insert(above);
    }

    /// What is in force just above `bound`.
    fn above(&self, bound: &Bound) -> Option<Deletion> {
        self.last_before(Included(bound.bytes()))
    }

    /// What is in force just below `bound`.
    fn below(&self, bound: &Bound) -> Option<Deletion> {
        self.last_before(Excluded(bound.bytes()))
    }

    fn last_before(&self, limit: std::ops::Bound<&[u8]>) -> Option<Deletion> {
        self.changes.range::<[u8], _>((Unbounded, limit)).next_back().and_then(|(_, deletion)| *deletion)
    }
}

#[cfg(test)]
pub(super) mod tests;
