//! The CQL bytes of each type, what is refused and why, and that bytes and values turn into each other.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::Class;

fn duration(months: i32, days: i32, nanos: i64) -> Value {
    Value::Duration { months, days, nanos }
}

fn decimal(scale: i32, unscaled: i64) -> Value {
    Value::Decimal { scale, unscaled: unscaled.into() }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn uuid(version: u8) -> Value {
    let mut bytes = [0x11; 16];
    bytes[6] = version << 4;
    Value::Uuid(Uuid::from_bytes(bytes))
}

#[test]
fn values_have_their_cql_bytes() {
    let cases: Vec<(Type, Value, &[u8])> = vec![
        (Type::Ascii, text("a~"), b"a~"),
        (Type::Text, text("é"), &[0xc3, 0xa9]),
        (Type::Text, text(""), &[]),
        (Type::Blob, Value::Blob(Bytes::from_static(&[0, 255])), &[0, 255]),
        (Type::Boolean, Value::Boolean(false), &[0]),
        (Type::Boolean, Value::Boolean(true), &[1]),
        (Type::TinyInt, Value::Integer(-128), &[0x80]),
        (Type::SmallInt, Value::Integer(-2), &[0xff, 0xfe]),
        (Type::Int, Value::Integer(258), &[0, 0, 1, 2]),
        (Type::BigInt, Value::Integer(i64::MIN), &[0x80, 0, 0, 0, 0, 0, 0, 0]),
        (Type::Timestamp, Value::Integer(-1), &[0xff; 8]),
        (Type::Date, Value::Integer(0), &[0x80, 0, 0, 0]),
        (Type::Date, Value::Integer(-(1 << 31)), &[0, 0, 0, 0]),
        (Type::Date, Value::Integer((1 << 31) - 1), &[0xff; 4]),
        (Type::Time, Value::Integer(DAY_NANOS - 1), &[0, 0, 0x4e, 0x94, 0x91, 0x4e, 0xff, 0xff]),
        (Type::VarInt, Value::VarInt(0.into()), &[0]),
        (Type::VarInt, Value::VarInt(128.into()), &[0, 0x80]),
        (Type::VarInt, Value::VarInt((-129).into()), &[0xff, 0x7f]),
        (Type::Decimal, decimal(2, -100), &[0, 0, 0, 2, 0x9c]),
        (Type::Decimal, decimal(-1, 0), &[0xff, 0xff, 0xff, 0xff, 0]),
        (Type::Float, Value::Float(1.5), &[0x3f, 0xc0, 0, 0]),
        (Type::Double, Value::Double(-0.0), &[0x80, 0, 0, 0, 0, 0, 0, 0]),
        (Type::Duration, duration(1, 2, 3), &[2, 4, 6]),
        (Type::Duration, duration(-1, 0, -64), &[1, 0, 0x7f]),
        (Type::Duration, duration(0, 64, 128_000), &[0, 0x80, 0x80, 0xc3, 0xe8, 0x00]),
        (
            Type::Duration,
            duration(i32::MIN, 0, i64::MIN),
            &[0xf0, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ),
        (
            Type::Uuid,
            uuid(4),
            &[0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x40, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11],
        ),
        (
            Type::TimeUuid,
            uuid(1),
            &[0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x10, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11],
        ),
        (Type::Inet, Value::Inet("127.0.0.1".parse().unwrap()), &[127, 0, 0, 1]),
        (Type::Inet, Value::Inet("::1".parse().unwrap()), &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    ];
    for (ty, value, expected) in cases {
        let bytes = value.encode(&ty).unwrap();
        assert_eq!(bytes, expected, "{ty:?} {value:?}");
        assert_eq!(Value::decode(&ty, &bytes).unwrap(), Some(value), "{ty:?}");
    }
}

#[test]
fn bytes_that_are_no_value_are_refused_and_say_why() {
    let cases: [(Type, &[u8], &str); 27] = [
        (Type::Ascii, b"a\x80", "ascii: byte 1 is 0x80; only 0x00 to 0x7f are ASCII, use text for others"),
        (Type::Text, b"ab\xff", "text: not UTF-8 from byte 2 on; use blob for arbitrary bytes"),
        (Type::Boolean, &[2], "boolean: 0x02 given; false is 0x00, true is 0x01"),
        (Type::Boolean, &[0, 0], "boolean: 2 bytes given; it has 1"),
        (Type::TinyInt, &[0, 0], "tinyint: 2 bytes given; it has 1"),
        (Type::SmallInt, &[0], "smallint: 1 bytes given; it has 2"),
        (Type::Int, &[0; 3], "int: 3 bytes given; it has 4"),
        (Type::BigInt, &[0; 4], "bigint: 4 bytes given; it has 8"),
        (Type::Timestamp, &[0; 9], "timestamp: 9 bytes given; it has 8"),
        (Type::Date, &[0; 8], "date: 8 bytes given; it has 4"),
        (Type::Time, &[0xff; 8], "time: -1 ns given; a day has 0 to 86399999999999 ns"),
        (
            Type::Time,
            &86_400_000_000_000i64.to_be_bytes(),
            "time: 86400000000000 ns given; a day has 0 to 86399999999999 ns",
        ),
        (Type::Float, &[0; 8], "float: 8 bytes given; it has 4"),
        (Type::Double, &[0; 4], "double: 4 bytes given; it has 8"),
        (
            Type::VarInt,
            &[0, 0x7f],
            "varint: the first of 2 bytes of digits is superfluous; the shortest two's complement is needed",
        ),
        (
            Type::VarInt,
            &[0xff, 0x80],
            "varint: the first of 2 bytes of digits is superfluous; the shortest two's complement is needed",
        ),
        (Type::Decimal, &[0; 4], "decimal: 4 bytes given; it has 4 of scale and at least 1 of digits"),
        (
            Type::Decimal,
            &[0; 6],
            "decimal: the first of 2 bytes of digits is superfluous; the shortest two's complement is needed",
        ),
        (Type::Uuid, &[0; 15], "uuid: 15 bytes given; it has 16"),
        (Type::TimeUuid, &[0x44; 16], "timeuuid: a UUID of version 4 given; only version 1 has a time"),
        (Type::Inet, &[0; 5], "inet: 5 bytes given; an IPv4 address has 4, an IPv6 address 16"),
        (Type::Duration, &[2, 4], "duration: it is cut short"),
        (
            Type::Duration,
            &[2, 4, 6, 0],
            "duration: bytes follow the nanoseconds; a duration is months, days and nanoseconds",
        ),
        (
            Type::Duration,
            &[2, 1, 0],
            "duration: months, days and nanoseconds differ in sign; they must be all >= 0 or all <= 0",
        ),
        (
            Type::Duration,
            &[1, 2, 0],
            "duration: months, days and nanoseconds differ in sign; they must be all >= 0 or all <= 0",
        ),
        (Type::Duration, &[0, 0, 0x80, 0x7f], "duration: an integer in it is longer than it needs to be"),
        (Type::Duration, &[0, 0xf1, 0, 0, 0, 0, 0], "duration: the days do not fit 32 bits"),
    ];
    for (ty, bytes, expected) in cases {
        let error = validate(&ty, bytes).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }));
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn values_that_their_type_cannot_hold_are_refused_and_say_why() {
    let cases = [
        (Type::Int, text("1"), "int: a value of this type is needed, not a text"),
        (Type::VarInt, Value::Integer(1), "varint: a value of this type is needed, not an integer"),
        (Type::Float, Value::Double(1.0), "float: a value of this type is needed, not a double"),
        (Type::TinyInt, Value::Integer(128), "tinyint: 128 is out of range; it holds -128 to 127"),
        (Type::SmallInt, Value::Integer(-32_769), "smallint: -32769 is out of range; it holds -32768 to 32767"),
        (Type::Int, Value::Integer(1 << 31), "int: 2147483648 is out of range; it holds -2147483648 to 2147483647"),
        (Type::Date, Value::Integer(1 << 31), "date: 2147483648 is out of range; it holds -2147483648 to 2147483647"),
        (
            Type::Date,
            Value::Integer(i64::MIN),
            "date: -9223372036854775808 is out of range; it holds -2147483648 to 2147483647",
        ),
        (
            Type::Date,
            Value::Integer(i64::MAX),
            "date: 9223372036854775807 is out of range; it holds -2147483648 to 2147483647",
        ),
        (Type::Time, Value::Integer(-1), "time: -1 ns given; a day has 0 to 86399999999999 ns"),
        (Type::Ascii, text("é"), "ascii: byte 0 is 0xc3; only 0x00 to 0x7f are ASCII, use text for others"),
        (Type::TimeUuid, uuid(4), "timeuuid: a UUID of version 4 given; only version 1 has a time"),
        (
            Type::Duration,
            duration(1, 0, -1),
            "duration: months, days and nanoseconds differ in sign; they must be all >= 0 or all <= 0",
        ),
    ];
    for (ty, value, expected) in cases {
        assert_eq!(value.encode(&ty).unwrap_err().to_string(), expected);
    }
}

#[test]
fn empty_bytes_are_legal_for_every_type_and_a_value_of_three() {
    for ty in Type::SCALARS {
        assert!(validate(&ty, &[]).is_ok());
        let expected = match ty {
            Type::Ascii | Type::Text => Some(text("")),
            Type::Blob => Some(Value::Blob(Bytes::new())),
            _ => None,
        };
        assert_eq!(Value::decode(&ty, &Bytes::new()).unwrap(), expected, "{ty:?}");
    }
}

/// Bytes that are often a value of some type: of the usual widths, or what the formats of variable length look like.
fn candidate() -> impl Strategy<Value = Vec<u8>> {
    let width = select(vec![1usize, 2, 3, 4, 5, 6, 8, 16, 17]);
    let byte = prop_oneof![any::<u8>(), select(vec![0x00, 0x01, 0x7f, 0x80, 0xff])];
    width.prop_flat_map(move |width| vec(byte.clone(), width))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn valid_bytes_are_the_one_encoding_of_their_value(ty in select(Type::SCALARS.to_vec()), bytes in candidate()) {
        let bytes = Bytes::from(bytes);
        match Value::decode(&ty, &bytes) {
            Ok(value) => {
                prop_assert!(validate(&ty, &bytes).is_ok());
                prop_assert_eq!(value.unwrap().encode(&ty).unwrap(), bytes);
            }
            Err(error) => prop_assert_eq!(error.class(), Class::Invalid),
        }
    }

    #[test]
    fn durations_turn_back(months in 0..=i32::MAX, days in 0..=i32::MAX, nanos in 0..=i64::MAX, shift in 0..31u32) {
        let (months, days, nanos) = (months >> shift, days >> shift, nanos >> (2 * shift));
        for value in [duration(months, days, nanos), duration(-months, -days, -nanos)] {
            let bytes = value.encode(&Type::Duration).unwrap();
            prop_assert_eq!(Value::decode(&Type::Duration, &bytes).unwrap(), Some(value));
        }
    }

    #[test]
    fn big_numbers_turn_back(digits in vec(any::<u8>(), 1..40), scale: i32) {
        let unscaled = BigInt::from_signed_bytes_be(&digits);
        for (ty, value) in [
            (Type::VarInt, Value::VarInt(unscaled.clone())),
            (Type::Decimal, Value::Decimal { scale, unscaled: unscaled.clone() }),
        ] {
            let bytes = value.encode(&ty).unwrap();
            prop_assert_eq!(Value::decode(&ty, &bytes).unwrap(), Some(value));
        }
    }
}
