//! The byte order of clustering components: CQL bytes <-> bytes whose unsigned order is the order of the values.
//!
//! ```text
//! component            marker | enc
//!   40 | enc             a value; all bytes of enc are inverted where the column descends
//!   3e                   the empty value of a type of fixed size or of a varint, ascending: before all others
//!   41                   the same where the column descends: behind all others
//!   (3f                  null, which stands only inside of tuples and user types)
//!
//! enc of               is
//!   integers, timestamp  sign bit flipped                       (so negative numbers come first)
//!   float, double        sign bit flipped; all bits if negative (-0.0 < 0.0 < infinity < NaN; one NaN for all)
//!   boolean, date, time  the CQL bytes
//!   varint               sign and length, magnitude             (see `put_varint`)
//!   uuid                 version, then time for version 1 or else the bytes in their order, then the low half
//!   timeuuid             1, time, then the low half with each byte's sign bit flipped (CQL compares them as signed)
//!   text, ascii, blob,   each 00 becomes 00 ff; 00 ends it      (so "a" < "a\0" < "ab"; empty is just 00)
//!   inet
//!   list, set, vector,   each element (of a map: key, value, key, value) as an ascending component, then 38
//!   map
//!   tuple, user type     the same, with 3f for a field that is null
//! ```
//!
//! No `enc` of a type is the prefix of another, and no byte behind it (the markers and the ends of keys and bounds) is
//! 00 or ff; so the order of a whole key is decided by its first component that differs. The empty value has a marker of its
//! own because a type of fixed size uses up all its bytes; what is made of others has none, but for user types, whose empty
//! value is one without fields. Every `enc` leads back to the CQL bytes it was made
//! from, except that any NaN comes back as the canonical one.

use std::cmp::Ordering;

use bytes::Bytes;

use super::schema::Order;
use super::types::Type;
use super::value;

/// Before a component with a value.
pub(super) const COMPONENT: u8 = 0x40;
/// Instead of an empty value that its type has no `enc` for.
pub(super) const EMPTY_ASCENDING: u8 = 0x3e;
/// The same in a descending column.
pub(super) const EMPTY_DESCENDING: u8 = 0x41;

/// Instead of a part that is null; no key holds null but inside of a tuple or user type.
const NULL: u8 = 0x3f;
/// Behind the last part of a value.
const PARTS_END: u8 = 0x38;

const SIGN: u8 = 0x80;
const ESCAPED_ZERO: u8 = 0xff;
const NAN_FLOAT: u32 = 0x7fc0_0000;
const NAN_DOUBLE: u64 = 0x7ff8_0000_0000_0000;
/// The first byte of a positive varint whose length follows in two bytes.
const LONG_VARINT: u8 = 0xff;
/// The longest magnitude whose length fits the first byte.
const SHORT_VARINT_MAX_BYTES: usize = (LONG_VARINT - SIGN) as usize;
/// Flips the sign bit of each byte of half a UUID.
const SIGNS: u64 = 0x8080_8080_8080_8080;

/// Whether a component can begin with this byte.
pub(super) fn is_marker(byte: u8) -> bool {
    matches!(byte, COMPONENT | EMPTY_ASCENDING | EMPTY_DESCENDING)
}

/// Appends one component. `value` must be valid CQL bytes of `ty`, and `ty` one that keys may have.
pub(super) fn put(out: &mut Vec<u8>, value: &[u8], ty: &Type, order: Order) {
    if value.is_empty() && !is_escaped(ty) {
        out.push(match order {
            Order::Ascending => EMPTY_ASCENDING,
            Order::Descending => EMPTY_DESCENDING,
        });
        return;
    }
    out.push(COMPONENT);
    let start = out.len();
    match ty {
        Type::Boolean | Type::Date | Type::Time => out.extend_from_slice(value),
        Type::TinyInt | Type::SmallInt | Type::Int | Type::BigInt | Type::Timestamp => {
            out.extend_from_slice(value);
            out[start] ^= SIGN;
        }
        Type::Float | Type::Double => put_float(out, value),
        Type::VarInt => put_varint(out, value),
        Type::Uuid | Type::TimeUuid => put_uuid(out, value, ty),
        Type::Ascii | Type::Text | Type::Blob | Type::Inet | Type::Decimal | Type::Duration | Type::Counter => {
            put_escaped(out, value);
        }
        _ => put_parts(out, value, ty),
    }
    if order == Order::Descending {
        invert(&mut out[start..]);
    }
}

