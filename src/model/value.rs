//! Values with their types: the typed face of CQL wire bytes.

use bytes::Bytes;

use super::types::Type;
use crate::Result;

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
    Uuid(uuid::Uuid),
    /// inet
    Inet(std::net::IpAddr),
    /// varint
    VarInt(num_bigint::BigInt),
    /// decimal: `unscaled * 10^-scale`
    Decimal {
        /// Digits after the point; may be negative.
        scale: i32,
        /// The digits.
        unscaled: num_bigint::BigInt,
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
}

impl Value {
    /// The CQL bytes of this value as a `ty`, or why it is not one.
    pub fn encode(&self, _ty: Type) -> Result<Bytes> {
        todo!()
    }

    /// The value of CQL bytes of a `ty`. Empty bytes are legal in storage for every type; for all but ascii, text and
    /// blob they have no typed value: `Ok(None)`.
    pub fn decode(_ty: Type, _bytes: &Bytes) -> Result<Option<Value>> {
        todo!()
    }
}

/// Whether `bytes` are a canonical value of `ty`, or why not. Empty bytes are legal for every type.
pub fn validate(_ty: Type, _bytes: &[u8]) -> Result<()> {
    todo!()
}
