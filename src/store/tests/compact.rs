//! Compaction and purge of a store: what goes and what stays, several at a time, and faults by their name in
//! `docs/testing.md`.

use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::compaction::{Pace, Proceed};
use crate::model::naive::{Naive, any_mutation_without_counters, delete_rows, deletion, rows, static_value, value};
use crate::model::{Cell, CellKind, PartitionKey, Scaling, Timestamp, Vnode};
use crate::vfs::faulty::{Fault, FaultyVfs, Operation};
use crate::{Class, Error};

/// The lateness of the tables here, in seconds and microseconds.
const LATENESS_S: u32 = 100;
const LATENESS: i64 = 100_000_000;

/// Says that everything stamped before this is on every replica, and has been for long.
fn reconcile(node: &Node, stamp: i64) {
    let vnodes = (0..identity().vnode_bits.count()).map(|vnode| (KEYSPACE, Vnode(vnode), Stamp(stamp)));
    node.store.raise_purged_through(&vnodes.collect::<Vec<_>>()).unwrap();
}

/// Tables that are not the usual ones.
fn tables(change: impl Fn(&mut TableSpec)) -> Vec<TableSpec> {
    let mut tables = vec![spec(TABLE), spec(OTHER)];
    tables.iter_mut().for_each(change);
    tables
}

fn node_with(change: impl Fn(&mut TableSpec)) -> Node {
    Node::opened(Arc::new(MemoryVfs::new()), tables(change), identity())
}

fn late_node() -> Node {
    node_with(|spec| spec.lateness_s = LATENESS_S)
}

fn delete_row(number: u8, row: i32, timestamp: i64) -> Mutation {
    rows(number, [(row, Row { deletion: Some(deletion(timestamp)), ..Row::default() })])
}

fn put(number: u8, row: i32, timestamp: i64) -> Mutation {
    rows(number, [(row, value("v", timestamp))])
}

fn expiring(number: u8, row: i32, timestamp: i64, expiry_s: i64) -> Mutation {
    let kind = CellKind::Expiring { value: Bytes::from_static(b"v"), ttl_s: 1, expiry_s };
    let cells = vec![(ColumnId(1), Cell { timestamp: Timestamp(timestamp), kind })];
    rows(number, [(row, Row { cells, ..Row::default() })])
}

fn tombstones(node: &Node) -> u64 {
    node.files().iter().map(|file| file.sstable.stats().tombstones).sum()
}

impl Node {
    fn flushed(&mut self, mutation: &Mutation) {
        self.write(mutation);
        self.store.flush(Some(TABLE)).unwrap();
    }

    fn files(&self) -> Vec<Arc<crate::store::view::LiveFile>> {
        self.store.memory.tables.load().get(&TABLE).unwrap().view().files.clone()
    }

    fn compact_at(&self, now_s: i64) {
        self.store.compact_table(TABLE, now_s, &Unpaced).unwrap();
    }
}

#[test]
fn g28_a_tombstone_goes_below_the_limit_and_only_there() {
    for (deleted_at, reconciled, left) in
        [(999, Some(1_000 + LATENESS), 0), (1_000, Some(1_000 + LATENESS), 1), (999, Some(999), 1), (999, None, 1)]
    {
        let mut node = late_node();
        node.flushed(&put(1, 1, 500));
        node.flushed(&delete_row(1, 1, deleted_at));
        reconciled.iter().for_each(|stamp| reconcile(&node, *stamp));
        node.compact_at(1 << 40);
        assert_eq!(tombstones(&node), left, "{deleted_at} {reconciled:?}");
        // Nothing is left, not even a file.
        assert_eq!(node.files().len() as u64, left);
        assert_eq!(node.scan(TABLE), if left == 0 { "" } else { "p1 -1" });
        let node = node.checked();
        assert_eq!(tombstones(&node), left);
    }
}

#[test]
fn what_is_purged_through_never_falls_and_survives_a_restart() {
    let mut node = late_node();
    reconcile(&node, 1_000 + LATENESS);
    reconcile(&node, 5);
    let mut node = {
        node.flushed(&delete_row(1, 1, 999));
        node.restart()
    };
    node.compact_at(0);
    assert_eq!(tombstones(&node), 0);
    node.flushed(&delete_row(1, 1, 1_000));
    node.compact_at(0);
    assert_eq!(tombstones(&node), 1);
}

