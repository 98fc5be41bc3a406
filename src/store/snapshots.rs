//! Snapshots of this node: what is in one, and for how long it stays.
//!
//! ```text
//! log synced ─► position and received sets taken ─► memtables flushed ─► files linked while the manifest is held ─► SNAPSHOT
//! ```
//!
//! A memtable is flushed, not copied: what is linked is whole by itself and needs no log. The sets are taken before the
//! flush, so whatever they name is in the files; what is written meanwhile may be in them as well, and no set says so.
//!
//! What the store makes by itself, before a table's data goes, stays for a bounded time and a bounded number; what
//! somebody asked for stays until somebody removes it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Store;
use super::table::Table;
use crate::commitlog::Position;
use crate::model::{KeyspaceId, TableId, Vnode};
use crate::received::ReceivedSets;
use crate::snapshot::{Cause, Damaged, Directory, Draft, Found, Snapshot, TableInfo, check_name};
use crate::{Error, Result};

/// What becomes of the data of a table that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// Whether it is kept in a snapshot. If not, nothing of it stays.
    pub before_drop: BeforeDrop,
    /// How long such a snapshot stays, in seconds.
    pub kept_s: u64,
    /// How many of them stay: of more the oldest goes, however young it is.
    pub kept_most: usize,
}

/// Whether the data of a table that goes is kept in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeforeDrop {
    /// It is.
    Snapshot,
    /// It is not.
    Nothing,
}

impl Default for SnapshotOptions {
    fn default() -> SnapshotOptions {
        SnapshotOptions { before_drop: BeforeDrop::Snapshot, kept_s: 7 * 24 * 3_600, kept_most: 100 }
    }
}

/// Which tables a snapshot is to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotScope {
    /// All.
    All,
    /// Those of a keyspace.
    Keyspace(KeyspaceId),
    /// One.
    Table(TableId),
}

/// What the snapshot of a backup's part is called.
pub fn backup_snapshot_name(backup: Uuid) -> String {
    format!("backup-{backup}")
}

/// Everything that was logged before a position, and whose names it is.
pub(super) struct Held {
    position: Position,
    received: ReceivedSets,
}

/// All snapshots of a node.
#[derive(Debug, Clone, Default)]
pub struct SnapshotList {
    /// By id.
    pub whole: BTreeMap<Uuid, Arc<Snapshot>>,
    /// Those whose manifest does not read any more. Their files are left alone until somebody removes them by id.
    pub damaged: Vec<Damaged>,
}

impl SnapshotList {
    /// Files of snapshots with their lengths, each once.
    pub(super) fn files(&self) -> BTreeMap<Uuid, u64> {
        self.whole.values().flat_map(|snapshot| snapshot.files.iter().map(|file| (file.id, file.bytes))).collect()
    }

    /// The one that is meant by an id or a name; `None` if there is none.
    fn meant(&self, name: &str) -> Result<Option<Uuid>> {
        let is_meant = |snapshot: &&Arc<Snapshot>| snapshot.id.to_string() == name || snapshot.name == name;
        let damaged = self.damaged.iter().map(|damaged| damaged.id).filter(|id| id.to_string() == name);
        let meant: BTreeSet<Uuid> =
            self.whole.values().filter(is_meant).map(|snapshot| snapshot.id).chain(damaged).collect();
        match meant.into_iter().collect::<Vec<_>>().as_slice() {
            [] => Ok(None),
            [id] => Ok(Some(*id)),
            _ => Err(Error::invalid(format!("snapshot {name:?}"), "several are called so; name one by its id")),
        }
    }
}

/// The snapshots of a store.
pub(super) struct Snapshots {
    directory: Directory,
    list: ArcSwap<SnapshotList>,
    /// Held while one is made or removed, and while a table goes.
    pub(super) changing: Mutex<()>,
}

impl Snapshots {
    /// What is in the directory; what was cut short goes.
    pub(super) fn open(directory: Directory) -> Result<Snapshots> {
        let Found { whole, damaged, unfinished } = directory.find()?;
        for id in unfinished {
            directory.remove(id)?;
        }
        for Damaged { id, error } in &damaged {
            tracing::error!(snapshot = %id, %error, "a snapshot is damaged; its files are left alone");
        }
        let whole = whole.into_iter().map(|snapshot| (snapshot.id, Arc::new(snapshot))).collect();
        let list = ArcSwap::from_pointee(SnapshotList { whole, damaged });
        Ok(Snapshots { directory, list, changing: Mutex::new(()) })
    }

