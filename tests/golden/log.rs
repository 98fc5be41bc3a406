//! A segment of the commit log, as it stands on disk.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use trefoil::codec::CheckedRecord;
use trefoil::commitlog::{CommitLog, LogOptions, Position, SEGMENT_BYTES_MIN};
use trefoil::model::{Identity, NodeId, VnodeBits};
use trefoil::vfs::Vfs;
use trefoil::vfs::memory::MemoryVfs;
use uuid::Uuid;

use crate::kept::{golden, kept};

const SEGMENT: &str = "/log/00000000000000000001.log";

fn options() -> LogOptions {
    let cluster = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00c1);
    let owner = Identity { cluster, node: NodeId(2), vnode_bits: VnodeBits::DEFAULT };
    LogOptions { directory: "/log".into(), segment_bytes: SEGMENT_BYTES_MIN, owner, kept_bytes_max: 0 }
}

fn open(vfs: &Arc<dyn Vfs>) -> (CommitLog, Vec<Bytes>) {
    let mut records = Vec::new();
    let log = CommitLog::open(vfs.clone(), options(), Position::default(), &mut |replayed| {
        records.push(replayed.record.bytes().clone());
        Ok(())
    });
    (log.expect("a log that opens"), records)
}

/// The two records that are kept by themselves.
fn records() -> [Bytes; 2] {
    [kept("record-named", &[]), kept("record-nameless", &[])]
}

/// The first segment of a log: a group of two records, a sync, a group of one, sealed by closing it.
fn written() -> Vec<u8> {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let (mut log, _) = open(&vfs);
    let [named, nameless] = records().map(|record| CheckedRecord::trusted(record).expect("a record"));
    let mut ends = Vec::new();
    log.append(&[named.clone(), nameless], &mut ends).expect("appended");
    log.sync().expect("synced");
    log.append(&[named], &mut ends).expect("appended");
    log.close().expect("closed");
    // Opened again, the log is this segment and the header of the next one.
    let len = open(&vfs).0.bytes() - 4096;
    let mut bytes = vec![0; len as usize];
    vfs.open(Path::new(SEGMENT)).expect("the segment").read_at(&mut bytes, 0).expect("its bytes");
    bytes
}

#[test]
fn a_segment_is_kept() {
    let segment = golden("log-segment", &written());
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    vfs.create_dir(Path::new("/log")).expect("made");
    vfs.create(Path::new(SEGMENT)).expect("made").write_at(&segment, 0).expect("written");
    let (_, found) = open(&vfs);
    let [named, nameless] = records();
    assert_eq!(found, [named.clone(), nameless, named]);
}

#[test]
fn the_example_of_the_documentation_is_the_kept_segment() {
    let page = include_str!("../../docs/formats.md");
    let (_, example) = page.split_once("The sample `log-segment`").expect("the example");
    let lines = example.split("```").nth(1).expect("its drawing").lines().skip(1);
    let digits: Vec<&str> = lines.filter_map(|line| line.split("  ").next()).flat_map(str::split_whitespace).collect();
    let expected: Vec<String> = written()[4096..4096 + 33].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digits, expected);
}
