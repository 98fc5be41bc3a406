//! Where the bytes of a shard's keys and rows live: chunks that are dropped whole with the memtable.
//!
//! ```text
//! piece   key length varint, key bytes | [row length varint, row]        the key of a partition has no row
//! ```
//!
//! What stays of a piece elsewhere is its [`Place`], eight bytes. Whoever reads a piece shares its chunk's memory and
//! nobody else's, so that a row never holds the message it came in; while a chunk is being filled its pieces are copied for
//! readers. Bytes that are overwritten stay until the flush; they are counted, so that they bring the flush about.

use std::ops::Range;

use bytes::Bytes;

use crate::codec::EncodedRow;
use crate::codec::varint::{Cursor, VARINT_MAX_BYTES, put_bytes};
use crate::model::{ClusteringKey, PartitionKey, Token};

/// Sizes of chunks, in bytes: small while a memtable is, so that a hundred idle tables cost little.
const CHUNK_BYTES: Range<usize> = 1 << 10..64 << 10;

/// The next chunk is about this share of what is held, a power of two so that allocators find room of that size again: sixty-four shards would else hold more room than rows while a memtable is
/// of a few MiB, and be flushed for it.
const GROWTH_SHARE: u64 = 8;

/// What is larger than this share of a chunk gets memory of its own, so that no more than that is left over at its end.
const LARGE_SHARE: usize = 4;

/// What an allocation of its own takes beside its bytes, about, in bytes.
const ALLOCATION_BYTES: usize = 48;

/// Where a piece begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    chunk: u32,
    at: u32,
}

/// Chunks, one of which has room, and the sum of what was asked for.
#[derive(Debug, Default)]
pub(super) struct Arena {
    /// Those that are full, and an empty one in the place of that which is being filled.
    chunks: Vec<Bytes>,
    /// The one that is being filled.
    room: Vec<u8>,
    /// Its number.
    filling: Option<u32>,
    held: u64,
}

impl Arena {
    /// Stores a row behind its key.
    pub(super) fn put_row(&mut self, key: &[u8], row: &[u8]) -> Place {
        self.put(&[key, row])
    }

    /// Stores the key of a partition.
    pub(super) fn put_key(&mut self, key: &[u8]) -> Place {
        self.put(&[key])
    }

    fn put(&mut self, fields: &[&[u8]]) -> Place {
        let most = fields.iter().map(|field| VARINT_MAX_BYTES + field.len()).sum::<usize>();
        if most > self.room.capacity() - self.room.len() {
            if most > CHUNK_BYTES.end / LARGE_SHARE {
                return self.put_alone(fields, most);
            }
            self.grow(most);
        }
        let place = Place { chunk: self.filling.unwrap_or_default(), at: self.room.len() as u32 };
        fields.iter().for_each(|field| put_bytes(&mut self.room, field));
        place
    }

    fn put_alone(&mut self, fields: &[&[u8]], most: usize) -> Place {
        let mut alone = Vec::with_capacity(most);
        fields.iter().for_each(|field| put_bytes(&mut alone, field));
        self.held += (most + ALLOCATION_BYTES) as u64;
        let place = Place { chunk: self.chunks.len() as u32, at: 0 };
        self.chunks.push(alone.into());
        place
    }

    fn grow(&mut self, at_least: usize) {
        let share = usize::try_from(self.held / GROWTH_SHARE).unwrap_or(usize::MAX);
        let len = 1 << share.clamp(CHUNK_BYTES.start, CHUNK_BYTES.end).ilog2();
        let len = at_least.max(len);
        self.held += (len + ALLOCATION_BYTES) as u64;
        let full = std::mem::replace(&mut self.room, Vec::with_capacity(len));
        if let Some(filled) = self.filling {
            self.chunks[filled as usize] = full.into();
        }
        self.filling = Some(self.chunks.len() as u32);
        self.chunks.push(Bytes::new());
    }

    /// The key of a piece.
    #[inline]
    pub(super) fn key(&self, place: Place) -> &[u8] {
        field(&mut self.cursor(place))
    }

    /// Key and row of a piece that has one.
    pub(super) fn row(&self, place: Place) -> (ClusteringKey, EncodedRow) {
        let mut cursor = self.cursor(place);
        let (key, row) = (field(&mut cursor), field(&mut cursor));
        let (key, row) = match self.full(place) {
            Some(chunk) => (chunk.slice_ref(key), chunk.slice_ref(row)),
            None => {
                let copy = Bytes::from([key, row].concat());
                (copy.slice(..key.len()), copy.slice(key.len()..))
            }
        };
        (ClusteringKey::from_bytes(key).expect("it was a key when it was put"), EncodedRow::trusted(row))
    }

    /// The bytes of a piece's row.
    pub(super) fn row_bytes(&self, place: Place) -> &[u8] {
        let mut cursor = self.cursor(place);
        field(&mut cursor);
        field(&mut cursor)
    }

    /// The key of a partition that has this token.
    pub(super) fn partition_key(&self, token: Token, place: Place) -> PartitionKey {
        let key = self.key(place);
        let bytes = self.full(place).map_or_else(|| Bytes::copy_from_slice(key), |chunk| chunk.slice_ref(key));
        PartitionKey::with_token(token, bytes)
    }

    #[inline]
    fn cursor(&self, place: Place) -> Cursor<'_> {
        let chunk = self.full(place).map_or(&self.room[..], |chunk| chunk);
        Cursor::new("memtable", &chunk[place.at as usize..])
    }

    /// The chunk of a piece, unless it is being filled.
    #[inline]
    fn full(&self, place: Place) -> Option<&Bytes> {
        if self.filling == Some(place.chunk) { None } else { self.chunks.get(place.chunk as usize) }
    }

    /// A copy of `bytes` in memory of its own, for what few partitions have.
    pub(super) fn copy_alone(&mut self, bytes: &[u8]) -> Bytes {
        self.account(bytes.len() + ALLOCATION_BYTES);
        Bytes::copy_from_slice(bytes)
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

#[inline]
fn field<'a>(cursor: &mut Cursor<'a>) -> &'a [u8] {
    cursor.bytes().expect("the arena wrote the length itself")
}
