//! The log against power loss, damage and failing disks.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::segment::{HEADER_BYTES, Header, segment_path};
use super::{CommitLog, LogOptions, Position, SEGMENT_BYTES_MIN};
use crate::codec::{CheckedRecord, RecordKind};
use crate::model::{Identity, KeyspaceId, Mutation, MutationName, NodeId, PartitionKey, Stamp, TableId, VnodeBits};
use crate::vfs::Vfs;
use crate::vfs::faulty::{Fault, FaultyVfs, Operation};
use crate::vfs::memory::MemoryVfs;
use crate::{Error, Result};

const OWNER: Identity = Identity { cluster: uuid::Uuid::from_u128(7), node: NodeId(3), vnode_bits: VnodeBits::DEFAULT };

fn options() -> LogOptions {
    LogOptions { directory: PathBuf::from("/log"), segment_bytes: SEGMENT_BYTES_MIN, owner: OWNER, kept_bytes_max: 0 }
}

/// The record of this number, about `size` bytes large; every seventh has no name.
fn record(number: u64, size: usize) -> CheckedRecord {
    let mut key = number.to_be_bytes().to_vec();
    key.resize(size.max(8), 0xa5);
    let mutation = Mutation::new(TableId(uuid::Uuid::from_u128(1)), PartitionKey::from_bytes(key.into()));
    let origin = NodeId(1 + (number % 3) as u32);
    let kind = if number % 7 == 6 {
        RecordKind::Nameless { composer: origin, known_through: Stamp(0) }
    } else {
        RecordKind::Named(MutationName { origin, incarnation: 5, sequence: number + 1 })
    };
    CheckedRecord::encode(kind, KeyspaceId(1), Stamp(number as i64), &mutation)
}

fn number_of(record: &CheckedRecord) -> u64 {
    record.stamp().0 as u64
}

struct Opened {
    log: CommitLog,
    records: Vec<u64>,
    ends: Vec<Position>,
}

fn open_from(vfs: &dyn VfsArc, from: Position) -> Result<Opened> {
    let (mut records, mut ends) = (Vec::new(), Vec::new());
    let log = CommitLog::open(vfs.arc(), options(), from, &mut |replayed| {
        records.push(number_of(&replayed.record));
        ends.push(replayed.end);
        Ok(())
    })?;
    Ok(Opened { log, records, ends })
}

fn open(vfs: &dyn VfsArc) -> Result<Opened> {
    open_from(vfs, Position::default())
}

/// Opens a log that was examined before: both must come to the same, and examining must leave the files as they are.
fn examine_and_open(vfs: &MemoryVfs, from: Position) -> Result<Opened> {
    let before = files(vfs);
    let mut records = Vec::new();
    let examined = CommitLog::examine(vfs, Path::new("/log"), OWNER, from, &mut |replayed| {
        records.push(number_of(&replayed.record));
        Ok(())
    });
    assert_eq!(files(vfs), before);
    let examined = examined.unwrap();
    let opened = open_from(vfs, from);
    match &opened {
        Err(error) => assert_eq!(examined.faults[0].to_string(), error.to_string()),
        Ok(opened) => {
            assert!(examined.faults.is_empty(), "{:?}", examined.faults);
            assert!(records.ends_with(&opened.records) && examined.end >= opened.ends.last().copied());
        }
    }
    opened
}

/// What the tests pass around as a file system.
trait VfsArc {
    fn arc(&self) -> Arc<dyn Vfs>;
}

impl<V: Vfs + Clone> VfsArc for V {
    fn arc(&self) -> Arc<dyn Vfs> {
        Arc::new(self.clone())
    }
}

fn append(log: &mut CommitLog, numbers: std::ops::Range<u64>, size: usize) -> Result<Vec<Position>> {
    let records: Vec<CheckedRecord> = numbers.map(|number| record(number, size)).collect();
    let mut ends = Vec::new();
    log.append(&records, &mut ends)?;
    Ok(ends)
}

