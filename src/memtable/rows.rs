//! The rows of one partition, sorted by key: one in place, a vector while they are few, a tree once they are many.
//!
//! Most partitions have one row or a handful; a tree's first node alone would take more than such a partition. A single
//! row is found without another miss of the processor's caches, and stored without an allocation.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ops::Bound::Excluded;

use super::arena::Arena;
use crate::Result;
use crate::codec::EncodedRow;
use crate::model::{ClusteringKey, Deletion, Direction, Reconcile, Slice};

/// With more rows than this a vector becomes a tree: inserting in the middle moves 64 bytes a row.
const FEW_ROWS: usize = 32;

/// What a row takes beside its bytes, in bytes: two handles, and the room that vectors and tree nodes leave unused. The
/// first row of a partition lies in the partition, which counts it.
const ROW_OVERHEAD_BYTES: usize = size_of::<(ClusteringKey, EncodedRow)>() * 3 / 2;

#[derive(Debug)]
pub(super) enum Rows {
    One((ClusteringKey, EncodedRow)),
    Few(Vec<(ClusteringKey, EncodedRow)>),
    Many(BTreeMap<ClusteringKey, EncodedRow>),
}

impl Default for Rows {
    fn default() -> Self {
        Rows::Few(Vec::new())
    }
}

impl Rows {
    /// Merges `row` into what stands at `key`. Both are copied into the arena.
    pub(super) fn put(&mut self, key: &ClusteringKey, row: EncodedRow, arena: &mut Arena) -> Result<()> {
        let vacant = match self {
            Rows::One((held, held_row)) if held == key => return merge_into(held_row, row, arena),
            Rows::One((held, _)) => usize::from(&*held < key),
            Rows::Few(rows) => match rows.binary_search_by(|(held, _)| held.cmp(key)) {
                Ok(at) => return merge_into(&mut rows[at].1, row, arena),
                Err(at) => at,
            },
            Rows::Many(rows) => match rows.get_mut(key) {
                Some(held) => return merge_into(held, row, arena),
                None => 0,
            },
        };
        let key = ClusteringKey::from_bytes(arena.copy(key.bytes()))?;
        let row = EncodedRow::trusted(arena.copy(row.bytes()));
        if !self.is_empty() {
            arena.account(ROW_OVERHEAD_BYTES);
        }
        self.insert_new(vacant, key, row);
        Ok(())
    }

    fn is_empty(&self) -> bool {
        matches!(self, Rows::Few(rows) if rows.is_empty())
    }

    /// Inserts at `vacant`, its place in the vector, a row whose key is not there yet.
    fn insert_new(&mut self, vacant: usize, key: ClusteringKey, row: EncodedRow) {
        *self = match std::mem::take(self) {
            rows if rows.is_empty() => Rows::One((key, row)),
            Rows::One(held) => {
                let mut rows = Vec::with_capacity(2);
                rows.push(held);
                rows.insert(vacant, (key, row));
                Rows::Few(rows)
            }
            Rows::Few(mut rows) if rows.len() < FEW_ROWS => {
                rows.insert(vacant, (key, row));
                Rows::Few(rows)
            }
            Rows::Few(rows) => {
                let mut many: BTreeMap<_, _> = rows.into_iter().collect();
                many.insert(key, row);
                Rows::Many(many)
            }
            Rows::Many(mut rows) => {
                rows.insert(key, row);
                Rows::Many(rows)
            }
        };
    }

    /// Drops what `deletion` covers in the rows within `slice`.
    pub(super) fn shadow(&mut self, slice: &Slice, deletion: Deletion, arena: &mut Arena) -> Result<()> {
        if slice.start >= slice.end {
            return Ok(());
        }
        let mut gone = Vec::new();
        let mut shadow_one = |key: &ClusteringKey, row: &mut EncodedRow| -> Result<()> {
            match row.clone().under(deletion)? {
                Some(left) => replace(row, left, arena),
                None => gone.push(key.clone()),
            }
            Ok(())
        };
        match self {
            Rows::One(one) => {
                if !within(std::slice::from_ref(one), slice).is_empty() {
                    shadow_one(&one.0, &mut one.1)?;
                }
                if !gone.is_empty() {
                    *self = Rows::default();
                }
            }
            Rows::Few(rows) => {
                let within = within(rows, slice);
                rows[within].iter_mut().try_for_each(|(key, row)| shadow_one(key, row))?;
                // Both ascend: whatever is gone is met in the same order.
                let mut gone = gone.iter().peekable();
                rows.retain(|(key, _)| gone.next_if_eq(&key).is_none());
            }
            Rows::Many(rows) => {
                rows.range_mut::<[u8], _>(bounds(slice)).try_for_each(|(key, row)| shadow_one(key, row))?;
                for key in gone {
                    rows.remove(&key);
                }
            }
        }
        Ok(())
    }

    /// The rows within `slice`, in `direction`.
    pub(super) fn within<'a>(&'a self, slice: &Slice, direction: Direction) -> RowsWithin<'a> {
        let few = |rows: &'a [(ClusteringKey, EncodedRow)]| Source::Few(rows[within(rows, slice)].iter());
        let source = match self {
            _ if slice.start >= slice.end => Source::Few([].iter()),
            Rows::One(one) => few(std::slice::from_ref(one)),
            Rows::Few(rows) => few(rows),
            Rows::Many(rows) => Source::Many(rows.range::<[u8], _>(bounds(slice))),
        };
        RowsWithin { source, direction }
    }
}

fn within(rows: &[(ClusteringKey, EncodedRow)], slice: &Slice) -> std::ops::Range<usize> {
    let below = |bound: &[u8]| rows.partition_point(|(key, _)| key.bytes().as_ref() < bound);
    below(slice.start.bytes())..below(slice.end.bytes())
}

/// A bound never equals a key, so it does not matter on which side it counts. The slice must not be empty.
fn bounds(slice: &Slice) -> (std::ops::Bound<&[u8]>, std::ops::Bound<&[u8]>) {
    (Excluded(slice.start.bytes()), Excluded(slice.end.bytes()))
}

/// Merges `row` into `held`.
pub(super) fn merge_into(held: &mut EncodedRow, row: EncodedRow, arena: &mut Arena) -> Result<()> {
    let merged = held.clone().merge(row)?;
    replace(held, merged, arena);
    Ok(())
}

/// Puts a copy of `row` in the place of `held`, unless it is `held` itself.
pub(super) fn replace(held: &mut EncodedRow, row: EncodedRow, arena: &mut Arena) {
    let (old, new) = (held.bytes(), row.bytes());
    if old.as_ptr() != new.as_ptr() || old.len() != new.len() {
        *held = EncodedRow::trusted(arena.copy(new));
    }
}

/// See [`Rows::within`].
pub(super) struct RowsWithin<'a> {
    source: Source<'a>,
    direction: Direction,
}

enum Source<'a> {
    Few(std::slice::Iter<'a, (ClusteringKey, EncodedRow)>),
    Many(btree_map::Range<'a, ClusteringKey, EncodedRow>),
}

impl<'a> Iterator for RowsWithin<'a> {
    type Item = (&'a ClusteringKey, &'a EncodedRow);

    fn next(&mut self) -> Option<Self::Item> {
        match (&mut self.source, self.direction) {
            (Source::Few(rows), Direction::Forward) => rows.next().map(|(key, row)| (key, row)),
            (Source::Few(rows), Direction::Reverse) => rows.next_back().map(|(key, row)| (key, row)),
            (Source::Many(rows), Direction::Forward) => rows.next(),
            (Source::Many(rows), Direction::Reverse) => rows.next_back(),
        }
    }
}
