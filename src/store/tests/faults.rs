//! Faults of other stores, by their name in the list of `docs/testing.md`.

use std::sync::Arc;

use super::{Node, OTHER, options, read_partition, scan, shape};
use crate::compaction::Unpaced;
use crate::model::naive::{TABLE, delete_rows, deletion, partition_key, row_key, rows, rows_between, value};
use crate::model::{ClusteringKey, Direction, Fragment, Mutation, Order, ReadCommand, Row, Slice, Type};
use crate::store::Access;
use crate::vfs::Vfs;
use crate::vfs::faulty::{Fault, FaultyVfs, Operation};
use crate::vfs::memory::MemoryVfs;
use crate::{Class, Error};

fn put(number: u8, row: i32, timestamp: i64) -> Mutation {
    rows(number, [(row, value("v", timestamp))])
}

fn delete_row(number: u8, row: i32, timestamp: i64) -> Mutation {
    rows(number, [(row, Row { deletion: Some(deletion(timestamp)), ..Row::default() })])
}

fn delete_partition(number: u8, timestamp: i64) -> Mutation {
    Mutation { deletion: Some(deletion(timestamp)), ..rows(number, []) }
}

fn other(mutation: Mutation) -> Mutation {
    Mutation { table: OTHER, ..mutation }
}

/// Runs `check` on a memtable, after a flush, on many files, after their compaction, and after a restart.
pub(super) fn in_every_form(mutations: &[Mutation], check: impl Fn(&Node)) {
    let mut node = Node::new();
    node.write_all(mutations);
    check(&node);
    node.flush();
    check(&node);
    let mut node = Node::new();
    for mutation in mutations {
        node.write(mutation);
        node.flush();
    }
    check(&node);
    node.compact();
    assert_eq!(node.store.status().sstables, 1);
    check(&node);
    check(&node.restart());
}

/// B002: compaction dropped a tombstone while an older row was still in a memtable, and the row came back. Here
/// compaction drops no tombstone at all.
#[test]
fn b002_a_late_older_write_stays_deleted() {
    let mut node = Node::new();
    node.write(&delete_row(1, 1, 20));
    for _ in 0..4 {
        node.write(&delete_row(1, 1, 20));
        node.flush();
    }
    node.write(&put(1, 1, 10));
    node.compact();
    assert_eq!(node.scan(TABLE), "p1 -1");
    node.flush();
    assert_eq!(node.scan(TABLE), "p1 -1");
}

/// B008: a segment lived on because of another table, and its replay brought back a row that had been flushed together
/// with its tombstone.
#[test]
fn b008_replay_passes_over_what_a_table_has_flushed() {
    let mut node = Node::new();
    node.write(&put(1, 1, 10));
    node.write(&other(put(1, 2, 10)));
    node.store.flush(Some(TABLE)).unwrap();
    node.write(&delete_row(1, 1, 20));
    node.store.flush(Some(TABLE)).unwrap();
    let node = node.restart();
    // Nothing of the first table is in a memtable again, so a purge of its tombstone could not be undone by replay.
    let unflushed = |id| node.store.memory.tables.load().get(&id).unwrap().view().has_unflushed();
    assert!(!unflushed(TABLE) && unflushed(OTHER));
    assert_eq!((node.scan(TABLE), node.scan(OTHER)), ("p1 -1".into(), "p1 2".into()));
}

/// B014: descending reads ignored range tombstones in another file than the rows.
#[test]
fn b014_a_reverse_read_meets_range_deletions_of_other_files() {
    let mutations = [rows(1, (0..10).map(|row| (row, value("v", 1)))), delete_rows(1, 2, 7, 2)];
    in_every_form(&mutations, |node| {
        let read = |direction| shape(&node.read(read_partition(1, Vec::new(), direction)));
        assert_eq!(read(Direction::Reverse), "p1 9 8 @2 / 1 0");
        assert_eq!(read(Direction::Forward), "p1 0 1 @2 / 8 9");
    });
}

