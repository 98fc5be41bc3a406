//! The bytes of a duration: three zigzag integers of variable length.
//!
//! ```text
//! duration   months | days | nanoseconds          each as below, zigzag-coded: 0, -1, 1, -2 are 0, 1, 2, 3
//!
//! 0xxxxxxx                        7 bits
//! 10xxxxxx + 1 byte              14 bits           the ones in front count the bytes that follow,
//! ...                                              the rest is big-endian
//! 11111110 + 7 bytes             56 bits
//! 11111111 + 8 bytes             64 bits
//! ```
//!
//! This is CQL's own format; everything of Trefoil's own uses the integers of `codec`.

use bytes::Bytes;

/// A length of time whose parts do not convert into each other: months differ in days, days in hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Duration {
    pub months: i32,
    pub days: i32,
    pub nanos: i64,
}

impl Duration {
    /// The bytes; whether the signs agree is not asked.
    pub fn encode(self) -> Bytes {
        let mut out = Vec::with_capacity(16);
        for part in [i64::from(self.months), i64::from(self.days), self.nanos] {
            put_vint(&mut out, ((part << 1) ^ (part >> 63)) as u64);
        }
        out.into()
    }

    /// The duration of `bytes`, or why they are not one.
    pub fn decode(bytes: &[u8]) -> Result<Duration, &'static str> {
        let mut rest = bytes;
        let months = take_i32(&mut rest, "the months do not fit 32 bits")?;
        let days = take_i32(&mut rest, "the days do not fit 32 bits")?;
        let nanos = take_zigzag(&mut rest)?;
        if !rest.is_empty() {
            return Err("bytes follow the nanoseconds; a duration is months, days and nanoseconds");
        }
        if (months < 0 || days < 0 || nanos < 0) && (months > 0 || days > 0 || nanos > 0) {
            return Err("months, days and nanoseconds differ in sign; they must be all >= 0 or all <= 0");
        }
        Ok(Duration { months, days, nanos })
    }
}

pub(super) fn put_vint(out: &mut Vec<u8>, value: u64) {
    let bits = 64 - value.leading_zeros() as usize;
    // Each byte behind the first adds seven bits to its seven; the eighth adds eight.
    let more = (bits.saturating_sub(1) / 7).min(8);
    let ones = !(0xffu16 >> more) as u8;
    if more == 8 {
        out.push(ones);
    } else {
        out.push(ones | (value >> (8 * more)) as u8);
    }
    out.extend_from_slice(&value.to_be_bytes()[8 - more..]);
}

pub(super) fn take_vint(rest: &mut &[u8]) -> Result<u64, &'static str> {
    let (&first, tail) = rest.split_first().ok_or("it is cut short")?;
    let more = first.leading_ones() as usize;
    let (bytes, tail) = tail.split_at_checked(more).ok_or("it is cut short")?;
    let top = if more == 8 { 0 } else { u64::from(first & (0xff >> more)) };
    let value = bytes.iter().fold(top, |value, &byte| value << 8 | u64::from(byte));
    if more > 0 && value >> (7 * more) == 0 {
        return Err("an integer in it is longer than it needs to be");
    }
    *rest = tail;
    Ok(value)
}

fn take_zigzag(rest: &mut &[u8]) -> Result<i64, &'static str> {
    let coded = take_vint(rest)?;
    Ok((coded >> 1) as i64 ^ -((coded & 1) as i64))
}

fn take_i32(rest: &mut &[u8], too_large: &'static str) -> Result<i32, &'static str> {
    i32::try_from(take_zigzag(rest)?).map_err(|_| too_large)
}
