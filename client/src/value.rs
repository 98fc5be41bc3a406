//! Rust values and the values of columns.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::net::IpAddr;

use bytes::Bytes;
use num_bigint::BigInt;
use trefoil::model::Value;
use uuid::Uuid;

/// What can be written to a column. `None` is null. The column's type has the last word: a number that is too large for it,
/// or a text for an int, is refused when the request is built.
pub trait IntoValue: Sized {
    /// The value, or `None` for null.
    fn into_value(self) -> Option<Value>;

    /// Several of them: a list, but for bytes, which are a blob. Nulls can lie in tuples only, so that a list with a null
    /// becomes one.
    #[doc(hidden)]
    fn several_into_value(several: Vec<Self>) -> Option<Value> {
        let values: Vec<Option<Value>> = several.into_iter().map(IntoValue::into_value).collect();
        Some(match values.iter().all(Option::is_some) {
            true => Value::List(values.into_iter().flatten().collect()),
            false => Value::Tuple(values),
        })
    }
}

/// What a column can be read as.
pub trait FromValue: Sized {
    /// From a value; the error says what it is instead.
    fn from_value(value: Value) -> Result<Self, String>;

    /// From null, which is an error unless the type has room for it.
    fn from_null() -> Result<Self, String> {
        Err("it is null; read it as an Option".to_owned())
    }

    /// Several of them: from a list, set, vector or tuple, but for bytes, which come from a blob.
    #[doc(hidden)]
    fn several_from_value(value: Value) -> Result<Vec<Self>, String> {
        match value {
            Value::List(values) | Value::Set(values) => values.into_iter().map(Self::from_value).collect(),
            Value::Tuple(values) => {
                values.into_iter().map(|value| value.map_or_else(Self::from_null, Self::from_value)).collect()
            }
            other => Err(format!("{other:?} is not a list")),
        }
    }

    /// None of them: a collection without elements that is not frozen is null.
    #[doc(hidden)]
    fn several_from_null() -> Result<Vec<Self>, String> {
        Ok(Vec::new())
    }
}

impl IntoValue for Value {
    fn into_value(self) -> Option<Value> {
        Some(self)
    }
}

impl FromValue for Value {
    fn from_value(value: Value) -> Result<Self, String> {
        Ok(value)
    }
}

impl<T: IntoValue> IntoValue for Option<T> {
    fn into_value(self) -> Option<Value> {
        self.and_then(IntoValue::into_value)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Result<Self, String> {
        T::from_value(value).map(Some)
    }

    fn from_null() -> Result<Self, String> {
        Ok(None)
    }
}

impl IntoValue for &str {
    fn into_value(self) -> Option<Value> {
        Some(Value::Text(self.to_owned()))
    }
}

impl IntoValue for &[u8] {
    fn into_value(self) -> Option<Value> {
        Some(Value::Blob(Bytes::copy_from_slice(self)))
    }
}

impl<T: IntoValue> IntoValue for Vec<T> {
    fn into_value(self) -> Option<Value> {
        T::several_into_value(self)
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: Value) -> Result<Self, String> {
        T::several_from_value(value)
    }

    fn from_null() -> Result<Self, String> {
        T::several_from_null()
    }
}

impl IntoValue for u8 {
    fn into_value(self) -> Option<Value> {
        Some(Value::Integer(self.into()))
    }

    fn several_into_value(several: Vec<Self>) -> Option<Value> {
        Some(Value::Blob(several.into()))
    }
}

impl FromValue for u8 {
    fn from_value(value: Value) -> Result<Self, String> {
        i64::from_value(value).and_then(|value| value.try_into().map_err(|_| format!("{value} does not fit u8")))
    }

    fn several_from_value(value: Value) -> Result<Vec<Self>, String> {
        Bytes::from_value(value).map(Into::into)
    }

