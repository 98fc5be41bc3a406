//! Snapshots: what is in one, what outlives what, and tables that go.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{KEYSPACE, Node, OTHER, check, identity, options, shape, spec};
use crate::model::naive::{TABLE, rows, value};
use crate::model::{Direction, Fragment, KeyspaceId, Merge, Mutation, Stream, TableId};
use crate::snapshot::{self, Cause, Snapshot, TableLabel};
use crate::sstable::{BlockCache, FragmentStream, Sstable, file_name};
use crate::store::{BeforeDrop, SnapshotOptions, SnapshotScope, Store, StoreOptions, TableSpec};
use crate::vfs::Vfs;
use crate::vfs::faulty::{Fault, FaultyVfs, Operation};
use crate::vfs::memory::MemoryVfs;
use crate::{Class, Error};

const DAY_US: i64 = 24 * 3_600 * 1_000_000;

fn in_table(table: TableId, partition: u8, row: i32) -> Mutation {
    Mutation { table, ..rows(partition, [(row, value("v", 1))]) }
}

fn directory(id: uuid::Uuid) -> PathBuf {
    Path::new("/node/snapshots").join(id.to_string())
}

/// What the files of a snapshot hold of a table, in the words of [`shape`].
fn kept(vfs: &Arc<dyn Vfs>, snapshot: &Snapshot, table: TableId) -> String {
    let open = |file: &crate::sstable::SstableMeta| -> FragmentStream {
        let path = directory(snapshot.id).join(file_name(file.id));
        let sstable = Arc::new(Sstable::open(&**vfs, &path, Arc::new(BlockCache::new(0))).unwrap());
        sstable.verify(&file.hash).unwrap();
        sstable.read_through().unwrap()
    };
    let sources = snapshot.files.iter().filter(|file| file.table == table).map(open).collect();
    let mut merged = Merge::new(sources, Direction::Forward);
    let mut fragments = Vec::new();
    while let Some(fragment) = merged.next().unwrap() {
        fragments.push(match fragment {
            Fragment::Row(key, row) => Fragment::Row(key, row.decode().unwrap()),
            Fragment::Change(bound, deletion) => Fragment::Change(bound, deletion),
            Fragment::Partition(header) => Fragment::Partition(crate::model::PartitionHeader {
                key: header.key,
                deletion: header.deletion,
                static_row: header.static_row.map(|row| row.decode().unwrap()),
            }),
        });
    }
    shape(&fragments)
}

fn named(spec: TableSpec, name: &str) -> TableSpec {
    let label = TableLabel { keyspace: "demo".to_owned(), table: name.to_owned(), ..TableLabel::default() };
    TableSpec { label, ..spec }
}

#[test]
fn a_snapshot_holds_what_was_acknowledged_before_it_and_outlives_everything() {
    let mut node = Node::new();
    node.write_all(&[in_table(TABLE, 1, 1), in_table(OTHER, 1, 5)]);
    node.flush();
    node.write(&in_table(TABLE, 1, 2));
    let names = node.names();
    let made = node.store.create_snapshot("before", SnapshotScope::All, 7).unwrap();
    node.write(&in_table(TABLE, 1, 3));
    assert_eq!(kept(&node.vfs, &made, TABLE), "p1 1 2");
    assert_eq!(kept(&node.vfs, &made, OTHER), "p1 5");
    assert_eq!((made.cause, made.made_at_us, made.owner), (Cause::Operator, 7, identity()));
    let mut told = crate::received::ReceivedSet::default();
    made.received.values().for_each(|set| told.union(set));
    assert_eq!(told, names);
    assert_eq!(node.store.status().snapshot_only_bytes, 0);

    // What is not to be told apart from what is in it: compaction, a table that goes, a restart.
    node.flush();
    node.compact();
    node.store.set_tables(&[]).unwrap();
    node.tables = Vec::new();
    node.store.let_go(8).unwrap();
    assert_eq!(node.vfs.list(Path::new("/node/data")).unwrap(), Vec::<String>::new());
    assert!(node.store.status().snapshot_only_bytes >= made.bytes());
    let node = node.checked();
    let again = node.store.snapshots().whole[&made.id].clone();
    assert_eq!(again, made);
    assert_eq!(kept(&node.vfs, &again, TABLE), "p1 1 2");

    node.store.remove_snapshot("before").unwrap();
    assert!(!node.vfs.exists(&directory(made.id)).unwrap());
    assert!(!node.store.snapshots().whole.contains_key(&made.id));
}

