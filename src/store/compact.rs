//! Files of a table become fewer. `compaction` decides and merges; here the result becomes live.
//!
//! ```text
//! claim inputs ─► merge, purge, write outputs ─► outputs synced ─► one manifest edit ─► view swapped ─► inputs go
//! ```
//!
//! Compactions of different files run at the same time, each on a thread of the caller's.
//!
//! **Invariant:** the inputs go only behind the durable edit that lists the outputs in their place; until then a failure,
//! a stop or a crash leaves the inputs live and the outputs garbage (B010, B116). Readers that hold inputs read on.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use super::Store;
use super::change::Change;
use super::compacting::{Busy, Claim, Job, Running};
use super::limits::Limits;
use super::table::Table;
use super::view::{LiveFile, View};
use crate::compaction::{self, Action, Cut, FileFacts, Pace, Paced, Proceed, Purge, Terms};
use crate::model::{Direction, KeyspaceId, Merge, Stamp, TableId, Vnode};
use crate::sstable::{BLOCK_BYTES, Builder, BuilderOptions, SstableMeta};
use crate::{Corrupt, Error, Result};

impl Store {
    /// Carries out the most urgent compaction of all tables; whether there was one. May be called by several threads at
    /// once: each takes other files. `now_s` is the present second, by which data expires.
    ///
    /// # Errors
    /// After an error, which names the file if one is damaged, the inputs stay, and others are chosen for a while.
    /// [`Error::Stopped`] if `pace` said so or the table was dropped.
    pub fn compact_next(&self, now_s: i64, pace: &dyn Pace) -> Result<bool> {
        while let Some(claim) = self.compacting.claim(now_s, |busy| self.most_urgent(now_s, busy)) {
            if self.carry_out(&claim, now_s, pace)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes as few files of a table as there can be, whatever its options want; those that are being compacted, or are set
    /// aside, are left out. Memtables are not flushed.
    ///
    /// # Errors
    /// As [`Store::compact_next`], and [`Error::UnknownTable`].
    pub fn compact_table(&self, id: TableId, now_s: i64, pace: &dyn Pace) -> Result<()> {
        let table = self.memory.tables.load().get(&id).cloned().ok_or(Error::UnknownTable { table: id })?;
        // Not what this makes of them.
        let mut left: Vec<Uuid> = table.view().files.iter().map(|file| file.meta.id).collect();
        while let Some(claim) = self.compacting.claim(now_s, |busy| self.window_left(&table, now_s, busy, &left)) {
            left.retain(|file| !claim.running.ids().any(|input| input == *file));
            self.carry_out(&claim, now_s, pace)?;
        }
        Ok(())
    }

    /// Raises up to where all replicas are known to hold everything of a vnode, and have for long enough: deletions that
    /// lie before that by more than the lateness of their table may be purged. It never falls. Durable when this returns.
    pub fn raise_purged_through(&self, raised: &[(KeyspaceId, Vnode, Stamp)]) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let known = &manifest.state().purged_through;
        let higher = |(keyspace, vnode, stamp): &&(KeyspaceId, Vnode, Stamp)| {
            known.get(&(*keyspace, *vnode)).is_none_or(|known| known < stamp)
        };
        let changes: Vec<_> = raised
            .iter()
            .filter(higher)
            .map(|(keyspace, vnode, stamp)| Change::PurgedThrough(*keyspace, *vnode, *stamp))
            .collect();
        if changes.is_empty() { Ok(()) } else { manifest.commit(changes) }
    }

    /// What is known of a keyspace; see [`Store::raise_purged_through`]. Of a vnode that is being rebuilt nothing may go.
    pub(super) fn purged_through(&self, keyspace: KeyspaceId) -> BTreeMap<Vnode, Stamp> {
        let manifest = self.manifest.lock();
        let withdrawn = &manifest.state().withdrawn;
        let all = manifest.state().purged_through.range((keyspace, Vnode(0))..=(keyspace, Vnode(u32::MAX)));
        all.filter(|(slice, _)| !withdrawn.contains_key(slice)).map(|((_, vnode), stamp)| (*vnode, *stamp)).collect()
    }

    fn most_urgent(&self, now_s: i64, busy: &Busy) -> Option<Job> {
        let tables = self.memory.tables.load_full();
        let choices = tables.values().filter_map(|table| {
            let view = table.view();
            let choice = self.choices(table, &view, now_s, busy).into_iter().next()?;
            Some((choice, table, view))
        });
        let (choice, table, view) = choices.reduce(|best, next| {
            let urgency = |choice: &compaction::Choice| (choice.action == Action::Drop, choice.overlap);
            if urgency(&next.0) > urgency(&best.0) { next } else { best }
        })?;
        let inputs = view.files.iter().filter(|file| choice.inputs.binary_search(&file.meta.id).is_ok());
        Some((choice.action, table.clone(), inputs.cloned().collect()))
    }

    /// What the strategy wants of a table.
    pub(super) fn choices(&self, table: &Table, view: &View, now_s: i64, busy: &Busy) -> Vec<compaction::Choice> {
        if view.files.is_empty() {
            return Vec::new();
        }
        let spec = table.spec();
        let mut facts = self.facts(table, view, now_s);
        facts.iter_mut().for_each(|file| file.is_spent &= !busy.needed.contains(&file.id));
        let terms =
            Terms { options: &spec.compaction, flush_bytes: table.work.flush_bytes(), bits: self.identity.vnode_bits };
        compaction::choose(&facts, &terms, &busy.files)
    }

    fn facts(&self, table: &Table, view: &View, now_s: i64) -> Vec<FileFacts> {
        let mut limits: Option<Limits<'_>> = None;
        let mut is_spent = |file: &LiveFile| {
            file.may_be_spent(now_s) && limits.get_or_insert_with(|| Limits::new(self, table, &[])).is_below_time(file)
        };
        view.files.iter().filter_map(|file| file.facts(is_spent(file))).collect()
    }

    /// The first window of the files that are left.
    fn window_left(&self, table: &Arc<Table>, now_s: i64, busy: &Busy, left: &[Uuid]) -> Option<Job> {
        let view = table.view();
        let facts = self.facts(table, &view, now_s);
        let left: Vec<&FileFacts> =
            facts.iter().filter(|file| !busy.files.contains(&file.id) && left.contains(&file.id)).collect();
        let spec = table.spec();
        let windows = compaction::windows(&left, &spec.compaction);
        let window = windows.iter().find(|window| !window.files.is_empty())?;
        let is_in = |file: &&Arc<LiveFile>| window.files.iter().any(|facts| facts.id == file.meta.id);
        Some((Action::Merge, table.clone(), view.files.iter().filter(is_in).cloned().collect()))
    }

    /// Whether it changed anything.
    fn carry_out(&self, claim: &Claim<'_>, now_s: i64, pace: &dyn Pace) -> Result<bool> {
        let running = &claim.running;
        let outcome = match running.action {
            Action::Merge => self.merge_files(running, now_s, pace).map(|()| true),
            Action::Drop => self.drop_files(running, now_s),
        };
        if let Err(error) = &outcome {
            self.set_aside(running, error, now_s);
        }
        outcome
    }

    /// A compaction that failed must not be the next one again. A damaged file is given up, the others can go on.
    fn set_aside(&self, running: &Running, error: &Error, now_s: i64) {
        let named = match error {
            Error::Stopped => return,
            Error::Corrupt(Corrupt { file, .. }) => file.clone(),
            Error::Io { path, .. } => Some(path.clone()),
            _ => None,
        };
        let named = named.and_then(|path| running.ids().find(|id| self.file_path(*id) == path));
        match named {
            Some(id) if self.quarantine_for(&running.table, error) => self.compacting.give_up(id),
            Some(id) => self.compacting.set_aside([id], now_s),
            None => self.compacting.set_aside(running.ids(), now_s),
        }
    }

    fn merge_files(&self, running: &Running, now_s: i64, pace: &dyn Pace) -> Result<()> {
        let (table, inputs) = (&running.table, &running.inputs);
        let mut begun = Vec::new();
        let written = self.write_merged(running, now_s, pace, &mut begun).and_then(|metas| {
            self.vfs.sync_dir(&self.data_directory())?;
            metas.into_iter().map(|meta| self.open_file(meta).map(Arc::new)).collect::<Result<Vec<_>>>()
        });
        let outputs = written.inspect_err(|_| begun.iter().for_each(|id| self.remove_file(&self.file_path(*id))))?;
        let bytes = outputs.iter().map(|file| file.meta.bytes).sum();
        self.replace_files(table, inputs, outputs)?;
        table.work.compacted(bytes);
        self.compactions.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the outputs; `begun` are the files that there may be afterwards, whatever is answered.
    fn write_merged(
        &self,
        running: &Running,
        now_s: i64,
        pace: &dyn Pace,
        begun: &mut Vec<Uuid>,
    ) -> Result<Vec<SstableMeta>> {
        let Running { table, inputs, read, .. } = running;
        let spec = table.spec();
        let Some(stamps) = inputs.iter().map(|file| file.meta.stamps).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        else {
            return Ok(Vec::new());
        };
        let facts: Vec<FileFacts> = inputs.iter().filter_map(|file| file.facts(false)).collect();
        let bits = self.identity.vnode_bits;
        let cut = Cut::new(bits, compaction::density(&facts, bits), spec.compaction.target_bytes());
        let mut begin = |first: Vnode| {
            let id = self.next_file_id(stamps);
            begun.push(id);
            let shard = cut.shard(first);
            let (expected_partitions, expected_rows) = expected(inputs, &shard);
            let options = BuilderOptions {
                directory: self.data_directory(),
                id,
                table: spec.id,
                columns: spec.columns.clone(),
                vnode_bits: bits,
                stamps,
                expected_partitions,
                expected_rows,
                block_bytes: BLOCK_BYTES,
            };
            Ok(Builder::create(&*self.vfs, options)?.watched(self.partitions.clone()))
        };
        let sources = inputs.iter().map(|file| file.sstable.read_through_counted(read.clone()));
        let merged = Merge::new(sources.collect::<Result<Vec<_>>>()?, Direction::Forward);
        let while_live = WhileLive { store: self, table, pace };
        let mut paced = Paced::new(merged, read.clone(), &while_live);
        if spec.live.is_none() && !inputs.iter().any(|file| file.has_candidates(now_s)) {
            return compaction::write(&mut paced, cut, &mut begin);
        }
        let mut limits = Limits::new(self, table, inputs);
        let mut purged = Purge::new(paced, now_s, spec.live.clone(), |key| limits.of(key));
        compaction::write(&mut purged, cut, &mut begin)
    }

    /// Drops those of the inputs that nothing outside needs; whether there were any.
    fn drop_files(&self, running: &Running, now_s: i64) -> Result<bool> {
        let (table, inputs) = (&running.table, &running.inputs);
        let limits = Limits::new(self, table, inputs);
        let facts: Vec<FileFacts> = inputs.iter().filter_map(|file| file.facts(true)).collect();
        let staying: Vec<FileFacts> = limits.outside().iter().filter_map(|file| file.facts(false)).collect();
        let mut bounds = BTreeMap::new();
        for file in inputs {
            bounds.insert(file.meta.id, limits.of_whole(file)?);
        }
        let limit = |file: &FileFacts| bounds.get(&file.id).copied().flatten();
        let (facts, staying): (Vec<_>, Vec<_>) = (facts.iter().collect(), staying.iter().collect());
        let gone = compaction::gone(&facts, &staying, limit);
        let is_gone = |file: &&Arc<LiveFile>| gone.iter().any(|facts| facts.id == file.meta.id);
        let (gone, needed): (Vec<_>, Vec<_>) = inputs.iter().partition(is_gone);
        self.compacting.are_needed(needed.iter().map(|file| file.meta.id), now_s);
        if gone.is_empty() {
            return Ok(false);
        }
        let gone: Vec<_> = gone.into_iter().cloned().collect();
        self.replace_files(table, &gone, Vec::new())?;
        self.compactions.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Lists `outputs` in the place of `inputs`, by one edit, and swaps the view.
    pub(super) fn replace_files(
        &self,
        table: &Arc<Table>,
        inputs: &[Arc<LiveFile>],
        outputs: Vec<Arc<LiveFile>>,
    ) -> Result<()> {
        let removed = inputs.iter().map(|file| Change::FileRemoved(file.meta.id));
        let added = outputs.iter().map(|file| Change::FileAdded(file.meta.clone()));
        let changes = removed.chain(added).collect();
        let mut manifest = self.manifest.lock();
        if !self.is_live(table) {
            outputs.iter().for_each(|file| self.remove_file(&self.file_path(file.meta.id)));
            return Err(Error::Stopped);
        }
        if let Err(error) = manifest.commit(changes) {
            outputs.iter().for_each(|file| manifest.remove_once_settled(self.file_path(file.meta.id)));
            return Err(error);
        }
        table.change_view(|view| view.with_replaced(inputs, outputs));
        drop(manifest);
        inputs.iter().for_each(|file| self.remove_file(&self.file_path(file.meta.id)));
        Ok(())
    }

    /// Whether the table is one of the store's: not once it was dropped.
    pub(super) fn is_live(&self, table: &Arc<Table>) -> bool {
        self.memory.tables.load().get(&table.spec().id).is_some_and(|live| Arc::ptr_eq(live, table))
    }
}

/// How many partitions and rows of these vnodes the files have, those counted twice that two of them have.
fn expected(files: &[Arc<LiveFile>], vnodes: &Range<u32>) -> (u64, u64) {
    let each = files.iter().map(|file| file.contents_of(vnodes));
    each.fold((0, 0), |(partitions, rows), (more, more_rows)| (partitions + more, rows + more_rows))
}

/// Stops the compaction of a table that was dropped.
struct WhileLive<'a> {
    store: &'a Store,
    table: &'a Arc<Table>,
    pace: &'a dyn Pace,
}

impl Pace for WhileLive<'_> {
    fn spend(&self, bytes: u64) -> Proceed {
        if self.store.is_live(self.table) { self.pace.spend(bytes) } else { Proceed::Stop }
    }
}
