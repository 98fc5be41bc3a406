//! Tables that come and go.
//!
//! ```text
//! set_tables ─► a new table: the manifest knows it ─► it takes writes and reads
//!            ─► one that is gone: closed, takes neither any more, and leaves ─► let_go: flushed, linked into a snapshot
//!                                                                              ─► manifest edit ─► its files go
//! ```
//!
//! The schema does not wait for the second half, which takes as long as a flush does. When that fails nothing of the table
//! is lost: it stays among those that leave, with its files and the log behind its memtables, and the next call tries
//! again. A restart finds it too, since the manifest knows every table until its data is gone, also one that was dropped
//! while the node was down.

use std::sync::Arc;

use super::change::{Change, State};
use super::memory::Tables;
use super::snapshots::BeforeDrop;
use super::table::Table;
use super::{Content, Store, TableSpec};
use crate::Result;
use crate::model::{CompactionOptions, Durability, KeyspaceId, TableId};
use crate::snapshot::{Cause, TableInfo, TableLabel};

impl Store {
    /// Makes the set of tables what `tables` says: new ones begin empty; those that are gone are not read or written any
    /// more, and their data goes with the next [`Store::let_go`].
    pub fn set_tables(&self, tables: &[TableSpec]) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let known = &manifest.state().tables;
        let infos = tables.iter().map(TableSpec::info);
        let changes: Vec<_> = infos.filter(|info| known.get(&info.id) != Some(info)).map(Change::TableKnown).collect();
        if !changes.is_empty() {
            manifest.commit(changes)?;
        }
        let present = self.memory.tables.load_full();
        let mut leaving = self.memory.leaving.lock();
        let mut next = Tables::new();
        for spec in tables {
            let table = present.get(&spec.id).cloned().or_else(|| leaving.remove(&spec.id));
            let table = table.unwrap_or_else(|| Arc::new(Table::new(spec.clone(), Vec::new(), Default::default())));
            table.set_spec(spec.clone());
            table.open();
            next.insert(spec.id, table);
        }
        // Before they are missed among the others: at each moment the log is held for what they hold.
        leaving.extend(present.iter().filter(|(id, _)| !next.contains_key(id)).map(|(id, table)| (*id, table.clone())));
        self.memory.tables.store(Arc::new(next));
        leaving.values().for_each(|table| table.close());
        Ok(())
    }

    /// Whether there are tables whose data is to go.
    pub fn has_leaving(&self) -> bool {
        !self.memory.leaving.lock().is_empty()
    }

    /// Lets the data of tables go that are gone, in a snapshot first if that is wanted. `now_us` is the time of day in
    /// microseconds since 1970. After an error the data of some is still there; call again.
    pub fn let_go(&self, now_us: i64) -> Result<()> {
        let _held = self.snapshots.changing.lock();
        let leaving: Vec<Arc<Table>> = self.memory.leaving.lock().values().cloned().collect();
        // One that cannot go holds up no other.
        let failed = leaving.iter().filter_map(|table| self.let_one_go(table, now_us).err()).collect::<Vec<_>>();
        if !leaving.is_empty() {
            self.release_log()?;
        }
        failed.into_iter().next().map_or(Ok(()), Err)
    }

    fn let_one_go(&self, table: &Arc<Table>, now_us: i64) -> Result<()> {
        if self.options.snapshots.before_drop == BeforeDrop::Snapshot {
            self.keep(table, now_us)?;
        }
        self.forget(table)
    }

    /// Makes the snapshot of a table that goes, unless it is empty, or was made before a crash or a failure.
    fn keep(&self, table: &Arc<Table>, now_us: i64) -> Result<()> {
        self.flush_table(table)?;
        let files: Vec<_> = table.view().files.iter().map(|file| file.meta.id).collect();
        let spec = table.spec();
        let is_kept = self.snapshots.list().whole.values().any(|snapshot| {
            snapshot.cause.is_own()
                && snapshot.tables.iter().any(|info| info.id == spec.id)
                && files.iter().all(|id| snapshot.files.binary_search_by_key(id, |file| file.id).is_ok())
        });
        if files.is_empty() && table.view().quarantined.is_empty() || is_kept {
            return Ok(());
        }
        let TableLabel { keyspace, table: name, .. } = &spec.label;
        let is_same = |other: &Arc<Table>| {
            let label = &other.spec().label;
            !name.is_empty() && (&label.keyspace, &label.table) == (keyspace, name)
        };
        let (cause, verb) = match self.memory.tables.load().values().any(is_same) {
            true => (Cause::BeforeTruncate, "truncated"),
            false => (Cause::BeforeDrop, "dropped"),
        };
        let named = if name.is_empty() { String::new() } else { format!("{keyspace}.{name}-") };
        let name = format!("{verb}-{named}{}", spec.id);
        let made = self.take_snapshot(&name, cause, now_us, self.held_now()?, std::slice::from_ref(table))?;
        tracing::info!(snapshot = made.name, id = %made.id, bytes = made.bytes(), "the data of a table that goes is kept");
        Ok(())
    }

    fn forget(&self, table: &Arc<Table>) -> Result<()> {
        let id = table.spec().id;
        let mut manifest = self.manifest.lock();
        if !self.memory.leaving.lock().contains_key(&id) {
            return Ok(());
        }
        let changes = manifest.state().without_table(id);
        if !changes.is_empty() {
            manifest.commit(changes)?;
        }
        self.memory.leaving.lock().remove(&id);
        // Readers that hold a file read on.
        let view = table.view();
        let files = view.files.iter().map(|file| file.meta.id);
        for id in files.chain(view.quarantined.iter().map(|file| file.meta.id)) {
            self.remove_file(&self.file_path(id));
        }
        Ok(())
    }
}

impl TableSpec {
    /// What the manifest and snapshots say of the table.
    pub(super) fn info(&self) -> TableInfo {
        let TableSpec { id, keyspace, label, columns, .. } = self;
        TableInfo { id: *id, keyspace: *keyspace, label: label.clone(), columns: columns.clone() }
    }
}

/// The tables that the manifest knows and that are not among `given`: they were dropped while the node was down, or had
/// not gone when it stopped.
pub(super) fn dropped(state: &State, given: &[TableSpec]) -> Vec<TableSpec> {
    let mut tables: Vec<TableId> = state.tables.keys().chain(state.flushed.keys()).copied().collect();
    tables.extend(state.files.values().map(|file| file.table));
    tables.sort();
    tables.dedup();
    tables.retain(|id| !given.iter().any(|spec| spec.id == *id));
    let nameless = |id| TableInfo { id, keyspace: KeyspaceId(0), label: TableLabel::default(), columns: Vec::new() };
    let info = |id: TableId| state.tables.get(&id).cloned().unwrap_or_else(|| nameless(id));
    let spec = |TableInfo { id, keyspace, label, columns }| {
        // It takes no more writes and reads, and is not compacted.
        let (durability, lateness_s, compaction) = (Durability::default(), 0, CompactionOptions::default());
        TableSpec {
            id,
            keyspace,
            durability,
            lateness_s,
            compaction,
            content: Content::Whole,
            clustering: Vec::new(),
            columns,
            live: None,
            label,
        }
    };
    tables.into_iter().map(|id| spec(info(id))).collect()
}
