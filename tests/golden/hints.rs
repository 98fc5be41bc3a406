//! The hints for one node, as they stand on disk.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use trefoil::hints::{Hint, HintLog, LogOptions, Place};
use trefoil::model::{Identity, KeyspaceId, NodeId, Vnode, VnodeBits};
use trefoil::vfs::Vfs;
use trefoil::vfs::memory::MemoryVfs;
use uuid::Uuid;

use crate::kept::{golden, kept};

const SEGMENT: &str = "/hints/3/00000000000000000001.hints";
const ACKNOWLEDGED: &str = "/hints/3/acknowledged";
/// Header of a segment.
const HEADER_BYTES: u64 = 65;

fn open(vfs: &Arc<dyn Vfs>) -> HintLog {
    let cluster = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00c1);
    let owner = Identity { cluster, node: NodeId(2), vnode_bits: VnodeBits::DEFAULT };
    let options = LogOptions {
        directory: "/hints/3".into(),
        owner,
        target: NodeId(3),
        segment_bytes: 1 << 20,
        bytes_max: 1 << 30,
        window_us: i64::MAX,
    };
    HintLog::open(vfs.clone(), options).expect("a log that opens")
}

fn hints() -> [Hint; 2] {
    let hint = |name, vnode| Hint {
        written_at_us: 1_767_225_600_000_000,
        keyspace: KeyspaceId(7),
        vnode: Vnode(vnode),
        record: kept(name, &[]),
    };
    [hint("record-named", 93), hint("record-nameless", 94)]
}

fn bytes_of(vfs: &Arc<dyn Vfs>, path: &str) -> Vec<u8> {
    let file = vfs.open(Path::new(path)).expect("the file");
    let mut bytes = vec![0; file.len().expect("its length") as usize];
    file.read_at(&mut bytes, 0).expect("its bytes");
    bytes
}

/// A hint, a sync, a mark and another hint; the first one acknowledged.
fn written() -> (Vec<u8>, Vec<u8>) {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let mut log = open(&vfs);
    for hint in hints() {
        assert_eq!(log.append(&[hint], 1_767_225_600_000_000).written, 1);
        log.sync().expect("synced");
    }
    let first = log.load(Place::default(), 1).expect("read").hints[0].end;
    log.acknowledge(first).expect("acknowledged");
    log.save().expect("saved");
    (bytes_of(&vfs, SEGMENT), bytes_of(&vfs, ACKNOWLEDGED))
}

#[test]
fn hints_are_kept() {
    let (segment, acknowledged) = written();
    let segment = golden("hint-segment", &segment);
    let acknowledged = golden("hints-acknowledged", &acknowledged);
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    vfs.create_dir(Path::new("/hints/3")).expect("made");
    let put = |path: &str, bytes: &Bytes| {
        vfs.create(Path::new(path)).expect("made").write_at(bytes, 0).expect("written");
    };
    put(SEGMENT, &segment);
    let found = |log: &mut HintLog| {
        let loaded = log.load(log.acknowledged(), 1 << 20).expect("read");
        loaded.hints.into_iter().map(|stored| stored.hint).collect::<Vec<_>>()
    };
    let mut log = open(&vfs);
    assert_eq!((found(&mut log), log.pending_bytes()), (hints().to_vec(), segment.len() as u64 - HEADER_BYTES));
    drop(log);
    put(ACKNOWLEDGED, &acknowledged);
    assert_eq!(found(&mut open(&vfs)), hints()[1..]);
}
