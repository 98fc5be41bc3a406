//! What other replicas are told, what is promised to them, and what they get from the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{KEYSPACE, Node, OTHER, identity, options, spec};
use crate::codec::{Record, RecordKind};
use crate::model::naive::{TABLE, rows, value};
use crate::model::{KeyspaceId, Mutation, MutationName, NodeId, Stamp, Vnode};
use crate::received::told::{Floors, Reconciled};
use crate::received::{ReceivedSet, ReceivedSets, Slice};
use crate::store::{Store, StoreOptions};
use crate::vfs::memory::MemoryVfs;

/// A node that keeps so much of its log for others.
fn keeping(bytes: u64) -> Node {
    let options = StoreOptions { log_kept_bytes_max: bytes, ..options() };
    let (vfs, tables) = (Arc::new(MemoryVfs::new()), vec![spec(TABLE), spec(OTHER)]);
    let store = Store::open(vfs.clone(), options, identity(), &tables).unwrap();
    Node { vfs, tables, store, sequence: 0 }
}

/// Several segments of records, all in files.
fn filled(node: &mut Node) {
    let text = "x".repeat(900);
    for timestamp in 0..80 {
        node.write(&rows(1, [(0, value(&text, timestamp))]));
    }
    node.flush();
}

fn slice_of(node: &Node) -> Slice {
    *node.store.received().keys().next().unwrap()
}

fn names(sequences: impl IntoIterator<Item = u64>) -> ReceivedSet {
    let mut set = ReceivedSet::default();
    for sequence in sequences {
        set.add(MutationName { origin: NodeId(5), incarnation: 1, sequence });
    }
    set
}

fn sequences(records: &[Bytes]) -> Vec<u64> {
    let sequence = |record: &Bytes| match Record::decode(record.clone()).unwrap().kind {
        RecordKind::Named(name) => name.sequence,
        RecordKind::Nameless { .. } => 0,
    };
    records.iter().map(sequence).collect()
}

#[test]
fn log_that_is_in_files_is_kept_until_every_replica_holds_it() {
    let mut node = keeping(1 << 20);
    filled(&mut node);
    let slice = slice_of(&node);
    let kept = node.store.status().log_kept_bytes;
    assert!(kept > 60_000, "{kept}");
    // One replica lacks the last third.
    node.store.held_everywhere(BTreeMap::from([(slice, Stamp(50))])).unwrap();
    let some = node.store.status().log_kept_bytes;
    assert!(0 < some && some < kept, "{some}");
    let wanted = ReceivedSets::from([(slice, names(51..=80))]);
    assert_eq!(sequences(&node.store.records_named(&wanted, 1 << 20).unwrap()), (51..=80).collect::<Vec<_>>());
    node.store.held_everywhere(BTreeMap::from([(slice, Stamp(80))])).unwrap();
    assert_eq!(node.store.status().log_kept_bytes, 0);
}

#[test]
fn log_of_a_slice_that_is_nobody_elses_is_not_kept() {
    let mut node = keeping(1 << 20);
    filled(&mut node);
    node.store.held_everywhere(BTreeMap::new()).unwrap();
    assert_eq!(node.store.status().log_kept_bytes, 0);
}

/// A node that is away must not fill the disks of the others.
#[test]
fn log_beyond_its_bound_goes_though_a_replica_lacks_names_in_it() {
    let mut node = keeping(40_000);
    filled(&mut node);
    let kept = node.store.status().log_kept_bytes;
    assert!(0 < kept && kept <= 40_000, "{kept}");
    let wanted = ReceivedSets::from([(slice_of(&node), names(1..=80))]);
    let found = sequences(&node.store.records_named(&wanted, 1 << 20).unwrap());
    assert!(found.len() < 80 && found.ends_with(&[79, 80]), "{found:?}");
}

#[test]
fn on_a_full_disk_kept_log_goes_first() {
    let mut node = keeping(1 << 20);
    filled(&mut node);
    assert!(node.store.status().log_kept_bytes > 0);
    node.store.give_up_kept_log().unwrap();
    assert_eq!(node.store.status().log_kept_bytes, 0);
    assert!(!node.checked().scan(TABLE).is_empty());
}

