//! Values with their types: the typed face of CQL wire bytes.
//!
//! Bytes are checked once, by [`validate`], where they enter the system; what is stored is valid. Where CQL would read
//! several byte strings as one value, only one is let in (a boolean is 00 or 01, integers of variable length are
//! in their shortest form), so that equal values have equal bytes in digests and ties. The exceptions are kept because
//! CQL tells them apart or compares them elsewhere: the scales of a decimal, -0.0, and the payload of a NaN.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use num_bigint::BigInt;
use uuid::Uuid;

use super::duration::Duration;
use super::types::Type;
use crate::{Error, Result};

mod compare;
mod composite;

pub use compare::compare;
pub use composite::{assembled, normalised, parts};
pub(super) use composite::{rejoined, split};

/// Nanoseconds of a day: the first number that is no time.
const DAY_NANOS: i64 = 86_400_000_000_000;
/// The CQL date of 1970-01-01.
const DATE_EPOCH: i64 = 1 << 31;

/// A value that is not null.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// boolean
    Boolean(bool),
    /// tinyint, smallint, int, bigint; date (days since 1970), time (ns since midnight), timestamp (ms since 1970)
    Integer(i64),
    /// float
    Float(f32),
    /// double
    Double(f64),
    /// ascii, text
    Text(String),
    /// blob
    Blob(Bytes),
    /// uuid, timeuuid
    Uuid(Uuid),
    /// inet
    Inet(IpAddr),
    /// varint
    VarInt(BigInt),
    /// decimal: `unscaled * 10^-scale`
    Decimal {
        /// Digits after the point; may be negative.
        scale: i32,
        /// The digits.
        unscaled: BigInt,
    },
    /// duration; all parts of one sign
    Duration {
        /// Months.
        months: i32,
        /// Days.
        days: i32,
        /// Nanoseconds.
        nanos: i64,
    },
    /// list, vector
    List(Vec<Value>),
    /// set; in any order, any of them several times, until it is encoded
    Set(Vec<Value>),
    /// map: keys and values, in any order until it is encoded
    Map(Vec<(Value, Value)>),
    /// tuple, and the fields of a user-defined type by their place; `None` is null, as what is left out at the end is
    Tuple(Vec<Option<Value>>),
}

impl Value {
    /// The CQL bytes of this value as a `ty`, or why it is not one.
    pub fn encode(&self, ty: &Type) -> Result<Bytes> {
        let bytes = match (self, ty) {
            (Value::Boolean(value), Type::Boolean) => owned([u8::from(*value)]),
            (Value::Integer(value), ty) if is_integer(ty) => integer_bytes(*value, ty)?,
            (Value::Float(value), Type::Float) => owned(value.to_be_bytes()),
            (Value::Double(value), Type::Double) => owned(value.to_be_bytes()),
            (Value::Text(value), Type::Ascii | Type::Text) => Bytes::copy_from_slice(value.as_bytes()),
            (Value::Blob(value), Type::Blob) => value.clone(),
            (Value::Uuid(value), Type::Uuid | Type::TimeUuid) => owned(*value.as_bytes()),
            (Value::Inet(IpAddr::V4(value)), Type::Inet) => owned(value.octets()),
            (Value::Inet(IpAddr::V6(value)), Type::Inet) => owned(value.octets()),
            (Value::VarInt(value), Type::VarInt) => value.to_signed_bytes_be().into(),
            (Value::Decimal { scale, unscaled }, Type::Decimal) => {
                [scale.to_be_bytes().as_slice(), &unscaled.to_signed_bytes_be()].concat().into()
            }
            (Value::Duration { months, days, nanos }, Type::Duration) => {
                Duration { months: *months, days: *days, nanos: *nanos }.encode()
            }
            (Value::List(_) | Value::Set(_) | Value::Map(_) | Value::Tuple(_), ty) => return self.encode_parts(ty),
            _ => return Err(self.is_no(ty)),
        };
        match ty {
            // The other types cannot hold anything that is not valid.
            Type::Ascii | Type::Time | Type::TimeUuid | Type::Duration => validate(ty, &bytes)?,
            _ => {}
        }
        Ok(bytes)
    }

