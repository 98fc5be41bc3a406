//! Files are read again in their turn, damage is found by it, and a run goes on where the one before was.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::Node;
use crate::Error;
use crate::compaction::{Pace, Proceed, Unpaced};
use crate::model::naive::{TABLE, rows, value};
use crate::store::{Access, Store};
use crate::vfs::Vfs;
use crate::vfs::faulty::{Fault, FaultyVfs, Operation};
use crate::vfs::memory::MemoryVfs;

const DAY_S: i64 = 24 * 3_600;
const PERIOD_S: i64 = 30 * DAY_S;
const FILES: u8 = 12;

fn node_on(vfs: Arc<dyn Vfs>) -> Node {
    let mut node = Node::on(vfs);
    for partition in 0..FILES {
        node.write(&rows(partition, [(1, value("v", 1))]));
        node.flush();
    }
    node
}

fn scrub_all(store: &Store, now_s: i64) {
    while store.scrub_next(now_s, PERIOD_S, &Unpaced).unwrap() {}
}

#[test]
fn each_file_is_read_once_in_a_period_and_in_even_shares() {
    let node = node_on(Arc::new(MemoryVfs::new()));
    scrub_all(&node.store, 0);
    let first = node.store.scrub_status(0, PERIOD_S);
    assert!(first.files < u64::from(FILES) / 2, "only the turns of a day: {first:?}");
    let mut most = 0;
    for day in 1..=30 {
        let before = node.store.scrub_status(day * DAY_S, PERIOD_S);
        scrub_all(&node.store, day * DAY_S);
        let after = node.store.scrub_status(day * DAY_S, PERIOD_S);
        assert_eq!((before.files + before.waiting_files, 0), (after.files, after.waiting_files));
        most = most.max(after.files - before.files);
    }
    let status = node.store.scrub_status(30 * DAY_S, PERIOD_S);
    assert_eq!(status.files, u64::from(FILES) + first.files, "those of the first day came twice");
    assert!(most <= 4, "{most} of {FILES} on one day");
    assert!(status.bytes > 0 && status.damaged == 0);
}

/// A node that is started each day reads every file once a month all the same.
#[test]
fn starts_pass_over_nothing() {
    let mut node = node_on(Arc::new(MemoryVfs::new()));
    let mut read: BTreeMap<Uuid, u32> = BTreeMap::new();
    for day in 1..=30 {
        node = node.restart();
        // It is asked late in the day, once.
        scrub_all(&node.store, day * DAY_S);
        node.store.scrub.0.lock().read_s.keys().for_each(|id| *read.entry(*id).or_default() += 1);
    }
    assert_eq!((read.len(), read.values().max()), (usize::from(FILES), Some(&1)));
}

fn flip(node: &Node, id: Uuid) {
    let file = node.vfs.open(&node.store.file_path(id)).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, 50).unwrap();
    file.write_at(&[byte[0] ^ 1], 50).unwrap();
}

#[test]
fn damage_that_nobody_reads_is_found_and_its_file_is_out_of_use() {
    let node = node_on(Arc::new(MemoryVfs::new()));
    let id = node.store.memory.tables.load()[&TABLE].view().files[3].meta.id;
    flip(&node, id);
    scrub_all(&node.store, 0);
    scrub_all(&node.store, PERIOD_S);
    let status = node.store.scrub_status(PERIOD_S, PERIOD_S);
    assert_eq!((status.damaged, status.waiting_files), (1, 0), "{status:?}");
    assert_eq!(node.store.quarantined().iter().map(|file| file.id).collect::<Vec<_>>(), [id]);
    node.store.read(&super::scan(), Access::Disk).unwrap_err();
}

#[test]
fn a_device_that_fails_to_read_is_damage_and_another_failure_ends_a_turn() {
    let faulty = FaultyVfs::new(Arc::new(MemoryVfs::new()));
    let node = node_on(Arc::new(faulty.clone()));
    scrub_all(&node.store, 0);
    faulty.fail(Operation::Read, 1, Fault::Full);
    let error = node.store.scrub_next(PERIOD_S, PERIOD_S, &Unpaced).unwrap_err();
    assert!(node.store.quarantined().is_empty(), "{error}");
    faulty.fail(Operation::Read, 1, Fault::Device);
    scrub_all(&node.store, PERIOD_S);
    let status = node.store.scrub_status(PERIOD_S, PERIOD_S);
    assert_eq!((status.damaged, node.store.quarantined().len(), status.waiting_files), (1, 1, 0), "{status:?}");
}

/// Says stop from the beginning.
struct Stopped;

impl Pace for Stopped {
    fn spend(&self, _: u64) -> Proceed {
        Proceed::Stop
    }
}

#[test]
fn what_was_stopped_is_begun_anew() {
    let node = node_on(Arc::new(MemoryVfs::new()));
    scrub_all(&node.store, 0);
    let before = node.store.scrub_status(PERIOD_S, PERIOD_S);
    let stopped = node.store.scrub_next(PERIOD_S, PERIOD_S, &Stopped).unwrap_err();
    assert!(matches!(stopped, Error::Stopped), "{stopped}");
    let after = node.store.scrub_status(PERIOD_S, PERIOD_S);
    assert_eq!((before.waiting_files, before.files), (after.waiting_files, after.files));
    assert!(before.waiting_files == u64::from(FILES));
}
