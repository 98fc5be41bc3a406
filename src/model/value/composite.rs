//! Values that are made of values: CQL bytes <-> the bytes of their parts.
//!
//! ```text
//! list, set     count i32 | (length i32 | element) ...                     big-endian, as all of CQL
//! map           count i32 | (length i32 | key | length i32 | value) ...
//! tuple         length i32 | element, for each; length -1 and nothing behind it: null
//! user type     the same for each field, up to the last one that is not null
//! vector        the elements, one behind the other; each behind its length (an unsigned vint) if it has no fixed one
//! ```
//!
//! One value has one form: sets and maps ascend in the order of their type, without duplicates; there are no nulls but in
//! tuples and user types; nothing inside is empty whose type has no empty value; a NaN inside is the canonical one.
//! [`normalised`] makes the one form out of what CQL would accept beside it.

use std::cmp::Ordering;

use bytes::Bytes;

use super::compare::compare;
use super::{array, validate};
use crate::model::Type;
use crate::model::duration::{put_vint, take_vint};
use crate::model::key::KEY_MAX_BYTES;
use crate::{Error, Result};

/// Before a part that is null.
const NULL_LENGTH: i32 = -1;
const CANONICAL_NAN_FLOAT: u32 = 0x7fc0_0000;
const CANONICAL_NAN_DOUBLE: u64 = 0x7ff8_0000_0000_0000;

/// Whether `bytes` are the one form of a value of `ty`, which is made of others.
pub(super) fn validate_composite(ty: &Type, bytes: &[u8]) -> Result<()> {
    let parts = split(ty, bytes)?;
    for (at, part) in parts.iter().enumerate() {
        validate_part(ty, at, *part)?;
    }
    match ty {
        Type::Set { element, .. } => ascending(ty, element, parts.iter()),
        Type::Map { key, .. } => ascending(ty, key, parts.iter().step_by(2)),
        Type::Tuple(elements) if parts.len() < elements.len() => {
            Err(refused(ty, format!("{} elements given; it has {}", parts.len(), elements.len())))
        }
        Type::User { .. } if matches!(parts.last(), Some(None)) => {
            Err(refused(ty, "its last field is null; such fields are left out"))
        }
        _ => Ok(()),
    }
}

/// The parts of a value of `ty`, in order: elements; key, value, key, value of a map; fields, `None` where they are null.
/// They share the memory of `bytes`.
pub fn parts(ty: &Type, bytes: &Bytes) -> Result<Vec<Option<Bytes>>> {
    let shared = |part: Option<&[u8]>| part.map(|part| bytes.slice_ref(part));
    Ok(split(ty, bytes)?.into_iter().map(shared).collect())
}

/// The value that is made of these parts (see [`parts`]), which are valid by their own types. Elements of sets and pairs
/// of maps come in any order, the former as often as they like; tuples and user types may end early.
pub fn assembled(ty: &Type, mut parts: Vec<Option<Bytes>>) -> Result<Bytes> {
    for (at, part) in parts.iter_mut().enumerate() {
        if let Some(part) = part {
            canonical_nan(ty.part(at), part);
        }
        validate_part(ty, at, part.as_deref())?;
    }
    match ty {
        Type::Set { element, .. } => {
            parts.sort_by(|left, right| compare_parts(element, left, right));
            parts.dedup();
        }
        Type::Map { key, .. } => parts = sorted_pairs(ty, key, &parts)?,
        Type::Vector { dimension, .. } if parts.len() != usize::from(*dimension) => {
            return Err(refused(ty, format!("{} elements given; it has {dimension}", parts.len())));
        }
        Type::Tuple(elements) => parts.resize(elements.len().max(parts.len()), None),
        Type::User { .. } => {
            let given = parts.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
            parts.truncate(given);
        }
        _ => {}
    }
    Ok(joined(ty, &parts).into())
}

/// The one form of a value that was given in one that CQL accepts: sets and maps in any order, tuples that end early,
/// fields that are null at the end.
pub fn normalised(ty: &Type, bytes: Bytes) -> Result<Bytes> {
    if ty.is_scalar() {
        validate(ty, &bytes)?;
        return Ok(bytes);
    }
    if validate(ty, &bytes).is_ok() {
        return Ok(bytes);
    }
    let mut parts = parts(ty, &bytes)?;
    for (at, part) in parts.iter_mut().enumerate() {
        if let (Some(given), Some(ty)) = (part.take(), ty.part(at)) {
            *part = Some(normalised(ty, given)?);
        }
    }
    assembled(ty, parts)
}