fn segments(vfs: &MemoryVfs) -> Vec<PathBuf> {
    let names = vfs.list(Path::new("/log")).unwrap();
    names.iter().filter(|name| name.ends_with(".log")).map(|name| Path::new("/log").join(name)).collect()
}

fn contents(vfs: &MemoryVfs, path: &Path) -> Vec<u8> {
    let file = vfs.open(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// A file system with copies of these files, all durable.
fn with_files(files: &[(PathBuf, Vec<u8>)]) -> MemoryVfs {
    let vfs = MemoryVfs::new();
    vfs.create_dir(Path::new("/log")).unwrap();
    for (path, bytes) in files {
        let file = vfs.create(path).unwrap();
        file.write_at(bytes, 0).unwrap();
        file.sync().unwrap();
    }
    vfs.sync_dir(Path::new("/log")).unwrap();
    vfs
}

fn files(vfs: &MemoryVfs) -> Vec<(PathBuf, Vec<u8>)> {
    segments(vfs).into_iter().map(|path| (path.clone(), contents(vfs, &path))).collect()
}

fn is_corrupt(result: Result<Opened>, file: &Path) -> u64 {
    match result.map(|opened| opened.records) {
        Err(Error::Corrupt(corrupt)) => {
            assert_eq!(corrupt.file.as_deref(), Some(file), "{corrupt}");
            corrupt.offset.unwrap_or(0)
        }
        other => panic!("not found to be corrupt: {other:?}"),
    }
}

#[test]
fn records_come_back_in_order_and_from_any_position() {
    let vfs = MemoryVfs::new();
    let mut opened = open(&vfs).unwrap();
    let mut ends = Vec::new();
    for group in 0..20 {
        ends.extend(append(&mut opened.log, group * 5..group * 5 + 5, 900).unwrap());
    }
    assert!(ends.is_sorted() && ends.last() == Some(&opened.log.end()));
    assert_eq!(opened.log.sync().unwrap(), opened.log.end());
    assert!(opened.log.end().segment > 5, "{:?}", opened.log.end());
    drop(opened);
    for from in [0, 1, 17, 50, 99] {
        let opened = open_from(&vfs, ends[from]).unwrap();
        assert_eq!(opened.records, (from as u64 + 1..100).collect::<Vec<_>>());
        assert_eq!(opened.ends, ends[from + 1..]);
    }
    assert_eq!(open(&vfs).unwrap().records, (0..100).collect::<Vec<_>>());
}

#[test]
fn what_is_too_large_is_refused_before_anything_is_written() {
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs).unwrap().log;
    let mut ends = Vec::new();
    let large = record(1, SEGMENT_BYTES_MIN as usize / 2);
    assert!(matches!(log.append(&[record(0, 8), large], &mut ends), Err(Error::Invalid { .. })));
    assert!(ends.is_empty());
    let fits = SEGMENT_BYTES_MIN as usize / 2 - record(0, 8).bytes().len() + 6;
    append(&mut log, 2..5, fits).unwrap();
    log.close().unwrap();
    assert_eq!(open(&vfs).unwrap().records, [2, 3, 4]);
}

#[test]
fn another_owners_log_and_a_newer_one_are_refused() {
    let vfs = MemoryVfs::new();
    open(&vfs).unwrap().log.close().unwrap();
    let mut other = options();
    other.owner.node = NodeId(4);
    let refused = CommitLog::open(vfs.arc(), other, Position::default(), &mut |_| Ok(()));
    assert!(matches!(refused, Err(Error::WrongDirectory { .. })));
    let file = vfs.open(&segment_path(Path::new("/log"), 1)).unwrap();
    let mut header = Header { owner: OWNER, segment: 1, capacity: SEGMENT_BYTES_MIN }.encode();
    header[8] = 2;
    let checksum = crc32fast::hash(&header[..HEADER_BYTES as usize - 4]);
    header[HEADER_BYTES as usize - 4..].copy_from_slice(&checksum.to_le_bytes());
    file.write_at(&header, 0).unwrap();
    assert!(matches!(open(&vfs), Err(Error::Version { found: 2, .. })));
}

#[test]
fn a_missing_segment_is_corruption() {
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs).unwrap().log;
    append(&mut log, 0..60, 900).unwrap();
    let end = log.end();
    log.close().unwrap();
    let (first, second) = (segment_path(Path::new("/log"), 1), segment_path(Path::new("/log"), 2));
    vfs.remove(&second).unwrap();
    is_corrupt(open(&vfs), &second);
    vfs.remove(&first).unwrap();
    assert!(open(&vfs).is_ok(), "nobody asked for the first segments");
    is_corrupt(open_from(&vfs, Position { segment: 2, offset: 5_000 }), &second);
    let behind = Position { segment: end.segment + 9, offset: HEADER_BYTES };
    is_corrupt(open_from(&vfs, behind), &segment_path(Path::new("/log"), behind.segment));
}

