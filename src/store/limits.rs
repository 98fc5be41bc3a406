//! Below which timestamp a compaction may purge, partition by partition: the bound of MODEL's third section, computed from
//! what the compaction really reads (B010).
//!
//! ```text
//! limit = min of   purged_through(keyspace, vnode) - lateness
//!                  least timestamp of the partition in every other file that may hold it (as its statistics have it)
//!                  least timestamp of the partition in every memtable, the active one too
//! none  where      nothing is known to be reconciled, records were logged before the purge began and are not inserted, or
//!                  a file of the table is quarantined, which may come back and hold anything, or
//!                  the table is being loaded, and what is older may come later, or
//!                  the table counts: a counter's deletion covers whatever its timestamp is
//! ```
//!
//! Whatever arrives later has a stamp behind `purged_through`, hence timestamps behind the first line; so looking once, at
//! any moment after what was logged is inserted, is enough.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::table::Table;
use super::view::LiveFile;
use super::{Content, Store};
use crate::Result;
use crate::commitlog::Position;
use crate::compaction::least_timestamp;
use crate::model::{Direction, PartitionKey, ScanRange, Slice, Stamp, Timestamp, Token, TokenRange, Type, Vnode};

const MICROS_PER_SECOND: i64 = 1_000_000;

pub(super) struct Limits<'a> {
    store: &'a Store,
    table: &'a Table,
    /// What the compaction reads.
    inputs: &'a [Arc<LiveFile>],
    purged_through: BTreeMap<Vnode, Stamp>,
    lateness_us: i64,
    /// Up to here the log was written when this was made, later than `purged_through` was read.
    appended: Position,
}

impl<'a> Limits<'a> {
    pub(super) fn new(store: &'a Store, table: &'a Table, inputs: &'a [Arc<LiveFile>]) -> Limits<'a> {
        let spec = table.spec();
        let counts = spec.columns.iter().any(|(_, ty)| *ty == Type::Counter);
        let may_purge = !counts && spec.content == Content::Whole;
        let purged_through = if may_purge { store.purged_through(spec.keyspace) } else { BTreeMap::new() };
        // With the log held nothing is half appended.
        let log = store.log.lock();
        let appended = store.memory.names.lock().appended();
        drop(log);
        let lateness_us = i64::from(spec.lateness_s) * MICROS_PER_SECOND;
        Limits { store, table, inputs, purged_through, lateness_us, appended }
    }

    /// The limit of a partition.
    pub(super) fn of(&mut self, key: &PartitionKey) -> Result<Option<Timestamp>> {
        let vnode = self.store.identity.vnode_bits.vnode(key.token());
        let Some(mut limit) = self.of_time(vnode).filter(|_| self.is_inserted()) else { return Ok(None) };
        // From here on the view: what is inserted now is in it, in a memtable or in a file.
        let view = self.table.view();
        if !view.quarantined.is_empty() {
            return Ok(None);
        }
        for memtable in view.memtables() {
            if let Some(mut stream) = memtable.partition(key, &[Slice::all()], Direction::Forward)? {
                limit = least_timestamp(&mut stream)?.map_or(limit, |least| least.min(limit));
            }
        }
        for file in view.files.iter().filter(|file| !self.is_input(file) && file.sstable.may_hold_partition(key)) {
            limit = file.sstable.stats().timestamps.map_or(limit, |(least, _)| least.min(limit));
        }
        Ok(Some(limit))
    }

    /// The limit of everything in a file, as far as times and memtables go.
    pub(super) fn of_whole(&self, file: &LiveFile) -> Result<Option<Timestamp>> {
        let Some(mut limit) = self.of_times(file).filter(|_| self.is_inserted()) else { return Ok(None) };
        let Some((first, last)) = &file.sstable.stats().keys else { return Ok(None) };
        let view = self.table.view();
        if !view.quarantined.is_empty() {
            return Ok(None);
        }
        let (first, last) = (first.token(), last.token());
        let tokens = TokenRange { after: first.0.checked_sub(1).map(Token), up_to: Some(last) };
        for memtable in view.memtables() {
            let range = ScanRange { tokens, ..ScanRange::default() };
            let mut stream = memtable.scan(range, &[Slice::all()], Direction::Forward);
            limit = least_timestamp(&mut stream)?.map_or(limit, |least| least.min(limit));
        }
        Ok(Some(limit))
    }

    /// Whether everything in a file is old enough, whatever else there is.
    pub(super) fn is_below_time(&self, file: &LiveFile) -> bool {
        let newest = file.sstable.stats().timestamps.map(|(_, newest)| newest);
        newest.zip(self.of_times(file)).is_some_and(|(newest, limit)| newest < limit)
    }

    /// The live files that the compaction does not read.
    pub(super) fn outside(&self) -> Vec<Arc<LiveFile>> {
        self.table.view().files.iter().filter(|file| !self.is_input(file)).cloned().collect()
    }

    fn of_times(&self, file: &LiveFile) -> Option<Timestamp> {
        let spans = &file.sstable.vnodes().spans;
        spans.iter().map(|span| self.of_time(span.vnode)).reduce(|a, b| Some(a?.min(b?))).flatten()
    }

    fn of_time(&self, vnode: Vnode) -> Option<Timestamp> {
        let through = self.purged_through.get(&vnode)?;
        Some(Timestamp(through.0.saturating_sub(self.lateness_us)))
    }

    /// Whether everything that was logged before is in a memtable or a file.
    fn is_inserted(&self) -> bool {
        self.store.memory.names.lock().inserted() >= self.appended
    }

    fn is_input(&self, file: &LiveFile) -> bool {
        self.inputs.iter().any(|input| input.meta.id == file.meta.id)
    }
}