    pub(super) fn path(&self, id: Uuid) -> PathBuf {
        self.directory.of(id)
    }

    pub(super) fn list(&self) -> Arc<SnapshotList> {
        self.list.load_full()
    }

    /// The caller holds `changing`.
    fn change(&self, change: impl FnOnce(&mut SnapshotList)) {
        let mut next = SnapshotList::clone(&self.list.load());
        change(&mut next);
        self.list.store(Arc::new(next));
    }

    /// The caller holds `changing`.
    fn remove(&self, id: Uuid) -> Result<()> {
        self.directory.remove(id)?;
        self.change(|list| {
            list.whole.remove(&id);
            list.damaged.retain(|damaged| damaged.id != id);
        });
        Ok(())
    }
}

impl Store {
    /// Makes a snapshot; every write that was acknowledged before the call is in it. `made_at_us` is the time of day in
    /// microseconds since 1970.
    pub fn create_snapshot(&self, name: &str, scope: SnapshotScope, made_at_us: i64) -> Result<Arc<Snapshot>> {
        check_name(name)?;
        let _held = self.snapshots.changing.lock();
        if self.snapshots.list().whole.values().any(|snapshot| snapshot.name == name) {
            return Err(Error::invalid(format!("snapshot {name:?}"), "there is one of this name already"));
        }
        self.snapshot_of(name, Cause::Operator, scope, made_at_us)
    }

    /// The snapshot of a backup's part, called `backup-<uuid>`; the one that is there if it was made before. Nothing but
    /// [`Store::remove_snapshot`] takes it away: the files of a backup stay until they are uploaded. Every write that was
    /// acknowledged before it was made is in it.
    ///
    /// # Errors
    /// [`Error::Quarantined`] where a file of the tables is, and [`Error::Withdrawn`] where a vnode of theirs is being rebuilt:
    /// what is there would not be this node's part.
    pub fn create_backup_snapshot(&self, backup: Uuid, scope: SnapshotScope, made_at_us: i64) -> Result<Arc<Snapshot>> {
        let name = backup_snapshot_name(backup);
        let _held = self.snapshots.changing.lock();
        let is_it = |snapshot: &&Arc<Snapshot>| snapshot.cause == Cause::Backup && snapshot.name == name;
        if let Some(made) = self.snapshots.list().whole.values().find(is_it) {
            return Ok(made.clone());
        }
        self.snapshot_of(&name, Cause::Backup, scope, made_at_us)
    }

    /// The caller holds `snapshots.changing`.
    fn snapshot_of(&self, name: &str, cause: Cause, scope: SnapshotScope, made_at_us: i64) -> Result<Arc<Snapshot>> {
        // Before it is looked which tables there are: what is written to one that comes later lies behind it in the log.
        let held = self.held_now()?;
        let tables = self.memory.tables.load_full();
        let tables: Vec<Arc<Table>> = match scope {
            SnapshotScope::All => tables.values().cloned().collect(),
            SnapshotScope::Keyspace(id) => {
                tables.values().filter(|table| table.spec().keyspace == id).cloned().collect()
            }
            SnapshotScope::Table(table) => vec![tables.get(&table).cloned().ok_or(Error::UnknownTable { table })?],
        };
        // It could not hold all that it says.
        if let Some(file) = tables.iter().find_map(|table| table.view().quarantined.first().cloned()) {
            return Err(self.quarantined_error(&file));
        }
        let withdrawn = self.memory.withdrawn.load();
        for table in &tables {
            let spec = table.spec();
            let of_it = (spec.keyspace, Vnode(0))..=(spec.keyspace, Vnode(u32::MAX));
            if let Some(((_, vnode), _)) = withdrawn.range(of_it).next() {
                return Err(Error::Withdrawn { table: spec.id, vnode: *vnode });
            }
        }
        self.take_snapshot(name, cause, made_at_us, held, &tables)
    }

    /// All snapshots.
    pub fn snapshots(&self) -> Arc<SnapshotList> {
        self.snapshots.list()
    }