/// B020: at a memtable switch the position to clean up to was taken too late: what went into the next memtable counted as
/// flushed. Here another thread flushes all the time while one writes, and every restart must find everything.
#[test]
fn b020_a_switch_is_exact_while_writes_go_on() {
    let mut node = Node::new();
    for round in 0..20 {
        let done = std::sync::atomic::AtomicBool::new(false);
        let records: Vec<_> = (0..50).map(|row| node.record(&put(round, row, 1))).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    node.store.flush_next().unwrap();
                }
            });
            for group in records.chunks(3) {
                let mut ends = Vec::new();
                node.store.append(group, &mut ends).unwrap();
                node.store.sync().unwrap();
                for (record, end) in group.iter().zip(ends) {
                    node.store.insert(record, end).unwrap();
                }
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        node = node.restart();
        for number in 0..=round {
            let found = node.read(read_partition(number, Vec::new(), Direction::Forward));
            assert_eq!(found.len(), 51, "partition {number} after round {round}");
        }
    }
}

/// B023: bounds in a file's statistics came from rows only; a read outside of them passed over the file with its range
/// tombstone, partition deletion or static row.
#[test]
fn b023_a_file_with_only_deletions_is_not_passed_over() {
    for covering in [delete_rows(1, 0, 5, 5), delete_partition(1, 5)] {
        in_every_form(&[put(1, 9, 10), covering.clone(), put(1, 1, 2)], |node| {
            let read = node.read(read_partition(1, vec![rows_between(1, 1)], Direction::Forward));
            assert!(!read.iter().any(|fragment| matches!(fragment, Fragment::Row(..))), "{}", shape(&read));
        });
    }
}

/// B028: after a flush that failed for want of space the log was freed all the same, and the only copy of acknowledged
/// writes was lost at the next crash.
#[test]
fn b028_a_flush_that_fails_keeps_memtable_and_log() {
    let memory = MemoryVfs::new();
    let faulty = FaultyVfs::new(Arc::new(memory.clone()));
    let mut node = Node::on(Arc::new(faulty.clone()));
    node.write(&put(1, 1, 10));
    faulty.fail(Operation::Write, 1, Fault::Full);
    assert_eq!(node.store.flush(None).unwrap_err().class(), Class::Unavailable);
    assert_eq!(node.store.status().memtables_frozen, 1);
    assert_eq!(node.scan(TABLE), "p1 1");
    node.write(&put(1, 2, 10));
    node.flush();
    assert_eq!((node.store.status().memtables_frozen, node.store.status().sstables), (0, 2));
    drop(node.store);
    memory.crash(1);
    assert_eq!(Node::on(Arc::new(memory)).scan(TABLE), "p1 1 2");
}

/// B034: with mixed clustering orders a reverse read passed over a whole file. Descending columns are turned around in the
/// bytes of the key and nowhere else.
#[test]
fn b034_mixed_orders_read_alike_before_and_after_a_flush() {
    let types = [(Type::Int, Order::Descending), (Type::Int, Order::Ascending)];
    let int = |number: i32| bytes::Bytes::copy_from_slice(&number.to_be_bytes());
    let key = |b: i32, c: i32| ClusteringKey::encode(&[int(b), int(c)], &types).unwrap();
    let mut written: Vec<_> = (1..=3).map(|number| (key(number, number), value("v", 1))).collect();
    written.sort_by(|a, b| a.0.cmp(&b.0));
    let mutation = Mutation { rows: written, ..rows(1, []) };
    in_every_form(&[mutation], |node| {
        let keys = |slices, direction| -> Vec<ClusteringKey> {
            let found = node.read(read_partition(1, slices, direction));
            let key = |fragment| if let Fragment::Row(key, _) = fragment { Some(key) } else { None };
            found.into_iter().filter_map(key).collect()
        };
        assert_eq!(keys(Vec::new(), Direction::Reverse), [key(1, 1), key(2, 2), key(3, 3)]);
        // (b, c) >= (2, 2) where b descends: from (2, 2) down in the bytes, that is, up to its place.
        let from = Slice { start: crate::model::Bound::bottom(), end: key(2, 2).after() };
        assert_eq!(keys(vec![from], Direction::Reverse), [key(2, 2), key(3, 3)]);
    });
}

