//! Files that are damaged or missing: never an answer, never a hole in one, and the rest goes on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Node, OTHER, check, identity, read_partition, scan};
use crate::compaction::Unpaced;
use crate::model::naive::{TABLE, partition_key, rows, value};
use crate::model::{Deletion, Direction, Mutation, ReadCommand, Timestamp, Vnode};
use crate::store::{Access, SnapshotScope, Store};
use crate::vfs::Vfs;
use crate::vfs::faulty::{Fault, FaultyVfs, Operation};
use crate::vfs::memory::MemoryVfs;
use crate::{Class, Error};

fn vnode(partition: u8) -> Vnode {
    identity().vnode_bits.vnode(partition_key(partition).token())
}

/// Two partitions in different vnodes.
fn apart() -> (u8, u8) {
    let other = (1..50).find(|other| vnode(*other) != vnode(0)).unwrap();
    (0, other)
}

fn one(partition: u8) -> ReadCommand {
    read_partition(partition, Vec::new(), Direction::Forward)
}

fn flip(vfs: &Arc<dyn Vfs>, path: &Path, at: u64) {
    let file = vfs.open(path).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at).unwrap();
    file.write_at(&[byte[0] ^ 1], at).unwrap();
}

/// The path of the file of the table that was flushed last.
fn newest(node: &Node, before: &[PathBuf]) -> PathBuf {
    let view = node.store.memory.tables.load().get(&TABLE).unwrap().view();
    let mut paths = view.files.iter().map(|file| node.store.file_path(file.meta.id));
    paths.find(|path| !before.contains(path)).unwrap()
}

/// What happens to a file of so many bytes.
type Damage = fn(&Arc<dyn Vfs>, &Path, u64);

/// A node with an old row in two partitions, and a deletion of the first one in a file of its own, which is answered.
fn node_on(vfs: Arc<dyn Vfs>) -> (Node, PathBuf) {
    let (deleted, kept) = apart();
    let mut node = Node::on(vfs);
    for partition in [deleted, kept] {
        node.write(&rows(partition, [(1, value("old", 1))]));
    }
    node.write(&Mutation { table: OTHER, ..rows(deleted, [(7, value("v", 1))]) });
    node.flush();
    let before = newest(&node, &[]);
    let deletion = Some(Deletion { timestamp: Timestamp(5), ldt_s: 5 });
    node.write(&Mutation { deletion, ..rows(deleted, []) });
    node.flush();
    let path = newest(&node, &[before]);
    (node, path)
}

fn node() -> (Node, PathBuf) {
    node_on(Arc::new(MemoryVfs::new()))
}

fn refused(node: &Node, command: &ReadCommand) -> Error {
    let refused = node.store.read(command, Access::Disk).map(drop).unwrap_err();
    assert_eq!(refused.class(), Class::Unavailable, "{refused}");
    refused
}

/// Nothing is answered without the file, everything else is, and writes go on.
fn is_out_of_use(node: &mut Node, path: &Path) {
    let (deleted, kept) = apart();
    for command in [one(deleted), scan()] {
        let error = refused(node, &command).to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert_eq!(node.store.read(&command, Access::CachedOnly).unwrap_err().class(), Class::Unavailable);
    }
    assert_eq!(node.scan(OTHER), format!("p{deleted} 7"));
    let listed = node.store.quarantined();
    assert_eq!((listed.len(), listed[0].table, listed[0].path.as_path()), (1, TABLE, path));
    assert_eq!(node.store.status().sstables_quarantined, 1);
    node.write(&rows(kept, [(2, value("new", 9))]));
    node.flush();
}

#[test]
fn b112_a_damaged_block_takes_its_file_out_of_use_and_no_answer_lacks_it() {
    let (mut node, path) = node();
    let (deleted, kept) = apart();
    flip(&node.vfs, &path, 50);
    // A thread that must not wait for an edit leaves it to one that may.
    assert!(matches!(node.store.read(&one(deleted), Access::CachedOnly), Err(Error::NotCached)));
    assert!(node.store.quarantined().is_empty());
    let error = node.store.read(&one(deleted), Access::Disk).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    for _ in 0..2 {
        is_out_of_use(&mut node, &path);
        // The file does not reach into this vnode.
        assert!(super::shape(&node.read(one(kept))).starts_with(&format!("p{kept} 1")));
        assert_eq!(node.store.quarantined()[0].vnodes, [(vnode(deleted), vnode(deleted))]);
        node = node.restart();
    }
    // Nor does it come back by a compaction of the others.
    while node.store.compact_next(100, &Unpaced).unwrap() {}
    is_out_of_use(&mut node, &path);
    let Node { vfs, store, .. } = node;
    drop(store);
    assert_eq!(check::findings(&vfs).len(), 1);
}

