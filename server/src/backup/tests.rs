//! The archive of one node alone: its store, and a bucket that fails, over hours that pass at once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use tokio::time::Instant;
use trefoil::backup::{Piece, layout};
use trefoil::codec::{CheckedRecord, Record, RecordKind};
use trefoil::compaction::Unpaced;
use trefoil::metadata::{Birth, Entry, Epoch, Member, apply, birth};
use trefoil::model::{
    Cell, CellKind, ClusteringKey, ColumnDefinition, ColumnId, ColumnKind, CreateKeyspace, CreateTable, Mutation,
    MutationName, NodeId, PartitionKey, Row, TableId, TableOptions, Timestamp, Type, VnodeBits,
};
use trefoil::ring::Zone;
use trefoil::store::{Store, StoreOptions};
use trefoil::vfs::memory::MemoryVfs;
use trefoil_s3::{Call, Fault, Faulty, Memory};

use super::*;
use crate::clock;

const NODE: NodeId = NodeId(1);
const TABLE: TableId = TableId(Uuid::from_u128(0x71));
const CLOSED_BEHIND: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// Of a write; there is one each second.
const VALUE_BYTES: usize = 1_000;
const SEGMENT_BYTES: u64 = 64 << 10;

struct Alone {
    archive: Arc<Archive>,
    store: Arc<Store>,
    bucket: Arc<Faulty>,
    /// Whether it cannot be reached.
    is_out: Arc<AtomicBool>,
    began: Instant,
    began_us: i64,
    written: u64,
}

impl Alone {
    /// A node whose clock is right once `lasting` has passed here, so that ages come out right then.
    async fn start(log_kept_bytes_max: u64, lasting: Duration) -> Alone {
        let state = cluster();
        let identity = Identity { cluster: state.cluster(), node: NODE, vnode_bits: state.ring().vnode_bits() };
        let is_out = Arc::<AtomicBool>::default();
        let asked = is_out.clone();
        let fails = move |_: Call, _: &str| asked.load(Ordering::Relaxed).then_some(Fault::Unreachable);
        let bucket = Arc::new(Faulty::new(Arc::new(Memory::default()), fails));
        let options = StoreOptions {
            directory: "/node/store".into(),
            segment_bytes: SEGMENT_BYTES,
            log_kept_bytes_max,
            memtable_budget_bytes: 64 << 20,
            cache_bytes: 1 << 20,
            snapshots: Default::default(),
        };
        let specs = crate::node::table_specs(&state);
        let store = Arc::new(Store::open(Arc::new(MemoryVfs::new()), options, identity, &specs).unwrap());
        store.set_archived(Some(store.log_first())).unwrap();
        let archive = Arc::new(open(&bucket, identity).await);
        let began_us = clock::wall_us() - lasting.as_micros() as i64;
        Alone { archive, store, bucket, is_out, began: Instant::now(), began_us, written: 0 }
    }

    /// Begins to ship.
    fn run(&self) {
        self.archive.start(files::run(self.archive.clone(), self.store.clone()));
        self.archive.start(log::run(self.archive.clone(), self.store.clone()));
    }

    fn now(&self) -> Stamp {
        Stamp(self.began_us + self.began.elapsed().as_micros() as i64)
    }

    fn write(&mut self) {
        self.written += 1;
        let (stamp, text) = (self.now(), Bytes::from("x".repeat(VALUE_BYTES)));
        let cell = Cell { timestamp: Timestamp(stamp.0), kind: CellKind::Live(text) };
        let key = (self.written as i32).to_be_bytes();
        let mut mutation = Mutation::new(TABLE, PartitionKey::from_bytes(Bytes::copy_from_slice(&key)));
        let row = Row { cells: vec![(ColumnId(2), cell)], ..Row::default() };
        mutation.rows = vec![(ClusteringKey::encode(&[], &[]).unwrap(), row)];
        let keyspace = cluster().table(TABLE).unwrap().keyspace;
        let name = MutationName { origin: NODE, incarnation: 1, sequence: self.written };
        let record = CheckedRecord::encode(RecordKind::Named(name), keyspace, stamp, &mutation);
        let mut ends = Vec::new();
        self.store.append(std::slice::from_ref(&record), &mut ends).unwrap();
        self.store.sync().unwrap();
        self.store.insert(&record, ends[0]).unwrap();
    }

