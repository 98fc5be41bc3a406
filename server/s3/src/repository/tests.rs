//! Backups of a small cluster that was thought up: read at any time, verified, pruned, mirrored.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::{Builder as RuntimeBuilder, Runtime};
use trefoil::backup::mark::Retention;
use trefoil::backup::{
    Chain, Index, IndexEntry, Listed, ListedPart, ListedPiece, Manifest, Part, Piece, PieceHead, Scope, StateAt,
    StoredFile, layout,
};
use trefoil::codec::{CheckedRecord, EncodedRow, RecordKind};
use trefoil::commitlog::{Logged, Position};
use trefoil::memtable::Memtable;
use trefoil::metadata::{
    Birth, ClusterState, Entry, Epoch, Member, RestoreBegun, RestoredTable, apply, birth, encode_table,
};
use trefoil::model::{
    Cell, CellKind, ClusteringKey, ColumnDefinition, ColumnKind, CreateKeyspace, CreateTable, Deletion, Direction,
    Fragment, KeyspaceId, Merge, Mutation, MutationName, NodeId, PartitionKey, Row, ScanRange, Slice, Stamp, Stream,
    Table, TableId, TableOptions, Timestamp, TokenRange, Type, VnodeBits,
};
use trefoil::received::ReceivedSets;
use trefoil::ring::Zone;
use trefoil::snapshot::{TableInfo, TableLabel};
use trefoil::sstable::{BLOCK_BYTES, Builder, BuilderOptions, file_name};
use trefoil::vfs::Vfs;
use trefoil::vfs::memory::MemoryVfs;
use uuid::Uuid;

use super::*;
use crate::{Call, Creation, Fault, Faulty, Memory};

const CLUSTER: Uuid = Uuid::from_u128(0xc1);
const TABLE: TableId = TableId(Uuid::from_u128(0x7a));
/// The first stamp; one mutation every 100 ms.
const BASE: i64 = 1_767_225_600_000_000;
const STEP: i64 = 100_000;
const DAY_US: i64 = 24 * 3_600 * 1_000_000;

/// Steele and Vigna's splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn state() -> ClusterState {
    let member = |zone: &str| Member {
        zone: Zone { region: "eu".to_owned(), name: zone.to_owned() },
        peer_address: format!("{zone}:9441"),
        client_address: format!("{zone}:9440"),
    };
    let members = ["a", "b", "c"].map(member).into();
    let vnode_bits = VnodeBits::new(3).unwrap();
    let state = birth(&Birth { cluster: CLUSTER, name: "demo".to_owned(), vnode_bits, members }).unwrap();
    let replication = BTreeMap::from([("eu".to_owned(), 3)]);
    let keyspace = CreateKeyspace { name: "ks".to_owned(), replication, if_not_exists: false };
    let (state, verdict) = apply(&state, Epoch { generation: 0, index: 2 }, &Entry::CreateKeyspace(keyspace));
    verdict.unwrap();
    let column = |name: &str, kind| ColumnDefinition { name: name.to_owned(), ty: Type::Text, kind };
    let table = CreateTable {
        keyspace: "ks".to_owned(),
        name: "kv".to_owned(),
        columns: vec![column("k", ColumnKind::PartitionKey), column("v", ColumnKind::Regular)],
        options: TableOptions::default(),
        if_not_exists: false,
    };
    let (state, verdict) = apply(&state, Epoch { generation: 0, index: 3 }, &Entry::CreateTable { id: TABLE, table });
    verdict.unwrap();
    state
}

/// A cluster's history, and its backup in a bucket.
struct World {
    bucket: Arc<Memory>,
    repository: Repository,
    runtime: Runtime,
    table: Arc<Table>,
    records: Vec<CheckedRecord>,
    manifest: Manifest,
}

/// What a node has logged, in order.
struct NodeLog {
    node: NodeId,
    records: Vec<CheckedRecord>,
}

