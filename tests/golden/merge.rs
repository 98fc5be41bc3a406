#![allow(clippy::unwrap_used, reason = "tests")]
//! How versions become one, by examples that must never come out differently: G1 to G27. `@` is a timestamp, `L` a live
//! cell, `E` one that expires, `X` an expired one, `T` a tombstone.

use bytes::Bytes;
use trefoil::model::reconcile::{expire_row, merge_cells, merge_rows};
use trefoil::model::{
    Bound, Cell, CellKind, ClusteringKey, ColumnId, Complex, Counter, Deletion, Liveness, LivenessKind, Mutation,
    MutationBuilder, NodeId, Order, PartitionKey, Row, Shard, TableId, Timestamp, Type,
};

const V: ColumnId = ColumnId(1);
const W: ColumnId = ColumnId(2);

fn cell(timestamp: i64, kind: CellKind) -> Cell {
    Cell { timestamp: Timestamp(timestamp), kind }
}

fn live(timestamp: i64, value: impl AsRef<[u8]>) -> Cell {
    cell(timestamp, CellKind::Live(Bytes::copy_from_slice(value.as_ref())))
}

fn int(timestamp: i64, value: i32) -> Cell {
    live(timestamp, value.to_be_bytes())
}

fn expiring(timestamp: i64, value: i32, ttl_s: u32, expiry_s: i64) -> Cell {
    let value = Bytes::copy_from_slice(&value.to_be_bytes());
    cell(timestamp, CellKind::Expiring { value, ttl_s, expiry_s })
}

fn tombstone(timestamp: i64, ldt_s: i64) -> Cell {
    cell(timestamp, CellKind::Tombstone { ldt_s })
}

fn marker(timestamp: i64, kind: LivenessKind) -> Option<Liveness> {
    Some(Liveness { timestamp: Timestamp(timestamp), kind })
}

fn deletion(timestamp: i64) -> Deletion {
    Deletion { timestamp: Timestamp(timestamp), ldt_s: 100 }
}

fn row(cells: &[(ColumnId, Cell)]) -> Row {
    Row { cells: cells.to_vec(), ..Row::default() }
}

fn insert(timestamp: i64, cells: &[(ColumnId, Cell)]) -> Row {
    Row { marker: marker(timestamp, LivenessKind::Live), ..row(cells) }
}

fn insert_expiring(timestamp: i64, cells: &[(ColumnId, Cell)]) -> Row {
    Row { marker: marker(timestamp, LivenessKind::Expiring { ttl_s: 10, expiry_s: 110 }), ..row(cells) }
}

fn delete_row(timestamp: i64) -> Row {
    Row { deletion: Some(deletion(timestamp)), ..Row::default() }
}

/// `a | b -> winner`, also with sides swapped and after either side was compacted before, between and after the
/// expiries that occur here.
fn check(name: &str, a: Cell, b: Cell, winner: Cell) {
    assert_eq!(merge_cells(a.clone(), b.clone()), winner, "{name}");
    check_rows(name, row(&[(V, a)]), row(&[(V, b)]), row(&[(V, winner)]));
}

/// As [`check`], for whole rows.
fn check_rows(name: &str, a: Row, b: Row, winner: Row) {
    assert_eq!(merge_rows(a.clone(), b.clone()), winner, "{name}");
    for compacted_s in [0, 103, 111, 121] {
        let old = |row: &Row| expire_row(row.clone(), compacted_s);
        let expected = old(&winner);
        for (left, right) in [(old(&a), b.clone()), (a.clone(), old(&b)), (old(&a), old(&b))] {
            let swapped = old(&merge_rows(right.clone(), left.clone()));
            assert_eq!(old(&merge_rows(left, right)), expected, "{name} compacted at {compacted_s}");
            assert_eq!(swapped, expected, "{name} swapped, compacted at {compacted_s}");
        }
    }
}

