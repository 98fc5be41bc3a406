//! Places in the log, and their bytes: `segment varint | offset varint`.

use crate::Result;
use crate::codec::varint::{Reader, put_varint};

/// A place in the log: everything before it was appended earlier. Orders the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// The number of the segment, rising by one; 0 is before all.
    pub segment: u64,
    /// Bytes from the beginning of the segment.
    pub offset: u64,
}

impl Position {
    /// Appends the position.
    pub fn put(self, out: &mut Vec<u8>) {
        put_varint(out, self.segment);
        put_varint(out, self.offset);
    }

    /// Reads what [`Position::put`] wrote.
    pub fn read(reader: &mut Reader) -> Result<Position> {
        Ok(Position { segment: reader.varint()?, offset: reader.varint()? })
    }

    /// The position `bytes` further in the same segment.
    pub(super) fn plus(self, bytes: usize) -> Position {
        Position { offset: self.offset + bytes as u64, ..self }
    }

    /// What binds the frame that begins here to its place. Two positions whose salts differ in one half only never have
    /// the same checksum over the same bytes (CRC-32 finds every burst of up to 32 bits), so a stale frame of a recycled
    /// file is told for certain, not just nearly always.
    pub(super) fn salt(self) -> u64 {
        (self.segment << 32) ^ self.offset
    }
}
