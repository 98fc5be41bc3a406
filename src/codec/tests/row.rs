//! Rows.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::arbitrary::{deletion, row};
use super::refuses_damage;
use crate::Error;
use crate::codec::EncodedRow;
use crate::codec::row::{Merged, merged};
use crate::model::reconcile::{merge_rows, shadow_row};
use crate::model::{Cell, CellKind, ColumnId, Deletion, Liveness, LivenessKind, Reconcile, Row, Timestamp};

/// The bytes are a row: what they encode to again. `checked` and `decode` must agree.
fn again(bytes: Bytes) -> crate::Result<Vec<u8>> {
    let checked = EncodedRow::checked(bytes.clone());
    let decoded = EncodedRow::trusted(bytes).decode();
    assert_eq!(checked.is_ok(), decoded.is_ok(), "{checked:?} {decoded:?}");
    Ok(EncodedRow::encode(&decoded?).bytes().to_vec())
}

fn live(column: u32, timestamp: i64, value: &'static [u8]) -> (ColumnId, Cell) {
    let kind = CellKind::Live(Bytes::from_static(value));
    (ColumnId(column), Cell { timestamp: Timestamp(timestamp), kind })
}

fn cells(cells: Vec<(ColumnId, Cell)>) -> Row {
    Row { cells, ..Row::default() }
}

/// A row of three columns, whose timestamps are few.
fn small_row() -> impl Strategy<Value = Row> {
    let timestamp = (1..4i64).prop_map(Timestamp);
    let kind = prop_oneof![
        4 => Just(CellKind::Live(Bytes::from_static(b"v"))),
        1 => Just(CellKind::Tombstone { ldt_s: 1 }),
        1 => Just(CellKind::Expiring { value: Bytes::new(), ttl_s: 1, expiry_s: 9 }),
    ];
    let cell = (timestamp.clone(), kind).prop_map(|(timestamp, kind)| Cell { timestamp, kind });
    let cells = vec(prop_oneof![4 => cell.prop_map(Some), 1 => Just(None)], 3..=3);
    let marker = timestamp.prop_map(|timestamp| Liveness { timestamp, kind: LivenessKind::Live });
    let deletion = prop_oneof![4 => Just(None), 1 => Just(Some(Deletion { timestamp: Timestamp(0), ldt_s: 1 }))];
    (cells, prop_oneof![3 => marker.prop_map(Some), 1 => Just(None)], deletion)
        .prop_map(|(cells, marker, deletion)| {
            let cells = (0..).map(ColumnId).zip(cells).filter_map(|(column, cell)| Some((column, cell?)));
            Row { cells: cells.collect(), marker, deletion, ..Row::default() }
        })
        .prop_filter("a row that is not empty", |row| !row.is_empty())
}

/// What is written over in whole is not unpacked.
#[test]
fn a_row_that_is_written_over_goes() {
    let encoded = |columns: &[u32], timestamp| {
        EncodedRow::encode(&cells(columns.iter().map(|column| live(*column, timestamp, b"v")).collect()))
    };
    let merge = |held: &EncodedRow, other: &EncodedRow| merged(held.bytes(), other.bytes()).unwrap();
    assert_eq!(merge(&encoded(&[1, 2], 1), &encoded(&[1, 2], 2)), Merged::Other);
    assert_eq!(merge(&encoded(&[2], 1), &encoded(&[1, 2, 3], 2)), Merged::Other);
    assert_eq!(merge(&encoded(&[1, 2], 3), &encoded(&[1, 2], 2)), Merged::Held);
    assert!(matches!(merge(&encoded(&[1, 2], 3), &encoded(&[3], 2)), Merged::Both(_)));
    assert!(matches!(merge(&encoded(&[1], 3), &encoded(&[1], 4)), Merged::Other));
}

