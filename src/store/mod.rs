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
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::Result;
use crate::commitlog::CommitLog;
use crate::model::{ColumnId, CompactionOptions, Durability, Identity, KeyspaceId, TableId, Type};
pub use crate::sstable::Access;
use crate::sstable::BlockCache;
use crate::vfs::{Lock, Vfs};
pub use check::CheckReport;
use manifest::Manifest;
use memory::{Memory, Tables};
pub use stopped::Stopped;
use table::Table;

mod change;
mod check;
mod compact;
mod flush;
mod identity;
mod manifest;
mod memory;
mod names;
mod point;
mod read;
mod recovery;
mod stopped;
mod table;
#[cfg(test)]
mod tests;
mod view;
mod write;

/// Where SSTables are, within the data directory.
const DATA_DIRECTORY: &str = "data";
/// Where log segments are, within the data directory.
const LOG_DIRECTORY: &str = "log";

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
    /// How far behind its stamp a write's timestamp may lie, in seconds.
    pub lateness_s: u32,
    /// How its files are compacted.
    pub compaction: CompactionOptions,
    /// Column ids and type codes, written into each SSTable so that it can be read by itself.
    pub columns: Vec<(ColumnId, Type)>,
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
///
/// Locks, in the order in which they nest: `flushing` or `compacting`, `manifest`, a table's, `names`; `log`, `names`.
pub struct Store {
    vfs: Arc<dyn Vfs>,
    options: StoreOptions,
    identity: Identity,
    /// What the log's records became.
    memory: Memory,
    log: Mutex<CommitLog>,
    manifest: Mutex<Manifest>,
    cache: Arc<BlockCache>,
    /// Held by the one flush at a time.
    flushing: Mutex<()>,
    /// Held by the one compaction at a time.
    compacting: Mutex<()>,
    flushes: AtomicU64,
    compactions: AtomicU64,
    /// The directory is this process's own until the last.
    _lock: Box<dyn Lock>,
}

impl Store {
    /// Makes the set of tables what `tables` says: new ones begin empty, those that are gone lose their data at once.
    pub fn set_tables(&self, tables: &[TableSpec]) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let present = self.memory.tables.load_full();
        let mut next = Tables::new();
        for spec in tables {
            let table = present.get(&spec.id).cloned();
            let table = table.unwrap_or_else(|| Arc::new(Table::new(spec.clone(), Vec::new(), Default::default())));
            next.insert(spec.id, table);
        }
        let gone = present.keys().filter(|id| !next.contains_key(id));
        let changes: Vec<_> = gone.clone().flat_map(|id| manifest.state().without_table(*id)).collect();
        if !changes.is_empty() {
            manifest.commit(changes)?;
        }
        let gone: Vec<_> = gone.filter_map(|id| present.get(id)).collect();
        for spec in tables {
            if let Some(table) = next.get(&spec.id) {
                table.set_spec(spec.clone());
            }
        }
        self.memory.tables.store(Arc::new(next));
        // Readers that hold a file read on.
        for file in gone.iter().flat_map(|table| table.view().files.clone()) {
            self.remove_file(&self.file_path(file.meta.id));
        }
        Ok(())
    }

    /// Bytes held by all memtables.
    fn memtable_bytes(&self) -> u64 {
        self.memory.tables.load().values().map(|table| table.view().memtable_bytes()).sum()
    }

    /// Numbers for people and metrics.
    pub fn status(&self) -> StoreStatus {
        let (cache_bytes, cache_hits, cache_misses) = self.cache.usage();
        let mut status = StoreStatus {
            log_bytes: self.log.lock().bytes(),
            cache_bytes,
            cache_hits,
            cache_misses,
            flushes: self.flushes.load(Ordering::Relaxed),
            compactions: self.compactions.load(Ordering::Relaxed),
            ..StoreStatus::default()
        };
        for table in self.memory.tables.load().values() {
            let view = table.view();
            status.memtable_bytes += view.memtable_bytes();
            status.memtables_frozen += view.frozen.len() as u64;
            status.sstables += view.files.len() as u64;
            status.sstable_bytes += view.files.iter().map(|file| file.meta.bytes).sum::<u64>();
        }
        status
    }
}