/// B002, with purge: the older row is in the active memtable, in a frozen one, in another file, or logged and not yet
/// inserted. As long as it is anywhere outside, the tombstone stays.
#[test]
fn b002_a_tombstone_stays_while_anything_outside_is_as_old() {
    for older in [10, 20] {
        // In memory.
        let mut node = late_node();
        node.flushed(&delete_row(1, 1, 20));
        node.write(&put(1, 1, older));
        reconcile(&node, 50 + LATENESS);
        node.compact_at(0);
        assert_eq!((tombstones(&node), node.scan(TABLE).as_str()), (1, "p1 -1"));
        // Frozen.
        node.store.memory.tables.load().get(&TABLE).unwrap().freeze();
        node.compact_at(0);
        assert_eq!((tombstones(&node), node.scan(TABLE).as_str()), (1, "p1 -1"));
        // In a file that is not compacted.
        node.flush();
        let claimed = node.files().iter().find(|file| file.sstable.stats().tombstones == 0).unwrap().meta.id;
        node.store.compacting.set_aside([claimed], 0);
        node.compact_at(0);
        assert_eq!((tombstones(&node), node.files().len(), node.scan(TABLE).as_str()), (1, 2, "p1 -1"));
        // Together they go.
        node.compact_at(100);
        assert_eq!((node.files().len(), node.scan(TABLE).as_str()), (0, ""));
    }
    // Another partition, or something newer, holds up nothing.
    let mut node = late_node();
    node.flushed(&delete_row(1, 1, 20));
    node.write_all(&[put(2, 1, 10), put(1, 2, 21)]);
    reconcile(&node, 50 + LATENESS);
    node.compact_at(0);
    assert_eq!(tombstones(&node), 0);
}

/// B002, the last place where the older row can be: it is in the log and not inserted.
#[test]
fn b002_a_record_that_is_logged_and_not_inserted_counts() {
    let mut node = late_node();
    node.flushed(&delete_row(1, 1, 20));
    reconcile(&node, 50 + LATENESS);
    let (record, end) = node.append(&put(1, 1, 10));
    node.compact_at(0);
    assert_eq!(tombstones(&node), 1);
    node.store.insert(&record, end).unwrap();
    assert_eq!(node.scan(TABLE), "p1 -1");
    node.flush();
    node.compact_at(0);
    assert_eq!(node.scan(TABLE), "");
}

#[test]
fn a_table_that_counts_forgets_no_deletion() {
    let mut node = node_with(|spec| {
        spec.lateness_s = 0;
        spec.columns = vec![(ColumnId(1), Type::Counter)];
    });
    node.flushed(&delete_row(1, 1, 20));
    reconcile(&node, 1_000);
    node.compact_at(0);
    assert_eq!(tombstones(&node), 1);
}

#[test]
fn what_was_written_to_a_dropped_column_goes_for_good() {
    let mut node = Node::new();
    node.flushed(&put(1, 1, 5));
    let mut both = value("kept", 6);
    both.cells.push((ColumnId(2), both.cells[0].1.clone()));
    node.flushed(&rows(1, [(2, both.clone())]));
    node.tables[0].live = Some([ColumnId(2)].into_iter().collect());
    node.store.set_tables(&node.tables).unwrap();
    node.compact_at(0);
    // As if the column had come back, which it never does.
    node.tables[0].live = None;
    node.store.set_tables(&node.tables).unwrap();
    both.cells.remove(0);
    let marker = Row { cells: Vec::new(), ..value("", 5) };
    let mut naive = Naive::default();
    naive.apply(&rows(1, [(1, marker), (2, both)]));
    assert_eq!(node.read(scan()), naive.scan(&[Slice::all()], Direction::Forward));
}

/// B008, with purge: the log is held by another table, the row and its tombstone are flushed and purged; replay must not
/// bring the row back.
#[test]
fn b008_replay_does_not_bring_back_what_was_purged() {
    let mut node = late_node();
    node.write(&Mutation { table: OTHER, ..put(1, 2, 10) });
    node.flushed(&put(1, 1, 10));
    node.flushed(&delete_row(1, 1, 20));
    reconcile(&node, 50 + LATENESS);
    node.compact_at(0);
    assert_eq!(node.scan(TABLE), "");
    let node = node.checked();
    assert_eq!((node.scan(TABLE), node.scan(OTHER)), (String::new(), "p1 2".to_owned()));
}