#[test]
fn g1_to_g15_cells() {
    check("G1", int(1, 9), int(2, 1), int(2, 1));
    check("G2", int(5, 1), int(5, 2), int(5, 2));
    check("G3", int(5, 1), int(5, -1), int(5, -1));
    check("G4", live(5, ""), live(5, "a"), live(5, "a"));
    check("G5", live(5, "a"), live(5, "a\0"), live(5, "a\0"));
    check("G6", int(5, 9), tombstone(5, 1), tombstone(5, 1));
    check("G7", int(6, 9), tombstone(5, 9), int(6, 9));
    check("G8", int(5, 9), expiring(5, 1, 10, 110), expiring(5, 1, 10, 110));
    check("G10", expiring(5, 1, 10, 110), tombstone(5, 1), tombstone(5, 1));
    check("G11", expiring(5, 2, 10, 110), expiring(5, 1, 20, 120), expiring(5, 1, 20, 120));
    check("G13", expiring(5, 1, 3, 103), expiring(5, 2, 2, 103), expiring(5, 2, 2, 103));
    check("G14", expiring(5, 1, 2, 103), expiring(5, 2, 2, 103), expiring(5, 2, 2, 103));
    check("G15", tombstone(5, 3), tombstone(5, 7), tombstone(5, 7));
}

#[test]
fn g9_what_an_expiring_cell_has_shadowed_stays_dead() {
    let merged = merge_cells(int(5, 9), expiring(5, 1, 10, 110));
    assert_eq!(merged.value_at(109), Some(&Bytes::from_static(&[0, 0, 0, 1])));
    assert_eq!(merged.value_at(110), None);
    let compacted = expire_row(row(&[(V, merged)]), 110);
    assert_eq!(merge_rows(compacted, row(&[(V, int(5, 9))])).cells[0].1.value_at(1_000_000), None);
}

#[test]
fn g12_a_replica_that_compacted_does_not_hide_the_longer_lived_cell() {
    let compacted = expire_row(row(&[(V, expiring(5, 2, 10, 110))]), 111);
    assert_eq!(compacted.cells[0].1.kind, CellKind::Expired { ttl_s: 10, expiry_s: 110 });
    let merged = merge_rows(compacted, row(&[(V, expiring(5, 1, 20, 120))]));
    assert_eq!(merged.cells[0].1.value_at(119), Some(&Bytes::from_static(&[0, 0, 0, 1])));
    assert_eq!(merged.cells[0].1.value_at(120), None);
}

#[test]
fn g16_a_row_deletion_takes_what_is_not_later() {
    let merged = merge_rows(delete_row(5), insert(5, &[(V, int(5, 1))]));
    assert_eq!(merged, delete_row(5));
    assert!(!merged.is_visible_at(0));
    let merged = merge_rows(delete_row(5), insert(6, &[(V, int(5, 1))]));
    assert!(merged.is_visible_at(0));
    assert_eq!(merged.cell(V), None);
}

const INT: (Type, Order) = (Type::Int, Order::Ascending);

fn ints(values: &[i32]) -> Vec<Bytes> {
    values.iter().map(|value| Bytes::copy_from_slice(&value.to_be_bytes())).collect()
}

/// The row `c` of a table whose clustering columns are as many ints.
fn key(c: &[i32]) -> ClusteringKey {
    ClusteringKey::encode(&ints(c), &vec![INT; c.len()]).unwrap()
}

fn before(prefix: &[i32], columns: usize) -> Bound {
    Bound::before(&ints(prefix), &vec![INT; columns]).unwrap()
}

fn after(prefix: &[i32], columns: usize) -> Bound {
    Bound::after(&ints(prefix), &vec![INT; columns]).unwrap()
}

fn write(operations: impl FnOnce(&mut MutationBuilder)) -> Mutation {
    let table = TableId(uuid::Uuid::nil());
    let mut builder = MutationBuilder::new(table, PartitionKey::from_bytes(Bytes::from_static(b"p")));
    operations(&mut builder);
    builder.finish()
}

fn keys(mutation: &Mutation) -> Vec<ClusteringKey> {
    mutation.rows.iter().map(|(key, _)| key.clone()).collect()
}

