//! Verifies what a stopped store promises about its files: a function per invariant, and nothing is written.
//!
//! - Identity and manifest read, and belong together.
//! - Every listed file is there, is what it is listed as, and every byte of it fits its checksums and the hash.
//! - So is every file of every snapshot, as the manifest of the snapshot says.
//! - Every segment of the log reads, none is missing from where replay begins, and each record in it is well-formed.
//! - No record before the place where replay begins is missing from the files, and none of their names from the sets.
//! - The log does not end before a position up to which a table was flushed: positions are never used twice.
//!
//! What a crash may leave and the next start tidies up is told as well, apart from the findings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::change::State;
use super::manifest::{self, Manifest, Reading};
use super::stopped::Stopped;
use super::{DATA_DIRECTORY, LOG_DIRECTORY, SNAPSHOTS_DIRECTORY, identity};
use crate::codec::CheckedRecord;
use crate::codec::mutation::view::MutationView;
use crate::commitlog::{CommitLog, Position, Replayed};
use crate::model::{Identity, KeyspaceId, TableId, Vnode};
use crate::snapshot::{self, Directory, Found};
use crate::sstable::{BlockCache, Sstable, SstableMeta, file_name};
use crate::{Corrupt, Error, Result};

/// Files are read past the cache; it serves only static rows that stand in another block.
const CACHE_BYTES: u64 = 1 << 20;

/// What [`Stopped::check`] has read and found.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Whose data it is, if that can be read.
    pub identity: Option<Identity>,
    /// Files that the manifest lists.
    pub sstables: u64,
    /// Their length, as the manifest has it.
    pub sstable_bytes: u64,
    /// Snapshots that were read.
    pub snapshots: u64,
    /// Segments of the log.
    pub log_segments: u64,
    /// Their length.
    pub log_bytes: u64,
    /// Records in them that were read.
    pub log_records: u64,
    /// What is not as it must be, with file and place.
    pub findings: Vec<Error>,
    /// What an interrupted run has left and the next start tidies up: nothing is wrong with it.
    pub notes: Vec<String>,
}

impl CheckReport {
    fn fault(&mut self, what: &'static str, reason: impl Into<String>, file: PathBuf) {
        self.findings.push(Corrupt { file: Some(file), ..Corrupt::new(what, reason) }.into());
    }

    fn note(&mut self, file: &Path, text: impl Display) {
        self.notes.push(format!("{}: {text}", file.display()));
    }
}

impl Stopped {
    /// Checks everything. Reads all there is, so it takes as long as the disk does; one fault hides no other, except behind
    /// it in the same file.
    pub fn check(&self) -> CheckReport {
        let mut report = CheckReport::default();
        let state = self.check_manifest(&mut report);
        self.check_identity(state.as_ref(), &mut report);
        match &state {
            Some(state) => state.files.values().for_each(|meta| self.check_listed(meta, &mut report)),
            None => report.note(&self.data_directory(), "not read, since nothing says what is to be there"),
        }
        if let Err(error) = self.check_snapshots(&mut report) {
            report.findings.push(error);
        }
        if let Err(error) = self.note_leftovers(state.as_ref(), &mut report) {
            report.findings.push(error);
        }
        match report.identity {
            Some(owner) => self.check_log(owner, state.as_ref(), &mut report),
            None => report.note(&self.log_directory(), "not read, since nothing says whose log it is"),
        }
        report
    }

    fn check_manifest(&self, report: &mut CheckReport) -> Option<State> {
        let path = Manifest::path(&self.directory);
        match self.manifest() {
            Ok(Some(reading)) => {
                if let Some(offset) = reading.torn_at {
                    report.note(&path, format!("its last edit is torn and will be cut off at byte {offset}"));
                }
                Some(reading.state)
            }
            Ok(None) => {
                report.fault("manifest", "this file is missing; it says what the directory holds", path);
                None
            }
            Err(error) => {
                report.findings.push(error.in_file(&path, 0));
                None
            }
        }
    }

    fn check_identity(&self, state: Option<&State>, report: &mut CheckReport) {
        let path = identity::path(&self.directory);
        match identity::read(&*self.vfs, &self.directory) {
            Ok(Some(found)) => report.identity = Some(found),
            // It is written last: where nothing was stored yet, making the directory was cut short.
            Ok(None) if state.is_some_and(|state| state.files.is_empty()) => {
                report.note(&path, "missing; the directory was never used");
            }
            Ok(None) => report.fault("identity", "this file is missing, but the directory holds data", path),
            Err(error) => report.findings.push(error.in_file(&path, 0)),
        }
    }

