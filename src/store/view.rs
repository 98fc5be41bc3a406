//! What a read of one table looks at: an immutable set of memtables and files, swapped whole.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use super::quarantine::QuarantinedMeta;
use crate::commitlog::Position;
use crate::compaction::FileFacts;
use crate::memtable::Memtable;
use crate::model::Stamp;
use crate::sstable::{Sstable, SstableMeta};

/// Everything a table holds at one moment. A reader keeps it for as long as it reads.
#[derive(Clone)]
pub(super) struct View {
    /// Takes writes.
    pub(super) active: Arc<Memtable>,
    /// Wait for their flush, oldest first.
    pub(super) frozen: Vec<Arc<Frozen>>,
    /// Live files, those with the newest timestamps first: a read that comes upon a deletion of its partition need not go on
    /// to older ones.
    pub(super) files: Vec<Arc<LiveFile>>,
    /// Listed files that answer nothing.
    pub(super) quarantined: Vec<Arc<QuarantinedMeta>>,
}

/// A memtable that takes no more writes.
pub(super) struct Frozen {
    pub(super) memtable: Arc<Memtable>,
    /// The log before this position holds nothing of it.
    pub(super) begin: Position,
    /// Every record of the table that ends here or before is in it or in an older one.
    pub(super) up_to: Position,
    /// Least and greatest stamp of its records.
    pub(super) stamps: (Stamp, Stamp),
}

/// A file that the manifest lists.
pub(super) struct LiveFile {
    pub(super) meta: SstableMeta,
    pub(super) sstable: Arc<Sstable>,
}

impl LiveFile {
    /// What there is to know of it to decide about compactions; nothing of a file that holds nothing.
    pub(super) fn facts(&self, is_spent: bool) -> Option<FileFacts> {
        let stats = self.sstable.stats();
        let (first, last) = stats.keys.as_ref()?;
        let spans = &self.sstable.vnodes().spans;
        Some(FileFacts {
            id: self.meta.id,
            bytes: self.meta.bytes,
            tokens: (first.token(), last.token()),
            vnodes: (spans.first()?.vnode, spans.last()?.vnode),
            timestamps: stats.timestamps?,
            last_stamp: self.meta.stamps.1,
            is_spent,
        })
    }

    /// Whether, by its statistics, everything in it deletes or has expired at `now_s`.
    pub(super) fn may_be_spent(&self, now_s: i64) -> bool {
        let stats = self.sstable.stats();
        !stats.lasts && stats.expiries_s.is_none_or(|(_, last)| last <= now_s)
    }

    /// Whether anything in it deletes or has expired at `now_s`.
    pub(super) fn has_candidates(&self, now_s: i64) -> bool {
        let stats = self.sstable.stats();
        stats.tombstones > 0 || stats.expiries_s.is_some_and(|(first, _)| first <= now_s)
    }

    /// How many partitions and rows it has in these vnodes.
    pub(super) fn contents_of(&self, vnodes: &Range<u32>) -> (u64, u64) {
        let spans = self.sstable.vnodes().spans.iter();
        let within = spans.filter(|span| vnodes.contains(&span.vnode.0));
        within.fold((0, 0), |(partitions, rows), span| (partitions + span.partitions, rows + span.rows))
    }
}

impl View {
    pub(super) fn new(files: Vec<Arc<LiveFile>>) -> View {
        View { active: Arc::new(Memtable::new()), frozen: Vec::new(), files, quarantined: Vec::new() }.sorted()
    }

    fn sorted(mut self) -> View {
        self.files.sort_by_key(|file| Reverse(file.sstable.stats().timestamps.map(|(_, newest)| newest)));
        self
    }

    /// The active memtable is frozen, an empty one takes its place.
    pub(super) fn with_frozen(&self, begin: Position, up_to: Position, stamps: (Stamp, Stamp)) -> View {
        let mut next = self.clone();
        let memtable = std::mem::replace(&mut next.active, Arc::new(Memtable::new()));
        next.frozen.push(Arc::new(Frozen { memtable, begin, up_to, stamps }));
        next
    }

    /// A file takes the place of a frozen memtable.
    pub(super) fn with_flushed(&self, frozen: &Arc<Frozen>, file: Arc<LiveFile>) -> View {
        let mut next = self.clone();
        next.frozen.retain(|other| !Arc::ptr_eq(other, frozen));
        next.files.push(file);
        next.sorted()
    }

    /// Files are added.
    pub(super) fn with_loaded(&self, files: Vec<Arc<LiveFile>>) -> View {
        let mut next = self.clone();
        next.files.extend(files);
        next.sorted()
    }

    /// Files take the place of others.
    pub(super) fn with_replaced(&self, inputs: &[Arc<LiveFile>], outputs: Vec<Arc<LiveFile>>) -> View {
        let mut next = self.clone();
        next.files.retain(|file| !inputs.iter().any(|input| input.meta.id == file.meta.id));
        next.files.extend(outputs);
        // It was read whole before it was found to be damaged.
        next.quarantined.retain(|file| !inputs.iter().any(|input| input.meta.id == file.meta.id));
        next.sorted()
    }

    /// A file answers nothing from now on, whether it did before or not.
    pub(super) fn with_quarantined(&self, file: Arc<QuarantinedMeta>) -> View {
        let mut next = self.clone();
        next.files.retain(|other| other.meta.id != file.meta.id);
        next.quarantined.push(file);
        next
    }

    /// Files that are out of use go for good.
    pub(super) fn without_quarantined(&self, gone: &[SstableMeta]) -> View {
        let mut next = self.clone();
        next.quarantined.retain(|file| !gone.iter().any(|gone| gone.id == file.meta.id));
        next
    }

    /// The active memtable and the frozen ones.
    pub(super) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(self.frozen.iter().map(|frozen| &frozen.memtable))
    }

    /// Bytes in memtables.
    pub(super) fn memtable_bytes(&self) -> u64 {
        self.memtables().map(|memtable| memtable.bytes()).sum()
    }

    pub(super) fn has_unflushed(&self) -> bool {
        !self.frozen.is_empty() || !self.active.is_empty()
    }
}