fn refusal(hex: &[u8]) -> String {
    match EncodedRow::checked(Bytes::copy_from_slice(hex)) {
        Err(Error::Corrupt(corrupt)) => corrupt.reason,
        other => panic!("{other:?}"),
    }
}

proptest! {
    // Each case decodes hundreds of damaged versions.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn damage_is_refused(row in row()) {
        refuses_damage(EncodedRow::encode(&row).bytes(), again);
    }
}

proptest! {
    #[test]
    fn a_row_comes_back(row in row()) {
        let encoded = EncodedRow::encode(&row);
        prop_assert_eq!(&encoded.decode().unwrap(), &row);
        prop_assert_eq!(EncodedRow::checked(encoded.bytes().clone()).unwrap(), encoded);
    }

    #[test]
    fn different_rows_have_different_bytes(a in row(), b in row()) {
        prop_assert_eq!(a == b, EncodedRow::encode(&a) == EncodedRow::encode(&b));
    }

    #[test]
    fn questions_are_answered_as_by_the_row(row in row(), now_s in prop_oneof![0..5i64, any::<i64>()]) {
        let encoded = EncodedRow::encode(&row);
        prop_assert_eq!(encoded.is_visible_at(now_s).unwrap(), row.is_visible_at(now_s));
        let marker = row.marker.map(|marker| marker.timestamp);
        let deletion = row.deletion.map(|deletion| deletion.timestamp);
        let of_columns = row.complex.iter().filter_map(|(_, complex)| complex.deletion).map(|own| own.timestamp);
        let cells = row.all_cells().map(|(_, cell)| cell.timestamp);
        let newest = cells.chain(of_columns).chain(marker).chain(deletion).max();
        prop_assert_eq!(Some(encoded.newest_timestamp().unwrap()), newest);
        prop_assert_eq!(row.newest_timestamp(), newest);
    }

    /// Rows that are often written over one another in whole, and more often not quite.
    #[test]
    fn one_row_prevails_only_if_it_is_both(a in small_row(), b in small_row()) {
        let (first, second) = (EncodedRow::encode(&a), EncodedRow::encode(&b));
        let both = EncodedRow::encode(&merge_rows(a, b));
        for (held, other) in [(&first, &second), (&second, &first)] {
            match merged(held.bytes(), other.bytes()).unwrap() {
                Merged::Held => prop_assert_eq!(held, &both),
                Merged::Other => prop_assert_eq!(other, &both),
                Merged::Both(found) => prop_assert_eq!(&found, &both),
            }
        }
    }

    #[test]
    fn merging_bytes_is_merging_rows(a in row(), b in row()) {
        let merged = EncodedRow::encode(&a).merge(EncodedRow::encode(&b)).unwrap();
        prop_assert_eq!(merged.decode().unwrap(), merge_rows(a.clone(), b));
        prop_assert_eq!(EncodedRow::encode(&a).merge(EncodedRow::encode(&a)).unwrap().decode().unwrap(), a);
    }

    #[test]
    fn shadowing_bytes_is_shadowing_rows(row in row(), deletion in deletion()) {
        let left = EncodedRow::encode(&row).under(deletion).unwrap();
        prop_assert_eq!(left.map(|left| left.decode().unwrap()), shadow_row(row, deletion));
    }

    #[test]
    fn any_bytes_are_a_row_or_refused(
        flags in 0..8u8, base in any::<i64>(), rest in vec(prop_oneof![3 => 0..12u8, 1 => any::<u8>()], 0..40),
    ) {
        let bytes: Vec<u8> = [flags].into_iter().chain(base.to_le_bytes()).chain(rest.iter().copied()).collect();
        for bytes in [bytes, rest] {
            if let Ok(encoded) = again(bytes.clone().into()) {
                prop_assert_eq!(encoded, bytes.clone());
            }
            let row = EncodedRow::trusted(bytes.into());
            let _ = (row.is_visible_at(0), row.newest_timestamp());
            let _ = row.under(Deletion { timestamp: Timestamp(0), ldt_s: 0 });
        }
    }
}

