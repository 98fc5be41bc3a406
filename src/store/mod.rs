//! One node's data: all tables over one commit log.
//!
//! The store is passive: it owns files and memory, and the caller owns threads and time. One thread appends, syncs and
//! inserts in log order; any number read; one at a time flushes; any number compact.
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

use crate::commitlog::CommitLog;
use crate::model::{ColumnId, CompactionOptions, Durability, Identity, KeyspaceId, LiveColumns, Order, TableId, Type};
use crate::snapshot::TableLabel;
pub use crate::sstable::Access;
use crate::sstable::{BlockCache, PartitionWatch};
use crate::vfs::{Lock, Vfs};
pub use backlog::{CompactionStatus, OVERLAP_MAX, RunningCompaction, TableFiles};
pub use check::CheckReport;
use compacting::Compacting;
pub use load::{Expected, Loader};
use manifest::Manifest;
use memory::Memory;
pub use quarantine::QuarantinedFile;
use scrub::Scrub;
pub use scrub::ScrubStatus;
use snapshots::Snapshots;
pub use snapshots::{BeforeDrop, SnapshotList, SnapshotOptions, SnapshotScope, backup_snapshot_name};
pub use stopped::Stopped;
pub use withdraw::Cleared;

mod archive;
mod backlog;
mod change;
mod check;
mod compact;
mod compacting;
pub mod digest;
mod flush;
mod identity;
mod leaving;
mod limits;
mod load;
mod manifest;
mod memory;
mod names;
mod page;
mod point;
mod quarantine;
mod read;
mod recovery;
mod replication;
mod scrub;
mod snapshots;
mod stopped;
mod straight;
mod table;
#[cfg(test)]
mod tests;
mod view;
mod weave;
mod withdraw;
mod write;

/// Where SSTables are, within the data directory.
const DATA_DIRECTORY: &str = "data";
/// Where log segments are, within the data directory.
const LOG_DIRECTORY: &str = "log";
/// Where snapshots are, within the data directory.
const SNAPSHOTS_DIRECTORY: &str = "snapshots";

/// How a store is laid out and what it may use.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The data directory.
    pub directory: PathBuf,
    /// Size of a log segment.
    pub segment_bytes: u64,
    /// Bytes of log segments that are kept only because other replicas may lack names in them, or an archive lacks them.
    pub log_kept_bytes_max: u64,
    /// Memory for all memtables together; above it [`crate::Error::Busy`] is answered, at half of it flushing begins.
    pub memtable_budget_bytes: u64,
    /// Memory for decoded blocks.
    pub cache_bytes: u64,
    /// What becomes of the data of tables that go.
    pub snapshots: SnapshotOptions,
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
    /// Whether all that was written to it is in it.
    pub content: Content,
    /// Types and orders of the clustering columns: which reads are of one row.
    pub clustering: Vec<(Type, Order)>,
    /// Column ids and type codes, written into each SSTable so that it can be read by itself.
    pub columns: Vec<(ColumnId, Type)>,
    /// The columns whose cells count; `None`: all, since no column of the table was ever dropped. Whoever rewrites data
    /// leaves the others out ([`crate::codec::EncodedRow::without_dropped`]).
    pub live: Option<LiveColumns>,
    /// What people call it, and its definition: snapshots carry it, nothing else looks at it.
    pub label: TableLabel,
}

/// Whether a table has what belongs into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Content {
    /// It has.
    #[default]
    Whole,
    /// It is being loaded ([`Store::load`]): what comes later may be older than what is there, so nothing of it is purged.
    Loading,
}

/// What is in a store, for people and metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Bytes in log segments that a start would replay.
    pub log_bytes: u64,
    /// Bytes in log segments that are kept for other replicas or an archive only.
    pub log_kept_bytes: u64,
    /// Bytes of the log that are not archived, if there is an archive.
    pub log_unarchived_bytes: u64,
    /// Log segments that went since the start though the archive lacked them: it has a gap there.
    pub log_unarchived_lost: u64,
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
    /// Partitions that were too large to say nothing when they were written to a file.
    pub large_partitions: u64,
    /// Listed files that answer nothing.
    pub sstables_quarantined: u64,
    /// Vnodes of keyspaces that are being rebuilt from other replicas, and not read here until then.
    pub slices_withdrawn: u64,
    /// Snapshots, damaged ones included.
    pub snapshots: u64,
    /// Bytes of files that only snapshots hold: removing all of them frees so much.
    pub snapshot_only_bytes: u64,
    /// Tables that are gone and whose data has not followed yet.
    pub tables_leaving: u64,
}

/// All tables of a node.
///
/// Locks, in the order in which they nest: `snapshots.changing`, `flushing` or `compacting`, `manifest`, `memory.leaving`, a
/// table's, `names`; `compacting`, `log`, `names`.
pub struct Store {
    vfs: Arc<dyn Vfs>,
    options: StoreOptions,
    identity: Identity,
    /// What the log's records became.
    memory: Memory,
    log: Mutex<CommitLog>,
    manifest: Mutex<Manifest>,
    cache: Arc<BlockCache>,
    partitions: Arc<PartitionWatch>,
    /// Held by the one flush at a time.
    flushing: Mutex<()>,
    compacting: Compacting,
    flushes: AtomicU64,
    compactions: AtomicU64,
    loads: AtomicU64,
    snapshots: Snapshots,
    scrub: Scrub,
    /// The directory is this process's own until the last.
    _lock: Box<dyn Lock>,
}

impl Store {
    /// Bytes held by all memtables.
    fn memtable_bytes(&self) -> u64 {
        self.memory.memtable_bytes()
    }

    /// From now on partitions of more bytes or rows are told of, in the log and in [`StoreStatus`], when a flush or a
    /// compaction writes them to a file.
    pub fn watch_partitions(&self, bytes_warn: u64, rows_warn: u64) {
        self.partitions.watch(bytes_warn, rows_warn);
    }

    /// Numbers for people and metrics.
    pub fn status(&self) -> StoreStatus {
        let (cache_bytes, cache_hits, cache_misses) = self.cache.usage();
        let mut status = StoreStatus {
            cache_bytes,
            cache_hits,
            cache_misses,
            flushes: self.flushes.load(Ordering::Relaxed),
            compactions: self.compactions.load(Ordering::Relaxed),
            large_partitions: self.partitions.large(),
            ..StoreStatus::default()
        };
        let log = self.log.lock();
        (status.log_bytes, status.log_kept_bytes) = (log.bytes(), log.kept_bytes());
        (status.log_unarchived_bytes, status.log_unarchived_lost) = (log.unarchived_bytes(), log.unarchived_lost());
        drop(log);
        status.slices_withdrawn = self.memory.withdrawn.load().len() as u64;
        status.tables_leaving = self.memory.leaving.lock().len() as u64;
        let snapshots = self.snapshots.list();
        status.snapshots = (snapshots.whole.len() + snapshots.damaged.len()) as u64;
        let mut only_kept = snapshots.files();
        for table in self.memory.holders() {
            let view = table.view();
            only_kept.retain(|id, _| !view.files.iter().any(|file| file.meta.id == *id));
            status.memtable_bytes += view.memtable_bytes();
            status.memtables_frozen += view.frozen.len() as u64;
            status.sstables_quarantined += view.quarantined.len() as u64;
            status.sstables += view.files.len() as u64;
            status.sstable_bytes += view.files.iter().map(|file| file.meta.bytes).sum::<u64>();
        }
        status.snapshot_only_bytes = only_kept.values().sum();
        status
    }
}
