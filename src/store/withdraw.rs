//! A replica that has lost something of what it told: it has nothing of the slice any more, until it was rebuilt.
//!
//! ```text
//!   withdraw ─► not read any more, no name told ─► manifest edit          at once, where the loss is found
//!   clear ─► memtables flushed ─► a snapshot, as before a drop ─► every file without these vnodes     each time a rebuild begins
//!   (data comes through the log, without names)
//!   rebuilt ─► one edit: the names of the sources, what they purged ─► read and told again
//! ```
//!
//! Also files that are whole go: what deleted their rows may have stood in the one that is lost, and be purged everywhere
//! else. Files that hold other vnodes too are written anew without those that are withdrawn.
//!
//! **Invariant:** no name of a withdrawn slice is in a received set, whatever is met in the log: what is told begins with what
//! the sources had told. Until then nothing of the slice is read, and nothing of it is purged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::change::Change;
use super::load::{Expected, Loader};
use super::snapshots::BeforeDrop;
use super::table::Table;
use super::view::LiveFile;
use super::{Content, Store};
use crate::codec::EncodedRow;
use crate::compaction::{self, Action, Pace, Proceed};
use crate::model::{Fragment, KeyspaceId, Stamp, Stream, Vnode, VnodeBits};
use crate::received::Slice;
use crate::received::told::{Reconciled, Told};
use crate::snapshot::{Cause, TableInfo};
use crate::sstable::SstableMeta;
use crate::{Error, Result};

/// Whether withdrawn vnodes are out of all files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleared {
    /// They are.
    Whole,
    /// A file that holds some is being compacted, or a table is being loaded: ask again later.
    NotYet,
}

