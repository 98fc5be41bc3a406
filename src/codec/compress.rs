//! Blocks of bytes, compressed with lz4 where that makes them smaller.
//!
//! ```text
//! block   kind u8 (0 stored, 1 lz4) | uncompressed length varint | the bytes, or their lz4 block
//! ```
//!
//! Nothing in a block says how long it is: whoever holds it knows, and checks its checksum beforehand. A block that
//! decompresses is not necessarily the one that this encoder would write, as lz4 has many ways to say one thing.

use bytes::Bytes;
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use super::varint::{Reader, put_varint};
use crate::Result;

const STORED: u8 = 0;
const LZ4: u8 = 1;

/// Appends `body` as a block.
pub fn put_block(out: &mut Vec<u8>, body: &[u8]) {
    let kind = out.len();
    out.push(LZ4);
    put_varint(out, body.len() as u64);
    let start = out.len();
    out.resize(start + get_maximum_output_size(body.len()), 0);
    match compress_into(body, &mut out[start..]) {
        Ok(length) if length < body.len() => out.truncate(start + length),
        _ => {
            out[kind] = STORED;
            out.truncate(start);
            out.extend_from_slice(body);
        }
    }
}

/// The body of a block, of at most `max_bytes`; stored bodies share the block's memory.
pub fn read_block(block: Bytes, max_bytes: usize) -> Result<Bytes> {
    let mut reader = Reader::new("block", block);
    let kind = reader.u8()?;
    let length = reader.varint()?;
    let Some(length) = usize::try_from(length).ok().filter(|length| *length <= max_bytes) else {
        return Err(reader.corrupt(format!("{length} bytes uncompressed; at most {max_bytes} were expected")).into());
    };
    let data = reader.rest();
    match kind {
        STORED if data.len() == length => Ok(data),
        STORED => Err(reader.corrupt(format!("{} bytes stored, {length} announced", data.len())).into()),
        LZ4 if data.len() < length => {
            let mut body = vec![0; length];
            match decompress_into(&data, &mut body) {
                Ok(written) if written == length => Ok(Bytes::from(body)),
                Ok(written) => Err(reader.corrupt(format!("{written} bytes came out, {length} announced")).into()),
                Err(error) => Err(reader.corrupt(format!("lz4: {error}")).into()),
            }
        }
        LZ4 => Err(reader.corrupt("compressed, although that makes it no smaller").into()),
        _ => Err(reader.corrupt(format!("unknown kind {kind:02x} of block")).into()),
    }
}
