//! A small SSTable; `docs/formats.md` goes through it byte by byte.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use trefoil::codec::EncodedRow;
use trefoil::model::{
    Bound, Cell, CellKind, ClusteringKey, ColumnId, Deletion, Fragment, Order, PartitionHeader, PartitionKey, Row,
    Stamp, Stream, TableId, Timestamp, Type, VnodeBits,
};
use trefoil::sstable::{BlockCache, Builder, BuilderOptions, Sstable, file_name};
use trefoil::vfs::Vfs;
use trefoil::vfs::memory::MemoryVfs;
use uuid::Uuid;

use crate::kept::{golden, kept};

const NEW_YEAR_S: i64 = 1_767_225_600;
const TYPES: [(Type, Order); 1] = [(Type::Int, Order::Ascending)];

fn day(day: i32) -> [Bytes; 1] {
    [Bytes::copy_from_slice(&day.to_be_bytes())]
}

fn years_ago_s(years: i64) -> i64 {
    NEW_YEAR_S - years * 365 * 86_400
}

fn row(column: u32, years_ago: i64, value: &'static [u8]) -> EncodedRow {
    let timestamp = Timestamp(years_ago_s(years_ago) * 1_000_000);
    let cell = Cell { timestamp, kind: CellKind::Live(Bytes::from_static(value)) };
    EncodedRow::encode(&Row { cells: vec![(ColumnId(column), cell)], ..Row::default() })
}

/// Partition EWR with everything, over two blocks, and JFK with a static row. Nothing in it compresses, so that it does not hang on how well lz4 does.
fn fragments() -> Vec<Fragment<EncodedRow>> {
    let deleted = |years| {
        let ldt_s = years_ago_s(years);
        Deletion { timestamp: Timestamp(ldt_s * 1_000_000), ldt_s }
    };
    let key = |number| ClusteringKey::encode(&day(number), &TYPES).expect("an int");
    let header = |key: &'static [u8], deletion, static_row| {
        let key = PartitionKey::from_bytes(Bytes::from_static(key));
        Fragment::Partition(PartitionHeader { key, deletion, static_row })
    };
    vec![
        header(b"EWR", Some(deleted(8)), Some(row(2, 0, b"Newark"))),
        Fragment::Change(Bound::before(&day(1), &TYPES).expect("an int"), Some(deleted(4))),
        Fragment::Row(key(3), row(3, 0, b"clover")),
        Fragment::Change(Bound::after(&day(5), &TYPES).expect("an int"), None),
        header(b"JFK", None, Some(row(2, 1, b"Queens"))),
    ]
}

fn options() -> BuilderOptions {
    BuilderOptions {
        directory: "data".into(),
        id: Uuid::from_u128(0x00112233_4455_6677_8899_aabbccddeeff),
        table: TableId(Uuid::from_u128(0x0f0e0d0c_0b0a_0908_0706_050403020100)),
        columns: vec![(ColumnId(2), Type::Text), (ColumnId(3), Type::Text)],
        vnode_bits: VnodeBits::DEFAULT,
        stamps: (Stamp(NEW_YEAR_S * 1_000_000), Stamp(NEW_YEAR_S * 1_000_000 + 7)),
        expected_partitions: 2,
        expected_rows: 1,
        block_bytes: 70,
    }
}

fn read(vfs: &dyn Vfs, path: &Path) -> Vec<u8> {
    let file = vfs.open(path).expect("it was written");
    let mut bytes = vec![0; file.len().expect("a length") as usize];
    file.read_at(&mut bytes, 0).expect("all of it");
    bytes
}

#[test]
fn an_sstable_is_written_and_read_as_it_always_was() {
    let vfs = MemoryVfs::new();
    vfs.create_dir(Path::new("data")).expect("a directory");
    let path = Path::new("data").join(file_name(options().id));
    let fragments = fragments();
    let mut builder = Builder::create(&vfs, options()).expect("a new file");
    fragments.iter().for_each(|fragment| builder.add(fragment).expect("in order"));
    let meta = builder.finish().expect("finished");
    let kept = golden("sstable-2", &read(&vfs, &path));
    assert_eq!(Sha256::digest(&kept)[..], meta.hash);
    vfs.remove(&path).expect("it is there");
    reads(&vfs, &path, &kept, &fragments);
}

/// Format 1: the filter knows no rows, the statistics not which columns rows have.
#[test]
fn an_sstable_of_the_first_format_is_read() {
    let vfs = MemoryVfs::new();
    vfs.create_dir(Path::new("data")).expect("a directory");
    reads(&vfs, &Path::new("data").join(file_name(options().id)), &kept("sstable", &[]), &fragments());
}

fn reads(vfs: &MemoryVfs, path: &Path, bytes: &[u8], fragments: &[Fragment<EncodedRow>]) {
    vfs.create(path).and_then(|file| file.write_at(bytes, 0)).expect("written");
    let file = Arc::new(Sstable::open(vfs, path, Arc::new(BlockCache::new(1 << 20))).expect("readable"));
    let hash = Sha256::digest(bytes);
    file.verify(&hash.into()).expect("what was written");
    let mut stream = file.read_through().expect("a stream");
    let mut found = Vec::new();
    while let Some(fragment) = stream.next().expect("whole") {
        found.push(fragment);
    }
    assert_eq!(found, fragments);
}