impl Store {
    /// Withdraws slices, each with the number of the placement under which it was told. They are not read from now on, and
    /// their received sets are empty. After an error that holds until the process ends; call again.
    pub fn withdraw(&self, slices: &BTreeMap<Slice, u64>) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let mut withdrawn = BTreeMap::clone(&self.memory.withdrawn.load());
        withdrawn.extend(slices);
        self.memory.withdrawn.store(Arc::new(withdrawn));
        self.memory.names.lock().withdraw(slices.keys().copied());
        let known = &manifest.state().withdrawn;
        let news = slices.iter().filter(|(slice, placement)| known.get(slice) != Some(placement));
        let changes: Vec<_> =
            news.map(|((keyspace, vnode), placement)| Change::Withdrawn(*keyspace, *vnode, *placement)).collect();
        if changes.is_empty() { Ok(()) } else { manifest.commit(changes) }
    }

    /// The slices that are withdrawn, each with the number of the placement under which it was told.
    pub fn withdrawn(&self) -> Arc<BTreeMap<Slice, u64>> {
        self.memory.withdrawn.load_full()
    }

    /// Takes vnodes that are withdrawn out of all files of a keyspace, those that are quarantined included, after a snapshot of
    /// each table that has any, which goes by itself after a while. Blocks, as a compaction does. To be called when whatever is
    /// quarantined has been withdrawn. `now_us` is the time of day.
    pub fn clear_withdrawn(
        &self,
        keyspace: KeyspaceId,
        vnodes: &BTreeSet<Vnode>,
        now_us: i64,
        pace: &dyn Pace,
    ) -> Result<Cleared> {
        let withdrawn = self.withdrawn();
        let placement_of = |vnode: &Vnode| withdrawn.get(&(keyspace, *vnode)).copied();
        let vnodes: BTreeSet<Vnode> = vnodes.iter().filter(|vnode| placement_of(vnode).is_some()).copied().collect();
        let Some(placement) = vnodes.iter().filter_map(placement_of).max() else { return Ok(Cleared::Whole) };
        let tables = self.memory.tables.load_full();
        let mut cleared = Cleared::Whole;
        for table in tables.values().filter(|table| table.spec().keyspace == keyspace) {
            if table.spec().content == Content::Loading {
                cleared = Cleared::NotYet;
                continue;
            }
            self.flush_table(table)?;
            self.keep_before_rebuild(table, &vnodes, placement, now_us)?;
            self.forget_quarantined(table, &vnodes)?;
            if self.leave_out(table, &vnodes, now_us, pace)? == Cleared::NotYet {
                cleared = Cleared::NotYet;
            }
        }
        Ok(cleared)
    }

    /// Everything that the sources of a withdrawn slice had is here, durable, and theirs is what was told: `told`, as it was
    /// before their data was read. `purged`: what any of them may have purged by now.
    pub fn rebuilt(&self, slice: Slice, told: &Told, purged: Stamp) -> Result<()> {
        self.sync()?;
        let mut manifest = self.manifest.lock();
        // Whatever was logged until now, by this run or before, is no name that the sources know of, or is among theirs.
        let from = {
            let names = self.memory.names.lock();
            names.appended().max(names.inserted())
        };
        let through = manifest.state().reconciled.get(&slice).map(|held| held.through).unwrap_or_default();
        let (keyspace, vnode) = slice;
        manifest.commit(vec![
            Change::Rebuilt(keyspace, vnode, from),
            Change::Received(keyspace, vnode, told.set().clone()),
            Change::Reconciled(keyspace, vnode, Reconciled { through, floors: told.floors().clone() }),
            Change::PurgedThrough(keyspace, vnode, purged),
        ])?;
        self.memory.names.lock().rebuilt(slice, told.set(), from);
        let mut withdrawn = BTreeMap::clone(&self.memory.withdrawn.load());
        withdrawn.remove(&slice);
        self.memory.withdrawn.store(Arc::new(withdrawn));
        Ok(())
    }

    /// What goes may be wanted back by people: it is kept as a dropped table is. Once for each withdrawal, not for each attempt.
    fn keep_before_rebuild(
        &self,
        table: &Arc<Table>,
        vnodes: &BTreeSet<Vnode>,
        placement: u64,
        now_us: i64,
    ) -> Result<()> {
        let view = table.view();
        let has_quarantined = view.quarantined.iter().any(|file| touches_any(&file.quarantine.vnodes, vnodes));
        let is_touched = has_quarantined || view.files.iter().any(|file| holds_any(file, vnodes));
        if !is_touched || self.options.snapshots.before_drop != BeforeDrop::Snapshot {
            return Ok(());
        }
        let spec = table.spec();
        let name = format!("withdrawn-{}.{}-{placement}", spec.label.keyspace, spec.label.table);
        let _held = self.snapshots.changing.lock();
        let has_it = |tables: &[TableInfo]| tables.iter().any(|info| info.id == spec.id);
        if self.snapshots.list().whole.values().any(|kept| kept.name == name && has_it(&kept.tables)) {
            return Ok(());
        }
        let (held, tables) = (self.held_now()?, std::slice::from_ref(table));
        let made = self.take_snapshot(&name, Cause::BeforeRebuild, now_us, held, tables)?;
        tracing::info!(snapshot = made.name, id = %made.id, "what a table had before it is rebuilt is kept");
        Ok(())
    }

    fn forget_quarantined(&self, table: &Arc<Table>, vnodes: &BTreeSet<Vnode>) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let view = table.view();
        let gone: Vec<SstableMeta> = view
            .quarantined
            .iter()
            .filter(|file| touches_any(&file.quarantine.vnodes, vnodes))
            .map(|file| file.meta.clone())
            .collect();
        if gone.is_empty() || !self.is_live(table) {
            return Ok(());
        }
        manifest.commit(gone.iter().map(|file| Change::FileRemoved(file.id)).collect())?;
        table.change_view(|view| view.without_quarantined(&gone));
        drop(manifest);
        gone.iter().for_each(|file| self.remove_file(&self.file_path(file.id)));
        Ok(())
    }

    /// Writes every file anew that holds any of these vnodes, one by one, without them.
    fn leave_out(&self, table: &Arc<Table>, vnodes: &BTreeSet<Vnode>, now_us: i64, pace: &dyn Pace) -> Result<Cleared> {
        let now_s = now_us.div_euclid(1_000_000);
        loop {
            let claim = self.compacting.claim(now_s, |busy| {
                let view = table.view();
                let next =
                    view.files.iter().find(|file| holds_any(file, vnodes) && !busy.files.contains(&file.meta.id));
                next.map(|file| (Action::Merge, table.clone(), vec![file.clone()]))
            });
            let Some(claim) = claim else { break };
            for file in &claim.running.inputs {
                let outputs = self.write_without(table, file, vnodes, pace)?;
                self.replace_files(table, std::slice::from_ref(file), outputs)?;
            }
        }
        // The outputs of a compaction that was begun before hold them too, and are not in the view yet.
        let is_running = self.compacting.running().iter().any(|running| Arc::ptr_eq(&running.table, table));
        let is_left = is_running || table.view().files.iter().any(|file| holds_any(file, vnodes));
        Ok(if is_left { Cleared::NotYet } else { Cleared::Whole })
    }

    fn write_without(
        &self,
        table: &Arc<Table>,
        file: &Arc<LiveFile>,
        vnodes: &BTreeSet<Vnode>,
        pace: &dyn Pace,
    ) -> Result<Vec<Arc<LiveFile>>> {
        let staying = || file.sstable.vnodes().spans.iter().filter(|span| !vnodes.contains(&span.vnode));
        if staying().next().is_none() {
            return Ok(Vec::new());
        }
        let bits = self.identity.vnode_bits;
        let facts: Vec<_> = file.facts(false).into_iter().collect();
        let expected = Expected {
            stamps: file.meta.stamps,
            density_bytes: compaction::density(&facts, bits),
            partitions: staying().map(|span| span.partitions).sum(),
            rows: staying().map(|span| span.rows).sum(),
        };
        let source = file.sstable.read_through_counted(Arc::default())?;
        let mut without = Without { source, vnodes, bits, is_left_out: false };
        if pace.spend(file.meta.bytes) == Proceed::Stop {
            return Err(Error::Stopped);
        }
        let metas = Loader::of(self, table).write(&mut without, &expected)?;
        self.vfs.sync_dir(&self.data_directory())?;
        metas.into_iter().map(|meta| self.open_file(meta).map(Arc::new)).collect()
    }
}

fn holds_any(file: &LiveFile, vnodes: &BTreeSet<Vnode>) -> bool {
    file.sstable.vnodes().spans.iter().any(|span| vnodes.contains(&span.vnode))
}

fn touches_any(runs: &[(Vnode, Vnode)], vnodes: &BTreeSet<Vnode>) -> bool {
    runs.iter().any(|(first, last)| vnodes.range(*first..=*last).next().is_some())
}

/// A stream without the partitions of some vnodes.
struct Without<'a, S> {
    source: S,
    vnodes: &'a BTreeSet<Vnode>,
    bits: VnodeBits,
    /// Whether the present partition is one of those.
    is_left_out: bool,
}

impl<S: Stream<EncodedRow>> Stream<EncodedRow> for Without<'_, S> {
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        loop {
            let Some(fragment) = self.source.next()? else { return Ok(None) };
            if let Fragment::Partition(header) = &fragment {
                self.is_left_out = self.vnodes.contains(&self.bits.vnode(header.key.token()));
            }
            if !self.is_left_out {
                return Ok(Some(fragment));
            }
        }
    }
}
