//! Values: the wire's typed forms and CQL bytes by the type of a column.
//!
//! Texts, blobs and raw bytes keep their buffer in both directions; only the small fixed-size types are built anew.

use bytes::Bytes;
use num_bigint::BigInt;
use trefoil::model::value::{self, assembled, normalised, validate};
use trefoil::model::{Type, Value as ModelValue};

use super::Result;
use crate::VALUE_BYTES_MAX;
use crate::v1::value::{Decimal, Duration, Entries, Items, Kind, Null};
use crate::v1::{InvalidDetail, Value, ValueForm};

/// The CQL bytes of a value of a column of type `ty`; `None` for null.
pub fn to_bytes(value: Value, ty: &Type) -> Result<Option<Bytes>> {
    let Some(kind) = value.kind else {
        return Err(InvalidDetail::new("the value is empty; null is written as `null`"));
    };
    if matches!(kind, Kind::Null(_)) {
        return Ok(None);
    }
    let bytes = match carried(kind, ty)? {
        Carried::Bytes(bytes) => normalised(ty, bytes).map_err(|error| InvalidDetail::from_core(&error))?,
        Carried::Parts(parts) => assembled(ty, parts).map_err(|error| InvalidDetail::from_core(&error))?,
        Carried::Model(value) => value.encode(ty).map_err(|error| InvalidDetail::from_core(&error))?,
    };
    if bytes.len() > VALUE_BYTES_MAX {
        return Err(InvalidDetail::new(format!("{} bytes, at most {VALUE_BYTES_MAX} are possible", bytes.len())));
    }
    Ok(Some(bytes))
}

/// A value as it came: already CQL bytes (to be validated), the CQL bytes of its parts, or to be encoded by the core.
enum Carried {
    Bytes(Bytes),
    Parts(Vec<Option<Bytes>>),
    Model(ModelValue),
}

fn carried(kind: Kind, ty: &Type) -> Result<Carried> {
    let wrong = |form: &str| Err(InvalidDetail::new(format!("is of type {}, the value is in the form `{form}`", ty)));
    let sized = |form: &str, bytes: Bytes| {
        if bytes.is_empty() {
            return Err(InvalidDetail::new(format!("an empty `{form}`; empty values are written as `raw`")));
        }
        Ok(Carried::Bytes(bytes))
    };
    match (kind, ty) {
        (Kind::Raw(bytes), _) | (Kind::Blob(bytes), Type::Blob) => Ok(Carried::Bytes(bytes)),
        (Kind::Text(text), Type::Ascii | Type::Text) => Ok(Carried::Bytes(text.into())),
        (Kind::Uuid(bytes), Type::Uuid | Type::TimeUuid) => sized("uuid", bytes),
        (Kind::Inet(bytes), Type::Inet) => sized("inet", bytes),
        (Kind::Varint(bytes), Type::VarInt) => sized("varint", bytes),
        (Kind::Boolean(value), Type::Boolean) => Ok(Carried::Model(ModelValue::Boolean(value))),
        (Kind::Float(value), Type::Float) => Ok(Carried::Model(ModelValue::Float(value))),
        (Kind::Double(value), Type::Double) => Ok(Carried::Model(ModelValue::Double(value))),
        (Kind::Integer(value), ty) if is_integer(ty) => Ok(Carried::Model(ModelValue::Integer(value))),
        (Kind::Decimal(Decimal { scale, unscaled }), Type::Decimal) => {
            let Carried::Bytes(digits) = sized("decimal", unscaled)? else { return wrong("decimal") };
            validate(&Type::VarInt, &digits).map_err(|error| InvalidDetail::from_core(&error))?;
            Ok(Carried::Bytes([&scale.to_be_bytes()[..], &digits].concat().into()))
        }
        (Kind::Duration(Duration { months, days, nanos }), Type::Duration) => {
            Ok(Carried::Model(ModelValue::Duration { months, days, nanos }))
        }
        (Kind::List(items), Type::List { .. } | Type::Vector { .. })
        | (Kind::Set(items), Type::Set { .. })
        | (Kind::Tuple(items), Type::Tuple(_) | Type::User { .. } | Type::Vector { .. }) => parts(items.items, ty),
        (Kind::Map(Entries { keys, values }), Type::Map { .. }) => {
            if keys.len() != values.len() {
                return Err(InvalidDetail::new(format!("a map of {} keys and {} values", keys.len(), values.len())));
            }
            parts(keys.into_iter().zip(values).flat_map(|(key, value)| [key, value]), ty)
        }
        (kind, _) => wrong(form_name(&kind)),
    }
}

/// The CQL bytes of the parts of a value of `ty`. No deeper than the type is.
fn parts(values: impl IntoIterator<Item = Value>, ty: &Type) -> Result<Carried> {
    let one = |(at, value): (usize, Value)| match ty.part(at) {
        Some(part) => to_bytes(value, part).map_err(|invalid| {
            let reason = format!("value {} in it: {}", at + 1, invalid.reason);
            InvalidDetail { reason, ..invalid }
        }),
        None => Err(InvalidDetail::new(format!("more than {at} values in a {ty}"))),
    };
    Ok(Carried::Parts(values.into_iter().enumerate().map(one).collect::<Result<_>>()?))
}

fn is_integer(ty: &Type) -> bool {
    use Type::{BigInt, Counter, Date, Int, SmallInt, Time, Timestamp, TinyInt};
    matches!(ty, TinyInt | SmallInt | Int | BigInt | Date | Time | Timestamp | Counter)
}