fn mutation(random: &mut Random, table: &Table, at: i64) -> Mutation {
    let key = PartitionKey::from_bytes(format!("key {}", random.below(40)).into_bytes().into());
    let mut mutation = Mutation::new(table.id, key);
    if random.below(4) == 0 {
        mutation.deletion = Some(Deletion { timestamp: Timestamp(at), ldt_s: at / 1_000_000 });
    } else {
        let kind = CellKind::Live(Bytes::from(format!("value of {at}")));
        let column = table.columns[1].id;
        let row = Row { cells: vec![(column, Cell { timestamp: Timestamp(at), kind })], ..Row::default() };
        mutation.rows.push((ClusteringKey::from_bytes(Bytes::from_static(&[0x38])).unwrap(), row));
    }
    mutation
}

/// A mutation that every node has logged right before the position of its part, and whose name is forgotten. It was deleted,
/// and the files have purged both: whoever reads it from the log brings it back.
fn gone(table: &Table) -> CheckedRecord {
    let mut random = Random(0);
    let stamp = BASE - 1;
    let mutation = loop {
        let mutation = mutation(&mut random, table, stamp);
        if mutation.deletion.is_none() {
            break Mutation { key: PartitionKey::from_bytes(Bytes::from_static(b"gone")), ..mutation };
        }
    };
    let name = MutationName { origin: NodeId(1), incarnation: 9, sequence: 1 };
    CheckedRecord::encode(RecordKind::Named(name), table.keyspace, Stamp(stamp), &mutation)
}

/// `count` mutations, each of which reaches two or three of the nodes; each node's files hold what it had logged at some time.
fn world(seed: u64, count: usize) -> World {
    let mut random = Random(seed);
    let state = state();
    let table = state.table(TABLE).unwrap().clone();
    let bits = state.ring().vnode_bits();
    let mut logs: Vec<NodeLog> = (1..=3).map(|node| NodeLog { node: NodeId(node), records: Vec::new() }).collect();
    let (mut records, mut sequences) = (Vec::new(), BTreeMap::new());
    for number in 0..count {
        let stamp = BASE + number as i64 * STEP;
        let mutation = mutation(&mut random, &table, stamp);
        let origin = NodeId(1 + random.below(3) as u32);
        let sequence: &mut u64 = sequences.entry((origin, bits.vnode(mutation.key.token()))).or_default();
        *sequence += 1;
        let name = MutationName { origin, incarnation: 1, sequence: *sequence };
        let record = CheckedRecord::encode(RecordKind::Named(name), table.keyspace, Stamp(stamp), &mutation);
        let misses = (random.below(3) == 0).then(|| NodeId(1 + random.below(3) as u32));
        let reached = logs.iter_mut().filter(|log| Some(log.node) != misses);
        reached.for_each(|log| log.records.push(record.clone()));
        records.push(record);
    }
    let bucket = Arc::new(Memory::default());
    bucket.set_now_s(BASE / 1_000_000);
    let runtime = RuntimeBuilder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let repository = Repository::new(bucket.clone(), CLUSTER);
    let store = repository.store().clone();
    let backup = Uuid::from_u128(u128::from(seed) << 8 | 0xb1);
    let put = |key: &str, bytes: Bytes| assert_eq!(runtime.block_on(store.create(key, bytes)).unwrap(), Creation::New);
    let mut parts = Vec::new();
    let mut heads = Vec::new();
    for log in &logs {
        let until = count / 4 + random.below(count as u64 / 4) as usize;
        let (before, after) = log.records.split_at(until.min(log.records.len()));
        let after: Vec<_> = std::iter::once(gone(&table)).chain(after.iter().cloned()).collect();
        let (part, files) = part_of(log.node, backup, &state, &table, before);
        files.into_iter().for_each(|(key, bytes)| put(&key, bytes));
        let begin = Position { offset: part.position.offset - 1, ..part.position };
        let pieces = pieces_of(log.node, &state, &after, begin);
        pieces.iter().for_each(|piece| put(&piece.head.key(), piece.encode()));
        put(&part.key(), part.encode());
        heads.push(
            pieces.into_iter().map(|piece| (piece.head.clone(), Listed::of(&piece.encode()))).collect::<Vec<_>>(),
        );
        parts.push(part);
    }
    let cut = parts.iter().map(|part| part.highest).max().unwrap();
    let mut manifest = Manifest {
        cluster: CLUSTER,
        backup,
        name: "test".to_owned(),
        tag: String::new(),
        scope: Scope::All,
        began_at: Stamp(BASE),
        cut,
        state: state.encode().into(),
        parts: Vec::new(),
        pieces: Vec::new(),
        absent: Vec::new(),
    };
    for (part, heads) in parts.iter().zip(heads) {
        let object = Listed::of(&part.encode());
        let (files, file_bytes) = (part.files.len() as u64, part.bytes());
        manifest.parts.push(ListedPart { node: part.node, object, files, file_bytes });
        let only: Vec<PieceHead> = heads.iter().map(|(head, _)| head.clone()).collect();
        let Chain { pieces } = Chain::of(part, &only, cut).unwrap();
        let listed = heads[..pieces].iter().map(|(head, object)| (head.number, *object));
        manifest.pieces.extend(listed.map(|(number, object)| ListedPiece { node: part.node, number, object }));
    }
    put(&manifest.key(), manifest.encode());
    put(layout::INDEX, Index { cluster: CLUSTER, entries: vec![IndexEntry::of(&manifest)] }.encode());
    World { bucket, repository, runtime, table, records, manifest }
}

