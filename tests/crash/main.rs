//! Power loss at every kind of moment: a store is stopped at some call of its file system, what was not synced is kept,
//! lost or torn, and it is opened again.
//!
//! What must hold: the data is that of a prefix of everything that was appended, in every table; the prefix holds all that
//! was acknowledged; the received set is exactly that prefix. Nothing more survives than was written, nothing less than
//! was promised. Recovery itself is interrupted too, and the store goes on to write, flush and compact afterwards.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use trefoil::Result;
use trefoil::codec::entry::{Trust, read_entry};
use trefoil::codec::varint::Reader;
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::compaction::Unpaced;
use trefoil::model::{
    Cell, CellKind, ClusteringKey, ColumnId, CompactionOptions, Deletion, Direction, Durability, Fragment, Identity,
    KeyspaceId, Liveness, LivenessKind, Mutation, MutationName, NodeId, Order, PageEnd, PartitionKey, ReadCommand, Row,
    Stamp, TableId, Target, Timestamp, TokenRange, Type, VnodeBits,
};
use trefoil::store::{Access, Stopped, Store, StoreOptions, TableSpec};
use trefoil::vfs::Vfs;
use trefoil::vfs::memory::MemoryVfs;
use uuid::Uuid;

mod damage;
mod faults;
mod kept;

/// Moments at which the power goes, each of another history.
const CRASHES: u64 = 500;
/// Calls of the store in one history before it is stopped.
const STEPS: u64 = 70;

const TABLES: [TableId; 2] = [TableId(Uuid::from_u128(1)), TableId(Uuid::from_u128(2))];

/// Steele and Vigna's splitmix64: a few lines that give the same numbers on every machine.
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

/// Table, partition and row.
type Place = (TableId, PartitionKey, ClusteringKey);

/// What is visible: the number of the write that set it.
type Data = BTreeMap<Place, u64>;

/// One write: it sets a row to its own number, or deletes the row.
#[derive(Clone)]
struct Write {
    place: Place,
    deletes: bool,
    padding: usize,
}

impl Write {
    fn any(random: &mut Random, tables: [TableId; 2]) -> Write {
        let table = tables[random.below(2) as usize];
        let partition = PartitionKey::from_bytes(Bytes::from(format!("partition {}", random.below(6))));
        let number = Bytes::copy_from_slice(&(random.below(5) as i32).to_be_bytes());
        let row = ClusteringKey::encode(&[number], &[(Type::Int, Order::Ascending)]).unwrap();
        Write { place: (table, partition, row), deletes: random.below(5) == 0, padding: random.below(1_500) as usize }
    }

    fn record(&self, number: u64) -> CheckedRecord {
        let (table, partition, key) = self.place.clone();
        let timestamp = Timestamp(number as i64);
        let mut row = Row::default();
        if self.deletes {
            row.deletion = Some(Deletion { timestamp, ldt_s: 0 });
        } else {
            let value = format!("{number:<width$}", width = self.padding);
            row.marker = Some(Liveness { timestamp, kind: LivenessKind::Live });
            row.cells = vec![(ColumnId(1), Cell { timestamp, kind: CellKind::Live(value.into()) })];
        }
        let mutation = Mutation { rows: vec![(key, row)], ..Mutation::new(table, partition) };
        let name = MutationName { origin: NodeId(1), incarnation: 1, sequence: number };
        CheckedRecord::encode(RecordKind::Named(name), KeyspaceId(1), Stamp(number as i64), &mutation)
    }

    fn apply(&self, number: u64, data: &mut Data) {
        if self.deletes {
            data.remove(&self.place);
        } else {
            data.insert(self.place.clone(), number);
        }
    }
}

/// Everything that was asked of a store, and how much of it was promised.
#[derive(Default)]
struct History {
    writes: Vec<Write>,
    /// So many of the first are acknowledged.
    acknowledged: usize,
}

impl History {
    fn data(&self, writes: usize) -> Data {
        let mut data = Data::new();
        self.writes[..writes].iter().zip(1..).for_each(|(write, number)| write.apply(number, &mut data));
        data
    }
}

