//! The types of columns.

use std::fmt;
use std::sync::Arc;

use super::usertype::{FIELDS_MAX, Field, UserType, UserTypes};

/// How deep types may lie in each other; fields of user-defined types count.
pub const TYPE_DEPTH_MAX: usize = 8;
/// How many types a type may hold, itself and those of the fields of user-defined types included.
pub const TYPE_PARTS_MAX: usize = 4_000;
/// Most elements of a vector.
pub const VECTOR_DIMENSION_MAX: u16 = 8_192;

/// A type of CQL. Cheap to clone. The codes stand in files and in the protocol and are never reused ([`Type::code`]).
///
/// Lists, sets, maps and user-defined types that are not frozen are stored as cells of their own, one per element; every
/// other value is one cell. What lies inside of another type is always frozen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// 7-bit text.
    Ascii,
    /// UTF-8 text; CQL also calls it varchar.
    Text,
    /// Any bytes.
    Blob,
    /// One byte, 0 or 1.
    Boolean,
    /// Signed, 1 byte.
    TinyInt,
    /// Signed, 2 bytes big-endian.
    SmallInt,
    /// Signed, 4 bytes big-endian.
    Int,
    /// Signed, 8 bytes big-endian.
    BigInt,
    /// Any integer: two's complement big-endian, shortest form.
    VarInt,
    /// `unscaled * 10^-scale`: scale as 4 bytes big-endian, then the unscaled varint.
    Decimal,
    /// IEEE 754, 4 bytes big-endian.
    Float,
    /// IEEE 754, 8 bytes big-endian.
    Double,
    /// Days: 4 bytes big-endian unsigned, 2^31 is 1970-01-01.
    Date,
    /// Nanoseconds since midnight, 8 bytes big-endian, 0..86,400,000,000,000.
    Time,
    /// Milliseconds since 1970, 8 bytes big-endian signed.
    Timestamp,
    /// Months, days, nanoseconds: three zigzag vints as in CQL's protocol, all of one sign.
    Duration,
    /// 16 bytes.
    Uuid,
    /// 16 bytes, version 1.
    TimeUuid,
    /// 4 or 16 bytes.
    Inet,
    /// A sum of what was added: signed, 8 bytes big-endian. Not inside of other types.
    Counter,
    /// Values in an order of their own, as often as they were given.
    List {
        /// What each is.
        element: Arc<Type>,
        /// Whether the whole is one value.
        frozen: bool,
    },
    /// Values in ascending order, each once.
    Set {
        /// What each is; it has an order.
        element: Arc<Type>,
        /// Whether the whole is one value.
        frozen: bool,
    },
    /// Pairs in ascending order of their keys, each key once.
    Map {
        /// What each key is; it has an order.
        key: Arc<Type>,
        /// What stands at each key.
        value: Arc<Type>,
        /// Whether the whole is one value.
        frozen: bool,
    },
    /// A value or null for each of these types.
    Tuple(Arc<[Type]>),
    /// A value or null for each field.
    User {
        /// The definition.
        definition: Arc<UserType>,
        /// Whether the whole is one value.
        frozen: bool,
    },
    /// As many values as it has dimensions.
    Vector {
        /// What each is.
        element: Arc<Type>,
        /// How many there are.
        dimension: u16,
    },
}

/// Why a type cannot be a column's, in a place where a key or a value is needed.
const NO_ORDER: &str = "durations have no order";

impl Type {
    /// Every scalar type but the counter, by ascending code.
    pub const SCALARS: [Type; 19] = [
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

    /// The number that stands for the kind of type in files and in the protocol.
    pub fn code(&self) -> u8 {
        match self {
            Type::Ascii => 1,
            Type::Text => 2,
            Type::Blob => 3,
            Type::Boolean => 4,
            Type::TinyInt => 5,
            Type::SmallInt => 6,
            Type::Int => 7,
            Type::BigInt => 8,
            Type::VarInt => 9,
            Type::Decimal => 10,
            Type::Float => 11,
            Type::Double => 12,
            Type::Date => 13,
            Type::Time => 14,
            Type::Timestamp => 15,
            Type::Duration => 16,
            Type::Uuid => 17,
            Type::TimeUuid => 18,
            Type::Inet => 19,
            Type::Counter => 20,
            Type::List { .. } => 32,
            Type::Set { .. } => 33,
            Type::Map { .. } => 34,
            Type::Tuple(_) => 35,
            Type::User { .. } => 36,
            Type::Vector { .. } => 37,
        }
    }

    /// The scalar type of a code, if there is one; counters are one.
    pub fn scalar(code: u8) -> Option<Type> {
        match code {
            20 => Some(Type::Counter),
            code => Type::SCALARS.get(usize::from(code).checked_sub(1)?).cloned(),
        }
    }

    /// The CQL word for its kind; the name of a user-defined type. [`fmt::Display`] says the whole type.
    pub fn word(&self) -> &str {
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
            Type::Counter => "counter",
            Type::List { .. } => "list",
            Type::Set { .. } => "set",
            Type::Map { .. } => "map",
            Type::Tuple(_) => "tuple",
            Type::User { definition, .. } => &definition.name,
            Type::Vector { .. } => "vector",
        }
    }

