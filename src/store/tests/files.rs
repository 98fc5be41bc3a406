//! The directory: identity, manifest, what is removed and what is missed.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use uuid::Uuid;

use super::{KEYSPACE, Node, OTHER, identity, options, scan, spec};
use crate::codec::frame::put_frame;
use crate::commitlog::Position;
use crate::model::naive::{TABLE, rows, value};
use crate::model::{Identity, MutationName, NodeId, Stamp, Vnode, VnodeBits};
use crate::received::ReceivedSet;
use crate::received::told::{Floors, Reconciled};
use crate::sstable::SstableMeta;
use crate::store::change::{Change, State, decode_edit, encode_edit};
use crate::store::manifest::Manifest;
use crate::store::quarantine::Quarantine;
use crate::store::{Access, Store};
use crate::vfs::Vfs;
use crate::vfs::faulty::{Fault, FaultyVfs, Operation};
use crate::vfs::memory::MemoryVfs;
use crate::{Class, Error};

fn open(vfs: &MemoryVfs, identity: Identity) -> crate::Result<Store> {
    Store::open(Arc::new(vfs.clone()), options(), identity, &[spec(TABLE), spec(OTHER)])
}

fn refusal(outcome: crate::Result<impl Sized>) -> Error {
    outcome.err().expect("it is refused")
}

#[test]
fn a_directory_of_another_node_cluster_or_shape_is_refused() {
    let vfs = MemoryVfs::new();
    open(&vfs, identity()).unwrap().close().unwrap();
    let others = [
        Identity { node: NodeId(6), ..identity() },
        Identity { cluster: Uuid::from_u128(2), ..identity() },
        Identity { vnode_bits: VnodeBits::DEFAULT, ..identity() },
    ];
    for other in others {
        let error = refusal(open(&vfs, other));
        assert!(matches!(error, Error::WrongDirectory { .. }), "{error}");
    }
    open(&vfs, identity()).unwrap();
}

#[test]
fn a_directory_in_use_is_refused() {
    let vfs = MemoryVfs::new();
    let _first = open(&vfs, identity()).unwrap();
    assert!(matches!(refusal(open(&vfs, identity())), Error::Locked { .. }));
}

#[test]
fn every_damaged_byte_of_an_identity_is_noticed() {
    let vfs = MemoryVfs::new();
    open(&vfs, identity()).unwrap().close().unwrap();
    let file = vfs.open(Path::new("/node/IDENTITY")).unwrap();
    for at in 0..file.len().unwrap() {
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 4], at).unwrap();
        assert_eq!(refusal(open(&vfs, identity())).class(), Class::Corrupt, "byte {at}");
        file.write_at(&byte, at).unwrap();
    }
}

#[test]
fn a_manifest_that_is_missing_is_no_empty_directory() {
    let vfs = MemoryVfs::new();
    open(&vfs, identity()).unwrap().close().unwrap();
    vfs.remove(Path::new("/node/MANIFEST")).unwrap();
    assert_eq!(refusal(open(&vfs, identity())).class(), Class::Corrupt);
}

#[test]
fn files_that_nothing_lists_are_removed() {
    let vfs = MemoryVfs::new();
    let mut node = Node::on(Arc::new(vfs.clone()));
    node.write(&rows(1, [(1, value("v", 1))]));
    node.flush();
    drop(node);
    let stray = Path::new("/node/data/0f0e0d0c-0b0a-0908-0706-050403020100.sst");
    vfs.create(stray).unwrap();
    let store = open(&vfs, identity()).unwrap();
    assert!(!vfs.exists(stray).unwrap());
    assert_eq!(store.status().sstables, 1);
}

