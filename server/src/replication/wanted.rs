//! Names of several slices, as they are asked for.
//!
//! ```text
//! wanted   slices varint | (keyspace varint | vnode varint | received set) ...      slices strictly ascend
//! ```

use bytes::Bytes;
use trefoil::Result;
use trefoil::codec::varint::{Reader, put_varint};
use trefoil::model::{KeyspaceId, Vnode};
use trefoil::received::{ReceivedSet, ReceivedSets};

/// No slice takes less.
const SLICE_BYTES_MIN: usize = 3;

/// The bytes.
pub fn encode(wanted: &ReceivedSets) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, wanted.len() as u64);
    for ((keyspace, vnode), names) in wanted {
        put_varint(&mut out, u64::from(keyspace.0));
        put_varint(&mut out, u64::from(vnode.0));
        names.encode(&mut out);
    }
    out
}

/// Reads what [`encode`] wrote, and nothing else.
pub fn decode(bytes: Bytes) -> Result<ReceivedSets> {
    let mut reader = Reader::new("wanted names", bytes);
    let mut wanted = ReceivedSets::new();
    for _ in 0..reader.count(SLICE_BYTES_MIN)? {
        let slice = (KeyspaceId(reader.varint_u32()?), Vnode(reader.varint_u32()?));
        if wanted.last_key_value().is_some_and(|(last, _)| *last >= slice) {
            return Err(reader.corrupt("slices do not ascend").into());
        }
        wanted.insert(slice, ReceivedSet::decode(&mut reader)?);
    }
    reader.end()?;
    Ok(wanted)
}