#[test]
fn discarded_segments_are_recycled_and_their_stale_frames_told() {
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs).unwrap().log;
    append(&mut log, 0..100, 900).unwrap();
    log.sync().unwrap();
    let (end, held) = (log.end(), log.bytes());
    log.discard_before(end).unwrap();
    assert_eq!(segments(&vfs), [segment_path(Path::new("/log"), end.segment)]);
    assert!(log.bytes() < held);
    assert_eq!(vfs.list(Path::new("/log")).unwrap().len(), 5, "four spares and the active one");
    // Records of the same size, so that stale frames stand exactly where new ones could follow.
    append(&mut log, 100..125, 900).unwrap();
    log.sync().unwrap();
    assert_eq!(vfs.list(Path::new("/log")).unwrap().len(), 5, "the spares are used");
    drop(log);
    vfs.crash(1);
    let opened = open_from(&vfs, end).unwrap();
    assert_eq!(opened.records, (100..125).collect::<Vec<_>>());
}

#[test]
fn spares_are_prepared_once_and_leftovers_go() {
    let vfs = MemoryVfs::new();
    let log = open(&vfs).unwrap().log;
    let spares = log.spares();
    spares.prepare().unwrap();
    spares.prepare().unwrap();
    let kinds = |ending: &str| vfs.list(Path::new("/log")).unwrap().iter().filter(|n| n.ends_with(ending)).count();
    assert_eq!(kinds(".spare"), 1);
    vfs.create(Path::new("/log/00000000000000000077.new")).unwrap();
    vfs.create(Path::new("/log/00000000000000000078.spare")).unwrap();
    drop(log);
    open(&vfs).unwrap();
    assert_eq!((kinds(".spare"), kinds(".new")), (0, 0), "one spare was used, the others were not whole");
}

#[test]
fn a_node_that_starts_again_and_again_leaves_little_behind() {
    let vfs = MemoryVfs::new();
    for _ in 0..20 {
        open(&vfs).unwrap();
    }
    let bytes: usize = files(&vfs).iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes < 20 * 5_000 + SEGMENT_BYTES_MIN as usize, "{bytes}");
}

/// Writes, syncs and discards until the power goes. What was appended, how much of it was synced and discarded.
struct Workload {
    appended: u64,
    synced: u64,
    /// Replay is asked for from here: the end of record number `discarded - 1`.
    from: Position,
    discarded: u64,
    largest: Position,
}

impl Workload {
    fn new() -> Workload {
        Workload { appended: 0, synced: 0, from: Position::default(), discarded: 0, largest: Position::default() }
    }

    /// Opens, checks what is there, and works on.
    fn run(&mut self, vfs: &MemoryVfs, random: &mut StdRng) -> Result<()> {
        let mut opened = open_from(vfs, self.from)?;
        self.check(&opened);
        for _ in 0..8 {
            self.step(&mut opened.log, random)?;
        }
        opened.log.close()?;
        self.synced = self.appended;
        Ok(())
    }

