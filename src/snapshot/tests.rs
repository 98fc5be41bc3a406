//! Snapshots on a file system that loses power, with names that people may choose.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::manifest::encode;
use super::*;
use crate::Class;
use crate::model::{MutationName, NodeId, Stamp, Vnode, VnodeBits};
use crate::received::ReceivedSet;
use crate::sstable::file_name;
use crate::vfs::Vfs;
use crate::vfs::memory::MemoryVfs;

const FILE: Uuid = Uuid::from_u128(11);

fn snapshot(id: u128, name: &str) -> Snapshot {
    let label = TableLabel {
        keyspace: "demo".to_owned(),
        table: "kv".to_owned(),
        version: 2,
        definition: Bytes::from_static(b"as it is"),
    };
    let table = TableId(Uuid::from_u128(7));
    let mut set = ReceivedSet::default();
    set.add(MutationName { origin: NodeId(1), incarnation: 5, sequence: 6 });
    Snapshot {
        id: Uuid::from_u128(id),
        name: name.to_owned(),
        made_at_us: 1_767_225_600_000_000,
        cause: Cause::BeforeDrop,
        owner: Identity { cluster: Uuid::from_u128(1), node: NodeId(2), vnode_bits: VnodeBits::new(3).unwrap() },
        position: Position { segment: 3, offset: 4_096 },
        tables: vec![TableInfo { id: table, keyspace: KeyspaceId(4), label, columns: vec![(ColumnId(1), Type::Text)] }],
        files: vec![SstableMeta { id: FILE, table, bytes: 5, hash: [9; 32], stamps: (Stamp(1), Stamp(2)) }],
        received: [((KeyspaceId(4), Vnode(6)), set)].into(),
    }
}

/// A directory with one file to be linked.
fn start() -> (MemoryVfs, Directory) {
    let vfs = MemoryVfs::new();
    vfs.create_dir(Path::new("/data")).unwrap();
    let file = vfs.create(Path::new("/data/file")).unwrap();
    file.write_at(b"bytes", 0).unwrap();
    file.sync().unwrap();
    vfs.sync_dir(Path::new("/data")).unwrap();
    let directory = Directory::new(Arc::new(vfs.clone()), PathBuf::from("/snapshots"));
    (vfs, directory)
}

fn make(directory: &Directory, snapshot: &Snapshot) -> Result<Snapshot> {
    directory.make(snapshot.id, |draft| {
        draft.link(Path::new("/data/file"), FILE)?;
        Ok(snapshot.clone())
    })
}

fn replace(vfs: &MemoryVfs, path: &Path, bytes: &[u8]) {
    vfs.remove(path).unwrap();
    vfs.create(path).and_then(|file| file.write_at(bytes, 0)).unwrap();
}

#[test]
fn what_is_made_is_found_again_and_what_is_removed_is_gone() {
    let (vfs, directory) = start();
    assert!(directory.find().unwrap().whole.is_empty());
    let made = make(&directory, &snapshot(1, "first")).unwrap();
    vfs.remove(Path::new("/data/file")).unwrap();
    vfs.crash(1);
    assert_eq!(directory.find().unwrap().whole, std::slice::from_ref(&made));
    let kept = vfs.open(&directory.of(made.id).join(file_name(FILE))).unwrap();
    assert_eq!(kept.len().unwrap(), 5);
    directory.remove(made.id).unwrap();
    assert!(vfs.list(Path::new("/snapshots")).unwrap().is_empty());
    directory.remove(made.id).unwrap();
}