/// B044: replay made several memtables; after the first was flushed, the recorded start of replay was behind records that
/// only the others held.
#[test]
fn b044_replay_begins_at_the_least_unflushed_position() {
    let mut node = Node::new();
    for round in 0..5u8 {
        for row in 0..60 {
            node.write(&rows(round, [(row, value(&"x".repeat(500), 1))]));
            node.write(&other(rows(round, [(row, value(&"x".repeat(500), 1))])));
        }
        node.store.flush(Some(if round % 2 == 0 { TABLE } else { OTHER })).unwrap();
        node = node.restart();
        node.store.flush_next().unwrap();
        node = node.restart();
        for table in [TABLE, OTHER] {
            let found = node.read(ReadCommand { table, ..scan() });
            assert_eq!(found.len(), 61 * (usize::from(round) + 1), "round {round}");
        }
    }
}

/// B097: a table with nothing to flush held its old segments for ever, and the log filled the disk.
#[test]
fn b097_a_clean_table_does_not_hold_the_log() {
    let mut node = Node::new();
    node.write(&put(1, 1, 1));
    node.flush();
    for row in 0..200 {
        node.write(&other(rows(1, [(row, value(&"x".repeat(1_000), 1))])));
        if row % 20 == 0 {
            node.store.flush(Some(OTHER)).unwrap();
        }
    }
    node.flush();
    let log_bytes = node.store.status().log_bytes;
    assert!(log_bytes <= 2 * options().segment_bytes, "{log_bytes} bytes of log hold nothing that is not in a file");
    // A table that is written once holds it, until the log asks for a flush of just that table.
    node.write(&put(2, 1, 1));
    let mut rounds = 0;
    while !node.store.wants_flush() {
        rounds += 1;
        assert!(rounds < 10_000, "the log grows without end");
        node.write(&other(rows(1, [(rounds, value(&"x".repeat(4_000), 1))])));
        if node.store.memtable_bytes() > 100_000 {
            node.store.flush(Some(OTHER)).unwrap();
        }
    }
    assert!(node.store.flush_next().unwrap());
    assert!(!node.store.memory.tables.load().get(&TABLE).unwrap().view().has_unflushed());
}

/// B098: a table that had never been flushed had no position, and the minimum over all tables left it out.
#[test]
fn b098_a_table_that_was_never_flushed_is_replayed() {
    let mut node = Node::new();
    node.write(&other(put(1, 2, 10)));
    for row in 0..50 {
        node.write(&rows(1, [(row, value(&"x".repeat(1_000), 1))]));
        node.store.flush(Some(TABLE)).unwrap();
    }
    assert_eq!(node.restart().scan(OTHER), "p1 2");
}

/// B103: two range tombstones that touch, read up to the border, from it, and in pages that end there.
#[test]
fn b103_touching_range_deletions_in_every_form() {
    let mut first = delete_rows(1, 1, 5, 1);
    first.ranges[0].end = row_key(5).before();
    let mutations = [rows(1, (0..10).map(|row| (row, value("v", 0)))), first, delete_rows(1, 5, 9, 2)];
    in_every_form(&mutations, |node| {
        let read = |slice: Slice, limit_bytes| {
            let command = read_partition(1, vec![slice], Direction::Forward);
            shape(&node.read(ReadCommand { limit_bytes, ..command }))
        };
        for limit_bytes in [1, 10, 1 << 20] {
            let up_to = Slice { start: row_key(1).before(), end: row_key(5).before() };
            assert_eq!(read(up_to, limit_bytes), "p1 @1 /");
            let across = Slice { start: row_key(0).after(), end: row_key(5).after() };
            assert_eq!(read(across, limit_bytes), "p1 @1 @2 /");
            assert_eq!(read(rows_between(5, 5), limit_bytes), "p1 @2 /");
        }
    });
}