    /// The scalar type of a CQL word in lower case; `varchar` is text.
    pub fn from_word(word: &str) -> Option<Type> {
        match word {
            "varchar" => Some(Type::Text),
            "counter" => Some(Type::Counter),
            _ => Type::SCALARS.into_iter().find(|ty| ty.word() == word),
        }
    }

    /// Whether a column of this type has a cell for each element: a list, set, map or user-defined type that is not
    /// frozen.
    pub fn is_complex(&self) -> bool {
        match self {
            Type::List { frozen, .. }
            | Type::Set { frozen, .. }
            | Type::Map { frozen, .. }
            | Type::User { frozen, .. } => !frozen,
            _ => false,
        }
    }

    /// The same type, frozen with everything that lies inside of it.
    pub fn freeze(&self) -> Type {
        let inside = |ty: &Arc<Type>| Arc::new(ty.freeze());
        match self {
            Type::List { element, .. } => Type::List { element: inside(element), frozen: true },
            Type::Set { element, .. } => Type::Set { element: inside(element), frozen: true },
            Type::Map { key, value, .. } => Type::Map { key: inside(key), value: inside(value), frozen: true },
            Type::Tuple(elements) => Type::Tuple(elements.iter().map(Type::freeze).collect()),
            Type::User { definition, .. } => Type::User { definition: definition.clone(), frozen: true },
            Type::Vector { element, dimension } => Type::Vector { element: inside(element), dimension: *dimension },
            scalar => scalar.clone(),
        }
    }

    /// The types that it is made of; of a user-defined type those of its fields.
    pub fn parts(&self) -> Vec<&Type> {
        match self {
            Type::List { element, .. } | Type::Set { element, .. } | Type::Vector { element, .. } => vec![&**element],
            Type::Map { key, value, .. } => vec![&**key, &**value],
            Type::Tuple(elements) => elements.iter().collect(),
            Type::User { definition, .. } => definition.fields.iter().map(|Field { ty, .. }| ty).collect(),
            _ => Vec::new(),
        }
    }

    /// The type of the part of a value at this place, see [`super::value::parts`]; `None` where a value has no such part.
    pub fn part(&self, at: usize) -> Option<&Type> {
        match self {
            Type::List { element, .. } | Type::Set { element, .. } => Some(element),
            Type::Vector { element, dimension } => (at < usize::from(*dimension)).then_some(&**element),
            Type::Map { key, value, .. } => Some(if at.is_multiple_of(2) { key } else { value }),
            Type::Tuple(elements) => elements.get(at),
            Type::User { definition, .. } => definition.fields.get(at).map(|field| &field.ty),
            _ => None,
        }
    }

    /// Whether its values are made of no others.
    pub fn is_scalar(&self) -> bool {
        self.code() < 32
    }

    /// Whether no bytes at all are a value like any other: an empty text, a user-defined type without a field that is
    /// not null. For other scalar types empty bytes are legal in storage, but stand for nothing that can be said.
    pub fn has_empty_value(&self) -> bool {
        matches!(self, Type::Ascii | Type::Text | Type::Blob | Type::User { .. })
    }

    /// Whether it is, or holds, one for which `is` says so.
    pub fn any(&self, is: &mut impl FnMut(&Type) -> bool) -> bool {
        is(self) || self.parts().into_iter().any(|part| part.any(is))
    }