    fn step(&mut self, log: &mut CommitLog, random: &mut StdRng) -> Result<()> {
        let (first, count, size) = (self.appended, random.random_range(1..6), random.random_range(8..2_000));
        // Appended as soon as it was tried: it may be there even if the call failed.
        self.appended += count;
        let ends = append(log, first..first + count, size)?;
        assert!(ends.is_sorted() && ends[0] > self.largest, "positions are never used twice");
        self.largest = ends[count as usize - 1];
        if random.random_bool(0.6) {
            log.sync()?;
            self.synced = self.appended;
            if random.random_bool(0.4) {
                // As the store does: what is synced is flushed, its position written down, then the log may go.
                (self.from, self.discarded) = (self.largest, self.synced);
                log.discard_before(self.from)?;
            }
        }
        Ok(())
    }

    /// All synced records are there in order, no other ones, and nothing behind a lost one.
    fn check(&mut self, opened: &Opened) {
        let found = opened.records.len() as u64;
        assert_eq!(opened.records, (self.discarded..self.discarded + found).collect::<Vec<_>>());
        let reached = self.discarded + found;
        assert!((self.synced..=self.appended).contains(&reached), "{} <= {reached} <= {}", self.synced, self.appended);
        assert!(opened.log.end() > opened.ends.last().copied().unwrap_or_default());
        // What was lost is lost for good, what was handed out is durable; numbers go on behind it.
        (self.appended, self.synced) = (reached, reached);
    }
}

#[test]
fn power_loss_at_every_operation_takes_only_what_was_not_synced() {
    for seed in 0..12 {
        let mut stop = 1;
        loop {
            let (vfs, mut work, mut random) = (MemoryVfs::new(), Workload::new(), StdRng::seed_from_u64(seed));
            vfs.power_off_at(stop);
            let finished = work.run(&vfs, &mut random).is_ok();
            // Then a second and a third loss, anywhere, the start included.
            for again in 0..2 {
                vfs.crash(seed * 1_000 + stop + again);
                vfs.power_off_at(random.random_range(1..60));
                if let Err(error) = work.run(&vfs, &mut random) {
                    assert!(matches!(error, Error::Io { .. }), "seed {seed}, stop {stop}: {error}");
                }
            }
            vfs.crash(seed * 7_000 + stop);
            if let Err(error) = work.run(&vfs, &mut random) {
                panic!("seed {seed}, stop {stop}: {error}");
            }
            if finished {
                break;
            }
            stop += 1;
        }
        assert!(stop > 30, "the workload is too small to say anything");
    }
}

#[test]
fn b040_torn_ends_start_and_damage_is_named() {
    // A torn or zero header of the last segment kept nodes from starting, and a broken entry in an older segment passed
    // for a torn tail. Here: a last file of 0 bytes, of a header only, of a header and half its zeros, and one whose
    // header never came down, all start with all that was synced.
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs).unwrap().log;
    append(&mut log, 0..10, 100).unwrap();
    log.close().unwrap();
    let header = Header { owner: OWNER, segment: 2, capacity: SEGMENT_BYTES_MIN }.encode();
    let mut half = header.clone();
    half.resize(9_000, 0);
    let mut torn = vec![0; SEGMENT_BYTES_MIN as usize];
    torn[..512].copy_from_slice(&header[..512]);
    let zeros = vec![0; SEGMENT_BYTES_MIN as usize];
    for last in [&[][..], &header[..700], &header, &half, &torn, &zeros] {
        let mut all = files(&vfs);
        all.push((segment_path(Path::new("/log"), 2), last.to_vec()));
        examine_and_open(&with_files(&all), Position::default()).unwrap();
        for stop in 1..40 {
            let vfs = with_files(&all);
            // A power loss while the start repairs it changes nothing.
            vfs.power_off_at(stop);
            let _ = open(&vfs);
            vfs.crash(stop);
            let mut opened = open(&vfs).unwrap();
            assert_eq!(opened.records, (0..10).collect::<Vec<_>>());
            append(&mut opened.log, 10..12, 100).unwrap();
            opened.log.close().unwrap();
            assert_eq!(open(&vfs).unwrap().records, (0..12).collect::<Vec<_>>());
        }
    }
}

