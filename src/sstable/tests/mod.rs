//! A naive table in memory, and files made of it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cache;
mod damage;
mod faults;
mod law;
mod point;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::cache::CACHED_BLOCK_OVERHEAD_BYTES;
use super::{Access, BlockCache, Builder, BuilderOptions, PartitionStream, RowHash, Sstable, SstableMeta, file_name};
use crate::Result;
use crate::codec::EncodedRow;
use crate::model::mutation::RangeDeletion;
use crate::model::ranges::Ranges;
use crate::model::{
    Bound, Cell, CellKind, ClusteringKey, ColumnId, Deletion, Direction, Fragment, Order, PartitionHeader,
    PartitionKey, ReadCost, Row, ScanRange, Slice, Stamp, Stream, TableId, Timestamp, Type, VnodeBits,
};
use crate::vfs::Vfs;
use crate::vfs::memory::MemoryVfs;

const BOTH: [Direction; 2] = [Direction::Forward, Direction::Reverse];
const TYPES: [(Type, Order); 2] = [(Type::Int, Order::Ascending), (Type::Int, Order::Ascending)];

/// What a file should say, row by row.
#[derive(Debug, Clone, Default)]
struct Data {
    partitions: BTreeMap<PartitionKey, Contents>,
}

#[derive(Debug, Clone, Default)]
struct Contents {
    deletion: Option<Deletion>,
    static_row: Option<EncodedRow>,
    rows: BTreeMap<ClusteringKey, EncodedRow>,
    ranges: Ranges,
}

impl Data {
    fn at(&mut self, key: u32) -> &mut Contents {
        self.partitions.entry(partition_key(key)).or_default()
    }

    /// What a stream must yield.
    fn scan(&self, range: &ScanRange, slices: &[Slice], direction: Direction) -> Vec<Fragment<EncodedRow>> {
        let wanted = |key: &PartitionKey| {
            let place = (key.token(), key.bytes().clone());
            range.tokens.contains(key.token()) && range.after.as_ref().is_none_or(|after| place > *after)
        };
        let partitions = self.partitions.iter().filter(|(key, _)| wanted(key));
        partitions.flat_map(|(key, contents)| contents.fragments(key, slices, direction)).collect()
    }

    fn all(&self) -> Vec<Fragment<EncodedRow>> {
        self.scan(&ScanRange::default(), &[Slice::all()], Direction::Forward)
    }

    fn build(&self, vfs: &MemoryVfs, block_bytes: usize) -> SstableMeta {
        let mut builder = Builder::create(vfs, options(block_bytes)).unwrap();
        for fragment in self.all() {
            builder.add(&fragment).unwrap();
        }
        builder.finish().unwrap()
    }

    /// A file of this data, and a cache that holds all of it.
    fn file(&self, block_bytes: usize) -> Arc<Sstable> {
        let vfs = disk();
        self.build(&vfs, block_bytes);
        open(&vfs).unwrap()
    }
}

impl Contents {
    fn fragments(&self, key: &PartitionKey, slices: &[Slice], direction: Direction) -> Vec<Fragment<EncodedRow>> {
        let header = PartitionHeader { key: key.clone(), deletion: self.deletion, static_row: self.static_row.clone() };
        let mut all = vec![Fragment::Partition(header)];
        let mut slices = joined(slices);
        if direction == Direction::Reverse {
            slices.reverse();
        }
        for slice in slices {
            let inside = |key: &Bytes| key > slice.start.bytes() && key < slice.end.bytes();
            let rows = self.rows.iter().filter(|(key, _)| inside(key.bytes()));
            let rows = rows.map(|(key, row)| (key.bytes().clone(), Fragment::Row(key.clone(), row.clone())));
            let changes = self.ranges.changes(&slice, direction);
            let changes = changes.map(|(bound, to)| (bound.bytes().clone(), Fragment::Change(bound, to)));
            let mut placed: Vec<_> = rows.chain(changes).collect();
            placed.sort_by(|(a, _), (b, _)| direction.order(a.cmp(b)));
            all.extend(placed.into_iter().map(|(_, fragment)| fragment));
        }
        all
    }

    fn put(&mut self, a: i32, b: i32, len: usize) {
        self.rows.insert(clustering(a, b), row(5, len));
    }

    fn delete(&mut self, start: Bound, end: Bound, timestamp: i64) {
        self.ranges.add(start, end, deletion(timestamp));
    }
}

fn joined(slices: &[Slice]) -> Vec<Slice> {
    let mut joined: Vec<Slice> = Vec::new();
    for slice in slices.iter().filter(|slice| !slice.is_empty()) {
        match joined.last_mut() {
            Some(last) if last.end == slice.start => last.end = slice.end.clone(),
            _ => joined.push(slice.clone()),
        }
    }
    joined
}