fn part_of(
    node: NodeId,
    backup: Uuid,
    state: &ClusterState,
    table: &Arc<Table>,
    records: &[CheckedRecord],
) -> (Part, Vec<(String, Bytes)>) {
    let bits = state.ring().vnode_bits();
    let columns: Vec<_> = table.columns.iter().map(|column| (column.id, column.ty.clone())).collect();
    let mut received = ReceivedSets::new();
    for (slice, name) in records.iter().filter_map(|record| record.name(bits)) {
        received.entry(slice).or_default().add(name);
    }
    let (mut stored, mut files) = (Vec::new(), Vec::new());
    for (at, half) in records.chunks(records.len().div_ceil(2).max(1)).enumerate() {
        let vfs = MemoryVfs::new();
        let directory = PathBuf::from("/t");
        vfs.create_dir(&directory).unwrap();
        let id = Uuid::from_u128(u128::from(node.0) << 64 | at as u128 | 1 << 100);
        let stamps = (half[0].stamp(), half[half.len() - 1].stamp());
        let options = BuilderOptions {
            directory: directory.clone(),
            id,
            table: table.id,
            columns: columns.clone(),
            vnode_bits: bits,
            stamps,
            expected_partitions: 40,
            expected_rows: 40,
            block_bytes: BLOCK_BYTES.min(200),
        };
        let mut builder = Builder::create(&vfs, options).unwrap();
        let mut rows = memtable(half).scan(ScanRange::default(), &[Slice::all()], Direction::Forward);
        while let Some(fragment) = rows.next().unwrap() {
            builder.add(&fragment).unwrap();
        }
        let meta = builder.finish().unwrap();
        let file = vfs.open(&directory.join(file_name(id))).unwrap();
        let bytes = file.map(0, meta.bytes as usize).unwrap();
        let file = StoredFile { meta, suffix: None };
        files.push((file.key(), bytes));
        stored.push(file);
    }
    let label = TableLabel {
        keyspace: "ks".to_owned(),
        table: "kv".to_owned(),
        version: table.version,
        definition: encode_table(table),
    };
    let part = Part {
        cluster: CLUSTER,
        backup,
        node,
        vnode_bits: bits,
        made_at: Stamp(BASE),
        position: Position { segment: 1, offset: records.len() as u64 + 1 },
        first_piece: 3,
        highest: records.last().map_or(Stamp(0), CheckedRecord::stamp),
        tables: vec![TableInfo { id: table.id, keyspace: table.keyspace, label, columns }],
        files: stored,
        received,
        state: state.encode().into(),
    };
    (part, files)
}