fn open(vfs: &MemoryVfs) -> Result<Store> {
    open_on(Arc::new(vfs.clone()), TABLES)
}

fn open_on(vfs: Arc<dyn Vfs>, tables: [TableId; 2]) -> Result<Store> {
    let options = StoreOptions {
        directory: PathBuf::from("/node"),
        segment_bytes: 16 << 10,
        log_kept_bytes_max: 0,
        memtable_budget_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        snapshots: Default::default(),
    };
    let identity = Identity { cluster: Uuid::from_u128(1), node: NodeId(1), vnode_bits: VnodeBits::new(1).unwrap() };
    Store::open(vfs, options, identity, &specs(tables))
}

fn specs(tables: [TableId; 2]) -> [TableSpec; 2] {
    let columns = vec![(ColumnId(1), Type::Text)];
    let durability = Durability::Commit;
    tables.map(|id| TableSpec {
        id,
        keyspace: KeyspaceId(1),
        durability,
        lateness_s: 3_600,
        compaction: CompactionOptions::default(),
        content: Default::default(),
        live: None,
        clustering: vec![(Type::Int, Order::Ascending)],
        columns: columns.clone(),
        label: Default::default(),
    })
}

/// Some writes in one group, in one of the two modes.
fn write(store: &Store, random: &mut Random, history: &mut History) -> Result<()> {
    let first = history.writes.len();
    let group = 1 + random.below(3) as usize;
    history.writes.extend((0..group).map(|_| Write::any(random, TABLES)));
    let records: Vec<_> =
        history.writes[first..].iter().zip(first as u64 + 1..).map(|(write, number)| write.record(number)).collect();
    let mut ends = Vec::new();
    store.append(&records, &mut ends)?;
    let is_periodic = random.below(2) == 0;
    if !is_periodic {
        store.sync()?;
    }
    for (record, end) in records.iter().zip(&ends) {
        store.insert(record, *end)?;
    }
    if is_periodic {
        if random.below(2) == 0 {
            return Ok(());
        }
        store.sync()?;
    }
    history.acknowledged = history.writes.len();
    Ok(())
}

/// What the disk does while a store works.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disk {
    Good,
    /// Now and then a sync fails, as page caches fail: reads go on to see everything, and no later sync writes the rest.
    FailingSyncs,
}

/// Works until the power is off or the log has failed, or to the end. A flush or compaction that fails is tried again.
fn work(
    store: &Store,
    vfs: &MemoryVfs,
    disk: Disk,
    random: &mut Random,
    history: &mut History,
    steps: u64,
) -> Result<()> {
    for _ in 0..steps {
        if disk == Disk::FailingSyncs && random.below(8) == 0 {
            vfs.fail_next_sync(random.below(u64::MAX));
        }
        let background = match random.below(10) {
            0..5 => {
                write(store, random, history)?;
                continue;
            }
            5..9 => store.flush_next(),
            _ => store.compact_next(0, &Unpaced),
        };
        if disk == Disk::Good {
            background?;
        }
    }
    Ok(())
}

fn read(store: &Store) -> Data {
    read_tables(store, TABLES).unwrap()
}

fn read_tables(store: &Store, tables: [TableId; 2]) -> Result<Data> {
    let mut data = Data::new();
    for table in tables {
        let command = ReadCommand {
            table,
            target: Target::Scan(TokenRange::ALL),
            slices: Vec::new(),
            direction: Direction::Forward,
            after: None,
            now_s: 0,
            limit_rows: u32::MAX,
            limit_bytes: u32::MAX,
        };
        let page = store.read(&command, Access::Disk)?;
        assert_eq!(page.end, PageEnd::Complete);
        let mut reader = Reader::new("page", page.entries);
        let mut partition = None;
        while reader.remaining() > 0 {
            match read_entry(&mut reader, Trust::Checked).unwrap() {
                Fragment::Partition(header) => partition = Some(header.key),
                Fragment::Row(key, row) => {
                    if let Some(number) = kept::number_of(&row) {
                        data.insert((table, partition.clone().unwrap(), key), number);
                    }
                }
                Fragment::Change(..) => {}
            }
        }
    }
    Ok(data)
}