#[test]
fn a_snapshot_is_of_all_tables_of_a_keyspace_or_of_one() {
    let mut node = Node::new();
    let elsewhere = TableSpec { keyspace: KeyspaceId(9), ..spec(OTHER) };
    node.tables = vec![spec(TABLE), elsewhere];
    node.store.set_tables(&node.tables).unwrap();
    node.write_all(&[in_table(TABLE, 1, 1), in_table(OTHER, 1, 5)]);
    let tables = |scope| {
        let made = node.store.create_snapshot(&format!("{scope:?}"), scope, 1).unwrap();
        assert!(made.received.keys().all(|(keyspace, _)| *keyspace == KEYSPACE));
        made.tables.iter().map(|table| table.id).collect::<Vec<_>>()
    };
    let mut both = vec![TABLE, OTHER];
    both.sort();
    assert_eq!(tables(SnapshotScope::All), both);
    assert_eq!(tables(SnapshotScope::Keyspace(KEYSPACE)), [TABLE]);
    assert_eq!(tables(SnapshotScope::Table(TABLE)), [TABLE]);
    let unknown = node.store.create_snapshot("x", SnapshotScope::Table(TableId(uuid::Uuid::nil())), 1);
    assert!(matches!(unknown, Err(Error::UnknownTable { .. })));
}

#[test]
fn names_are_told_apart_and_ids_serve_as_well() {
    let node = Node::new();
    let made = node.store.create_snapshot("one", SnapshotScope::All, 1).unwrap();
    let refused = |outcome: crate::Result<()>| assert_eq!(outcome.unwrap_err().class(), Class::Invalid);
    refused(node.store.create_snapshot("one", SnapshotScope::All, 2).map(drop));
    refused(node.store.create_snapshot("", SnapshotScope::All, 2).map(drop));
    assert_eq!(node.store.remove_snapshot("two").unwrap(), None);
    node.store.remove_snapshot(&made.id.to_string()).unwrap();
    assert_eq!(node.store.remove_snapshot("one").unwrap(), None);
    let again = node.store.create_snapshot("one", SnapshotScope::All, 1).unwrap();
    let node = node.restart();
    assert_eq!(node.store.snapshots().whole[&again.id].name, "one");
    // Numbers begin anew where no edit followed them; ids do not.
    node.store.create_snapshot("another", SnapshotScope::All, 1).unwrap();
    assert_eq!(node.store.status().snapshots, 2);
}

#[test]
fn a_dropped_table_is_kept_whole_memory_included() {
    let mut node = Node::new();
    node.tables = vec![named(spec(TABLE), "kv"), named(spec(OTHER), "other")];
    node.store.set_tables(&node.tables).unwrap();
    node.write(&in_table(TABLE, 1, 1));
    node.flush();
    node.write(&in_table(TABLE, 1, 2));
    node.store.set_tables(&node.tables[1..]).unwrap();
    assert!(matches!(node.store.create_snapshot("x", SnapshotScope::Table(TABLE), 1), Err(Error::UnknownTable { .. })));
    // It is received without effect.
    node.write(&in_table(TABLE, 1, 3));
    assert!(node.store.has_leaving());
    node.store.let_go(5).unwrap();
    assert!(!node.store.has_leaving());
    let list = node.store.snapshots();
    let made = list.whole.values().next().unwrap();
    assert_eq!(
        (made.name.clone(), made.cause, made.made_at_us),
        (format!("dropped-demo.kv-{TABLE}"), Cause::BeforeDrop, 5)
    );
    assert_eq!(kept(&node.vfs, made, TABLE), "p1 1 2");
    node.store.let_go(6).unwrap();
    assert_eq!(node.store.status().snapshots, 1);
}

