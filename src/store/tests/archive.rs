//! What an archive gets: the log without a hole whatever happens, and files that go while they are read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Node, OTHER, identity, options, spec};
use crate::Error;
use crate::codec::{Record, RecordKind};
use crate::commitlog::{LogRange, Logged, Position, Since};
use crate::model::Stamp;
use crate::model::naive::{TABLE, rows, value};
use crate::snapshot::Cause;
use crate::store::{SnapshotScope, Store, StoreOptions};
use crate::vfs::Vfs;
use crate::vfs::memory::MemoryVfs;

fn opened(vfs: &MemoryVfs, kept_bytes: u64) -> Store {
    let options = StoreOptions { log_kept_bytes_max: kept_bytes, ..options() };
    Store::open(Arc::new(vfs.clone()), options, identity(), &[spec(TABLE), spec(OTHER)]).unwrap()
}

fn node(vfs: &MemoryVfs, kept_bytes: u64, sequence: u64) -> Node {
    let tables = vec![spec(TABLE), spec(OTHER)];
    Node { vfs: Arc::new(vfs.clone()), tables, store: opened(vfs, kept_bytes), sequence }
}

fn range(node: &Node, from: Position, bytes_max: usize) -> LogRange {
    match node.store.log_since(from, bytes_max).unwrap() {
        Since::Records(range) => range,
        other => panic!("{other:?}"),
    }
}

fn sequence(logged: &Logged) -> u64 {
    match Record::decode(logged.record.bytes().clone()).unwrap().kind {
        RecordKind::Named(name) => name.sequence,
        RecordKind::Nameless { .. } => 0,
    }
}

/// Several segments of records, all in files, and none that another replica would want.
fn filled(node: &mut Node, records: i64) {
    let text = "x".repeat(900);
    for timestamp in 0..records {
        node.write(&rows(1, [(0, value(&text, timestamp))]));
    }
    node.flush();
    node.store.held_everywhere(BTreeMap::new()).unwrap();
}

#[derive(Debug, Clone)]
enum Step {
    Append(u8, u16),
    Sync,
    Flush,
    Archive(u32),
    Restart,
    Crash(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..4u8, 0..6_000u16).prop_map(|(records, bytes)| Step::Append(records, bytes)),
        3 => Just(Step::Sync),
        2 => Just(Step::Flush),
        3 => (0..40_000u32).prop_map(Step::Archive),
        1 => Just(Step::Restart),
        1 => any::<u64>().prop_map(Step::Crash),
    ]
}

/// A log, and the archive that grows beside it.
struct Archived {
    vfs: MemoryVfs,
    node: Node,
    /// The sequences in the log, durable or not.
    log: Vec<u64>,
    synced: usize,
    archive: Vec<u64>,
    position: Position,
}

impl Archived {
    fn new() -> Archived {
        let vfs = MemoryVfs::new();
        let node = node(&vfs, 1 << 20, 0);
        let position = node.store.log_first();
        node.store.set_archived(Some(position)).unwrap();
        Archived { vfs, node, log: Vec::new(), synced: 0, archive: Vec::new(), position }
    }

    fn append(&mut self, records: u8, bytes: u16) {
        let text = "x".repeat(usize::from(bytes));
        for _ in 0..records {
            let (record, end) = self.node.append(&rows(1, [(0, value(&text, 1))]));
            self.node.store.insert(&record, end).unwrap();
            self.log.push(self.node.sequence);
        }
    }

    fn archive(&mut self, bytes_max: usize) -> LogRange {
        let range = range(&self.node, self.position, bytes_max);
        assert_eq!(range.from, self.position);
        let ends: Vec<Position> = range.records.iter().map(|logged| logged.end).collect();
        assert!(
            ends.is_sorted_by(|one, next| one < next) && ends.iter().all(|end| (range.from..=range.to).contains(end))
        );
        let sequences: Vec<u64> = range.records.iter().map(sequence).collect();
        self.archive.extend(sequences);
        self.position = range.to;
        self.node.store.set_archived(Some(range.to)).unwrap();
        range
    }