#[test]
fn b040_damage_below_the_last_known_sync_is_never_a_torn_tail() {
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs).unwrap().log;
    append(&mut log, 0..3, 100).unwrap();
    log.sync().unwrap();
    let synced = log.end();
    append(&mut log, 3..6, 100).unwrap();
    let all = files(&vfs);
    let path = segment_path(Path::new("/log"), 1);
    for at in 0..log.end().offset as usize {
        let mut damaged = all.clone();
        damaged[0].1[at] ^= 0x10;
        let result = examine_and_open(&with_files(&damaged), Position::default());
        if (at as u64) < synced.offset {
            let found = is_corrupt(result, &path);
            assert!(found <= at as u64, "byte {at} is damaged, {found} reported");
        } else {
            let records = result.unwrap().records;
            assert!(records.len() < 6 && records.len() >= 3, "above it nothing tells damage from a torn write");
        }
    }
}

#[test]
fn every_flipped_byte_of_a_closed_log_is_found_or_harmless() {
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs).unwrap().log;
    append(&mut log, 0..12, 900).unwrap();
    log.sync().unwrap();
    append(&mut log, 12..24, 900).unwrap();
    let end = log.end().offset as usize;
    log.close().unwrap();
    let all = files(&vfs);
    assert_eq!(all.len(), 2);
    // Only what stands behind a seal means nothing, and the last seal, which is made anew.
    let behind = all[0].1.iter().rposition(|byte| *byte != 0).unwrap();
    let meaningless = [behind, end];
    for (number, (path, bytes)) in all.iter().enumerate() {
        for (at, byte) in bytes.iter().enumerate() {
            // Every byte of the frames' heads, every third of the long values.
            if at % 3 != 0 && *byte == 0xa5 {
                continue;
            }
            let mut damaged = all.clone();
            damaged[number].1[at] ^= 1 << (at % 8);
            match examine_and_open(&with_files(&damaged), Position::default()) {
                Ok(opened) => {
                    assert_eq!(opened.records, (0..24).collect::<Vec<_>>(), "byte {at} of {}", path.display());
                    assert!(at >= meaningless[number], "byte {at} of {} is not looked at", path.display());
                }
                damaged => assert!(is_corrupt(damaged, path) <= at as u64),
            }
        }
    }
}

#[test]
fn every_truncation_of_the_last_segment_is_found_or_loses_nothing() {
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs).unwrap().log;
    append(&mut log, 0..3, 100).unwrap();
    let end = log.sync().unwrap();
    let all = files(&vfs);
    let path = segment_path(Path::new("/log"), 1);
    // Up to the header it looks like a segment that was never used, unless somebody knows that it was.
    for len in 0..SEGMENT_BYTES_MIN as usize {
        let mut cut = all.clone();
        cut[0].1.truncate(len);
        if len as u64 > HEADER_BYTES + 50 {
            let opened = examine_and_open(&with_files(&cut), Position::default());
            assert_eq!(is_corrupt(opened, &path), len as u64);
        }
        let known = examine_and_open(&with_files(&cut), end);
        is_corrupt(known, &path);
    }
}

#[test]
fn a_log_that_ends_before_the_position_asked_for_is_corrupt() {
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs).unwrap().log;
    append(&mut log, 0..3, 100).unwrap();
    let end = log.sync().unwrap();
    drop(log);
    let file = vfs.open(&segment_path(Path::new("/log"), 1)).unwrap();
    file.write_at(&[0; 4_000], HEADER_BYTES).unwrap();
    is_corrupt(open_from(&vfs, end), &segment_path(Path::new("/log"), 1));
}