/// B106: a deletion with an empty list of keys deleted the partition. An empty mutation is nothing, a list of empty slices
/// is no row, and neither is "everything".
#[test]
fn b106_nothing_is_not_everything() {
    let mut node = Node::new();
    node.write(&Mutation::new(TABLE, partition_key(1)));
    assert_eq!(node.store.status().memtable_bytes, 0);
    assert!(!node.store.flush_next().unwrap());
    node.write(&put(1, 1, 1));
    let empty = Slice { start: row_key(1).after(), end: row_key(1).before() };
    assert_eq!(node.read(read_partition(1, vec![empty], Direction::Forward)), []);
}

/// B112: a read error of one source was cleared, and the scan went on without it.
#[test]
fn b112_a_block_that_cannot_be_read_fails_the_read() {
    let memory = MemoryVfs::new();
    let mut node = Node::on(Arc::new(memory.clone()));
    // Values that do not compress, so that a file has many blocks.
    let digits = |seed: i64| {
        (0..20).map(move |at| format!("{:016x}", (seed * 20 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)))
    };
    for file in 0..3 {
        for row in 0..100 {
            let text: String = digits(file * 100 + i64::from(row)).collect();
            node.write(&rows(1, [(row, value(&text, file))]));
        }
        node.flush();
    }
    let id = node.store.memory.tables.load().get(&TABLE).unwrap().view().files[1].meta.id;
    let file = memory.open(&node.store.file_path(id)).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, 5_000).unwrap();
    file.write_at(&[byte[0] ^ 1], 5_000).unwrap();
    for direction in [Direction::Forward, Direction::Reverse] {
        for command in [read_partition(1, Vec::new(), direction), ReadCommand { direction, ..scan() }] {
            let outcome = node.store.read(&command, Access::Disk);
            // The first one finds it, the others meet a file that is out of use.
            assert!(matches!(outcome, Err(Error::Corrupt(_) | Error::Quarantined { .. })), "{outcome:?}");
        }
    }
}

/// B116: while a file was written an older error variable was looked at, so a failed write counted as done. Here each call
/// of a flush and of a compaction fails in turn.
#[test]
fn b116_every_call_of_flush_and_compaction_may_fail() {
    for operation in [Operation::Create, Operation::Write, Operation::Sync, Operation::SyncDir, Operation::Rename] {
        for fault in [Fault::Device, Fault::Full, Fault::ShortWrite] {
            for nth in 1..40 {
                if !survives(operation, nth, fault) {
                    break;
                }
            }
        }
    }
}

/// Whether the fault was met at all.
fn survives(operation: Operation, nth: u64, fault: Fault) -> bool {
    let memory = MemoryVfs::new();
    let faulty = FaultyVfs::new(Arc::new(memory.clone()));
    let mut node = Node::on(Arc::new(faulty.clone()));
    for row in 0..7 {
        node.write(&put(1, row, 1));
        node.flush();
    }
    node.write_all(&[put(1, 7, 1), other(put(1, 1, 1)), delete_row(1, 0, 2)]);
    let expected = (node.scan(TABLE), node.scan(OTHER));
    let calls = faulty.calls(operation);
    faulty.fail(operation, nth, fault);
    let flushed = node.store.flush(None);
    let compacted = node.store.compact_next(0, &Unpaced);
    let is_met = faulty.calls(operation) >= calls + nth;
    assert_eq!(
        is_met,
        flushed.is_err() || compacted.is_err(),
        "{operation:?} {nth} {fault:?}: {flushed:?}, {compacted:?}"
    );
    assert_eq!((node.scan(TABLE), node.scan(OTHER)), expected);
    let Node { store, .. } = node;
    // The log may have failed for good; then only a restart helps. Else the same calls succeed now.
    if store.sync().is_ok() {
        store.flush(None).unwrap();
        store.compact_next(0, &Unpaced).unwrap();
    }
    drop(store);
    memory.crash(nth);
    let node = Node::on(Arc::new(memory));
    assert_eq!((node.scan(TABLE), node.scan(OTHER)), expected, "{operation:?} {nth} {fault:?}");
    is_met
}
