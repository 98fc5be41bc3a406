//! Keys and their byte order.
//!
//! ```text
//! partition key    one component: its CQL bytes; several: for each  u16 length (big-endian) | bytes | 00
//! clustering key   for each component  40 | enc ;  then 38        enc is memcmp-able, inverted for descending columns
//! bound            for each component  40 | enc ;  then 20 (before everything with this prefix) or 60 (after it)
//! ```
//!
//! `ordered` draws the enc of each type and the two markers that stand for an empty value instead of `40`.
//!
//! Above this file only bytes are compared: a descending column is inverted here and nowhere else (B034), and a bound
//! never equals a key, so there is one total order over rows and the ends of ranges (B103).

use std::borrow::Borrow;
use std::cmp::Ordering;

use bytes::Bytes;

use super::ordered;
use super::schema::Order;
use super::token::Token;
use super::types::Type;
use super::value;
use crate::{Corrupt, Error, Result};

/// The longest component, serialised partition key, and sum of a clustering key's components. The ordered bytes of a
/// clustering key can be twice as long, where its values are full of zeros.
pub const KEY_MAX_BYTES: usize = 65_535;

const KEY_END: u8 = 0x38;
const BEFORE: u8 = 0x20;
const AFTER: u8 = 0x60;

/// A partition key with its token. Ordered by (token, bytes), the order of the ring and of every file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey {
    token: Token,
    bytes: Bytes,
}

/// A row's place within its partition. Ordered by its bytes. A table without clustering columns has one: `38`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusteringKey(Bytes);

/// A place between rows. Ordered by its bytes, and comparable with [`ClusteringKey`]s by theirs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bound(Bytes);

/// The rows between two bounds; empty unless `start < end`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slice {
    /// Where it begins, in ascending order, whatever the direction of the read.
    pub start: Bound,
    /// Where it ends.
    pub end: Bound,
}

/// Whether the rows at the end of a range belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Edge {
    /// They do.
    Inclusive,
    /// They do not.
    Exclusive,
}

impl PartitionKey {
    /// The key of these components (CQL bytes, in key order), checked against their types and limits. A single
    /// component shares the memory it is given in.
    pub fn encode(components: &[Bytes], types: &[Type]) -> Result<PartitionKey> {
        const SUBJECT: &str = "partition key";
        check_count(SUBJECT, components.len(), types.len())?;
        for (at, (component, ty)) in components.iter().zip(types).enumerate() {
            check_component(SUBJECT, at, component, ty)?;
        }
        if let [component] = components {
            if component.is_empty() {
                return Err(Error::invalid(
                    SUBJECT,
                    "Key may not be empty; its only component needs at least one byte",
                ));
            }
            return Ok(PartitionKey::from_bytes(component.clone()));
        }
        let len = components.iter().map(|component| component.len() + FRAME_BYTES).sum();
        check_len(SUBJECT, len)?;
        let mut out = Vec::with_capacity(len);
        for component in components {
            out.extend_from_slice(&(component.len() as u16).to_be_bytes());
            out.extend_from_slice(component);
            out.push(0);
        }
        Ok(PartitionKey::from_bytes(out.into()))
    }

    /// The key of already serialised bytes, as they stand in files and messages; the token is computed.
    pub fn from_bytes(bytes: Bytes) -> PartitionKey {
        PartitionKey { token: Token::of(&bytes), bytes }
    }

    /// The key of serialised bytes whose token is known: a copy of a key, or a place to begin a scan at.
    pub fn with_token(token: Token, bytes: Bytes) -> PartitionKey {
        PartitionKey { token, bytes }
    }

    /// The components, as CQL bytes in key order; an error if the bytes are not a key of these types.
    pub fn decode(&self, types: &[Type]) -> Result<Vec<Bytes>> {
        if types.len() == 1 {
            return match self.bytes.is_empty() {
                true => Err(corrupt("partition key", "it is empty", 0)),
                false => Ok(vec![self.bytes.clone()]),
            };
        }
        let mut at = 0;
        let components = types.iter().map(|_| take_framed(&self.bytes, &mut at)).collect::<Result<_>>()?;
        if at != self.bytes.len() {
            return Err(corrupt("partition key", "bytes follow the last component", at));
        }
        Ok(components)
    }

