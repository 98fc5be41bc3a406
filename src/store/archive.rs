//! What an archive gets of a node: its log, record by record, and its files as soon as they are whole.
//!
//! ```text
//!   set_archived(p) ─► segments before p may go        log_since(p) ─► records, and the next p        by one, again and again
//!   files_seen has grown ─► live_files ─► open_sealed ─► read to its end, though a compaction removes it meanwhile
//! ```
//!
//! The store does not know what an archive is: nothing is archived until somebody says so, after each start anew.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use super::Store;
use crate::Result;
use crate::commitlog::{Gathering, Position, Since, Stretch};
use crate::sstable::{SstableMeta, file_name};
use crate::vfs::File;

impl Store {
    /// Says that there is an archive, which has the log before `archived`: segments from there on stay, within the bound of
    /// [`super::StoreOptions::log_kept_bytes_max`], until it has them. `None`: there is none, which is so at the start. To be
    /// called right after [`Store::open`], with the default position where it is not yet known what is archived, and as
    /// the archive grows. What went before its time is counted in [`super::StoreStatus::log_unarchived_lost`].
    pub fn set_archived(&self, archived: Option<Position>) -> Result<()> {
        self.log.lock().set_archived(archived)
    }

    /// Where the log begins by now: from here on goes who never archived anything of this node.
    pub fn log_first(&self) -> Position {
        self.log.lock().first()
    }

    /// The durable records from `from` on, a position that this answered before or [`Store::log_first`], until they take
    /// `bytes_max`: at least one, if there is any. Reads beside the thread that appends. Blocks.
    pub fn log_since(&self, from: Position, bytes_max: usize) -> Result<Since> {
        let stretch = self.log.lock().stretch(from);
        let readings = match stretch {
            Stretch::Readings(readings) => readings,
            Stretch::Gone(first) => return Ok(Since::Gone { first }),
            Stretch::Ahead(end) => return Ok(Since::Ahead { end }),
        };
        let mut gathering = Gathering::from(from);
        for reading in &readings {
            if gathering.is_full(bytes_max) {
                break;
            }
            let gathered = reading.gather(&*self.vfs, bytes_max, &mut gathering);
            if let Err(error) = gathered {
                let log = self.log.lock();
                // It was recycled while it was read, which is told as if it had been gone before.
                return if log.has(reading) { Err(error) } else { Ok(Since::Gone { first: log.first() }) };
            }
        }
        Ok(Since::Records(gathering.finish(from)))
    }

    /// Rises with each file that a flush, a compaction or a load makes: a cheap question before [`Store::live_files`].
    pub fn files_made(&self) -> u64 {
        [&self.flushes, &self.compactions, &self.loads].iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The files in use, and where they are. They may be gone a moment later.
    pub fn live_files(&self) -> Vec<(SstableMeta, PathBuf)> {
        let holders = self.memory.holders();
        let metas = holders.iter().flat_map(|table| {
            let view = table.view();
            view.files.iter().map(|file| file.meta.clone()).collect::<Vec<_>>()
        });
        metas.map(|meta| (meta.clone(), self.file_path(meta.id))).collect()
    }

    /// Opens a file to be read to its end, though it goes meanwhile; one that is not in use may still be in a snapshot.
    /// `None` if it is nowhere.
    pub fn open_sealed(&self, id: Uuid) -> Result<Option<Arc<dyn File>>> {
        let snapshots = self.snapshots.list();
        let holding = snapshots.whole.values().filter(|snapshot| snapshot.holds(id));
        let directories = holding.map(|snapshot| self.snapshots.path(snapshot.id));
        for directory in std::iter::once(self.data_directory()).chain(directories) {
            let path = directory.join(file_name(id));
            // It may go between the question and the opening: then it is looked for elsewhere.
            match self.vfs.exists(&path)?.then(|| self.vfs.open(&path)) {
                Some(Ok(file)) => return Ok(Some(file)),
                Some(Err(error)) if self.vfs.exists(&path)? => return Err(error),
                _ => {}
            }
        }
        Ok(None)
    }
}
