//! A history carried out: on the store, over files that forget and fill up, and on the model beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::compaction::Unpaced;
use trefoil::model::{
    ColumnId, CompactionOptions, Durability, Identity, KeyspaceId, LiveColumns, MutationName, NodeId, Scaling, Stamp,
    TableId, Type, Vnode, VnodeBits,
};
use trefoil::store::{SnapshotScope, Stopped, Store, StoreOptions, TableSpec};
use trefoil::vfs::faulty::FaultyVfs;
use trefoil::vfs::memory::MemoryVfs;
use trefoil::{Class, Error, Result};
use uuid::Uuid;

use super::naive::{Part, Partition, Place, WORDS, Write};
use super::steps::{
    COLUMNS, COUNTER, COUNTING_TABLE, Ending, LATE, Mode, PARTITIONS, SIMPLE, STATIC_COLUMNS, Step, Width,
};
use super::{read, select, words};

const DIRECTORY: &str = "/node";
const NODE: NodeId = NodeId(5);
const KEYSPACE: KeyspaceId = KeyspaceId(1);
const VNODES: u32 = 4;

/// Small, so that the cache often changes what it holds.
const CACHE_BYTES: u64 = 8 << 10;

/// A write that was sent to the log, and what is known of its fate.
struct Sent {
    /// Incarnation and sequence.
    name: (u64, u64),
    /// Whether the record bears that name: else it cannot be told whether it is there, and it is sent only where it must be.
    is_named: bool,
    table: TableId,
    write: Write,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Durable.
    Acknowledged,
    /// In the log, perhaps not durably.
    Appended,
    /// The log answered with an error: it may be found, or not.
    Unknown,
    /// The log had refused it and took others since: it must not be found.
    Refused,
}

pub struct Run {
    pub width: Width,
    memory: MemoryVfs,
    disk: FaultyVfs,
    /// Absent only while it is stopped.
    store: Option<Store>,
    pub tables: [TableId; 2],
    tables_made: u128,
    incarnation: u64,
    sequence: u64,
    /// In the order of the log.
    sent: Vec<Sent>,
    /// What readers must see.
    visible: BTreeMap<(TableId, u8), Partition>,
    /// What snapshots must hold, by their names.
    snapshots: BTreeMap<String, BTreeMap<(TableId, u8), Partition>>,
    /// How many of the late columns each table has, or had.
    added: BTreeMap<TableId, usize>,
    /// Columns that are gone, with what was written to them.
    dropped: BTreeSet<(TableId, u32)>,
    /// Up to where deletions may have been purged.
    purged_through: Option<i64>,
    /// Whether calls may fail: the disk is full, or the power about to go.
    may_fail: bool,
}

