//! Values survive the wire, and only fitting ones get in.

use std::sync::Arc;

use bytes::Bytes;
use num_bigint::BigInt;
use proptest::prelude::*;
use trefoil::model::{Field, Type, UserType, Value};
use uuid::Uuid;

use crate::VALUE_BYTES_MAX;
use crate::convert::value;
use crate::v1::value::{Decimal, Kind};
use crate::v1::{self, ValueForm};

fn typed() -> impl Strategy<Value = (Type, Value)> {
    let big = || prop::collection::vec(any::<u8>(), 1..20).prop_map(|bytes| BigInt::from_signed_bytes_be(&bytes));
    prop_oneof![
        any::<bool>().prop_map(|value| (Type::Boolean, Value::Boolean(value))),
        any::<i8>().prop_map(|value| (Type::TinyInt, Value::Integer(value.into()))),
        any::<i16>().prop_map(|value| (Type::SmallInt, Value::Integer(value.into()))),
        any::<i32>().prop_map(|value| (Type::Int, Value::Integer(value.into()))),
        any::<i64>().prop_map(|value| (Type::BigInt, Value::Integer(value))),
        any::<i32>().prop_map(|value| (Type::Date, Value::Integer(value.into()))),
        (0..86_400_000_000_000i64).prop_map(|value| (Type::Time, Value::Integer(value))),
        any::<i64>().prop_map(|value| (Type::Timestamp, Value::Integer(value))),
        (-1e9f32..1e9).prop_map(|value| (Type::Float, Value::Float(value))),
        (-1e99f64..1e99).prop_map(|value| (Type::Double, Value::Double(value))),
        "[ -~]{0,12}".prop_map(|value| (Type::Ascii, Value::Text(value))),
        ".{0,12}".prop_map(|value| (Type::Text, Value::Text(value))),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(|value| (Type::Blob, Value::Blob(value.into()))),
        any::<u128>().prop_map(|value| (Type::Uuid, Value::Uuid(Uuid::from_u128(value)))),
        any::<std::net::IpAddr>().prop_map(|value| (Type::Inet, Value::Inet(value))),
        big().prop_map(|value| (Type::VarInt, Value::VarInt(value))),
        (any::<i32>(), big()).prop_map(|(scale, unscaled)| (Type::Decimal, Value::Decimal { scale, unscaled })),
        (0..9i32, 0..9i32, 0..9i64)
            .prop_map(|(months, days, nanos)| (Type::Duration, Value::Duration { months, days, nanos })),
    ]
}

proptest! {
    #[test]
    fn a_value_survives_the_wire_in_every_form((ty, model) in typed()) {
        let stored = model.encode(&ty).unwrap();
        let by_model = value::from_model(model);
        prop_assert_eq!(value::to_bytes(by_model.clone(), &ty), Ok(Some(stored.clone())));
        prop_assert_eq!(value::from_bytes(stored.clone(), &ty, ValueForm::Typed), by_model);
        let raw = value::from_bytes(stored.clone(), &ty, ValueForm::Raw);
        prop_assert_eq!(value::to_bytes(raw, &ty), Ok(Some(stored)));
    }

    #[test]
    fn a_value_of_another_form_is_refused((ty, _) in typed(), (other, model) in typed()) {
        prop_assume!(std::mem::discriminant(&model) != std::mem::discriminant(&sample(&ty)));
        let refused = value::to_bytes(value::from_model(model), &ty);
        prop_assert!(refused.is_err(), "{:?} as {:?}", other, ty);
    }
}

/// Some value of the form that a type takes.
fn sample(ty: &Type) -> Value {
    match ty {
        Type::Ascii | Type::Text => Value::Text(String::new()),
        Type::Blob => Value::Blob(Bytes::new()),
        Type::Boolean => Value::Boolean(true),
        Type::Float => Value::Float(0.0),
        Type::Double => Value::Double(0.0),
        Type::VarInt => Value::VarInt(0.into()),
        Type::Decimal => Value::Decimal { scale: 0, unscaled: 0.into() },
        Type::Duration => Value::Duration { months: 0, days: 0, nanos: 0 },
        Type::Uuid | Type::TimeUuid => Value::Uuid(Uuid::nil()),
        Type::Inet => Value::Inet([0, 0, 0, 0].into()),
        _ => Value::Integer(0),
    }
}

#[test]
fn buffers_of_texts_and_blobs_are_kept() {
    let text = String::from("of some length");
    let at = text.as_ptr();
    let bytes = value::to_bytes(v1::Value { kind: Some(Kind::Text(text)) }, &Type::Text).unwrap().unwrap();
    assert_eq!(bytes.as_ptr(), at);
    let answer = value::from_bytes(bytes, &Type::Int, ValueForm::Raw);
    let Some(Kind::Raw(raw)) = answer.kind else { panic!("{answer:?}") };
    assert_eq!(raw.as_ptr(), at);
}

#[test]
fn empty_bytes_are_legal_as_raw_and_come_back_so() {
    for ty in Type::SCALARS {
        let bytes = value::to_bytes(value::raw(Bytes::new()), &ty).unwrap().unwrap();
        let expected = match ty {
            Type::Ascii | Type::Text => Kind::Text(String::new()),
            Type::Blob => Kind::Blob(Bytes::new()),
            _ => Kind::Raw(Bytes::new()),
        };
        assert_eq!(value::from_bytes(bytes, &ty, ValueForm::Typed).kind, Some(expected), "{ty:?}");
    }
}

