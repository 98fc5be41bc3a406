//! What the log's records become when they are applied: memtables, names, the clock. Replay and the write path share it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::names::Names;
use super::table::{Span, Table};
use crate::Result;
use crate::codec::CheckedRecord;
use crate::commitlog::Position;
use crate::model::{TableId, VnodeBits};
use crate::received::Slice;

/// All tables.
pub(super) type Tables = BTreeMap<TableId, Arc<Table>>;

pub(super) struct Memory {
    pub(super) tables: ArcSwap<Tables>,
    /// Tables that are gone, whose data is to follow.
    pub(super) leaving: Mutex<Tables>,
    pub(super) names: Mutex<Names>,
    /// Slices that are not to be read here, each with the placement under which it was told. Changes with the manifest held.
    pub(super) withdrawn: ArcSwap<BTreeMap<Slice, u64>>,
    /// The largest stamp seen.
    pub(super) last_stamp: AtomicI64,
    pub(super) vnode_bits: VnodeBits,
}

impl Memory {
    /// Bytes held by all memtables.
    pub(super) fn memtable_bytes(&self) -> u64 {
        let of = |tables: &Tables| tables.values().map(|table| table.view().memtable_bytes()).sum::<u64>();
        of(&self.tables.load()) + of(&self.leaving.lock())
    }

    /// All tables that hold anything, also those that leave.
    pub(super) fn holders(&self) -> Vec<Arc<Table>> {
        // A table that goes stands among those that leave before it is missed here.
        let mut holders: Vec<_> = self.tables.load().values().cloned().collect();
        holders.extend(self.leaving.lock().values().cloned());
        holders
    }

    /// Applies a logged record, in log order. One of an unknown table has no effect, but its name is received.
    pub(super) fn insert(&self, record: &CheckedRecord, end: Position) -> Result<()> {
        let span = Span { begin: self.names.lock().inserted(), end };
        if let Some(table) = self.tables.load().get(&record.table()) {
            table.insert(record, span)?;
        }
        self.last_stamp.fetch_max(record.stamp().0, Ordering::Relaxed);
        self.names.lock().on_inserted(end, record.name(self.vnode_bits));
        Ok(())
    }
}