    fn check_listed(&self, meta: &SstableMeta, report: &mut CheckReport) {
        report.sstables += 1;
        report.sstable_bytes += meta.bytes;
        self.check_file(self.data_directory().join(file_name(meta.id)), meta, report);
    }

    fn check_file(&self, path: PathBuf, meta: &SstableMeta, report: &mut CheckReport) {
        let outcome = self.vfs.exists(&path).and_then(|exists| {
            if !exists {
                let missing = Corrupt::new("table", "a file that the manifest lists is missing");
                return Err(Corrupt { file: Some(path.clone()), ..missing }.into());
            }
            let sstable = Arc::new(Sstable::open(&*self.vfs, &path, Arc::new(BlockCache::new(CACHE_BYTES)))?);
            check_label(&sstable, meta, report.identity)?;
            sstable.verify(&meta.hash)
        });
        report.findings.extend(outcome.err().map(|error| error.in_file(&path, 0)));
    }

    /// Every file of every snapshot, those included that the store holds as well: a name may lead elsewhere.
    fn check_snapshots(&self, report: &mut CheckReport) -> Result<()> {
        let directory = Directory::new(self.vfs.clone(), self.directory.join(SNAPSHOTS_DIRECTORY));
        let Found { whole, damaged, unfinished } = directory.find()?;
        for snapshot in whole {
            report.snapshots += 1;
            if report.identity.is_some_and(|owner| owner != snapshot.owner) {
                let reason = format!("it is one of node {}", snapshot.owner.node);
                report.fault("snapshot", reason, snapshot::path(&directory.of(snapshot.id)));
            }
            for meta in &snapshot.files {
                self.check_file(directory.of(snapshot.id).join(file_name(meta.id)), meta, report);
            }
        }
        report.findings.extend(damaged.into_iter().map(|damaged| damaged.error));
        for id in unfinished {
            report.note(&directory.of(id), "a snapshot without its manifest; it will be removed");
        }
        Ok(())
    }

    /// Files that a flush, a compaction or a rewrite had not finished, or that had no time to go.
    fn note_leftovers(&self, state: Option<&State>, report: &mut CheckReport) -> Result<()> {
        let new = self.vfs.list(&self.directory)?.into_iter().filter(|name| name.ends_with(".new"));
        new.for_each(|name| report.note(&self.directory.join(name), "left unfinished; it will be written anew"));
        let (data, Some(state)) = (self.data_directory(), state) else { return Ok(()) };
        if !self.vfs.exists(&data)? {
            return Ok(());
        }
        let listed: BTreeSet<String> = state.files.keys().map(|id| file_name(*id)).collect();
        let unlisted =
            self.vfs.list(&data)?.into_iter().filter(|name| name.ends_with(".sst") && !listed.contains(name));
        unlisted.for_each(|name| report.note(&data.join(name), "the manifest does not list it; it will be removed"));
        Ok(())
    }

    fn check_log(&self, owner: Identity, state: Option<&State>, report: &mut CheckReport) {
        let from = state.map(|state| state.replay_from).unwrap_or_default();
        let mut logged = Logged { owner, state, records: 0, early: BTreeMap::new(), unsaved: BTreeMap::new() };
        let examined =
            CommitLog::examine(&*self.vfs, &self.log_directory(), owner, from, &mut |replayed| logged.record(replayed));
        report.log_records = logged.records;
        let examined = match examined {
            Ok(examined) => examined,
            Err(error) => return report.findings.push(error),
        };
        report.log_segments = examined.segments;
        report.log_bytes = examined.bytes;
        report.findings.extend(examined.faults);
        if let (Some(state), Some(end)) = (state, examined.end) {
            self.check_flushed(state, end, report);
        }
        self.report_lost(&logged, report);
    }

    fn check_flushed(&self, state: &State, end: Position, report: &mut CheckReport) {
        for (table, flushed) in state.flushed.iter().filter(|(_, flushed)| **flushed > end) {
            let reason = format!(
                "table {table} was flushed up to byte {} of segment {}, the log ends at byte {} of segment {}",
                flushed.offset, flushed.segment, end.offset, end.segment
            );
            report.fault("commit log", reason, self.log_directory());
        }
    }