/// The number of names in the received sets, which must be 1 to that number.
fn received(store: &Store) -> usize {
    let names = received_names(store);
    assert!(names.iter().copied().eq(1..=names.len() as u64), "the set has holes: {names:?}");
    names.len()
}

/// The sequences in the received sets, ascending.
fn received_names(store: &Store) -> Vec<u64> {
    let sets = store.received();
    let intervals =
        sets.values().flat_map(|set| set.runs().flat_map(|(_, _, intervals)| intervals.to_vec()).collect::<Vec<_>>());
    let mut names: Vec<u64> = intervals.flat_map(|interval| interval.first..=interval.last).collect();
    names.sort();
    names
}

/// Checks what has survived, and takes it as the history from now on.
fn check(store: &Store, history: &mut History) {
    let survived = received(store);
    let (acknowledged, attempted) = (history.acknowledged, history.writes.len());
    assert!(
        (acknowledged..=attempted).contains(&survived),
        "{survived} of {acknowledged} to {attempted} writes survived"
    );
    assert_eq!(read(store), history.data(survived), "after {survived} writes");
    // What was lost was never acknowledged; its numbers are given again, as another incarnation would give new ones.
    history.writes.truncate(survived);
    history.acknowledged = survived;
}

/// Opens what a crash has left. Whatever that is, a check of the files finds nothing wrong with it.
fn recover(vfs: &MemoryVfs, history: &mut History) -> Store {
    let directory = Path::new("/node");
    if Stopped::is_at(vfs, directory).unwrap() {
        let report = Stopped::open(Arc::new(vfs.clone()), directory).unwrap().check();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
    let store = open(vfs).unwrap();
    check(&store, history);
    store
}

/// Calls that a history makes when nothing stops it.
fn calls(seed: u64) -> u64 {
    let vfs = MemoryVfs::new();
    let store = open(&vfs).unwrap();
    work(&store, &vfs, Disk::Good, &mut Random(seed), &mut History::default(), STEPS).unwrap();
    vfs.operations()
}

fn crash(seed: u64) {
    let mut random = Random(!seed);
    let vfs = MemoryVfs::new();
    let disk = if seed.is_multiple_of(3) { Disk::FailingSyncs } else { Disk::Good };
    // Of the disks that fail to sync, half keep their power until the log has failed.
    let keeps_power = disk == Disk::FailingSyncs && random.below(2) == 0;
    if !keeps_power {
        vfs.power_off_at(1 + random.below(calls(seed)));
    }
    let mut history = History::default();
    let _stopped = open(&vfs).and_then(|store| work(&store, &vfs, disk, &mut Random(seed), &mut history, STEPS));
    if keeps_power {
        // Only the process is restarted: what it reads may be in the page cache alone, and yet it answers by it.
        let store = recover(&vfs, &mut history);
        let _stopped = work(&store, &vfs, disk, &mut random, &mut history, STEPS / 4);
    }
    vfs.crash(random.below(u64::MAX));
    for _ in 0..random.below(3) {
        vfs.power_off_at(1 + random.below(60));
        drop(open(&vfs));
        vfs.crash(random.below(u64::MAX));
    }
    let store = recover(&vfs, &mut history);
    vfs.power_off_at(1 + random.below(200));
    let _stopped = work(&store, &vfs, disk, &mut random, &mut history, STEPS / 2);
    drop(store);
    vfs.crash(random.below(u64::MAX));
    let store = recover(&vfs, &mut history);
    work(&store, &vfs, Disk::Good, &mut random, &mut history, STEPS / 2).unwrap();
    store.flush(None).unwrap();
    assert_eq!(read(&store), history.data(history.writes.len()));
}

#[test]
fn whatever_was_promised_survives_the_loss_of_power_at_any_moment() {
    for seed in 0..CRASHES {
        if let Err(panic) = std::panic::catch_unwind(|| crash(seed)) {
            let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            panic!("seed {seed}: {said}");
        }
    }
}