#[test]
fn b013_a_missing_cell_does_not_end_a_digest() {
    // Two rows lack the middle column and differ behind it. A hash that ended at the gap was equal, so a quorum read
    // took the replicas for agreed and returned stale data. Digests here are taken over encodings, which differ.
    let one = EncodedRow::encode(&cells(vec![live(1, 1, b""), live(3, 1, b"aaa")]));
    let other = EncodedRow::encode(&cells(vec![live(1, 1, b""), live(3, 1, b"bbb")]));
    assert_ne!(one, other);
    let merged = one.merge(other).unwrap().decode().unwrap();
    assert_eq!(merged, cells(vec![live(1, 1, b""), live(3, 1, b"bbb")]), "the greater value wins");

    // Nor can a value be taken for a cell, or one column for another.
    let shifted = [vec![live(1, 1, b"a"), live(2, 1, b"")], vec![live(1, 1, b""), live(2, 1, b"a")]];
    let [a, b] = shifted.map(|list| EncodedRow::encode(&cells(list)));
    assert_ne!(a, b);
    assert_ne!(EncodedRow::encode(&cells(vec![live(1, 1, b"a")])), EncodedRow::encode(&cells(vec![live(2, 1, b"a")])));
}

#[test]
fn timestamps_may_lie_as_far_apart_as_they_can() {
    let row = cells(vec![live(1, i64::MAX, b"new"), live(2, Timestamp::MIN.0, b"old")]);
    let encoded = EncodedRow::encode(&row);
    assert_eq!(encoded.decode().unwrap(), row);

    let left = encoded.under(Deletion { timestamp: Timestamp(0), ldt_s: 1 }).unwrap().unwrap();
    assert_eq!(left.decode().unwrap(), cells(vec![live(1, i64::MAX, b"new")]));
}

#[test]
fn a_row_that_nothing_covers_is_passed_through() {
    let marker = Liveness { timestamp: Timestamp(5), kind: LivenessKind::Live };
    let row = Row { marker: Some(marker), ..cells(vec![live(1, 7, b"v")]) };
    let encoded = EncodedRow::encode(&row);
    let memory = encoded.bytes().as_ptr();
    let left = encoded.under(Deletion { timestamp: Timestamp(4), ldt_s: 1 }).unwrap().unwrap();
    assert_eq!(left.bytes().as_ptr(), memory);
    assert_eq!(left.under(Deletion { timestamp: Timestamp(7), ldt_s: 1 }).unwrap(), None);
}

#[test]
fn refusals_say_why() {
    let base5 = [5, 0, 0, 0, 0, 0, 0, 0];
    let below = (i64::MIN + 1).to_le_bytes();
    let far_below = (i64::MIN + 3).to_le_bytes();
    let row = |flags: u8, base: [u8; 8], rest: &[u8]| [&[flags], base.as_slice(), rest].concat();
    let cases: [(Vec<u8>, &str); 18] = [
        (vec![], "1 more bytes expected, 0 left"),
        (row(8, base5, &[0]), "unknown flags 08"),
        (row(0, base5, &[0]), "nothing in the row bears its largest timestamp"),
        (row(0, below, &[1, 1, 8, 0]), "a timestamp is below the smallest there is"),
        (row(0, far_below, &[2, 1, 8, 0, 1, 0, 2, 0]), "a timestamp is below the smallest there is"),
        (row(0, base5, &[1, 1, 0, 1, 0]), "nothing in the row bears its largest timestamp"),
        (row(0, base5, &[1, 1, 0, 0, 0]), "a cell at the base is not marked so"),
        (row(0, base5, &[2, 1, 8, 0, 0, 8, 0]), "column ids do not ascend"),
        (row(0, base5, &[1, 1, 13, 0]), "unknown kind 05 of cell"),
        (row(0, base5, &[9, 1, 8, 0]), "9 items announced, room for 1"),
        (row(0, base5, &[1, 1, 8, 9]), "9 more bytes expected, 0 left"),
        (row(0, base5, &[1, 1, 8, 0, 0]), "1 bytes behind the end"),
        (row(0, base5, &[1, 1, 10, 0, 5]), "a time to live of 0 s; it is 1 to 630720000"),
        (row(0, base5, &[1, 1, 11, 0x80, 0x80, 0x80, 0x80, 0x10]), "4294967296 s since 1970; at most 4294967295"),
        (row(1, base5, &[3, 0, 0]), "unknown kind 03 of marker"),
        (row(3, base5, &[0, 0, 0, 7, 0]), "the row holds what its own deletion covers"),
        (row(2, base5, &[0, 7, 1, 1, 8, 0]), "the row holds what its own deletion covers"),
        (row(2, base5, &[0, 7, 1, 1, 0, 1, 0]), "the row holds what its own deletion covers"),
    ];
    for (bytes, reason) in cases {
        assert_eq!(refusal(&bytes), reason, "{bytes:02x?}");
    }
}

