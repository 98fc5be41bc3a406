//! A row: its marker, its deletion, its cells and its complex columns.

use bytes::Bytes;

use super::cell::{Cell, Deletion, Liveness};
use super::complex::Complex;
use super::schema::{ColumnId, LiveColumns};
use super::time::Timestamp;

/// Everything that is known of one row, or of the static row of a partition.
///
/// Invariants, held by every constructor and checked by every decoder: `cells` and `complex` strictly ascend by column
/// id; nothing in the row is covered by its own `deletion`; a static row has neither marker nor deletion.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Row {
    /// Present if the row was ever inserted (rather than only updated) and not deleted since.
    pub marker: Option<Liveness>,
    /// The row's own deletion; what it covers is no longer in the row.
    pub deletion: Option<Deletion>,
    /// One cell per column at most, ascending by id.
    pub cells: Vec<(ColumnId, Cell)>,
    /// The complex columns, ascending by id. By its type a column is either here or among the cells.
    pub complex: Vec<(ColumnId, Complex)>,
}

/// A cell of a row, or an element of one of its complex columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The column.
    pub column: ColumnId,
    /// Where in a complex column; `None` for a cell.
    pub path: Option<&'a Bytes>,
}

impl Row {
    /// Whether there is nothing in it at all, not even a deletion.
    pub fn is_empty(&self) -> bool {
        self.marker.is_none() && self.deletion.is_none() && self.cells.is_empty() && self.complex.is_empty()
    }

    /// Whether a reader at `now_s` sees the row: its marker, one of its cells or an element of a column is live.
    ///
    /// For a static row: whether any static column has a value.
    pub fn is_visible_at(&self, now_s: i64) -> bool {
        self.marker.is_some_and(|marker| marker.is_live_at(now_s))
            || self.all_cells().any(|(_, cell)| cell.is_live_at(now_s))
    }

    /// Every cell, those of complex columns included: first the cells, then the elements.
    pub fn all_cells(&self) -> impl Iterator<Item = (Place<'_>, &Cell)> {
        let cells = self.cells.iter().map(|(column, cell)| (Place { column: *column, path: None }, cell));
        let elements = self.complex.iter().flat_map(|(column, complex)| {
            complex.cells.iter().map(|(path, cell)| (Place { column: *column, path: Some(path) }, cell))
        });
        cells.chain(elements)
    }

    /// Every cell, as in [`Row::all_cells`].
    pub(super) fn all_cells_mut(&mut self) -> impl Iterator<Item = &mut Cell> {
        let cells = self.cells.iter_mut().map(|(_, cell)| cell);
        let elements = self.complex.iter_mut().flat_map(|(_, complex)| complex.cells.iter_mut().map(|(_, cell)| cell));
        cells.chain(elements)
    }

    /// The largest timestamp of anything in it; `None` if it is empty.
    pub fn newest_timestamp(&self) -> Option<Timestamp> {
        let marker = self.marker.map(|marker| marker.timestamp);
        let deletion = self.deletion.map(|deletion| deletion.timestamp);
        let cells = self.cells.iter().map(|(_, cell)| cell.timestamp).max();
        let complex = self.complex.iter().filter_map(|(_, complex)| complex.newest_timestamp()).max();
        marker.max(deletion).max(cells).max(complex)
    }

    /// The complex column `column`, if the row says anything of it.
    pub fn complex(&self, column: ColumnId) -> Option<&Complex> {
        self.complex.binary_search_by_key(&column, |(id, _)| *id).ok().map(|at| &self.complex[at].1)
    }

    /// How many things in the row say that something is gone: its deletion, a marker or cells that are deleted or
    /// expired. Deletions of complex columns do not count: each time one is written anew it bears one.
    pub fn tombstones_at(&self, now_s: i64) -> u64 {
        let deletion = u64::from(self.deletion.is_some());
        let marker = u64::from(self.marker.is_some_and(|marker| !marker.is_live_at(now_s)));
        let cells = self.all_cells().filter(|(_, cell)| !cell.is_live_at(now_s));
        deletion + marker + cells.count() as u64
    }

    /// Takes out everything, deletions too, that was written to columns not in `live`; whether there was anything.
    pub fn retain_columns(&mut self, live: &LiveColumns) -> bool {
        let before = self.cells.len() + self.complex.len();
        self.cells.retain(|(id, _)| live.contains(*id));
        self.complex.retain(|(id, _)| live.contains(*id));
        self.cells.len() + self.complex.len() < before
    }

    /// The cell of `column`, if the row holds one.
    pub fn cell(&self, column: ColumnId) -> Option<&Cell> {
        self.cells.binary_search_by_key(&column, |(id, _)| *id).ok().map(|at| &self.cells[at].1)
    }
}