    /// Removes a snapshot, named by its name or id. Answers its id; `None` if there is none that is called so.
    pub fn remove_snapshot(&self, name: &str) -> Result<Option<Uuid>> {
        let _held = self.snapshots.changing.lock();
        let meant = self.snapshots.list().meant(name)?;
        meant.map(|id| self.snapshots.remove(id).map(|()| id)).transpose()
    }

    /// Removes snapshots that the store has made by itself and that have had their time; `now_us` is the time of day.
    pub fn expire_snapshots(&self, now_us: i64) -> Result<()> {
        let _held = self.snapshots.changing.lock();
        let SnapshotOptions { kept_s, kept_most, .. } = self.options.snapshots;
        let oldest_us = now_us.saturating_sub_unsigned(kept_s.saturating_mul(1_000_000));
        let list = self.snapshots.list();
        let mut own: Vec<_> = list.whole.values().filter(|snapshot| snapshot.cause.is_own()).collect();
        own.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.made_at_us));
        let expired = own.iter().enumerate().filter(|(at, own)| *at >= kept_most || own.made_at_us < oldest_us);
        for (_, snapshot) in expired {
            self.snapshots.remove(snapshot.id)?;
            tracing::info!(snapshot = snapshot.name, id = %snapshot.id, "a snapshot of a table that went has had its time");
        }
        Ok(())
    }

    /// What a snapshot that is begun now surely holds of the tables that there are.
    pub(super) fn held_now(&self) -> Result<Held> {
        self.sync()?;
        let mut names = self.memory.names.lock();
        let received = names.sets().clone();
        Ok(Held { position: names.inserted(), received })
    }

    /// The caller holds `snapshots.changing`, so that none of the tables goes meanwhile.
    pub(super) fn take_snapshot(
        &self,
        name: &str,
        cause: Cause,
        made_at_us: i64,
        Held { position, mut received }: Held,
        tables: &[Arc<Table>],
    ) -> Result<Arc<Snapshot>> {
        let mut infos: Vec<TableInfo> = tables.iter().map(|table| table.spec().info()).collect();
        infos.sort_by_key(|info| info.id);
        received.retain(|(keyspace, _), _| infos.iter().any(|info| info.keyspace == *keyspace));
        tables.iter().try_for_each(|table| self.flush_table(table))?;
        let id = self.next_snapshot_id(name, made_at_us)?;
        let made = self.snapshots.directory.make(id, |draft| {
            // While this is held no compaction removes a file.
            let manifest = self.manifest.lock();
            let state = manifest.state();
            let is_one = |table| infos.binary_search_by_key(&table, |info| info.id).is_ok();
            let mut files: Vec<_> = state.files.values().filter(|file| is_one(file.table)).cloned().collect();
            let quarantined = files.extract_if(.., |file| state.quarantined.contains_key(&file.id));
            quarantined.for_each(|file| self.keep_aside(draft, file.id));
            files.iter().try_for_each(|file| draft.link(&self.file_path(file.id), file.id))?;
            let (name, owner) = (name.to_owned(), self.identity);
            Ok(Snapshot { id, name, made_at_us, cause, owner, position, tables: infos.clone(), files, received })
        })?;
        let made = Arc::new(made);
        self.snapshots.change(|list| drop(list.whole.insert(id, made.clone())));
        Ok(made)
    }

    /// What may be left of a file that is out of use goes into the directory and is not listed.
    fn keep_aside(&self, draft: &Draft, id: Uuid) {
        let path = self.file_path(id);
        let linked = draft.link(&path, id);
        tracing::error!(file = %path.display(), is_linked = linked.is_ok(), "a snapshot lacks a file that is quarantined");
    }

    /// A digest of what no other snapshot of any node has in common with it.
    fn next_snapshot_id(&self, name: &str, made_at_us: i64) -> Result<Uuid> {
        loop {
            let number = self.manifest.lock().next_file();
            let mut digest = Sha256::new();
            digest.update(self.identity.cluster.as_bytes());
            digest.update(self.identity.node.0.to_le_bytes());
            digest.update(number.to_le_bytes());
            digest.update(made_at_us.to_le_bytes());
            digest.update(name.as_bytes());
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&digest.finalize()[..16]);
            let id = uuid::Builder::from_custom_bytes(bytes).into_uuid();
            // A number is given again after a restart if no edit followed.
            if !self.snapshots.directory.has(id)? {
                return Ok(id);
            }
        }
    }
}
