//! Opening a data directory, after a clean stop or a crash: the same path.
//!
//! ```text
//! lock ─► identity ─► manifest ─► files opened ─► log replayed, synced ─► manifest written anew ─► unlisted files go
//! ```
//!
//! A listed file that is damaged or missing does not keep the rest from starting (quarantine.rs); damage of the identity,
//! the manifest or the log does.
//!
//! Replay goes by position per table and never looks at names: what ends at or before a table's flushed position is in a
//! file and is passed over (B008), everything else is inserted, and a table that was never flushed begins at nothing
//! (B098). The sets are told only after the fsync: a record that was read back may still be in the page cache alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::change::State;
use super::compacting::Compacting;
use super::manifest::Manifest;
use super::memory::{Memory, Tables};
use super::names::Names;
use super::quarantine::{self, Quarantine, QuarantinedMeta};
use super::scrub::Scrub;
use super::snapshots::Snapshots;
use super::table::Table;
use super::view::LiveFile;
use super::{DATA_DIRECTORY, LOG_DIRECTORY, SNAPSHOTS_DIRECTORY, Store, StoreOptions, TableSpec, identity, leaving};
use crate::commitlog::{CommitLog, LogOptions};
use crate::model::{Identity, TableId, VnodeBits};
use crate::snapshot::Directory;
use crate::sstable::{BlockCache, Sstable, SstableMeta, file_name};
use crate::vfs::Vfs;
use crate::{Corrupt, Error, Result};

impl Store {
    /// Opens the data directory, making it if it is empty: takes its lock, refuses another node's or cluster's, reads the
    /// manifest, removes files that nothing lists, replays the log and fsyncs it. Records of tables not in `tables` are
    /// passed over, unless the manifest knows them: they were dropped meanwhile, and leave as [`Store::set_tables`] says.
    pub fn open(vfs: Arc<dyn Vfs>, options: StoreOptions, identity: Identity, tables: &[TableSpec]) -> Result<Store> {
        let data = options.directory.join(DATA_DIRECTORY);
        vfs.create_dir(&data)?;
        let lock = vfs.lock(&identity::lock_path(&options.directory))?;
        let mut manifest = open_manifest(&vfs, &options.directory, &identity)?;
        let dropped = leaving::dropped(manifest.state(), tables);
        let all: Vec<TableSpec> = tables.iter().cloned().chain(dropped).collect();
        let cache = Arc::new(BlockCache::new(options.cache_bytes));
        let files = Files {
            vfs: &*vfs,
            data: &data,
            cache: &cache,
            vnode_bits: identity.vnode_bits,
            is_manifest_torn: manifest.was_torn(),
        };
        let are_all_there = files.missing(manifest.state())?.is_empty();
        let memory = Memory {
            tables: ArcSwap::from_pointee(open_tables(&files, manifest.state(), &all)?),
            leaving: Mutex::default(),
            names: Mutex::new(Names::new(manifest.state())),
            withdrawn: ArcSwap::from_pointee(manifest.state().withdrawn.clone()),
            last_stamp: AtomicI64::new(last_stamp(manifest.state())),
            vnode_bits: identity.vnode_bits,
        };
        let log = replay(vfs.clone(), &options, identity, manifest.state(), &memory)?;
        // Only now: if the manifest had lost an edit, this would destroy the evidence.
        manifest.settle()?;
        if are_all_there {
            remove_unlisted(&*vfs, &data, manifest.state())?;
        } else {
            tracing::warn!(
                "files that the manifest does not list are left alone, since others that it lists are missing"
            );
        }
        let snapshots = Directory::new(vfs.clone(), options.directory.join(SNAPSHOTS_DIRECTORY));
        let store = Store {
            _lock: lock,
            vfs,
            options,
            identity,
            memory,
            log: Mutex::new(log),
            manifest: Mutex::new(manifest),
            cache,
            flushing: Mutex::new(()),
            compacting: Compacting::default(),
            partitions: Arc::default(),
            flushes: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            snapshots: Snapshots::open(snapshots)?,
            scrub: Scrub::default(),
        };
        store.set_tables(tables)?;
        store.save_quarantines()?;
        store.release_log()?;
        Ok(store)
    }
}

fn open_manifest(vfs: &Arc<dyn Vfs>, directory: &Path, identity: &Identity) -> Result<Manifest> {
    let path = Manifest::path(directory);
    match (identity::read(&**vfs, directory)?, vfs.exists(&path)?) {
        (Some(found), true) => {
            identity::check(directory, &found, identity)?;
            Manifest::open(vfs.clone(), directory)
        }
        (Some(found), false) => {
            identity::check(directory, &found, identity)?;
            Err(missing("manifest", "this file is missing; it says what the directory holds", &path))
        }
        (None, has_manifest) => {
            // The identity is written last: this directory was never used, even if making it had begun.
            if has_manifest && !Manifest::open(vfs.clone(), directory)?.state().files.is_empty() {
                let path = identity::path(directory);
                return Err(missing("identity", "this file is missing, but the directory holds data", &path));
            }
            let manifest = Manifest::create(vfs.clone(), directory)?;
            identity::write(&**vfs, directory, identity)?;
            Ok(manifest)
        }
    }
}

fn missing(what: &'static str, reason: &str, path: &Path) -> Error {
    Corrupt { file: Some(path.to_owned()), ..Corrupt::new(what, reason) }.into()
}

