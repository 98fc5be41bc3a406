//! Several files of a table become one. `compaction` decides and merges; here the result becomes live.

use std::sync::atomic::Ordering;

use uuid::Uuid;

use super::Store;
use super::change::Change;
use crate::Result;
use crate::compaction;

impl Store {
    /// Merges all files of the table that has most of them, if that is enough to be worth it; whether it did anything.
    ///
    /// The inputs go only behind the durable edit that replaces them; readers that hold them read on (B116).
    pub fn compact_next(&self) -> Result<bool> {
        let _one_at_a_time = self.compacting.lock();
        let tables = self.memory.tables.load_full();
        let Some(table) = compaction::choose(tables.values().map(|table| (table, table.view().files.len()))) else {
            return Ok(false);
        };
        let inputs = table.view().files.clone();
        let Some(stamps) = inputs.iter().map(|file| file.meta.stamps).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        else {
            return Ok(false);
        };
        let sources = inputs.iter().map(|file| file.sstable.read_through()).collect::<Result<Vec<_>>>()?;
        let partitions = inputs.iter().map(|file| file.sstable.stats().partitions).sum();
        let file = self.build(table, stamps, partitions, sources)?;
        let ids: Vec<Uuid> = inputs.iter().map(|input| input.meta.id).collect();
        let mut changes: Vec<_> = ids.iter().copied().map(Change::FileRemoved).collect();
        changes.push(Change::FileAdded(file.meta.clone()));
        let is_live = self.make_live(table, file, changes, |view, file| view.with_merged(&ids, file))?;
        if is_live {
            ids.iter().for_each(|id| self.remove_file(&self.file_path(*id)));
            self.compactions.fetch_add(1, Ordering::Relaxed);
        }
        Ok(is_live)
    }
}
