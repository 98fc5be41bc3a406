//! Rust values and the values of columns.

use std::net::IpAddr;

use bytes::Bytes;
use num_bigint::BigInt;
use trefoil::model::Value;
use uuid::Uuid;

/// What can be written to a column. `None` is null. The column's type has the last word: a number that is too large for it,
/// or a text for an int, is refused when the request is built.
pub trait IntoValue {
    /// The value, or `None` for null.
    fn into_value(self) -> Option<Value>;
}

/// What a column can be read as.
pub trait FromValue: Sized {
    /// From a value; the error says what it is instead.
    fn from_value(value: Value) -> Result<Self, String>;

    /// From null, which is an error unless the type has room for it.
    fn from_null() -> Result<Self, String> {
        Err("it is null; read it as an Option".to_owned())
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

impl IntoValue for Vec<u8> {
    fn into_value(self) -> Option<Value> {
        Some(Value::Blob(self.into()))
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: Value) -> Result<Self, String> {
        Bytes::from_value(value).map(Into::into)
    }
}

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

integers!(i8, i16, i32, i64, u8, u16, u32);

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