#[test]
fn what_replay_hands_out_after_a_failed_sync_is_durable() {
    // A sync fails, the process starts again, and sees in the page cache what never reached the disk. If it only synced
    // that, it would tell peers that it has it, and lose it with the power.
    for seed in 0..30 {
        let vfs = MemoryVfs::new();
        let mut log = open(&vfs).unwrap().log;
        append(&mut log, 0..3, 100).unwrap();
        log.sync().unwrap();
        append(&mut log, 3..9, 100).unwrap();
        vfs.fail_next_sync(seed);
        log.sync().unwrap_err();
        drop(log);
        assert_eq!(open(&vfs).unwrap().records, (0..9).collect::<Vec<_>>());
        vfs.crash(seed);
        assert_eq!(open(&vfs).unwrap().records, (0..9).collect::<Vec<_>>());
    }
}

fn fails(error: Error) {
    assert!(matches!(error, Error::LogFailed { .. }), "{error}");
}

#[test]
fn after_a_failed_sync_nothing_more_is_written() {
    for seed in 0..10 {
        let memory = MemoryVfs::new();
        let vfs = FaultyVfs::new(memory.arc());
        let mut log = open(&vfs).unwrap().log;
        append(&mut log, 0..3, 100).unwrap();
        log.sync().unwrap();
        append(&mut log, 3..6, 100).unwrap();
        vfs.fail(Operation::Sync, 1, Fault::Device);
        // Closing syncs as well, and is no second chance.
        let failed = if seed % 2 == 0 { log.sync().map(drop) } else { log.close() };
        assert!(matches!(failed, Err(Error::Io { .. })));
        let writes = vfs.calls(Operation::Write);
        fails(append(&mut log, 6..9, 100).unwrap_err());
        fails(log.sync().unwrap_err());
        fails(log.close().unwrap_err());
        assert_eq!(vfs.calls(Operation::Write), writes);
        // The process starts again over what the system shows it, and then the power fails: what was handed out stays.
        let shown = open(&vfs).unwrap().records;
        assert!(shown.len() >= 3 && shown.len() <= 6);
        memory.crash(seed);
        assert_eq!(open(&memory).unwrap().records, shown);
    }
}

/// The syncs of a switch are syncs of the segment too: one that failed is not tried again.
#[test]
fn a_failed_sync_in_a_switch_ends_the_log() {
    for nth in [1, 2] {
        let memory = MemoryVfs::new();
        let vfs = FaultyVfs::new(memory.arc());
        let mut log = open(&vfs).unwrap().log;
        append(&mut log, 0..10, 900).unwrap();
        vfs.fail(Operation::Sync, nth, Fault::Device);
        assert!(matches!(append(&mut log, 10..20, 900), Err(Error::Io { .. })));
        fails(append(&mut log, 10..20, 900).unwrap_err());
        drop(log);
        assert_eq!(open(&vfs).unwrap().records, (0..10).collect::<Vec<_>>());
    }
}

/// A write of records that fails may have left some of them behind the end. The next append goes to a new segment, and of
/// what was refused nothing is read: not even a whole record that stands just where the next one could follow.
#[test]
fn a_refused_append_leaves_nothing_once_another_was_taken() {
    for fault in [Fault::Full, Fault::ShortWrite, Fault::Device] {
        for seed in 0..10 {
            let memory = MemoryVfs::new();
            let vfs = FaultyVfs::new(memory.arc());
            let mut log = open(&vfs).unwrap().log;
            append(&mut log, 0..3, 100).unwrap();
            log.sync().unwrap();
            vfs.fail(Operation::Write, 1, fault);
            assert!(matches!(append(&mut log, 15..21, 100), Err(Error::Io { .. })));
            append(&mut log, 3..4, 100).unwrap();
            log.sync().unwrap();
            if seed % 2 == 0 {
                append(&mut log, 4..9, 100).unwrap();
                log.sync().unwrap();
            }
            memory.crash(seed);
            let expected = (0..if seed % 2 == 0 { 9 } else { 4 }).collect::<Vec<_>>();
            assert_eq!(open(&memory).unwrap().records, expected, "{fault:?}");
        }
    }
}