    /// Stops, with or without a loss of power, and starts again: what was durable is there, and so is what was archived.
    fn restart(&mut self, crash: Option<u64>) {
        let sequence = self.node.sequence;
        self.node.store = {
            // Its lock goes before the directory is opened again.
            let elsewhere = MemoryVfs::new();
            drop(std::mem::replace(&mut self.node.store, opened(&elsewhere, 0)));
            crash.into_iter().for_each(|seed| self.vfs.crash(seed));
            opened(&self.vfs, 1 << 20)
        };
        self.node.sequence = sequence;
        self.node.store.set_archived(Some(self.position)).unwrap();
        self.node.store.held_everywhere(BTreeMap::new()).unwrap();
        let left = self.node.names();
        let lives = |sequence: &u64| {
            let name =
                crate::model::MutationName { origin: crate::model::NodeId(5), incarnation: 1, sequence: *sequence };
            left.contains(name)
        };
        let before = self.log.len();
        self.log.retain(lives);
        assert!(self.synced <= self.log.len() && (crash.is_some() || self.log.len() == before));
        self.synced = self.log.len();
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append(records, bytes) => self.append(*records, *bytes),
            Step::Sync => {
                self.node.store.sync().unwrap();
                self.synced = self.log.len();
            }
            Step::Flush => {
                self.node.flush();
                self.synced = self.log.len();
                self.node.store.held_everywhere(BTreeMap::new()).unwrap();
            }
            Step::Archive(bytes_max) => drop(self.archive(*bytes_max as usize)),
            Step::Restart => self.restart(None),
            Step::Crash(seed) => self.restart(Some(*seed)),
        }
        assert!(self.log.starts_with(&self.archive), "{:?} of {:?}", self.archive, self.log);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Beside appends, flushes that let segments go, stops and losses of power: what is archived is the log's beginning, record
    /// by record, and no more than what was durable.
    #[test]
    fn an_archive_that_asks_again_and_again_has_the_log(steps in prop::collection::vec(any_step(), 1..60)) {
        let mut archived = Archived::new();
        for step in &steps {
            archived.step(step);
        }
        while !archived.archive(10_000).records.is_empty() {}
        prop_assert!(archived.archive.len() >= archived.synced);
        prop_assert!(archived.log.starts_with(&archived.archive));
        prop_assert_eq!(archived.node.store.status().log_unarchived_lost, 0);
        // All but the active segment may go once it is archived and in files.
        archived.step(&Step::Flush);
        while !archived.archive(10_000).records.is_empty() {}
        while archived.node.store.read_kept_log().unwrap() {}
        archived.node.store.held_everywhere(BTreeMap::new()).unwrap();
        prop_assert_eq!(archived.node.store.status().log_kept_bytes, 0);
    }
}

#[test]
fn a_piece_has_one_record_however_small_it_is_to_be_and_none_where_there_is_none() {
    let vfs = MemoryVfs::new();
    let mut node = node(&vfs, 1 << 20, 0);
    let first = node.store.log_first();
    assert_eq!(range(&node, first, 10).to, first);
    node.write(&rows(1, [(0, value(&"x".repeat(5_000), 1))]));
    node.write(&rows(1, [(0, value("v", 2))]));
    let one = range(&node, first, 1);
    assert_eq!(one.records.iter().map(sequence).collect::<Vec<_>>(), [1]);
    let other = range(&node, one.to, 1);
    assert_eq!(other.records.iter().map(sequence).collect::<Vec<_>>(), [2]);
    assert!(range(&node, other.to, 1).records.is_empty());
}

/// What is written and not synced may be gone after a loss of power: it is nobody's to archive.
#[test]
fn what_is_not_durable_is_not_archived() {
    let vfs = MemoryVfs::new();
    let mut node = node(&vfs, 1 << 20, 0);
    node.append(&rows(1, [(0, value("v", 1))]));
    assert!(range(&node, node.store.log_first(), 1 << 20).records.is_empty());
    node.store.sync().unwrap();
    assert_eq!(range(&node, node.store.log_first(), 1 << 20).records.len(), 1);
}

#[test]
fn log_that_is_not_archived_stays_within_its_bound_and_a_gap_is_told_at_both_ends() {
    let vfs = MemoryVfs::new();
    let mut node = node(&vfs, 40_000, 0);
    let begin = node.store.log_first();
    node.store.set_archived(Some(begin)).unwrap();
    filled(&mut node, 20);
    assert_eq!(node.store.status().log_unarchived_lost, 0);
    assert!(node.store.status().log_unarchived_bytes > 18_000);
    filled(&mut node, 80);
    let status = node.store.status();
    assert!(0 < status.log_kept_bytes && status.log_kept_bytes <= 40_000, "{status:?}");
    assert!(status.log_unarchived_lost > 2, "{status:?}");
    let Since::Gone { first } = node.store.log_since(begin, 1 << 20).unwrap() else { panic!("it is gone") };
    assert_eq!(first, node.store.log_first());
    let left = range(&node, first, 1 << 20);
    node.store.set_archived(Some(left.to)).unwrap();
    assert_eq!(node.store.status().log_kept_bytes, 0);
    assert_eq!(node.store.status().log_unarchived_lost, status.log_unarchived_lost);
}