/// The value of parts that were one's: nothing is put in order.
pub(in crate::model) fn rejoined(ty: &Type, parts: &[Option<Bytes>]) -> Result<Bytes> {
    let bytes = Bytes::from(joined(ty, parts));
    validate(ty, &bytes)?;
    Ok(bytes)
}

fn sorted_pairs(ty: &Type, key: &Type, parts: &[Option<Bytes>]) -> Result<Vec<Option<Bytes>>> {
    if !parts.len().is_multiple_of(2) {
        return Err(refused(ty, "a key without a value"));
    }
    let mut pairs: Vec<&[Option<Bytes>]> = parts.chunks(2).collect();
    pairs.sort_by(|left, right| compare_parts(key, &left[0], &right[0]));
    if pairs.windows(2).any(|pair| pair[0][0] == pair[1][0]) {
        return Err(refused(ty, "the same key twice"));
    }
    Ok(pairs.concat())
}

fn compare_parts(ty: &Type, left: &Option<Bytes>, right: &Option<Bytes>) -> Ordering {
    compare(ty, left.as_deref().unwrap_or_default(), right.as_deref().unwrap_or_default())
}

fn ascending<'a>(ty: &Type, ordered: &Type, parts: impl Iterator<Item = &'a Option<&'a [u8]>>) -> Result<()> {
    let mut last: Option<&[u8]> = None;
    for part in parts {
        let part = part.unwrap_or_default();
        match last.map_or(Ordering::Less, |last| compare(ordered, last, part)) {
            Ordering::Less => last = Some(part),
            Ordering::Equal => return Err(refused(ty, "the same twice")),
            Ordering::Greater => return Err(refused(ty, "it is not in ascending order")),
        }
    }
    Ok(())
}

/// Whether a part may stand at this place.
fn validate_part(ty: &Type, at: usize, part: Option<&[u8]>) -> Result<()> {
    let place = |reason: String| refused(ty, format!("{} {}: {reason}", part_name(ty), at + 1));
    let Some(inner) = ty.part(at) else { return Err(refused(ty, format!("more than {at} elements"))) };
    let nullable = matches!(ty, Type::Tuple(_) | Type::User { .. });
    let Some(bytes) = part else {
        return if nullable { Ok(()) } else { Err(place("null cannot lie in collections".to_owned())) };
    };
    if bytes.is_empty() && !inner.has_empty_value() {
        return Err(place(format!("empty; the type {inner} has no empty value inside of others")));
    }
    let is_path = matches!((ty, at % 2), (Type::Set { .. }, _) | (Type::Map { .. }, 0));
    if is_path && bytes.len() > KEY_MAX_BYTES {
        return Err(place(format!("{} bytes, at most {KEY_MAX_BYTES} are possible", bytes.len())));
    }
    if is_other_nan(inner, bytes) {
        return Err(place("a NaN inside of another type has only one form".to_owned()));
    }
    validate(inner, bytes).map_err(|error| place(error.to_string()))
}

fn part_name(ty: &Type) -> &'static str {
    match ty {
        Type::Map { .. } => "key or value",
        Type::User { .. } => "field",
        _ => "element",
    }
}

fn is_other_nan(ty: &Type, bytes: &[u8]) -> bool {
    match (ty, bytes.len()) {
        (Type::Float, 4) => {
            let bits = u32::from_be_bytes(array(bytes));
            f32::from_bits(bits).is_nan() && bits != CANONICAL_NAN_FLOAT
        }
        (Type::Double, 8) => {
            let bits = u64::from_be_bytes(array(bytes));
            f64::from_bits(bits).is_nan() && bits != CANONICAL_NAN_DOUBLE
        }
        _ => false,
    }
}

fn canonical_nan(ty: Option<&Type>, bytes: &mut Bytes) {
    if let Some(ty) = ty
        && is_other_nan(ty, bytes)
    {
        *bytes = match ty {
            Type::Float => Bytes::copy_from_slice(&CANONICAL_NAN_FLOAT.to_be_bytes()),
            _ => Bytes::copy_from_slice(&CANONICAL_NAN_DOUBLE.to_be_bytes()),
        };
    }
}

