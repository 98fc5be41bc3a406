//! One table: its view, and the log positions that its memtables cover.
//!
//! **Invariant:** a memtable switch is exact. Inserting and freezing hold the same lock, and inserting goes in log order,
//! so a frozen memtable and its elders hold every record of the table up to one position and none behind it (B020).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::TableSpec;
use super::view::{Frozen, LiveFile, View};
use crate::Result;
use crate::codec::CheckedRecord;
use crate::commitlog::Position;
use crate::model::Stamp;

pub(super) struct Table {
    spec: ArcSwap<TableSpec>,
    view: ArcSwap<View>,
    /// What flushes and compactions have written.
    pub(super) work: Work,
    /// Held while a record is inserted and while the view is changed.
    active: Mutex<Active>,
}

/// What is known of the active memtable.
#[derive(Debug, Default)]
struct Active {
    /// Where the log stood before its first record; `None` while it is empty.
    begin: Option<Position>,
    /// The end of the last record of the table.
    last: Position,
    stamps: (Stamp, Stamp),
    /// The table is gone: what comes has no effect.
    is_closed: bool,
}

/// What flushes and compactions of a table have written since the start, in bytes.
#[derive(Debug)]
pub(super) struct Work {
    flushed: AtomicU64,
    compacted: AtomicU64,
    /// The size of a flush, the recent ones counting most.
    flush_bytes: AtomicU64,
}

impl Work {
    /// Nothing yet. Before the first flush the smallest file stands for one.
    fn new(files: &[Arc<LiveFile>]) -> Work {
        let smallest = files.iter().map(|file| file.meta.bytes).min().unwrap_or(0);
        Work { flushed: AtomicU64::new(0), compacted: AtomicU64::new(0), flush_bytes: AtomicU64::new(smallest) }
    }

    pub(super) fn flushed(&self, bytes: u64) {
        self.flushed.fetch_add(bytes, Ordering::Relaxed);
        // One flush at a time.
        let before = self.flush_bytes.load(Ordering::Relaxed);
        let now = if before == 0 { bytes } else { before - before / 8 + bytes / 8 };
        self.flush_bytes.store(now, Ordering::Relaxed);
    }

    pub(super) fn compacted(&self, bytes: u64) {
        self.compacted.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn flush_bytes(&self) -> u64 {
        self.flush_bytes.load(Ordering::Relaxed)
    }

    /// Bytes written by flushes, and by compactions.
    pub(super) fn written(&self) -> (u64, u64) {
        (self.flushed.load(Ordering::Relaxed), self.compacted.load(Ordering::Relaxed))
    }
}

/// Where a record stands in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// At its first byte or before.
    pub(super) begin: Position,
    /// Behind its last byte.
    pub(super) end: Position,
}

impl Table {
    /// A table whose records up to `flushed` are all in `files`.
    pub(super) fn new(spec: TableSpec, files: Vec<Arc<LiveFile>>, flushed: Position) -> Table {
        let active = Mutex::new(Active { last: flushed, ..Active::default() });
        let work = Work::new(&files);
        Table { spec: ArcSwap::from_pointee(spec), view: ArcSwap::from_pointee(View::new(files)), work, active }
    }

    pub(super) fn spec(&self) -> Arc<TableSpec> {
        self.spec.load_full()
    }

    pub(super) fn set_spec(&self, spec: TableSpec) {
        self.spec.store(Arc::new(spec));
    }

    pub(super) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Inserts a record, in log order. What ends at the last position or before is in already: replay meets records that
    /// were flushed.
    pub(super) fn insert(&self, record: &CheckedRecord, span: Span) -> Result<()> {
        let mut active = self.active.lock();
        if span.end <= active.last || active.is_closed {
            return Ok(());
        }
        let memtable = &self.view.load().active;
        memtable.insert(record.token(), &record.mutation()?)?;
        active.last = span.end;
        if memtable.is_empty() {
            return Ok(());
        }
        let stamp = record.stamp();
        match active.begin {
            Some(_) => active.stamps = (active.stamps.0.min(stamp), active.stamps.1.max(stamp)),
            None => {
                active.begin = Some(span.begin);
                active.stamps = (stamp, stamp);
            }
        }
        Ok(())
    }

    /// The table takes no more writes: whoever is about to insert one inserts it before, or without effect.
    pub(super) fn close(&self) {
        self.active.lock().is_closed = true;
    }

    /// Undoes [`Table::close`].
    pub(super) fn open(&self) {
        self.active.lock().is_closed = false;
    }

    /// Freezes the active memtable, unless it is empty.
    pub(super) fn freeze(&self) {
        let mut active = self.active.lock();
        if let Some(begin) = active.begin.take() {
            self.view.store(Arc::new(self.view.load().with_frozen(begin, active.last, active.stamps)));
        }
    }

    /// Swaps the view for one that is made of it.
    pub(super) fn change_view(&self, change: impl FnOnce(&View) -> View) {
        let _held = self.active.lock();
        self.view.store(Arc::new(change(&self.view.load())));
    }

    /// Where the log begins that holds what is not in files, counting `flushed` as one; `None` if there is nothing.
    pub(super) fn unflushed_from(&self, flushed: Option<&Arc<Frozen>>) -> Option<Position> {
        let active = self.active.lock();
        let view = self.view.load();
        let left = view.frozen.iter().filter(|frozen| !flushed.is_some_and(|flushed| Arc::ptr_eq(flushed, frozen)));
        left.map(|frozen| frozen.begin).chain(active.begin).min()
    }
}
