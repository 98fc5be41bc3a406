//! One entry per block: where it begins in the order of partitions and rows, and where it stands in the file.
//!
//! ```text
//! index    entry ... | offset of each entry within the index u32 ... | count u32
//! entry    token i64 | key length varint, key | place length varint, place | block offset varint, block length varint
//! place    the clustering key or bound of the block's first entry; empty: it is the partition's header
//! ```
//!
//! Entries ascend by (token, key, place), and the empty place comes before every other, so that one binary search finds
//! the block of a partition as well as the block of a row in a wide partition. It is searched as it stands in the file.

use std::cmp::Ordering;

use bytes::Bytes;

use crate::codec::varint::{Cursor, put_bytes, put_varint};
use crate::model::{PartitionKey, Token};
use crate::{Corrupt, Error, Result};

const WHAT: &str = "SSTable index";
const COUNT_BYTES: usize = 4;
const OFFSET_BYTES: usize = 4;

/// An index that is being written.
#[derive(Default)]
pub(super) struct IndexBuilder {
    bytes: Vec<u8>,
    offsets: Vec<u32>,
}

impl IndexBuilder {
    /// Adds the next block.
    pub(super) fn push(&mut self, key: &PartitionKey, place: &[u8], offset: u64, len: u32) -> Result<()> {
        let at = u32::try_from(self.bytes.len())
            .map_err(|_| Error::invalid("SSTable index", "it would exceed 4 GiB; write smaller files"))?;
        self.offsets.push(at);
        self.bytes.extend_from_slice(&key.token().0.to_le_bytes());
        put_bytes(&mut self.bytes, key.bytes());
        put_bytes(&mut self.bytes, place);
        put_varint(&mut self.bytes, offset);
        put_varint(&mut self.bytes, u64::from(len));
        Ok(())
    }

    /// How many blocks were added.
    pub(super) fn count(&self) -> u32 {
        self.offsets.len() as u32
    }

    /// The section's bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let count = self.count();
        for offset in self.offsets {
            self.bytes.extend_from_slice(&offset.to_le_bytes());
        }
        self.bytes.extend_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

/// The index of an open file.
pub(super) struct Index {
    bytes: Bytes,
    offsets_at: usize,
    count: u32,
    /// Where the blocks end in the file.
    blocks_end: u64,
}

/// One block as the index knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexEntry<'a> {
    pub(super) token: Token,
    pub(super) key: &'a [u8],
    pub(super) place: &'a [u8],
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl IndexEntry<'_> {
    /// What entries ascend by.
    pub(super) fn order(&self) -> (Token, &[u8], &[u8]) {
        (self.token, self.key, self.place)
    }
}

impl Index {
    /// Takes a section's bytes, whose checksum was verified. Blocks lie below `blocks_end`.
    pub(super) fn open(bytes: Bytes, blocks_end: u64) -> Result<Index> {
        let (rest, count) = bytes.split_last_chunk::<COUNT_BYTES>().ok_or_else(|| corrupt("it has no count"))?;
        let count = u32::from_le_bytes(*count);
        let offsets_at = (count as usize)
            .checked_mul(OFFSET_BYTES)
            .and_then(|len| rest.len().checked_sub(len))
            .ok_or_else(|| corrupt("it is shorter than its count says"))?;
        Ok(Index { bytes, offsets_at, count, blocks_end })
    }

    /// How many blocks there are.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The entry of a block; `block` is below the count.
    pub(super) fn entry(&self, block: u32) -> Result<IndexEntry<'_>> {
        let mut cursor = Cursor::new(WHAT, self.at(block).ok_or_else(|| corrupt(format!("it has no entry {block}")))?);
        let (token, key, place) = (Token(cursor.i64()?), cursor.bytes()?, cursor.bytes()?);
        let (offset, len) = (cursor.varint()?, cursor.varint()?);
        match (u32::try_from(len), offset.checked_add(len)) {
            (Ok(len), Some(end)) if end <= self.blocks_end => Ok(IndexEntry { token, key, place, offset, len }),
            _ => Err(corrupt(format!("block {block} ends behind the last block")).into()),
        }
    }

    /// Where the blocks end in the file.
    pub(super) fn blocks_end(&self) -> u64 {
        self.blocks_end
    }

    /// As [`Index::leading`], where every block that begins before `token` is wanted and none behind it: only those that
    /// begin at the token are decoded and asked about.
    pub(super) fn leading_near(&self, token: Token, wanted: impl Fn(&IndexEntry<'_>) -> bool) -> Result<u32> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let is_wanted = match self.token(middle)?.cmp(&token) {
                Ordering::Less => true,
                Ordering::Equal => wanted(&self.entry(middle)?),
                Ordering::Greater => false,
            };
            if is_wanted {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The token at which a block begins; `block` is below the count.
    fn token(&self, block: u32) -> Result<Token> {
        let bytes = self.at(block).and_then(|bytes| bytes.first_chunk());
        let bytes = bytes.ok_or_else(|| corrupt(format!("it has no entry {block}")))?;
        Ok(Token(i64::from_le_bytes(*bytes)))
    }

    /// The bytes from an entry on.
    fn at(&self, block: u32) -> Option<&[u8]> {
        let slots = &self.bytes[self.offsets_at..self.bytes.len() - COUNT_BYTES];
        let at = u32::from_le_bytes(*slots.as_chunks::<OFFSET_BYTES>().0.get(block as usize)?);
        self.bytes.get(at as usize..self.offsets_at)
    }

    /// How many blocks from the first on satisfy `wanted`, which must hold for a leading run of them only.
    pub(super) fn leading(&self, wanted: impl Fn(&IndexEntry<'_>) -> bool) -> Result<u32> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if wanted(&self.entry(middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

fn corrupt(reason: impl Into<String>) -> Corrupt {
    Corrupt::new(WHAT, reason)
}
