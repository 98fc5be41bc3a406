//! Sorted string tables: immutable files, one per flush or compaction.
//!
//! ```text
//! file        header | block ... | index | bloom filter | statistics | vnode directory | footer
//! header      magic, version, the file's uuid, crc                                          format.rs
//! block       body, compressed (codec/compress.rs) | crc32 u32, bound to uuid and offset    block.rs
//! index       per block: token, key and place of its first entry; offset, length            index.rs
//! filter      ten bits for each partition and row, in lines of 64 bytes                     filter.rs, bloom.rs
//! statistics  counts and bounds                                                             stats.rs
//! directory   per vnode: range of blocks, partitions, rows                                  vnodes.rs
//! footer      offset, length and crc of each section, crc, magic                            format.rs
//! ```
//!
//! ```text
//! partition, scan ──► rows ──► blocks ──► cache of decoded blocks ──► file        read_through: past the cache
//! ```
//!
//! A block decodes by itself: one that begins inside a partition says which, whether that is deleted, where its static
//! row stands, and the range deletion in force. So one index (an entry per block, ordered by token, key and clustering
//! place) serves as partition index and, inside wide partitions, as row index.
//!
//! **Invariant:** whatever a stream leaves out lies outside the partitions and slices that were asked for. The filter (by
//! partition and row) and the index (by exact place) decide which blocks are read; whole files are passed over by `skip.rs` alone.

mod block;
mod blocks;
mod bloom;
mod builder;
mod cache;
mod filter;
mod format;
mod glance;
mod index;
mod order;
mod partitions;
mod plain;
mod reader;
mod rows;
mod scan;
mod skip;
mod stats;
mod verify;
mod vnodes;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use uuid::Uuid;

pub use self::builder::Builder;
pub use self::cache::BlockCache;
pub use self::filter::RowHash;
pub use self::partitions::PartitionWatch;
pub use self::plain::{Plain, PlainRows, Progress, Reached, RowsAhead};
pub use self::reader::Sstable;
pub use self::scan::PartitionStream;
pub use self::stats::{Stats, put_columns, read_columns};
pub use self::vnodes::{VnodeDirectory, VnodeSpan};
use crate::Result;
use crate::codec::EncodedRow;
use crate::codec::varint::{Reader, put_varint};
use crate::model::{ColumnId, Stamp, Stream, TableId, Type, VnodeBits};

/// Size at which a block is full unless somebody asks for another, in bytes before compression.
pub const BLOCK_BYTES: usize = 16 * 1024;

/// Largest block, in bytes before compression: room for any row within the limits of a mutation, merged many times over.
const BLOCK_BYTES_MAX: usize = 1 << 30;

/// What is read at a time where everything is read, in bytes.
const READ_AHEAD_BYTES: usize = 256 << 10;

/// What a reader of a file yields.
pub type FragmentStream = Box<dyn Stream<EncodedRow> + Send>;

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

impl SstableMeta {
    /// Appends what a manifest says of the file.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.id.as_bytes());
        out.extend(self.table.0.as_bytes());
        put_varint(out, self.bytes);
        out.extend(self.hash);
        out.extend(self.stamps.0.0.to_le_bytes());
        out.extend(self.stamps.1.0.to_le_bytes());
    }

    /// Reads what [`SstableMeta::put`] wrote.
    pub fn read(reader: &mut Reader) -> Result<SstableMeta> {
        Ok(SstableMeta {
            id: Uuid::from_bytes(reader.array()?),
            table: TableId(Uuid::from_bytes(reader.array()?)),
            bytes: reader.varint()?,
            hash: reader.array()?,
            stamps: (Stamp(reader.i64()?), Stamp(reader.i64()?)),
        })
    }
}

/// What a builder must know beforehand.
#[derive(Debug, Clone)]
pub struct BuilderOptions {
    /// The directory; the file is called as [`file_name`] says.
    pub directory: PathBuf,
    /// The file's identity.
    pub id: Uuid,
    /// The table.
    pub table: TableId,
    /// Column ids and type codes.
    pub columns: Vec<(ColumnId, Type)>,
    /// For the vnode directory.
    pub vnode_bits: VnodeBits,
    /// Stamp bounds of the records in it.
    pub stamps: (Stamp, Stamp),
    /// How many partitions to make room for in the filter: better too many than too few.
    pub expected_partitions: u64,
    /// The same for rows.
    pub expected_rows: u64,
    /// Size at which a block is full, in bytes before compression; [`BLOCK_BYTES`] unless there is a reason. A row that is
    /// larger makes a larger block.
    pub block_bytes: usize,
}

/// Whether a read may go to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Answer from memory, or [`crate::Error::NotCached`]: for threads that must not block.
    CachedOnly,
    /// Read missing blocks from their files.
    Disk,
}

/// The name of a file in its directory: `<uuid>.sst`.
pub fn file_name(id: Uuid) -> String {
    format!("{id}.sst")
}