    fn report_lost(&self, logged: &Logged<'_>, report: &mut CheckReport) {
        let manifest = Manifest::path(&self.directory);
        for (table, Lost { records, first }) in &logged.early {
            let reason = format!(
                "replay would not reach {records} records of table {table} that are in no file; the first ends at byte {} \
                 of log segment {}",
                first.offset, first.segment
            );
            report.fault("manifest", reason, manifest.clone());
        }
        for ((keyspace, vnode), Lost { records, first }) in &logged.unsaved {
            let reason = format!(
                "the names of {records} records of keyspace {}, vnode {} are not saved; the first ends at byte {} of log \
                 segment {}",
                keyspace.0, vnode.0, first.offset, first.segment
            );
            report.fault("manifest", reason, manifest.clone());
        }
    }

    fn manifest(&self) -> Result<Option<Reading>> {
        let exists = self.vfs.exists(&Manifest::path(&self.directory))?;
        if exists { manifest::read(&*self.vfs, &self.directory).map(Some) } else { Ok(None) }
    }

    fn data_directory(&self) -> PathBuf {
        self.directory.join(DATA_DIRECTORY)
    }

    fn log_directory(&self) -> PathBuf {
        self.directory.join(LOG_DIRECTORY)
    }
}

/// Whether a file is the one that the manifest means.
fn check_label(sstable: &Sstable, meta: &SstableMeta, owner: Option<Identity>) -> Result<()> {
    let stats = sstable.stats();
    let reason = if sstable.id() != meta.id {
        format!("it is file {}", sstable.id())
    } else if sstable.bytes() != meta.bytes {
        format!("it has {} bytes where the manifest says {}", sstable.bytes(), meta.bytes)
    } else if (stats.table, stats.stamps) != (meta.table, meta.stamps) {
        "its table or its stamps are not those that the manifest says".to_owned()
    } else if owner.is_some_and(|owner| owner.vnode_bits != sstable.vnodes().bits) {
        "it was written for another number of vnodes".to_owned()
    } else {
        return Ok(());
    };
    Err(Corrupt::new("SSTable", reason).into())
}

/// What the log's records say beside what the manifest says.
struct Logged<'a> {
    owner: Identity,
    state: Option<&'a State>,
    records: u64,
    /// Per table: records before the place where replay begins that are not in a file.
    early: BTreeMap<TableId, Lost>,
    /// Named records before that place whose names the manifest does not have.
    unsaved: BTreeMap<(KeyspaceId, Vnode), Lost>,
}

struct Lost {
    records: u64,
    first: Position,
}

impl Logged<'_> {
    fn record(&mut self, Replayed { end, record }: Replayed) -> Result<()> {
        let (record, _) = CheckedRecord::check(record.bytes().clone())?;
        self.records += 1;
        let Some(state) = self.state.filter(|state| end <= state.replay_from) else { return Ok(()) };
        // A table that was never flushed may be one that is gone.
        let table = record.table();
        if state.flushed.get(&table).is_some_and(|flushed| end > *flushed) && has_effect(&record.mutation()?)? {
            count(&mut self.early, table, end);
        }
        let is_passed_over = |place| {
            state.withdrawn.contains_key(&place) || state.named_from.get(&place).is_some_and(|from| end <= *from)
        };
        if let Some((place, name)) = record.name(self.owner.vnode_bits)
            && !is_passed_over(place)
            && !state.received.get(&place).is_some_and(|set| set.contains(name))
        {
            count(&mut self.unsaved, place, end);
        }
        Ok(())
    }
}

fn count<K: Ord>(lost: &mut BTreeMap<K, Lost>, key: K, first: Position) {
    lost.entry(key).or_insert(Lost { records: 0, first }).records += 1;
}

/// Without one nothing of it reaches a memtable, and no flush counts it.
fn has_effect(mutation: &MutationView<'_>) -> Result<bool> {
    let MutationView { deletion, static_row, rows, .. } = mutation;
    Ok(deletion.is_some() || static_row.is_some() || !rows.is_empty() || !mutation.ranges()?.is_empty())
}
