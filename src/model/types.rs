//! The types of columns.

/// A scalar type of CQL. The discriminants stand in files and in the protocol and are never reused.
///
/// Reserved for later: 20 counter, 32 list, 33 set, 34 map, 35 tuple, 36 user-defined, 37 vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Type {
    /// 7-bit text.
    Ascii = 1,
    /// UTF-8 text; CQL also calls it varchar.
    Text = 2,
    /// Any bytes.
    Blob = 3,
    /// One byte, 0 or 1.
    Boolean = 4,
    /// Signed, 1 byte.
    TinyInt = 5,
    /// Signed, 2 bytes big-endian.
    SmallInt = 6,
    /// Signed, 4 bytes big-endian.
    Int = 7,
    /// Signed, 8 bytes big-endian.
    BigInt = 8,
    /// Any integer: two's complement big-endian, shortest form.
    VarInt = 9,
    /// `unscaled * 10^-scale`: scale as 4 bytes big-endian, then the unscaled varint.
    Decimal = 10,
    /// IEEE 754, 4 bytes big-endian.
    Float = 11,
    /// IEEE 754, 8 bytes big-endian.
    Double = 12,
    /// Days: 4 bytes big-endian unsigned, 2^31 is 1970-01-01.
    Date = 13,
    /// Nanoseconds since midnight, 8 bytes big-endian, 0..86,400,000,000,000.
    Time = 14,
    /// Milliseconds since 1970, 8 bytes big-endian signed.
    Timestamp = 15,
    /// Months, days, nanoseconds: three zigzag vints as in CQL's protocol, all of one sign.
    Duration = 16,
    /// 16 bytes.
    Uuid = 17,
    /// 16 bytes, version 1.
    TimeUuid = 18,
    /// 4 or 16 bytes.
    Inet = 19,
}

impl Type {
    /// Every type, by ascending code.
    pub const ALL: [Type; 19] = [
        Type::Ascii,
        Type::Text,
        Type::Blob,
        Type::Boolean,
        Type::TinyInt,
        Type::SmallInt,
        Type::Int,
        Type::BigInt,
        Type::VarInt,
        Type::Decimal,
        Type::Float,
        Type::Double,
        Type::Date,
        Type::Time,
        Type::Timestamp,
        Type::Duration,
        Type::Uuid,
        Type::TimeUuid,
        Type::Inet,
    ];

    /// The number that stands for the type in files and in the protocol.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The type of a code, if there is one.
    pub fn from_code(code: u8) -> Option<Type> {
        Type::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// The CQL word.
    pub fn name(self) -> &'static str {
        match self {
            Type::Ascii => "ascii",
            Type::Text => "text",
            Type::Blob => "blob",
            Type::Boolean => "boolean",
            Type::TinyInt => "tinyint",
            Type::SmallInt => "smallint",
            Type::Int => "int",
            Type::BigInt => "bigint",
            Type::VarInt => "varint",
            Type::Decimal => "decimal",
            Type::Float => "float",
            Type::Double => "double",
            Type::Date => "date",
            Type::Time => "time",
            Type::Timestamp => "timestamp",
            Type::Duration => "duration",
            Type::Uuid => "uuid",
            Type::TimeUuid => "timeuuid",
            Type::Inet => "inet",
        }
    }

    /// The type of a CQL word in lower case; `varchar` is text.
    pub fn from_name(name: &str) -> Option<Type> {
        if name == "varchar" {
            return Some(Type::Text);
        }
        Type::ALL.into_iter().find(|ty| ty.name() == name)
    }

    /// Why a column of this type cannot be part of a primary key, if it cannot.
    pub fn refused_in_key(self) -> Option<&'static str> {
        match self {
            Type::Decimal => Some("decimals that compare equal (1.0 and 1.00) have different bytes"),
            Type::Duration => Some("durations have no order"),
            _ => None,
        }
    }
}
