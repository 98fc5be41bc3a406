//! Where the bytes of a shard's rows live: chunks that are dropped whole with the memtable.
//!
//! A slice shares its chunk's memory and nobody else's, so that a row never holds the message it came in. Bytes that
//! are overwritten stay until the flush; they are counted, so that they bring the flush about.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// Sizes of chunks, in bytes: small while a memtable is, so that a hundred idle tables cost little.
const CHUNK_BYTES: Range<usize> = 1 << 10..64 << 10;

/// The next chunk is this share of what is held: sixty-four shards would else hold more room than rows while a memtable is
/// of a few MiB, and be flushed for it.
const GROWTH_SHARE: u64 = 8;

/// What is larger than this share of a chunk gets memory of its own, so that no more than that is left over at its end.
const LARGE_SHARE: usize = 4;

/// Chunks, the last of which has room, and the sum of what was asked for.
#[derive(Debug, Default)]
pub(super) struct Arena {
    room: BytesMut,
    held: u64,
}

impl Arena {
    /// A copy of `bytes` in a chunk.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() > self.room.capacity() {
            if bytes.len() > CHUNK_BYTES.end / LARGE_SHARE {
                self.held += bytes.len() as u64;
                return Bytes::copy_from_slice(bytes);
            }
            self.grow(bytes.len());
        }
        self.room.extend_from_slice(bytes);
        self.room.split().freeze()
    }

    fn grow(&mut self, at_least: usize) {
        let share = usize::try_from(self.held / GROWTH_SHARE).unwrap_or(usize::MAX);
        let len = share.clamp(CHUNK_BYTES.start, CHUNK_BYTES.end).max(at_least);
        self.held += len as u64;
        self.room = BytesMut::with_capacity(len);
    }

    /// Counts memory that is held beside the chunks.
    pub(super) fn account(&mut self, bytes: usize) {
        self.held += bytes as u64;
    }

    /// Bytes asked for so far: chunks and what was accounted.
    pub(super) fn held(&self) -> u64 {
        self.held
    }
}