/// The parts as they stand; only their lengths are checked, and that none is missing.
pub(in crate::model) fn split<'a>(ty: &Type, bytes: &'a [u8]) -> Result<Vec<Option<&'a [u8]>>> {
    let mut rest = Rest { ty, bytes };
    let parts = match ty {
        Type::List { .. } | Type::Set { .. } => rest.counted(1)?,
        Type::Map { .. } => rest.counted(2)?,
        Type::Vector { element, dimension } => rest.vector(element, usize::from(*dimension))?,
        _ => {
            let mut parts = Vec::new();
            while !rest.bytes.is_empty() {
                parts.push(rest.part()?);
            }
            parts
        }
    };
    if !rest.bytes.is_empty() {
        return Err(refused(ty, format!("{} bytes follow its last element", rest.bytes.len())));
    }
    Ok(parts)
}

/// What is left to be taken apart.
struct Rest<'a, 'b> {
    ty: &'b Type,
    bytes: &'a [u8],
}

impl<'a> Rest<'a, '_> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.bytes.split_at_checked(len) else {
            return Err(refused(self.ty, format!("{len} bytes expected, {} are there", self.bytes.len())));
        };
        self.bytes = rest;
        Ok(taken)
    }

    fn int(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(array(self.take(4)?)))
    }

    fn part(&mut self) -> Result<Option<&'a [u8]>> {
        match self.int()? {
            NULL_LENGTH => Ok(None),
            len => match usize::try_from(len) {
                Ok(len) => self.take(len).map(Some),
                Err(_) => Err(refused(self.ty, format!("an element of {len} bytes"))),
            },
        }
    }

    fn counted(&mut self, parts_each: usize) -> Result<Vec<Option<&'a [u8]>>> {
        let count = self.int()?;
        // Each part takes four bytes at least, so that no number can make this allocate more than what is there.
        let most = self.bytes.len() / 4;
        let count = usize::try_from(count).ok().and_then(|count| count.checked_mul(parts_each));
        match count.filter(|count| *count <= most) {
            Some(count) => (0..count).map(|_| self.part()).collect(),
            None => Err(refused(self.ty, format!("its count does not fit its {} bytes", self.bytes.len()))),
        }
    }

    fn vector(&mut self, element: &Type, dimension: usize) -> Result<Vec<Option<&'a [u8]>>> {
        let width = fixed_width(element);
        let one = |_| {
            let len = match width {
                Some(width) => width,
                None => {
                    let len = take_vint(&mut self.bytes).map_err(|reason| refused(self.ty, reason))?;
                    usize::try_from(len).unwrap_or(usize::MAX)
                }
            };
            self.take(len).map(Some)
        };
        (0..dimension).map(one).collect()
    }
}

fn joined(ty: &Type, parts: &[Option<Bytes>]) -> Vec<u8> {
    let len: usize = parts.iter().flatten().map(Bytes::len).sum();
    let mut out = Vec::with_capacity(len + 4 * (parts.len() + 1));
    let count = match ty {
        Type::List { .. } | Type::Set { .. } => Some(parts.len()),
        Type::Map { .. } => Some(parts.len() / 2),
        _ => None,
    };
    if let Some(count) = count {
        out.extend_from_slice(&(count as i32).to_be_bytes());
    }
    let (is_vector, width) = match ty {
        Type::Vector { element, .. } => (true, fixed_width(element)),
        _ => (false, None),
    };
    for part in parts {
        let part = part.as_deref();
        match part {
            _ if !is_vector => out.extend_from_slice(&part.map_or(NULL_LENGTH, |part| part.len() as i32).to_be_bytes()),
            Some(part) if width.is_none() => put_vint(&mut out, part.len() as u64),
            _ => {}
        }
        out.extend_from_slice(part.unwrap_or_default());
    }
    out
}

/// How long every value of the type is, as far as vectors know: CQL counts the small integers, dates and times among
/// those of variable length.
fn fixed_width(ty: &Type) -> Option<usize> {
    match ty {
        Type::Boolean => Some(1),
        Type::Int | Type::Float => Some(4),
        Type::BigInt | Type::Double | Type::Timestamp => Some(8),
        Type::Uuid | Type::TimeUuid => Some(16),
        Type::Vector { element, dimension } => fixed_width(element).map(|width| width * usize::from(*dimension)),
        _ => None,
    }
}

fn refused(ty: &Type, reason: impl Into<String>) -> Error {
    Error::invalid(ty.to_string(), reason)
}

#[cfg(test)]
mod tests;