/// Takes one component off `at`, or says what is wrong with it. Only the framing and what cannot be turned back is
/// checked: not, for example, that text is UTF-8.
pub(super) fn take(source: &Bytes, at: &mut usize, ty: &Type, order: Order) -> Result<Bytes, &'static str> {
    let marker = *source.get(*at).ok_or("a component is missing")?;
    *at += 1;
    match (marker, order) {
        (COMPONENT, _) => {}
        (EMPTY_ASCENDING, Order::Ascending) | (EMPTY_DESCENDING, Order::Descending) if !is_escaped(ty) => {
            return Ok(Bytes::new());
        }
        _ => return Err("a component begins with a byte that is no marker of its column"),
    }
    Encoded { source, at, mask: if order == Order::Descending { 0xff } else { 0 } }.value(ty)
}

/// How values of a type of fixed width compare: as their `enc`s do.
pub(super) fn compare_fixed(left: &[u8], right: &[u8], ty: &Type) -> Ordering {
    let enc = |value: &[u8]| {
        let mut out = Vec::with_capacity(value.len() + 1);
        put(&mut out, value, ty, Order::Ascending);
        out
    };
    enc(left).cmp(&enc(right))
}

/// The parts of a value that is made of others: each a component of its own, ascending, or a null; then an end.
fn put_parts(out: &mut Vec<u8>, value: &[u8], ty: &Type) {
    for (at, part) in value::split(ty, value).unwrap_or_default().into_iter().enumerate() {
        match part.zip(ty.part(at)) {
            Some((part, ty)) => put(out, part, ty, Order::Ascending),
            None => out.push(NULL),
        }
    }
    out.push(PARTS_END);
}

/// Whether values of the type are escaped and ended, so that the empty one needs no marker of its own. Decimals and
/// durations are in no key; they are named here so that every type has an answer.
fn is_escaped(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Ascii | Type::Text | Type::Blob | Type::Inet | Type::Decimal | Type::Duration | Type::User { .. }
    )
}

fn invert(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

fn own<const N: usize>(bytes: [u8; N]) -> Bytes {
    Bytes::copy_from_slice(&bytes)
}

fn flip_sign<const N: usize>(mut bytes: [u8; N]) -> Bytes {
    bytes[0] ^= SIGN;
    own(bytes)
}

fn put_float(out: &mut Vec<u8>, value: &[u8]) {
    let start = out.len();
    if let Ok(bits) = <[u8; 4]>::try_from(value) {
        let nan = f32::from_be_bytes(bits).is_nan();
        out.extend_from_slice(&if nan { NAN_FLOAT.to_be_bytes() } else { bits });
    } else if let Ok(bits) = <[u8; 8]>::try_from(value) {
        let nan = f64::from_be_bytes(bits).is_nan();
        out.extend_from_slice(&if nan { NAN_DOUBLE.to_be_bytes() } else { bits });
    }
    let ordered = &mut out[start..];
    if ordered[0] & SIGN == 0 {
        ordered[0] ^= SIGN;
    } else {
        invert(ordered);
    }
}

fn take_float<const N: usize>(
    mut bytes: [u8; N],
    is_nan: fn([u8; N]) -> bool,
    nan: [u8; N],
) -> Result<Bytes, &'static str> {
    if bytes[0] & SIGN == 0 {
        invert(&mut bytes);
    } else {
        bytes[0] ^= SIGN;
    }
    if is_nan(bytes) && bytes != nan {
        return Err("a NaN is not the canonical one");
    }
    Ok(own(bytes))
}