/// Pieces of seven records, and one at the end that is empty.
fn pieces_of(node: NodeId, state: &ClusterState, records: &[CheckedRecord], begin: Position) -> Vec<Piece> {
    let mut from = begin;
    let mut pieces = Vec::new();
    for (at, some) in records.chunks(7).chain([&records[records.len()..]]).enumerate() {
        let to = Position { offset: from.offset + some.len() as u64, ..from };
        let told = some.last().map_or(Stamp(BASE + 100 * DAY_US), CheckedRecord::stamp);
        let head = PieceHead {
            cluster: CLUSTER,
            node,
            number: 3 + at as u64,
            from,
            to,
            told,
            made_at: told,
            records: 0,
            stamps: None,
            names: ReceivedSets::new(),
            states: vec![StateAt { applied_at: Stamp(BASE), state: state.encode().into() }],
        };
        let end = |at| Position { offset: from.offset + at, ..from };
        let logged = (1..).map(end).zip(some.iter().cloned()).map(|(end, record)| Logged { end, record });
        pieces.push(Piece::new(head, &logged.collect::<Vec<_>>(), state.ring().vnode_bits()));
        from = to;
    }
    pieces
}

fn memtable(records: &[CheckedRecord]) -> Arc<Memtable> {
    let memtable = Memtable::new();
    records.iter().for_each(|record| memtable.insert(record.token(), &record.mutation().unwrap()).unwrap());
    Arc::new(memtable)
}

fn all(mut stream: impl Stream<EncodedRow>) -> Vec<Fragment<EncodedRow>> {
    let mut fragments = Vec::new();
    while let Some(fragment) = stream.next().unwrap() {
        fragments.push(fragment);
    }
    fragments
}

impl World {
    /// What the history up to a time amounts to, by itself.
    fn expected(&self, at: Stamp, range: TokenRange) -> Vec<Fragment<EncodedRow>> {
        let until: Vec<_> = self.records.iter().filter(|record| record.stamp() <= at).cloned().collect();
        let scan = ScanRange { after: None, tokens: range };
        let rows = memtable(&until).scan(scan, &[Slice::all()], Direction::Forward);
        all(Merge::new(vec![rows], Direction::Forward))
    }

    fn found(&self, at: Stamp, range: TokenRange) -> Vec<Fragment<EncodedRow>> {
        let moment = self.runtime.block_on(self.repository.moment(at, None, |_| true)).unwrap();
        let place = (self.table.keyspace, TABLE);
        let table = TableAt::new(&self.repository, &Arc::new(moment), place, self.runtime.handle().clone());
        let table = Arc::new(table);
        let found = all(table.rows(range));
        // In however many runs, it is the same: each partition is its own where there is room for one record.
        for run_bytes in [1, 700, 3_000] {
            assert_eq!(all(table.rows_in_runs(range, run_bytes)), found, "runs of {run_bytes}");
        }
        found
    }

    fn verify(&self, how: Thoroughness) -> Vec<(String, String)> {
        self.runtime.block_on(self.repository.verify(self.manifest.backup, how, &|_, _| {})).unwrap().faults
    }

    fn keys(&self) -> Vec<String> {
        let listed = self.runtime.block_on(self.repository.store().list_all("")).unwrap();
        listed.into_iter().map(|listed| listed.key).collect()
    }

    /// Damages an object, or takes it away.
    fn spoil(&self, key: &str, change: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>) {
        let store = self.repository.store();
        let whole = self.runtime.block_on(store.get(key, None)).unwrap().bytes;
        self.runtime.block_on(store.delete(key)).unwrap();
        if let Some(bytes) = change(whole.to_vec()) {
            self.runtime.block_on(store.create(key, bytes.into())).unwrap();
        }
    }
}

