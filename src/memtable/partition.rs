//! One partition in memory.
//!
//! **Invariant:** nothing held is covered by an enclosing deletion that is held. A deletion drops what it covers when it
//! arrives, and what arrives later passes the deletions first. Reads and the flush then have nothing to shadow, and in
//! the usual pattern, a queue whose consumed head is deleted again and again, each row is dropped once; the price is
//! that a wide deletion looks at every row under it while it holds the shard.

use std::iter::Peekable;

use bytes::Bytes;

use super::arena::Arena;
use super::rows::{Rows, RowsWithin};
use crate::Result;
use crate::codec::mutation::view::MutationView;
use crate::codec::row::{self, EncodedRow, Touch};
use crate::model::ranges::Ranges;
use crate::model::{
    Bound, ClusteringKey, Deletion, Direction, Fragment, Glance, Lone, PartitionHeader, PartitionKey, RangeDeletion,
    Reconcile, Slice,
};

/// What a place where the range deletion in force changes takes, in bytes: its bound, its deletion, room in the tree.
const RANGE_CHANGE_OVERHEAD_BYTES: usize = 100;

#[derive(Debug, Default)]
pub(super) struct Partition {
    rows: Rows,
    /// What only some partitions have.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
struct Rare {
    deletion: Option<Deletion>,
    static_row: Option<EncodedRow>,
    ranges: Ranges,
}

impl Partition {
    /// Applies a mutation. What it says is copied into the arena. After an error, which only bytes that are not a row can
    /// cause, a part of it may have been applied; merging it again does no harm.
    pub(super) fn apply(
        &mut self,
        mutation: &MutationView<'_>,
        ranges: &[RangeDeletion],
        arena: &mut Arena,
    ) -> Result<()> {
        if let Some(deletion) = mutation.deletion {
            self.delete(deletion, arena)?;
        }
        for range in ranges {
            self.delete_range(range, arena)?;
        }
        if let Some(row) = mutation.static_row {
            self.put_static(EncodedRow::trusted(Bytes::copy_from_slice(row)), arena)?;
        }
        for row in mutation.rows.clone() {
            let (key, row) = row?;
            match self.covering(key) {
                None => self.rows.put(key, row, arena)?,
                Some(deletion) => match row::touched(row, deletion)? {
                    Touch::Not => self.rows.put(key, row, arena)?,
                    Touch::Partly(left) => self.rows.put(key, left.bytes(), arena)?,
                    Touch::Wholly => {}
                },
            }
        }
        Ok(())
    }

    /// The deletion of all of it.
    pub(super) fn deletion(&self) -> Option<Deletion> {
        self.rare.as_ref().and_then(|rare| rare.deletion)
    }

    fn rare(&mut self, arena: &mut Arena) -> &mut Rare {
        self.rare.get_or_insert_with(|| {
            arena.account(size_of::<Rare>());
            Box::default()
        })
    }

    fn delete(&mut self, deletion: Deletion, arena: &mut Arena) -> Result<()> {
        if self.deletion() >= Some(deletion) {
            return Ok(());
        }
        self.rows.shadow(&Slice::all(), deletion, arena)?;
        let rare = self.rare(arena);
        rare.deletion = Some(deletion);
        let covers = |range: &RangeDeletion| deletion.covers(range.deletion.timestamp);
        let left: Vec<_> = rare.ranges.deletions().filter(|range| !covers(range)).collect();
        rare.ranges = Ranges::new();
        for RangeDeletion { start, end, deletion } in left {
            rare.ranges.add(start, end, deletion);
        }
        if let Some(row) = rare.static_row.take()
            && let Some(left) = row.under(deletion)?
        {
            rare.static_row = Some(EncodedRow::trusted(arena.copy_alone(left.bytes())));
        }
        Ok(())
    }

    fn delete_range(&mut self, range: &RangeDeletion, arena: &mut Arena) -> Result<()> {
        let covered = self.deletion().is_some_and(|deletion| deletion.covers(range.deletion.timestamp));
        if covered || range.start >= range.end {
            return Ok(());
        }
        let slice = Slice { start: range.start.clone(), end: range.end.clone() };
        self.rows.shadow(&slice, range.deletion, arena)?;
        let start = Bound::from_bytes(arena.copy_alone(range.start.bytes()))?;
        let end = Bound::from_bytes(arena.copy_alone(range.end.bytes()))?;
        arena.account(2 * RANGE_CHANGE_OVERHEAD_BYTES);
        self.rare(arena).ranges.add(start, end, range.deletion);
        Ok(())
    }

    fn put_static(&mut self, row: EncodedRow, arena: &mut Arena) -> Result<()> {
        let row = match self.deletion() {
            Some(deletion) => row.under(deletion)?,
            None => Some(row),
        };
        let Some(row) = row else { return Ok(()) };
        let held = self.rare.as_ref().and_then(|rare| rare.static_row.as_ref());
        let merged = match held {
            Some(held) => held.clone().merge(row)?,
            None => row,
        };
        if held != Some(&merged) {
            let copy = arena.copy_alone(merged.bytes());
            self.rare(arena).static_row = Some(EncodedRow::trusted(copy));
        }
        Ok(())
    }

    /// The enclosing deletion of a row that arrives.
    fn covering(&self, key: &[u8]) -> Option<Deletion> {
        let rare = self.rare.as_ref()?;
        rare.deletion.max(rare.ranges.in_force_at(key))
    }

