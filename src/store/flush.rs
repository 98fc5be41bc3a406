//! Memtables become files, and the log that held them may go.
//!
//! ```text
//! freeze at position P ─► SSTable, synced ─► log synced ─► one manifest edit: the file, flushed up to P,
//!                                                          received sets, replay from D ─► view swapped ─► log before D goes
//! ```
//!
//! D is the least position before which the log holds nothing that is not in a file: the least beginning of all
//! memtables that are left, or, where none is, what is inserted. A table without unflushed data therefore never pins the
//! log (B044, B097). The sets in the edit hold every name before D, since the log was synced before they were taken.
//!
//! **Invariant:** log segments go only behind a durable edit. When anything fails before it, the memtable stays frozen,
//! the log stays, and the next flush begins with that memtable (B028, B116).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Store;
use super::change::Change;
use super::table::Table;
use super::view::{Frozen, LiveFile, View};
use crate::commitlog::Position;
use crate::compaction;
use crate::model::{Direction, ScanRange, Slice, Stamp, TableId};
use crate::sstable::{BLOCK_BYTES, Builder, BuilderOptions, FragmentStream, Sstable, SstableMeta, file_name};
use crate::{Error, Result};

/// The log asks for a flush when it is this many times as large as the memtables may be: then old records of rarely
/// written tables hold it, and replay would take long.
const LOG_BYTES_PER_BUDGET: u64 = 2;

/// Nor does it ask before it has this many segments: a flush frees whole ones.
const LOG_SEGMENTS_LEAST: u64 = 4;

/// A row takes no less of a memtable, its key and handles included. More may be expected of a file than comes.
const ROW_IN_MEMORY_LEAST_BYTES: u64 = 48;

impl Store {
    /// Whether memtables hold more than half their budget, or the log pins too many segments: it is time to flush.
    pub fn wants_flush(&self) -> bool {
        self.memtable_bytes() > self.options.memtable_budget_bytes / 2
            || (self.log_is_long() && self.memory.tables.load().values().any(|table| table.view().has_unflushed()))
    }

    fn log_is_long(&self) -> bool {
        let most = self.options.memtable_budget_bytes.saturating_mul(LOG_BYTES_PER_BUDGET);
        self.log.lock().bytes() > most.max(self.options.segment_bytes.saturating_mul(LOG_SEGMENTS_LEAST))
    }

    /// Freezes and flushes the memtable that frees most, whatever its size; `false` if all are empty. What waits since a
    /// flush that failed comes first; when the log is long, the table that holds its oldest segment.
    pub fn flush_next(&self) -> Result<bool> {
        let _one_at_a_time = self.flushing.lock();
        let tables = self.memory.tables.load_full();
        let waiting = tables.values().find(|table| !table.view().frozen.is_empty());
        let next = waiting.or_else(|| {
            let unflushed = tables.values().filter(|table| table.view().has_unflushed());
            if self.log_is_long() {
                unflushed.min_by_key(|table| table.unflushed_from(None))
            } else {
                unflushed.max_by_key(|table| table.view().memtable_bytes())
            }
        });
        let Some(table) = next else { return Ok(false) };
        if table.view().frozen.is_empty() {
            table.freeze();
        }
        self.flush_frozen(table)?;
        Ok(true)
    }

    /// Freezes and flushes every memtable, or those of one table.
    pub fn flush(&self, table: Option<TableId>) -> Result<()> {
        let _one_at_a_time = self.flushing.lock();
        let tables = self.memory.tables.load_full();
        if let Some(unknown) = table.filter(|id| !tables.contains_key(id)) {
            return Err(Error::UnknownTable { table: unknown });
        }
        for (_, table) in tables.iter().filter(|(id, _)| table.is_none_or(|only| only == **id)) {
            self.flush_whole(table)?;
        }
        self.release_log()
    }

    /// Flushes whatever a table holds in memory; it may be one that leaves.
    pub(super) fn flush_table(&self, table: &Arc<Table>) -> Result<()> {
        let _one_at_a_time = self.flushing.lock();
        self.flush_whole(table)
    }

    fn flush_whole(&self, table: &Arc<Table>) -> Result<()> {
        self.flush_frozen(table)?;
        table.freeze();
        self.flush_frozen(table)
    }

    /// Flushes what is frozen of a table, oldest first.
    fn flush_frozen(&self, table: &Arc<Table>) -> Result<()> {
        table.view().frozen.iter().try_for_each(|frozen| self.flush_one(table, frozen))
    }

    fn flush_one(&self, table: &Arc<Table>, frozen: &Arc<Frozen>) -> Result<()> {
        let all = frozen.memtable.scan(ScanRange::default(), &[Slice::all()], Direction::Forward);
        let expected = (frozen.memtable.partitions(), frozen.memtable.bytes() / ROW_IN_MEMORY_LEAST_BYTES);
        let file = self.build(table, frozen.stamps, expected, vec![all])?;
        let release = self.release_changes(Some(frozen));
        let (mut changes, replay_from) = release.inspect_err(|_| self.remove_file(&self.file_path(file.meta.id)))?;
        changes.push(Change::FileAdded(file.meta.clone()));
        changes.push(Change::Flushed(table.spec().id, frozen.up_to));
        let bytes = file.meta.bytes;
        if !self.make_live(table, file, changes, |view, file| view.with_flushed(frozen, file))? {
            return Ok(());
        }
        table.work.flushed(bytes);
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.log.lock().discard_before(replay_from)
    }