/// Bytes that are nearly a counter or a complex column.
#[test]
fn refusals_of_counters_and_complex_columns_say_why() {
    let base5 = [5, 0, 0, 0, 0, 0, 0, 0];
    let row = |flags: u8, rest: &[u8]| [&[flags], base5.as_slice(), rest].concat();
    let cases: [(Vec<u8>, &str); 17] = [
        (row(0, &[1, 1, 12, 0]), "a counter without shards"),
        (row(0, &[1, 1, 12, 2, 1, 1, 1, 1]), "2 items announced, room for 1"),
        (row(0, &[1, 1, 12, 1, 0, 1, 1, 1]), "a shard of no node"),
        (row(0, &[1, 1, 12, 2, 1, 1, 1, 1, 1, 1, 2, 1]), "shards do not ascend"),
        (row(0, &[1, 1, 12, 2, 1, 1, 1, 1, 1, 0, 2, 1]), "shards do not ascend"),
        (row(2, &[1, 7, 1, 1, 12, 1, 1, 1, 1, 1]), "the row holds what its own deletion covers"),
        (row(4, &[0, 0]), "complex columns announced, and none there"),
        (row(4, &[1, 1, 8, 0, 0]), "complex columns announced, and none there"),
        (row(4, &[0, 1, 1, 2, 0, 7, 0]), "unknown flags 02 of a column"),
        (row(4, &[0, 1, 1, 0, 0, 0, 0]), "a column without deletion and elements"),
        (row(4, &[0, 2, 1, 1, 0, 7, 0, 0, 1, 0, 7, 0]), "column ids do not ascend"),
        (row(4, &[0, 1, 1, 0, 2, 1, 7, 8, 0, 1, 7, 8, 0]), "paths do not ascend"),
        (row(4, &[0, 1, 1, 0, 2, 1, 7, 8, 0, 0, 8, 0]), "paths do not ascend"),
        (row(4, &[0, 1, 1, 1, 0, 7, 1, 0, 8, 0]), "a column holds what its own deletion covers"),
        (row(4, &[0, 1, 1, 0, 1, 0, 12, 1, 1, 1, 1, 1]), "a counter within a column of many cells"),
        (row(6, &[0, 7, 0, 1, 1, 1, 1, 7, 0]), "the row holds what its own deletion covers"),
        (row(4, &[0, 1, 1, 1, 1, 7, 0]), "nothing in the row bears its largest timestamp"),
    ];
    for (bytes, reason) in cases {
        assert_eq!(refusal(&bytes), reason, "{bytes:02x?}");
    }
    // The column's deletion does not reach into the next one.
    let two = row(4, &[0, 2, 1, 1, 0, 7, 0, 1, 0, 1, 0, 0, 1, 0]);
    assert_eq!(again(two.clone().into()).unwrap(), two);
}
