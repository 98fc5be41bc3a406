//! Arbitrary types, for the property tests of everything that knows types.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use bytes::Bytes;
use num_bigint::BigInt;
use proptest::prelude::*;
use proptest::sample::select;
use uuid::Uuid;

use super::{Field, Type, UserType, Value};

/// What is known of the user-defined types in an arbitrary type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Users {
    /// Their names.
    Named,
    /// Their names and fields.
    Whole,
}

/// A type that there can be, of one to four types in each other; user-defined ones lie in the keyspace `ks`.
pub(crate) fn any_type(users: Users) -> impl Strategy<Value = Type> {
    let leaf = select(Type::SCALARS.to_vec());
    let inside = leaf.prop_recursive(3, 12, 4, move |inner| composite(inner, users)).boxed();
    let whole = (inside, any::<bool>()).prop_map(|(ty, freeze)| if freeze { ty.freeze() } else { thawed(&ty) });
    whole.prop_filter("it cannot be", |ty| ty.refused().is_none())
}

fn composite(inner: BoxedStrategy<Type>, users: Users) -> BoxedStrategy<Type> {
    let element = inner.clone().prop_map(Arc::new);
    prop_oneof![
        element.clone().prop_map(|element| Type::List { element, frozen: true }),
        element.clone().prop_map(|element| Type::Set { element, frozen: true }),
        (element.clone(), element.clone()).prop_map(|(key, value)| Type::Map { key, value, frozen: true }),
        (element, 1..5u16).prop_map(|(element, dimension)| Type::Vector { element, dimension }),
        proptest::collection::vec(inner.clone(), 1..4).prop_map(|elements| Type::Tuple(elements.into())),
        ("[a-zA-Z]{1,3}|int|list|primary", proptest::collection::vec(("[a-z ]{1,3}", inner), 1..4)).prop_map(
            move |(name, fields)| {
                let fields = fields.into_iter().map(|(name, ty)| Field { name, ty }).collect();
                let fields = if users == Users::Whole { fields } else { Vec::new() };
                let definition = Arc::new(UserType { fields, ..UserType::named("ks", name) });
                Type::User { definition, frozen: true }
            }
        ),
    ]
    .boxed()
}

/// The same type, not frozen itself.
fn thawed(ty: &Type) -> Type {
    match ty.clone() {
        Type::List { element, .. } => Type::List { element, frozen: false },
        Type::Set { element, .. } => Type::Set { element, frozen: false },
        Type::Map { key, value, .. } => Type::Map { key, value, frozen: false },
        Type::User { definition, .. } => Type::User { definition, frozen: false },
        other => other,
    }
}

/// A value of a type whose user-defined types are known, with the extremes that matter.
pub(crate) fn any_value(ty: &Type) -> BoxedStrategy<Value> {
    let integer =
        |low: i64, high: i64| prop_oneof![low..=high, Just(low), Just(high), Just(0)].prop_map(Value::Integer);
    let big = || proptest::collection::vec(any::<u8>(), 1..20).prop_map(|bytes| BigInt::from_signed_bytes_be(&bytes));
    match ty {
        Type::Ascii => "[ -~]{0,6}".prop_map(Value::Text).boxed(),
        Type::Text => "[a\0é]{0,3}".prop_map(Value::Text).boxed(),
        Type::Blob => {
            let byte = select(vec![0x00, 0x01, 0x38, 0x3f, 0x40, 0xff]);
            proptest::collection::vec(byte, 0..4).prop_map(|bytes| Value::Blob(bytes.into())).boxed()
        }
        Type::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        Type::TinyInt => integer(i8::MIN.into(), i8::MAX.into()).boxed(),
        Type::SmallInt => integer(i16::MIN.into(), i16::MAX.into()).boxed(),
        Type::Int | Type::Date => integer(i32::MIN.into(), i32::MAX.into()).boxed(),
        Type::BigInt | Type::Timestamp | Type::Counter => integer(i64::MIN, i64::MAX).boxed(),
        Type::Time => integer(0, 86_399_999_999_999).boxed(),
        Type::VarInt => big().prop_map(Value::VarInt).boxed(),
        Type::Decimal => (prop_oneof![-3..4i32, any::<i32>()], prop_oneof![(-20..20i64).prop_map(BigInt::from), big()])
            .prop_map(|(scale, unscaled)| Value::Decimal { scale, unscaled })
            .boxed(),
        Type::Float => prop_oneof![any::<f32>(), select(vec![0.0, -0.0])].prop_map(Value::Float).boxed(),
        Type::Double => prop_oneof![any::<f64>(), select(vec![0.0, -0.0])].prop_map(Value::Double).boxed(),
        Type::Duration => (0..100i32, 0..100i32, 0..100i64)
            .prop_map(|(months, days, nanos)| Value::Duration { months, days, nanos })
            .boxed(),
        Type::Uuid => any::<u128>().prop_map(|bits| Value::Uuid(Uuid::from_u128(bits))).boxed(),
        Type::TimeUuid => {
            any::<u128>().prop_map(|bits| Value::Uuid(Uuid::from_u128(bits & !(0xf << 76) | 1 << 76))).boxed()
        }
        Type::Inet => any::<std::net::IpAddr>().prop_map(Value::Inet).boxed(),
        Type::List { element, .. } => proptest::collection::vec(any_value(element), 0..4).prop_map(Value::List).boxed(),
        Type::Set { element, .. } => proptest::collection::vec(any_value(element), 0..4).prop_map(Value::Set).boxed(),
        Type::Map { key, value, .. } => {
            let pair = (any_value(key), any_value(value));
            let key = key.clone();
            proptest::collection::vec(pair, 0..4).prop_map(move |pairs| one_of_each_key(&key, pairs)).boxed()
        }
        Type::Vector { element, dimension } => {
            proptest::collection::vec(any_value(element), usize::from(*dimension)).prop_map(Value::List).boxed()
        }
        Type::Tuple(_) | Type::User { .. } => {
            let fields: Vec<_> = ty.parts().into_iter().map(|ty| proptest::option::of(any_value(ty))).collect();
            fields.prop_map(Value::Tuple).boxed()
        }
    }
}

fn one_of_each_key(key: &Type, pairs: Vec<(Value, Value)>) -> Value {
    let mut keys = std::collections::BTreeSet::new();
    Value::Map(pairs.into_iter().filter(|(given, _)| keys.insert(given.encode(key).unwrap())).collect())
}

/// A type and the bytes of two values of it.
pub(crate) fn two_values() -> impl Strategy<Value = (Type, Bytes, Bytes)> {
    any_type(Users::Whole).prop_flat_map(|ty| {
        let encoded = |ty: &Type| {
            let of = ty.clone();
            any_value(ty).prop_map(move |value| value.encode(&of).unwrap())
        };
        (encoded(&ty), encoded(&ty), Just(ty)).prop_map(|(left, right, ty)| (ty, left, right))
    })
}
