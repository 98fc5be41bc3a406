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
//! Two counters become one shard by shard ([`super::Counter::merge`]). A counter loses to whatever is not one, and any
//! deletion around it covers it, whatever the timestamps: else it would depend on the order of merging which shards were
//! counted (`docs/decisions/0012-counters.md`).
//!
//! A deletion covers what is inside and not strictly later, down the chain partition, range, row, complex column, cell.
//!
//! A pure maximum of a total order is commutative, associative and idempotent. Never a word about the present time:
//! that is what makes the outcome independent of compaction (B001 in `docs/testing.md`).

use std::cmp::Ordering;

use super::cell::{Cell, CellKind, Deletion, Liveness, LivenessKind};
use super::complex::Complex;
use super::merge::Reconcile;
use super::row::Row;
use crate::Result;

/// Compares two cells of one column: the greater wins, unless both are counters, which are merged.
pub fn compare_cells(a: &Cell, b: &Cell) -> Ordering {
    let is_no_counter = |cell: &Cell| !matches!(cell.kind, CellKind::Counter(_));
    let by_time = a.timestamp.cmp(&b.timestamp).then_with(|| compare_kinds(&a.kind, &b.kind));
    is_no_counter(a).cmp(&is_no_counter(b)).then(by_time)
}

fn compare_kinds(a: &CellKind, b: &CellKind) -> Ordering {
    use CellKind::{Counter, Expired, Expiring, Live, Tombstone};
    match (a, b) {
        (Counter(a), Counter(b)) => a.cmp(b),
        (Counter(_), _) => Ordering::Less,
        (_, Counter(_)) => Ordering::Greater,
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

/// The cell that wins, or the two counters in one.
pub fn merge_cells(a: Cell, b: Cell) -> Cell {
    match (a.kind, b.kind) {
        (CellKind::Counter(left), CellKind::Counter(right)) => {
            Cell { timestamp: a.timestamp.max(b.timestamp), kind: CellKind::Counter(left.merge(right)) }
        }
        (left, right) => {
            let (a, b) = (Cell { kind: left, ..a }, Cell { kind: right, ..b });
            if compare_cells(&a, &b) == Ordering::Less { b } else { a }
        }
    }
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
    let cells = merge_lists(a.cells, b.cells, |a, b| Some(merge_cells(a, b)));
    let complex = merge_lists(a.complex, b.complex, merge_complex);
    let row = Row { marker, deletion: None, cells, complex };
    match deletion {
        Some(deletion) => Row { deletion: Some(deletion), ..without_covered(row, deletion) },
        None => row,
    }
}

/// Two versions of one complex column become one; `None` only if both were empty.
fn merge_complex(a: Complex, b: Complex) -> Option<Complex> {
    let deletion = merge_deletions(a.deletion, b.deletion);
    let cells = merge_lists(a.cells, b.cells, |a, b| Some(merge_cells(a, b)));
    Complex { deletion: None, cells }.under_own(deletion)
}

/// Merges two lists that ascend by column id or path.
fn merge_lists<K: Ord, V>(a: Vec<(K, V)>, b: Vec<(K, V)>, merge: impl Fn(V, V) -> Option<V>) -> Vec<(K, V)> {
    if a.is_empty() || b.is_empty() {
        return if a.is_empty() { b } else { a };
    }
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
                if let (Some((key, left)), Some((_, right))) = (a.next(), b.next()) {
                    merged.extend(merge(left, right).map(|value| (key, value)));
                }
            }
        }
    }
}

fn without_covered(mut row: Row, deletion: Deletion) -> Row {
    row.marker = row.marker.filter(|marker| !deletion.covers(marker.timestamp));
    row.cells.retain(|(_, cell)| !deletion.covers_cell(cell));
    if !row.complex.is_empty() {
        let left = row.complex.into_iter().filter_map(|(id, complex)| Some((id, complex.under(deletion)?)));
        row.complex = left.collect();
    }
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
    for cell in row.all_cells_mut() {
        if let CellKind::Expiring { ttl_s, expiry_s, .. } = cell.kind
            && expiry_s <= now_s
        {
            cell.kind = CellKind::Expired { ttl_s, expiry_s };
        }
    }
    row
}

/// What must be merged into `own` to make it `whole`, which is `own` merged with others under whatever covers them: the
/// parts that it lacks, each cell and element on its own. Empty if it lacks nothing.
pub fn lacking(whole: &Row, own: &Row) -> Row {
    let cells = lacking_cells(&whole.cells, &own.cells);
    let complex = whole.complex.iter().filter_map(|(column, complex)| {
        let lacking = match own.complex(*column) {
            Some(own) => lacking_elements(complex, own),
            None => complex.clone(),
        };
        (!lacking.is_empty()).then_some((*column, lacking))
    });
    Row {
        marker: whole.marker.filter(|marker| Some(*marker) != own.marker),
        deletion: whole.deletion.filter(|deletion| Some(*deletion) != own.deletion),
        cells,
        complex: complex.collect(),
    }
}

fn lacking_elements(whole: &Complex, own: &Complex) -> Complex {
    let deletion = whole.deletion.filter(|deletion| Some(*deletion) != own.deletion);
    Complex { deletion, cells: lacking_cells(&whole.cells, &own.cells) }
}

/// The cells of `whole` that do not stand in `own` as they are. Both ascend.
fn lacking_cells<K: Ord + Clone>(whole: &[(K, Cell)], own: &[(K, Cell)]) -> Vec<(K, Cell)> {
    let mut own = own.iter().peekable();
    let lacks = |(key, cell): &&(K, Cell)| {
        while own.next_if(|(other, _)| other < key).is_some() {}
        own.next_if(|(other, _)| other == key).is_none_or(|(_, other)| other != cell)
    };
    whole.iter().filter(lacks).cloned().collect()
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
