//! The store: log, memtables, flush, compaction, reads of files.

use std::path::Path;
use std::sync::Arc;

use trefoil::codec::CheckedRecord;
use trefoil::compaction::Unpaced;
use trefoil::model::{ColumnId, CompactionOptions, Direction, Durability, Order, ReadCommand, Slice, Target, Type};
use trefoil::store::{Access, Store, StoreOptions, TableSpec};
use trefoil::vfs::disk::DiskVfs;

use super::log;
use crate::{Result, data};

/// Records of one append, as they gather on a busy node.
const GROUP: usize = 64;

/// Sizes of a segment of the log: that of nodes, or as much smaller as the memtables are.
const SEGMENT_BYTES: std::ops::Range<u64> = 1 << 20..64 << 20;

/// A new store with one table. At half of the budget a memtable is flushed.
pub fn open(directory: &Path, memtable_budget_bytes: u64) -> Result<Store> {
    open_with(directory, memtable_budget_bytes, 256 << 20)
}

/// The same, new or as it was left, with so much memory for decoded blocks.
pub fn open_with(directory: &Path, memtable_budget_bytes: u64, cache_bytes: u64) -> Result<Store> {
    let options = StoreOptions {
        directory: directory.to_owned(),
        segment_bytes: (memtable_budget_bytes / 2).clamp(SEGMENT_BYTES.start, SEGMENT_BYTES.end),
        log_kept_bytes_max: 0,
        memtable_budget_bytes,
        cache_bytes,
        snapshots: Default::default(),
    };
    let table = TableSpec {
        id: data::table(),
        keyspace: data::KEYSPACE,
        durability: Durability::Periodic,
        lateness_s: 3_600,
        compaction: CompactionOptions::default(),
        content: Default::default(),
        live: None,
        clustering: vec![(Type::Int, Order::Ascending)],
        columns: vec![(ColumnId(1), Type::BigInt), (ColumnId(2), Type::Int), (data::VALUE, Type::Blob)],
        label: Default::default(),
    };
    let store = Store::open(Arc::new(DiskVfs), options, log::identity(), &[table])?;
    store.prepare_log()?;
    Ok(store)
}

/// Writes all records without syncing each group, flushing and compacting when the store asks for it; how many.
pub fn load(store: &Store, records: &[CheckedRecord]) -> Result<u64> {
    let mut ends = Vec::new();
    for group in records.chunks(GROUP) {
        ends.clear();
        store.append(group, &mut ends)?;
        for (record, end) in group.iter().zip(&ends) {
            store.insert(record, *end)?;
        }
        if store.wants_flush() {
            store.flush_next()?;
            while store.compact_next(0, &Unpaced)? {}
            store.prepare_log()?;
        }
    }
    Ok(records.len() as u64)
}

/// A read of some rows of one partition.
pub fn command(number: u64, slice: Slice, limit_rows: u32) -> Result<ReadCommand> {
    Ok(ReadCommand {
        table: data::table(),
        target: Target::Partition(data::partition(number)?),
        slices: vec![slice],
        direction: Direction::Forward,
        after: None,
        now_s: 1_800_000_000,
        limit_rows,
        limit_bytes: 1 << 20,
    })
}

/// Reads row by row; how many commands.
pub fn read(store: &Store, commands: &[ReadCommand]) -> Result<u64> {
    for command in commands {
        if store.read(command, Access::Disk)?.entries.is_empty() {
            return Err(format!("nothing was found by {command:?}").into());
        }
    }
    Ok(commands.len() as u64)
}
