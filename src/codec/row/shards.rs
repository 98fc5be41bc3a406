//! The shards of a counter as bytes; the drawing stands in [`super`].

use super::super::varint::{Cursor, put_varint, put_zigzag};
use crate::Result;
use crate::model::{Counter, NodeId, Shard};

/// What an encoder reserves for a shard: a small node number, a stamp, a small clock and value.
pub(super) const SHARD_USUAL_BYTES: usize = 16;
/// The fewest bytes of a shard.
const SHARD_LEAST_BYTES: usize = 4;

pub(super) fn put(out: &mut Vec<u8>, counter: &Counter) {
    put_varint(out, counter.shards().len() as u64);
    for shard in counter.shards() {
        put_varint(out, u64::from(shard.node.0));
        put_varint(out, shard.incarnation);
        put_varint(out, shard.clock);
        put_zigzag(out, shard.value);
    }
}

/// Reads over the shards of a counter, checking them; answers their bytes.
pub(super) fn skim<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8]> {
    let mut from = cursor.clone();
    read(cursor, |_| ())?;
    from.take(cursor.offset() - from.offset())
}

/// The counter of bytes that [`skim`] answered.
pub(super) fn decode(bytes: &[u8]) -> Result<Counter> {
    let mut cursor = Cursor::new("counter", bytes);
    let mut shards = Vec::new();
    read(&mut cursor, |shard| shards.push(shard))?;
    Counter::of(shards).ok_or_else(|| cursor.corrupt("a counter without shards").into())
}

fn read(cursor: &mut Cursor<'_>, mut each: impl FnMut(Shard)) -> Result<()> {
    let count = cursor.count(SHARD_LEAST_BYTES)?;
    if count == 0 {
        return Err(cursor.corrupt("a counter without shards").into());
    }
    let mut before = None;
    for _ in 0..count {
        let shard = Shard {
            node: NodeId(cursor.varint_u32()?),
            incarnation: cursor.varint()?,
            clock: cursor.varint()?,
            value: cursor.zigzag()?,
        };
        if shard.node == NodeId(0) {
            return Err(cursor.corrupt("a shard of no node").into());
        }
        if before >= Some(shard.owner()) {
            return Err(cursor.corrupt("shards do not ascend").into());
        }
        before = Some(shard.owner());
        each(shard);
    }
    Ok(())
}
