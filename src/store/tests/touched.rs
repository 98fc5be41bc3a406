//! What reads touch, by count: wide partitions, point lookups, files that are passed over.

use std::sync::Arc;

use bytes::Bytes;

use super::{Node, OTHER, decode, identity, options, read_partition, scan, spec};
use crate::model::naive::{
    TABLE, delete_rows, deletion, partition_key, row_key, rows, rows_between, static_value, value,
};
use crate::model::{
    Direction, Fragment, Mutation, Page, PageEnd, PagePosition, ReadCommand, ReadCost, Row, RowPosition, Slice,
};
use crate::store::{Access, Store, StoreOptions};
use crate::vfs::Vfs;
use crate::vfs::memory::MemoryVfs;

const BOTH: [Direction; 2] = [Direction::Forward, Direction::Reverse];

/// A node with room for many rows in memory.
fn roomy() -> Node {
    let options = StoreOptions { segment_bytes: 1 << 20, memtable_budget_bytes: 64 << 20, ..options() };
    let (vfs, tables): (Arc<dyn Vfs>, _) = (Arc::new(MemoryVfs::new()), vec![spec(TABLE)]);
    let store = Store::open(vfs.clone(), options, identity(), &tables).unwrap();
    Node { vfs, tables, store, sequence: 0 }
}

/// Rows `from .. to` of partition 0, in mutations that fit the small segments of tests.
fn write_wide(node: &mut Node, from: i32, to: i32, timestamp: i64) {
    for begin in (from..to).step_by(100) {
        node.write(&rows(0, (begin..to.min(begin + 100)).map(|row| (row, value("v", timestamp)))));
    }
}

fn read(node: &Node, command: &ReadCommand) -> (Page, ReadCost) {
    node.store.read_with_cost(command, Access::Disk).unwrap()
}

fn delete_partition(number: u8, timestamp: i64) -> Mutation {
    Mutation { deletion: Some(deletion(timestamp)), ..Mutation::new(TABLE, partition_key(number)) }
}

fn count_rows(page: &Page) -> usize {
    decode(page.entries.clone()).iter().filter(|fragment| matches!(fragment, Fragment::Row(..))).count()
}

/// Pages of ten rows in the middle of a partition, from a node with so many rows in it: what the dearest has touched.
fn dearest_page(count: i32, place: fn(&Node)) -> ReadCost {
    let mut node = roomy();
    write_wide(&mut node, 0, count, 1);
    place(&node);
    let mut dearest = ReadCost::default();
    for direction in BOTH {
        for at in (1..8).map(|eighth| count * eighth / 8) {
            let after = PagePosition { partition: partition_key(0), row: RowPosition::After(row_key(at)) };
            let command =
                ReadCommand { after: Some(after), limit_rows: 10, ..read_partition(0, Vec::new(), direction) };
            let (page, cost) = read(&node, &command);
            assert_eq!(count_rows(&page), 10, "{direction:?} behind row {at}");
            dearest.rows = dearest.rows.max(cost.rows);
            dearest.blocks_read = dearest.blocks_read.max(cost.blocks_read + cost.blocks_cached);
        }
    }
    dearest
}

#[test]
fn a_page_in_the_middle_of_a_wide_partition_costs_what_it_holds() {
    for count in [2_000, 20_000] {
        let from_memory = dearest_page(count, |_| ());
        assert!(from_memory.rows <= 11, "{count} rows: {from_memory:?}");
        let from_a_file = dearest_page(count, Node::flush);
        assert!(from_a_file.rows <= 11 && from_a_file.blocks_read <= 2, "{count} rows: {from_a_file:?}");
    }
}

/// Three files with versions of the same rows: where the latest does not say it all, the one before may change what is read.
#[test]
fn a_row_in_a_wide_partition_costs_one_block_of_each_file_that_may_change_it() {
    for (marked, expected) in [(true, 1), (false, 2)] {
        let mut node = Node::new();
        for timestamp in 1..=3 {
            for begin in (0..2_000).step_by(100) {
                let mut row = value("v", timestamp);
                row.marker = row.marker.filter(|_| marked || timestamp < 3);
                node.write(&rows(0, (begin..begin + 100).map(|number| (number, row.clone()))));
            }
            node.flush();
        }
        costs_one_block_of_each(&node.restart(), expected);
    }
}

#[test]
fn a_row_in_a_wide_partition_costs_one_block_of_each_file_that_deletes() {
    let mut node = Node::new();
    for timestamp in 1..=3 {
        write_wide(&mut node, 0, 2_000, timestamp);
        // A file that deletes anything may always change something.
        node.write(&delete_rows(0, 5_000, 5_001, timestamp));
        node.flush();
    }
    let fresh = node.restart();
    costs_one_block_of_each(&fresh, 3);
}

