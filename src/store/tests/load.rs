//! Files that join all at once: whole or not at all, and nothing purged that what comes later needs.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::{KEYSPACE, Node, OTHER, identity, scan, spec};
use crate::codec::EncodedRow;
use crate::compaction::Unpaced;
use crate::memtable::Memtable;
use crate::model::naive::{Naive, TABLE, any_mutation, rows, value};
use crate::model::{Direction, Merge, Mutation, Row, ScanRange, Slice, Stamp, TableId, Vnode};
use crate::sstable::{FragmentStream, SstableMeta};
use crate::store::load::Expected;
use crate::store::{Content, Store, TableSpec};
use crate::vfs::Vfs;
use crate::vfs::faulty::{Fault, FaultyVfs, Operation};
use crate::vfs::memory::MemoryVfs;
use crate::{Class, Error, Result};

fn loading() -> Vec<TableSpec> {
    vec![TableSpec { content: Content::Loading, ..spec(TABLE) }, spec(OTHER)]
}

fn node_on(vfs: Arc<dyn Vfs>) -> Node {
    Node::opened(vfs, loading(), identity())
}

fn expected() -> Expected {
    Expected { stamps: (Stamp(1), Stamp(9)), density_bytes: 1.0, partitions: 10, rows: 10 }
}

/// What these mutations amount to, as a file would have it.
fn stream(mutations: &[Mutation]) -> Merge<EncodedRow, FragmentStream> {
    let memtable = Arc::new(Memtable::new());
    mutations.iter().for_each(|mutation| {
        let record = crate::codec::CheckedRecord::encode(
            crate::codec::RecordKind::Nameless { composer: crate::model::NodeId(5), known_through: Stamp(0) },
            KEYSPACE,
            Stamp(1),
            mutation,
        );
        memtable.insert(record.token(), &record.mutation().unwrap()).unwrap();
    });
    let all: FragmentStream = memtable.scan(ScanRange::default(), &[Slice::all()], Direction::Forward);
    Merge::new(vec![all], Direction::Forward)
}

fn made(store: &Store, mutations: &[Mutation], density_bytes: f64) -> Result<Vec<SstableMeta>> {
    store.loader(TABLE)?.write(&mut stream(mutations), &Expected { density_bytes, ..expected() })
}

fn put(partition: u8, row: i32, timestamp: i64) -> Mutation {
    rows(partition, [(row, value("v", timestamp))])
}

fn delete(partition: u8, row: i32, timestamp: i64) -> Mutation {
    let deletion = Some(crate::model::naive::deletion(timestamp));
    rows(partition, [(row, Row { deletion, ..Row::default() })])
}

#[test]
fn files_join_at_once_and_stay() {
    let mut node = node_on(Arc::new(MemoryVfs::new()));
    let files = made(&node.store, &[put(1, 1, 5), put(2, 1, 5)], 1.0).unwrap();
    assert_eq!(node.scan(TABLE), "");
    node.store.load(TABLE, files).unwrap();
    assert_eq!(node.scan(TABLE), "p1 1 p2 1");
    assert_eq!(node.store.last_stamp(), Stamp(9));
    // Beside what flushes and compactions do.
    node.write(&Mutation { table: OTHER, ..put(1, 1, 5) });
    node.flush();
    let more = made(&node.store, &[put(1, 2, 5)], 1.0).unwrap();
    node.compact();
    node.store.load(TABLE, more).unwrap();
    node.compact();
    let mut node = node.checked();
    assert_eq!(node.scan(TABLE), "p1 1 2 p2 1");
    node.tables = vec![spec(TABLE), spec(OTHER)];
    node.store.set_tables(&node.tables).unwrap();
    node.write(&put(1, 3, 5));
    assert_eq!(node.checked().scan(TABLE), "p1 1 2 3 p2 1");
}

#[test]
fn a_stream_is_cut_where_a_compaction_would_cut_it() {
    let node = node_on(Arc::new(MemoryVfs::new()));
    let mutations: Vec<_> = (0..40).map(|partition| put(partition, 1, 5)).collect();
    assert_eq!(made(&node.store, &mutations, 1.0).unwrap().len(), 1);
    let files = made(&node.store, &mutations, 1e15).unwrap();
    assert_eq!(files.len(), 4);
    node.store.load(TABLE, files).unwrap();
    for file in &node.store.memory.tables.load()[&TABLE].view().files {
        assert_eq!(file.sstable.vnodes().spans.len(), 1);
    }
}

#[test]
fn only_a_table_that_is_being_loaded_takes_files_and_only_its_own() {
    let node = node_on(Arc::new(MemoryVfs::new()));
    let refused = |outcome: Result<()>| assert_eq!(outcome.unwrap_err().class(), Class::Invalid);
    refused(node.store.loader(OTHER).map(drop));
    refused(node.store.load(OTHER, made(&node.store, &[put(1, 1, 5)], 1.0).unwrap()));
    let unknown = TableId(uuid::Uuid::nil());
    assert!(matches!(node.store.loader(unknown).map(drop), Err(Error::UnknownTable { .. })));
    let files = made(&node.store, &[put(1, 1, 5)], 1.0).unwrap();
    // Not what it is said to be.
    let of_other = vec![SstableMeta { table: OTHER, ..files[0].clone() }];
    refused(node.store.load(TABLE, of_other));
    let files = made(&node.store, &[put(1, 1, 5)], 1.0).unwrap();
    refused(node.store.load(TABLE, vec![SstableMeta { bytes: 1, ..files[0].clone() }]));
    // Nowhere.
    let nowhere = SstableMeta { id: uuid::Uuid::from_u128(99), ..files[0].clone() };
    assert!(node.store.load(TABLE, vec![nowhere]).is_err());
    // Live already: the file stays.
    let files = made(&node.store, &[put(1, 1, 5)], 1.0).unwrap();
    node.store.load(TABLE, files.clone()).unwrap();
    assert!(node.store.load(TABLE, files).is_err());
    assert_eq!(node.checked().scan(TABLE), "p1 1");
}

