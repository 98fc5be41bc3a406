//! The one form of every value, and what is refused.

#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;

fn printed(value: &Value, ty: &Type) -> String {
    let mut text = String::new();
    print(value, ty, &mut text);
    text
}

/// Any value of a type, with the extremes that matter.
pub fn value_of(ty: Type) -> BoxedStrategy<Value> {
    let integer = |range: std::ops::RangeInclusive<i64>| {
        let (low, high) = (*range.start(), *range.end());
        prop_oneof![range, Just(low), Just(high), Just(0)].prop_map(Value::Integer).boxed()
    };
    let big = prop::collection::vec(any::<u8>(), 1..40).prop_map(|bytes| BigInt::from_signed_bytes_be(&bytes));
    match ty {
        Type::Ascii => "[ -~\n\t]{0,20}".prop_map(Value::Text).boxed(),
        Type::Text => any::<String>().prop_map(Value::Text).boxed(),
        Type::Blob => prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Value::Blob(bytes.into())).boxed(),
        Type::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        Type::TinyInt => integer(i8::MIN.into()..=i8::MAX.into()),
        Type::SmallInt => integer(i16::MIN.into()..=i16::MAX.into()),
        Type::Int => integer(i32::MIN.into()..=i32::MAX.into()),
        Type::BigInt => integer(i64::MIN..=i64::MAX),
        Type::Date => prop_oneof![integer(i32::MIN.into()..=i32::MAX.into()), integer(DAY_FIRST..=DAY_LAST)].boxed(),
        Type::Time => integer(0..=86_399_999_999_999),
        Type::Timestamp => prop_oneof![integer(i64::MIN..=i64::MAX), integer(MS_FIRST..=MS_LAST)].boxed(),
        Type::VarInt => big.prop_map(Value::VarInt).boxed(),
        Type::Decimal => (prop_oneof![any::<i32>(), -9..60i32], big)
            .prop_map(|(scale, unscaled)| Value::Decimal { scale, unscaled })
            .boxed(),
        // A NaN is not equal to itself; it has a test of its own.
        Type::Float => any::<f32>().prop_filter("NaN", |value| !value.is_nan()).prop_map(Value::Float).boxed(),
        Type::Double => any::<f64>().prop_filter("NaN", |value| !value.is_nan()).prop_map(Value::Double).boxed(),
        Type::Duration => (any::<i32>(), any::<i32>(), any::<i64>())
            .prop_map(|(months, days, nanos)| {
                // All parts are of one sign.
                let negative = months < 0;
                let days = if negative == (days < 0) { days } else { !days };
                let nanos = if negative == (nanos < 0) { nanos } else { !nanos };
                Value::Duration { months, days, nanos }
            })
            .boxed(),
        Type::Uuid => any::<u128>().prop_map(|bits| Value::Uuid(Uuid::from_u128(bits))).boxed(),
        Type::TimeUuid => {
            any::<u128>().prop_map(|bits| Value::Uuid(Uuid::from_u128(bits & !(0xf << 76) | 1 << 76))).boxed()
        }
        Type::Inet => any::<std::net::IpAddr>().prop_map(Value::Inet).boxed(),
        other => unreachable!("{other} is no scalar"),
    }
}