    fn several_from_null() -> Result<Vec<Self>, String> {
        Bytes::from_null().map(Into::into)
    }
}

macro_rules! sets {
    ($($set:ident: $($bound:ident)|+;)*) => {$(
        impl<T: IntoValue> IntoValue for $set<T> {
            fn into_value(self) -> Option<Value> {
                match Vec::from_iter(self).into_iter().map(IntoValue::into_value).collect::<Option<Vec<_>>>() {
                    Some(values) => Some(Value::Set(values)),
                    // No set holds null; as a tuple it is refused.
                    None => Some(Value::Tuple(vec![None])),
                }
            }
        }

        impl<T: FromValue $(+ $bound)+> FromValue for $set<T> {
            fn from_value(value: Value) -> Result<Self, String> {
                match value {
                    Value::Set(values) | Value::List(values) => values.into_iter().map(T::from_value).collect(),
                    other => Err(format!("{other:?} is not a set")),
                }
            }

            fn from_null() -> Result<Self, String> {
                Ok($set::new())
            }
        }
    )*};
}

sets!(BTreeSet: Ord; HashSet: Eq | Hash;);

macro_rules! maps {
    ($($map:ident: $($bound:ident)|+;)*) => {$(
        impl<K: IntoValue, V: IntoValue> IntoValue for $map<K, V> {
            fn into_value(self) -> Option<Value> {
                let pair = |(key, value): (K, V)| key.into_value().zip(value.into_value());
                match self.into_iter().map(pair).collect::<Option<Vec<_>>>() {
                    Some(pairs) => Some(Value::Map(pairs)),
                    // No map holds null; as a tuple it is refused.
                    None => Some(Value::Tuple(vec![None])),
                }
            }
        }

        impl<K: FromValue $(+ $bound)+, V: FromValue> FromValue for $map<K, V> {
            fn from_value(value: Value) -> Result<Self, String> {
                match value {
                    Value::Map(pairs) => {
                        pairs.into_iter().map(|(key, value)| Ok((K::from_value(key)?, V::from_value(value)?))).collect()
                    }
                    other => Err(format!("{other:?} is not a map")),
                }
            }

            fn from_null() -> Result<Self, String> {
                Ok($map::new())
            }
        }
    )*};
}

maps!(BTreeMap: Ord; HashMap: Eq | Hash;);

macro_rules! tuples {
    ($($($name:ident)+;)*) => {$(
        #[expect(non_snake_case, reason = "a variable for each type, of its name")]
        impl<$($name: IntoValue),+> IntoValue for ($($name,)+) {
            fn into_value(self) -> Option<Value> {
                let ($($name,)+) = self;
                Some(Value::Tuple(vec![$($name.into_value()),+]))
            }
        }

        impl<$($name: FromValue),+> FromValue for ($($name,)+) {
            fn from_value(value: Value) -> Result<Self, String> {
                let Value::Tuple(values) = value else { return Err(format!("{value:?} is not a tuple")) };
                let mut values = values.into_iter();
                // What is missing at the end is null.
                Ok(($(values.next().flatten().map_or_else($name::from_null, $name::from_value)?,)+))
            }
        }
    )*};
}

tuples!(A; A B; A B C; A B C D; A B C D E; A B C D E F; A B C D E F G; A B C D E F G H;);

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl IntoValue for $int {
            fn into_value(self) -> Option<Value> {
                Some(Value::Integer(self.into()))
            }
        }

        impl FromValue for $int {
            fn from_value(value: Value) -> Result<Self, String> {
                match value {
                    Value::Integer(value) => {
                        value.try_into().map_err(|_| format!("{value} does not fit {}", stringify!($int)))
                    }
                    other => Err(format!("{other:?} is not an integer")),
                }
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, u16, u32);

macro_rules! variants {
    ($($ty:ty => $variant:ident),*) => {$(
        impl IntoValue for $ty {
            fn into_value(self) -> Option<Value> {
                Some(Value::$variant(self))
            }
        }

        impl FromValue for $ty {
            fn from_value(value: Value) -> Result<Self, String> {
                match value {
                    Value::$variant(value) => Ok(value),
                    other => Err(format!("{other:?} is not of type {}", stringify!($ty))),
                }
            }
        }
    )*};
}

variants!(
    bool => Boolean, f32 => Float, f64 => Double, String => Text, Bytes => Blob, Uuid => Uuid, IpAddr => Inet,
    BigInt => VarInt
);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fmt::Debug;

    use super::*;

    fn turns_back<T: IntoValue + FromValue + PartialEq + Debug + Clone>(rust: T, expected: &Value) {
        let value = rust.clone().into_value().unwrap();
        assert_eq!(value, *expected);
        assert_eq!(T::from_value(value), Ok(rust));
    }

    #[test]
    fn collections_and_tuples_of_rust_are_those_of_cql() {
        let [one, two] = [1, 2].map(Value::Integer);
        turns_back(vec![2i32, 1], &Value::List(vec![two.clone(), one.clone()]));
        turns_back(vec![2u8, 1], &Value::Blob(Bytes::from_static(&[2, 1])));
        turns_back(vec![vec![1u8]], &Value::List(vec![Value::Blob(Bytes::from_static(&[1]))]));
        turns_back(BTreeSet::from([1i64, 2]), &Value::Set(vec![one.clone(), two.clone()]));
        turns_back(HashSet::from([1i64]), &Value::Set(vec![one.clone()]));
        let pairs = Value::Map(vec![(one.clone(), Value::List(vec![two.clone()]))]);
        turns_back(BTreeMap::from([(1i16, vec![2i64])]), &pairs);
        turns_back(HashMap::from([(1i16, vec![2i64])]), &pairs);
        turns_back((1i32, None::<String>, true), &Value::Tuple(vec![Some(one), None, Some(Value::Boolean(true))]));
    }

    #[test]
    fn null_is_an_empty_collection_and_no_blob() {
        assert_eq!(Vec::<i32>::from_null(), Ok(Vec::new()));
        assert_eq!(BTreeMap::<i32, i32>::from_null(), Ok(BTreeMap::new()));
        assert!(Vec::<u8>::from_null().is_err());
        assert_eq!(<(i32, Option<i32>)>::from_value(Value::Tuple(vec![Some(Value::Integer(1))])), Ok((1, None)));
    }

    #[test]
    fn a_null_in_a_collection_is_not_lost() {
        use trefoil::model::Type;
        let list = Type::List { element: std::sync::Arc::new(Type::Int), frozen: true };
        assert!(vec![Some(1i32), None].into_value().unwrap().encode(&list).is_err());
    }
}