    /// Its place on the ring.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The serialised components: what is hashed, stored and compared.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// Length and terminator of a component of a partition key that has several.
const FRAME_BYTES: usize = 3;

/// Takes one `length | bytes | 00` off `at`.
fn take_framed(bytes: &Bytes, at: &mut usize) -> Result<Bytes> {
    let cut_short = || corrupt("partition key", "a component is cut short", bytes.len());
    let [high, low] = *bytes[*at..].first_chunk::<2>().ok_or_else(cut_short)?;
    let start = *at + 2;
    let end = start + usize::from(u16::from_be_bytes([high, low]));
    match bytes.get(end) {
        None => Err(cut_short()),
        Some(0) => {
            *at = end + 1;
            Ok(bytes.slice(start..end))
        }
        Some(_) => Err(corrupt("partition key", "a component does not end in 00", end)),
    }
}

impl ClusteringKey {
    /// The key of these components (CQL bytes, in key order), checked against their types and limits.
    pub fn encode(components: &[Bytes], types: &[(Type, Order)]) -> Result<ClusteringKey> {
        const SUBJECT: &str = "clustering key";
        check_count(SUBJECT, components.len(), types.len())?;
        Ok(ClusteringKey(encode_ordered(SUBJECT, components, types, KEY_END)?))
    }

    /// A key from bytes that were a key's; the framing of components is checked when they are decoded.
    pub fn from_bytes(bytes: Bytes) -> Result<ClusteringKey> {
        ClusteringKey::check(&bytes)?;
        Ok(ClusteringKey(bytes))
    }

    /// Whether [`ClusteringKey::from_bytes`] would take these bytes.
    #[inline]
    pub fn check(bytes: &[u8]) -> Result<()> {
        match *bytes {
            [KEY_END] => Ok(()),
            [first, .., KEY_END] if ordered::is_marker(first) => Ok(()),
            _ => Err(corrupt("clustering key", "it does not begin with a component and end in 38", 0)),
        }
    }

    /// The components, as CQL bytes in key order. Columns of text and bytes in ascending order share the key's memory.
    pub fn decode(&self, types: &[(Type, Order)]) -> Result<Vec<Bytes>> {
        let mut at = 0;
        let take = |(ty, order): &(Type, Order)| {
            let start = at;
            ordered::take(&self.0, &mut at, ty, *order).map_err(|reason| corrupt("clustering key", reason, start))
        };
        let components = types.iter().map(take).collect::<Result<_>>()?;
        if self.0[at..] != [KEY_END] {
            return Err(corrupt("clustering key", "it does not end behind its last component", at));
        }
        Ok(components)
    }

    /// The ordered bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The place just before this row.
    pub fn before(&self) -> Bound {
        self.ending_in(BEFORE)
    }

    /// Whether the place just after this row lies before a bound: `self.after() < *bound` without making one.
    pub fn is_after_before(&self, bound: &Bound) -> bool {
        let components = &self.0[..self.0.len() - 1];
        let order = match bound.0.split_at_checked(components.len()) {
            None => components.cmp(&bound.0[..]),
            Some((head, tail)) => components.cmp(head).then_with(|| [AFTER][..].cmp(tail)),
        };
        order == Ordering::Less
    }

    /// The place just after this row.
    pub fn after(&self) -> Bound {
        self.ending_in(AFTER)
    }

    fn ending_in(&self, end: u8) -> Bound {
        let mut out = Vec::with_capacity(self.0.len());
        out.extend_from_slice(&self.0[..self.0.len() - 1]);
        out.push(end);
        Bound(out.into())
    }
}

/// Keys are ordered by their bytes, so they can be looked up by the bytes of a bound.
impl Borrow<[u8]> for ClusteringKey {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl Bound {
    /// Before every row whose first components are `prefix`; before all rows if it is empty.
    pub fn before(prefix: &[Bytes], types: &[(Type, Order)]) -> Result<Bound> {
        Bound::encode(prefix, types, BEFORE)
    }

    /// After every row whose first components are `prefix`; after all rows if it is empty.
    pub fn after(prefix: &[Bytes], types: &[(Type, Order)]) -> Result<Bound> {
        Bound::encode(prefix, types, AFTER)
    }

    fn encode(prefix: &[Bytes], types: &[(Type, Order)], end: u8) -> Result<Bound> {
        const SUBJECT: &str = "clustering prefix";
        if prefix.len() > types.len() {
            check_count(SUBJECT, prefix.len(), types.len())?;
        }
        Ok(Bound(encode_ordered(SUBJECT, prefix, types, end)?))
    }

    /// Before all rows.
    pub fn bottom() -> Bound {
        Bound(Bytes::from_static(&[BEFORE]))
    }

    /// After all rows.
    pub fn top() -> Bound {
        Bound(Bytes::from_static(&[AFTER]))
    }

    /// A bound from bytes that were a bound's; an error if they do not begin and end like one.
    pub fn from_bytes(bytes: Bytes) -> Result<Bound> {
        match *bytes {
            [BEFORE | AFTER] => Ok(Bound(bytes)),
            [first, .., BEFORE | AFTER] if ordered::is_marker(first) => Ok(Bound(bytes)),
            _ => Err(corrupt("bound", "it does not begin with a component and end in 20 or 60", 0)),
        }
    }

