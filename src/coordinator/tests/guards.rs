//! What a page meets on its way to its rows: tombstones, and rows that are too large to say nothing about.

use bytes::Bytes;

use crate::codec::EncodedRow;
use crate::coordinator::{Assembler, LargeRow, Next, PageLimits, ReadAnswer, ReadGuards};
use crate::model::naive::{deletion, partition_key, row_key, value};
use crate::model::{
    Cell, CellKind, ColumnId, Complex, Counter, Fragment, NodeId, PageEnd, PartitionHeader, Row, Shard, Timestamp,
};

const NOW_S: i64 = 100;

/// Takes one answer in; what is wrong with it, and the tombstones that were met.
fn guarded(fragments: Vec<Fragment<Row>>, tombstones_max: u64) -> (Next, u64, Option<LargeRow>) {
    let limits = PageLimits { rows: 10, bytes: u64::MAX, rows_per_partition: None };
    let guards = ReadGuards { tombstones_max, row_bytes_warn: 100 };
    let mut assembler = Assembler::new(limits, NOW_S, (0..100).map(ColumnId).collect(), None).guarded(guards);
    let encode = |fragment| match fragment {
        Fragment::Partition(PartitionHeader { key, deletion, static_row }) => {
            let static_row = static_row.map(|row: Row| EncodedRow::encode(&row));
            Fragment::Partition(PartitionHeader { key, deletion, static_row })
        }
        Fragment::Row(key, row) => Fragment::Row(key, EncodedRow::encode(&row)),
        Fragment::Change(bound, deletion) => Fragment::Change(bound, deletion),
    };
    let fragments = fragments.into_iter().map(encode).collect();
    let next = assembler.take(ReadAnswer { fragments, end: PageEnd::Complete, repaired: false }).unwrap();
    (next, assembler.tombstones(), assembler.large_row().cloned())
}

#[test]
fn tombstones_are_counted_once_each_and_too_many_end_the_read() {
    let header = |deletion| Fragment::Partition(PartitionHeader { key: partition_key(0), deletion, static_row: None });
    let dead = Row { deletion: Some(deletion(3)), ..Row::default() };
    let tombstone = Cell { timestamp: Timestamp(9), kind: CellKind::Tombstone { ldt_s: 1 } };
    let mut half = value("v", 9);
    half.cells.push((ColumnId(2), tombstone));
    let expiring = CellKind::Expiring { value: "x".into(), ttl_s: 1, expiry_s: NOW_S };
    let expired =
        Row { cells: vec![(ColumnId(1), Cell { timestamp: Timestamp(9), kind: expiring })], ..Row::default() };
    let fragments = vec![
        header(Some(deletion(1))),
        Fragment::Row(row_key(1), dead),
        Fragment::Row(row_key(2), half),
        Fragment::Change(row_key(2).after(), Some(deletion(4))),
        Fragment::Change(row_key(3).after(), None),
        Fragment::Row(row_key(4), expired),
        Fragment::Row(row_key(5), value("v", 9)),
    ];
    assert_eq!(guarded(fragments.clone(), 5), (Next::Complete, 5, None));
    let refused = Next::TooManyTombstones { partition: partition_key(0), found: 5 };
    assert_eq!(guarded(fragments, 4), (refused, 5, None));
}

#[test]
fn what_is_live_is_no_tombstone() {
    let cell = |kind| Cell { timestamp: Timestamp(9), kind };
    let shard = Shard { node: NodeId(1), incarnation: 1, clock: 1, value: 5 };
    let set = [("a", CellKind::Live("".into())), ("b", CellKind::Tombstone { ldt_s: 1 })];
    let set = set.map(|(path, kind)| (Bytes::from(path), cell(kind)));
    let row = Row {
        cells: vec![(ColumnId(1), cell(CellKind::Counter(Counter::new(shard))))],
        complex: vec![(ColumnId(2), Complex::of(Some(deletion(3)), set).unwrap())],
        ..Row::default()
    };
    assert_eq!(row.tombstones_at(NOW_S), 1, "an element of the set");
}

#[test]
fn the_largest_row_is_told_of() {
    let header = PartitionHeader { key: partition_key(0), deletion: None, static_row: None };
    let row = |key, len: usize| Fragment::Row(row_key(key), value(&"x".repeat(len), 1));
    let fragments = vec![Fragment::Partition(header), row(1, 200), row(2, 300), row(3, 120), row(4, 1)];
    let large = guarded(fragments, 0).2.unwrap();
    assert_eq!(large.partition, partition_key(0));
    assert!((300..330).contains(&large.bytes), "{large:?}");
}
