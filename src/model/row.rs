//! A row: its marker, its deletion and its cells.

use super::cell::{Cell, Deletion, Liveness};
use super::schema::ColumnId;

/// Everything that is known of one row, or of the static row of a partition.
///
/// Invariants, held by every constructor and checked by every decoder: `cells` strictly ascend by column id; nothing
/// in the row is covered by its own `deletion`; a static row has neither marker nor deletion.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Row {
    /// Present if the row was ever inserted (rather than only updated) and not deleted since.
    pub marker: Option<Liveness>,
    /// The row's own deletion; what it covers is no longer in the row.
    pub deletion: Option<Deletion>,
    /// One cell per column at most, ascending by id.
    pub cells: Vec<(ColumnId, Cell)>,
}

impl Row {
    /// Whether there is nothing in it at all, not even a deletion.
    pub fn is_empty(&self) -> bool {
        self.marker.is_none() && self.deletion.is_none() && self.cells.is_empty()
    }

    /// Whether a reader at `now_s` sees the row: its marker or one of its cells is live.
    ///
    /// For a static row: whether any static column has a value.
    pub fn is_visible_at(&self, now_s: i64) -> bool {
        self.marker.is_some_and(|marker| marker.is_live_at(now_s))
            || self.cells.iter().any(|(_, cell)| cell.value_at(now_s).is_some())
    }

    /// How many things in the row say that something is gone: its deletion, a marker or cells that are deleted or expired.
    pub fn tombstones_at(&self, now_s: i64) -> u64 {
        let deletion = u64::from(self.deletion.is_some());
        let marker = u64::from(self.marker.is_some_and(|marker| !marker.is_live_at(now_s)));
        let cells = self.cells.iter().filter(|(_, cell)| cell.value_at(now_s).is_none());
        deletion + marker + cells.count() as u64
    }

    /// The cell of `column`, if the row holds one.
    pub fn cell(&self, column: ColumnId) -> Option<&Cell> {
        self.cells.binary_search_by_key(&column, |(id, _)| *id).ok().map(|at| &self.cells[at].1)
    }
}
