//! Integers of variable length, and the cursor that every decoder reads with.

use bytes::{Buf, Bytes};

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

/// Reads what an encoder wrote, and answers [`Corrupt`] where it did not. Slices share the input's memory.
pub struct Reader {
    what: &'static str,
    bytes: Bytes,
    whole: usize,
}

impl Reader {
    /// Reads `bytes`, which should hold a `what` (for messages).
    pub fn new(what: &'static str, bytes: Bytes) -> Reader {
        let whole = bytes.len();
        Reader { what, bytes, whole }
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
    pub fn corrupt(&self, reason: impl Into<String>) -> Corrupt {
        Corrupt { offset: Some(self.offset() as u64), ..Corrupt::new(self.what, reason) }
    }

    fn need(&self, len: usize) -> Result<()> {
        if self.bytes.len() < len {
            return Err(self.corrupt(format!("{len} more bytes expected, {} left", self.bytes.len())).into());
        }
        Ok(())
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        self.need(1)?;
        Ok(self.bytes.get_u8())
    }

    /// Two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16> {
        self.need(2)?;
        Ok(self.bytes.get_u16_le())
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32> {
        self.need(4)?;
        Ok(self.bytes.get_u32_le())
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64> {
        self.need(8)?;
        Ok(self.bytes.get_u64_le())
    }

    /// Eight bytes, little-endian, signed.
    pub fn i64(&mut self) -> Result<i64> {
        self.need(8)?;
        Ok(self.bytes.get_i64_le())
    }

    /// A LEB128 integer in its shortest form.
    pub fn varint(&mut self) -> Result<u64> {
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
    pub fn varint_u32(&mut self) -> Result<u32> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| self.corrupt(format!("{value} does not fit 32 bits")).into())
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<Bytes> {
        self.need(len)?;
        Ok(self.bytes.split_to(len))
    }

    /// Bytes behind their length.
    pub fn bytes(&mut self) -> Result<Bytes> {
        let len = self.varint()?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.take(len)
    }

    /// UTF-8 text behind its length.
    pub fn text(&mut self) -> Result<String> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.corrupt("text is not UTF-8").into())
    }

    /// All that is left.
    pub fn rest(&mut self) -> Bytes {
        self.bytes.split_to(self.bytes.len())
    }

    /// An error if anything is left.
    pub fn end(&self) -> Result<()> {
        if !self.bytes.is_empty() {
            return Err(self.corrupt(format!("{} bytes behind the end", self.bytes.len())).into());
        }
        Ok(())
    }
}
