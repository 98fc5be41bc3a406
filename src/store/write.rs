//! The local write path: log, sync, insert. The order between them is the caller's: a `commit` table is inserted after
//! the sync, a `periodic` one before it.

use std::sync::atomic::Ordering;

use super::Store;
use crate::codec::CheckedRecord;
use crate::commitlog::Position;
use crate::model::Stamp;
use crate::received::ReceivedSets;
use crate::{Error, Result};

impl Store {
    /// Writes records to the log; answers the end position of each, appended to `ends`. One thread at a time. `Busy` if the
    /// memtables are at their budget: then nothing was written.
    pub fn append<R: AsRef<CheckedRecord>>(&self, records: &[R], ends: &mut Vec<Position>) -> Result<()> {
        let (held_bytes, budget_bytes) = (self.memtable_bytes(), self.options.memtable_budget_bytes);
        if held_bytes > budget_bytes {
            return Err(Error::Busy { held_bytes, budget_bytes });
        }
        let mut log = self.log.lock();
        log.append(records, ends)?;
        ends.iter().last().into_iter().for_each(|end| self.memory.names.lock().on_appended(*end));
        Ok(())
    }

    /// Makes everything appended so far durable. Names inserted before become part of the received sets.
    pub fn sync(&self) -> Result<Position> {
        let mut log = self.log.lock();
        let position = log.sync()?;
        // Nothing may be logged and inserted in between: what is pending was logged before this position.
        self.memory.names.lock().on_synced(position);
        Ok(position)
    }

    /// Makes a logged record visible; in log order, by the thread that appended. A record of an unknown table is received
    /// without effect.
    pub fn insert(&self, record: &CheckedRecord, end: Position) -> Result<()> {
        self.memory.insert(record, end)
    }

    /// Fills a file of the log ahead of time, so that its next segment need not wait. To be called now and then, off the
    /// thread that appends.
    pub fn prepare_log(&self) -> Result<()> {
        let spares = self.log.lock().spares();
        spares.prepare()
    }

    /// Makes everything durable and seals the log, so that the next start finds no doubtful end. Writes are refused from
    /// then on, reads are not.
    pub fn close(&self) -> Result<()> {
        self.log.lock().close()
    }

    /// Why no more writes are taken until the store is opened again; `None` while they are.
    pub fn log_failure(&self) -> Option<String> {
        self.log.lock().failure().map(str::to_owned)
    }

    /// The received sets: what is fsynced and inserted.
    pub fn received(&self) -> ReceivedSets {
        self.memory.names.lock().sets().clone()
    }

    /// The largest stamp seen in any record or file; the clock of a new run starts behind it.
    pub fn last_stamp(&self) -> Stamp {
        Stamp(self.memory.last_stamp.load(Ordering::Relaxed))
    }
}