#[test]
fn kept_log_asks_for_no_flush() {
    let mut node = keeping(1 << 30);
    for _ in 0..60 {
        filled(&mut node);
    }
    assert!(node.store.status().log_kept_bytes > 4 << 20);
    node.write(&Mutation { table: OTHER, ..rows(1, [(0, value("v", 1))]) });
    assert!(!node.store.wants_flush());
}

#[test]
fn records_are_found_by_their_names_wherever_they_are_in_the_log() {
    let mut node = keeping(1 << 20);
    filled(&mut node);
    // Not in a file, and one that was logged twice.
    let again = node.append(&rows(1, [(0, value("w", 99))]));
    node.store.append(std::slice::from_ref(&again.0), &mut Vec::new()).unwrap();
    node.store.sync().unwrap();
    let slice = slice_of(&node);
    let mut wanted = ReceivedSets::from([(slice, names([3, 17, 81, 999]))]);
    assert_eq!(sequences(&node.store.records_named(&wanted, 1 << 20).unwrap()), [3, 17, 81]);
    // Those of another slice are not meant.
    wanted = ReceivedSets::from([((KeyspaceId(99), slice.1), names([3]))]);
    assert_eq!(node.store.records_named(&wanted, 1 << 20).unwrap(), Vec::<Bytes>::new());
    // A bound of bytes, which at least one record passes.
    wanted = ReceivedSets::from([(slice, names(1..=80))]);
    assert_eq!(sequences(&node.store.records_named(&wanted, 1).unwrap()), [1]);
    assert_eq!(sequences(&node.store.records_named(&wanted, 2_000).unwrap()), [1, 2, 3]);
}

#[test]
fn what_is_not_durable_is_given_to_nobody() {
    let mut node = keeping(1 << 20);
    node.write(&rows(1, [(0, value("v", 1))]));
    node.append(&rows(1, [(0, value("v", 2))]));
    let wanted = ReceivedSets::from([(slice_of(&node), names([1, 2]))]);
    assert_eq!(sequences(&node.store.records_named(&wanted, 1 << 20).unwrap()), [1]);
}

#[test]
fn kept_log_outlives_restarts_and_is_known_once_it_was_read() {
    let mut node = keeping(1 << 20);
    filled(&mut node);
    let (slice, kept) = (slice_of(&node), node.store.status().log_kept_bytes);
    let Node { vfs, tables, store, sequence } = node;
    drop(store);
    let options = StoreOptions { log_kept_bytes_max: 1 << 20, ..options() };
    let store = Store::open(vfs.clone(), options, identity(), &tables).unwrap();
    let node = Node { vfs, tables, store, sequence };
    assert!(node.store.status().log_kept_bytes >= kept);
    let wanted = ReceivedSets::from([(slice, names([1, 80]))]);
    assert_eq!(sequences(&node.store.records_named(&wanted, 1 << 20).unwrap()), [1, 80]);
    node.store.held_everywhere(BTreeMap::from([(slice, Stamp(80))])).unwrap();
    while node.store.read_kept_log().unwrap() {}
    node.store.held_everywhere(BTreeMap::from([(slice, Stamp(80))])).unwrap();
    assert_eq!(node.store.status().log_kept_bytes, 0);
}

#[test]
fn grown_sets_are_told_once() {
    let mut node = keeping(0);
    assert_eq!(node.store.take_grown(), []);
    node.write(&rows(1, [(0, value("v", 1))]));
    let slice = slice_of(&node);
    assert_eq!(node.store.take_grown(), [(slice, names([1]))]);
    assert_eq!(node.store.take_grown(), []);
    // The same name again is no growth.
    node.sequence = 0;
    node.write(&rows(1, [(0, value("v", 1))]));
    assert_eq!(node.store.take_grown(), []);
    let node = node.restart();
    assert_eq!(node.store.take_grown(), [(slice, names([1]))], "after a start all there is");
}