fn form_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Null(_) => "null",
        Kind::Boolean(_) => "boolean",
        Kind::Integer(_) => "integer",
        Kind::Double(_) => "double",
        Kind::Float(_) => "float",
        Kind::Text(_) => "text",
        Kind::Blob(_) => "blob",
        Kind::Uuid(_) => "uuid",
        Kind::Inet(_) => "inet",
        Kind::Varint(_) => "varint",
        Kind::Decimal(_) => "decimal",
        Kind::Duration(_) => "duration",
        Kind::List(_) => "list",
        Kind::Set(_) => "set",
        Kind::Map(_) => "map",
        Kind::Tuple(_) => "tuple",
        Kind::Raw(_) => "raw",
    }
}

/// Null, as a value.
pub fn null() -> Value {
    Value { kind: Some(Kind::Null(Null {})) }
}

/// CQL bytes, as a value.
pub fn raw(bytes: Bytes) -> Value {
    Value { kind: Some(Kind::Raw(bytes)) }
}

/// The value of stored CQL bytes, in the form asked for. Stored bytes that are no value of `ty` (which validation on the
/// way in rules out) are answered as `raw`, so that a reader sees what there is.
pub fn from_bytes(bytes: Bytes, ty: &Type, form: ValueForm) -> Value {
    match form {
        ValueForm::Raw => raw(bytes),
        ValueForm::Typed => Value { kind: Some(typed(&bytes, ty).unwrap_or(Kind::Raw(bytes))) },
    }
}

fn typed(bytes: &Bytes, ty: &Type) -> Option<Kind> {
    if *ty == Type::Blob {
        return Some(Kind::Blob(bytes.clone()));
    }
    if !ty.is_scalar() {
        return typed_parts(bytes, ty);
    }
    ModelValue::decode(ty, bytes).ok().flatten().map(|value| kind_of(value, bytes))
}

fn typed_parts(bytes: &Bytes, ty: &Type) -> Option<Kind> {
    validate(ty, bytes).ok()?;
    let value = |(at, part): (usize, Option<Bytes>)| match part {
        Some(part) => from_bytes(part, ty.part(at)?, ValueForm::Typed).into(),
        None => Some(null()),
    };
    let mut values = value::parts(ty, bytes).ok()?.into_iter().enumerate().map(value).collect::<Option<Vec<_>>>()?;
    Some(match ty {
        Type::List { .. } => Kind::List(Items { items: values }),
        Type::Set { .. } => Kind::Set(Items { items: values }),
        Type::Map { .. } => {
            let mut entries = Entries::default();
            let mut values = values.into_iter();
            while let (Some(key), Some(value)) = (values.next(), values.next()) {
                entries.keys.push(key);
                entries.values.push(value);
            }
            Kind::Map(entries)
        }
        Type::User { definition, .. } => {
            values.resize(definition.fields.len(), null());
            Kind::Tuple(Items { items: values })
        }
        _ => Kind::Tuple(Items { items: values }),
    })
}

/// `bytes` are those of the value.
fn kind_of(value: ModelValue, bytes: &Bytes) -> Kind {
    match value {
        ModelValue::Boolean(value) => Kind::Boolean(value),
        ModelValue::Integer(value) => Kind::Integer(value),
        ModelValue::Float(value) => Kind::Float(value),
        ModelValue::Double(value) => Kind::Double(value),
        ModelValue::Text(text) => Kind::Text(text),
        ModelValue::Blob(bytes) => Kind::Blob(bytes),
        ModelValue::Uuid(_) => Kind::Uuid(bytes.clone()),
        ModelValue::Inet(_) => Kind::Inet(bytes.clone()),
        ModelValue::VarInt(_) => Kind::Varint(bytes.clone()),
        ModelValue::Decimal { scale, unscaled } => {
            Kind::Decimal(Decimal { scale, unscaled: unscaled.to_signed_bytes_be().into() })
        }
        ModelValue::Duration { months, days, nanos } => Kind::Duration(Duration { months, days, nanos }),
        ModelValue::List(values) => Kind::List(items(values)),
        ModelValue::Set(values) => Kind::Set(items(values)),
        ModelValue::Map(pairs) => {
            let (keys, values) = pairs.into_iter().map(|(key, value)| (from_model(key), from_model(value))).unzip();
            Kind::Map(Entries { keys, values })
        }
        ModelValue::Tuple(values) => {
            let items = values.into_iter().map(|value| value.map_or_else(null, from_model)).collect();
            Kind::Tuple(Items { items })
        }
    }
}

fn items(values: Vec<ModelValue>) -> Items {
    Items { items: values.into_iter().map(from_model).collect() }
}

/// A value of the model in its typed form; its column's type is checked by whoever receives it.
pub fn from_model(value: ModelValue) -> Value {
    let bytes = match &value {
        ModelValue::Uuid(uuid) => Bytes::copy_from_slice(uuid.as_bytes()),
        ModelValue::Inet(std::net::IpAddr::V4(address)) => Bytes::copy_from_slice(&address.octets()),
        ModelValue::Inet(std::net::IpAddr::V6(address)) => Bytes::copy_from_slice(&address.octets()),
        ModelValue::VarInt(number) => BigInt::to_signed_bytes_be(number).into(),
        _ => Bytes::new(),
    };
    Value { kind: Some(kind_of(value, &bytes)) }
}
