//! Records.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::arbitrary::mutation;
use crate::codec::mutation::{decode_mutation, encode_mutation};
use crate::codec::{CheckedRecord, Record, RecordKind};
use crate::model::{KeyspaceId, MutationName, NodeId, Stamp};

fn kind() -> impl Strategy<Value = RecordKind> {
    prop_oneof![
        (1..=u32::MAX, any::<u64>(), 1..=u64::MAX).prop_map(|(origin, incarnation, sequence)| {
            RecordKind::Named(MutationName { origin: NodeId(origin), incarnation, sequence })
        }),
        (1..=u32::MAX, any::<i64>()).prop_map(|(composer, known_through)| RecordKind::Nameless {
            composer: NodeId(composer),
            known_through: Stamp(known_through),
        }),
    ]
}

/// The header as it would be encoded again (records keep their bytes, so those would prove nothing).
fn header_again(record: &Record) -> Vec<u8> {
    let (code, origin, incarnation, sequence) = match record.kind {
        RecordKind::Named(name) => (1u8, name.origin, name.incarnation, name.sequence),
        RecordKind::Nameless { composer, known_through } => (2, composer, known_through.0 as u64, 0),
    };
    let mut out = vec![code];
    out.extend(record.keyspace.0.to_le_bytes());
    out.extend(record.stamp.0.to_le_bytes());
    out.extend(origin.0.to_le_bytes());
    out.extend(incarnation.to_le_bytes());
    out.extend(sequence.to_le_bytes());
    out
}

proptest! {
    #[test]
    fn a_record_comes_back(kind in kind(), keyspace in any::<u32>(), stamp in any::<i64>(), mutation in mutation()) {
        let record = Record::encode(kind, KeyspaceId(keyspace), Stamp(stamp), &mutation);
        prop_assert_eq!(&Record::decode(record.bytes.clone()).unwrap(), &record);
        prop_assert_eq!((record.kind, record.keyspace, record.stamp), (kind, KeyspaceId(keyspace), Stamp(stamp)));
        let mut encoded = Vec::new();
        encode_mutation(&mutation, &mut encoded);
        prop_assert_eq!(&record.mutation, &encoded);
        prop_assert!(decode_mutation(record.mutation).is_ok());
    }

    #[test]
    fn a_record_is_the_same_whoever_checks_it(
        kind in kind(), keyspace in any::<u32>(), stamp in any::<i64>(), mutation in mutation(),
    ) {
        let encoded = CheckedRecord::encode(kind, KeyspaceId(keyspace), Stamp(stamp), &mutation);
        let (checked, last_column) = CheckedRecord::check(encoded.bytes().clone()).unwrap();
        prop_assert_eq!(&CheckedRecord::trusted(encoded.bytes().clone()).unwrap(), &encoded);
        prop_assert_eq!(&checked, &encoded);
        prop_assert_eq!((encoded.table(), encoded.token()), (mutation.table, mutation.key.token()));
        let rows = mutation.static_row.iter().chain(mutation.rows.iter().map(|(_, row)| row));
        let columns = rows.flat_map(|row| {
            row.cells.iter().map(|(column, _)| *column).chain(row.complex.iter().map(|(column, _)| *column))
        });
        prop_assert_eq!(last_column, columns.max());
        let view = checked.mutation().unwrap();
        prop_assert_eq!((view.key, view.deletion), (&mutation.key.bytes()[..], mutation.deletion));
        prop_assert_eq!(view.ranges().unwrap(), mutation.ranges);
    }

    #[test]
    fn any_header_is_read_or_refused(kind in 0..4u8, rest in vec(prop_oneof![2 => 0..3u8, 1 => any::<u8>()], 0..50)) {
        let bytes = Bytes::from([vec![kind], rest].concat());
        if let Ok(record) = Record::decode(bytes.clone()) {
            let header = header_again(&record);
            prop_assert_eq!(&bytes[..header.len()], &header);
            prop_assert!(bytes.ends_with(&record.mutation));
        }
    }
}

/// A header with these fields and tags, and a mutation of one byte.
fn with(kind: u8, origin: u32, sequence: u64, tags: &[u8]) -> Bytes {
    let fields = [&[kind], [7; 12].as_slice(), &origin.to_le_bytes(), &[9; 8], &sequence.to_le_bytes()].concat();
    [fields.as_slice(), &[tags.len() as u8], tags, b"m"].concat().into()
}

#[test]
fn unknown_tags_are_kept() {
    let bytes = with(1, 1, 1, &[1, 2, 0xaa, 0xbb, 9, 0]);
    let record = Record::decode(bytes.clone()).unwrap();
    assert_eq!(record.bytes, bytes);
    assert_eq!(record.mutation, Bytes::from_static(b"m"));
}

#[test]
fn headers_that_no_encoder_writes_are_refused() {
    let cases = [
        (with(0, 1, 1, &[]), "record is corrupt at byte 33: kind 00 with sequence 1"),
        (with(3, 1, 0, &[]), "record is corrupt at byte 33: kind 03 with sequence 0"),
        (with(1, 1, 0, &[]), "record is corrupt at byte 33: kind 01 with sequence 0"),
        (with(2, 1, 1, &[]), "record is corrupt at byte 33: kind 02 with sequence 1"),
        (with(1, 0, 1, &[]), "record is corrupt at byte 33: node 0 is not a node"),
        (with(1, 1, 1, &[1, 0, 1, 0]), "record tags is corrupt at byte 3: tags do not ascend"),
        (with(1, 1, 1, &[1, 5, 0]), "record tags is corrupt at byte 2: 5 more bytes expected, 1 left"),
    ];
    for (bytes, refusal) in cases {
        assert_eq!(Record::decode(bytes).unwrap_err().to_string(), refusal);
    }
    let whole = with(1, 1, 1, &[1, 0]);
    for len in 0..36 {
        assert!(Record::decode(whole.slice(..len)).is_err(), "{len} bytes");
    }
}