/// Whoever promises must see what is about to be logged, and whoever logs must see what was promised.
#[test]
fn nothing_is_promised_beyond_what_is_on_its_way_into_the_sets() {
    let mut node = keeping(0);
    assert_eq!(node.store.close_through(Stamp(100)), Stamp(100));
    let record = node.record(&rows(1, [(0, value("v", 1))]));
    assert_eq!(node.store.begin_append(Stamp(150)), Stamp(100));
    // About to be logged, logged, and durable, but not inserted.
    assert_eq!(node.store.close_through(Stamp(200)), Stamp(149));
    let mut ends = Vec::new();
    node.store.append(std::slice::from_ref(&record), &mut ends).unwrap();
    assert_eq!(node.store.close_through(Stamp(200)), Stamp(149));
    node.store.sync().unwrap();
    assert_eq!(node.store.close_through(Stamp(200)), Stamp(149));
    node.store.insert(&record, ends[0]).unwrap();
    assert_eq!(node.store.close_through(Stamp(200)), Stamp(200));
    assert_eq!(node.store.take_grown().len(), 1);
    // What was told is what the next group is held against, and it never sinks.
    assert_eq!(node.store.close_through(Stamp(120)), Stamp(200));
    assert_eq!(node.store.begin_append(Stamp(250)), Stamp(200));
}

/// A record that is inserted before it is durable (`periodic`) is not told, so the promise stays below it.
#[test]
fn a_periodic_write_holds_the_promise_until_its_sync() {
    let mut node = keeping(0);
    let record = node.record(&rows(1, [(0, value("v", 1))]));
    node.store.begin_append(Stamp(1));
    let mut ends = Vec::new();
    node.store.append(std::slice::from_ref(&record), &mut ends).unwrap();
    node.store.insert(&record, ends[0]).unwrap();
    assert_eq!((node.store.close_through(Stamp(9)), node.store.take_grown().len()), (Stamp(0), 0));
    node.store.sync().unwrap();
    assert_eq!((node.store.close_through(Stamp(9)), node.store.take_grown().len()), (Stamp(9), 1));
}

/// A group that the log refused may be read back after a crash, until another one was logged behind it.
#[test]
fn a_refused_group_holds_the_promise_until_the_next_one_is_settled() {
    let mut node = keeping(0);
    node.store.begin_append(Stamp(5));
    assert_eq!(node.store.begin_append(Stamp(7)), Stamp(0));
    assert_eq!(node.store.close_through(Stamp(9)), Stamp(4));
    // What was never given to the log does not count.
    node.store.begin_append(Stamp(2));
    node.store.cancel_append();
    assert_eq!(node.store.close_through(Stamp(9)), Stamp(4));
    node.write(&rows(1, [(0, value("v", 1))]));
    assert_eq!(node.store.close_through(Stamp(9)), Stamp(9));
}

#[test]
fn what_is_reconciled_is_saved_and_only_rises() {
    let node = keeping(0);
    let slice = (KEYSPACE, Vnode(2));
    let reconciled = |through: i64| Reconciled { through: Stamp(through), floors: Floors::default() };
    node.store.save_reconciled(&[(slice, reconciled(70))]).unwrap();
    node.store.save_reconciled(&[(slice, reconciled(60))]).unwrap();
    let node = node.restart();
    assert_eq!(node.store.saved_reconciled(), BTreeMap::from([(slice, reconciled(70))]));
    assert_eq!(node.store.closed_through(), Stamp(0), "the caller begins with its clock's ceiling");
}

#[test]
fn runs_that_are_settled_are_forgotten() {
    let mut node = keeping(0);
    node.write(&rows(1, [(0, value("v", 1))]));
    let slice = slice_of(&node);
    let mut floors = Floors::default();
    floors.raise(NodeId(5), 2);
    node.store.save_reconciled(&[(slice, Reconciled { through: Stamp(9), floors })]).unwrap();
    assert!(!node.store.has_name(slice, MutationName { origin: NodeId(5), incarnation: 1, sequence: 1 }));
}