/// A file system with the directory in it.
fn disk() -> MemoryVfs {
    let vfs = MemoryVfs::new();
    vfs.create_dir(&directory()).unwrap();
    vfs.sync_dir(Path::new("")).unwrap();
    vfs
}

fn directory() -> PathBuf {
    PathBuf::from("data")
}

fn path() -> PathBuf {
    directory().join(file_name(Uuid::from_u128(7)))
}

fn options(block_bytes: usize) -> BuilderOptions {
    BuilderOptions {
        directory: directory(),
        id: Uuid::from_u128(7),
        table: TableId(Uuid::from_u128(8)),
        columns: vec![(ColumnId(3), Type::Blob), (ColumnId(4), Type::Blob)],
        vnode_bits: VnodeBits::new(3).unwrap(),
        stamps: (Stamp(10), Stamp(20)),
        expected_partitions: 10,
        expected_rows: 40,
        block_bytes,
    }
}

fn open(vfs: &MemoryVfs) -> Result<Arc<Sstable>> {
    open_with(vfs, &path(), Arc::new(BlockCache::new(64 << 20)))
}

fn open_with(vfs: &MemoryVfs, path: &Path, cache: Arc<BlockCache>) -> Result<Arc<Sstable>> {
    Sstable::open(vfs, path, cache).map(Arc::new)
}

fn collect(stream: &mut impl Stream<EncodedRow>) -> Result<Vec<Fragment<EncodedRow>>> {
    let mut all = Vec::new();
    while let Some(fragment) = stream.next()? {
        all.push(fragment);
    }
    assert_eq!(stream.next().unwrap(), None, "a stream that ended goes on");
    Ok(all)
}

fn read(
    file: &Arc<Sstable>,
    key: &PartitionKey,
    slices: &[Slice],
    direction: Direction,
    access: Access,
) -> Result<Vec<Fragment<EncodedRow>>> {
    match file.partition(key, slices, &rows_sought(key, slices), direction, access, &mut ReadCost::default())? {
        Some(mut found) => collect(&mut found.fragments),
        None => Ok(Vec::new()),
    }
}

/// As the store says it to files.
fn rows_sought(key: &PartitionKey, slices: &[Slice]) -> Vec<RowHash> {
    let row = |slice: &Slice| slice.only_row(&TYPES).map(|components| RowHash::of(key, components));
    slices.iter().map(row).collect::<Option<_>>().unwrap_or_default()
}

fn partition_key(key: u32) -> PartitionKey {
    PartitionKey::from_bytes(Bytes::copy_from_slice(&key.to_be_bytes()))
}

fn int(value: i32) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

fn clustering(a: i32, b: i32) -> ClusteringKey {
    ClusteringKey::encode(&[int(a), int(b)], &TYPES).unwrap()
}

fn before(prefix: &[i32]) -> Bound {
    let prefix: Vec<Bytes> = prefix.iter().copied().map(int).collect();
    Bound::before(&prefix, &TYPES).unwrap()
}

fn after(prefix: &[i32]) -> Bound {
    let prefix: Vec<Bytes> = prefix.iter().copied().map(int).collect();
    Bound::after(&prefix, &TYPES).unwrap()
}

fn deletion(timestamp: i64) -> Deletion {
    Deletion { timestamp: Timestamp(timestamp), ldt_s: timestamp + 1_000 }
}

/// A row with one cell of `len` bytes that no compressor makes smaller.
fn row(timestamp: i64, len: usize) -> EncodedRow {
    let mut state = timestamp as u64 ^ len as u64;
    let noise = (0..len).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    let kind = CellKind::Live(noise.collect());
    let cells = vec![(ColumnId(3), Cell { timestamp: Timestamp(timestamp), kind })];
    EncodedRow::encode(&Row { cells, ..Row::default() })
}

fn ranges(fragments: &[Fragment<EncodedRow>]) -> Vec<RangeDeletion> {
    let mut open: Option<(Bound, Deletion)> = None;
    let mut all = Vec::new();
    for fragment in fragments {
        if let Fragment::Change(bound, to) = fragment {
            if let Some((start, deletion)) = open.take() {
                all.push(RangeDeletion { start, end: bound.clone(), deletion });
            }
            open = to.map(|deletion| (bound.clone(), deletion));
        }
    }
    assert_eq!(open, None, "a range deletion is not closed");
    all
}

impl Sstable {
    fn cache_usage(&self) -> (u64, u64, u64) {
        self.cache.usage()
    }
}