#[test]
fn a_table_at_any_time_is_its_history_until_then() {
    for seed in 0..6 {
        let world = world(seed, 200);
        let end = BASE + 200 * STEP;
        let mut at = world.manifest.cut;
        while at.0 < end {
            assert_eq!(world.found(at, TokenRange::ALL), world.expected(at, TokenRange::ALL), "seed {seed} at {at:?}");
            at = Stamp(at.0 + 17 * STEP);
        }
        let bits = VnodeBits::new(2).unwrap();
        for vnode in (0..bits.count()).map(trefoil::model::Vnode) {
            let range = bits.range(vnode);
            assert_eq!(world.found(Stamp(end), range), world.expected(Stamp(end), range), "seed {seed} {vnode:?}");
        }
    }
}

/// A restore to a time cut at whole seconds: writes of the same second were wrongly in or out.
#[test]
fn b088_a_mark_takes_in_what_is_stamped_at_it_and_nothing_later() {
    let world = world(11, 100);
    let last = world.records.last().unwrap().stamp();
    for back in 0..10 {
        let at = Stamp(last.0 - back * STEP);
        for mark in [at, Stamp(at.0 - 1), Stamp(at.0 + 1), Stamp::last_of_ms(at.0 / 1_000)] {
            assert_eq!(world.found(mark, TokenRange::ALL), world.expected(mark, TokenRange::ALL), "{mark:?}");
        }
    }
    assert_eq!(Stamp::last_of_ms(5), Stamp(5_999));
    assert_eq!(Stamp::last_of_ms(-1), Stamp(-1));
}

#[test]
fn a_time_before_the_cut_or_behind_a_gap_is_refused_before_anything_is_read() {
    let world = world(3, 120);
    let moment = |at| world.runtime.block_on(world.repository.moment(at, None, |_| true)).map(drop);
    let error = moment(Stamp(world.manifest.cut.0 - 1)).unwrap_err();
    assert!(error.reason.contains("the oldest cut is at"), "{error}");
    let late = world.records.last().unwrap().stamp();
    moment(late).unwrap();
    // One node's log has a gap: the others are a quorum. Then another one's: nobody can tell what is missing.
    let last = |node: u32| {
        let logs = world.keys().into_iter().filter(|key| key.starts_with(&layout::log_of(NodeId(node))));
        logs.rev().nth(1).unwrap()
    };
    world.spoil(&last(1), |_| None);
    moment(late).unwrap();
    assert_eq!(world.found(late, TokenRange::ALL), world.expected(late, TokenRange::ALL));
    world.spoil(&last(2), |_| None);
    let error = moment(late).unwrap_err();
    assert!(error.reason.contains("take part") && error.reason.contains("gap"), "{error}");
    moment(world.manifest.cut).unwrap();
}

/// Each object missing, cut short or with a flipped byte in turn; multipart objects have no hash but ours (B085).
#[test]
fn b085_every_damaged_object_is_found_by_its_own_hash_and_named() {
    let whole = world(5, 60);
    assert_eq!(whole.verify(Thoroughness::Bytes), []);
    let needed: BTreeSet<String> = listed_keys(&whole);
    for key in &needed {
        for damage in 0..3 {
            let world = world(5, 60);
            world.spoil(key, |mut bytes| match damage {
                0 => None,
                1 => Some(bytes[..bytes.len() - 1].to_vec()),
                _ => {
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 1;
                    Some(bytes)
                }
            });
            let faults = world.verify(Thoroughness::Bytes);
            assert!(faults.iter().any(|(found, _)| found == key), "{key}, damage {damage}: {faults:?}");
            let quick = world.verify(Thoroughness::Lengths);
            assert!(damage == 2 || quick.iter().any(|(found, _)| found == key), "{key}, damage {damage}, quick");
        }
    }
}

/// Everything that the backup needs.
fn listed_keys(world: &World) -> BTreeSet<String> {
    let parts = world.runtime.block_on(world.repository.parts(&world.manifest)).unwrap();
    let files = parts.iter().flat_map(|part| part.files.iter().map(StoredFile::key));
    let pieces = world.manifest.pieces.iter().map(|piece| layout::piece(piece.node, piece.number));
    files.chain(pieces).chain(parts.iter().map(Part::key)).chain([world.manifest.key()]).collect()
}