/// B010: a compaction that left out its largest input for want of space purged as if all had taken part. Here inputs are
/// never left out once tombstones were judged; what a compaction does not read counts as outside, whatever the reason.
#[test]
fn b010_tombstones_stay_when_the_largest_file_takes_no_part() {
    let mut node = late_node();
    node.flushed(&rows(1, (0..10).map(|row| (row, value(&"x".repeat(500), 1)))));
    let largest = node.files()[0].meta.id;
    for row in 0..10 {
        node.flushed(&delete_row(1, row, 2));
    }
    reconcile(&node, 50 + LATENESS);
    let deleted = "p1 -0 -1 -2 -3 -4 -5 -6 -7 -8 -9";
    assert_eq!(node.scan(TABLE), deleted);
    node.store.compacting.set_aside([largest], 0);
    node.compact_at(0);
    assert_eq!((node.files().len(), tombstones(&node), node.scan(TABLE).as_str()), (2, 10, deleted));
    node.compact_at(1_000);
    assert_eq!((node.files().len(), node.scan(TABLE).as_str()), (0, ""));
}

/// B010, B028: a disk that is full leaves the inputs as they were, and nothing of the output. With room it is done.
#[test]
fn b010_a_full_disk_leaves_the_inputs() {
    let memory = MemoryVfs::new();
    let faulty = FaultyVfs::new(Arc::new(memory.clone()));
    let mut node = Node::on(Arc::new(faulty.clone()));
    for row in 0..5 {
        node.flushed(&put(1, row, 1));
    }
    let before = memory.list(&PathBuf::from("/node/data")).unwrap();
    faulty.fail(Operation::Write, 1, Fault::Full);
    let error = node.store.compact_next(0, &Unpaced).unwrap_err();
    assert_eq!(error.class(), Class::Unavailable);
    assert_eq!(memory.list(&PathBuf::from("/node/data")).unwrap(), before);
    // Set aside for a while, so that others are tried before it.
    assert!(!node.store.compact_next(0, &Unpaced).unwrap());
    assert!(node.store.compact_next(1_000, &Unpaced).unwrap());
    assert_eq!((node.files().len(), node.scan(TABLE).as_str()), (1, "p1 0 1 2 3 4"));
}

fn many_vnodes() -> VnodeBits {
    VnodeBits::new(16).unwrap()
}

/// A node of a ring with many vnodes, on which files are cut as finely as they can be.
fn cut_node(vfs: Arc<dyn Vfs>) -> Node {
    let identity = Identity { vnode_bits: many_vnodes(), ..identity() };
    let tables = tables(|spec| spec.compaction = CompactionOptions::new(vec![Scaling::Tiered(3)], 1, None).unwrap());
    Node::opened(vfs, tables, identity)
}

/// Keys of a few vnodes on both sides of the middle of the ring: so many bytes in so little of it are many shards, of which
/// these are two.
fn neighbours() -> Vec<PartitionKey> {
    static FOUND: LazyLock<Vec<PartitionKey>> = LazyLock::new(|| {
        let key = |number: u32| PartitionKey::from_bytes(Bytes::from(format!("neighbour {number}")));
        let side = |side: Range<u32>| {
            let is_there = move |key: &PartitionKey| side.contains(&many_vnodes().vnode(key.token()).0);
            (0..).map(key).filter(is_there).take(3).collect::<Vec<_>>()
        };
        [side(0x7ff8..0x8000), side(0x8000..0x8008)].concat()
    });
    FOUND.clone()
}

