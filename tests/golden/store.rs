//! The files of a data directory that are the store's own: its identity and its manifest.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::model::{
    Cell, CellKind, ClusteringKey, ColumnId, CompactionOptions, Durability, Identity, KeyspaceId, Mutation,
    MutationName, NodeId, PartitionKey, Row, Stamp, TableId, Timestamp, Type, VnodeBits,
};
use trefoil::snapshot::TableLabel;
use trefoil::store::{SnapshotScope, Store, StoreOptions, TableSpec};
use trefoil::vfs::Vfs;
use trefoil::vfs::memory::MemoryVfs;
use uuid::Uuid;

use crate::kept::{golden, kept};

const TABLE: TableId = TableId(Uuid::from_u128(0x0f0e0d0c_0b0a_0908_0706_050403020100));
const NEW_YEAR_US: i64 = 1_767_225_600_000_000;

fn open(vfs: &MemoryVfs) -> Store {
    let options = StoreOptions {
        directory: "node".into(),
        segment_bytes: 16 << 10,
        log_kept_bytes_max: 0,
        memtable_budget_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        snapshots: Default::default(),
    };
    let cluster = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00c1);
    let identity = Identity { cluster, node: NodeId(2), vnode_bits: VnodeBits::DEFAULT };
    let columns = vec![(ColumnId(2), Type::Text)];
    let spec = TableSpec {
        id: TABLE,
        keyspace: KeyspaceId(3),
        durability: Durability::Commit,
        lateness_s: 3_600,
        compaction: CompactionOptions::default(),
        content: Default::default(),
        live: None,
        clustering: Vec::new(),
        columns,
        label: TableLabel {
            keyspace: "demo".to_owned(),
            table: "airports".to_owned(),
            version: 2,
            definition: Bytes::from_static(b"columns"),
        },
    };
    Store::open(Arc::new(vfs.clone()), options, identity, &[spec]).expect("a store that opens")
}

/// A directory in which one row was written and flushed.
fn written() -> MemoryVfs {
    let vfs = MemoryVfs::new();
    let store = open(&vfs);
    let cell = Cell { timestamp: Timestamp(NEW_YEAR_US), kind: CellKind::Live(Bytes::from_static(b"Newark")) };
    let row = Row { cells: vec![(ColumnId(2), cell)], ..Row::default() };
    let key = ClusteringKey::encode(&[], &[]).expect("a key without components");
    let partition = PartitionKey::from_bytes(Bytes::from_static(b"EWR"));
    let mutation = Mutation { rows: vec![(key, row)], ..Mutation::new(TABLE, partition) };
    let name = MutationName { origin: NodeId(2), incarnation: NEW_YEAR_US as u64 - 1, sequence: 1 };
    let record = CheckedRecord::encode(RecordKind::Named(name), KeyspaceId(3), Stamp(NEW_YEAR_US), &mutation);
    let mut ends = Vec::new();
    store.append(std::slice::from_ref(&record), &mut ends).expect("appended");
    store.sync().expect("synced");
    store.insert(&record, ends[0]).expect("inserted");
    store.flush(None).expect("flushed");
    store.close().expect("closed");
    vfs
}

fn read(vfs: &MemoryVfs, path: &str) -> Vec<u8> {
    let file = vfs.open(Path::new(path)).expect("it was written");
    let mut bytes = vec![0; file.len().expect("a length") as usize];
    file.read_at(&mut bytes, 0).expect("all of it");
    bytes
}

fn replace(vfs: &MemoryVfs, path: &str, bytes: &[u8]) {
    vfs.remove(Path::new(path)).expect("it is there");
    vfs.create(Path::new(path)).and_then(|file| file.write_at(bytes, 0)).expect("written");
}

#[test]
fn a_directory_is_written_and_opened_as_it_always_was() {
    let vfs = written();
    let identity = golden("identity", &read(&vfs, "node/IDENTITY"));
    let manifest = golden("manifest-sstable-2", &read(&vfs, "node/MANIFEST"));
    replace(&vfs, "node/IDENTITY", &identity);
    replace(&vfs, "node/MANIFEST", &manifest);
    check(&vfs);
}

/// Written when files were of format 1; the first before the manifest knew more of a table than its id.
#[test]
fn older_manifests_are_read() {
    for name in ["manifest", "manifest-table-known"] {
        let vfs = written();
        replace(&vfs, &the_file(&vfs), &kept("sstable-one-row", &[]));
        replace(&vfs, "node/MANIFEST", &kept(name, &[]));
        check(&vfs);
    }
}

/// The path of the one SSTable.
fn the_file(vfs: &MemoryVfs) -> String {
    let names = vfs.list(Path::new("node/data")).expect("a directory");
    format!("node/data/{}", names.first().expect("a file"))
}

#[test]
fn a_snapshot_is_written_and_found_as_it_always_was() {
    let vfs = written();
    let made = open(&vfs).create_snapshot("new year", SnapshotScope::All, NEW_YEAR_US).expect("made");
    let path = format!("node/snapshots/{}/SNAPSHOT", made.id);
    let manifest = golden("snapshot-sstable-2", &read(&vfs, &path));
    replace(&vfs, &path, &manifest);
    let list = open(&vfs).snapshots();
    assert_eq!(list.whole.get(&made.id), Some(&made));
    assert!(list.damaged.is_empty() && made.files.len() == 1 && made.received.len() == 1);
    // One of a file of format 1.
    replace(&vfs, &path, &kept("snapshot", &[]));
    let list = open(&vfs).snapshots();
    let older = &list.whole[&made.id];
    assert_eq!((&older.name, older.position, &older.tables), (&made.name, made.position, &made.tables));
    assert!(list.damaged.is_empty() && older.files.len() == 1 && older.received == made.received);
}

#[test]
fn a_snapshot_of_a_backup_is_found_as_it_always_was() {
    let vfs = written();
    let backup = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00ba);
    let made = open(&vfs).create_backup_snapshot(backup, SnapshotScope::All, NEW_YEAR_US).expect("made");
    let path = format!("node/snapshots/{}/SNAPSHOT", made.id);
    let manifest = golden("snapshot-backup", &read(&vfs, &path));
    replace(&vfs, &path, &manifest);
    let store = open(&vfs);
    assert_eq!(store.create_backup_snapshot(backup, SnapshotScope::All, 0).expect("the same"), made);
}

/// The directory is that of the one row.
fn check(vfs: &MemoryVfs) {
    let store = open(vfs);
    assert_eq!((store.status().sstables, store.last_stamp()), (1, Stamp(NEW_YEAR_US)));
    let sets = store.received();
    let ((keyspace, _), set) = sets.first_key_value().expect("one name");
    let name = MutationName { origin: NodeId(2), incarnation: NEW_YEAR_US as u64 - 1, sequence: 1 };
    assert!(*keyspace == KeyspaceId(3) && set.contains(name) && sets.len() == 1);
}
