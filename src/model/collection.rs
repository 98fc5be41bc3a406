//! A column of many cells as one value: taken apart into elements where it is written, put together where it is read.
//!
//! The one value is that of the frozen type, in CQL bytes ([`super::value::parts`]); where its elements lie is said in
//! [`super::complex`].

use bytes::Bytes;

use super::complex::Complex;
use super::list::compare_list_paths;
use super::types::Type;
use super::value::{assembled, parts};
use crate::{Corrupt, Error, Result};

/// The elements of a value of `ty`, a type that is not frozen: path and value of each. A list's get their paths from
/// `list_path`; null fields of a user-defined type are no elements.
pub fn take_apart(
    ty: &Type,
    value: &Bytes,
    mut list_path: impl FnMut() -> Result<Bytes>,
) -> Result<Vec<(Bytes, Bytes)>> {
    let parts = parts(ty, value)?;
    let null = || Error::invalid(ty.to_string(), "null is no element");
    let whole = |part: Option<Bytes>| part.ok_or_else(null);
    match ty {
        Type::List { .. } => parts.into_iter().map(|part| Ok((list_path()?, whole(part)?))).collect(),
        Type::Set { .. } => parts.into_iter().map(|part| Ok((whole(part)?, Bytes::new()))).collect(),
        Type::Map { .. } => {
            let pairs = parts.chunks_exact(2);
            pairs.map(|pair| Ok((whole(pair[0].clone())?, whole(pair[1].clone())?))).collect()
        }
        Type::User { .. } => {
            let fields = parts.into_iter().enumerate();
            Ok(fields.filter_map(|(position, field)| Some((field_path(position), field?))).collect())
        }
        _ => Err(Error::invalid(ty.to_string(), "its values have no elements of their own")),
    }
}

/// The path of a user-defined type's field.
pub fn field_path(position: usize) -> Bytes {
    // A type has at most a thousand fields.
    Bytes::copy_from_slice(&(position as u16).to_be_bytes())
}

/// The value of a column of type `ty` at `now_s`: its elements in the order of the type. `None` if no element has a value
/// then: a collection without elements is null. Elements that do not make a value of the type are [`Error::Corrupt`].
pub fn put_together(ty: &Type, complex: &Complex, now_s: i64) -> Result<Option<Bytes>> {
    let mut elements: Vec<(&Bytes, &Bytes)> = complex.values_at(now_s).collect();
    if elements.is_empty() {
        return Ok(None);
    }
    let parts = match ty {
        Type::List { .. } => {
            elements.sort_by(|(a, _), (b, _)| compare_list_paths(a, b));
            elements.into_iter().map(|(_, value)| Some(value.clone())).collect()
        }
        Type::Set { .. } => elements.into_iter().map(|(path, _)| Some(path.clone())).collect(),
        Type::Map { .. } => {
            elements.into_iter().flat_map(|(key, value)| [Some(key.clone()), Some(value.clone())]).collect()
        }
        Type::User { definition, .. } => {
            let mut fields = vec![None; definition.fields.len()];
            for (path, value) in elements {
                let position = path.as_ref().try_into().map(|position| usize::from(u16::from_be_bytes(position)));
                // A field that this node's definition does not have yet is shown once it has.
                if let Some(field) = position.ok().and_then(|position| fields.get_mut(position)) {
                    *field = Some(value.clone());
                }
            }
            fields
        }
        _ => return Err(Error::invalid(ty.to_string(), "its values have no elements of their own")),
    };
    let corrupt = |error: Error| Corrupt::new("collection", error.to_string());
    Ok(Some(assembled(ty, parts).map_err(corrupt)?))
}

#[cfg(test)]
mod tests;