/// A type and a value of it.
pub fn typed_value() -> impl Strategy<Value = (Type, Value)> {
    prop::sample::select(Type::SCALARS.to_vec())
        .prop_flat_map(|ty| value_of(ty.clone()).prop_map(move |value| (ty.clone(), value)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_is_printed_reads_as_the_same((ty, value) in typed_value()) {
        let text = printed(&value, &ty);
        let read = parse(&text, &ty);
        prop_assert_eq!(read.as_ref(), Ok(&value), "{} of {}", text, ty);
        prop_assert!(value.encode(&ty).is_ok(), "a value of the test that is none: {:?}", value);
    }

    /// Whatever is read prints in its one form, and that form reads as the same.
    #[test]
    fn anything_is_read_or_refused_without_a_panic(
        text in "[-+0-9a-zA-Z:.,TZé ]{0,24}",
        ty in prop::sample::select(Type::SCALARS.to_vec()),
    ) {
        if let Ok(value) = parse(&text, &ty) {
            let again = parse(&printed(&value, &ty), &ty).unwrap();
            prop_assert_eq!(printed(&again, &ty), printed(&value, &ty));
        }
    }
}

#[test]
fn the_forms_are_those_of_the_page() {
    let cases = [
        (Type::Boolean, "true"),
        (Type::BigInt, "9007199254740993"),
        (Type::BigInt, "-9223372036854775808"),
        (Type::VarInt, "-170141183460469231731687303715884105729"),
        (Type::Decimal, "-12.50"),
        (Type::Decimal, "0.000001"),
        (Type::Decimal, "1e-9"),
        (Type::Decimal, "12e3"),
        (Type::Float, "0.1"),
        (Type::Double, "-0.0"),
        (Type::Double, "1e300"),
        (Type::Double, "NaN"),
        (Type::Float, "-Infinity"),
        (Type::Date, "2013-01-31"),
        (Type::Date, "0000-01-01"),
        (Type::Date, "9999-12-31"),
        (Type::Date, "2932897"),
        (Type::Date, "-2147483648"),
        (Type::Time, "00:00:00"),
        (Type::Time, "23:59:59.999999999"),
        (Type::Time, "10:00:00.5"),
        (Type::Timestamp, "2013-01-01T10:00:00Z"),
        (Type::Timestamp, "2013-01-01T10:00:00.25Z"),
        (Type::Timestamp, "0000-01-01T00:00:00Z"),
        (Type::Timestamp, "9999-12-30T21:59:59.999Z"),
        (Type::Timestamp, "253402207200000"),
        (Type::Timestamp, "-9223372036854775808"),
        (Type::Duration, "1y2mo3d4h5m6s7ms8us9ns"),
        (Type::Duration, "-12d"),
        (Type::Duration, "0s"),
        (Type::Blob, "0x00ff"),
        (Type::Blob, "0x"),
        (Type::Inet, "2001:db8::1"),
        (Type::Uuid, "123e4567-e89b-12d3-a456-426614174000"),
    ];
    for (ty, text) in cases {
        let value = parse(text, &ty).unwrap();
        assert_eq!(printed(&value, &ty), text, "{}", ty);
    }
}

#[test]
fn other_forms_are_read_where_they_are_no_guess() {
    let cases = [
        (Type::Timestamp, "2013-01-01T12:00:00+02:00", "2013-01-01T10:00:00Z"),
        (Type::Timestamp, "2013-01-01T10:00:00.500Z", "2013-01-01T10:00:00.5Z"),
        (Type::Time, "10:00:00.500", "10:00:00.5"),
        (Type::Duration, "2w", "14d"),
        (Type::Duration, "14mo", "1y2mo"),
        (Type::Duration, "90m", "1h30m"),
        (Type::Decimal, "1.5E+3", "15e2"),
        (Type::Double, "1400", "1400.0"),
        (Type::Blob, "0xFF", "0xff"),
        (Type::Int, "-0", "0"),
    ];
    for (ty, text, canonical) in cases {
        assert_eq!(printed(&parse(text, &ty).unwrap(), &ty), canonical);
    }
}

#[test]
fn what_is_no_value_is_refused_with_the_reason() {
    let cases = [
        (Type::Int, "", "\"\" is no int; it is written in decimal digits"),
        (Type::Int, "NA", "\"NA\" is no int"),
        (Type::Int, "1.0", "\"1.0\" is no int"),
        (Type::Int, "+1", "\"+1\" is no int"),
        (Type::Int, "2147483648", "\"2147483648\" is out of range; it holds -2147483648 to 2147483647"),
        (Type::TinyInt, "128", "it holds -128 to 127"),
        (Type::BigInt, "9223372036854775808", "it holds -9223372036854775808 to 9223372036854775807"),
        (Type::VarInt, "1_000", "is no varint"),
        (Type::Decimal, "1.", "is no decimal"),
        (Type::Decimal, ".5", "is no decimal"),
        (Type::Decimal, "1e2147483649", "exponent out of range"),
        (Type::Decimal, "1e99999999999999999999", "exponent out of range"),
        (Type::Float, "1e39", "out of range"),
        (Type::Double, "inf", "is no double"),
        (Type::Double, "1e400", "out of range"),
        (Type::Boolean, "True", "it is true or false"),
        (Type::Blob, "ff", "0x and pairs of hex digits"),
        (Type::Blob, "0xf", "0x and pairs of hex digits"),
        (Type::Blob, "0xzz", "0x and pairs of hex digits"),
        (Type::Date, "2013-02-29", "2013-02-29 is not in the calendar"),
        (Type::Date, "2013-1-1", "is no date"),
        (Type::Date, "2013", "if days since 1970 are meant, it is written 1975-07-07"),
        (Type::Time, "24:00:00", "is no time"),
        (Type::Time, "10:00", "is no time"),
        (Type::Time, "10:00:60", "is no time"),
        (Type::Time, "10:00:00.1234567890", "is no time"),
        (Type::Timestamp, "2013-01-01T10:00:00", "is no timestamp"),
        (Type::Timestamp, "2013-01-01 10:00:00Z", "is no timestamp"),
        (Type::Timestamp, "1357034400", "if milliseconds since 1970 are meant, it is written 1970-01-16T16:57:14.4Z"),
        (Type::Timestamp, "2013-01-01T10:00:00.0001Z", "finer than a millisecond"),
        (Type::Duration, "", "it has no parts"),
        (Type::Duration, "P1D", "number of 64 bits is missing"),
        (Type::Duration, "1d1y", "larger ones first"),
        (Type::Duration, "1parsec", "the units are"),
        (Type::Duration, "200000000y", "a part is out of range"),
        (Type::Uuid, "123e4567e89b12d3a456426614174000", "is no uuid"),
        (Type::Inet, "localhost", "is no inet"),
        (Type::Inet, "10.0.0", "is no inet"),
    ];
    for (ty, text, reason) in cases {
        let error = parse(text, &ty).unwrap_err();
        assert!(error.contains(reason), "{} {text:?}: {error}", ty);
    }
}

#[test]
fn long_texts_are_cut_in_messages() {
    let error = parse(&"é".repeat(1_000), &Type::Int).unwrap_err();
    assert!(error.len() < 300, "{error}");
    let error = parse(&"1".repeat(DIGITS_MAX + 1), &Type::VarInt).unwrap_err();
    assert_eq!(error, "100001 digits, at most 100000 are read");
}
