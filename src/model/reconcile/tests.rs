//! The laws of the one rule, by brute force where the space is small, by random rows where it is not.

#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::model::Timestamp;

/// Instants, seconds since 1970, at which a replica may have compacted: never, between the expiries below, after all.
const COMPACTIONS_S: [i64; 4] = [0, 105, 115, 1_000];

fn cell(timestamp: i64, kind: CellKind) -> Cell {
    Cell { timestamp: Timestamp(timestamp), kind }
}

fn live(value: &'static str) -> CellKind {
    CellKind::Live(Bytes::from_static(value.as_bytes()))
}

fn expiring(value: &'static str, ttl_s: u32, expiry_s: i64) -> CellKind {
    CellKind::Expiring { value: Bytes::from_static(value.as_bytes()), ttl_s, expiry_s }
}

/// Cells that differ from another in one field each, most of them at one timestamp.
fn cells_22() -> Vec<Cell> {
    let mut cells: Vec<Cell> = ["", "a", "a\0", "b", "\u{ff}"].into_iter().map(|value| cell(5, live(value))).collect();
    cells.extend([100, 110, 120].map(|ldt_s| cell(5, CellKind::Tombstone { ldt_s })));
    for (ttl_s, expiry_s) in [(2, 103), (3, 103), (10, 110), (20, 120)] {
        cells.push(cell(5, expiring("a", ttl_s, expiry_s)));
        cells.push(cell(5, expiring("b", ttl_s, expiry_s)));
    }
    cells.extend([(3, 103), (10, 110)].map(|(ttl_s, expiry_s)| cell(5, CellKind::Expired { ttl_s, expiry_s })));
    cells.push(cell(4, live("z")));
    cells.push(cell(6, live("a")));
    cells.push(cell(6, expiring("a", 10, 110)));
    cells.push(cell(4, CellKind::Tombstone { ldt_s: 130 }));
    assert_eq!(cells.len(), 22);
    cells
}

fn markers() -> Vec<Liveness> {
    let kinds = cells_22().into_iter().filter_map(|cell| {
        let kind = match cell.kind {
            CellKind::Live(_) => LivenessKind::Live,
            CellKind::Expiring { ttl_s, expiry_s, .. } => LivenessKind::Expiring { ttl_s, expiry_s },
            CellKind::Expired { ttl_s, expiry_s } => LivenessKind::Expired { ttl_s, expiry_s },
            CellKind::Tombstone { .. } => return None,
        };
        Some(Liveness { timestamp: cell.timestamp, kind })
    });
    kinds.collect()
}

fn rows_of_one_cell() -> Vec<Row> {
    let row = |cell| Row { cells: vec![(ColumnId(1), cell)], ..Row::default() };
    cells_22().into_iter().map(row).collect()
}

fn rows_of_one_marker() -> Vec<Row> {
    markers().into_iter().map(|marker| Row { marker: Some(marker), ..Row::default() }).collect()
}

fn merged(a: &Row, b: &Row) -> Row {
    merge_rows(a.clone(), b.clone())
}

/// Whoever compacted when, in whatever order the versions met: the reader at the last instant sees one thing.
fn check_all_pairs_and_triples(rows: &[Row]) {
    let at: Vec<Vec<Row>> = rows
        .iter()
        .map(|row| COMPACTIONS_S.iter().map(|instant| expire_row(row.clone(), *instant)).collect())
        .collect();
    for (a, expired_a) in at.iter().enumerate() {
        for (b, expired_b) in at.iter().enumerate() {
            let expected = merged(&rows[a], &rows[b]);
            assert_eq!(expected, merged(&rows[b], &rows[a]), "not commutative");
            assert_eq!(merged(&expected, &rows[a]), expected, "not idempotent");
            for (i, j) in instants() {
                let now_s = COMPACTIONS_S[i.max(j)];
                let found = expire_row(merged(&expired_a[i], &expired_b[j]), now_s);
                assert_eq!(found, expire_row(expected.clone(), now_s), "{:?} | {:?}", expired_a[i], expired_b[j]);
                check_triples(&at, (&expired_a[i], &expired_b[j]), now_s);
            }
        }
    }
}

fn check_triples(at: &[Vec<Row>], (a, b): (&Row, &Row), now_s: i64) {
    let left = merged(a, b);
    let left_compacted = expire_row(left.clone(), now_s);
    for c in at.iter().flatten() {
        let right = merged(a, &merged(b, c));
        assert_eq!(merged(&left, c), right, "not associative: {a:?} | {b:?} | {c:?}");
        let last = COMPACTIONS_S[3];
        assert_eq!(expire_row(merged(&left_compacted, c), last), expire_row(right, last), "{a:?} | {b:?} | {c:?}");
    }
}

fn instants() -> impl Iterator<Item = (usize, usize)> {
    (0..COMPACTIONS_S.len()).flat_map(|i| (0..COMPACTIONS_S.len()).map(move |j| (i, j)))
}

#[test]
fn cells_merge_alike_in_any_order_and_whenever_compacted() {
    check_all_pairs_and_triples(&rows_of_one_cell());
}

#[test]
fn markers_merge_alike_in_any_order_and_whenever_compacted() {
    check_all_pairs_and_triples(&rows_of_one_marker());
}