#[test]
fn a_truncated_table_is_kept_under_its_old_id() {
    let mut node = Node::new();
    node.store.set_tables(&[named(spec(TABLE), "kv")]).unwrap();
    node.write(&in_table(TABLE, 1, 1));
    node.store.set_tables(&[named(spec(OTHER), "kv")]).unwrap();
    node.write(&in_table(OTHER, 1, 2));
    node.store.let_go(5).unwrap();
    let list = node.store.snapshots();
    let made = list.whole.values().next().unwrap();
    assert_eq!((made.name.clone(), made.cause), (format!("truncated-demo.kv-{TABLE}"), Cause::BeforeTruncate));
    assert_eq!(kept(&node.vfs, made, TABLE), "p1 1");
    assert_eq!(node.scan(OTHER), "p1 2");
}

#[test]
fn a_table_that_was_dropped_while_the_node_was_down_is_kept_too() {
    let mut node = Node::new();
    node.tables = vec![named(spec(TABLE), "kv"), spec(OTHER)];
    node.store.set_tables(&node.tables).unwrap();
    // Never flushed: the log alone has it.
    node.write(&in_table(TABLE, 1, 1));
    node.tables = vec![spec(OTHER)];
    let node = node.checked();
    assert!(node.store.has_leaving());
    // Another stop before it could go.
    let node = node.checked();
    node.store.let_go(5).unwrap();
    let list = node.store.snapshots();
    let made = list.whole.values().next().unwrap();
    assert_eq!(made.name, format!("dropped-demo.kv-{TABLE}"));
    assert_eq!(kept(&node.vfs, made, TABLE), "p1 1");
    let node = node.checked();
    assert!(!node.store.has_leaving());
    assert_eq!(node.store.status().snapshots, 1);
}

#[test]
fn an_empty_table_and_one_that_is_not_to_be_kept_leave_nothing() {
    let node = Node::new();
    node.store.set_tables(&[spec(OTHER)]).unwrap();
    node.store.let_go(1).unwrap();
    assert_eq!(node.store.status().snapshots, 0);

    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let unkept = SnapshotOptions { before_drop: BeforeDrop::Nothing, ..SnapshotOptions::default() };
    let options = StoreOptions { snapshots: unkept, ..options() };
    let tables = vec![spec(TABLE)];
    let store = Store::open(vfs.clone(), options, identity(), &tables).unwrap();
    let mut node = Node { vfs, tables, store, sequence: 0 };
    node.write(&in_table(TABLE, 1, 1));
    node.flush();
    node.write(&in_table(TABLE, 1, 2));
    node.store.set_tables(&[]).unwrap();
    node.store.let_go(1).unwrap();
    assert_eq!(node.vfs.list(Path::new("/node/data")).unwrap(), Vec::<String>::new());
    assert!(!node.vfs.exists(Path::new("/node/snapshots")).unwrap());
}

/// Nothing goes before it is kept: while the snapshot fails the files stay, and the rest of the node works on.
#[test]
fn a_table_whose_snapshot_fails_does_not_go() {
    for operation in [Operation::Link, Operation::SyncDir, Operation::Rename, Operation::CreateDir] {
        let faulty = FaultyVfs::new(Arc::new(MemoryVfs::new()));
        let mut node = Node::on(Arc::new(faulty.clone()));
        node.write(&in_table(TABLE, 1, 1));
        node.flush();
        node.store.set_tables(&[spec(OTHER)]).unwrap();
        faulty.fail(operation, 1, Fault::Device);
        node.store.let_go(1).unwrap_err();
        assert!(node.store.has_leaving());
        assert_eq!((node.store.status().sstables, node.store.status().snapshots), (1, 0));
        node.write(&in_table(OTHER, 1, 1));
        node.store.let_go(2).unwrap();
        let list = node.store.snapshots();
        assert_eq!(kept(&node.vfs, list.whole.values().next().unwrap(), TABLE), "p1 1");
        assert_eq!(node.store.status().sstables, 0, "{operation:?}");
        node.tables = vec![spec(OTHER)];
        node.checked();
    }
}

