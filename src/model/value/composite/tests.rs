//! Values made of values: byte for byte as CQL has them, one form for each, and nothing else is accepted.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::model::arbitrary::{Users, any_type, any_value, two_values};
use crate::model::{Field, UserType, Value};

fn bytes(hex: &str) -> Bytes {
    let digits: Vec<char> = hex.chars().filter(|char| !char.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

fn list(element: Type) -> Type {
    Type::List { element: Arc::new(element), frozen: true }
}

fn set(element: Type) -> Type {
    Type::Set { element: Arc::new(element), frozen: true }
}

fn map(key: Type, value: Type) -> Type {
    Type::Map { key: Arc::new(key), value: Arc::new(value), frozen: true }
}

fn vector(element: Type, dimension: u16) -> Type {
    Type::Vector { element: Arc::new(element), dimension }
}

fn user() -> Type {
    let field = |name: &str, ty| Field { name: name.to_owned(), ty };
    let fields = vec![field("street", Type::Text), field("number", Type::Int)];
    Type::User { definition: Arc::new(UserType { fields, ..UserType::named("ks", "address") }), frozen: true }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// Type, value, bytes.
fn samples() -> Vec<(Type, Value, &'static str)> {
    let int = Value::Integer;
    vec![
        (list(Type::Int), Value::List(vec![]), "00000000"),
        (
            list(Type::Int),
            Value::List(vec![int(2), int(1), int(2)]),
            "00000003 00000004 00000002 00000004 00000001 00000004 00000002",
        ),
        (list(Type::Text), Value::List(vec![text("")]), "00000001 00000000"),
        (set(Type::Int), Value::Set(vec![int(1), int(-1), int(1)]), "00000002 00000004 ffffffff 00000004 00000001"),
        (set(Type::Text), Value::Set(vec![text("é"), text("b")]), "00000002 00000001 62 00000002 c3a9"),
        (
            map(Type::Text, Type::TinyInt),
            Value::Map(vec![(text("b"), int(2)), (text("a"), int(1))]),
            "00000002 00000001 61 00000001 01 00000001 62 00000001 02",
        ),
        (
            Type::Tuple([Type::Int, Type::Text].into()),
            Value::Tuple(vec![Some(int(1)), None]),
            "00000004 00000001 ffffffff",
        ),
        (Type::Tuple([Type::Int, Type::Text].into()), Value::Tuple(vec![None, Some(text(""))]), "ffffffff 00000000"),
        (user(), Value::Tuple(vec![Some(text("a")), Some(int(7))]), "00000001 61 00000004 00000007"),
        (user(), Value::Tuple(vec![Some(text("a")), None]), "00000001 61"),
        (user(), Value::Tuple(vec![None, Some(int(7))]), "ffffffff 00000004 00000007"),
        (user(), Value::Tuple(vec![]), ""),
        (vector(Type::Float, 2), Value::List(vec![Value::Float(1.0), Value::Float(-2.0)]), "3f800000 c0000000"),
        (vector(Type::Text, 2), Value::List(vec![text("a"), text("")]), "01 61 00"),
        (vector(Type::SmallInt, 2), Value::List(vec![int(1), int(-1)]), "02 0001 02 ffff"),
        (
            list(vector(Type::Boolean, 2)),
            Value::List(vec![Value::List(vec![Value::Boolean(true), Value::Boolean(false)])]),
            "00000001 00000002 01 00",
        ),
    ]
}

#[test]
fn values_have_the_bytes_that_cql_has() {
    for (ty, value, expected) in samples() {
        let expected = bytes(expected);
        assert_eq!(value.encode(&ty).unwrap(), expected, "{ty}");
        let decoded = Value::decode(&ty, &expected).unwrap().unwrap();
        assert_eq!(decoded.encode(&ty).unwrap(), expected, "{ty}");
    }
}

#[test]
fn long_elements_of_a_vector_have_their_length_in_two_bytes() {
    let value = Value::List(vec![Value::Blob(vec![7; 200].into())]);
    let encoded = value.encode(&vector(Type::Blob, 1)).unwrap();
    assert_eq!((&encoded[..3], encoded.len()), (&[0x80, 200, 7][..], 202));
}

#[test]
fn what_is_no_value_is_refused_with_the_reason() {
    let cases = [
        (list(Type::Int), "", "4 bytes expected, 0 are there"),
        (list(Type::Int), "00000001", "its count does not fit"),
        (list(Type::Int), "ffffffff", "its count does not fit"),
        (list(Type::Int), "7fffffff 00000000", "its count does not fit"),
        (list(Type::Int), "00000001 ffffffff", "null cannot lie in collections"),
        (list(Type::Int), "00000001 fffffffe", "an element of -2 bytes"),
        (list(Type::Int), "00000001 00000000", "int has no empty value inside"),
        (list(Type::Int), "00000001 00000003 000000", "element 1: int: 3 bytes given"),
        (list(Type::Int), "00000000 00", "1 bytes follow"),
        (list(Type::Float), "00000001 00000004 ffc00000", "only one form"),
        (set(Type::Int), "00000002 00000004 00000001 00000004 00000001", "the same twice"),
        (set(Type::Int), "00000002 00000004 00000001 00000004 ffffffff", "not in ascending order"),
        (map(Type::Int, Type::Int), "00000001 00000004 00000001", "4 bytes expected, 0 are there"),
        (map(Type::Text, Type::Text), "00000001 00000001 61 ffffffff", "null cannot lie in collections"),
        (Type::Tuple([Type::Int, Type::Int].into()), "00000004 00000001", "1 elements given; it has 2"),
        (Type::Tuple([Type::Int].into()), "ffffffff ffffffff", "more than 1 elements"),
        (user(), "00000001 61 ffffffff", "its last field is null"),
        (user(), "ffffffff 00000004 00000007 00000000", "more than 2 elements"),
        (vector(Type::Float, 2), "3f800000", "4 bytes expected, 0 are there"),
        (vector(Type::Float, 1), "3f800000 00", "1 bytes follow"),
        (vector(Type::Text, 1), "81 00", "256 bytes expected"),
    ];
    for (ty, hex, reason) in cases {
        let error = validate(&ty, &bytes(hex)).unwrap_err().to_string();
        assert!(error.contains(reason), "{ty} {hex}: {error}");
    }
    for (ty, value) in [
        (list(Type::Int), Value::Set(vec![])),
        (list(Type::Int), Value::List(vec![text("a")])),
        (vector(Type::Int, 2), Value::List(vec![Value::Integer(1)])),
        (vector(Type::Int, 1), Value::List(vec![Value::Integer(1), Value::Integer(2)])),
        (map(Type::Int, Type::Int), Value::Map(vec![(Value::Integer(1), Value::Integer(1)); 2])),
        (user(), Value::Tuple(vec![None, None, None, Some(Value::Integer(1))])),
        (set(Type::Blob), Value::Set(vec![Value::Blob(vec![0; 65_536].into())])),
    ] {
        assert!(value.encode(&ty).is_err(), "{ty} {value:?}");
    }
}

#[test]
fn what_cql_accepts_beside_the_one_form_becomes_it() {
    let cases = [
        (
            set(Type::Int),
            "00000003 00000004 00000001 00000004 ffffffff 00000004 00000001",
            "00000002 00000004 ffffffff 00000004 00000001",
        ),
        (Type::Tuple([Type::Int, Type::Int].into()), "00000004 00000001", "00000004 00000001 ffffffff"),
        (user(), "ffffffff ffffffff", ""),
        (list(user()), "00000001 00000004 ffffffff", "00000001 00000000"),
        (list(Type::Float), "00000001 00000004 ffc00000", "00000001 00000004 7fc00000"),
    ];
    for (ty, given, expected) in cases {
        assert!(validate(&ty, &bytes(given)).is_err());
        assert_eq!(normalised(&ty, bytes(given)).unwrap(), bytes(expected), "{ty}");
    }
    let twice = "00000002 00000001 61 00000001 61 00000001 61 00000001 62";
    assert!(normalised(&map(Type::Text, Type::Text), bytes(twice)).is_err());
}

#[test]
fn decimals_are_in_the_order_of_their_numbers_whatever_their_exponents() {
    let decimal =
        |scale: i32, unscaled: i64| Value::Decimal { scale, unscaled: unscaled.into() }.encode(&Type::Decimal).unwrap();
    let ascending = [
        decimal(i32::MIN, -1),
        decimal(0, -10),
        decimal(1, -99),
        decimal(i32::MAX, -1),
        decimal(5, 0),
        decimal(i32::MAX, 1),
        decimal(2, 99),
        decimal(0, 1),
        decimal(2, 101),
        decimal(-1, 1),
        decimal(0, 11),
        decimal(i32::MIN, 1),
    ];
    for (left, right) in ascending.iter().zip(&ascending[1..]) {
        assert_eq!(compare(&Type::Decimal, left, right), Ordering::Less, "{left:02x?} {right:02x?}");
        assert_eq!(compare(&Type::Decimal, right, left), Ordering::Greater);
    }
    assert_ne!(compare(&Type::Decimal, &decimal(0, 1), &decimal(1, 10)), Ordering::Equal);
}

fn typed_value() -> impl Strategy<Value = (Type, Value)> {
    any_type(Users::Whole).prop_flat_map(|ty| (any_value(&ty), Just(ty)).prop_map(|(value, ty)| (ty, value)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn values_turn_back((ty, value) in typed_value()) {
        let encoded = value.encode(&ty).unwrap();
        prop_assert!(validate(&ty, &encoded).is_ok());
        prop_assert_eq!(normalised(&ty, encoded.clone()).unwrap(), encoded.clone());
        match Value::decode(&ty, &encoded).unwrap() {
            Some(decoded) => prop_assert_eq!(decoded.encode(&ty).unwrap(), encoded.clone()),
            None => prop_assert!(encoded.is_empty()),
        }
        if !ty.is_scalar() {
            prop_assert_eq!(assembled(&ty, parts(&ty, &encoded).unwrap()).unwrap(), encoded);
        }
    }

    #[test]
    fn the_order_is_total_and_tells_all_values_apart((ty, left, right) in two_values()) {
        prop_assume!(!ty.any(&mut |ty| *ty == Type::Duration));
        let order = compare(&ty, &left, &right);
        prop_assert_eq!(compare(&ty, &right, &left), order.reverse());
        prop_assert_eq!(order == Ordering::Equal, left == right);
    }

    #[test]
    fn damaged_values_are_refused_or_other_values((ty, value) in typed_value(), at: prop::sample::Index, damage: u8) {
        prop_assume!(!ty.is_scalar());
        let encoded = value.encode(&ty).unwrap();
        let mut damaged = encoded.to_vec();
        if !damaged.is_empty() {
            damaged[at.index(encoded.len())] ^= damage;
        }
        for bytes in [Bytes::from(damaged), encoded.slice(..at.index(encoded.len() + 1))] {
            let _ = normalised(&ty, bytes.clone());
            if let Ok(decoded) = Value::decode(&ty, &bytes) {
                prop_assert_eq!(decoded.map_or(bytes.clone(), |value| value.encode(&ty).unwrap()), bytes);
            }
        }
    }

    #[test]
    fn no_bytes_make_the_reading_of_a_value_panic(ty in any_type(Users::Whole), bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = Value::decode(&ty, &Bytes::from(bytes.clone()));
        let _ = normalised(&ty, bytes.into());
    }
}