/// B049: cutting the output dropped the deletion of a partition, or wrote a header twice. A partition is never cut, and its
/// deletions, static row and ranges go with it.
#[test]
fn b049_outputs_are_cut_between_partitions_and_keep_their_deletions() {
    let mut node = cut_node(Arc::new(MemoryVfs::new()));
    let keys = neighbours();
    for round in 0..3i64 {
        for (at, key) in keys.iter().enumerate() {
            let at = at as i64;
            let mutation = match round {
                0 => rows(0, (0..40).map(|row| (row, value(&format!("{row:0>100}"), at + 1)))),
                1 => Mutation {
                    deletion: (at % 2 == 0).then(|| deletion(at)),
                    static_row: Some(static_value("s", at + 1)),
                    ..rows(0, [])
                },
                _ => delete_rows(0, 3, 7, at + 1),
            };
            node.write(&Mutation { key: key.clone(), ..mutation });
        }
        node.flush();
    }
    let before = node.read(scan());
    node.compact_at(0);
    let files = node.files();
    assert_eq!(files.len(), 2);
    for (at, file) in files.iter().enumerate() {
        file.sstable.verify(&file.meta.hash).unwrap();
        for other in &files[..at] {
            let (a, b) = (file.sstable.stats().keys.clone().unwrap(), other.sstable.stats().keys.clone().unwrap());
            assert!(a.1 < b.0 || b.1 < a.0, "two files overlap");
        }
    }
    assert_eq!(node.read(scan()), before);
    let node = node.checked();
    assert_eq!(node.read(scan()), before);
    assert_eq!(node.files().len(), 2);
}

/// B116, B049: every call of a compaction with several outputs fails in turn, or the power goes there. Either all outputs
/// are live or all inputs are.
#[test]
fn b116_every_call_of_a_compaction_with_several_outputs_may_fail() {
    let faults =
        [Operation::Create, Operation::Write, Operation::Sync, Operation::SyncDir, Operation::Open, Operation::Read];
    for operation in faults {
        for nth in 1.. {
            let memory = MemoryVfs::new();
            let faulty = FaultyVfs::new(Arc::new(memory.clone()));
            let mut node = cut_node(Arc::new(faulty.clone()));
            let keys = neighbours();
            for timestamp in 1..4 {
                for key in &keys {
                    node.write(&Mutation { key: key.clone(), ..put(0, 1, timestamp) });
                }
                node.flush();
            }
            let before = node.read(scan());
            let calls = faulty.calls(operation);
            faulty.fail(operation, nth, Fault::Device);
            let outcome = node.store.compact_next(0, &Unpaced);
            let is_met = faulty.calls(operation) >= calls + nth;
            assert_eq!(is_met, outcome.is_err(), "{operation:?} {nth}: {outcome:?}");
            if !is_met {
                break;
            }
            // An input that the device does not give is out of use until the next start.
            match node.store.quarantined().as_slice() {
                [] => assert_eq!(node.read(scan()), before, "{operation:?} {nth}"),
                _ => assert_eq!(operation, Operation::Read),
            }
            let Node { store, .. } = node;
            drop(store);
            memory.crash(nth);
            let node = cut_node(Arc::new(memory));
            assert_eq!(node.read(scan()), before, "{operation:?} {nth}");
            assert!([2, 3].contains(&node.files().len()), "all the inputs, or all the outputs");
        }
    }
}

/// The power goes at every call of a compaction with several outputs.
#[test]
fn the_power_may_go_at_every_call_of_a_compaction() {
    for at in 1.. {
        let memory = MemoryVfs::new();
        let mut node = cut_node(Arc::new(memory.clone()));
        let keys = neighbours();
        for timestamp in 1..4 {
            for key in &keys {
                node.write(&Mutation { key: key.clone(), ..put(0, 1, timestamp) });
            }
            node.flush();
        }
        let before = node.read(scan());
        memory.power_off_at(at);
        let outcome = node.store.compact_next(0, &Unpaced);
        let Node { store, .. } = node;
        drop(store);
        memory.crash(at);
        let vfs: Arc<dyn Vfs> = Arc::new(memory);
        assert_eq!(check::findings(&vfs), Vec::<String>::new());
        let node = cut_node(vfs);
        assert_eq!(node.read(scan()), before, "at call {at}");
        assert!([2, 3].contains(&node.files().len()), "all the inputs, or all the outputs");
        if outcome.is_ok() {
            assert!(node.files().len() == 2 && at > 10);
            break;
        }
    }
}

