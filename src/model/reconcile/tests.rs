//! The laws of the one rule, by brute force where the space is small, by random rows where it is not.

#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::model::{ColumnId, Counter, NodeId, Shard, Timestamp};

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

fn shard(node: u32, incarnation: u64, clock: u64, value: i64) -> Shard {
    Shard { node: NodeId(node), incarnation, clock, value }
}

fn counter(timestamp: i64, shards: &[Shard]) -> Cell {
    cell(timestamp, CellKind::Counter(Counter::of(shards.to_vec()).unwrap()))
}

/// Counters that differ in one thing each: who added, in which run, how often, how much, and when.
fn counters() -> Vec<Cell> {
    let mut counters = vec![
        counter(1, &[shard(1, 1, 1, 5)]),
        counter(9, &[shard(1, 1, 1, 5)]),
        counter(5, &[shard(1, 1, 1, -5)]),
        counter(5, &[shard(1, 1, 2, 1)]),
        counter(5, &[shard(1, 2, 1, 1)]),
        counter(5, &[shard(2, 1, 1, i64::MAX)]),
        counter(7, &[shard(1, 1, 3, 2), shard(2, 1, 1, i64::MIN)]),
    ];
    counters.push(counter(3, &[shard(1, 1, 2, 2), shard(1, 2, 1, 9), shard(2, 1, 2, 0)]));
    counters
}

/// Counters, what deletes them, and cells that a counter column never has but may be sent.
fn rows_about_counters() -> Vec<Row> {
    let mut rows: Vec<Row> = counters().into_iter().map(row_of).collect();
    rows.extend([0, 5, 9].map(|timestamp| row_of(cell(timestamp, CellKind::Tombstone { ldt_s: 100 }))));
    rows.push(row_of(cell(2, live("a"))));
    rows.push(row_of(cell(6, expiring("a", 10, 110))));
    rows.extend([1, 7, 9].map(|timestamp| {
        let deletion = Some(Deletion { timestamp: Timestamp(timestamp), ldt_s: 100 });
        Row { deletion, ..Row::default() }
    }));
    rows
}

fn row_of(cell: Cell) -> Row {
    Row { cells: vec![(ColumnId(1), cell)], ..Row::default() }
}

fn markers() -> Vec<Liveness> {
    let kinds = cells_22().into_iter().filter_map(|cell| {
        let kind = match cell.kind {
            CellKind::Live(_) => LivenessKind::Live,
            CellKind::Expiring { ttl_s, expiry_s, .. } => LivenessKind::Expiring { ttl_s, expiry_s },
            CellKind::Expired { ttl_s, expiry_s } => LivenessKind::Expired { ttl_s, expiry_s },
            CellKind::Tombstone { .. } | CellKind::Counter(_) => return None,
        };
        Some(Liveness { timestamp: cell.timestamp, kind })
    });
    kinds.collect()
}