#[test]
fn g17_the_partition_deletion_takes_static_cells_a_row_deletion_does_not() {
    let set = row(&[(V, int(5, 1))]);
    let mutation = write(|builder| {
        builder.add_static(set.clone());
        builder.delete_partition(deletion(5));
    });
    assert_eq!((mutation.deletion, mutation.static_row), (Some(deletion(5)), None));
    let mutation = write(|builder| {
        builder.add_static(set.clone());
        builder.add_row(key(&[1]), delete_row(5));
        builder.delete_range(Bound::bottom(), Bound::top(), deletion(5));
    });
    assert_eq!(mutation.static_row, Some(set));
}

#[test]
fn g18_a_range_of_a_prefix_is_every_row_with_that_prefix() {
    let rows = |builder: &mut MutationBuilder| {
        for c in [[0, 9], [1, i32::MIN], [1, i32::MAX], [2, 0]] {
            builder.add_row(key(&c), row(&[(V, int(5, 1))]));
        }
        builder.add_row(key(&[1, 7]), row(&[(V, int(6, 1))]));
    };
    let inclusive = write(|builder| {
        rows(builder);
        builder.delete_range(before(&[1], 2), after(&[1], 2), deletion(5));
    });
    assert_eq!(keys(&inclusive), [key(&[0, 9]), key(&[1, 7]), key(&[2, 0])]);
    let exclusive = write(|builder| {
        rows(builder);
        builder.delete_range(after(&[1], 2), Bound::top(), deletion(5));
    });
    assert_eq!(keys(&exclusive), [key(&[0, 9]), key(&[1, i32::MIN]), key(&[1, 7]), key(&[1, i32::MAX])]);
}

#[test]
fn g19_overlapping_ranges_are_cut_where_the_stronger_begins() {
    let mutation = write(|builder| {
        builder.add_row(key(&[4]), row(&[(V, int(6, 1))]));
        builder.add_row(key(&[6]), row(&[(V, int(6, 1))]));
        builder.delete_range(before(&[0], 1), after(&[10], 1), deletion(5));
        builder.delete_range(before(&[5], 1), after(&[15], 1), deletion(7));
    });
    let ranges: Vec<_> = mutation.ranges.iter().map(|range| (&range.start, &range.end, range.deletion)).collect();
    let first = (&before(&[0], 1), &before(&[5], 1), deletion(5));
    assert_eq!(ranges, [first, (&before(&[5], 1), &after(&[15], 1), deletion(7))]);
    assert_eq!(keys(&mutation), [key(&[4])]);
}

#[test]
fn g21_an_inserted_row_outlives_its_cells_an_updated_one_does_not() {
    let nulled = row(&[(V, tombstone(2, 100))]);
    let inserted = merge_rows(insert(1, &[(V, int(1, 1))]), nulled.clone());
    assert!(inserted.is_visible_at(0));
    assert_eq!(inserted.cell(V).and_then(|cell| cell.value_at(0)), None);
    assert!(!merge_rows(row(&[(V, int(1, 1))]), nulled).is_visible_at(0));
}

#[test]
fn g22_an_update_without_ttl_keeps_an_expiring_row_alive() {
    let inserted = insert_expiring(5, &[(V, expiring(5, 1, 10, 110))]);
    let merged = merge_rows(inserted, row(&[(W, int(6, 1))]));
    for found in [merged.clone(), expire_row(merged, 110)] {
        assert!(found.is_visible_at(110));
        assert!(!found.marker.unwrap().is_live_at(110));
        assert_eq!(found.cell(V).unwrap().value_at(110), None);
        assert!(found.cell(W).unwrap().value_at(110).is_some());
    }
}

#[test]
fn g23_a_later_insert_without_ttl_never_expires() {
    let later = insert(6, &[(V, int(6, 2))]);
    let merged = merge_rows(insert_expiring(5, &[(V, expiring(5, 1, 10, 110))]), later.clone());
    assert_eq!(merged, later);
    assert!(merged.is_visible_at(i64::MAX));
}

#[test]
fn g24_of_two_inserts_at_one_timestamp_one_wins_as_a_whole() {
    let expiring = insert_expiring(5, &[(V, expiring(5, 1, 10, 110)), (W, expiring(5, 1, 10, 110))]);
    let lasting = insert(5, &[(V, int(5, 9)), (W, int(5, 0))]);
    assert_eq!(merge_rows(expiring.clone(), lasting.clone()), expiring);
    assert_eq!(merge_rows(lasting, expiring.clone()), expiring);
}