/// An upload failed for good and the backup was reported complete. The manifest is the only definition of a backup: without it there
/// is none, whatever else is there; and one that lists what is not there is refused by name.
#[test]
fn b035_without_a_manifest_there_is_no_backup() {
    let world = world(6, 60);
    world.spoil(&world.manifest.key(), |_| None);
    let moment = world.runtime.block_on(world.repository.moment(world.manifest.cut, None, |_| true));
    assert!(moment.map(drop).unwrap_err().is_not_found());
    assert_eq!(world.verify(Thoroughness::Bytes), [(world.manifest.key(), "it is not there".to_owned())]);
}

#[test]
fn an_object_of_another_cluster_is_refused() {
    let world = world(7, 40);
    let other = Repository::new(world.bucket.clone(), Uuid::from_u128(0xbad));
    let bytes = world.manifest.encode();
    world.runtime.block_on(other.store().create(&world.manifest.key(), bytes)).unwrap();
    let error = world.runtime.block_on(other.manifest(world.manifest.backup)).unwrap_err();
    assert!(error.reason.contains("of cluster"), "{error}");
}

fn prune(id: u128, retention: Retention) -> Prune {
    Prune { id: Uuid::from_u128(id), retention, grace_us: DAY_US }
}

/// Adds a second backup, later by some days, that lists nothing but what the first one's first part lists.
fn add_second(world: &World, days: i64) -> Manifest {
    let mut second = world.manifest.clone();
    second.backup = Uuid::from_u128(0xb2);
    second.cut = Stamp(second.cut.0 + days * DAY_US);
    second.parts.truncate(1);
    second.pieces.clear();
    let mut part = world.runtime.block_on(world.repository.parts(&world.manifest)).unwrap().remove(0);
    part.backup = second.backup;
    part.first_piece = 6;
    second.parts[0].object = Listed::of(&part.encode());
    let store = world.repository.store();
    world.runtime.block_on(store.create(&part.key(), part.encode())).unwrap();
    world.runtime.block_on(store.create(&second.key(), second.encode())).unwrap();
    world.runtime.block_on(world.repository.change_index(|index| index.add(IndexEntry::of(&second)))).unwrap();
    second
}

#[test]
fn what_goes_is_condemned_waits_and_goes_then() {
    let world = world(8, 60);
    let second = add_second(&world, 40);
    let stranger = "obj/README";
    world.runtime.block_on(world.repository.store().create(stranger, Bytes::from_static(b"x"))).unwrap();
    let now = Stamp(second.cut.0 + DAY_US);
    let rules = Retention { days: Some(7), ..Retention::default() };
    let before = world.keys();
    let look = world.runtime.block_on(world.repository.look(&prune(1, rules.clone()), now)).unwrap();
    assert_eq!(look.backups, [world.manifest.backup]);
    assert!(look.due.is_empty() && !look.marks.unneeded.is_empty());
    assert_eq!((look.marks.strangers, world.keys()), (vec![stranger.to_owned()], before.clone()), "nothing was done");

    let run = |id, now| world.runtime.block_on(world.repository.prune(&prune(id, rules.clone()), &move || now));
    let first = run(1, now).unwrap();
    assert_eq!(first.removed, (0, 0));
    assert!(before.iter().all(|key| world.keys().contains(key)), "nothing goes at once");
    let index = world.runtime.block_on(world.repository.index()).unwrap();
    assert_eq!(index.entries.iter().map(|entry| entry.backup).collect::<Vec<_>>(), [second.backup]);

    let early = run(2, Stamp(now.0 + CONDEMNED_US - 1)).unwrap();
    assert_eq!(early.removed, (0, 0));
    let last = run(3, Stamp(now.0 + CONDEMNED_US)).unwrap();
    assert_eq!(last.removed.0 as usize, look.marks.unneeded.len());
    let left = world.keys();
    assert!(look.marks.unneeded.iter().all(|seen| !left.contains(&seen.key)));
    assert!(left.contains(&second.key()) && left.contains(&stranger.to_owned()));
    assert!(!left.iter().any(|key| key.starts_with(layout::CONDEMNED)), "{left:?}");
}

