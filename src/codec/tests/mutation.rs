//! Mutations.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use super::arbitrary::mutation;
use super::refuses_damage;
use crate::codec::EncodedRow;
use crate::codec::mutation::view::MutationView;
use crate::codec::mutation::{MutationParts, decode_mutation, encode_mutation, table_of};
use crate::model::{Bound, Deletion, Mutation, PartitionKey, RangeDeletion, TableId, Timestamp};

fn encode(mutation: &Mutation) -> Bytes {
    let mut out = Vec::new();
    encode_mutation(mutation, &mut out);
    out.into()
}

/// The mutation with its rows unpacked.
fn unpack(parts: MutationParts) -> crate::Result<Mutation> {
    let rows = parts.rows.into_iter().map(|(key, row)| Ok((key, row.decode()?)));
    Ok(Mutation {
        table: parts.table,
        key: parts.key,
        deletion: parts.deletion,
        static_row: parts.static_row.as_ref().map(EncodedRow::decode).transpose()?,
        rows: rows.collect::<crate::Result<_>>()?,
        ranges: parts.ranges,
    })
}

proptest! {
    // Each case decodes hundreds of damaged versions.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn damage_is_refused(mutation in mutation()) {
        let again = |bytes| Ok(encode(&unpack(decode_mutation(bytes)?)?).to_vec());
        refuses_damage(&encode(&mutation), again);
    }
}

proptest! {
    #[test]
    fn a_mutation_comes_back(mutation in mutation()) {
        let bytes = encode(&mutation);
        prop_assert_eq!(table_of(&bytes).unwrap(), mutation.table);
        let parts = decode_mutation(bytes).unwrap();
        prop_assert_eq!(unpack(parts).unwrap(), mutation);
    }

    #[test]
    fn any_bytes_are_a_mutation_or_refused(
        head in vec(any::<u8>(), 16..=16), rest in vec(prop_oneof![2 => 0..5u8, 1 => any::<u8>()], 0..60),
    ) {
        let bytes = Bytes::from([head, rest].concat());
        if let Ok(view) = MutationView::new(&bytes) {
            let _ = (view.rows.clone().count(), view.ranges());
        }
        if let Ok(parts) = decode_mutation(bytes.clone()) {
            prop_assert_eq!(encode(&unpack(parts).unwrap()), bytes);
        }
    }
}

fn bound(bytes: &'static [u8]) -> Bound {
    Bound::from_bytes(Bytes::from_static(bytes)).unwrap()
}

#[test]
fn rows_and_ranges_out_of_order_are_refused() {
    let deletion = |timestamp| Deletion { timestamp: Timestamp(timestamp), ldt_s: 1 };
    let range = |start, end, timestamp| RangeDeletion { start, end, deletion: deletion(timestamp) };
    let [b1, b2, b3] = [b"\x40\x01\x20", b"\x40\x02\x20", b"\x40\x03\x20"].map(|bytes| bound(bytes));
    let empty = Mutation::new(TableId(Uuid::nil()), PartitionKey::from_bytes(Bytes::from_static(b"p")));
    let refusal = |ranges: Vec<RangeDeletion>| {
        let mutation = Mutation { ranges, ..empty.clone() };
        decode_mutation(encode(&mutation)).err().map(|error| error.to_string())
    };
    let cases = [
        (vec![range(b1.clone(), b1.clone(), 1)], "a range is empty"),
        (vec![range(b2.clone(), b1.clone(), 1)], "a range is empty"),
        (vec![range(b1.clone(), b3.clone(), 1), range(b2.clone(), b3.clone(), 2)], "ranges overlap or do not ascend"),
        (vec![range(b2.clone(), b3.clone(), 1), range(b1.clone(), b2.clone(), 2)], "ranges overlap or do not ascend"),
        (
            vec![range(b1.clone(), b2.clone(), 1), range(b2.clone(), b3.clone(), 1)],
            "ranges that touch say the same and are not one",
        ),
    ];
    for (ranges, reason) in cases {
        let refusal = refusal(ranges).unwrap();
        assert!(refusal.ends_with(reason), "{refusal}");
    }
    assert_eq!(refusal(vec![range(b1, b2.clone(), 1), range(b2, b3, 2)]), None);

    // Eighteen bytes of row: key, length, flags, base, count, one cell.
    let row = |key: u8| [&[3, 0x40, key, 0x38, 14, 0], 5i64.to_le_bytes().as_slice(), &[1, 1, 8, 1, 7]].concat();
    for (keys, ascend) in [([1, 2], true), ([1, 1], false), ([2, 1], false)] {
        let head = &encode(&empty)[..19];
        let bytes = [head, &[2], row(keys[0]).as_slice(), &row(keys[1]), &[0]].concat();
        assert_eq!(decode_mutation(bytes.into()).is_ok(), ascend, "{keys:?}");
    }
}

#[test]
fn a_count_beyond_the_bytes_is_refused_before_it_is_allocated() {
    let empty = Mutation::new(TableId(Uuid::nil()), PartitionKey::from_bytes(Bytes::from_static(b"p")));
    let mut bytes = encode(&empty)[..19].to_vec();
    crate::codec::varint::put_varint(&mut bytes, u64::MAX / 2);
    bytes.extend([0; 64]);
    let refusal = decode_mutation(bytes.into()).unwrap_err().to_string();
    assert!(refusal.ends_with("9223372036854775807 items announced, room for 4"), "{refusal}");
}