#[test]
fn g25_operations_of_one_batch_are_reconciled_like_any_others() {
    let batch = |cells: [Cell; 2]| {
        let mutation =
            write(|builder| cells.iter().for_each(|cell| builder.add_row(key(&[1]), row(&[(V, cell.clone())]))));
        mutation.rows[0].1.cells[0].1.clone()
    };
    assert_eq!(batch([int(5, 1), tombstone(5, 100)]), tombstone(5, 100));
    assert_eq!(batch([int(5, 1), int(5, 2)]), int(5, 2));
    assert_eq!(batch([int(5, 2), int(5, 1)]), int(5, 2));
    let deleted = write(|builder| {
        builder.add_row(key(&[1]), row(&[(V, int(5, 1))]));
        builder.add_row(key(&[1]), delete_row(5));
    });
    assert_eq!(deleted.rows, [(key(&[1]), delete_row(5))]);
}

/// The map column of a row: elements by their key.
fn map(complex: Option<Complex>) -> Row {
    Row { complex: complex.into_iter().map(|complex| (V, complex)).collect(), ..Row::default() }
}

fn element(key: &'static str, cell: Cell) -> (Bytes, Cell) {
    (Bytes::from_static(key.as_bytes()), cell)
}

/// `m = {key: value}`.
fn set_map(timestamp: i64, key: &'static str, cell: Cell) -> Row {
    map(Complex::replaced(Timestamp(timestamp), 100, [element(key, cell)]))
}

/// `m[key] = value`.
fn put_in_map(key: &'static str, cell: Cell) -> Row {
    map(Complex::of(None, [element(key, cell)]))
}

/// `m = null`.
fn null_map(timestamp: i64) -> Row {
    map(Some(Complex::deleted(deletion(timestamp))))
}

/// What a reader sees of the map.
fn shown(row: &Row, now_s: i64) -> Vec<(&[u8], &[u8])> {
    let values = row.complex(V).into_iter().flat_map(|map| map.values_at(now_s));
    values.map(|(key, value)| (key.as_ref(), value.as_ref())).collect()
}

#[test]
fn g20_maps() {
    let both = map(Complex::replaced(Timestamp(5), 100, [element("a", live(5, "1")), element("b", live(5, "2"))]));
    check_rows("G20 two at 5", set_map(5, "a", live(5, "1")), set_map(5, "b", live(5, "2")), both.clone());
    assert_eq!(shown(&both, 0), [(&b"a"[..], &b"1"[..]), (b"b", b"2")]);
    let later = set_map(6, "b", live(6, "2"));
    check_rows("G20 the second at 6", set_map(5, "a", live(5, "1")), later.clone(), later.clone());
    assert_eq!(shown(&later, 0), [(&b"b"[..], &b"2"[..])]);

    check_rows("G20 null at 5 over 5", null_map(5), put_in_map("a", live(5, "1")), null_map(5));
    assert!(shown(&null_map(5), 0).is_empty());
    assert!(!null_map(5).is_visible_at(0), "a deletion makes no row visible");
    let survivor = map(Complex::of(Some(deletion(5)), [element("a", live(6, "1"))]));
    check_rows("G20 null at 5, 6", null_map(5), put_in_map("a", live(6, "1")), survivor.clone());
    assert_eq!(shown(&survivor, 0), [(&b"a"[..], &b"1"[..])]);
    assert!(survivor.is_visible_at(0));
}

#[test]
fn g20_elements_expire_one_by_one() {
    let both = map(Complex::replaced(
        Timestamp(5),
        100,
        [element("a", expiring(5, 1, 10, 110)), element("b", expiring(5, 2, 20, 120))],
    ));
    let (a, b) = (set_map(5, "a", expiring(5, 1, 10, 110)), set_map(5, "b", expiring(5, 2, 20, 120)));
    check_rows("G20 with ttl", a, b, both.clone());
    assert_eq!(shown(&both, 109).len(), 2);
    assert_eq!(shown(&both, 110).len(), 1);
    assert!(!both.is_visible_at(120));
    // At a path the same rules hold as in a cell: G12, a replica that compacted does not hide the longer lived.
    let long = put_in_map("a", expiring(5, 1, 20, 120));
    check_rows("G20 and G12", put_in_map("a", expiring(5, 2, 10, 110)), long.clone(), long);
}

