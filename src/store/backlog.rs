//! What compaction is doing, what waits for it, and what the files cost: numbers for people, metrics and whoever steers.

use super::Store;
use crate::compaction::{Action, overlap, settled_bytes};
use crate::model::TableId;

/// Flushes wait for compaction where so many files of a table hold one token: reads would open all of them.
pub const OVERLAP_MAX: usize = 200;

/// What compaction is doing and what waits for it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CompactionStatus {
    /// What is being carried out, in the order in which it was begun.
    pub running: Vec<RunningCompaction>,
    /// Tables that have files, by id.
    pub tables: Vec<TableFiles>,
}

/// A compaction that is being carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningCompaction {
    /// The table.
    pub table: TableId,
    /// Files it replaces.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// So many of them were read.
    pub bytes_read: u64,
}

/// The files of a table and what they cost.
#[derive(Debug, Clone, PartialEq)]
pub struct TableFiles {
    /// The table.
    pub table: TableId,
    /// Its files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that are to be compacted and are not yet.
    pub waiting_files: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// Files that are left alone for now, since their compaction failed.
    pub aside_files: u64,
    /// Files that a read of one partition may have to open, at most.
    pub read_amplification: u64,
    /// Bytes written to files since the start for each byte that was flushed; 0 before the first flush.
    pub write_amplification: f64,
    /// Bytes of files for each byte that they would about take if no row stood in two of them; 0 without files.
    pub space_amplification: f64,
}

impl CompactionStatus {
    /// Bytes of files that are being compacted, as far as they are not read, or wait for it.
    pub fn backlog_bytes(&self) -> u64 {
        let running: u64 = self.running.iter().map(|running| running.bytes - running.bytes_read).sum();
        running + self.tables.iter().map(|table| table.waiting_bytes).sum::<u64>()
    }

    /// Files that are being compacted or wait for it.
    pub fn backlog_files(&self) -> u64 {
        let running: u64 = self.running.iter().map(|running| running.files).sum();
        running + self.tables.iter().map(|table| table.waiting_files).sum::<u64>()
    }
}

impl Store {
    /// [`CompactionStatus::backlog_bytes`], at less cost.
    pub fn compaction_backlog_bytes(&self, now_s: i64) -> u64 {
        let running = self.compacting.running();
        let running: u64 = running.iter().map(|running| running.bytes() - running.bytes_read()).sum();
        let tables = self.memory.tables.load_full();
        let busy = self.compacting.busy(now_s);
        let waiting = tables.values().flat_map(|table| self.choices(table, &table.view(), now_s, &busy));
        running + waiting.map(|choice| choice.bytes).sum::<u64>()
    }

    /// What compaction is doing and what waits for it, at `now_s`.
    pub fn compaction_status(&self, now_s: i64) -> CompactionStatus {
        let running = self.compacting.running();
        let running = running.iter().map(|running| RunningCompaction {
            table: running.table.spec().id,
            files: running.inputs.len() as u64,
            bytes: running.bytes(),
            bytes_read: running.bytes_read(),
        });
        let running = running.collect();
        let tables = self.memory.tables.load_full();
        let tables = tables.iter().filter_map(|(id, table)| {
            let view = table.view();
            let busy = self.compacting.busy(now_s);
            let facts: Vec<_> = view.files.iter().filter_map(|file| file.facts(false)).collect();
            let waiting = self.choices(table, &view, now_s, &busy);
            let waiting = || waiting.iter().filter(|choice| choice.action == Action::Merge);
            let bytes: u64 = facts.iter().map(|file| file.bytes).sum();
            let (flushed, compacted) = table.work.written();
            let ratio = |of: u64, to: u64| if to == 0 { 0.0 } else { of as f64 / to as f64 };
            (!facts.is_empty()).then(|| TableFiles {
                table: *id,
                files: facts.len() as u64,
                bytes,
                waiting_files: waiting().map(|choice| choice.inputs.len() as u64).sum(),
                waiting_bytes: waiting().map(|choice| choice.bytes).sum(),
                aside_files: facts.iter().filter(|file| busy.aside.contains(&file.id)).count() as u64,
                read_amplification: overlap(&facts) as u64,
                write_amplification: ratio(flushed + compacted, flushed),
                space_amplification: ratio(bytes, settled_bytes(&facts, self.identity.vnode_bits)),
            })
        });
        CompactionStatus { running, tables: tables.collect() }
    }

    /// Whether so many files of a table overlap that no more may come before some of them are compacted. Never for files
    /// that cannot be: these must not stop a node.
    pub fn must_compact(&self, now_s: i64) -> bool {
        let tables = self.memory.tables.load_full();
        let crowded = |table: &super::table::Table| {
            let view = table.view();
            view.files.len() > OVERLAP_MAX
                && overlap(&view.files.iter().filter_map(|file| file.facts(false)).collect::<Vec<_>>()) > OVERLAP_MAX
        };
        let mut behind = tables.values().filter(|table| crowded(table)).peekable();
        if behind.peek().is_none() {
            return false;
        }
        let aside = self.compacting.busy(now_s).aside;
        behind.any(|table| !table.view().files.iter().any(|file| aside.contains(&file.meta.id)))
    }
}