fn rows_of_one_cell() -> Vec<Row> {
    cells_22().into_iter().map(row_of).collect()
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
fn counters_merge_alike_in_any_order_with_whatever_deletes_them() {
    check_all_pairs_and_triples(&rows_about_counters());
}

/// A deletion between the shards of a counter and around them: had it spared those that were added to later, it would
/// have mattered whether they were merged before or after it (docs/decisions/0012-counters.md).
#[test]
fn any_deletion_takes_a_counter_whole_in_any_grouping() {
    let deletions = [1, 7, 9].map(|timestamp| Deletion { timestamp: Timestamp(timestamp), ldt_s: 100 });
    for (a, b) in counters().into_iter().flat_map(|a| counters().into_iter().map(move |b| (a.clone(), b))) {
        let (a, b) = (row_of(a), row_of(b));
        for deletion in deletions {
            assert_eq!(shadow_row(merged(&a, &b), deletion), None);
            assert_eq!(shadow_row(a.clone(), deletion), None);
            let deleted = Row { deletion: Some(deletion), ..Row::default() };
            assert_eq!(merged(&merged(&a, &deleted), &b), deleted);
            assert_eq!(merged(&merged(&a, &b), &deleted), deleted);
        }
    }
}

/// A node lost its disk, came back under its number and began to count from nothing. Its shard had the clock of the old
/// one again, so replicas took one for the other, and what had been counted before was lost or counted twice.
#[test]
fn b029_the_shards_of_a_new_incarnation_never_collide_with_the_old() {
    let before = counter(5, &[shard(1, 100, 7, 40), shard(2, 100, 1, 2)]);
    let after = counter(9, &[shard(1, 200, 7, 5)]);
    let expected = counter(9, &[shard(1, 100, 7, 40), shard(1, 200, 7, 5), shard(2, 100, 1, 2)]);
    assert_eq!(merge_cells(before.clone(), after.clone()), expected);
    assert_eq!(merge_cells(after.clone(), before.clone()), expected);
    let CellKind::Counter(sum) = &expected.kind else { panic!() };
    assert_eq!(sum.value(), 47);
    // The same shard, seen twice and of an earlier time, is counted once.
    let earlier = counter(5, &[shard(1, 100, 6, 39)]);
    assert_eq!(merge_cells(merge_cells(expected.clone(), earlier), after), expected);
}

#[test]
fn a_sum_wraps_around_in_any_order() {
    let counter = Counter::of(vec![shard(1, 1, 1, i64::MAX), shard(2, 1, 1, 2), shard(3, 1, 1, i64::MIN)]).unwrap();
    assert_eq!(counter.value(), 1);
    assert_eq!(Counter::of(vec![shard(1, 1, 1, i64::MAX), shard(2, 1, 1, 1)]).unwrap().value(), i64::MIN);
    assert_eq!(Counter::of(Vec::new()), None);
    assert_eq!(Counter::of(vec![shard(1, 1, 3, 1), shard(1, 1, 4, -1)]), Some(Counter::new(shard(1, 1, 4, -1))));
}

#[test]
fn the_order_is_total_over_different_cells() {
    let cells: Vec<Cell> = cells_22().into_iter().chain(counters()).collect();
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

fn any_element() -> impl Strategy<Value = Cell> {
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

fn any_cell() -> impl Strategy<Value = Cell> {
    prop_oneof![4 => any_element(), 1 => proptest::sample::select(counters())]
}

fn any_complex() -> impl Strategy<Value = Complex> {
    let path = proptest::sample::select(vec![Bytes::new(), Bytes::from_static(b"p"), Bytes::from_static(b"pq")]);
    let elements = proptest::collection::vec((path, any_element()), 0..4);
    (proptest::option::weighted(0.4, any_deletion()), elements)
        .prop_filter_map("it says something", |(deletion, elements)| Complex::of(deletion, elements))
}

fn any_marker() -> impl Strategy<Value = Liveness> {
    proptest::sample::select(markers())
}

/// A static row with something in it.
pub(crate) fn any_static_row() -> impl Strategy<Value = Row> {
    let cells = proptest::collection::btree_map((0..4u32).prop_map(ColumnId), any_cell(), 0..4);
    let complex = proptest::collection::btree_map((10..12u32).prop_map(ColumnId), any_complex(), 0..3);
    (cells, complex).prop_filter_map("it says something", |(cells, complex)| {
        let (cells, complex) = (cells.into_iter().collect(), complex.into_iter().collect());
        let row = Row { cells, complex, ..Row::default() };
        (!row.is_empty()).then_some(row)
    })
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
        let survives = |cell: &Cell| later(cell.timestamp) && !matches!(cell.kind, CellKind::Counter(_));
        let expected = Row {
            marker: row.marker.filter(|marker| later(marker.timestamp)),
            deletion: row.deletion.filter(|own| later(own.timestamp)),
            cells: row.cells.iter().filter(|(_, cell)| survives(cell)).cloned().collect(),
            complex: row.complex.iter().filter_map(|(id, complex)| {
                let own = complex.deletion.filter(|own| later(own.timestamp));
                let cells = complex.cells.iter().filter(|(_, cell)| survives(cell)).cloned();
                Some((*id, Complex::of(own, cells)?))
            }).collect(),
        };
        prop_assert_eq!(shadow_row(row, deletion), Some(expected).filter(|row| !row.is_empty()));
    }

    #[test]
    fn what_a_row_lacks_completes_it_and_is_no_more_than_that(a in any_row(), b in any_row(), d in proptest::option::of(any_deletion())) {
        let under = |row: Row| d.map_or(row.clone(), |d| shadowed(&row, d));
        let whole = under(merged(&a, &b));
        let missing = lacking(&whole, &a);
        prop_assert_eq!(under(merged(&a, &missing)), whole.clone());
        prop_assert_eq!(lacking(&whole, &whole), Row::default());
        // Nothing is sent that is there already.
        prop_assert_eq!(missing.all_cells().find(|part| a.all_cells().any(|own| own == *part)), None);
    }

    #[test]
    fn a_deletion_alone_makes_no_row_visible(row in any_row(), now_s in 100..110i64) {
        let value = |cell: &Cell| cell.value_at(now_s).is_some() || matches!(cell.kind, CellKind::Counter(_));
        let live = row.marker.is_some_and(|marker| marker.is_live_at(now_s));
        let cells = row.cells.iter().any(|(_, cell)| value(cell));
        let elements = row.complex.iter().any(|(_, complex)| complex.values_at(now_s).next().is_some());
        prop_assert_eq!(row.is_visible_at(now_s), live || cells || elements);
    }
}
