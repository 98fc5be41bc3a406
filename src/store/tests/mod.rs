//! A store on a file system in memory, with the one thread that writes to it, and words for what it answers.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::{Access, Store, StoreOptions, TableSpec};
use crate::codec::entry::{Trust, read_entry};
use crate::codec::varint::Reader;
use crate::codec::{CheckedRecord, RecordKind};
use crate::commitlog::Position;
use crate::compaction::Unpaced;
use crate::model::naive::{CLUSTERING, TABLE};
use crate::model::{
    ColumnId, CompactionOptions, Direction, Durability, Fragment, Identity, KeyspaceId, Mutation, MutationName, NodeId,
    PageEnd, PartitionHeader, ReadCommand, Row, Slice, Stamp, TableId, Target, TokenRange, Type, VnodeBits,
};
use crate::received::ReceivedSet;
use crate::vfs::Vfs;
use crate::vfs::memory::MemoryVfs;

mod archive;
mod check;
mod compact;
mod digest;
mod expiry;
mod faults;
mod files;
mod gone;
mod law;
mod load;
mod paging;
mod quarantine;
mod replication;
mod scrub;
mod snapshots;
mod straight;
mod touched;
mod withdraw;

/// A second table.
const OTHER: TableId = TableId(Uuid::from_u128(8));

const KEYSPACE: KeyspaceId = KeyspaceId(3);

fn identity() -> Identity {
    Identity { cluster: Uuid::from_u128(1), node: NodeId(5), vnode_bits: VnodeBits::new(2).unwrap() }
}

fn options() -> StoreOptions {
    StoreOptions {
        directory: PathBuf::from("/node"),
        segment_bytes: 16 << 10,
        log_kept_bytes_max: 0,
        memtable_budget_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        snapshots: Default::default(),
    }
}

fn spec(id: TableId) -> TableSpec {
    let columns = vec![(ColumnId(1), Type::Blob)];
    TableSpec {
        id,
        keyspace: KEYSPACE,
        durability: Durability::Commit,
        lateness_s: 3_600,
        compaction: CompactionOptions::default(),
        content: Default::default(),
        live: None,
        clustering: CLUSTERING.to_vec(),
        columns,
        label: Default::default(),
    }
}

/// A store with the one thread that writes to it.
struct Node {
    vfs: Arc<dyn Vfs>,
    tables: Vec<TableSpec>,
    store: Store,
    sequence: u64,
}

impl Node {
    fn new() -> Node {
        Node::on(Arc::new(MemoryVfs::new()))
    }

    fn on(vfs: Arc<dyn Vfs>) -> Node {
        Node::opened(vfs, vec![spec(TABLE), spec(OTHER)], identity())
    }

    fn opened(vfs: Arc<dyn Vfs>, tables: Vec<TableSpec>, identity: Identity) -> Node {
        let store = Store::open(vfs.clone(), options(), identity, &tables).unwrap();
        Node { vfs, tables, store, sequence: 0 }
    }

    /// Stops without closing anything, as a killed process does, and starts again.
    fn restart(self) -> Node {
        let Node { vfs, tables, store, sequence } = self;
        let identity = store.identity;
        drop(store);
        Node { sequence, ..Node::opened(vfs, tables, identity) }
    }

    /// The same as [`Node::restart`], with a check of what is on the disk in between.
    fn checked(self) -> Node {
        let Node { vfs, tables, store, sequence } = self;
        let identity = store.identity;
        drop(store);
        assert_eq!(check::findings(&vfs), Vec::<String>::new());
        Node { sequence, ..Node::opened(vfs, tables, identity) }
    }

    fn record(&mut self, mutation: &Mutation) -> CheckedRecord {
        self.sequence += 1;
        let name = MutationName { origin: NodeId(5), incarnation: 1, sequence: self.sequence };
        CheckedRecord::encode(RecordKind::Named(name), KEYSPACE, Stamp(self.sequence as i64), mutation)
    }

    fn append(&mut self, mutation: &Mutation) -> (CheckedRecord, Position) {
        let record = self.record(mutation);
        let mut ends = Vec::new();
        self.store.append(std::slice::from_ref(&record), &mut ends).unwrap();
        (record, ends[0])
    }

    /// Writes in the mode `commit`.
    fn write(&mut self, mutation: &Mutation) {
        let (record, end) = self.append(mutation);
        self.store.sync().unwrap();
        self.store.insert(&record, end).unwrap();
    }