/// On a full disk what replicas may lack goes first, and what the archive lacks only if that was nothing.
#[test]
fn on_a_full_disk_log_that_is_not_archived_goes_last() {
    let vfs = MemoryVfs::new();
    let mut node = node(&vfs, 1 << 20, 0);
    let text = "x".repeat(900);
    for timestamp in 0..80 {
        node.write(&rows(1, [(0, value(&text, timestamp))]));
    }
    node.flush();
    let half = range(&node, node.store.log_first(), 30_000).to;
    node.store.set_archived(Some(half)).unwrap();
    assert!(node.store.log_first() < half);
    node.store.give_up_kept_log().unwrap();
    assert_eq!(node.store.log_first().segment, half.segment);
    assert_eq!(node.store.status().log_unarchived_lost, 0);
    node.store.give_up_kept_log().unwrap();
    assert!(node.store.status().log_unarchived_lost > 0);
    assert_eq!(node.store.status().log_kept_bytes, 0);
}

/// A data directory of an earlier day would archive other records under the same positions.
#[test]
fn a_position_that_the_log_has_not_reached_is_refused() {
    let vfs = MemoryVfs::new();
    let mut node = node(&vfs, 1 << 20, 0);
    filled(&mut node, 40);
    let end = range(&node, node.store.log_first(), 1 << 20).to;
    let far = Position { segment: end.segment + 2, ..end };
    assert!(matches!(node.store.log_since(far, 1), Ok(Since::Ahead { .. })));
    let beyond = Position { offset: end.offset + 10_000, ..node.store.log_first() };
    assert!(matches!(node.store.log_since(beyond, 1), Ok(Since::Ahead { .. })));
}

#[test]
fn a_file_is_read_to_its_end_though_a_compaction_removes_it() {
    let vfs = MemoryVfs::new();
    let mut node = node(&vfs, 0, 0);
    let made = node.store.files_made();
    for row in 0..2 {
        node.write(&rows(1, [(row, value("v", 1))]));
        node.flush();
    }
    assert!(node.store.files_made() > made);
    let files = node.store.live_files();
    assert_eq!(files.len(), 2);
    let open: Vec<_> =
        files.iter().map(|(meta, _)| (meta, node.store.open_sealed(meta.id).unwrap().unwrap())).collect();
    node.compact();
    for (meta, file) in open {
        let mut bytes = vec![0; meta.bytes as usize];
        file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(<[u8; 32]>::from(Sha256::digest(&bytes)), meta.hash);
        assert!(node.store.open_sealed(meta.id).unwrap().is_none());
    }
    let now = node.store.live_files();
    assert_eq!(now.len(), 1);
    assert!(vfs.exists(&now[0].1).unwrap());
}

/// A backup's snapshot is found again, by its name, until it is removed; what only it holds can be read.
#[test]
fn a_snapshot_of_a_backup_stays_until_it_is_removed() {
    let vfs = MemoryVfs::new();
    let mut node = node(&vfs, 0, 0);
    let backup = Uuid::from_u128(77);
    for row in 0..2 {
        node.write(&rows(1, [(row, value("v", 1))]));
        node.flush();
    }
    let made = node.store.create_backup_snapshot(backup, SnapshotScope::All, 5).unwrap();
    assert_eq!((made.cause, made.last_stamp(), made.received.len()), (Cause::Backup, Some(Stamp(2)), 1));
    assert_eq!(made.position, node.store.sync().unwrap());
    node.write(&rows(1, [(3, value("v", 1))]));
    node.compact();
    let node = node.restart();
    node.store.expire_snapshots(i64::MAX).unwrap();
    let again = node.store.create_backup_snapshot(backup, SnapshotScope::All, 9).unwrap();
    assert_eq!(made, again);
    assert!(made.files.iter().all(|file| node.store.open_sealed(file.id).unwrap().is_some()));
    let path = Path::new("/node/data").join(crate::sstable::file_name(made.files[0].id));
    assert!(!vfs.exists(&path).unwrap());
    node.store.remove_snapshot(&made.name).unwrap().unwrap();
    assert!(made.files.iter().all(|file| node.store.open_sealed(file.id).unwrap().is_none()));
}

#[test]
fn a_snapshot_of_a_backup_that_would_lack_a_damaged_file_is_refused() {
    let vfs = MemoryVfs::new();
    let mut node = node(&vfs, 0, 0);
    node.write(&rows(1, [(1, value("v", 1))]));
    node.flush();
    let (meta, path) = node.store.live_files().remove(0);
    vfs.open(&path).unwrap().write_at(&[0xff; 8], meta.bytes - 8).unwrap();
    let node = node.restart();
    let refused = node.store.create_backup_snapshot(Uuid::from_u128(1), SnapshotScope::All, 5).unwrap_err();
    assert!(matches!(refused, Error::Quarantined { .. }), "{refused:?}");
    assert!(node.store.create_backup_snapshot(Uuid::from_u128(1), SnapshotScope::Table(OTHER), 5).is_ok());
}