#[test]
fn null_is_not_a_value_and_nothing_is_not_null() {
    assert_eq!(value::to_bytes(value::null(), &Type::Int), Ok(None));
    assert!(value::to_bytes(v1::Value::default(), &Type::Int).is_err());
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let bytes = |bytes: &'static [u8]| Bytes::from_static(bytes);
    let cases = [
        (Type::TinyInt, Kind::Integer(128)),
        (Type::Int, Kind::Integer(i64::from(i32::MAX) + 1)),
        (Type::Time, Kind::Integer(-1)),
        (Type::Date, Kind::Integer(i64::MAX)),
        (Type::Ascii, Kind::Text("é".to_owned())),
        (Type::Uuid, Kind::Uuid(bytes(b"short"))),
        (Type::Uuid, Kind::Uuid(bytes(b""))),
        (Type::TimeUuid, Kind::Uuid(bytes(&[0; 16]))),
        (Type::Inet, Kind::Inet(bytes(b"12345"))),
        (Type::VarInt, Kind::Varint(bytes(b""))),
        (Type::VarInt, Kind::Varint(bytes(&[0, 1]))),
        (Type::Decimal, Kind::Decimal(Decimal { scale: 1, unscaled: bytes(b"") })),
        (Type::Decimal, Kind::Decimal(Decimal { scale: 1, unscaled: bytes(&[0xff, 0xff]) })),
        (Type::Int, Kind::Raw(bytes(b"abc"))),
        (Type::Text, Kind::Raw(bytes(b"\xff"))),
        (Type::Boolean, Kind::Raw(bytes(&[2]))),
        (Type::Blob, Kind::Blob(vec![0; VALUE_BYTES_MAX + 1].into())),
    ];
    for (ty, kind) in cases {
        let shown = format!("{kind:.40?}");
        assert!(
            value::to_bytes(v1::Value { kind: Some(kind) }, &ty).is_err(),
            "{ty:?} {}",
            &shown[..shown.len().min(60)]
        );
    }
}

fn composites() -> Vec<(Type, Value)> {
    let int = || Arc::new(Type::Int);
    let field = |name: &str, ty| Field { name: name.to_owned(), ty };
    let fields = vec![field("a", Type::Text), field("b", Type::List { element: int(), frozen: true })];
    let user = Type::User { definition: Arc::new(UserType { fields, ..UserType::named("k", "t") }), frozen: true };
    let [one, two] = [1, 2].map(Value::Integer);
    vec![
        (Type::List { element: int(), frozen: false }, Value::List(vec![two.clone(), one.clone()])),
        (Type::Set { element: int(), frozen: true }, Value::Set(vec![one.clone(), two.clone()])),
        (
            Type::Map { key: int(), value: Arc::new(user.clone()), frozen: true },
            Value::Map(vec![
                (one.clone(), Value::Tuple(vec![None, Some(Value::List(vec![two.clone()]))])),
                (two.clone(), Value::Tuple(vec![None, None])),
            ]),
        ),
        (Type::Tuple([Type::Int, Type::Int].into()), Value::Tuple(vec![None, Some(one.clone())])),
        (Type::Vector { element: int(), dimension: 2 }, Value::List(vec![two, one])),
    ]
}

#[test]
fn values_made_of_values_survive_the_wire() {
    for (ty, model) in composites() {
        let stored = model.encode(&ty).unwrap();
        assert_eq!(value::to_bytes(value::from_model(model.clone()), &ty).unwrap().unwrap(), stored, "{ty}");
        for form in [ValueForm::Typed, ValueForm::Raw] {
            let answer = value::from_bytes(stored.clone(), &ty, form);
            assert_eq!(value::to_bytes(answer, &ty).unwrap().unwrap(), stored, "{ty}");
        }
        assert_eq!(Value::decode(&ty, &stored).unwrap(), Some(model));
    }
}

#[test]
fn sets_and_maps_in_any_order_have_one_form() {
    let set = Type::Set { element: Arc::new(Type::Int), frozen: true };
    let unordered = value::from_model(Value::Set([3, 1, 3].map(Value::Integer).to_vec()));
    let ordered = value::to_bytes(unordered, &set).unwrap().unwrap();
    let unordered = Bytes::from_static(b"\0\0\0\x02\0\0\0\x04\0\0\0\x03\0\0\0\x04\0\0\0\x01");
    assert_eq!(value::to_bytes(value::raw(unordered), &set).unwrap().unwrap(), ordered);
}

#[test]
fn parts_that_do_not_fit_are_named() {
    let list = Type::List { element: Arc::new(Type::TinyInt), frozen: true };
    let items = |items: Vec<v1::Value>| v1::Value { kind: Some(Kind::List(v1::value::Items { items })) };
    let given = items(vec![value::from_model(Value::Integer(1)), value::from_model(Value::Integer(128))]);
    assert!(value::to_bytes(given, &list).unwrap_err().reason.starts_with("value 2 in it: tinyint: 128"));
    let error = value::to_bytes(items(vec![value::null()]), &list).unwrap_err();
    assert!(error.reason.contains("null cannot lie in collections"), "{error}");
    let map = Type::Map { key: Arc::new(Type::Int), value: Arc::new(Type::Int), frozen: true };
    let uneven = v1::value::Entries { keys: vec![value::from_model(Value::Integer(1))], values: Vec::new() };
    assert!(value::to_bytes(v1::Value { kind: Some(Kind::Map(uneven)) }, &map).is_err());
}