    /// The same type with the fields of each user-defined type as they are `known`; whether it knew them before does not
    /// matter. An error names the type that is not there.
    pub fn resolved(&self, known: &UserTypes) -> Result<Type, UnknownType> {
        let inside = |ty: &Arc<Type>| ty.resolved(known).map(Arc::new);
        Ok(match self {
            Type::List { element, frozen } => Type::List { element: inside(element)?, frozen: *frozen },
            Type::Set { element, frozen } => Type::Set { element: inside(element)?, frozen: *frozen },
            Type::Map { key, value, frozen } => Type::Map { key: inside(key)?, value: inside(value)?, frozen: *frozen },
            Type::Tuple(elements) => {
                Type::Tuple(elements.iter().map(|element| element.resolved(known)).collect::<Result<_, _>>()?)
            }
            Type::User { definition: named, frozen } => {
                let name = (named.keyspace.clone(), named.name.clone());
                match known.get(&name) {
                    Some(definition) => Type::User { definition: definition.clone(), frozen: *frozen },
                    None => return Err(UnknownType { keyspace: name.0, name: name.1 }),
                }
            }
            Type::Vector { element, dimension } => Type::Vector { element: inside(element)?, dimension: *dimension },
            scalar => scalar.clone(),
        })
    }

    /// Why there can be no such type, if there cannot: something inside is not frozen, is a counter, or would have to be
    /// ordered and has no order; or it is too deep or too large. Fields of user-defined types count as far as they are
    /// known.
    pub fn refused(&self) -> Option<String> {
        let mut parts = 0;
        self.refused_at(1, &mut parts)
    }

    fn refused_at(&self, depth: usize, parts: &mut usize) -> Option<String> {
        *parts += 1;
        if depth > TYPE_DEPTH_MAX {
            return Some(format!("types lie in each other more than {TYPE_DEPTH_MAX} deep"));
        }
        if *parts > TYPE_PARTS_MAX {
            return Some(format!("it is made of more than {TYPE_PARTS_MAX} types"));
        }
        match self {
            Type::Set { element: ordered, .. } | Type::Map { key: ordered, .. } if ordered.has_duration() => {
                return Some(format!("the elements of {self} must have an order; {NO_ORDER}"));
            }
            Type::Vector { dimension, .. } if !(1..=VECTOR_DIMENSION_MAX).contains(dimension) => {
                return Some(format!("a vector has 1 to {VECTOR_DIMENSION_MAX} dimensions, not {dimension}"));
            }
            Type::Tuple(elements) if !(1..=FIELDS_MAX).contains(&elements.len()) => {
                return Some(format!("a tuple has 1 to {FIELDS_MAX} elements, not {}", elements.len()));
            }
            Type::User { definition, .. } if definition.fields.len() > FIELDS_MAX => {
                return Some(format!("a type has at most {FIELDS_MAX} fields, not {}", definition.fields.len()));
            }
            _ => {}
        }
        self.parts().into_iter().find_map(|part| part.refused_inside().or_else(|| part.refused_at(depth + 1, parts)))
    }

    fn refused_inside(&self) -> Option<String> {
        if self.is_complex() {
            return Some(format!("what lies inside of another type must be frozen: frozen<{self}>"));
        }
        (*self == Type::Counter).then(|| "counters cannot lie inside of other types".to_owned())
    }

    fn has_duration(&self) -> bool {
        self.any(&mut |ty| *ty == Type::Duration)
    }

    /// Why a column of this type cannot be part of a primary key, if it cannot.
    pub fn refused_in_key(&self) -> Option<&'static str> {
        match self {
            Type::Decimal => Some("decimals that compare equal (1.0 and 1.00) have different bytes"),
            Type::Duration => Some(NO_ORDER),
            Type::Counter => Some("counters change"),
            complex if complex.is_complex() => Some("only a frozen one is a single value"),
            other => other.parts().into_iter().find_map(Type::refused_in_key),
        }
    }
}

/// A user-defined type that is named and not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no type {keyspace}.{name}")]
pub struct UnknownType {
    /// The keyspace.
    pub keyspace: String,
    /// The name.
    pub name: String,
}

/// In CQL's words, with `frozen` where it is not understood. Names are not quoted.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::List { frozen: true, .. }
            | Type::Set { frozen: true, .. }
            | Type::Map { frozen: true, .. }
            | Type::User { frozen: true, .. } => {
                f.write_str("frozen<")?;
                self.fmt_bare(f)?;
                f.write_str(">")
            }
            _ => self.fmt_bare(f),
        }
    }
}

impl Type {
    fn fmt_bare(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Type::List { element, .. } | Type::Set { element, .. } => write!(f, "<{element}>"),
            Type::Map { key, value, .. } => write!(f, "<{key}, {value}>"),
            Type::Tuple(elements) => {
                for (at, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if at == 0 { "<" } else { ", " })?;
                }
                f.write_str(">")
            }
            Type::Vector { element, dimension } => write!(f, "<{element}, {dimension}>"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