/// B121: what has expired goes in one compaction; a live value or a newer deletion beside it keeps the file.
#[test]
fn b121_a_spent_file_goes_whole_and_only_a_spent_one() {
    let cases: [(&[Mutation], usize, &str); 4] = [
        (&[expiring(1, 1, 10, 50), expiring(1, 2, 11, 60)], 0, ""),
        (&[expiring(1, 1, 10, 50), put(1, 2, 11)], 1, "p1 -1 2"),
        // Newer than the limit.
        (&[expiring(1, 1, 10, 50), delete_row(1, 2, 2_000)], 1, "p1 -1 -2"),
        (&[expiring(1, 1, 10, 50), expiring(1, 2, 11, 61)], 1, "p1 -1 -2"),
    ];
    for (written, files, left) in cases {
        let mut node = late_node();
        node.write_all(written);
        node.flush();
        reconcile(&node, 1_000 + LATENESS);
        // Its one file is nothing to merge.
        assert_eq!(node.store.compact_next(60, &Unpaced).unwrap(), files == 0);
        assert_eq!((node.files().len(), node.scan(TABLE).as_str()), (files, left));
        assert_eq!(node.checked().scan(TABLE), left);
    }
}

/// A spent file stays while something as old is in memory or in a file beside it, and is merged like any other meanwhile.
#[test]
fn a_spent_file_stays_while_something_beside_it_is_as_old() {
    let mut node = late_node();
    node.flushed(&expiring(1, 1, 10, 50));
    node.write(&expiring(1, 1, 9, 5_000));
    reconcile(&node, 1_000 + LATENESS);
    assert!(!node.store.compact_next(60, &Unpaced).unwrap());
    assert_eq!(node.files().len(), 1);
    node.flush();
    assert!(!node.store.compact_next(200, &Unpaced).unwrap());
    assert_eq!(node.files().len(), 2);
    node.compact_at(300);
    assert_eq!(node.files().len(), 0);
}

#[test]
fn windows_of_time_go_one_after_the_other_without_being_read() {
    let second = 1_000_000;
    let mut node = node_with(|spec| {
        spec.lateness_s = 1;
        let window_s = std::num::NonZeroU32::new(100);
        spec.compaction = CompactionOptions::new(vec![Scaling::Tiered(4)], 256, window_s).unwrap();
    });
    for window in 0..5 {
        for at in 0..3 {
            let at_s = window * 100 + at * 30;
            node.flushed(&expiring(1, at_s as i32, at_s * second, at_s + 1_000));
        }
    }
    while node.store.compact_next(500, &Unpaced).unwrap() {}
    // Windows that are past are one file each, the newest waits for a fourth.
    assert_eq!(node.files().len(), 4 + 3);
    reconcile(&node, 100_000 * second);
    let mut left = Vec::new();
    for now_s in [1_059, 1_060, 1_160, 1_460, 1_500] {
        while node.store.compact_next(now_s, &Unpaced).unwrap() {}
        left.push(node.files().len());
    }
    assert_eq!(left, [7, 6, 5, 0, 0]);
    assert_eq!(node.checked().scan(TABLE), "");
}

/// A pace that stops a compaction, or holds it until somebody lets it go.
#[derive(Default)]
struct Gate {
    entered: AtomicU64,
    open: AtomicBool,
    stop: AtomicBool,
}

impl Pace for Gate {
    fn spend(&self, _: u64) -> Proceed {
        self.entered.fetch_add(1, Ordering::SeqCst);
        while !self.open.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        if self.stop.load(Ordering::SeqCst) { Proceed::Stop } else { Proceed::On }
    }
}

fn many_rows(number: u8, timestamp: i64) -> Mutation {
    rows(number, (0..200).map(|row| (row, value("v", timestamp))))
}