#[test]
fn the_order_is_total_over_different_cells() {
    let cells = cells_22();
    for a in &cells {
        for b in &cells {
            assert_eq!(compare_cells(a, b), compare_cells(b, a).reverse());
            assert_eq!(compare_cells(a, b) == Ordering::Equal, a == b, "{a:?} | {b:?}");
        }
    }
}

/// Two writes at one timestamp, one to live 1 s, one 100 s: elsewhere the winner depended on the clock or on the value
/// bytes, so replicas disagreed and a read could turn into null although the longer-lived value was there.
#[test]
fn b001_the_longer_lived_cell_wins_a_tie_whenever_one_looks() {
    let short = Row { cells: vec![(ColumnId(1), cell(10, expiring("zz", 1, 101)))], ..Row::default() };
    let long = Row { cells: vec![(ColumnId(1), cell(10, expiring("aa", 100, 200)))], ..Row::default() };
    for compacted_s in [100, 101, 103, 199] {
        for (a, b) in [(&short, &long), (&long, &short)] {
            let row = merge_rows(expire_row(a.clone(), compacted_s), expire_row(b.clone(), compacted_s));
            assert_eq!(row.cells[0].1.value_at(compacted_s), Some(&Bytes::from_static(b"aa")));
        }
    }
}

pub(crate) fn any_deletion() -> impl Strategy<Value = Deletion> {
    (0..8i64, 100..103i64).prop_map(|(timestamp, ldt_s)| Deletion { timestamp: Timestamp(timestamp), ldt_s })
}

fn any_cell() -> impl Strategy<Value = Cell> {
    let value = || prop_oneof![Just(Bytes::new()), Just(Bytes::from_static(b"a")), Just(Bytes::from_static(b"b"))];
    let life = || (1..3u32, 104..107i64);
    let kind = prop_oneof![
        value().prop_map(CellKind::Live),
        (value(), life()).prop_map(|(value, (ttl_s, expiry_s))| CellKind::Expiring { value, ttl_s, expiry_s }),
        life().prop_map(|(ttl_s, expiry_s)| CellKind::Expired { ttl_s, expiry_s }),
        (100..103i64).prop_map(|ldt_s| CellKind::Tombstone { ldt_s }),
    ];
    (0..8i64, kind).prop_map(|(timestamp, kind)| Cell { timestamp: Timestamp(timestamp), kind })
}

fn any_marker() -> impl Strategy<Value = Liveness> {
    proptest::sample::select(markers())
}

/// A static row with something in it.
pub(crate) fn any_static_row() -> impl Strategy<Value = Row> {
    proptest::collection::btree_map((0..4u32).prop_map(ColumnId), any_cell(), 1..4)
        .prop_map(|cells| Row { cells: cells.into_iter().collect(), ..Row::default() })
}

/// A row with something in it, without what its own deletion covers.
pub(crate) fn any_row() -> impl Strategy<Value = Row> {
    let deletion = proptest::option::weighted(0.3, any_deletion());
    let parts = (proptest::option::of(any_marker()), deletion, any_static_row());
    parts.prop_map(|(marker, deletion, row)| merge_rows(Row { marker, deletion, ..row }, Row::default()))
}

fn shadowed(row: &Row, deletion: Deletion) -> Row {
    shadow_row(row.clone(), deletion).unwrap_or_default()
}

proptest! {
    #[test]
    fn rows_merge_alike_in_any_order(a in any_row(), b in any_row(), c in any_row()) {
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        prop_assert_eq!(merged(&a, &merged(&b, &c)), merged(&merged(&a, &b), &c));
        prop_assert_eq!(merged(&a, &a), a);
    }

    #[test]
    fn rows_merge_alike_whenever_compacted(a in any_row(), b in any_row(), first_s in 100..110i64, later_s in 0..10i64) {
        let now_s = first_s + later_s;
        let expected = expire_row(merged(&a, &b), now_s);
        prop_assert_eq!(expire_row(merged(&expire_row(a.clone(), first_s), &b), now_s), expected.clone());
        prop_assert_eq!(merged(&expire_row(a, now_s), &expire_row(b, now_s)), expected);
    }

    #[test]
    fn deleting_before_or_after_merging_is_the_same(a in any_row(), b in any_row(), d in any_deletion(), e in any_deletion()) {
        prop_assert_eq!(shadowed(&merged(&a, &b), d), merged(&shadowed(&a, d), &shadowed(&b, d)));
        prop_assert_eq!(shadowed(&shadowed(&a, d), e), shadowed(&a, d.max(e)));
    }

    #[test]
    fn only_what_is_strictly_later_survives_a_deletion(row in any_row(), deletion in any_deletion()) {
        let later = |timestamp: Timestamp| timestamp > deletion.timestamp;
        let expected = Row {
            marker: row.marker.filter(|marker| later(marker.timestamp)),
            deletion: row.deletion.filter(|own| later(own.timestamp)),
            cells: row.cells.iter().filter(|(_, cell)| later(cell.timestamp)).cloned().collect(),
        };
        prop_assert_eq!(shadow_row(row, deletion), Some(expected).filter(|row| !row.is_empty()));
    }
}
