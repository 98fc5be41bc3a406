//! Types of columns.
//!
//! ```text
//! scalar, counter   code u8
//! list, set         code u8 | frozen u8 | element
//! map               code u8 | frozen u8 | key | value
//! tuple             code u8 | count varint | elements
//! user-defined      code u8 | frozen u8 | keyspace text | name text | count varint | (name text | type) ...
//! vector            code u8 | element | dimension varint
//! ```
//!
//! A file says all fields of a user-defined type, so that it can be read by itself. Where the state of the cluster is at
//! hand a type is only named: the count is 0.

use std::sync::Arc;

use super::varint::{Reader, put_bytes, put_varint};
use crate::Result;
use crate::model::types::TYPE_DEPTH_MAX;
use crate::model::{Field, Type, UserType};

/// What is said of user-defined types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserTypes {
    /// Their names.
    Named,
    /// Their names and fields.
    Whole,
}

/// Appends a type.
pub fn put_type(out: &mut Vec<u8>, ty: &Type, users: UserTypes) {
    out.push(ty.code());
    match ty {
        Type::List { frozen, .. } | Type::Set { frozen, .. } | Type::Map { frozen, .. } => out.push(u8::from(*frozen)),
        Type::Tuple(elements) => put_varint(out, elements.len() as u64),
        Type::User { definition, frozen } => {
            out.push(u8::from(*frozen));
            put_bytes(out, definition.keyspace.as_bytes());
            put_bytes(out, definition.name.as_bytes());
            match users {
                UserTypes::Named => put_varint(out, 0),
                UserTypes::Whole => put_fields(out, &definition.fields, users),
            }
            return;
        }
        _ => {}
    }
    for part in ty.parts() {
        put_type(out, part, users);
    }
    if let Type::Vector { dimension, .. } = ty {
        put_varint(out, u64::from(*dimension));
    }
}

/// Appends the fields of a user-defined type; what is said of the types inside is `users`.
pub fn put_fields(out: &mut Vec<u8>, fields: &[Field], users: UserTypes) {
    put_varint(out, fields.len() as u64);
    for Field { name, ty } in fields {
        put_bytes(out, name.as_bytes());
        put_type(out, ty, users);
    }
}

/// Reads what [`put_type`] appended, and nothing that cannot be a type.
pub fn take_type(reader: &mut Reader, users: UserTypes) -> Result<Type> {
    let ty = take_at(reader, users, 1)?;
    match ty.refused() {
        None => Ok(ty),
        Some(reason) => Err(reader.corrupt(reason).into()),
    }
}

/// Reads what [`put_fields`] appended.
pub fn take_fields(reader: &mut Reader, users: UserTypes) -> Result<Vec<Field>> {
    take_fields_at(reader, users, 1)
}

fn take_at(reader: &mut Reader, users: UserTypes, depth: usize) -> Result<Type> {
    if depth > TYPE_DEPTH_MAX {
        return Err(reader.corrupt(format!("types lie in each other more than {TYPE_DEPTH_MAX} deep")).into());
    }
    let code = reader.u8()?;
    let inner = |reader: &mut Reader| take_at(reader, users, depth + 1);
    Ok(match code {
        32 => Type::List { frozen: flag(reader)?, element: Arc::new(inner(reader)?) },
        33 => Type::Set { frozen: flag(reader)?, element: Arc::new(inner(reader)?) },
        34 => Type::Map { frozen: flag(reader)?, key: Arc::new(inner(reader)?), value: Arc::new(inner(reader)?) },
        35 => {
            let count = reader.count(1)?;
            Type::Tuple((0..count).map(|_| inner(reader)).collect::<Result<_>>()?)
        }
        36 => Type::User { frozen: flag(reader)?, definition: Arc::new(take_user_type(reader, users, depth)?) },
        37 => {
            let element = Arc::new(inner(reader)?);
            let dimension = reader.varint()?;
            let too_large = || reader.corrupt(format!("a vector of {dimension} dimensions"));
            Type::Vector { element, dimension: u16::try_from(dimension).map_err(|_| too_large())? }
        }
        code => Type::scalar(code).ok_or_else(|| reader.corrupt(format!("no type has number {code}")))?,
    })
}

fn take_user_type(reader: &mut Reader, users: UserTypes, depth: usize) -> Result<UserType> {
    let (keyspace, name) = (reader.text()?, reader.text()?);
    let fields = match users {
        UserTypes::Named if reader.varint()? == 0 => Vec::new(),
        UserTypes::Named => {
            return Err(reader.corrupt(format!("fields of {keyspace}.{name} where it is named")).into());
        }
        UserTypes::Whole => take_fields_at(reader, users, depth + 1)?,
    };
    Ok(UserType { keyspace, name, fields })
}

fn take_fields_at(reader: &mut Reader, users: UserTypes, depth: usize) -> Result<Vec<Field>> {
    let count = reader.count(2)?;
    if count == 0 {
        return Err(reader.corrupt("a type without fields").into());
    }
    (0..count).map(|_| Ok(Field { name: reader.text()?, ty: take_at(reader, users, depth)? })).collect()
}

fn flag(reader: &mut Reader) -> Result<bool> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(reader.corrupt(format!("0 or 1 expected, {other} found")).into()),
    }
}