#[test]
fn a_snapshot_that_would_lack_a_file_is_refused() {
    let (node, path) = node();
    flip(&node.vfs, &path, 50);
    node.store.read(&scan(), Access::Disk).unwrap_err();
    let refused = node.store.create_snapshot("s", SnapshotScope::All, 1).unwrap_err();
    assert!(matches!(refused, Error::Quarantined { .. }), "{refused}");
    node.store.create_snapshot("s", SnapshotScope::Table(OTHER), 1).unwrap();
}

#[test]
fn a_node_starts_without_a_file_that_is_damaged_or_missing() {
    let len = |node: &Node, path: &Path| node.vfs.open(path).unwrap().len().unwrap();
    let damages: [Damage; 4] = [
        |vfs, path, _| vfs.remove(path).unwrap(),
        |vfs, path, len| flip(vfs, path, len - 1),
        |vfs, path, len| flip(vfs, path, len - 90),
        |vfs, path, len| vfs.open(path).unwrap().set_len(len - 5).unwrap(),
    ];
    for (at, damage) in damages.into_iter().enumerate() {
        let (node, path) = node();
        let (_, kept) = apart();
        damage(&node.vfs, &path, len(&node, &path));
        let stray = Path::new("/node/data/0f0e0d0c-0b0a-0908-0706-050403020100.sst");
        node.vfs.create(stray).unwrap();
        let mut node = node.restart();
        for _ in 0..2 {
            is_out_of_use(&mut node, &path);
            // Nobody can say what it held.
            refused(&node, &one(kept));
            assert_eq!(node.store.quarantined()[0].vnodes, [(Vnode(0), Vnode(3))], "damage {at}");
            node = node.restart();
        }
        // While something is missing, what seems to be garbage may be what is left of it.
        assert_eq!(node.vfs.exists(stray).unwrap(), at == 0, "damage {at}");
    }
}

