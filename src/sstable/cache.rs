//! Decoded blocks, kept while they are in use and there is room.
//!
//! Blocks of all files share one budget. What is read once leaves before what was asked for again, so that a scan of
//! everything does not push out what is in use; compaction reads past the cache altogether. A block's checksum is verified
//! and its entries are walked when it comes in, not each time it is looked at. Blocks of a removed file are never asked for
//! again and leave by themselves.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use uuid::Uuid;

use super::block::Block;
use super::bloom::mix;

/// Which block: the file and its number in it.
pub(super) type BlockId = (Uuid, u32);

/// A guess at the size of a block, only to size the cache's own tables.
const BLOCK_BYTES_TYPICAL: u64 = 16 * 1024;

/// What a block costs beside what it holds: its counts of owners, its entry in the cache's tables and in the queue by which
/// it leaves, and what the allocator rounds up.
pub(super) const CACHED_BLOCK_OVERHEAD_BYTES: u64 = 160;

#[derive(Clone)]
struct Bytes;

impl Weighter<BlockId, Arc<Block>> for Bytes {
    fn weight(&self, _id: &BlockId, block: &Arc<Block>) -> u64 {
        block.weight_bytes() + CACHED_BLOCK_OVERHEAD_BYTES
    }
}

/// Hashes alike in every run, so that what is evicted depends on nothing but the order of reads. The names of files are
/// digests, which nobody chooses.
#[derive(Default)]
struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        mix(self.0)
    }
}

type Hash = BuildHasherDefault<BlockHasher>;

/// Decoded blocks of all files, within a byte budget.
pub struct BlockCache {
    blocks: Cache<BlockId, Arc<Block>, Bytes, Hash>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl BlockCache {
    /// A cache of about `bytes`.
    pub fn new(bytes: u64) -> BlockCache {
        let items = usize::try_from(bytes / BLOCK_BYTES_TYPICAL).unwrap_or(usize::MAX);
        BlockCache {
            blocks: Cache::with(items, bytes, Bytes, Hash::default(), DefaultLifecycle::default()),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// (bytes held, hits, misses)
    pub fn usage(&self) -> (u64, u64, u64) {
        (self.blocks.weight(), self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }

    pub(super) fn get(&self, id: &BlockId) -> Option<Arc<Block>> {
        let found = self.blocks.get(id);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    pub(super) fn insert(&self, id: BlockId, block: Arc<Block>) {
        self.blocks.insert(id, block);
    }
}