impl Run {
    pub fn new(width: Width) -> Run {
        let memory = MemoryVfs::new();
        let disk = FaultyVfs::new(Arc::new(memory.clone()));
        let mut run = Run {
            width,
            memory,
            disk,
            store: None,
            tables: [1, 2].map(|number| TableId(Uuid::from_u128(number))),
            tables_made: 2,
            incarnation: 0,
            sequence: 0,
            sent: Vec::new(),
            visible: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            added: BTreeMap::new(),
            dropped: BTreeSet::new(),
            purged_through: None,
            may_fail: false,
        };
        run.start();
        run
    }

    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("the store is open")
    }

    pub fn partition(&self, table: TableId, number: u8) -> Partition {
        self.visible.get(&(table, number)).cloned().unwrap_or_default()
    }

    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Write(writes, mode) => self.write(writes, *mode),
            Step::Sync => self.sync(),
            Step::FlushNext => self.expect(self.store().flush_next()),
            Step::Flush(table) => self.expect(self.store().flush(Some(self.tables[*table]))),
            Step::FlushAll => self.expect(self.store().flush(None)),
            Step::Compact(now_s) => self.expect(self.store().compact_next(*now_s, &Unpaced)),
            Step::CompactTable(table, now_s) => {
                self.expect(self.store().compact_table(self.tables[*table], *now_s, &Unpaced));
            }
            Step::Reconciled(stamp) => self.raise_purged_through(*stamp),
            Step::Reopen(ending) => self.reopen(*ending),
            Step::PowerLoss { during, calls, seed, interrupted } => {
                self.make_room();
                self.may_fail = true;
                self.memory.power_off_at(self.memory.operations() + calls);
                during.iter().for_each(|step| self.step(step));
                self.lose_power(*seed, *interrupted);
            }
            Step::AddColumn(table) => self.add_column(*table),
            Step::DropColumn(table, column) => self.drop_column(*table, *column),
            Step::Drop(table) => self.replace_table(*table),
            Step::Snapshot => self.snapshot(),
            Step::FillDisk => {
                self.may_fail = true;
                self.disk.fill();
            }
            Step::MakeRoom => self.make_room(),
            Step::Read(read) => read::check(self, read),
            Step::Select(select) => select::check(self, select),
        }
    }

    /// Every kind of read, of everything, and what the files themselves say.
    pub fn finish(&mut self, now_s: i64) {
        self.make_room();
        read::check_everything(self, now_s);
        self.reopen(Ending::Killed);
        read::check_everything(self, now_s);
        // Files keep what was written to dropped columns until they are compacted; only reads of tables leave it out.
        let snapshots = self.snapshots.iter().filter(|_| self.dropped.is_empty());
        for (name, held) in snapshots {
            let list = self.store().snapshots();
            let snapshot =
                list.whole.values().find(|snapshot| snapshot.name == *name).expect("a snapshot that was made");
            read::check_snapshot(&self.memory, &Path::new(DIRECTORY).join("snapshots"), snapshot, held, self, now_s);
        }
    }

    /// Nothing fails without a reason; and then it says that it did not do it.
    fn expect<T>(&self, result: Result<T>) {
        if let Err(error) = result {
            assert!(self.may_fail && error.class() == Class::Unavailable, "{error}");
        }
    }

    fn make_room(&mut self) {
        self.disk.make_room();
        self.may_fail = false;
    }

    fn write(&mut self, writes: &[(usize, Write)], mode: Mode) {
        let first = self.sent.len();
        let is_named = mode != Mode::Repair || self.may_fail;
        for (table, write) in writes {
            let Some(write) = self.without_unknown_columns(*table, write) else { continue };
            self.sequence += 1;
            let (name, table) = ((self.incarnation, self.sequence), self.tables[*table]);
            self.sent.push(Sent { name, is_named, table, write, fate: Fate::Unknown });
        }
        if self.sent.len() == first {
            return;
        }
        let records: Vec<_> = self.sent[first..].iter().map(|sent| sent.record()).collect();
        let mut ends = Vec::new();
        match self.store().append(&records, &mut ends) {
            Ok(()) => {}
            Err(Error::Busy { .. }) => {
                self.sent.truncate(first);
                return self.expect(self.store().flush_next());
            }
            // A record that is larger than half a segment: nothing of the group is written.
            Err(Error::Invalid { .. }) => return self.sent.truncate(first),
            failed => return self.expect(failed),
        }
        let unknown = self.sent[..first].iter_mut().filter(|sent| sent.fate == Fate::Unknown);
        unknown.for_each(|sent| sent.fate = Fate::Refused);
        self.sent[first..].iter_mut().for_each(|sent| sent.fate = Fate::Appended);
        if matches!(mode, Mode::Commit | Mode::Repair) {
            self.sync();
            if self.sent[first].fate != Fate::Acknowledged {
                return;
            }
        }
        for (record, end) in records.iter().zip(ends) {
            self.store().insert(record, end).unwrap();
        }
        (first..self.sent.len()).for_each(|at| self.show(at));
        if mode == Mode::Periodic {
            self.sync();
        }
    }

    fn sync(&mut self) {
        match self.store().sync() {
            Ok(_) => {
                let appended = self.sent.iter_mut().filter(|sent| sent.fate == Fate::Appended);
                appended.for_each(|sent| sent.fate = Fate::Acknowledged);
            }
            failed => self.expect(failed),
        }
    }

    fn reopen(&mut self, ending: Ending) {
        self.make_room();
        if ending == Ending::Closed {
            self.store().close().unwrap();
            let appended = self.sent.iter_mut().filter(|sent| sent.fate == Fate::Appended);
            appended.for_each(|sent| sent.fate = Fate::Acknowledged);
        }
        self.store = None;
        self.start();
    }

    fn lose_power(&mut self, seed: u64, interrupted: Option<(u64, u64)>) {
        self.may_fail = false;
        self.store = None;
        self.memory.crash(seed);
        if let Some((calls, seed)) = interrupted {
            self.memory.power_off_at(calls);
            drop(self.open());
            self.memory.crash(seed);
        }
        self.start();
    }

    fn replace_table(&mut self, table: usize) {
        self.make_room();
        self.tables_made += 1;
        self.tables[table] = TableId(Uuid::from_u128(self.tables_made));
        self.store().set_tables(&self.specs()).unwrap();
        self.store().let_go(1).unwrap();
    }

    /// Makes a write visible, but for what it says of columns that are dropped.
    fn show(&mut self, at: usize) {
        let Sent { table, write, .. } = &self.sent[at];
        let partition = self.visible.entry((*table, write.partition)).or_default();
        let is_left = |column: u32| !self.dropped.contains(&(*table, column));
        partition.take(write, is_left);
    }

    /// What a client may write: a column that was not added yet is unknown, and nobody writes to it.
    fn without_unknown_columns(&self, table: usize, write: &Write) -> Option<Write> {
        let is_known = |part: &Part| part.column().is_none_or(|column| !self.lacks(table, column));
        let parts: Vec<Part> = write.parts.iter().filter(|part| is_known(part)).cloned().collect();
        (!parts.is_empty()).then_some(Write { parts, ..write.clone() })
    }

    /// Whether it is a late column that was not added yet.
    fn lacks(&self, table: usize, column: u32) -> bool {
        let added = self.added.get(&self.tables[table]).copied().unwrap_or(0);
        LATE[added..].contains(&column)
    }

    /// A column more, of which nothing was ever written.
    fn add_column(&mut self, table: usize) {
        let added = self.added.entry(self.tables[table]).or_default();
        if (table == COUNTING_TABLE && self.width.counts) || *added == LATE.len() {
            return;
        }
        *added += 1;
        self.make_room();
        self.store().set_tables(&self.specs()).unwrap();
    }

    /// What was written to it is gone, wherever it stands.
    fn drop_column(&mut self, table: usize, column: u32) {
        if (table == COUNTING_TABLE && self.width.counts) || self.lacks(table, column) {
            return;
        }
        self.make_room();
        let id = self.tables[table];
        self.dropped.insert((id, column));
        self.store().set_tables(&self.specs()).unwrap();
        for ((_, _), partition) in self.visible.iter_mut().filter(|((table, _), _)| *table == id) {
            partition.lose_column(column);
        }
    }

    /// Unless there is something of which nobody knows yet whether it was written.
    fn raise_purged_through(&mut self, stamp: i64) {
        if self.sent.iter().any(|sent| matches!(sent.fate, Fate::Appended | Fate::Unknown)) {
            return;
        }
        self.make_room();
        let vnodes = (0..VNODES).map(|vnode| (KEYSPACE, Vnode(vnode), Stamp(stamp)));
        self.store().raise_purged_through(&vnodes.collect::<Vec<_>>()).unwrap();
        self.purged_through = self.purged_through.max(Some(stamp));
    }

    /// Deletions and expired data of a table may be gone if they are older than this; those of counters never are.
    pub fn forgotten_before(&self, table: TableId) -> Option<i64> {
        let counts = self.width.counts && self.tables[COUNTING_TABLE] == table;
        self.purged_through.map(|stamp| stamp - self.width.lateness_s * 1_000_000).filter(|_| !counts)
    }

    /// The oldest makes room, so that there are two at most.
    fn snapshot(&mut self) {
        self.make_room();
        if self.snapshots.len() == 2
            && let Some((oldest, _)) = self.snapshots.pop_first()
        {
            self.store().remove_snapshot(&oldest).unwrap();
        }
        let name = format!("at {:06}", self.sequence);
        if self.snapshots.contains_key(&name) {
            return;
        }
        self.store().create_snapshot(&name, SnapshotScope::All, 1).unwrap();
        let appended = self.sent.iter_mut().filter(|sent| sent.fate == Fate::Appended);
        appended.for_each(|sent| sent.fate = Fate::Acknowledged);
        self.snapshots.insert(name, self.visible.clone());
    }

    fn specs(&self) -> [TableSpec; 2] {
        [0, 1].map(|table| TableSpec {
            id: self.tables[table],
            keyspace: KEYSPACE,
            durability: Durability::Commit,
            lateness_s: self.width.lateness_s as u32,
            compaction: self.compaction(),
            content: Default::default(),
            live: self.live(table),
            clustering: words::CLUSTERING.to_vec(),
            columns: self.columns(table),
            label: Default::default(),
        })
    }

    fn compaction(&self) -> CompactionOptions {
        let few = CompactionOptions::default();
        match self.width.compaction {
            0 => few,
            1 => CompactionOptions::new(vec![Scaling::Leveled(10)], 1, None).unwrap(),
            2 => CompactionOptions::new(vec![Scaling::Tiered(3), Scaling::Neutral], 1, None).unwrap(),
            _ => CompactionOptions::new(vec![Scaling::Tiered(4)], 256, NonZeroU32::new(60)).unwrap(),
        }
    }

    fn live(&self, table: usize) -> Option<LiveColumns> {
        let id = self.tables[table];
        let is_left = |column: &ColumnId| !self.dropped.contains(&(id, column.0));
        let live = self.columns(table).into_iter().map(|(column, _)| column).filter(is_left);
        self.dropped.iter().any(|(table, _)| *table == id).then(|| live.collect())
    }

    fn columns(&self, table: usize) -> Vec<(ColumnId, Type)> {
        if table == COUNTING_TABLE && self.width.counts {
            return vec![(ColumnId(COUNTER), Type::Counter)];
        }
        let [element, value] = [Type::Blob, Type::Blob].map(Arc::new);
        let map = Type::Map { key: element, value, frozen: false };
        let late = LATE.iter().filter(|column| !self.lacks(table, **column));
        let simple = SIMPLE.iter().chain(late).chain(STATIC_COLUMNS.simple);
        let simple = simple.map(|column| (ColumnId(*column), Type::Blob));
        let complex = COLUMNS.complex.iter().chain(STATIC_COLUMNS.complex);
        simple.chain(complex.map(|column| (ColumnId(*column), map.clone()))).collect()
    }

    fn open(&self) -> Result<Store> {
        let options = StoreOptions {
            directory: PathBuf::from(DIRECTORY),
            segment_bytes: self.width.segment_bytes,
            log_kept_bytes_max: 0,
            memtable_budget_bytes: self.width.memtables_bytes,
            cache_bytes: CACHE_BYTES,
            snapshots: Default::default(),
        };
        let vnode_bits = VnodeBits::new(VNODES.ilog2() as u8).unwrap();
        let identity = Identity { cluster: Uuid::from_u128(1), node: NODE, vnode_bits };
        Store::open(Arc::new(self.disk.clone()), options, identity, &self.specs())
    }

    /// Opens what is there, and takes what survived of what was sent.
    fn start(&mut self) {
        let directory = Path::new(DIRECTORY);
        if Stopped::is_at(&self.memory, directory).unwrap() {
            let report = Stopped::open(Arc::new(self.memory.clone()), directory).unwrap().check();
            assert!(report.findings.is_empty(), "{:?}", report.findings);
        }
        self.store = Some(self.open().unwrap());
        self.incarnation += 1;
        let names = self.received();
        let known: BTreeSet<_> = self.sent.iter().map(|sent| sent.name).collect();
        assert!(names.is_subset(&known), "names that nobody gave: {:?}", names.difference(&known));
        let mut first_lost = None;
        for sent in &self.sent {
            match (sent.is_there(&names), sent.fate) {
                (true, Fate::Refused) => panic!("{:?} was refused and is there", sent.write),
                (false, Fate::Acknowledged) => panic!("{:?} was acknowledged and is gone", sent.write),
                (true, Fate::Appended) => {
                    assert_eq!(first_lost, None, "{:?} survived what was before it in the log", sent.write);
                }
                (false, Fate::Appended) => first_lost = first_lost.or(Some(sent.name)),
                (true, Fate::Acknowledged | Fate::Unknown) | (false, Fate::Unknown | Fate::Refused) => {}
            }
        }
        self.sent.retain(|sent| sent.is_there(&names));
        self.visible.clear();
        self.sent.iter_mut().for_each(|sent| sent.fate = Fate::Acknowledged);
        (0..self.sent.len()).for_each(|at| self.show(at));
    }

    fn received(&self) -> BTreeSet<(u64, u64)> {
        let mut names = BTreeSet::new();
        for set in self.store().received().values() {
            for (origin, incarnation, intervals) in set.runs() {
                assert_eq!(origin, NODE);
                let sequences = intervals.iter().flat_map(|interval| interval.first..=interval.last);
                names.extend(sequences.map(|sequence| (incarnation, sequence)));
            }
        }
        names
    }

    /// All rows that may have been written, and as many around them as it takes to tell any two edges apart that rows can
    /// tell apart.
    pub fn places(&self) -> impl DoubleEndedIterator<Item = Place> + use<> {
        (-1..self.width.numbers + 1).flat_map(|a| (0..WORDS.len()).rev().map(move |b| Place { a, b }))
    }

    /// The partitions that a read may meet, in the order of their tokens.
    pub fn partitions(&self) -> Vec<u8> {
        let mut numbers: Vec<u8> = (0..PARTITIONS).collect();
        numbers.sort_by_key(|number| words::partition_key(*number));
        numbers
    }
}

impl Sent {
    /// Whether it is there, by what the store says it has received.
    fn is_there(&self, received: &BTreeSet<(u64, u64)>) -> bool {
        !self.is_named || received.contains(&self.name)
    }

    fn record(&self) -> CheckedRecord {
        let (incarnation, sequence) = self.name;
        let name = MutationName { origin: NODE, incarnation, sequence };
        let mutation = words::mutation(self.table, &self.write);
        let kind = match self.is_named {
            true => RecordKind::Named(name),
            false => RecordKind::Nameless { composer: NODE, known_through: Stamp(0) },
        };
        CheckedRecord::encode(kind, KEYSPACE, Stamp(self.write.stamp), &mutation)
    }
}