    fn is_no(&self, ty: &Type) -> Error {
        Error::invalid(ty.to_string(), format!("a value of this type is needed, not {}", self.kind()))
    }

    fn encode_parts(&self, ty: &Type) -> Result<Bytes> {
        let values: Vec<Option<&Value>> = match (self, ty) {
            (Value::List(values), Type::List { .. } | Type::Vector { .. }) | (Value::Set(values), Type::Set { .. }) => {
                values.iter().map(Some).collect()
            }
            (Value::Map(pairs), Type::Map { .. }) => {
                pairs.iter().flat_map(|(key, value)| [Some(key), Some(value)]).collect()
            }
            (Value::Tuple(values), Type::Tuple(_) | Type::User { .. }) => values.iter().map(Option::as_ref).collect(),
            _ => return Err(self.is_no(ty)),
        };
        let encode = |(at, value): (usize, Option<&Value>)| match (value, ty.part(at)) {
            (Some(value), Some(part)) => value.encode(part).map(Some),
            (Some(_), None) => Err(Error::invalid(ty.to_string(), format!("more than {at} elements"))),
            (None, _) => Ok(None),
        };
        assembled(ty, values.into_iter().enumerate().map(encode).collect::<Result<_>>()?)
    }

    /// The value of parts that were checked with the whole.
    fn decode_parts(ty: &Type, bytes: &Bytes) -> Result<Option<Value>> {
        let decode = |(at, part): (usize, Option<Bytes>)| match (part, ty.part(at)) {
            (Some(part), Some(ty)) => Value::decode(ty, &part),
            _ => Ok(None),
        };
        let mut values: Vec<Option<Value>> =
            parts(ty, bytes)?.into_iter().enumerate().map(decode).collect::<Result<_>>()?;
        Ok(Some(match ty {
            Type::Set { .. } => Value::Set(values.into_iter().flatten().collect()),
            Type::Map { .. } => {
                let mut values = values.into_iter().flatten();
                let pairs = std::iter::from_fn(|| values.next().zip(values.next()));
                Value::Map(pairs.collect())
            }
            Type::Tuple(_) => Value::Tuple(values),
            Type::User { definition, .. } => {
                values.resize(definition.fields.len(), None);
                Value::Tuple(values)
            }
            _ => Value::List(values.into_iter().flatten().collect()),
        }))
    }

    /// The value of CQL bytes of a `ty`. Empty bytes are legal in storage for every type; for all but ascii, text and
    /// blob they have no typed value: `Ok(None)`. Sets and maps come in their order, user-defined types with all fields.
    pub fn decode(ty: &Type, bytes: &Bytes) -> Result<Option<Value>> {
        validate(ty, bytes)?;
        if bytes.is_empty() && !ty.has_empty_value() {
            return Ok(None);
        }
        if !ty.is_scalar() {
            return Value::decode_parts(ty, bytes);
        }
        Ok(Some(match ty {
            Type::Ascii | Type::Text => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
            Type::Blob => Value::Blob(bytes.clone()),
            Type::Boolean => Value::Boolean(bytes[0] != 0),
            Type::TinyInt
            | Type::SmallInt
            | Type::Int
            | Type::BigInt
            | Type::Time
            | Type::Timestamp
            | Type::Counter => Value::Integer(signed(bytes)),
            Type::Date => Value::Integer(i64::from(u32::from_be_bytes(array(bytes))) - DATE_EPOCH),
            Type::VarInt => Value::VarInt(BigInt::from_signed_bytes_be(bytes)),
            Type::Decimal => Value::Decimal {
                scale: i32::from_be_bytes(array(&bytes[..4])),
                unscaled: BigInt::from_signed_bytes_be(&bytes[4..]),
            },
            Type::Float => Value::Float(f32::from_be_bytes(array(bytes))),
            Type::Double => Value::Double(f64::from_be_bytes(array(bytes))),
            Type::Duration => {
                let Duration { months, days, nanos } = decode_duration(bytes)?;
                Value::Duration { months, days, nanos }
            }
            Type::Uuid | Type::TimeUuid => Value::Uuid(Uuid::from_bytes(array(bytes))),
            Type::Inet if bytes.len() == 4 => Value::Inet(Ipv4Addr::from(array::<4>(bytes)).into()),
            Type::Inet => Value::Inet(Ipv6Addr::from(array::<16>(bytes)).into()),
            // Not reached: these are no scalars.
            _ => return Ok(None),
        }))
    }