#[test]
fn a_file_that_is_put_back_is_used_again_if_it_is_whole() {
    let (node, path) = node();
    let (deleted, kept) = apart();
    let expected = node.scan(TABLE);
    let node = node.restart();
    let whole = {
        let file = node.vfs.open(&path).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let replace = |node: &Node, bytes: &[u8]| {
        node.vfs.remove(&path).unwrap();
        node.vfs.create(&path).and_then(|file| file.write_at(bytes, 0)).unwrap();
    };
    flip(&node.vfs, &path, 50);
    node.store.read(&one(deleted), Access::Disk).unwrap_err();
    let mut node = node.restart();
    // Another one under its name is not it.
    let other = newest(&node, &[]);
    let file = node.vfs.open(&other).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    replace(&node, &bytes);
    node = node.restart();
    is_out_of_use(&mut node, &path);
    replace(&node, &whole);
    for _ in 0..2 {
        node = node.checked();
        assert!(node.store.quarantined().is_empty());
        assert_eq!(node.scan(TABLE), expected.replace(&format!("p{kept} 1"), &format!("p{kept} 1 2")));
    }
}

#[test]
fn what_the_manifest_could_not_take_down_holds_and_is_taken_down_later() {
    for fault in [Operation::Write, Operation::Sync] {
        let faulty = FaultyVfs::new(Arc::new(MemoryVfs::new()));
        let (mut node, path) = node_on(Arc::new(faulty.clone()));
        let (deleted, kept) = apart();
        flip(&node.vfs, &path, 50);
        faulty.fail(fault, 1, Fault::Device);
        node.store.read(&one(deleted), Access::Disk).unwrap_err();
        is_out_of_use(&mut node, &path);
        node.store.save_quarantines().unwrap();
        assert!(node.store.manifest.lock().state().quarantined.len() == 1);
        let node = node.restart();
        refused(&node, &one(deleted));
        node.read(one(kept));
    }
}

#[test]
fn a_table_goes_with_its_damaged_file_and_what_is_left_of_that_is_kept_aside() {
    let (mut node, path) = node();
    flip(&node.vfs, &path, 50);
    node.store.read(&scan(), Access::Disk).unwrap_err();
    node.tables.retain(|spec| spec.id == OTHER);
    node.store.set_tables(&node.tables).unwrap();
    node.store.let_go(1).unwrap();
    assert!(!node.vfs.exists(&path).unwrap());
    let list = node.store.snapshots();
    let made = list.whole.values().next().unwrap();
    assert_eq!(made.files.len(), 1);
    let aside = Path::new("/node/snapshots").join(made.id.to_string()).join(path.file_name().unwrap());
    assert!(node.vfs.exists(&aside).unwrap());
    let node = node.checked();
    assert!(node.store.quarantined().is_empty());
}

/// Each byte of a file is changed, with the node down: it starts, and answers right or not at all.
#[test]
fn no_changed_byte_gives_a_wrong_answer_or_keeps_the_node_down() {
    let (first, path) = node();
    let expected = first.scan(TABLE);
    for at in 0..first.vfs.open(&path).unwrap().len().unwrap() {
        let (node, path) = node();
        flip(&node.vfs, &path, at);
        let node = node.restart();
        match node.store.read(&scan(), Access::Disk) {
            Ok(_) => assert_eq!(node.scan(TABLE), expected, "byte {at}"),
            Err(_) => assert_eq!(node.store.quarantined().len(), 1, "byte {at}"),
        }
    }
}

/// A compaction that comes upon damage takes the file out of use as a read does, and the next one does without it.
#[test]
fn a_compaction_takes_a_damaged_file_out_of_use() {
    let (node, path) = node();
    flip(&node.vfs, &path, 50);
    let mut node = node.restart();
    let failed = node.store.compact_table(TABLE, 100, &Unpaced).unwrap_err();
    assert!(matches!(failed, Error::Corrupt(_)), "{failed}");
    is_out_of_use(&mut node, &path);
    node.store.compact_table(TABLE, 100, &Unpaced).unwrap();
    is_out_of_use(&mut node, &path);
}

/// A disk that fails to read is met as one that answers something else: the file is out of use until a start reads it whole.
#[test]
fn what_the_device_cannot_read_is_out_of_use_until_it_can() {
    let faulty = FaultyVfs::new(Arc::new(MemoryVfs::new()));
    let (mut node, path) = node_on(Arc::new(faulty.clone()));
    let (deleted, kept) = apart();
    faulty.fail(Operation::Read, 1, Fault::Device);
    let error = node.store.read(&one(deleted), Access::Disk).unwrap_err();
    assert_eq!(error.class(), Class::Unavailable, "{error}");
    is_out_of_use(&mut node, &path);
    assert!(node.store.quarantined()[0].reason.contains("Input/output error"), "{:?}", node.store.quarantined());
    // Other failures than the device's say nothing of the file.
    faulty.fail(Operation::Read, 1, Fault::Full);
    node.store.read(&one(kept), Access::Disk).unwrap_err();
    assert_eq!(node.store.quarantined().len(), 1);
    node = node.restart();
    assert!(node.store.quarantined().is_empty(), "it was read whole");
    node.read(one(deleted));
}

#[test]
fn a_compaction_and_a_start_meet_a_device_that_cannot_read_alike() {
    let faulty = FaultyVfs::new(Arc::new(MemoryVfs::new()));
    let (mut node, _) = node_on(Arc::new(faulty.clone()));
    let expected = node.scan(TABLE);
    faulty.fail(Operation::Read, 1, Fault::Device);
    node.store.compact_table(TABLE, 100, &Unpaced).unwrap_err();
    assert_eq!(node.store.quarantined().len(), 1);
    let mut quarantined = 0;
    for nth in 1.. {
        node = node.restart();
        assert_eq!((node.store.quarantined().len(), node.scan(TABLE)), (0, expected.clone()));
        let before = faulty.calls(Operation::Map);
        faulty.fail(Operation::Map, nth, Fault::Device);
        let Node { vfs, tables, store, .. } = node;
        drop(store);
        // Where it is the identity or the manifest that cannot be read, there is no start.
        if let Ok(store) = Store::open(vfs.clone(), super::options(), identity(), &tables) {
            quarantined += store.quarantined().len();
        }
        if faulty.calls(Operation::Map) < before + nth {
            break;
        }
        node = Node::opened(vfs, tables, identity());
    }
    assert!(quarantined >= 3, "each of the files, at the least");
}