#[test]
fn the_files_of_a_dropped_table_go_while_it_runs_and_after_a_restart() {
    let vfs = MemoryVfs::new();
    let mut node = Node::on(Arc::new(vfs.clone()));
    for table in [TABLE, OTHER] {
        node.write(&crate::model::Mutation { table, ..rows(1, [(1, value("v", 1))]) });
    }
    node.flush();
    let reader = node.store.memory.tables.load().get(&TABLE).unwrap().view();
    node.store.set_tables(&[spec(OTHER)]).unwrap();
    node.store.let_go(0).unwrap();
    assert!(matches!(node.store.read(&scan(), Access::Disk), Err(Error::UnknownTable { .. })));
    assert_eq!(vfs.list(Path::new("/node/data")).unwrap().len(), 1);
    assert!(reader.files[0].sstable.read_through().unwrap().next().unwrap().is_some());
    // Its records are received all the same.
    let before = node.names();
    node.write(&rows(1, [(2, value("v", 1))]));
    assert_ne!(node.names(), before);
    // Dropped while the node was down.
    node.tables = Vec::new();
    let node = node.restart();
    node.store.let_go(0).unwrap();
    assert_eq!(node.store.status().sstables, 0);
    assert!(vfs.list(Path::new("/node/data")).unwrap().is_empty());
}

#[test]
fn names_are_told_when_they_are_durable_and_inserted() {
    let mut node = Node::new();
    let sequence = |node: &Node| node.names().runs().map(|(_, _, intervals)| intervals[0].last).max();
    // Periodic: inserted first.
    let (record, end) = node.append(&rows(1, [(1, value("v", 1))]));
    node.store.insert(&record, end).unwrap();
    assert_eq!(sequence(&node), None);
    node.store.sync().unwrap();
    assert_eq!(sequence(&node), Some(1));
    // Commit: durable first.
    let (record, end) = node.append(&rows(1, [(2, value("v", 1))]));
    node.store.sync().unwrap();
    assert_eq!(sequence(&node), Some(1));
    node.store.insert(&record, end).unwrap();
    assert_eq!(sequence(&node), Some(2));
    // Saved with a flush, and replayed.
    node.flush();
    node.write(&rows(1, [(3, value("v", 1))]));
    let told = node.names();
    let node = node.restart();
    assert_eq!((node.names(), node.store.last_stamp()), (told, Stamp(3)));
}

#[test]
fn a_store_over_its_budget_takes_no_writes_until_it_is_flushed() {
    let mut node = Node::new();
    while node.store.memtable_bytes() <= options().memtable_budget_bytes {
        node.write(&rows(1, [(node.sequence as i32, value(&"x".repeat(4_000), 1))]));
    }
    assert!(node.store.wants_flush());
    let record = node.record(&rows(1, [(0, value("v", 1))]));
    let log_bytes = node.store.status().log_bytes;
    let mut ends = Vec::new();
    let outcome = node.store.append(&[record], &mut ends);
    assert!(matches!(outcome, Err(Error::Busy { .. })) && ends.is_empty());
    assert_eq!(node.store.status().log_bytes, log_bytes);
    assert!(node.store.flush_next().unwrap());
    assert!(!node.store.wants_flush());
    node.write(&rows(1, [(0, value("v", 1))]));
}

fn meta(id: u128) -> SstableMeta {
    SstableMeta { id: Uuid::from_u128(id), table: TABLE, bytes: 300, hash: [7; 32], stamps: (Stamp(1), Stamp(9)) }
}

fn reconciled(through: i64) -> Reconciled {
    let mut floors = Floors::default();
    floors.raise(NodeId(1), 2);
    Reconciled { through: Stamp(through), floors }
}

fn every_change() -> Vec<Change> {
    let mut set = ReceivedSet::default();
    set.add(MutationName { origin: NodeId(1), incarnation: 2, sequence: 3 });
    let runs = vec![(Vnode(0), Vnode(1)), (Vnode(3), Vnode(3))];
    vec![
        Change::FileAdded(meta(1)),
        Change::FileAdded(meta(2)),
        Change::FileRemoved(Uuid::from_u128(1)),
        Change::Flushed(TABLE, Position { segment: 1, offset: 5_000 }),
        Change::Flushed(OTHER, Position { segment: 1, offset: 5_000 }),
        Change::TableGone(OTHER),
        Change::Received(KEYSPACE, Vnode(2), set),
        Change::ReplayFrom(Position { segment: 1, offset: 4_096 }),
        Change::NextFile(3),
        Change::FileQuarantined(Uuid::from_u128(2), Quarantine { vnodes: runs, reason: "it is gone".to_owned() }),
        Change::Reconciled(KEYSPACE, Vnode(2), reconciled(77)),
        Change::PurgedThrough(KEYSPACE, Vnode(2), Stamp(66)),
        Change::TableKnown(spec(TABLE).info()),
        Change::Unknown(0x90, Bytes::from_static(b"later")),
    ]
}