    /// What it is, for people.
    fn kind(&self) -> &'static str {
        match self {
            Value::Boolean(_) => "a boolean",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Double(_) => "a double",
            Value::Text(_) => "a text",
            Value::Blob(_) => "a blob",
            Value::Uuid(_) => "a uuid",
            Value::Inet(_) => "an inet",
            Value::VarInt(_) => "a varint",
            Value::Decimal { .. } => "a decimal",
            Value::Duration { .. } => "a duration",
            Value::List(_) => "a list",
            Value::Set(_) => "a set",
            Value::Map(_) => "a map",
            Value::Tuple(_) => "a tuple",
        }
    }
}

/// Whether `bytes` are a canonical value of `ty`, or why not. Empty bytes are legal for every scalar type. For scalar
/// types it allocates only to say what is wrong.
pub fn validate(ty: &Type, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() && (ty.is_scalar() || ty.has_empty_value()) {
        return Ok(());
    }
    match ty {
        Type::Blob => Ok(()),
        Type::Ascii => validate_ascii(bytes),
        Type::Text => validate_text(bytes),
        Type::Boolean => validate_boolean(bytes),
        Type::TinyInt => validate_width(ty, bytes, 1),
        Type::SmallInt => validate_width(ty, bytes, 2),
        Type::Int | Type::Float | Type::Date => validate_width(ty, bytes, 4),
        Type::BigInt | Type::Double | Type::Timestamp => validate_width(ty, bytes, 8),
        Type::Uuid => validate_width(ty, bytes, 16),
        Type::Time => validate_time(bytes),
        Type::TimeUuid => validate_timeuuid(bytes),
        Type::VarInt => validate_shortest(ty, bytes),
        Type::Decimal => validate_decimal(bytes),
        Type::Duration => decode_duration(bytes).map(drop),
        Type::Inet => validate_inet(bytes),
        Type::Counter => validate_width(ty, bytes, 8),
        _ => composite::validate_composite(ty, bytes),
    }
}

fn validate_width(ty: &Type, bytes: &[u8], width: usize) -> Result<()> {
    if bytes.len() != width {
        return Err(Error::invalid(ty.word(), format!("{} bytes given; it has {width}", bytes.len())));
    }
    Ok(())
}

fn validate_ascii(bytes: &[u8]) -> Result<()> {
    match bytes.iter().position(|byte| !byte.is_ascii()) {
        None => Ok(()),
        Some(at) => Err(Error::invalid(
            "ascii",
            format!("byte {at} is 0x{:02x}; only 0x00 to 0x7f are ASCII, use text for others", bytes[at]),
        )),
    }
}

fn validate_text(bytes: &[u8]) -> Result<()> {
    match std::str::from_utf8(bytes) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::invalid(
            "text",
            format!("not UTF-8 from byte {} on; use blob for arbitrary bytes", error.valid_up_to()),
        )),
    }
}