#[test]
fn g20_deletions_cover_down_the_chain() {
    let map_at_6 = set_map(6, "a", live(6, "1"));
    check_rows("row deletion of the time of the elements", delete_row(6), map_at_6.clone(), delete_row(6));
    // The column's deletion is of 5: what the row's covers goes, what is later stays.
    let left = Row { deletion: Some(deletion(5)), ..put_in_map("a", live(6, "1")) };
    check_rows("row deletion before the elements", delete_row(5), map_at_6, left);
    let partition = write(|builder| {
        builder.add_row(key(&[1]), set_map(6, "a", live(6, "1")));
        builder.add_static(set_map(9, "s", live(9, "1")));
        builder.delete_partition(deletion(6));
    });
    assert!(partition.rows.is_empty());
    assert_eq!(partition.static_row, Some(set_map(9, "s", live(9, "1"))));
}

#[test]
fn nothing_lies_before_the_smallest_timestamp() {
    let least = map(Complex::replaced(Timestamp::MIN, 100, [element("a", live(Timestamp::MIN.0, "1"))]));
    assert_eq!(least, put_in_map("a", live(Timestamp::MIN.0, "1")));
    assert_eq!(Complex::replaced(Timestamp::MIN, 100, []), None);
    let next = Timestamp(Timestamp::MIN.0 + 1);
    let deletion = Complex::replaced(next, 100, []).unwrap().deletion.unwrap();
    assert_eq!(deletion.timestamp, Timestamp::MIN);
}

fn shard(node: u32, clock: u64, value: i64) -> Shard {
    Shard { node: NodeId(node), incarnation: 1, clock, value }
}

fn counter(timestamp: i64, shards: &[Shard]) -> Cell {
    cell(timestamp, CellKind::Counter(Counter::of(shards.to_vec()).unwrap()))
}

fn count(cell: &Cell) -> i64 {
    i64::from_be_bytes(cell.bytes_at(0).unwrap().as_ref().try_into().unwrap())
}

#[test]
fn g26_a_deleted_counter_is_deleted_whatever_the_timestamp() {
    let five = counter(9, &[shard(1, 1, 5)]);
    check("G26", five.clone(), tombstone(0, 100), tombstone(0, 100));
    check("G26 later", five.clone(), tombstone(99, 100), tombstone(99, 100));
    check_rows("G26 row", row(&[(V, five.clone())]), delete_row(0), delete_row(0));
    let partition = write(|builder| {
        builder.add_row(key(&[1]), row(&[(V, five.clone())]));
        builder.add_row(key(&[2]), row(&[(V, five)]));
        builder.delete_range(before(&[1], 1), after(&[1], 1), deletion(0));
    });
    assert_eq!(keys(&partition), [key(&[2])]);
    // Nor does adding bring it back.
    let again = merge_cells(tombstone(0, 100), counter(1_000, &[shard(1, 2, 6)]));
    assert_eq!(again, tombstone(0, 100));
}

#[test]
fn g27_of_each_shard_the_greater_clock_counts() {
    let (a, b, c) = (1, 2, 3);
    let left = counter(5, &[shard(a, 3, 10), shard(b, 1, 4)]);
    let right = counter(4, &[shard(a, 2, 99), shard(c, 1, 1)]);
    let merged = counter(5, &[shard(a, 3, 10), shard(b, 1, 4), shard(c, 1, 1)]);
    assert_eq!(count(&merged), 15);
    check("G27", left, right, merged);
    check(
        "G27 equal clocks",
        counter(5, &[shard(a, 3, 10)]),
        counter(5, &[shard(a, 3, 11)]),
        counter(5, &[shard(a, 3, 11)]),
    );
}