    fn write_all<'a>(&mut self, mutations: impl IntoIterator<Item = &'a Mutation>) {
        mutations.into_iter().for_each(|mutation| self.write(mutation));
    }

    fn flush(&self) {
        self.store.flush(None).unwrap();
    }

    /// Makes one file of all files of the first table.
    fn compact(&self) {
        self.store.compact_table(TABLE, 0, &Unpaced).unwrap();
    }

    /// All the names in the received sets.
    fn names(&self) -> ReceivedSet {
        let mut all = ReceivedSet::default();
        self.store.received().values().for_each(|set| all.union(set));
        all
    }

    /// Everything that a command answers, page by page.
    fn pages(&self, mut command: ReadCommand) -> Vec<Vec<Fragment<Row>>> {
        let mut pages = Vec::new();
        loop {
            let page = self.store.read(&command, Access::Disk).unwrap();
            pages.push(decode(page.entries));
            match page.end {
                PageEnd::Complete => return pages,
                PageEnd::At(position) => {
                    if let Some(before) = &command.after {
                        let (before, now) = (PageEnd::At(before.clone()), PageEnd::At(position.clone()));
                        assert!(before.compare(&now, command.direction).is_lt(), "{before:?} then {now:?}");
                    }
                    command.after = Some(position);
                }
            }
        }
    }

    /// What a command answers, its pages put together.
    fn read(&self, command: ReadCommand) -> Vec<Fragment<Row>> {
        joined(self.pages(command))
    }

    /// A scan of everything, as the words of [`shape`].
    fn scan(&self, table: TableId) -> String {
        shape(&self.read(ReadCommand { table, ..scan() }))
    }
}

fn decode(entries: Bytes) -> Vec<Fragment<Row>> {
    let mut reader = Reader::new("page", entries);
    let mut fragments = Vec::new();
    while reader.remaining() > 0 {
        fragments.push(match read_entry(&mut reader, Trust::Checked).unwrap() {
            Fragment::Partition(PartitionHeader { key, deletion, static_row }) => {
                let static_row = static_row.map(|row| row.decode().unwrap());
                Fragment::Partition(PartitionHeader { key, deletion, static_row })
            }
            Fragment::Row(key, row) => Fragment::Row(key, row.decode().unwrap()),
            Fragment::Change(bound, deletion) => Fragment::Change(bound, deletion),
        });
    }
    fragments
}

/// Pages as one stream: repeated headers are left out, and range deletions that were closed at the end of a page and
/// opened again at the beginning of the next. Each page must be balanced.
fn joined(pages: Vec<Vec<Fragment<Row>>>) -> Vec<Fragment<Row>> {
    let mut all: Vec<Fragment<Row>> = Vec::new();
    let mut header = None;
    for page in pages {
        let mut in_force = None;
        assert!(page.is_empty() || matches!(page[0], Fragment::Partition(_)), "a page decodes by itself");
        for fragment in page {
            match fragment {
                Fragment::Partition(found) => {
                    assert_eq!(in_force, None);
                    if header.as_ref() != Some(&found) {
                        header = Some(found.clone());
                        all.push(Fragment::Partition(found));
                    }
                }
                Fragment::Change(bound, deletion) => {
                    assert_ne!(in_force, deletion);
                    in_force = deletion;
                    push_change(&mut all, bound, deletion);
                }
                row => all.push(row),
            }
        }
        assert_eq!(in_force, None, "a page is balanced");
    }
    all
}

fn push_change(all: &mut Vec<Fragment<Row>>, bound: crate::model::Bound, deletion: Option<crate::model::Deletion>) {
    if !matches!(all.last(), Some(Fragment::Change(last, None)) if *last == bound) {
        all.push(Fragment::Change(bound, deletion));
        return;
    }
    all.pop();
    let before = all.iter().rev().find_map(|fragment| match fragment {
        Fragment::Change(_, deletion) => Some(*deletion),
        Fragment::Partition(_) => Some(None),
        Fragment::Row(..) => None,
    });
    if before != Some(deletion) {
        all.push(Fragment::Change(bound, deletion));
    }
}

/// Fragments in a few characters: partitions by the number in their key (`*` with a static row, `D@..` with a deletion),
/// rows by number, range deletions by timestamp, `/` where none is in force any more.
fn shape(fragments: &[Fragment<Row>]) -> String {
    let one = |fragment: &Fragment<Row>| match fragment {
        Fragment::Partition(header) => {
            let mut word = format!("p{}", header.key.bytes()[1]);
            word.extend(header.static_row.iter().map(|_| '*'));
            word.extend(header.deletion.iter().map(|deletion| format!("D@{}", deletion.timestamp.0)));
            word
        }
        Fragment::Row(key, row) => {
            let number = (0..200).find(|number| crate::model::naive::row_key(*number) == *key).unwrap();
            if row.is_visible_at(100) { format!("{number}") } else { format!("-{number}") }
        }
        Fragment::Change(_, Some(deletion)) => format!("@{}", deletion.timestamp.0),
        Fragment::Change(_, None) => "/".to_string(),
    };
    fragments.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// A scan of everything in one page.
fn scan() -> ReadCommand {
    ReadCommand {
        table: TABLE,
        target: Target::Scan(TokenRange::ALL),
        slices: Vec::new(),
        direction: Direction::Forward,
        after: None,
        now_s: 100,
        limit_rows: u32::MAX,
        limit_bytes: u32::MAX,
    }
}

/// A read of one partition in one page.
fn read_partition(number: u8, slices: Vec<Slice>, direction: Direction) -> ReadCommand {
    let target = Target::Partition(crate::model::naive::partition_key(number));
    ReadCommand { target, slices, direction, ..scan() }
}