/// ```text
/// v >= 0    7f + n | magnitude of n bytes, no leading zeros (zero: one byte 00)     n in 1..=127
///           ff | n, two bytes | magnitude                                           longer ones
/// v < 0     all bits inverted of what -1 - v gives                                  -1 is 7f ff, -256 is 7f 00
/// ```
fn put_varint(out: &mut Vec<u8>, value: &[u8]) {
    let start = out.len();
    let negative = value[0] & SIGN != 0;
    // The only superfluous byte that the shortest two's complement can hold is a first one that says just the sign.
    let sign_only = if negative { 0xff } else { 0 };
    let magnitude = if value.len() > 1 && value[0] == sign_only { &value[1..] } else { value };
    if magnitude.len() <= SHORT_VARINT_MAX_BYTES {
        out.push(SIGN | (magnitude.len() - 1) as u8);
    } else {
        out.push(LONG_VARINT);
        out.extend_from_slice(&(magnitude.len() as u16).to_be_bytes());
    }
    if negative {
        invert(&mut out[start..]);
    }
    // Two's complement holds the magnitude of a negative number inverted already.
    out.extend_from_slice(magnitude);
}

/// The half of a UUID that holds version and time, with the most significant parts in front. The layout in a UUID is
/// `time_low 32 | time_mid 16 | version 4 | time_high 12`.
fn order_high(high: u64) -> u64 {
    let version = (high >> 12) & 0xf;
    if version == 1 {
        high << 48 | (high >> 16 & 0xffff) << 32 | high >> 32
    } else {
        version << 60 | high >> 16 << 12 | (high & 0xfff)
    }
}

fn unorder_high(ordered: u64) -> u64 {
    let version = ordered >> 60;
    if version == 1 {
        ordered << 32 | (ordered >> 32 & 0xffff) << 16 | ordered >> 48
    } else {
        (ordered >> 12) << 16 | version << 12 | (ordered & 0xfff)
    }
}

fn put_uuid(out: &mut Vec<u8>, value: &[u8], ty: &Type) {
    let (high, low) = value.split_at(8);
    let word = |half: &[u8]| half.iter().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    let signs = if *ty == Type::TimeUuid { SIGNS } else { 0 };
    out.extend_from_slice(&order_high(word(high)).to_be_bytes());
    out.extend_from_slice(&(word(low) ^ signs).to_be_bytes());
}

fn take_uuid(enc: [u8; 16], ty: &Type) -> Result<Bytes, &'static str> {
    let ordered = u128::from_be_bytes(enc);
    let (high, low) = ((ordered >> 64) as u64, ordered as u64);
    if *ty == Type::Uuid {
        return Ok(own((u128::from(unorder_high(high)) << 64 | u128::from(low)).to_be_bytes()));
    }
    if high >> 60 != 1 {
        return Err("a timeuuid is not of version 1");
    }
    Ok(own((u128::from(unorder_high(high)) << 64 | u128::from(low ^ SIGNS)).to_be_bytes()))
}

fn put_escaped(out: &mut Vec<u8>, value: &[u8]) {
    for (at, part) in value.split(|&byte| byte == 0).enumerate() {
        if at > 0 {
            out.extend_from_slice(&[0, ESCAPED_ZERO]);
        }
        out.extend_from_slice(part);
    }
    out.push(0);
}

/// The `enc` of one component, read from `at` on; `mask` undoes the inversion of a descending column.
struct Encoded<'a> {
    source: &'a Bytes,
    at: &'a mut usize,
    mask: u8,
}

const CUT_SHORT: &str = "a component is cut short";