fn manifest(vfs: &Arc<dyn Vfs>) -> Manifest {
    vfs.create_dir(Path::new("/m")).unwrap();
    Manifest::create(vfs.clone(), Path::new("/m")).unwrap()
}

#[test]
fn changes_are_read_as_they_were_written() {
    let changes = every_change();
    assert_eq!(decode_edit(encode_edit(&changes).into()).unwrap(), changes);
    let mut state = State::default();
    state.apply(changes).unwrap();
    let mut again = State::default();
    again.apply(state.as_edit()).unwrap();
    assert_eq!(again, state);
}

#[test]
fn a_change_that_must_be_known_and_is_not_refuses_the_manifest() {
    let edit = encode_edit(&[Change::Unknown(0x7f, Bytes::new())]);
    let error = refusal(decode_edit(edit.into())).to_string();
    assert!(error.contains("newer build"), "{error}");
}

#[test]
fn contradictions_are_corruption() {
    for wrong in [
        vec![Change::FileAdded(meta(1)), Change::FileAdded(meta(1))],
        vec![Change::FileRemoved(Uuid::from_u128(1))],
        vec![Change::FileAdded(meta(1)), Change::TableGone(TABLE)],
    ] {
        assert_eq!(State::default().apply(wrong).unwrap_err().class(), Class::Corrupt);
    }
}

#[test]
fn an_unknown_optional_change_survives_a_rewrite() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let mut manifest = manifest(&vfs);
    manifest.commit(every_change()).unwrap();
    let state = manifest.state().clone();
    // Enough to make the file be rewritten.
    for number in 100..140 {
        let changes = (0..300).map(|file| Change::FileAdded(meta(number * 1_000 + file))).collect();
        manifest.commit(changes).unwrap();
        let changes = (0..300).map(|file| Change::FileRemoved(Uuid::from_u128(number * 1_000 + file))).collect();
        manifest.commit(changes).unwrap();
    }
    assert!(vfs.open(Path::new("/m/MANIFEST")).unwrap().len().unwrap() < 1 << 20);
    assert_eq!(*Manifest::open(vfs, Path::new("/m")).unwrap().state(), state);
}

#[test]
fn a_torn_edit_is_cut_off_and_damage_before_it_is_not() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let mut manifest = manifest(&vfs);
    manifest.commit(vec![Change::FileAdded(meta(1))]).unwrap();
    let one = manifest.state().clone();
    let file = vfs.open(Path::new("/m/MANIFEST")).unwrap();
    let first = file.len().unwrap();
    manifest.commit(vec![Change::FileAdded(meta(2))]).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let read = |bytes: &[u8]| {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
        vfs.create_dir(Path::new("/m")).unwrap();
        vfs.create(Path::new("/m/MANIFEST")).unwrap().write_at(bytes, 0).unwrap();
        Manifest::open(vfs, Path::new("/m")).map(|manifest| manifest.state().clone())
    };
    for len in first as usize..bytes.len() {
        assert_eq!(read(&bytes[..len]).unwrap(), one, "cut at {len}");
        let zeros = [&bytes[..len], &vec![0; bytes.len() - len]].concat();
        if zeros != bytes {
            assert_eq!(read(&zeros).unwrap(), one, "zeros from {len}");
        }
    }
    for at in 0..first as usize {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        assert_eq!(refusal(read(&damaged)).class(), Class::Corrupt, "byte {at}");
    }
}

/// Damages the last byte of the manifest, which looks like a torn edit.
fn lose_last_edit(vfs: &MemoryVfs) {
    let file = vfs.open(Path::new("/node/MANIFEST")).unwrap();
    let last = file.len().unwrap() - 1;
    let mut byte = [0];
    file.read_at(&mut byte, last).unwrap();
    file.write_at(&[byte[0] ^ 1], last).unwrap();
}

