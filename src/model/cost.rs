//! What a read has touched, as numbers: for the request that asks, the log of slow operations, and metrics.
//!
//! Whoever touches something adds it to a plain number of its own; the numbers are gathered once, when the page is done.
//! So counting takes neither an allocation nor a shared counter.

use std::ops::AddAssign;

/// What one read, or several together, have touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadCost {
    /// Files in which something was looked for.
    pub sstables_read: u64,
    /// Files that filter, index or bounds showed to hold nothing that matters.
    pub sstables_skipped: u64,
    /// Blocks that were in the cache.
    pub blocks_cached: u64,
    /// Blocks that were read from files.
    pub blocks_read: u64,
    /// Their bytes, as they are stored.
    pub bytes_read: u64,
    /// Versions of rows taken from memtables and files, before they were merged.
    pub rows: u64,
    /// Tombstones in what was merged: deletions of partitions, ranges and rows, and cells that are deleted or expired.
    pub tombstones: u64,
}

impl AddAssign for ReadCost {
    fn add_assign(&mut self, other: ReadCost) {
        self.sstables_read += other.sstables_read;
        self.sstables_skipped += other.sstables_skipped;
        self.blocks_cached += other.blocks_cached;
        self.blocks_read += other.blocks_read;
        self.bytes_read += other.bytes_read;
        self.rows += other.rows;
        self.tombstones += other.tombstones;
    }
}
