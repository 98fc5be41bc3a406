//! What a read of one table looks at: an immutable set of memtables and files, swapped whole.

use std::cmp::Reverse;
use std::sync::Arc;

use uuid::Uuid;

use crate::commitlog::Position;
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

impl View {
    pub(super) fn new(files: Vec<Arc<LiveFile>>) -> View {
        View { active: Arc::new(Memtable::new()), frozen: Vec::new(), files }.sorted()
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

    /// One file takes the place of several.
    pub(super) fn with_merged(&self, inputs: &[Uuid], file: Arc<LiveFile>) -> View {
        let mut next = self.clone();
        next.files.retain(|other| !inputs.contains(&other.meta.id));
        next.files.push(file);
        next.sorted()
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