#[test]
fn a_last_edit_that_has_rotted_is_made_good_or_noticed() {
    let vfs = MemoryVfs::new();
    let mut node = Node::on(Arc::new(vfs.clone()));
    for row in 0..8 {
        node.write(&rows(1, [(row, value("v", 1))]));
        node.flush();
    }
    let told = node.names();
    drop(node);
    // The edit of a flush: the log still holds what it listed.
    lose_last_edit(&vfs);
    let node = Node::on(Arc::new(vfs.clone()));
    assert_eq!((node.scan(TABLE), node.names()), ("p1 0 1 2 3 4 5 6 7".to_string(), told));
    node.flush();
    // The edit of a compaction: its inputs are gone, and its output must not go too.
    node.compact();
    drop(node);
    let (files, manifest) = (vfs.list(Path::new("/node/data")).unwrap(), Path::new("/node/MANIFEST"));
    lose_last_edit(&vfs);
    let len = vfs.open(manifest).unwrap().len().unwrap();
    let error = refusal(open(&vfs, identity())).to_string();
    assert!(error.contains("missing"), "{error}");
    assert_eq!((vfs.list(Path::new("/node/data")).unwrap(), vfs.open(manifest).unwrap().len().unwrap()), (files, len));
}

/// After a failed sync the page cache may show an edit that never reached the disk. A process that is started again reads
/// it there, and must not rely on it before it has written it itself.
#[test]
fn an_edit_of_the_page_cache_is_settled_before_it_counts() {
    for seed in 0..50 {
        let memory = MemoryVfs::new();
        let vfs: Arc<dyn Vfs> = Arc::new(memory.clone());
        let mut manifest = manifest(&vfs);
        manifest.commit(vec![Change::FileAdded(meta(1))]).unwrap();
        memory.fail_next_sync(seed);
        assert!(manifest.commit(vec![Change::FileAdded(meta(2))]).is_err());
        let mut manifest = Manifest::open(vfs.clone(), Path::new("/m")).unwrap();
        manifest.settle().unwrap();
        let state = manifest.state().clone();
        memory.crash(seed);
        assert_eq!(*Manifest::open(vfs, Path::new("/m")).unwrap().state(), state, "seed {seed}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reading_of_an_edit_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..60),
        at in 0usize..400,
        flip in 1u8..=255,
    ) {
        let _ = decode_edit(bytes.into());
        let mut edit = encode_edit(&every_change());
        let at = at % edit.len();
        edit[at] ^= flip;
        if let Ok(changes) = decode_edit(edit.clone().into()) {
            // What is read is what was written: there is one encoding of each change.
            prop_assert_eq!(encode_edit(&changes), edit);
        }
    }
}

#[test]
fn a_newer_manifest_is_refused_by_its_version() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    manifest(&vfs);
    vfs.open(Path::new("/m/MANIFEST")).unwrap().write_at(&2u32.to_le_bytes(), 8).unwrap();
    let error = refusal(Manifest::open(vfs, Path::new("/m")));
    assert!(matches!(error, Error::Version { found: 2, .. }), "{error}");
}

#[test]
fn an_edit_cannot_stand_at_another_place() {
    let mut frame = Vec::new();
    put_frame(&mut frame, 12, &encode_edit(&[Change::NextFile(1)]));
    let bytes = [&b"TRFLMAN1\x01\0\0\0"[..], &frame, &frame].concat();
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    vfs.create_dir(Path::new("/m")).unwrap();
    vfs.create(Path::new("/m/MANIFEST")).unwrap().write_at(&bytes, 0).unwrap();
    let mut manifest = Manifest::open(vfs.clone(), Path::new("/m")).unwrap();
    assert_eq!(manifest.state().next_file, 1);
    manifest.commit(Vec::new()).unwrap();
    assert!((vfs.open(Path::new("/m/MANIFEST")).unwrap().len().unwrap() as usize) < bytes.len(), "it was cut off");
}