#[test]
fn tables_are_compacted_side_by_side_and_a_stop_leaves_everything_as_it_was() {
    let mut node = Node::new();
    for timestamp in 1..5 {
        node.write_all(&[many_rows(1, timestamp), Mutation { table: OTHER, ..many_rows(1, timestamp) }]);
        node.flush();
    }
    let before = node.scan(TABLE);
    let (first, second) = (Gate::default(), Gate::default());
    std::thread::scope(|scope| {
        let one = scope.spawn(|| node.store.compact_next(0, &first));
        let other = scope.spawn(|| node.store.compact_next(0, &second));
        while first.entered.load(Ordering::SeqCst) == 0 || second.entered.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let status = node.store.compaction_status(0);
        assert_eq!((status.running.len(), status.backlog_files()), (2, 8));
        assert!(!node.store.compact_next(0, &Unpaced).unwrap(), "no file is in two compactions");
        first.stop.store(true, Ordering::SeqCst);
        first.open.store(true, Ordering::SeqCst);
        second.open.store(true, Ordering::SeqCst);
        assert!(matches!(one.join().unwrap(), Err(Error::Stopped)));
        assert!(other.join().unwrap().unwrap());
    });
    assert_eq!(node.store.status().sstables, 5);
    assert_eq!((node.scan(TABLE), node.scan(OTHER)), (before.clone(), before.clone()));
    // What was stopped may be taken up at once.
    assert!(node.store.compact_next(0, &Unpaced).unwrap());
    assert_eq!(node.store.status().sstables, 2);
    assert_eq!(node.checked().scan(TABLE), before);
}

#[test]
fn the_compaction_of_a_table_that_goes_stops() {
    let mut node = Node::new();
    for timestamp in 1..5 {
        node.write(&many_rows(1, timestamp));
        node.flush();
    }
    let gate = Gate::default();
    std::thread::scope(|scope| {
        let compacting = scope.spawn(|| node.store.compact_next(0, &gate));
        while gate.entered.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        node.store.set_tables(&[spec(OTHER)]).unwrap();
        gate.open.store(true, Ordering::SeqCst);
        assert!(matches!(compacting.join().unwrap(), Err(Error::Stopped)));
    });
    node.store.let_go(0).unwrap();
    node.tables = vec![spec(OTHER)];
    assert_eq!(node.vfs.list(&PathBuf::from("/node/data")).unwrap(), Vec::<String>::new());
    node.checked();
}

/// A damaged input stops its own compaction, which names it, and no other.
#[test]
fn a_damaged_file_holds_up_no_other_compaction() {
    let memory = MemoryVfs::new();
    let mut node = Node::on(Arc::new(memory.clone()));
    for timestamp in 1..6 {
        node.write_all(&[many_rows(1, timestamp), Mutation { table: OTHER, ..many_rows(1, timestamp) }]);
        node.flush();
    }
    let damaged = node.files()[2].meta.id;
    let path = node.store.file_path(damaged);
    let file = memory.open(&path).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, 100).unwrap();
    file.write_at(&[byte[0] ^ 1], 100).unwrap();
    let mut outcomes = Vec::new();
    loop {
        match node.store.compact_next(0, &Unpaced) {
            Ok(false) => break,
            outcome => outcomes.push(outcome),
        }
        assert!(outcomes.len() < 10);
    }
    let failed: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    let [Error::Corrupt(corrupt)] = failed[..] else { panic!("{failed:?}") };
    assert_eq!(corrupt.file, Some(path));
    // The other table, and the other files of this one; the damaged one is out of use.
    let status = node.store.status();
    assert_eq!((status.sstables, status.sstables_quarantined), (1 + 1, 1));
}

#[test]
fn options_change_while_the_store_runs() {
    let mut node = Node::new();
    for timestamp in 1..4 {
        node.flushed(&put(1, 1, timestamp));
    }
    assert!(!node.store.compact_next(0, &Unpaced).unwrap());
    assert_eq!(node.store.compaction_status(0).backlog_files(), 0);
    node.tables[0].compaction = CompactionOptions::new(vec![Scaling::Leveled(10)], 64, None).unwrap();
    node.store.set_tables(&node.tables).unwrap();
    let status = node.store.compaction_status(0);
    assert_eq!((status.backlog_files(), status.tables[0].read_amplification), (3, 3));
    assert!(node.store.compact_next(0, &Unpaced).unwrap());
    let table = node.store.compaction_status(0).tables.remove(0);
    assert_eq!((table.files, table.read_amplification, table.waiting_files), (1, 1, 0));
    assert!((table.space_amplification - 1.0).abs() < 1e-9 && table.write_amplification > 1.2);
}