/// A backup that was under way used an object of one that was pruned; it completed, and the object was missing.
#[test]
fn b080_what_is_needed_again_when_its_time_has_come_stays() {
    let world = world(9, 60);
    let second = add_second(&world, 40);
    let now = Stamp(second.cut.0 + DAY_US);
    let rules = Retention { days: Some(7), ..Retention::default() };
    let run = |id, now| world.runtime.block_on(world.repository.prune(&prune(id, rules.clone()), &move || now));
    run(1, now).unwrap();
    // It began before the publication, and completes after it: with all the objects that are condemned by now.
    let mut third = world.manifest.clone();
    third.cut = Stamp(now.0 + 1);
    let parts = world.runtime.block_on(world.repository.parts(&world.manifest)).unwrap();
    third.backup = Uuid::from_u128(0xb3);
    for (listed, mut part) in third.parts.iter_mut().zip(parts) {
        part.backup = third.backup;
        listed.object = Listed::of(&part.encode());
        world.runtime.block_on(world.repository.store().create(&part.key(), part.encode())).unwrap();
    }
    world.runtime.block_on(world.repository.store().create(&third.key(), third.encode())).unwrap();
    let later = Stamp(now.0 + CONDEMNED_US);
    let pruned = run(2, later).unwrap();
    assert!(pruned.removed.0 > 0, "the manifest and the parts of the first one");
    let quick = world.runtime.block_on(world.repository.verify(third.backup, Thoroughness::Bytes, &|_, _| {})).unwrap();
    assert_eq!(quick.faults, []);
    let index = world.runtime.block_on(world.repository.index()).unwrap();
    assert!(index.entries.iter().any(|entry| entry.backup == third.backup), "it is in the index again");
}

/// A bucket that fails such a call, counted from 0, and every later one.
fn failing(bucket: Arc<Memory>, fails: Call, at: u64) -> Arc<dyn ObjectStore> {
    let mut count = 0;
    Arc::new(Faulty::new(bucket, move |call, _| {
        count += u64::from(call == fails);
        (call == fails && count > at).then_some(Fault::Unreachable)
    }))
}

#[test]
fn a_run_that_stops_anywhere_is_gone_on_with_by_the_next() {
    for fails_at in 0..40 {
        let world = world(10, 40);
        let second = add_second(&world, 40);
        let now = Stamp(second.cut.0 + DAY_US);
        let later = Stamp(now.0 + CONDEMNED_US);
        let rules = Retention { days: Some(7), ..Retention::default() };
        world.runtime.block_on(world.repository.prune(&prune(1, rules.clone()), &move || now)).unwrap();
        let repository = Repository::new(failing(world.bucket.clone(), Call::Delete, fails_at), CLUSTER);
        let outcome = world.runtime.block_on(repository.prune(&prune(2, rules.clone()), &move || later));
        assert!(!world.keys().contains(&world.manifest.key()) || outcome.is_err(), "manifests go first");
        world
            .runtime
            .block_on(world.repository.prune(&prune(3, rules.clone()), &move || later))
            .map(drop)
            .unwrap_or_else(|_| {
                // The run before did not give the lease back: its time has to pass.
                let then = Stamp(later.0 + DAY_US);
                world.runtime.block_on(world.repository.prune(&prune(3, rules.clone()), &move || then)).unwrap();
            });
        let left = world.runtime.block_on(world.repository.look(&prune(4, rules), later)).unwrap();
        assert_eq!(left.marks.unneeded, [], "stopped at delete {fails_at}");
        if outcome.is_ok() {
            return;
        }
    }
}