/// An edit that wrote the manifest anew and failed in the sync of the directory may be what the next start finds: the file
/// that it lists stays.
#[test]
fn a_doubtful_rewrite_keeps_its_file() {
    let memory = MemoryVfs::new();
    let faulty = FaultyVfs::new(Arc::new(memory.clone()));
    let mut node = Node::on(Arc::new(faulty.clone()));
    let calls = faulty.calls(Operation::Write);
    node.write(&rows(1, [(1, value("v", 1))]));
    node.flush();
    let needed = faulty.calls(Operation::Write) - calls - 1;
    node.write(&rows(1, [(2, value("v", 1))]));
    faulty.fail(Operation::Write, needed, Fault::Device);
    assert!(node.store.flush(None).is_err());
    // The directory of the data is the first to be synced.
    faulty.fail(Operation::SyncDir, 2, Fault::Device);
    assert!(node.store.flush(None).is_err());
    assert_eq!(node.restart().scan(TABLE), "p1 1 2");
}

/// Segments that a flush could not let go are let go by the next one, even if nothing is left to flush.
#[test]
fn a_log_that_could_not_be_released_is_released_by_the_next_flush() {
    let faulty = FaultyVfs::new(Arc::new(MemoryVfs::new()));
    let mut node = Node::on(Arc::new(faulty.clone()));
    for row in 0..50 {
        node.write(&rows(1, [(row, value(&"x".repeat(1_000), 1))]));
    }
    let log_bytes = |node: &Node| node.store.status().log_bytes + node.store.status().log_kept_bytes;
    let held = log_bytes(&node);
    faulty.fail(Operation::Rename, 1, Fault::Device);
    assert!(node.store.flush(None).is_err());
    assert_eq!((log_bytes(&node), node.store.status().sstables), (held, 1));
    node.flush();
    assert!(log_bytes(&node) <= options().segment_bytes);
}

/// A flush that is tried again and again while the manifest cannot be written leaves one doubtful file, not one each time:
/// only the first edit, which was appended, may have happened.
#[test]
fn retries_on_a_full_disk_take_no_room() {
    let memory = MemoryVfs::new();
    let faulty = FaultyVfs::new(Arc::new(memory.clone()));
    let mut node = Node::on(Arc::new(faulty.clone()));
    let files =
        || (memory.list(Path::new("/node")).unwrap().len(), memory.list(Path::new("/node/data")).unwrap().len());
    let before = files();
    node.write(&rows(1, [(1, value("v", 1))]));
    let calls = faulty.calls(Operation::Write);
    node.flush();
    let needed = faulty.calls(Operation::Write) - calls;
    node.write(&rows(1, [(2, value("v", 1))]));
    faulty.fail(Operation::Write, needed, Fault::ShortWrite);
    assert!(node.store.flush(None).is_err());
    for operation in [Operation::Create, Operation::Write, Operation::Sync] {
        let nth = if operation == Operation::Write { needed } else { 2 };
        faulty.fail(operation, nth, Fault::Full);
        assert!(node.store.flush(None).is_err(), "{operation:?}");
        assert_eq!(files(), (before.0, 2), "{operation:?}");
    }
    node.flush();
    assert_eq!(files(), (before.0, 2));
    assert_eq!(node.restart().scan(TABLE), "p1 1 2");
}

/// After a failed edit both outcomes are possible on disk; the file that it was to add stays until a whole new manifest
/// settles it, and goes then.
#[test]
fn a_doubtful_edit_keeps_its_file_until_it_is_settled() {
    for operation in [Operation::Write, Operation::Sync] {
        let memory = MemoryVfs::new();
        let faulty = FaultyVfs::new(Arc::new(memory.clone()));
        let mut node = Node::on(Arc::new(faulty.clone()));
        node.write(&rows(1, [(1, value("v", 1))]));
        let calls = faulty.calls(operation);
        node.flush();
        let needed = faulty.calls(operation) - calls;
        // The manifest's call is the last one of a flush.
        node.write(&rows(1, [(2, value("v", 1))]));
        faulty.fail(operation, needed, Fault::Device);
        assert!(node.store.flush(None).is_err());
        assert_eq!(memory.list(Path::new("/node/data")).unwrap().len(), 2, "{operation:?}");
        node.flush();
        assert_eq!(memory.list(Path::new("/node/data")).unwrap().len(), 2, "{operation:?}");
        assert_eq!(node.restart().scan(TABLE), "p1 1 2");
    }
}
