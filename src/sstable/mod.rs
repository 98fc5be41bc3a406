//! Sorted string tables: immutable files, one per flush or compaction.
//!
//! ```text
//! file     header | block ... | index | bloom filter | statistics | vnode directory | footer
//! header   magic 8 | version u32 | file uuid 16 | crc u32
//! block    compressed body | crc32 u32 (over the body, salted with uuid and offset)
//! ```
//!
//! A block decodes by itself: it begins with the header of the partition it starts in, the clustering place it starts
//! at and the range deletion in force there, so that one index (an entry per block, ordered by token, key and clustering
//! place) serves as partition index and, inside wide partitions, as row index.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use crate::Result;
use crate::codec::EncodedRow;
use crate::model::{Direction, Fragment, PartitionKey, ScanRange, Slice, Stamp, Stream, TableId, VnodeBits};
use crate::vfs::Vfs;

/// What a finished file is, as the manifest lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SstableMeta {
    /// Names the file.
    pub id: Uuid,
    /// The table.
    pub table: TableId,
    /// Length of the file.
    pub bytes: u64,
    /// SHA-256 of the whole file.
    pub hash: [u8; 32],
    /// Stamp bounds of the records it was made of.
    pub stamps: (Stamp, Stamp),
}

/// Writes a file, once, in order.
pub struct Builder {}

/// What a builder must know beforehand.
#[derive(Debug, Clone)]
pub struct BuilderOptions {
    /// The directory; the file is called `<uuid>.sst`.
    pub directory: PathBuf,
    /// The file's identity.
    pub id: Uuid,
    /// The table.
    pub table: TableId,
    /// Column ids and type codes.
    pub columns: Vec<(crate::model::ColumnId, crate::model::Type)>,
    /// For the vnode directory.
    pub vnode_bits: VnodeBits,
    /// Stamp bounds of the records in it.
    pub stamps: (Stamp, Stamp),
    /// How many partitions to size the bloom filter for.
    pub expected_partitions: u64,
}

impl Builder {
    /// Begins a file.
    pub fn create(_vfs: &dyn Vfs, _options: BuilderOptions) -> Result<Builder> {
        todo!()
    }

    /// Adds the next fragment; forward order, with the invariants of `model::fragment`.
    pub fn add(&mut self, _fragment: &Fragment<EncodedRow>) -> Result<()> {
        todo!()
    }

    /// Bytes of blocks written so far.
    pub fn bytes(&self) -> u64 {
        todo!()
    }

    /// Writes index, filter, statistics and footer and makes the file durable (its name is durable after `sync_dir`).
    pub fn finish(self) -> Result<SstableMeta> {
        todo!()
    }
}

/// An open file.
pub struct Sstable {}

/// Whether a read may go to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Answer from memory, or [`crate::Error::NotCached`]: for threads that must not block.
    CachedOnly,
    /// Read missing blocks from their files.
    Disk,
}

/// Decoded blocks of all files, within a byte budget.
pub struct BlockCache {}

impl BlockCache {
    /// A cache of about `bytes`.
    pub fn new(_bytes: u64) -> BlockCache {
        todo!()
    }

    /// (bytes held, hits, misses)
    pub fn usage(&self) -> (u64, u64, u64) {
        todo!()
    }
}

impl Sstable {
    /// Opens a file and checks header, footer, index, filter and statistics against their checksums.
    pub fn open(_vfs: &dyn Vfs, _path: &Path, _cache: Arc<BlockCache>) -> Result<Sstable> {
        todo!()
    }

    /// What the manifest says of it (the hash as recorded in the manifest is not checked here: see `verify`).
    pub fn id(&self) -> Uuid {
        todo!()
    }

    /// The partition's header, and its rows and range changes within `slices`, in `direction`; nothing if the filter or
    /// the index says that the file holds nothing of the partition.
    pub fn partition(
        self: &Arc<Self>,
        _key: &PartitionKey,
        _slices: &[Slice],
        _direction: Direction,
        _access: Access,
    ) -> Result<Option<Box<dyn Stream<EncodedRow> + Send>>> {
        todo!()
    }

    /// Every partition of the range, in order, each within `slices` in `direction`.
    pub fn scan(
        self: &Arc<Self>,
        _range: ScanRange,
        _slices: &[Slice],
        _direction: Direction,
        _access: Access,
    ) -> Result<Box<dyn Stream<EncodedRow> + Send>> {
        todo!()
    }

    /// All of it, forward, read block by block without going through the cache: for compaction.
    pub fn read_through(self: &Arc<Self>) -> Result<Box<dyn Stream<EncodedRow> + Send>> {
        todo!()
    }

    /// Reads every byte and compares it with every checksum and with `hash`.
    pub fn verify(&self, _hash: &[u8; 32]) -> Result<()> {
        todo!()
    }
}