#[test]
fn a_mirror_goes_on_where_it_stopped_and_is_restored_from_alone() {
    let mut world = world(12, 80);
    let bucket = Arc::new(Memory::default());
    let copy = Repository::new(bucket.clone(), CLUSTER);
    let broken = Repository::new(failing(bucket.clone(), Call::Create, 5), CLUSTER);
    world.runtime.block_on(world.repository.mirror(&broken, &|_, _| {})).unwrap_err();
    assert!(world.runtime.block_on(copy.index()).unwrap().entries.is_empty(), "no backup before all of it is there");
    let done = world.runtime.block_on(world.repository.mirror(&copy, &|_, _| {})).unwrap();
    assert!(done.there.0 > 0 && done.copied.0 > 0 && done.backups == 1, "{done:?}");
    let again = world.runtime.block_on(world.repository.mirror(&copy, &|_, _| {})).unwrap();
    assert_eq!((again.copied, again.there.0), ((0, 0), done.copied.0 + done.there.0));
    let at = world.records.last().unwrap().stamp();
    let expected = world.expected(at, TokenRange::ALL);
    world.repository = copy;
    world.bucket = bucket;
    assert_eq!(world.verify(Thoroughness::Bytes), []);
    assert_eq!(world.found(at, TokenRange::ALL), expected);
}

#[test]
fn a_mirror_copies_no_damage() {
    let world = world(13, 40);
    let file = listed_keys(&world).into_iter().find(|key| key.starts_with(layout::OBJECTS)).unwrap();
    world.spoil(&file, |mut bytes| {
        bytes[40] ^= 1;
        Some(bytes)
    });
    let copy = Repository::new(Arc::new(Memory::default()), CLUSTER);
    let error = world.runtime.block_on(world.repository.mirror(&copy, &|_, _| {})).unwrap_err();
    assert_eq!(error.place, file, "{error}");
}

/// What a restore loads is in no log: a table that was loaded after the backup would come back empty, and is refused.
#[test]
fn a_table_that_was_loaded_after_the_backup_is_not_restored_from_it() {
    let world = world(15, 60);
    let before = state();
    let copy = TableId(Uuid::from_u128(0x7b));
    let table = Table { id: copy, name: "copy".to_owned(), ..Table::clone(&world.table) };
    let restored = RestoredTable { keyspace: "ks".to_owned(), table, next_column: 3 };
    let restore = Uuid::from_u128(0xe5);
    let begun =
        RestoreBegun { restore, plan: Bytes::new(), keyspaces: Vec::new(), types: Vec::new(), tables: vec![restored] };
    let (during, verdict) = apply(&before, Epoch { generation: 0, index: 4 }, &Entry::RestoreBegun(begun));
    verdict.unwrap();
    let (after, verdict) = apply(&during, Epoch { generation: 0, index: 5 }, &Entry::Restored(restore));
    verdict.unwrap();
    let key = layout::piece(NodeId(1), 3);
    world.spoil(&key, |bytes| {
        let mut piece = Piece::decode(&key, &bytes.into()).unwrap();
        let known = |state: &ClusterState| StateAt { applied_at: Stamp(BASE), state: state.encode().into() };
        piece.head.states.extend([known(&during), known(&after)]);
        Some(piece.encode().to_vec())
    });
    let at = world.records.last().unwrap().stamp();
    let moment = world.runtime.block_on(world.repository.moment(at, None, |_| true)).unwrap();
    assert!(moment.state.restores().is_empty() && moment.state.table(copy).is_some());
    let error = moment.check_whole(copy).unwrap_err();
    assert!(error.class == Class::Invalid && error.reason.contains("table copy was loaded by a restore"), "{error}");
    moment.check_whole(TABLE).unwrap();
}

#[test]
fn where_all_names_are_one_copy_is_read() {
    let world = world(14, 100);
    let at = world.records.last().unwrap().stamp();
    let moment = world.runtime.block_on(world.repository.moment(at, None, |_| true)).unwrap();
    let slices = (0..8).map(|vnode| (KeyspaceId(world.table.keyspace.0), trefoil::model::Vnode(vnode)));
    let copies: Vec<usize> = slices.map(|slice| moment.copies(slice).len()).collect();
    assert!(copies.iter().all(|count| *count == 1 || *count == 3), "{copies:?}");
    assert!(copies.contains(&1) && copies.contains(&3), "this seed has both: {copies:?}");
}