#[derive(Debug, Clone)]
enum Step {
    Write(Box<Mutation>),
    Flush,
    CompactNext,
    CompactAll,
    /// Everything so far is reconciled; and time goes on.
    Reconcile,
    Tick(i64),
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any_mutation_without_counters(3, 8).prop_map(|mutation| Step::Write(Box::new(mutation))),
        4 => Just(Step::Flush),
        2 => Just(Step::CompactNext),
        2 => Just(Step::CompactAll),
        2 => Just(Step::Reconcile),
        1 => (1i64..5).prop_map(Step::Tick),
        1 => Just(Step::Restart),
    ]
}

/// The mutation as if it were written now: each timestamp as much later as the clock has gone on, so that none is behind
/// the clock by more than its lateness.
fn at(mutation: &Mutation, clock: i64) -> Mutation {
    let later = |timestamp: &mut Timestamp| timestamp.0 += clock;
    let mut mutation = mutation.clone();
    mutation.deletion.iter_mut().for_each(|deletion| later(&mut deletion.timestamp));
    mutation.ranges.iter_mut().for_each(|range| later(&mut range.deletion.timestamp));
    for row in mutation.rows.iter_mut().map(|(_, row)| row).chain(mutation.static_row.as_mut()) {
        row.marker.iter_mut().for_each(|marker| later(&mut marker.timestamp));
        row.deletion.iter_mut().for_each(|deletion| later(&mut deletion.timestamp));
        row.cells.iter_mut().for_each(|(_, cell)| later(&mut cell.timestamp));
        for (_, complex) in &mut row.complex {
            complex.deletion.iter_mut().for_each(|deletion| later(&mut deletion.timestamp));
            complex.cells.iter_mut().for_each(|(_, cell)| later(&mut cell.timestamp));
        }
    }
    mutation
}

/// What a reader at `now_s` sees.
fn visible(fragments: &[Fragment<Row>], now_s: i64) -> Vec<String> {
    let live = |row: &Row| -> Vec<String> {
        row.all_cells().filter_map(|(place, cell)| Some(format!("{place:?} {:?}", cell.value_at(now_s)?))).collect()
    };
    let mut partition = None;
    let mut seen = Vec::new();
    for fragment in fragments {
        match fragment {
            Fragment::Partition(header) => {
                partition = Some(header.key.clone());
                let row = header.static_row.as_ref().filter(|row| row.is_visible_at(now_s));
                seen.extend(row.map(|row| format!("{partition:?} {:?}", live(row))));
            }
            Fragment::Row(key, row) if row.is_visible_at(now_s) => {
                seen.push(format!("{partition:?} {key:?} {:?}", live(row)));
            }
            _ => {}
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is flushed, compacted, purged and reopened, readers see what the naive model, which forgets nothing, says.
    #[test]
    fn purging_changes_no_read(steps in proptest::collection::vec(any_step(), 1..80), leveled in any::<bool>()) {
        // A lateness of nothing; the stamps of the mutations are the clock at which they are written.
        let scaling = if leveled { Scaling::Leveled(3) } else { Scaling::Tiered(3) };
        let mut node = node_with(|spec| {
            spec.lateness_s = 0;
            spec.compaction = CompactionOptions::new(vec![scaling], 1, None).unwrap();
        });
        let mut naive = Naive::default();
        // The timestamps of one mutation lie within 20 from its stamp on.
        let (mut clock, mut now_s) = (0, 80);
        for step in steps {
            match step {
                Step::Write(mutation) => {
                    clock += 3;
                    let mutation = at(&mutation, clock);
                    node.write(&mutation);
                    naive.apply(&mutation);
                }
                Step::Flush => node.flush(),
                Step::CompactNext => drop(node.store.compact_next(now_s, &Unpaced).unwrap()),
                Step::CompactAll => node.compact_at(now_s),
                Step::Reconcile => reconcile(&node, clock),
                Step::Tick(seconds) => now_s += seconds,
                Step::Restart => node = node.restart(),
            }
            let (found, expected) = (node.read(scan()), naive.scan(&[Slice::all()], Direction::Forward));
            for later_s in [now_s, now_s + 10, 1_000] {
                prop_assert_eq!(visible(&found, later_s), visible(&expected, later_s));
            }
        }
        node.checked();
    }
}
