//! Frames: `length u32 | crc32 u32 | payload`. The checksum covers a salt that binds the frame to its place (so that a
//! frame of another file or offset is not taken for this one), the length, and the payload, in this order, the two
//! numbers little-endian. A payload is never empty, so that a frame never looks like unwritten zeros.

use bytes::Bytes;

/// Bytes before the payload.
pub const FRAME_HEADER_BYTES: usize = 8;

/// Appends a frame around `payload`, which is not empty.
pub fn put_frame(out: &mut Vec<u8>, salt: u64, payload: &[u8]) {
    debug_assert!(!payload.is_empty(), "an empty frame looks like unwritten bytes");
    let length =
        u32::try_from(payload.len()).expect("what is framed fits a file, whose writer bounds it far below 4 GiB");
    out.reserve(FRAME_HEADER_BYTES + payload.len());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&checksum(salt, length, payload).to_le_bytes());
    out.extend_from_slice(payload);
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

/// Reads the frame at the beginning of `bytes`. The payload shares their memory.
pub fn read_frame(bytes: &Bytes, salt: u64) -> Framed {
    let Some((header, rest)) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>() else {
        return Framed::Broken("fewer bytes than a frame's header");
    };
    if *header == [0; FRAME_HEADER_BYTES] {
        return Framed::Empty;
    }
    let [l0, l1, l2, l3, c0, c1, c2, c3] = *header;
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    if length == 0 {
        return Framed::Broken("a frame of no bytes");
    }
    let Some(payload) = usize::try_from(length).ok().and_then(|length| rest.get(..length)) else {
        return Framed::Broken("fewer bytes than the frame's length");
    };
    if checksum(salt, length, payload) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Framed::Broken("the checksum does not fit");
    }
    Framed::Whole(bytes.slice_ref(payload), FRAME_HEADER_BYTES + payload.len())
}

fn checksum(salt: u64, length: u32, payload: &[u8]) -> u32 {
    let mut bound = [0; 12];
    bound[..8].copy_from_slice(&salt.to_le_bytes());
    bound[8..].copy_from_slice(&length.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bound);
    hasher.update(payload);
    hasher.finalize()
}