impl Encoded<'_> {
    fn value(&mut self, ty: &Type) -> Result<Bytes, &'static str> {
        match ty {
            Type::Boolean => self.fixed::<1>().map(own),
            Type::TinyInt => self.fixed::<1>().map(flip_sign),
            Type::SmallInt => self.fixed::<2>().map(flip_sign),
            Type::Int => self.fixed::<4>().map(flip_sign),
            Type::BigInt | Type::Timestamp => self.fixed::<8>().map(flip_sign),
            Type::Date => self.fixed::<4>().map(own),
            Type::Time => self.fixed::<8>().map(own),
            Type::Float => {
                take_float(self.fixed::<4>()?, |bits| f32::from_be_bytes(bits).is_nan(), NAN_FLOAT.to_be_bytes())
            }
            Type::Double => {
                take_float(self.fixed::<8>()?, |bits| f64::from_be_bytes(bits).is_nan(), NAN_DOUBLE.to_be_bytes())
            }
            Type::VarInt => self.varint(),
            Type::Uuid | Type::TimeUuid => take_uuid(self.fixed::<16>()?, ty),
            Type::Ascii | Type::Text | Type::Blob | Type::Inet | Type::Decimal | Type::Duration | Type::Counter => {
                self.escaped()
            }
            _ => self.parts(ty),
        }
    }

    fn parts(&mut self, ty: &Type) -> Result<Bytes, &'static str> {
        let mut parts = Vec::new();
        loop {
            let [marker] = self.fixed::<1>()?;
            match (marker, ty.part(parts.len())) {
                (PARTS_END, _) => break,
                (NULL, Some(_)) => parts.push(None),
                (COMPONENT, Some(inner)) => parts.push(Some(self.value(inner)?)),
                _ => return Err("a value has a part that its type does not have"),
            }
        }
        value::rejoined(ty, &parts).map_err(|_| "its parts do not make a value")
    }

    fn slice(&mut self, len: usize) -> Result<&[u8], &'static str> {
        let end = self.at.checked_add(len).ok_or(CUT_SHORT)?;
        let slice = self.source.get(*self.at..end).ok_or(CUT_SHORT)?;
        *self.at = end;
        Ok(slice)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let mask = self.mask;
        let bytes = <[u8; N]>::try_from(self.slice(N)?).map_err(|_| CUT_SHORT)?;
        Ok(bytes.map(|byte| byte ^ mask))
    }

    fn varint(&mut self) -> Result<Bytes, &'static str> {
        let [first] = self.fixed::<1>()?;
        // From here on a negative number is read as -1 minus itself, and inverted back at the end.
        let sign = if first & SIGN == 0 { 0xff } else { 0 };
        let len = match first ^ sign {
            LONG_VARINT => {
                let len = usize::from(u16::from_be_bytes(self.fixed::<2>()?.map(|byte| byte ^ sign)));
                if len <= SHORT_VARINT_MAX_BYTES {
                    return Err("the length of a varint is longer than it needs to be");
                }
                len
            }
            short => usize::from(short & !SIGN) + 1,
        };
        let mask = self.mask ^ sign;
        let magnitude = self.slice(len)?;
        let top = magnitude[0] ^ mask;
        if top == 0 && len > 1 {
            return Err("a varint is longer than it needs to be");
        }
        let mut value = Vec::with_capacity(len + 1);
        if top & SIGN != 0 {
            value.push(sign);
        }
        value.extend(magnitude.iter().map(|byte| byte ^ mask ^ sign));
        Ok(Bytes::from(value))
    }

    /// Shares the memory of the key where the value stands there as it is.
    fn escaped(&mut self) -> Result<Bytes, &'static str> {
        let start = *self.at;
        let zero = self.mask;
        let rest = &self.source[start..];
        let first = rest.iter().position(|&byte| byte == zero).ok_or(CUT_SHORT)?;
        if zero == 0 && rest.get(first + 1) != Some(&ESCAPED_ZERO) {
            *self.at = start + first + 1;
            return Ok(self.source.slice(start..start + first));
        }
        let mut value = Vec::with_capacity(rest.len());
        let mut at = 0;
        loop {
            let byte = rest.get(at).ok_or(CUT_SHORT)? ^ zero;
            at += 1;
            if byte == 0 {
                if rest.get(at).is_none_or(|&next| next ^ zero != ESCAPED_ZERO) {
                    break;
                }
                at += 1;
            }
            value.push(byte);
        }
        *self.at = start + at;
        Ok(Bytes::from(value))
    }
}

#[cfg(test)]
mod tests;
