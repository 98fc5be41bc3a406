//! The ordered bytes of each type, byte for byte: they stand in every file. `key::tests` holds the laws.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use super::*;
use crate::model::{Field, UserType};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|char| !char.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

fn encoded(ty: &Type, order: Order, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, value, ty, order);
    out
}

#[test]
fn every_type_is_encoded_as_documented() {
    let cases = [
        (Type::Blob, "610062", "40 6100ff6200"),
        (Type::Blob, "00", "40 00ff00"),
        (Type::Blob, "", "40 00"),
        (Type::Text, "c3a9", "40 c3a900"),
        (Type::Ascii, "61", "40 6100"),
        (Type::Inet, "7f000001", "40 7f00ff00ff0100"),
        (Type::Boolean, "00", "40 00"),
        (Type::Boolean, "01", "40 01"),
        (Type::Boolean, "", "3e"),
        (Type::TinyInt, "ff", "40 7f"),
        (Type::SmallInt, "0001", "40 8001"),
        (Type::Int, "ffffffff", "40 7fffffff"),
        (Type::Int, "", "3e"),
        (Type::BigInt, "8000000000000000", "40 0000000000000000"),
        (Type::Timestamp, "0000000000000001", "40 8000000000000001"),
        (Type::Date, "80000000", "40 80000000"),
        (Type::Time, "0000000000000001", "40 0000000000000001"),
        (Type::Float, "3f800000", "40 bf800000"),
        (Type::Float, "ffc12345", "40 ffc00000"),
        (Type::Double, "8000000000000000", "40 7fffffffffffffff"),
        (Type::Double, "0000000000000000", "40 8000000000000000"),
        (Type::Double, "fff0000000000000", "40 000fffffffffffff"),
        (Type::Double, "7ff0000000000001", "40 fff8000000000000"),
        (Type::VarInt, "00", "40 8000"),
        (Type::VarInt, "ff", "40 7fff"),
        (Type::VarInt, "80", "40 7f80"),
        (Type::VarInt, "ff00", "40 7f00"),
        (Type::VarInt, "00ff", "40 80ff"),
        (Type::VarInt, "0100", "40 810100"),
        (Type::VarInt, "feff", "40 7efeff"),
        (Type::VarInt, "", "3e"),
        (Type::Uuid, "00112233445566778899aabbccddeeff", "40 6001122334455677 8899aabbccddeeff"),
        (Type::Uuid, "00112233445516778899aabbccddeeff", "40 1677445500112233 8899aabbccddeeff"),
        (Type::TimeUuid, "00112233445516778899aabbccddeeff", "40 1677445500112233 08192a3b4c5d6e7f"),
    ];
    for (ty, value, expected) in cases.into_iter().chain(composites()) {
        let (value, mut expected) = (bytes(value), bytes(expected));
        assert_eq!(encoded(&ty, Order::Ascending, &value), expected, "{ty:?} {value:02x?}");
        if expected == [EMPTY_ASCENDING] {
            expected = vec![EMPTY_DESCENDING];
        } else {
            invert(&mut expected[1..]);
        }
        assert_eq!(encoded(&ty, Order::Descending, &value), expected, "{ty:?} {value:02x?} descending");
    }
}

/// Types made of others, a value, and its ordered bytes.
fn composites() -> Vec<(Type, &'static str, &'static str)> {
    let int = || Arc::new(Type::Int);
    let field = |name: &str, ty| Field { name: name.to_owned(), ty };
    let fields = vec![field("a", Type::Text), field("b", Type::Int)];
    let user = Type::User { definition: Arc::new(UserType { fields, ..UserType::named("k", "t") }), frozen: true };
    vec![
        (Type::List { element: int(), frozen: true }, "00000000", "40 38"),
        (
            Type::List { element: int(), frozen: true },
            "00000002 00000004 00000001 00000004 ffffffff",
            "40 4080000001 407fffffff 38",
        ),
        (Type::Set { element: Arc::new(Type::Text), frozen: true }, "00000001 00000001 61", "40 406100 38"),
        (
            Type::Map { key: int(), value: Arc::new(Type::Text), frozen: true },
            "00000001 00000004 00000001 00000000",
            "40 4080000001 4000 38",
        ),
        (Type::Tuple([Type::Int, Type::Int].into()), "ffffffff 00000004 00000001", "40 3f 4080000001 38"),
        (user.clone(), "00000001 61", "40 406100 38"),
        (user, "", "40 38"),
        (Type::Vector { element: Arc::new(Type::Float), dimension: 1 }, "3f800000", "40 40bf800000 38"),
    ]
}

#[test]
fn long_varints_carry_their_length_in_two_bytes_and_stay_in_order() {
    let magnitude = |len: usize| [vec![0x01], vec![0x00; len - 1]].concat();
    let negative = |len: usize| [vec![0xfe], vec![0x00; len - 1]].concat();
    assert_eq!(encoded(&Type::VarInt, Order::Ascending, &magnitude(127))[1], 0xfe);
    assert_eq!(encoded(&Type::VarInt, Order::Ascending, &magnitude(128))[1..4], [0xff, 0x00, 0x80]);
    assert_eq!(encoded(&Type::VarInt, Order::Ascending, &negative(128))[1..4], [0x00, 0xff, 0x7f]);

    let mut ascending: Vec<Vec<u8>> = [300, 128, 127, 1].map(negative).to_vec();
    ascending.extend([1, 127, 128, 300, 65_535].map(magnitude));
    for order in [Order::Ascending, Order::Descending] {
        let mut keys: Vec<_> = ascending.iter().map(|value| encoded(&Type::VarInt, order, value)).collect();
        for (key, value) in keys.iter().zip(&ascending) {
            let mut at = 0;
            let decoded = take(&Bytes::copy_from_slice(key), &mut at, &Type::VarInt, order).unwrap();
            assert_eq!((&decoded[..], at), (&value[..], key.len()));
        }
        if order == Order::Descending {
            keys.reverse();
        }
        assert!(keys.is_sorted());
    }
}

#[test]
fn what_no_value_encodes_to_is_refused() {
    let cases = [
        (Type::Int, ""),
        (Type::Int, "3f"),
        (Type::Int, "41"),
        (Type::Int, "40 000000"),
        (Type::Text, "3e"),
        (Type::Text, "40 6161"),
        (Type::Text, "40 6100ff"),
        (Type::VarInt, "40"),
        (Type::VarInt, "40 81ff"),
        (Type::VarInt, "40 810001"),
        (Type::VarInt, "40 7eff00"),
        (Type::VarInt, "40 ffffff00"),
        (Type::Float, "40 ffc00001"),
        (Type::Float, "40 00000000"),
        (Type::Double, "40 fff8000000000001"),
        (Type::TimeUuid, "40 4677445500112233 08192a3b4c5d6e7f"),
    ];
    let short_in_long_form = format!("40 ff007f {}", "01".repeat(127));
    for (ty, key) in cases.into_iter().chain([(Type::VarInt, short_in_long_form.as_str())]) {
        let key = Bytes::from(bytes(key));
        assert!(take(&key, &mut 0, &ty, Order::Ascending).is_err(), "{ty:?} {key:02x?}");
    }
}