fn costs_one_block_of_each(fresh: &Node, files: u64) {
    for row in (0..2_000).step_by(97) {
        let command = read_partition(0, vec![Slice::one(&row_key(row))], Direction::Forward);
        let (page, cost) = read(fresh, &command);
        assert_eq!(count_rows(&page), 1);
        let found = (cost.blocks_read + cost.blocks_cached, cost.sstables_read, cost.rows);
        assert_eq!(found, (files, files, files), "row {row}");
    }
}

/// A slice behind thousands of deleted rows: the reader comes to an end of its page in bounded time, and on.
#[test]
fn covered_rows_end_pages_too() {
    let mut node = roomy();
    write_wide(&mut node, 0, 40_000, 1);
    // It keeps the file from being older than the deletion as a whole.
    node.write(&rows(0, [(50_000, value("v", 9))]));
    node.flush();
    node.write(&delete_rows(0, 0, 39_990, 2));
    for direction in BOTH {
        let mut command = ReadCommand { limit_rows: 5, ..read_partition(0, Vec::new(), direction) };
        let (mut visible, mut pages) = (0, 0);
        loop {
            let (page, cost) = read(&node, &command);
            assert!(cost.rows <= 33_000, "one page passed over {} rows", cost.rows);
            visible += count_rows(&page);
            pages += 1;
            match page.end {
                PageEnd::Complete => break,
                end @ PageEnd::At(_) => {
                    let before = command.after.take().map(PageEnd::At);
                    assert!(before.is_none_or(|before| before.compare(&end, direction).is_lt()));
                    let PageEnd::At(position) = end else { continue };
                    command.after = Some(position);
                }
            }
        }
        assert_eq!(visible, 10, "{direction:?}");
        assert!(pages >= 2, "the deleted rows were passed over at once");
    }
}

/// Nothing is read of a file where a range deletion covers all of it that lies there.
#[test]
fn deleted_ranges_are_passed_over_without_reading_them() {
    let mut node = roomy();
    write_wide(&mut node, 0, 20_000, 1);
    node.flush();
    node.write(&delete_rows(0, 5, 19_000, 2));
    for place in [|_: &Node| (), |node: &Node| node.flush()] {
        place(&node);
        for direction in BOTH {
            let command = ReadCommand { limit_rows: 1_100, ..read_partition(0, Vec::new(), direction) };
            let (page, cost) = read(&node, &command);
            assert_eq!(count_rows(&page), 1_004, "{direction:?}");
            assert!(cost.rows < 1_010, "{direction:?}: {cost:?}");
            let scanned = node.store.read_with_cost(&ReadCommand { direction, ..scan() }, Access::Disk).unwrap().1;
            assert!(scanned.rows < 1_010, "{direction:?}: {scanned:?}");
        }
    }
}

/// Three files, oldest first: rows 0 to 9 at 1, rows 20 to 29 at 2, partition 5 at 3.
fn three_files() -> Node {
    let mut node = Node::new();
    for (number, begin, timestamp) in [(0, 0, 1), (0, 20, 2), (5, 0, 3)] {
        node.write(&rows(number, (begin..begin + 10).map(|row| (row, value("v", timestamp)))));
        node.flush();
    }
    node
}

fn skipped_and_read(node: &Node, command: &ReadCommand) -> (u64, u64) {
    let (_, cost) = read(node, command);
    (cost.sstables_skipped, cost.sstables_read)
}

#[test]
fn files_whose_bounds_lie_elsewhere_are_passed_over() {
    let node = three_files();
    for direction in BOTH {
        let of = |from, to| read_partition(0, vec![rows_between(from, to)], direction);
        assert_eq!(skipped_and_read(&node, &of(3, 5)), (2, 1));
        assert_eq!(skipped_and_read(&node, &of(9, 20)), (1, 2));
        assert_eq!(skipped_and_read(&node, &of(10, 19)), (3, 0));
        assert_eq!(skipped_and_read(&node, &ReadCommand { slices: vec![rows_between(9, 9)], ..scan() }), (1, 2));
    }
    let one = read_partition(0, vec![Slice::one(&row_key(21))], Direction::Forward);
    assert_eq!(skipped_and_read(&node, &one), (2, 1));
    assert_eq!(skipped_and_read(&node, &ReadCommand { table: OTHER, ..one }), (0, 0));
}

