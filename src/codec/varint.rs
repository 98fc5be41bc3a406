//! Integers of variable length, and the two cursors that every decoder reads with: [`Cursor`] borrows its input,
//! [`Reader`] owns it and hands out slices that share its memory.

use bytes::Bytes;

use crate::{Corrupt, Result};

/// Longest encoding of a `u64`, in bytes.
pub const VARINT_MAX_BYTES: usize = 10;

/// Appends `value` as LEB128: seven bits a byte, low bits first, the high bit says that more follow.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed value, zigzag-coded so that small magnitudes are short.
pub fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends `bytes` behind their length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends what `body` appends, behind its length.
///
/// The body is written first, behind a gap of one byte: lengths below 128 fill the gap, only longer bodies are moved.
pub fn put_prefixed(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let gap = out.len();
    out.push(0);
    body(out);
    let len = out.len() - gap - 1;
    if len < 0x80 {
        out[gap] = len as u8;
        return;
    }
    let body_end = out.len();
    put_varint(out, len as u64);
    let prefix = out.len() - body_end;
    // [gap, body, prefix] becomes [prefix, gap, body]; the gap byte then leaves.
    out[gap..].rotate_right(prefix);
    out.remove(gap + prefix);
}

/// Reads what an encoder wrote, and answers [`Corrupt`] where it did not. Borrows its input.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    what: &'static str,
    bytes: &'a [u8],
    whole: usize,
}

impl<'a> Cursor<'a> {
    /// Reads `bytes`, which should hold a `what` (for messages).
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { what, bytes, whole: bytes.len() }
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Where the next byte stands.
    pub fn offset(&self) -> usize {
        self.whole - self.bytes.len()
    }

    /// A finding at the present place.
    #[cold]
    pub fn corrupt(&self, reason: impl Into<String>) -> Corrupt {
        Corrupt { offset: Some(self.offset() as u64), ..Corrupt::new(self.what, reason) }
    }

    #[cold]
    fn too_short(&self, len: usize) -> Corrupt {
        self.corrupt(format!("{len} more bytes expected, {} left", self.bytes.len()))
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<N>() else {
            return Err(self.too_short(N).into());
        };
        self.bytes = rest;
        Ok(*head)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Eight bytes, little-endian, signed.
    #[inline]
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A LEB128 integer in its shortest form.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        match self.bytes.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.bytes = rest;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for at in 0..VARINT_MAX_BYTES {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if at == VARINT_MAX_BYTES - 1 && bits > 1 {
                break;
            }
            value |= bits << (7 * at);
            if byte & 0x80 == 0 {
                if byte == 0 && at > 0 {
                    return Err(self.corrupt("an integer is longer than it needs to be").into());
                }
                return Ok(value);
            }
        }
        Err(self.corrupt("an integer does not fit 64 bits").into())
    }

    /// A zigzag-coded integer.
    pub fn zigzag(&mut self) -> Result<i64> {
        let coded = self.varint()?;
        Ok((coded >> 1) as i64 ^ -((coded & 1) as i64))
    }

    /// A LEB128 integer that fits 32 bits.
    #[inline]
    pub fn varint_u32(&mut self) -> Result<u32> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| self.corrupt(format!("{value} does not fit 32 bits")).into())
    }

    /// A number of items that follow, each of which takes at least `least_bytes` (not 0): more than can be there is
    /// corrupt, so the answer may be allocated for.
    #[inline]
    pub fn count(&mut self, least_bytes: usize) -> Result<usize> {
        let count = self.varint()?;
        let most = self.remaining() / least_bytes;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(self.corrupt(format!("{count} items announced, room for {most}")).into()),
        }
    }

    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let Some((head, rest)) = self.bytes.split_at_checked(len) else {
            return Err(self.too_short(len).into());
        };
        self.bytes = rest;
        Ok(head)
    }

    /// Bytes behind their length.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.varint()?;
        self.take(usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// An error if anything is left.
    #[inline]
    pub fn end(&self) -> Result<()> {
        if !self.bytes.is_empty() {
            return Err(self.corrupt(format!("{} bytes behind the end", self.bytes.len())).into());
        }
        Ok(())
    }
}

/// As [`Cursor`], for decoders that keep parts of the input: what it hands out shares the input's memory.
#[derive(Debug, Clone)]
pub struct Reader {
    what: &'static str,
    bytes: Bytes,
    at: usize,
}

impl Reader {
    /// Reads `bytes`, which should hold a `what` (for messages).
    pub fn new(what: &'static str, bytes: Bytes) -> Reader {
        Reader { what, bytes, at: 0 }
    }

    fn cursor(&self) -> Cursor<'_> {
        Cursor { what: self.what, bytes: &self.bytes[self.at..], whole: self.bytes.len() }
    }

    /// Reads by a cursor and goes on where it stopped. After an error the place is where the reading began.
    pub(super) fn read<T>(&mut self, read: impl FnOnce(&mut Cursor<'_>) -> Result<T>) -> Result<T> {
        let mut cursor = self.cursor();
        let value = read(&mut cursor)?;
        self.at = cursor.offset();
        Ok(value)
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Where the next byte stands.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// A finding at the present place.
    pub fn corrupt(&self, reason: impl Into<String>) -> Corrupt {
        self.cursor().corrupt(reason)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.read(|cursor| cursor.array())
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        self.read(|cursor| cursor.u8())
    }

    /// Two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16> {
        self.read(|cursor| cursor.u16())
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32> {
        self.read(|cursor| cursor.u32())
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64> {
        self.read(|cursor| cursor.u64())
    }

    /// Eight bytes, little-endian, signed.
    pub fn i64(&mut self) -> Result<i64> {
        self.read(|cursor| cursor.i64())
    }

    /// A LEB128 integer in its shortest form.
    pub fn varint(&mut self) -> Result<u64> {
        self.read(|cursor| cursor.varint())
    }

    /// A zigzag-coded integer.
    pub fn zigzag(&mut self) -> Result<i64> {
        self.read(|cursor| cursor.zigzag())
    }

    /// A LEB128 integer that fits 32 bits.
    pub fn varint_u32(&mut self) -> Result<u32> {
        self.read(|cursor| cursor.varint_u32())
    }

    /// See [`Cursor::count`].
    pub fn count(&mut self, least_bytes: usize) -> Result<usize> {
        self.read(|cursor| cursor.count(least_bytes))
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<Bytes> {
        self.read(|cursor| cursor.take(len).map(drop))?;
        Ok(self.bytes.slice(self.at - len..self.at))
    }

    /// Bytes behind their length.
    pub fn bytes(&mut self) -> Result<Bytes> {
        let len = self.read(|cursor| cursor.bytes().map(<[u8]>::len))?;
        Ok(self.bytes.slice(self.at - len..self.at))
    }

    /// UTF-8 text behind its length.
    pub fn text(&mut self) -> Result<String> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.corrupt("text is not UTF-8").into())
    }

    /// All that is left.
    pub fn rest(&mut self) -> Bytes {
        let rest = self.bytes.slice(self.at..);
        self.at = self.bytes.len();
        rest
    }

    /// An error if anything is left.
    pub fn end(&self) -> Result<()> {
        self.cursor().end()
    }
}
