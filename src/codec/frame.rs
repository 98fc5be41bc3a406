//! Frames: `length u32 | crc32 u32 | payload`. The checksum covers the length, a salt that binds the frame to its place
//! (so that a frame of another file or offset is not taken for this one), and the payload.

use bytes::Bytes;

use crate::Result;

/// Bytes before the payload.
pub const FRAME_HEADER_BYTES: usize = 8;

/// Appends a frame around `payload`.
pub fn put_frame(_out: &mut Vec<u8>, _salt: u64, _payload: &[u8]) {
    todo!()
}

/// What stands at the beginning of some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Framed {
    /// A whole frame: its payload and the bytes it takes.
    Whole(Bytes, usize),
    /// Eight zero bytes: nothing was written here.
    Empty,
    /// Fewer bytes than the frame needs, or a checksum that does not fit: torn or corrupt, the caller knows which.
    Broken(&'static str),
}

/// Reads the frame at the beginning of `bytes`.
pub fn read_frame(_bytes: &Bytes, _salt: u64) -> Result<Framed> {
    todo!()
}