    pub(super) fn header(&self, key: &PartitionKey) -> Fragment<EncodedRow> {
        let static_row = self.rare.as_ref().and_then(|rare| rare.static_row.clone());
        Fragment::Partition(PartitionHeader { key: key.clone(), deletion: self.deletion(), static_row })
    }

    /// What lies within the slice, if that is one row at most.
    pub(super) fn glance(&self, slice: &Slice, arena: &Arena) -> Glance<EncodedRow> {
        let rare = self.rare.as_deref();
        if rare.is_some_and(|rare| !rare.ranges.is_empty()) {
            return Glance::More;
        }
        let mut rows = self.rows.within(slice, Direction::Forward, arena);
        let row = rows.next();
        if row.is_some() && rows.next().is_some() {
            return Glance::More;
        }
        let static_row = rare.and_then(|rare| rare.static_row.clone());
        Glance::Lone(Lone { deletion: self.deletion(), static_row, row: row.map(|place| arena.row(place)) })
    }

    /// Appends the next rows and changes to `batch` and moves `cursor` behind them.
    pub(super) fn gather(&self, cursor: &mut Cursor, batch: &mut Batch, arena: &Arena) -> Progress {
        let direction = cursor.direction;
        while let Some(slice) = cursor.slices.last() {
            let ranges = self.rare.as_ref().map(|rare| &rare.ranges).filter(|ranges| !ranges.is_empty());
            let mut walk = Walk {
                rows: self.rows.within(slice, direction, arena).peekable(),
                arena,
                changes: ranges.map(|ranges| ranges.changes(slice, direction)).into_iter().flatten().peekable(),
                direction,
            };
            if let Some(cut) = walk.run(&mut cursor.in_force, near(slice, direction).clone(), batch) {
                cursor.cut_at(cut);
                return Progress::Cut;
            }
            cursor.slices.pop();
        }
        Progress::Done
    }
}

/// Whether everything asked for was gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    Cut,
}

/// Fragments taken under one hold of a shard's lock.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) fragments: std::collections::VecDeque<Fragment<EncodedRow>>,
}

impl Batch {
    /// How many fragments are taken under one hold of a lock, about: some 10 µs.
    const FULL: usize = 64;

    pub(super) fn is_full(&self) -> bool {
        self.fragments.len() >= Batch::FULL
    }

    /// Whether one more makes it full.
    fn is_nearly_full(&self) -> bool {
        self.fragments.len() + 1 >= Batch::FULL
    }
}

/// A place within a partition from which a read goes on. Between two batches the partition may change; the cursor knows
/// which range deletion the reader has seen opened, so that what it sees stays balanced.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    /// What is still to be read; the next slice is the last.
    slices: Vec<Slice>,
    direction: Direction,
    in_force: Option<Deletion>,
}

impl Cursor {
    /// Before the first row.
    pub(super) fn new(slices: &[Slice], direction: Direction) -> Cursor {
        let mut slices = Slice::joined(slices);
        if direction == Direction::Forward {
            slices.reverse();
        }
        Cursor { slices, direction, in_force: None }
    }

    fn cut_at(&mut self, bound: Bound) {
        if let Some(slice) = self.slices.last_mut() {
            match self.direction {
                Direction::Forward => slice.start = bound,
                Direction::Reverse => slice.end = bound,
            }
        }
    }
}

fn near(slice: &Slice, direction: Direction) -> &Bound {
    match direction {
        Direction::Forward => &slice.start,
        Direction::Reverse => &slice.end,
    }
}

/// Rows and changes of one slice, brought into one order.
struct Walk<'a, C: Iterator<Item = (Bound, Option<Deletion>)>> {
    rows: Peekable<RowsWithin<'a>>,
    arena: &'a Arena,
    changes: Peekable<C>,
    direction: Direction,
}

impl<C: Iterator<Item = (Bound, Option<Deletion>)>> Walk<'_, C> {
    /// Appends until the slice ends, or until the batch is full: then answers where to go on. `seen` is the deletion that
    /// the reader has seen opened, `start` the near end of the slice.
    fn run(&mut self, seen: &mut Option<Deletion>, start: Bound, batch: &mut Batch) -> Option<Bound> {
        let opened = self.changes.next_if(|(bound, _)| *bound == start).and_then(|(_, deletion)| deletion);
        if opened != *seen {
            batch.fragments.push_back(Fragment::Change(start, opened));
            *seen = opened;
        }
        loop {
            let row_is_next = match (self.rows.peek(), self.changes.peek()) {
                (None, None) => return None,
                (Some(row), Some((bound, _))) => self.direction.order(self.arena.key(*row).cmp(bound.bytes())).is_lt(),
                (row, _) => row.is_some(),
            };
            if row_is_next {
                let (key, row) = self.arena.row(self.rows.next()?);
                let behind = match self.direction {
                    Direction::Forward => ClusteringKey::after,
                    Direction::Reverse => ClusteringKey::before,
                };
                let cut = batch.is_nearly_full().then(|| behind(&key));
                batch.fragments.push_back(Fragment::Row(key, row));
                if cut.is_some() {
                    return cut;
                }
            } else {
                let (bound, deletion) = self.changes.next()?;
                // A cut lies before a change, never behind it: the next batch may find another one at this place.
                if batch.is_full() {
                    return Some(bound);
                }
                batch.fragments.push_back(Fragment::Change(bound, deletion));
                *seen = deletion;
            }
        }
    }
}