#[test]
fn what_the_store_keeps_by_itself_goes_in_time_and_what_was_asked_for_stays() {
    let mut node = Node::new();
    let asked = node.store.create_snapshot("asked", SnapshotScope::All, 0).unwrap();
    let table = |number: u128| TableId(uuid::Uuid::from_u128(100 + number));
    for day in 0..4 {
        node.store.set_tables(&[spec(table(day))]).unwrap();
        node.write(&in_table(table(day), 1, 1));
        node.store.set_tables(&[]).unwrap();
        node.store.let_go(day as i64 * DAY_US).unwrap();
    }
    let left = |node: &Node| {
        let list = node.store.snapshots();
        let own = list.whole.values().filter(|snapshot| snapshot.id != asked.id);
        let mut days: Vec<_> = own.map(|snapshot| snapshot.made_at_us / DAY_US).collect();
        days.sort();
        days
    };
    node.store.expire_snapshots(7 * DAY_US).unwrap();
    assert_eq!(left(&node), [0, 1, 2, 3]);
    node.store.expire_snapshots(8 * DAY_US + 1).unwrap();
    assert_eq!(left(&node), [2, 3]);
    // However young.
    node.tables = Vec::new();
    let Node { vfs, store, tables, .. } = node;
    drop(store);
    let options = StoreOptions { snapshots: SnapshotOptions { kept_most: 1, ..Default::default() }, ..options() };
    let node =
        Node { store: Store::open(vfs.clone(), options, identity(), &tables).unwrap(), vfs, tables, sequence: 9 };
    node.store.expire_snapshots(3 * DAY_US).unwrap();
    assert_eq!(left(&node), [3]);
    assert!(node.store.snapshots().whole.contains_key(&asked.id));
}

#[test]
fn what_was_cut_short_goes_and_what_is_damaged_stays_and_is_named() {
    let mut node = Node::new();
    node.write(&in_table(TABLE, 1, 1));
    let made = node.store.create_snapshot("one", SnapshotScope::All, 1).unwrap();
    let stray = directory(uuid::Uuid::from_u128(77));
    node.vfs.create_dir(&stray).unwrap();
    node.vfs.create(&stray.join("SNAPSHOT.new")).unwrap();
    let node = node.checked();
    assert!(!node.vfs.exists(&stray).unwrap());

    let manifest = snapshot::path(&directory(made.id));
    node.vfs.open(&manifest).and_then(|file| file.write_at(b"rot", 40)).unwrap();
    let Node { vfs, tables, store, sequence } = node;
    drop(store);
    let findings = check::findings(&vfs);
    assert!(findings.len() == 1 && findings[0].contains("SNAPSHOT"), "{findings:?}");
    let store = Store::open(vfs.clone(), options(), identity(), &tables).unwrap();
    let node = Node { vfs, tables, store, sequence };
    let list = node.store.snapshots();
    assert!(list.whole.is_empty() && list.damaged[0].id == made.id);
    assert_eq!(node.store.status().snapshots, 1);
    assert!(node.vfs.exists(&directory(made.id).join(file_name(made.files[0].id))).unwrap());
    node.store.remove_snapshot(&made.id.to_string()).unwrap();
    assert_eq!(node.store.status().snapshots, 0);
    assert!(!node.vfs.exists(&directory(made.id)).unwrap());
}

/// A check reads what snapshots hold, and names what is missing there.
#[test]
fn a_check_finds_a_file_that_a_snapshot_misses_or_that_is_damaged_in_it() {
    for damage in ["missing", "changed"] {
        let mut node = Node::new();
        node.write(&in_table(TABLE, 1, 1));
        let made = node.store.create_snapshot("one", SnapshotScope::All, 1).unwrap();
        node.store.set_tables(&[]).unwrap();
        node.store.let_go(1).unwrap();
        node.store.remove_snapshot(&format!("dropped-{TABLE}")).unwrap();
        let Node { vfs, store, .. } = node;
        drop(store);
        assert!(check::findings(&vfs).is_empty());
        let path = directory(made.id).join(file_name(made.files[0].id));
        match damage {
            "missing" => vfs.remove(&path).unwrap(),
            _ => vfs.open(&path).and_then(|file| file.write_at(&[0xff], 60)).unwrap(),
        }
        let findings = check::findings(&vfs);
        assert!(findings.len() == 1 && findings[0].contains(&file_name(made.files[0].id)), "{damage}: {findings:?}");
    }
}