/// Removes files that no manifest lists: of flushes and compactions that were cut short, and of dropped tables.
fn remove_unlisted(vfs: &dyn Vfs, data: &Path, state: &State) -> Result<()> {
    let listed: BTreeSet<String> = state.files.keys().map(|id| file_name(*id)).collect();
    for name in vfs.list(data)? {
        if name.ends_with(".sst") && !listed.contains(&name) {
            vfs.remove(&data.join(name))?;
        }
    }
    Ok(())
}

fn open_tables(files: &Files, state: &State, specs: &[TableSpec]) -> Result<Tables> {
    let open = |spec: &TableSpec| -> Result<(TableId, Arc<Table>)> {
        let flushed = state.flushed.get(&spec.id).copied().unwrap_or_default();
        let (mut whole, mut quarantined) = (Vec::new(), Vec::new());
        for meta in state.files.values().filter(|meta| meta.table == spec.id) {
            match files.open(meta, state.quarantined.get(&meta.id))? {
                Ok(sstable) => whole.push(Arc::new(LiveFile { meta: meta.clone(), sstable })),
                Err(quarantine) => quarantined.push(Arc::new(QuarantinedMeta { meta: meta.clone(), quarantine })),
            }
        }
        let table = Table::new(spec.clone(), whole, flushed);
        for file in quarantined {
            quarantine::tell(&files.path(&file.meta), &table, &file.quarantine);
            table.change_view(|view| view.with_quarantined(file));
        }
        Ok((spec.id, Arc::new(table)))
    };
    specs.iter().map(open).collect()
}

/// The listed files, as they are found at a start.
struct Files<'a> {
    vfs: &'a dyn Vfs,
    data: &'a Path,
    cache: &'a Arc<BlockCache>,
    vnode_bits: VnodeBits,
    /// Whether the manifest, as it was read, may lack its last edit.
    is_manifest_torn: bool,
}

impl Files<'_> {
    fn path(&self, meta: &SstableMeta) -> PathBuf {
        self.data.join(file_name(meta.id))
    }

    /// Opens a file; the inner error if it cannot be used. One that could not be before is used again if it is whole to
    /// the last byte: somebody has put it back.
    fn open(&self, meta: &SstableMeta, before: Option<&Quarantine>) -> Result<Result<Arc<Sstable>, Quarantine>> {
        let opened = self.open_whole(meta).and_then(|sstable| {
            if before.is_some() {
                sstable.verify(&meta.hash)?;
                tracing::warn!(file = %self.path(meta).display(), "a file that was quarantined is whole again and back in use");
            }
            Ok(sstable)
        });
        let unusable = |corrupt: &Corrupt| match before {
            Some(before) => before.clone(),
            None => Quarantine::of_everything(self.vnode_bits, &corrupt.to_string()),
        };
        opened.map(Ok).or_else(|error| error.damage().map(|damage| Err(unusable(&damage))).ok_or(error))
    }

    fn open_whole(&self, meta: &SstableMeta) -> Result<Arc<Sstable>> {
        let path = self.path(meta);
        if !self.vfs.exists(&path)? {
            return Err(missing("table", "a file that the manifest lists is missing", &path));
        }
        let sstable = Arc::new(Sstable::open(self.vfs, &path, self.cache.clone())?);
        let reason = if (sstable.id(), sstable.stats().table) != (meta.id, meta.table) {
            format!("it is file {} of table {}", sstable.id(), sstable.stats().table)
        } else if sstable.bytes() != meta.bytes {
            format!("it has {} bytes where the manifest says {}", sstable.bytes(), meta.bytes)
        } else {
            return Ok(sstable);
        };
        Err(Corrupt::new("SSTable", reason).at(&path, 0).into())
    }

    /// The listed files that are not there. If the manifest may lack its last edit as well, nobody knows what should be there,
    /// and that is no start.
    fn missing<'s>(&self, state: &'s State) -> Result<Vec<&'s SstableMeta>> {
        let mut missing_files = Vec::new();
        for meta in state.files.values() {
            if !self.vfs.exists(&self.path(meta))? {
                missing_files.push(meta);
            }
        }
        let is_news = |meta: &&&SstableMeta| !state.quarantined.contains_key(&meta.id);
        match missing_files.iter().find(is_news).filter(|_| self.is_manifest_torn) {
            Some(meta) => {
                let reason = "a file that the manifest lists is missing, and the end of the manifest is damaged";
                Err(missing("table", reason, &self.path(meta)))
            }
            None => Ok(missing_files),
        }
    }
}

fn last_stamp(state: &State) -> i64 {
    state.files.values().map(|meta| meta.stamps.1.0).max().unwrap_or(0)
}

/// Applies what the log holds from where replay begins. The log hands out only what it has made durable.
fn replay(
    vfs: Arc<dyn Vfs>,
    options: &StoreOptions,
    owner: Identity,
    state: &State,
    memory: &Memory,
) -> Result<CommitLog> {
    let directory = options.directory.join(LOG_DIRECTORY);
    let kept_bytes_max = options.log_kept_bytes_max;
    let log = LogOptions { directory, segment_bytes: options.segment_bytes, owner, kept_bytes_max };
    let mut log =
        CommitLog::open(vfs, log, state.replay_from, &mut |replayed| memory.insert(&replayed.record, replayed.end))?;
    let end = log.sync()?;
    let mut names = memory.names.lock();
    names.on_inserted(end, None);
    names.on_synced(end);
    Ok(log)
}