    fn flush(&self) {
        self.store.flush(None).unwrap();
        // No other replica lacks anything.
        self.store.held_everywhere(BTreeMap::new()).unwrap();
    }

    /// A write each second, a flush every minute.
    async fn live(&mut self, time: Duration) {
        for _ in 0..time.as_secs() {
            self.write();
            self.store.close_through(Stamp(self.now().0 - CLOSED_BEHIND.as_micros() as i64));
            if self.written.is_multiple_of(60) {
                self.flush();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// What the pieces hold, in order, and which of them do not begin where the one before ended.
    async fn chain(&self) -> (Vec<u64>, Vec<u64>) {
        let (mut sequences, mut gaps, mut end) = (Vec::new(), Vec::new(), None);
        let last = self.archive.last_piece(NODE).await.unwrap().unwrap_or(0);
        for number in 1..=last {
            let key = layout::piece(NODE, number);
            let piece = Piece::decode(&key, &self.archive.door.get(&key, None).await.unwrap().bytes).unwrap();
            if end.is_some_and(|end| end != piece.head.from) {
                gaps.push(number);
            }
            end = Some(piece.head.to);
            let each = piece.for_each(|logged| {
                if let RecordKind::Named(name) = Record::decode(logged.record.bytes().clone())?.kind {
                    sequences.push(name.sequence);
                }
                Ok(())
            });
            each.unwrap();
        }
        (sequences, gaps)
    }

    /// Every file that is in use is in the bucket, whole.
    async fn check_files(&self) {
        for (file, _) in self.store.live_files() {
            let found = self.archive.door.head(&layout::file(&file.hash, None)).await.unwrap();
            assert_eq!(found.map(|found| found.bytes), Some(file.bytes));
        }
    }

    fn uploaded_bytes(&self) -> u64 {
        self.archive.counts.file_bytes.load(Ordering::Relaxed)
    }

    /// One pass over all files.
    async fn upload(&self) {
        files::pass(&self.archive, &self.store, &mut Default::default()).await.unwrap();
    }
}

async fn open(bucket: &Arc<Faulty>, identity: Identity) -> Archive {
    let settings = BackupSettings {
        bucket: Bucket::Given(bucket.clone()),
        log_every: MINUTE,
        closed_behind: CLOSED_BEHIND,
        every: None,
        keep_days: 1,
        keep_count: 1,
        absent_after: MINUTE,
        give_up: HOUR,
    };
    Archive::open(settings, identity).await.unwrap()
}

/// One node with one table.
fn cluster() -> ClusterState {
    let zone = Zone { region: "eu".into(), name: "a".into() };
    let member = Member { zone, peer_address: "a:1".into(), client_address: "a:2".into() };
    let vnode_bits = VnodeBits::new(2).unwrap();
    let born = Birth { cluster: Uuid::from_u128(0xc0), name: "demo".into(), vnode_bits, members: vec![member] };
    let column = |name: &str, ty, kind| ColumnDefinition { name: name.into(), ty, kind };
    let columns = vec![column("id", Type::Int, ColumnKind::PartitionKey), column("v", Type::Text, ColumnKind::Regular)];
    let keyspace = CreateKeyspace { name: "ks".into(), replication: BTreeMap::new(), if_not_exists: false };
    let (name, options) = ("t".into(), TableOptions::default());
    let table = CreateTable { keyspace: "ks".into(), name, columns, options, if_not_exists: false };
    let mut state = birth(&born).unwrap();
    for entry in [Entry::CreateKeyspace(keyspace), Entry::CreateTable { id: TABLE, table }] {
        let epoch = Epoch { generation: 0, index: state.epoch().index + 1 };
        let (next, verdict) = apply(&state, epoch, &entry);
        verdict.unwrap();
        state = next;
    }
    state
}

/// So many calls for files are made between two pauses at most, however many wait.
const CALLS_A_PASS: u64 = (files::FAILURES_MAX + files::AT_ONCE) as u64;

/// An hour in which the bucket is out of reach: afterwards nothing is missing, meanwhile it is asked now and then, what is kept
/// is what was written, and the node says that it is behind.
#[tokio::test(start_paused = true)]
async fn an_hour_without_the_bucket_costs_no_gap_and_few_calls() {
    let (before, after) = (5 * MINUTE, 5 * MINUTE);
    let mut alone = Alone::start(64 << 20, before + HOUR + after).await;
    alone.run();
    alone.live(before).await;
    assert!(alone.archive.standing().troubles.is_empty());
    alone.bucket.take_calls();

    alone.is_out.store(true, Ordering::Relaxed);
    alone.live(HOUR).await;
    // Each loop pauses for half of the longest pause at least, but for the first few times.
    let passes = HOUR.as_secs() / (PAUSE_MAX.as_secs() / 2) + 10;
    let calls = alone.bucket.take_calls();
    let of_log = calls.iter().filter(|(_, key)| key.contains("/log/")).count() as u64;
    assert!(of_log <= passes, "{of_log} calls for the log");
    assert!(calls.len() as u64 <= passes * (1 + CALLS_A_PASS), "{} calls", calls.len());
    let standing = alone.archive.standing();
    assert!(standing.is_behind() && standing.rpo.unwrap() >= HOUR, "{standing:?}");
    assert_eq!((standing.troubles.len(), standing.gaps), (2, 0));
    assert!((59..=60).contains(&standing.files_waiting), "a file a minute: {standing:?}");
    let status = alone.store.status();
    let written = HOUR.as_secs() * (VALUE_BYTES as u64 + 200);
    let kept = status.log_unarchived_bytes;
    assert!(kept >= HOUR.as_secs() * VALUE_BYTES as u64 && kept <= written + 2 * SEGMENT_BYTES, "{kept}");

    alone.is_out.store(false, Ordering::Relaxed);
    alone.live(after).await;
    let standing = alone.archive.standing();
    assert!(!standing.is_behind() && standing.troubles.is_empty() && standing.gaps == 0, "{standing:?}");
    assert_eq!(standing.files_waiting, 0);
    assert!(alone.store.status().log_unarchived_bytes < 4 * SEGMENT_BYTES);
    let (sequences, gaps) = alone.chain().await;
    assert!(gaps.is_empty(), "{gaps:?}");
    assert!(sequences.len() as u64 > alone.written - 2 * MINUTE.as_secs());
    let last = sequences.len() as u64;
    assert!(sequences.into_iter().eq(1..=last));
    alone.check_files().await;
}

/// More log than may be kept comes while the bucket is out of reach: the oldest goes, the disk does not fill, the node says that
/// there is a gap, once, and the archive goes on behind it.
#[tokio::test(start_paused = true)]
async fn more_log_than_may_be_kept_is_a_gap_that_is_told() {
    const KEPT_BYTES: u64 = 8 * SEGMENT_BYTES;
    let (before, after) = (5 * MINUTE, 5 * MINUTE);
    let mut alone = Alone::start(KEPT_BYTES, before + HOUR + after).await;
    alone.run();
    alone.live(before).await;
    alone.is_out.store(true, Ordering::Relaxed);
    alone.live(HOUR).await;
    // Besides what is kept there is what no file has yet, of a minute.
    let unflushed = 60 * (VALUE_BYTES as u64 + 200);
    let bytes = alone.store.status().log_bytes;
    assert!(bytes <= KEPT_BYTES + unflushed + 2 * SEGMENT_BYTES, "{bytes}");
    let standing = alone.archive.standing();
    assert!(standing.is_behind() && standing.gaps == 1, "{standing:?}");
    alone.is_out.store(false, Ordering::Relaxed);
    alone.live(after).await;
    let (sequences, gaps) = alone.chain().await;
    assert_eq!((gaps.len(), alone.archive.standing().gaps), (1, 1));
    let missing: Vec<u64> = sequences.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|gap| *gap > 0).collect();
    assert_eq!(missing.len(), 1, "{missing:?}");
    alone.check_files().await;
}

/// B089 (Scylla): what a compaction made was uploaded as if it were new data, and incremental backups grew without bound. Here
/// what it makes is uploaded once, as that is what a backup lists from then on; without a compaction nothing is, and what is
/// uploaded altogether is what was written to the disk altogether.
#[tokio::test(start_paused = true)]
async fn b089_what_a_compaction_makes_is_uploaded_once_and_nothing_else_again() {
    let mut alone = Alone::start(64 << 20, HOUR).await;
    for _ in 0..4 {
        (0..20).for_each(|_| alone.write());
        alone.flush();
        alone.upload().await;
    }
    let mut made = alone.store.live_files().iter().map(|(file, _)| file.bytes).sum::<u64>();
    assert_eq!(alone.uploaded_bytes(), made);
    alone.upload().await;
    assert_eq!(alone.uploaded_bytes(), made, "nothing is new");
    let inputs = alone.store.live_files();
    alone.store.compact_table(TABLE, 0, &Unpaced).unwrap();
    let outputs = alone.store.live_files();
    assert!(outputs.iter().all(|(output, _)| inputs.iter().all(|(input, _)| input.id != output.id)));
    made += outputs.iter().map(|(file, _)| file.bytes).sum::<u64>();
    for _ in 0..3 {
        alone.upload().await;
        assert_eq!(alone.uploaded_bytes(), made);
    }
    alone.check_files().await;
}

/// B056 (SlateDB): a new writer took a place that the old one had written and let go, and both took the log for theirs. Here a
/// piece's number is taken by whoever makes it first, and whoever comes later goes on behind what is there: what a writer had
/// under way when another took over is no gap, and nothing is there twice.
#[tokio::test(start_paused = true)]
async fn b056_of_two_writers_of_one_log_each_goes_on_behind_the_other() {
    let mut alone = Alone::start(64 << 20, HOUR).await;
    let identity = alone.archive.identity;
    let others = [open(&alone.bucket, identity).await, open(&alone.bucket, identity).await];
    alone.archive.resume(&alone.store).await.unwrap();
    for other in &others {
        other.resume(&alone.store).await.unwrap();
    }
    for turn in 0..12 {
        (0..5).for_each(|_| alone.write());
        // Whoever is behind finds what the others made, until it has found all of it.
        let writer = [&*alone.archive, &others[0], &others[1]][(turn * turn + turn / 3) % 3];
        let ends_before = writer.end().unwrap();
        while writer.ship(&alone.store, writer.end().unwrap()).await.unwrap() {}
        assert!(writer.end().unwrap().number > ends_before.number);
    }
    let (sequences, gaps) = alone.chain().await;
    assert!(gaps.is_empty(), "{gaps:?}");
    assert!(sequences.into_iter().eq(1..=alone.written));

    // One that lags so far that the place it would take was pruned meanwhile: it takes it, in vain, and goes on at the end.
    let behind = others[0].end().unwrap();
    while alone.archive.ship(&alone.store, alone.archive.end().unwrap()).await.unwrap() {}
    for _ in 0..3 {
        alone.write();
        let ahead = &alone.archive;
        ahead.ship(&alone.store, ahead.end().unwrap()).await.unwrap();
    }
    alone.archive.door.delete(&layout::piece(NODE, behind.number + 1)).await.unwrap();
    while others[0].ship(&alone.store, others[0].end().unwrap()).await.unwrap() {}
    alone.write();
    while others[0].ship(&alone.store, others[0].end().unwrap()).await.unwrap() {}
    let ends = (others[0].end().unwrap().number, alone.archive.last_piece(NODE).await.unwrap());
    assert_eq!(Some(ends.0), ends.1);
    // The chain that a backup begins with the newest pieces is whole, whatever lies before it.
    let (sequences, _) = alone.chain().await;
    let newest: BTreeMap<u64, ()> = sequences.into_iter().map(|sequence| (sequence, ())).collect();
    assert!(newest.into_keys().eq(1..=alone.written), "every record is there");
}
