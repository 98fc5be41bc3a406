//! A column of many cells: a map, set, list or user type that is not frozen, so that its elements are written one by one.
//!
//! Each element is a cell of its own at a *path* within the column, and is reconciled like any other cell. Writing the
//! column as a whole deletes what was there before by a deletion of the column's own.
//!
//! | type | path | value |
//! |---|---|---|
//! | map | the key's bytes | the value's bytes |
//! | set | the element's bytes | nothing |
//! | list | 16 bytes of a timeuuid, which give the element its place | the element's bytes |
//! | user type | the field's position, two bytes, big-endian | the field's bytes |
//!
//! Paths are ordered as unsigned bytes here; whoever shows the column sorts by its type.

use bytes::Bytes;

use super::cell::{Cell, Deletion};
use super::reconcile::merge_cells;
use super::time::Timestamp;

/// Everything that is known of one complex column of one row.
///
/// Invariants, held by every constructor and checked by every decoder: paths strictly ascend as unsigned bytes; nothing
/// in it is covered by its own deletion; it is not empty; no cell in it is a counter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Complex {
    /// The column's own deletion; what it covers is no longer there. It makes no row visible.
    pub deletion: Option<Deletion>,
    /// The elements, by path.
    pub cells: Vec<(Bytes, Cell)>,
}

impl Complex {
    /// A column of these elements under this deletion. Elements come in any order; those at one path are reconciled.
    /// `None` if nothing is left.
    pub fn of(deletion: Option<Deletion>, elements: impl IntoIterator<Item = (Bytes, Cell)>) -> Option<Complex> {
        let mut elements: Vec<(Bytes, Cell)> = elements.into_iter().collect();
        elements.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut cells: Vec<(Bytes, Cell)> = Vec::with_capacity(elements.len());
        for (path, cell) in elements {
            match cells.pop() {
                Some((last, earlier)) if last == path => cells.push((path, merge_cells(earlier, cell))),
                last => cells.extend(last.into_iter().chain([(path, cell)])),
            }
        }
        Complex { deletion: None, cells }.under_own(deletion)
    }

    /// A column that is overwritten at `timestamp`: what was there before is deleted, then come the elements.
    ///
    /// The deletion lies just before the elements, so that it does not cover them; two writes at one timestamp therefore
    /// leave the elements of both. At the smallest timestamp nothing can lie before, and nothing is deleted.
    pub fn replaced(
        timestamp: Timestamp,
        ldt_s: i64,
        elements: impl IntoIterator<Item = (Bytes, Cell)>,
    ) -> Option<Complex> {
        let deletion = (timestamp > Timestamp::MIN).then(|| Deletion { timestamp: Timestamp(timestamp.0 - 1), ldt_s });
        Complex::of(deletion, elements)
    }

    /// A column that is null from `deletion` on.
    pub fn deleted(deletion: Deletion) -> Complex {
        Complex { deletion: Some(deletion), cells: Vec::new() }
    }

    /// Whether it says nothing. Such a column stands in no row.
    pub fn is_empty(&self) -> bool {
        self.deletion.is_none() && self.cells.is_empty()
    }

    /// The elements that have a value at `now_s`: path and value, ascending by path.
    pub fn values_at(&self, now_s: i64) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.cells.iter().filter_map(move |(path, cell)| Some((path, cell.value_at(now_s)?)))
    }

    /// Whether any element has a value at `now_s`.
    pub fn is_live_at(&self, now_s: i64) -> bool {
        self.cells.iter().any(|(_, cell)| cell.is_live_at(now_s))
    }

    /// The largest timestamp in it, its deletion's included; `None` if it is empty.
    pub fn newest_timestamp(&self) -> Option<Timestamp> {
        let deletion = self.deletion.map(|deletion| deletion.timestamp);
        self.cells.iter().map(|(_, cell)| cell.timestamp).chain(deletion).max()
    }

    /// What is left with this as its own deletion; it has none yet.
    pub(super) fn under_own(mut self, deletion: Option<Deletion>) -> Option<Complex> {
        if let Some(deletion) = deletion {
            self.cells.retain(|(_, cell)| !deletion.covers_cell(cell));
        }
        self.deletion = deletion;
        (!self.is_empty()).then_some(self)
    }

    /// What is left under the deletion of the row or of anything around it: only what is strictly later.
    pub(super) fn under(mut self, enclosing: Deletion) -> Option<Complex> {
        self.cells.retain(|(_, cell)| !enclosing.covers_cell(cell));
        self.deletion = self.deletion.filter(|own| !enclosing.covers(own.timestamp));
        (!self.is_empty()).then_some(self)
    }
}
