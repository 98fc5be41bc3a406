//! One node's data: all tables over one commit log.
//!
//! The store is passive: it owns files and memory, and the caller owns threads and time. One thread appends, syncs and
//! inserts in log order; any number read; one at a time flushes or compacts.
//!
//! ```text
//!   append(records) ─► sync() ─► insert(positions)         read(command) ─► one View per table, swapped whole
//!                                   │ over its budget: Busy               = active memtable + frozen ones + SSTables
//!                                   ▼
//!   flush_next(): frozen memtable ─► SSTable ─► manifest edit (files, flushed position, received sets) ─► log segments go
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use crate::Result;
use crate::commitlog::Position;
use crate::model::{Durability, Identity, KeyspaceId, Page, ReadCommand, Stamp, TableId};
use crate::received::ReceivedSets;
pub use crate::sstable::Access;
use crate::vfs::Vfs;
use bytes::Bytes;

/// How a store is laid out and what it may use.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The data directory.
    pub directory: PathBuf,
    /// Size of a log segment.
    pub segment_bytes: u64,
    /// Memory for all memtables together; above it [`crate::Error::Busy`] is answered, at half of it flushing begins.
    pub memtable_budget_bytes: u64,
    /// Memory for decoded blocks.
    pub cache_bytes: u64,
}

/// What a store needs to know of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    /// The table.
    pub id: TableId,
    /// Its keyspace: received sets are kept per keyspace.
    pub keyspace: KeyspaceId,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// Column ids and type codes, written into each SSTable so that it can be read by itself.
    pub columns: Vec<(crate::model::ColumnId, crate::model::Type)>,
}

/// What is in a store, for people and metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Bytes in log segments that hold records.
    pub log_bytes: u64,
    /// Bytes held by all memtables.
    pub memtable_bytes: u64,
    /// Memtables that wait for their flush.
    pub memtables_frozen: u64,
    /// Live SSTables.
    pub sstables: u64,
    /// Their size.
    pub sstable_bytes: u64,
    /// Bytes of decoded blocks held.
    pub cache_bytes: u64,
    /// Reads of blocks that were in the cache, and that were not.
    pub cache_hits: u64,
    /// See `cache_hits`.
    pub cache_misses: u64,
    /// Flushes done since the start.
    pub flushes: u64,
    /// Compactions done since the start.
    pub compactions: u64,
}

/// All tables of a node.
pub struct Store {
    _vfs: Arc<dyn Vfs>,
}

impl Store {
    /// Opens the data directory, making it if it is empty: takes its lock, refuses another node's or cluster's, reads the
    /// manifest, removes files that nothing lists, replays the log and fsyncs it. Records of tables not in `tables` are
    /// passed over, their files removed (they were dropped).
    pub fn open(
        _vfs: Arc<dyn Vfs>,
        _options: StoreOptions,
        _identity: Identity,
        _tables: &[TableSpec],
    ) -> Result<Store> {
        todo!()
    }

    /// Makes the set of tables what `tables` says: new ones begin empty, those that are gone lose their data at once.
    pub fn set_tables(&self, _tables: &[TableSpec]) -> Result<()> {
        todo!()
    }

    /// Writes records to the log; answers the end position of each, appended to `ends`. One thread at a time. `Busy` if the
    /// memtables are at their budget: then nothing was written.
    pub fn append(&self, _records: &[Bytes], _ends: &mut Vec<Position>) -> Result<()> {
        todo!()
    }

    /// Makes everything appended so far durable. Names inserted before become part of the received sets.
    pub fn sync(&self) -> Result<Position> {
        todo!()
    }

    /// Makes a logged record visible; in log order, by the thread that appended. A record of an unknown table is received
    /// without effect.
    pub fn insert(&self, _record: &Bytes, _end: Position) -> Result<()> {
        todo!()
    }

    /// Answers a read from one view of the table.
    pub fn read(&self, _command: &ReadCommand, _access: Access) -> Result<Page> {
        todo!()
    }

    /// Whether memtables hold more than half their budget, or the log pins too many segments: it is time to flush.
    pub fn wants_flush(&self) -> bool {
        todo!()
    }

    /// Freezes and flushes the memtable that frees most, whatever its size; `false` if all are empty.
    pub fn flush_next(&self) -> Result<bool> {
        todo!()
    }

    /// Freezes and flushes every memtable, or those of one table.
    pub fn flush(&self, _table: Option<TableId>) -> Result<()> {
        todo!()
    }

    /// Merges all files of the table that has most of them, if that is enough to be worth it; whether it did anything.
    pub fn compact_next(&self) -> Result<bool> {
        todo!()
    }

    /// The received sets: what is fsynced and inserted.
    pub fn received(&self) -> ReceivedSets {
        todo!()
    }

    /// The largest stamp seen in any record or file; the clock of a new run starts behind it.
    pub fn last_stamp(&self) -> Stamp {
        todo!()
    }

    /// Numbers for people and metrics.
    pub fn status(&self) -> StoreStatus {
        todo!()
    }
}