fn validate_boolean(bytes: &[u8]) -> Result<()> {
    validate_width(&Type::Boolean, bytes, 1)?;
    if bytes[0] > 1 {
        return Err(Error::invalid("boolean", format!("0x{:02x} given; false is 0x00, true is 0x01", bytes[0])));
    }
    Ok(())
}

fn validate_time(bytes: &[u8]) -> Result<()> {
    validate_width(&Type::Time, bytes, 8)?;
    let nanos = signed(bytes);
    if !(0..DAY_NANOS).contains(&nanos) {
        return Err(Error::invalid("time", format!("{nanos} ns given; a day has 0 to {} ns", DAY_NANOS - 1)));
    }
    Ok(())
}

fn validate_timeuuid(bytes: &[u8]) -> Result<()> {
    validate_width(&Type::TimeUuid, bytes, 16)?;
    let version = bytes[6] >> 4;
    if version != 1 {
        return Err(Error::invalid(
            "timeuuid",
            format!("a UUID of version {version} given; only version 1 has a time"),
        ));
    }
    Ok(())
}

fn validate_inet(bytes: &[u8]) -> Result<()> {
    if !matches!(bytes.len(), 4 | 16) {
        return Err(Error::invalid(
            "inet",
            format!("{} bytes given; an IPv4 address has 4, an IPv6 address 16", bytes.len()),
        ));
    }
    Ok(())
}

fn validate_decimal(bytes: &[u8]) -> Result<()> {
    if bytes.len() < 5 {
        return Err(Error::invalid(
            "decimal",
            format!("{} bytes given; it has 4 of scale and at least 1 of digits", bytes.len()),
        ));
    }
    validate_shortest(&Type::Decimal, &bytes[4..])
}

fn validate_shortest(ty: &Type, bytes: &[u8]) -> Result<()> {
    match bytes {
        [0x00, second, ..] if *second < 0x80 => {}
        [0xff, second, ..] if *second >= 0x80 => {}
        _ => return Ok(()),
    }
    Err(Error::invalid(
        ty.word(),
        format!("the first of {} bytes of digits is superfluous; the shortest two's complement is needed", bytes.len()),
    ))
}

fn decode_duration(bytes: &[u8]) -> Result<Duration> {
    Duration::decode(bytes).map_err(|reason| Error::invalid("duration", reason))
}

fn is_integer(ty: &Type) -> bool {
    matches!(
        ty,
        Type::TinyInt
            | Type::SmallInt
            | Type::Int
            | Type::BigInt
            | Type::Date
            | Type::Time
            | Type::Timestamp
            | Type::Counter
    )
}

fn integer_bytes(value: i64, ty: &Type) -> Result<Bytes> {
    let bytes = match ty {
        Type::TinyInt => i8::try_from(value).map(|value| owned(value.to_be_bytes())),
        Type::SmallInt => i16::try_from(value).map(|value| owned(value.to_be_bytes())),
        Type::Int => i32::try_from(value).map(|value| owned(value.to_be_bytes())),
        Type::Date => u32::try_from(value.saturating_add(DATE_EPOCH)).map(|days| owned(days.to_be_bytes())),
        _ => Ok(owned(value.to_be_bytes())),
    };
    bytes.map_err(|_| {
        let bits = match ty {
            Type::TinyInt => 7,
            Type::SmallInt => 15,
            _ => 31,
        };
        let limit = 1i64 << bits;
        Error::invalid(ty.word(), format!("{value} is out of range; it holds {} to {}", -limit, limit - 1))
    })
}

fn owned<const N: usize>(bytes: [u8; N]) -> Bytes {
    Bytes::copy_from_slice(&bytes)
}

/// The first `N` bytes of a value whose width was checked.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

/// A big-endian two's complement number of 1 to 8 bytes.
fn signed(bytes: &[u8]) -> i64 {
    let sign = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
    bytes.iter().fold(sign, |value, &byte| value << 8 | i64::from(byte))
}

#[cfg(test)]
mod tests;