    /// The ordered bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl Slice {
    /// The same rows, without empty slices and with such as touch made one: the end of the one and the beginning of the
    /// other are one place, at which a stream can say only one thing.
    pub fn joined(slices: &[Slice]) -> Vec<Slice> {
        let mut joined: Vec<Slice> = Vec::with_capacity(slices.len());
        for slice in slices.iter().filter(|slice| slice.start < slice.end) {
            match joined.last_mut() {
                Some(last) if last.end >= slice.start => last.end = slice.end.clone().max(last.end.clone()),
                _ => joined.push(slice.clone()),
            }
        }
        joined
    }

    /// All rows.
    pub fn all() -> Slice {
        Slice { start: Bound::bottom(), end: Bound::top() }
    }

    /// Just this row.
    pub fn one(key: &ClusteringKey) -> Slice {
        Slice { start: key.before(), end: key.after() }
    }

    /// The rows from the prefix `from` to the prefix `to`, in the table's order: where a column descends, `from` holds
    /// the larger value. An empty prefix leaves its side open. The slice is empty if `from` lies behind `to`.
    pub fn between(
        from: &[Bytes],
        from_edge: Edge,
        to: &[Bytes],
        to_edge: Edge,
        types: &[(Type, Order)],
    ) -> Result<Slice> {
        let start = match from_edge {
            Edge::Exclusive if !from.is_empty() => Bound::after(from, types)?,
            _ => Bound::before(from, types)?,
        };
        let end = match to_edge {
            Edge::Exclusive if !to.is_empty() => Bound::before(to, types)?,
            _ => Bound::after(to, types)?,
        };
        Ok(Slice { start, end })
    }

    /// Whether it holds the rows that begin with one key or a part of one, and no others: [`Slice::one`] and
    /// [`Slice::all`] do.
    pub fn surrounds_one_prefix(&self) -> bool {
        match (self.start.0.split_last(), self.end.0.split_last()) {
            (Some((&BEFORE, start)), Some((&AFTER, end))) => start == end,
            _ => false,
        }
    }

    /// The components of the only row that can lie in it, as they stand in that row's key before its last byte; `None` where
    /// there may be more rows, or none. In a table without clustering columns they are empty.
    pub fn only_row(&self, types: &[(Type, Order)]) -> Option<&[u8]> {
        if !self.surrounds_one_prefix() {
            return None;
        }
        let (_, components) = self.start.0.split_last()?;
        let is_whole = match types {
            [] => components.is_empty(),
            [_] => !components.is_empty(),
            types => count_components(&self.start.0.slice(..components.len()), types) == Some(types.len()),
        };
        is_whole.then_some(components)
    }

    /// Whether no row can lie in it.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// The ordered bytes of `components` and the byte that ends them.
fn encode_ordered(subject: &str, components: &[Bytes], types: &[(Type, Order)], end: u8) -> Result<Bytes> {
    let len: usize = components.iter().map(Bytes::len).sum();
    // Exact for most keys: a marker each, and the terminator of escaped types.
    let mut out = Vec::with_capacity(len + 2 * components.len() + 1);
    for (at, (component, (ty, order))) in components.iter().zip(types).enumerate() {
        check_component(subject, at, component, ty)?;
        ordered::put(&mut out, component, ty, *order);
    }
    check_len(subject, len)?;
    out.push(end);
    Ok(out.into())
}

/// How many components of these types there are; `None` if they are something else.
fn count_components(components: &Bytes, types: &[(Type, Order)]) -> Option<usize> {
    let (mut at, mut count) = (0, 0);
    while at < components.len() {
        let (ty, order) = types.get(count)?;
        ordered::take(components, &mut at, ty, *order).ok()?;
        count += 1;
    }
    Some(count)
}

fn check_count(subject: &str, given: usize, expected: usize) -> Result<()> {
    if given != expected {
        return Err(Error::invalid(subject, format!("{given} components given; the table has {expected}")));
    }
    Ok(())
}

fn check_component(subject: &str, at: usize, component: &[u8], ty: &Type) -> Result<()> {
    let name = || format!("{subject} component {}", at + 1);
    if let Some(reason) = ty.refused_in_key() {
        return Err(Error::invalid(name(), reason));
    }
    if component.len() > KEY_MAX_BYTES {
        return Err(too_long(name(), component.len()));
    }
    value::validate(ty, component).map_err(|error| Error::invalid(name(), error.to_string()))
}

fn check_len(subject: &str, len: usize) -> Result<()> {
    if len > KEY_MAX_BYTES {
        return Err(too_long(subject.to_owned(), len));
    }
    Ok(())
}

fn too_long(subject: String, len: usize) -> Error {
    Error::invalid(subject, format!("Key length {len} exceeds the limit of {KEY_MAX_BYTES} bytes"))
}

fn corrupt(what: &'static str, reason: &'static str, at: usize) -> Error {
    Corrupt { offset: Some(at as u64), ..Corrupt::new(what, reason) }.into()
}

#[cfg(test)]
mod tests;
