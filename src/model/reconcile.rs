//! The one rule by which two versions become one: a total order over stored fields, larger wins.
//!
//! Compared top to bottom:
//!
//! | # | cells and row markers | why |
//! |---|---|---|
//! | 1 | timestamp | last write wins |
//! | 2 | class: tombstone > expiring = expired > live | must not depend on when one looks |
//! | 3 | tombstone: local deletion time; expiring, expired: expiry | the longest-living evidence |
//! | 4 | expiring, expired: smaller ttl | it was written later |
//! | 5 | expired > expiring | both are dead whenever an expired one exists; makes the order total |
//! | 6 | value bytes, unsigned, a prefix is smaller | arbitrary but deterministic |
//!
//! A pure maximum of a total order is commutative, associative and idempotent. Never a word about the present time:
//! that is what makes the outcome independent of compaction (B001 in `docs/testing.md`).

use std::cmp::Ordering;

use super::cell::{Cell, CellKind, Deletion, Liveness, LivenessKind};
use super::merge::Reconcile;
use super::row::Row;
use super::schema::ColumnId;
use crate::Result;

/// Compares two cells of one column: the greater wins.
pub fn compare_cells(a: &Cell, b: &Cell) -> Ordering {
    a.timestamp.cmp(&b.timestamp).then_with(|| compare_kinds(&a.kind, &b.kind))
}

fn compare_kinds(a: &CellKind, b: &CellKind) -> Ordering {
    use CellKind::{Expired, Expiring, Live, Tombstone};
    match (a, b) {
        (Tombstone { ldt_s: a }, Tombstone { ldt_s: b }) => a.cmp(b),
        (Tombstone { .. }, _) => Ordering::Greater,
        (_, Tombstone { .. }) => Ordering::Less,
        (Live(a), Live(b)) => a.cmp(b),
        (_, Live(_)) => Ordering::Greater,
        (Live(_), _) => Ordering::Less,
        (Expired { ttl_s: ta, expiry_s: ea }, Expired { ttl_s: tb, expiry_s: eb }) => ea.cmp(eb).then(tb.cmp(ta)),
        (Expired { ttl_s: ta, expiry_s: ea }, Expiring { ttl_s: tb, expiry_s: eb, .. }) => {
            ea.cmp(eb).then(tb.cmp(ta)).then(Ordering::Greater)
        }
        (Expiring { ttl_s: ta, expiry_s: ea, .. }, Expired { ttl_s: tb, expiry_s: eb }) => {
            ea.cmp(eb).then(tb.cmp(ta)).then(Ordering::Less)
        }
        (Expiring { value: va, ttl_s: ta, expiry_s: ea }, Expiring { value: vb, ttl_s: tb, expiry_s: eb }) => {
            ea.cmp(eb).then(tb.cmp(ta)).then_with(|| va.cmp(vb))
        }
    }
}

/// Compares two row markers: the greater wins. The same order as of cells that have no value bytes.
pub fn compare_markers(a: &Liveness, b: &Liveness) -> Ordering {
    a.timestamp.cmp(&b.timestamp).then_with(|| marker_rank(a).cmp(&marker_rank(b)))
}

/// (class, expiry, smaller ttl first, expired over expiring), larger wins.
fn marker_rank(marker: &Liveness) -> (u8, i64, std::cmp::Reverse<u32>, u8) {
    match marker.kind {
        LivenessKind::Live => (0, 0, std::cmp::Reverse(0), 0),
        LivenessKind::Expiring { ttl_s, expiry_s } => (1, expiry_s, std::cmp::Reverse(ttl_s), 0),
        LivenessKind::Expired { ttl_s, expiry_s } => (1, expiry_s, std::cmp::Reverse(ttl_s), 1),
    }
}

/// The cell that wins.
pub fn merge_cells(a: Cell, b: Cell) -> Cell {
    if compare_cells(&a, &b) == Ordering::Less { b } else { a }
}

/// The deletion that wins: the later one, at equal timestamps the one with the larger local deletion time.
pub fn merge_deletions(a: Option<Deletion>, b: Option<Deletion>) -> Option<Deletion> {
    a.max(b)
}

fn merge_markers(a: Option<Liveness>, b: Option<Liveness>) -> Option<Liveness> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if compare_markers(&a, &b) == Ordering::Less { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// Two versions of one row become one; what the winning row deletion covers is gone.
pub fn merge_rows(a: Row, b: Row) -> Row {
    let marker = merge_markers(a.marker, b.marker);
    let deletion = merge_deletions(a.deletion, b.deletion);
    let row = Row { marker, deletion: None, cells: merge_cell_lists(a.cells, b.cells) };
    match deletion {
        Some(deletion) => Row { deletion: Some(deletion), ..without_covered(row, deletion) },
        None => row,
    }
}

/// Merges two lists that ascend by column id.
fn merge_cell_lists(a: Vec<(ColumnId, Cell)>, b: Vec<(ColumnId, Cell)>) -> Vec<(ColumnId, Cell)> {
    let mut merged = Vec::with_capacity(a.len().max(b.len()));
    let mut a = a.into_iter().peekable();
    let mut b = b.into_iter().peekable();
    loop {
        let order = match (a.peek(), b.peek()) {
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return merged,
        };
        match order {
            Ordering::Less => merged.extend(a.next()),
            Ordering::Greater => merged.extend(b.next()),
            Ordering::Equal => {
                if let (Some((id, left)), Some((_, right))) = (a.next(), b.next()) {
                    merged.push((id, merge_cells(left, right)));
                }
            }
        }
    }
}

fn without_covered(mut row: Row, deletion: Deletion) -> Row {
    row.marker = row.marker.filter(|marker| !deletion.covers(marker.timestamp));
    row.cells.retain(|(_, cell)| !deletion.covers(cell.timestamp));
    row
}

/// What is left of a row under an enclosing deletion (of its range or partition): cells, marker and row deletion
/// survive only if strictly later. `None`: nothing is left.
pub fn shadow_row(row: Row, deletion: Deletion) -> Option<Row> {
    let mut row = without_covered(row, deletion);
    row.deletion = row.deletion.filter(|own| !deletion.covers(own.timestamp));
    (!row.is_empty()).then_some(row)
}

/// The row as it stands at `now_s`: whatever has expired by then becomes [`CellKind::Expired`] and loses its value.
/// Merging before or after gives the same.
pub fn expire_row(mut row: Row, now_s: i64) -> Row {
    if let Some(marker) = &mut row.marker
        && let LivenessKind::Expiring { ttl_s, expiry_s } = marker.kind
        && expiry_s <= now_s
    {
        marker.kind = LivenessKind::Expired { ttl_s, expiry_s };
    }
    for (_, cell) in &mut row.cells {
        if let CellKind::Expiring { ttl_s, expiry_s, .. } = cell.kind
            && expiry_s <= now_s
        {
            cell.kind = CellKind::Expired { ttl_s, expiry_s };
        }
    }
    row
}

impl Reconcile for Row {
    fn merge(self, other: Self) -> Result<Self> {
        Ok(merge_rows(self, other))
    }

    fn under(self, deletion: Deletion) -> Result<Option<Self>> {
        Ok(shadow_row(self, deletion))
    }
}

#[cfg(test)]
pub(super) mod tests;