#[test]
fn a_snapshot_is_whole_or_not_there_wherever_the_power_goes() {
    let calls = {
        let (vfs, directory) = start();
        let before = vfs.operations();
        make(&directory, &snapshot(1, "first")).unwrap();
        directory.remove(Uuid::from_u128(1)).unwrap();
        vfs.operations() - before
    };
    for (at, seed) in (1..=calls).flat_map(|at| (0..20).map(move |seed| (at, seed))) {
        let (vfs, directory) = start();
        vfs.power_off_at(vfs.operations() + at);
        let made = make(&directory, &snapshot(1, "first"));
        let removed = made.is_ok().then(|| directory.remove(Uuid::from_u128(1)));
        vfs.crash(seed);
        let found = directory.find().unwrap();
        assert!(found.damaged.is_empty(), "call {at}, seed {seed}: {found:?}");
        if made.is_ok() && removed.is_none() {
            assert_eq!(found.whole.len(), 1, "call {at}, seed {seed}");
        }
        if removed.is_some_and(|removed| removed.is_ok()) {
            assert!(found.whole.is_empty(), "call {at}, seed {seed}");
        }
        for whole in &found.whole {
            let kept = vfs.open(&directory.of(whole.id).join(file_name(FILE))).unwrap();
            assert_eq!(kept.len().unwrap(), 5, "call {at}, seed {seed}");
        }
        let all = found.whole.iter().map(|whole| whole.id).chain(found.unfinished);
        all.for_each(|id| directory.remove(id).unwrap());
        assert!(!vfs.exists(Path::new("/snapshots")).unwrap() || vfs.list(Path::new("/snapshots")).unwrap().is_empty());
    }
}

#[test]
fn every_changed_byte_and_every_truncation_of_a_manifest_is_noticed() {
    let (vfs, directory) = start();
    let made = make(&directory, &snapshot(1, "first")).unwrap();
    let path = path(&directory.of(made.id));
    let bytes = encode(&made);
    let is_noticed = |bytes: &[u8]| {
        replace(&vfs, &path, bytes);
        let found = directory.find().unwrap();
        found.whole.is_empty() && found.damaged.len() == 1 && found.damaged[0].error.class() == Class::Corrupt
    };
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(is_noticed(&changed), "byte {at}");
        assert!(is_noticed(&bytes[..at]), "{at} bytes");
    }
    assert!(is_noticed(&[bytes.clone(), vec![0]].concat()));
    let other = Snapshot { id: Uuid::from_u128(2), ..made.clone() };
    assert!(is_noticed(&encode(&other)), "another one's manifest");
    // Damage is no reason to throw the files away.
    assert!(vfs.exists(&directory.of(made.id).join(file_name(FILE))).unwrap());
    replace(&vfs, &path, &bytes);
    assert_eq!(directory.find().unwrap().whole, [made]);
}

/// Elsewhere a keyspace, a table or a snapshot called like a directory, or with a slash in its name, was taken for a
/// path (CASSANDRA-14013, CASSANDRA-15297).
#[test]
fn b091_no_name_is_taken_for_a_path() {
    let (vfs, directory) = start();
    let names =
        ["snapshots", "backups", "manifest", "SNAPSHOT", "..", ".", "a/b", "/", "../../data", "größer 数", "%2e"];
    let names = names.into_iter().map(str::to_owned).chain([".".repeat(200), "x".repeat(NAME_BYTES_MAX)]);
    for (name, id) in names.zip(1..) {
        check_name(&name).unwrap();
        let mut odd = snapshot(id, &name);
        (odd.tables[0].label.keyspace, odd.tables[0].label.table) = (name.clone(), name.clone());
        let made = make(&directory, &odd).unwrap();
        assert_eq!(directory.find().unwrap().whole, std::slice::from_ref(&made));
        let listed = vfs.list(Path::new("/snapshots")).unwrap();
        assert_eq!(listed, [made.id.to_string()], "{name}");
        assert_eq!(
            vfs.list(&directory.of(made.id)).unwrap(),
            [file_name(FILE), "SNAPSHOT".to_owned()]
                .into_iter()
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        );
        directory.remove(made.id).unwrap();
        assert!(vfs.exists(Path::new("/data/file")).unwrap());
    }
    for refused in ["", "  ", "a\nb", "\u{1b}[2J", &"x".repeat(NAME_BYTES_MAX + 1)] {
        assert_eq!(check_name(refused).unwrap_err().class(), Class::Invalid, "{refused:?}");
    }
    // What is none of ours stays where it is.
    vfs.create(Path::new("/snapshots/notes")).unwrap();
    assert!(directory.find().unwrap().unfinished.is_empty());
    assert!(vfs.exists(Path::new("/snapshots/notes")).unwrap());
}