/// A restore loads a group of vnodes from files and then from the log. What a deletion in the first load deletes may come with
/// the second; were the deletion purged in between, it would be back.
#[test]
fn nothing_is_purged_while_older_data_may_come() {
    let purged_through = |node: &Node| {
        let vnodes = (0..4).map(|vnode| (KEYSPACE, Vnode(vnode), Stamp(1 << 60)));
        node.store.raise_purged_through(&vnodes.collect::<Vec<_>>()).unwrap();
    };
    let mut node = node_on(Arc::new(MemoryVfs::new()));
    purged_through(&node);
    let deleted = made(&node.store, &[delete(1, 1, 20), put(1, 2, 20)], 1.0).unwrap();
    node.store.load(TABLE, deleted).unwrap();
    node.store.compact_table(TABLE, 1 << 40, &Unpaced).unwrap();
    while node.store.compact_next(1 << 40, &Unpaced).unwrap() {}
    let older = made(&node.store, &[put(1, 1, 10)], 1.0).unwrap();
    node.store.load(TABLE, older).unwrap();
    assert_eq!(node.scan(TABLE), "p1 -1 2");
    // Once all is there it may go.
    node.tables = vec![spec(TABLE), spec(OTHER)];
    node.store.set_tables(&node.tables).unwrap();
    node.store.compact_table(TABLE, 1 << 40, &Unpaced).unwrap();
    assert_eq!(node.checked().scan(TABLE), "p1 2");
}

/// The power goes at each call of a load: afterwards it is there or not, whole, and no file is left over.
#[test]
fn a_load_that_is_cut_short_is_whole_or_nothing() {
    let load = |node: &Node| -> Result<()> {
        let mut files = made(&node.store, &[put(1, 1, 5), put(2, 1, 5)], 1e15)?;
        files.extend(made(&node.store, &[put(3, 1, 5)], 1.0)?);
        node.store.load(TABLE, files)
    };
    let whole = {
        let node = node_on(Arc::new(MemoryVfs::new()));
        load(&node).unwrap();
        node.scan(TABLE)
    };
    let (mut seen, mut at) = ([0; 2], 0);
    loop {
        at += 1;
        let vfs = MemoryVfs::new();
        let node = node_on(Arc::new(vfs.clone()));
        let before = vfs.operations();
        vfs.power_off_at(before + at);
        let outcome = load(&node);
        let is_past = vfs.operations() < before + at;
        drop(node);
        vfs.crash(at);
        let node = node_on(Arc::new(vfs.clone()));
        let found = node.scan(TABLE);
        assert!(found == whole || (found.is_empty() && outcome.is_err()), "call {at}: {found}");
        seen[usize::from(found == whole)] += 1;
        let listed = node.store.live_files().len();
        assert_eq!(vfs.list(Path::new("/node/data")).unwrap().len(), listed, "call {at}");
        drop(node.checked());
        if is_past {
            break;
        }
    }
    assert!(seen[0] > 10 && seen[1] > 0, "{seen:?}");
}

/// Each call of a load fails once: it is whole or nothing at once and after a restart, and a second try does it.
#[test]
fn a_load_that_fails_can_be_tried_again() {
    use Operation::{Create, Open, Rename, Sync, SyncDir, Write};
    for operation in [Create, Open, Rename, Sync, SyncDir, Write] {
        for nth in 1.. {
            let memory = MemoryVfs::new();
            let vfs = FaultyVfs::new(Arc::new(memory.clone()));
            let node = node_on(Arc::new(vfs.clone()));
            let before = vfs.calls(operation);
            vfs.fail(operation, nth, Fault::Device);
            let load = || node.store.load(TABLE, made(&node.store, &[put(1, 1, 5)], 1.0)?);
            let outcome = load();
            if outcome.is_ok() && vfs.calls(operation) < before + nth {
                break;
            }
            assert_eq!(node.scan(TABLE), if outcome.is_ok() { "p1 1" } else { "" }, "{operation:?} {nth}");
            if outcome.is_err() {
                load().unwrap();
            }
            assert_eq!(node.scan(TABLE), "p1 1");
            drop(node);
            let node = node_on(Arc::new(memory.clone()));
            assert_eq!(node.scan(TABLE), "p1 1");
            assert_eq!(memory.list(Path::new("/node/data")).unwrap().len(), node.store.live_files().len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Loads of any parts in any order, some of them twice, compacted in between, read as everything together would.
    #[test]
    fn loads_in_any_order_read_as_one(
        parts in prop::collection::vec(prop::collection::vec(any_mutation(3, 6), 1..6), 1..6),
        twice in any::<prop::sample::Index>(),
        compacts in prop::collection::vec(any::<bool>(), 6),
    ) {
        let node = node_on(Arc::new(MemoryVfs::new()));
        let mut naive = Naive::default();
        let again = parts[twice.index(parts.len())].clone();
        for (part, compacts) in parts.iter().chain([&again]).zip(compacts) {
            node.store.load(TABLE, made(&node.store, part, 1e15).unwrap()).unwrap();
            if compacts {
                node.compact();
            }
        }
        parts.iter().flatten().for_each(|mutation| naive.apply(mutation));
        prop_assert_eq!(node.read(scan()), naive.scan(&[Slice::all()], Direction::Forward));
        let node = node.restart();
        prop_assert_eq!(node.read(scan()), naive.scan(&[Slice::all()], Direction::Forward));
    }
}