    /// Merges `sources` into a new file of the table and opens it; nothing is left of it after an error.
    pub(super) fn build(
        &self,
        table: &Table,
        stamps: (Stamp, Stamp),
        (expected_partitions, expected_rows): (u64, u64),
        sources: Vec<FragmentStream>,
    ) -> Result<Arc<LiveFile>> {
        let spec = table.spec();
        let id = self.next_file_id(stamps);
        let options = BuilderOptions {
            directory: self.data_directory(),
            id,
            table: spec.id,
            columns: spec.columns.clone(),
            vnode_bits: self.identity.vnode_bits,
            stamps,
            expected_partitions,
            expected_rows,
            block_bytes: BLOCK_BYTES,
        };
        let finish = || -> Result<LiveFile> {
            let meta =
                compaction::merge(sources, Builder::create(&*self.vfs, options)?.watched(self.partitions.clone()))?;
            self.vfs.sync_dir(&self.data_directory())?;
            self.open_file(meta)
        };
        finish().map(Arc::new).inspect_err(|_| self.remove_file(&self.file_path(id)))
    }

    /// Lists a new file by an edit and swaps the view. Whether it is live: not if its table was dropped meanwhile.
    pub(super) fn make_live(
        &self,
        table: &Arc<Table>,
        file: Arc<LiveFile>,
        changes: Vec<Change>,
        view: impl FnOnce(&View, Arc<LiveFile>) -> View,
    ) -> Result<bool> {
        let mut manifest = self.manifest.lock();
        if !self.memory.holders().iter().any(|holder| Arc::ptr_eq(holder, table)) {
            self.memory.names.lock().not_saved(&changes);
            self.remove_file(&self.file_path(file.meta.id));
            return Ok(false);
        }
        if let Err(error) = manifest.commit(changes.clone()) {
            self.memory.names.lock().not_saved(&changes);
            manifest.remove_once_settled(self.file_path(file.meta.id));
            return Err(error);
        }
        table.change_view(|present| view(present, file));
        Ok(true)
    }

    /// Lets segments go that no memtable needs, where no flush does it: after a restart, after a table was dropped, or
    /// after a flush could not.
    pub(super) fn release_log(&self) -> Result<()> {
        let saved = self.manifest.lock().state().replay_from;
        if self.replay_from(None).segment <= saved.segment {
            return self.log.lock().discard_before(saved);
        }
        let (changes, replay_from) = self.release_changes(None)?;
        let outcome = self.manifest.lock().commit(changes.clone());
        if let Err(error) = outcome {
            self.memory.names.lock().not_saved(&changes);
            return Err(error);
        }
        self.log.lock().discard_before(replay_from)
    }

    /// What an edit must say so that the log before the answered position may go, once `flushed` is in a file.
    fn release_changes(&self, flushed: Option<&Arc<Frozen>>) -> Result<(Vec<Change>, Position)> {
        let replay_from = self.replay_from(flushed);
        self.sync()?;
        let mut changes = self.memory.names.lock().take_unsaved();
        changes.push(Change::ReplayFrom(replay_from));
        Ok((changes, replay_from))
    }

    /// The position before which the log holds nothing that is not in a file, counting `flushed` as one.
    fn replay_from(&self, flushed: Option<&Arc<Frozen>>) -> Position {
        // First this, then the tables: what is inserted meanwhile begins behind it.
        let inserted = self.memory.names.lock().inserted();
        let holders = self.memory.holders();
        holders.iter().filter_map(|table| table.unflushed_from(flushed)).fold(inserted, Position::min)
    }

    /// A name for a file: a digest of what no other file of any cluster has in common with it.
    pub(super) fn next_file_id(&self, stamps: (Stamp, Stamp)) -> Uuid {
        let number = self.manifest.lock().next_file();
        let mut digest = Sha256::new();
        digest.update(self.identity.cluster.as_bytes());
        digest.update(self.identity.node.0.to_le_bytes());
        digest.update(number.to_le_bytes());
        digest.update(stamps.0.0.to_le_bytes());
        digest.update(stamps.1.0.to_le_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.finalize()[..16]);
        uuid::Builder::from_custom_bytes(bytes).into_uuid()
    }

    pub(super) fn data_directory(&self) -> PathBuf {
        self.options.directory.join(super::DATA_DIRECTORY)
    }

    pub(super) fn file_path(&self, id: Uuid) -> PathBuf {
        self.data_directory().join(file_name(id))
    }

    pub(super) fn open_file(&self, meta: SstableMeta) -> Result<LiveFile> {
        let sstable = Sstable::open(&*self.vfs, &self.file_path(meta.id), self.cache.clone())?;
        Ok(LiveFile { meta, sstable: Arc::new(sstable) })
    }

    /// Removes a file that is not live; what cannot be removed now goes at the next start.
    pub(super) fn remove_file(&self, path: &Path) {
        let outcome = self.vfs.exists(path).and_then(|exists| if exists { self.vfs.remove(path) } else { Ok(()) });
        if let Err(error) = outcome {
            tracing::warn!(file = %path.display(), %error, "a file that is not live stays until the next start");
        }
    }
}