#[test]
fn files_older_than_a_deletion_of_the_partition_are_passed_over() {
    let mut node = three_files();
    node.write(&delete_partition(0, 2));
    let whole = || read_partition(0, Vec::new(), Direction::Forward);
    let one = || read_partition(0, vec![Slice::one(&row_key(5))], Direction::Forward);
    // What was written at the time of the deletion is looked at: a deletion of that time may be the one that is answered.
    assert_eq!(skipped_and_read(&node, &whole()), (2, 1));
    node.write(&delete_partition(0, 3));
    for command in [whole(), one()] {
        assert_eq!(skipped_and_read(&node, &command).1, 0, "from the memtable");
    }
    node.flush();
    for command in [whole(), one()] {
        assert_eq!(skipped_and_read(&node, &command).1, 1, "from the newest file");
    }
    assert_eq!(node.read(whole()).len(), 1);
}

/// Of two deletions of one timestamp the later one in seconds is answered, though its file holds nothing else.
#[test]
fn a_deletion_of_the_same_time_is_not_passed_over() {
    let mut node = Node::new();
    let later = crate::model::Deletion { ldt_s: 77, ..deletion(5) };
    node.write(&Mutation { deletion: Some(later), ..Mutation::new(TABLE, partition_key(0)) });
    node.flush();
    node.write(&delete_partition(0, 5));
    let found = node.read(read_partition(0, Vec::new(), Direction::Forward));
    assert!(matches!(&found[..], [Fragment::Partition(header)] if header.deletion == Some(later)), "{found:?}");
}

/// CASSANDRA-14861, scylladb #3553: clustering bounds came from rows alone, and a read outside them passed over the file
/// with its deletions and its static row.
#[test]
fn b023_what_concerns_rows_anywhere_is_never_passed_over() {
    let outside = || read_partition(0, vec![rows_between(100, 120)], Direction::Forward);
    let mut node = Node::new();
    node.write(&rows(0, [(110, value("old", 1))]));
    node.flush();
    assert_eq!(count_rows(&read(&node, &outside()).0), 1);
    let mut deleted = rows(0, [(1, value("v", 9))]);
    deleted.ranges = delete_rows(0, 50, 115, 5).ranges;
    node.write(&deleted);
    node.flush();
    assert_eq!(count_rows(&read(&node, &outside()).0), 0, "a range deletion that begins elsewhere");
    let mut with_static = rows(0, [(2, value("v", 9))]);
    with_static.static_row = Some(static_value("s", 9));
    node.write(&with_static);
    node.flush();
    let found = node.read(outside());
    assert!(matches!(&found[0], Fragment::Partition(header) if header.static_row.is_some()), "{found:?}");
    let mut gone = rows(0, [(3, value("v", 20))]);
    gone.deletion = Some(deletion(15));
    node.write(&gone);
    node.flush();
    let found = node.read(outside());
    assert!(matches!(&found[..], [Fragment::Partition(header)] if header.deletion == Some(deletion(15))), "{found:?}");
}

#[test]
fn what_a_read_has_touched_is_told() {
    let mut node = three_files();
    // Not a whole row: the older versions may have a marker.
    node.write(&rows(0, [(5, Row { marker: None, ..value("newer", 9) })]));
    let one = read_partition(0, vec![Slice::one(&row_key(5))], Direction::Forward);
    let node = node.restart();
    let (page, cold) = read(&node, &one);
    assert_ne!(page.entries, Bytes::new());
    let expected = ReadCost { sstables_read: 1, sstables_skipped: 2, blocks_read: 1, rows: 2, ..ReadCost::default() };
    assert_eq!(cold, ReadCost { bytes_read: cold.bytes_read, ..expected });
    assert!(cold.bytes_read > 20, "{cold:?}");
    let (_, warm) = read(&node, &one);
    assert_eq!(warm, ReadCost { blocks_cached: 1, blocks_read: 0, ..expected });
}

#[test]
fn large_partitions_are_told_of_when_they_are_written() {
    let mut node = Node::new();
    node.store.watch_partitions(1 << 20, 50);
    node.write(&rows(0, (0..50).map(|row| (row, value("v", 1)))));
    node.write(&rows(1, (0..51).map(|row| (row, value("v", 1)))));
    node.flush();
    assert_eq!(node.store.status().large_partitions, 1);
    node.store.watch_partitions(500, u64::MAX);
    node.write(&rows(2, [(0, value(&"x".repeat(400), 1))]));
    node.write(&rows(3, [(0, value(&"x".repeat(600), 1))]));
    node.flush();
    assert_eq!(node.store.status().large_partitions, 2);
}