/// A disk that is full refuses writes and takes them again when it is not: every call of a switch but the syncs of the
/// segment itself may fail, and the same append succeeds right afterwards, without a restart.
#[test]
fn a_full_disk_at_a_switch_refuses_and_resumes() {
    use Operation::{Create, Open, Rename, SyncDir, Write};
    for (operation, fault) in [Create, Open, Rename, SyncDir, Write]
        .into_iter()
        .flat_map(|call| [(call, Fault::Full), (call, Fault::ShortWrite)])
    {
        for nth in 1..6 {
            let memory = MemoryVfs::new();
            let vfs = FaultyVfs::new(memory.arc());
            let mut log = open(&vfs).unwrap().log;
            vfs.fail(operation, nth, fault);
            let (mut taken, mut refused) = (0, 0);
            while taken < 60 {
                match append(&mut log, taken..taken + 3, 900) {
                    Ok(_) => taken += 3,
                    Err(error) => {
                        assert!(matches!(error, Error::Io { .. }), "{error}");
                        refused += 1;
                    }
                }
            }
            assert!(refused <= 1, "{operation:?} {nth}: refused {refused} times");
            let unfinished = vfs.list(Path::new("/log")).unwrap().iter().filter(|name| name.ends_with(".new")).count();
            assert_eq!(unfinished, 0, "half a file is in the way of others");
            log.sync().unwrap();
            memory.crash(nth);
            assert_eq!(open(&memory).unwrap().records, (0..60).collect::<Vec<_>>(), "{operation:?} {nth}");
        }
    }
}

/// A segment that could not be taken out of the log is taken out by the next attempt, and its file is used again.
#[test]
fn discarding_goes_on_where_it_failed() {
    for operation in [Operation::Exists, Operation::Open, Operation::Len, Operation::Rename, Operation::SyncDir] {
        for nth in 1..4 {
            let memory = MemoryVfs::new();
            let vfs = FaultyVfs::new(memory.arc());
            let mut log = open(&vfs).unwrap().log;
            append(&mut log, 0..60, 900).unwrap();
            log.sync().unwrap();
            let end = log.end();
            vfs.fail(operation, nth, Fault::Device);
            assert!(log.discard_before(end).is_err());
            log.discard_before(end).unwrap();
            assert_eq!(segments(&memory), [segment_path(Path::new("/log"), end.segment)]);
            append(&mut log, 60..90, 900).unwrap();
            log.sync().unwrap();
            assert_eq!(vfs.list(Path::new("/log")).unwrap().len(), 5, "{operation:?} {nth}: all spares are used");
            drop(log);
            memory.crash(nth);
            let records = open_from(&memory, end).unwrap().records;
            assert_eq!(records, (60..90).collect::<Vec<_>>());
        }
    }
}

#[test]
fn every_failing_call_of_a_switch_leaves_what_was_synced() {
    for operation in [Operation::Create, Operation::Write, Operation::Sync, Operation::Rename, Operation::SyncDir] {
        for nth in 1..8 {
            let memory = MemoryVfs::new();
            let vfs = FaultyVfs::new(memory.arc());
            let mut log = open(&vfs).unwrap().log;
            append(&mut log, 0..5, 900).unwrap();
            log.sync().unwrap();
            vfs.fail(operation, nth, Fault::Device);
            let result = append(&mut log, 5..20, 900).and_then(|_| log.sync());
            drop(log);
            memory.crash(nth);
            let records = open(&memory).unwrap().records;
            let least = if result.is_ok() { 20 } else { 5 };
            assert!(records.len() >= least);
            assert_eq!(records, (0..records.len() as u64).collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_same_log_on_a_disk() {
    let directory = tempfile::tempdir().unwrap();
    let options = || LogOptions { directory: directory.path().join("log"), ..options() };
    let mut records = Vec::new();
    for round in 0..3 {
        records.clear();
        let mut log = CommitLog::open(Arc::new(crate::vfs::disk::DiskVfs), options(), Position::default(), &mut |r| {
            records.push(number_of(&r.record));
            Ok(())
        })
        .unwrap();
        assert_eq!(records, (0..round * 40).collect::<Vec<_>>());
        append(&mut log, round * 40..round * 40 + 40, 900).unwrap();
        log.sync().unwrap();
    }
}
