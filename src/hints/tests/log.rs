//! The log: what is durable comes back in order, once and again until it is acknowledged; nothing else comes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;

use super::{hint, number_of};
use crate::hints::{Bound, HintLog, LogOptions, Place, targets};
use crate::model::{Identity, NodeId, VnodeBits};
use crate::vfs::Vfs;
use crate::vfs::faulty::{Fault, FaultyVfs, Operation};
use crate::vfs::memory::MemoryVfs;

const OWNER: Identity = Identity { cluster: uuid::Uuid::from_u128(7), node: NodeId(3), vnode_bits: VnodeBits::DEFAULT };
const HOUR_US: i64 = 3_600_000_000;

fn options() -> LogOptions {
    LogOptions {
        directory: PathBuf::from("/hints/2"),
        owner: OWNER,
        target: NodeId(2),
        segment_bytes: 1_000,
        bytes_max: 1 << 20,
        window_us: 3 * HOUR_US,
    }
}

fn open(vfs: &(impl Vfs + Clone)) -> HintLog {
    HintLog::open(Arc::new(vfs.clone()), options()).unwrap()
}

/// Appends the hints of these numbers, written at `now_us`.
fn append(log: &mut HintLog, numbers: std::ops::Range<u64>, now_us: i64) {
    let hints: Vec<_> = numbers.map(|number| hint(number, 80, now_us)).collect();
    let appended = log.append(&hints, now_us);
    assert_eq!((appended.written, appended.failed), (hints.len() as u64, 0), "{:?}", appended.error);
}

/// The numbers of all hints that are not acknowledged, and where they end. Faults that are met on the way end none.
fn pending(log: &mut HintLog) -> Vec<(u64, Place)> {
    let (mut found, mut from) = (Vec::new(), log.acknowledged());
    loop {
        let loaded = (0..50).find_map(|_| log.load(from, 200).ok());
        let Some(loaded) = loaded else { return found };
        found.extend(loaded.hints.iter().map(|stored| (number_of(&stored.hint), stored.end)));
        if loaded.next == from {
            return found;
        }
        from = loaded.next;
    }
}

fn numbers(log: &mut HintLog) -> Vec<u64> {
    pending(log).into_iter().map(|(number, _)| number).collect()
}

fn files(vfs: &dyn Vfs) -> Vec<String> {
    let names = vfs.list(Path::new("/hints/2")).unwrap();
    names.into_iter().filter(|name| name.ends_with(".hints")).collect()
}

#[test]
fn hints_come_back_in_order_until_they_are_acknowledged() {
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs);
    append(&mut log, 0..30, 5);
    log.sync().unwrap();
    append(&mut log, 30..40, 6);
    assert_eq!(numbers(&mut log), (0..40).collect::<Vec<_>>());
    assert!(files(&vfs).len() > 2, "several segments");
    let all = pending(&mut log);
    log.acknowledge(all[24].1).unwrap();
    log.save().unwrap();
    assert_eq!(numbers(&mut log), (25..40).collect::<Vec<_>>());
    assert_eq!(log.oldest_us(), Some(5));
    drop(log);
    let mut log = open(&vfs);
    assert_eq!(numbers(&mut log), (25..40).collect::<Vec<_>>(), "a restart goes on where it was");
    append(&mut log, 40..42, 7);
    assert_eq!(numbers(&mut log), (25..42).collect::<Vec<_>>());
    assert_eq!(targets(&vfs, Path::new("/hints")).unwrap(), [NodeId(2)]);
}

/// Files deleted unsent: draining the hints of a node that was being removed began before delivery did, and took the
/// files away. Here a file goes when everything in it was acknowledged, and at no other moment.
#[test]
fn b068_a_file_goes_only_when_all_in_it_was_acknowledged() {
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs);
    append(&mut log, 0..30, 5);
    log.sync().unwrap();
    let all = pending(&mut log);
    for at in 0..all.len() {
        let held = files(&vfs);
        log.acknowledge(all[at].1).unwrap();
        let first_left = all.get(at + 1).map(|(_, end)| end.segment);
        let expected: Vec<_> = held
            .iter()
            .filter(|name| first_left.is_some_and(|first| **name >= format!("{first:020}.hints")))
            .cloned()
            .collect();
        assert_eq!(files(&vfs), expected, "after {at}");
    }
    assert!(files(&vfs).is_empty());
    assert_eq!(log.pending_bytes(), 0);
    // Numbers are not used again, also if all files are gone.
    log.save().unwrap();
    let mut log = open(&vfs);
    append(&mut log, 30..31, 6);
    assert_eq!(numbers(&mut log), [30]);
}

/// The window in which hints are written was counted from the first outage ever, or began anew with each restart. Here it
/// begins with the oldest hint that is not delivered, as it stands on the disk.
#[test]
fn b067_the_window_begins_with_the_oldest_hint_on_disk() {
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs);
    // A first outage, long ago, whose hints were delivered.
    append(&mut log, 0..2, 0);
    let last = pending(&mut log).last().unwrap().1;
    log.acknowledge(last).unwrap();
    log.save().unwrap();
    // A second one is hinted.
    let begin = 100 * HOUR_US;
    append(&mut log, 2..4, begin);
    append(&mut log, 4..6, begin + 2 * HOUR_US);
    log.sync().unwrap();
    drop(log);
    // In spite of a restart hinting stops when its time is over.
    let mut log = open(&vfs);
    append(&mut log, 6..7, begin + 3 * HOUR_US);
    let late = log.append(&[hint(7, 80, 0)], begin + 3 * HOUR_US + 1);
    assert_eq!((late.written, late.refused), (0, Some((Bound::Age, 1))));
    // Once the oldest are delivered there is room for more.
    let third = pending(&mut log)[2].1;
    log.acknowledge(third).unwrap();
    append(&mut log, 7..8, begin + 4 * HOUR_US);
    assert_eq!(numbers(&mut log), [5, 6, 7]);
}

#[test]
fn no_more_bytes_are_taken_than_allowed() {
    let vfs = MemoryVfs::new();
    let mut log = HintLog::open(Arc::new(vfs), LogOptions { bytes_max: 5_000, ..options() }).unwrap();
    let hints: Vec<_> = (0..100).map(|number| hint(number, 80, 0)).collect();
    let appended = log.append(&hints, 0);
    let (bound, refused) = appended.refused.unwrap();
    assert_eq!((bound, appended.written + refused), (Bound::Bytes, 100));
    assert!(log.bytes() <= 5_000 && appended.written >= 40, "{} in {} bytes", appended.written, log.bytes());
    assert_eq!(numbers(&mut log), (0..appended.written).collect::<Vec<_>>());
    let half = pending(&mut log)[20].1;
    log.acknowledge(half).unwrap();
    assert!(log.append(&[hint(100, 80, 0)], 0).written == 1, "room that was made is used");
}

#[test]
fn a_damaged_segment_is_set_aside_and_the_others_are_delivered() {
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs);
    append(&mut log, 0..30, 5);
    log.sync().unwrap();
    let all = pending(&mut log);
    let second = all[12].1.segment;
    drop(log);
    let path = format!("/hints/2/{second:020}.hints");
    for (offset, first_lost) in [(10, 0), (300, 1)] {
        let whole = bytes_of(&vfs, Path::new(&path));
        vfs.open(Path::new(&path)).unwrap().write_at(&[whole[offset] ^ 1], offset as u64).unwrap();
        let mut log = open(&vfs);
        let found = numbers(&mut log);
        assert_eq!(log.damaged(), 1);
        let before = all.iter().filter(|(_, end)| end.segment < second).count() as u64;
        assert!(found.starts_with(&(0..before).collect::<Vec<_>>()));
        assert_eq!(found.last(), Some(&29));
        let of_second = all.iter().filter(|(number, end)| end.segment == second && found.contains(number)).count();
        assert!(of_second <= first_lost * 12, "{of_second}");
        assert_eq!(open(&vfs).damaged(), 1, "and told of by the next run too");
        vfs.rename(Path::new(&path.replace(".hints", ".damaged")), Path::new(&path)).unwrap();
        vfs.open(Path::new(&path)).unwrap().write_at(&whole, 0).unwrap();
    }
}

fn bytes_of(vfs: &dyn Vfs, path: &Path) -> Vec<u8> {
    let file = vfs.open(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Every byte of a log flipped: what comes is what was written, and what does not come is counted.
#[test]
fn whatever_byte_is_flipped_nothing_else_is_delivered() {
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs);
    for number in 0..14 {
        append(&mut log, number..number + 1, 5);
        log.sync().unwrap();
    }
    drop(log);
    for name in files(&vfs) {
        let path = Path::new("/hints/2").join(&name);
        let whole = bytes_of(&vfs, &path);
        for (at, byte) in whole.iter().enumerate() {
            let copy = MemoryVfs::new();
            copy.create_dir(Path::new("/hints/2")).unwrap();
            for other in files(&vfs) {
                let other = Path::new("/hints/2").join(other);
                copy.create(&other).unwrap().write_at(&bytes_of(&vfs, &other), 0).unwrap();
            }
            copy.open(&path).unwrap().write_at(&[byte ^ 0x10], at as u64).unwrap();
            let mut log = open(&copy);
            let found = numbers(&mut log);
            assert!(found.is_sorted() && found.iter().all(|number| *number < 14), "{name} {at}: {found:?}");
            // The last hint alone may be taken for a torn tail, since no mark stands behind it.
            assert!(log.damaged() == 1 || found == (0..13).collect::<Vec<_>>(), "{name} {at}: {found:?}");
        }
    }
}

#[test]
fn what_is_dropped_is_gone_for_good() {
    let vfs = MemoryVfs::new();
    let mut log = open(&vfs);
    append(&mut log, 0..30, 5);
    log.clear().unwrap();
    assert_eq!((numbers(&mut log), log.pending_bytes(), log.oldest_us()), (Vec::new(), 0, None));
    append(&mut log, 30..31, 5);
    log.sync().unwrap();
    vfs.crash(3);
    assert_eq!(numbers(&mut open(&vfs)), [30]);
}

#[test]
fn a_full_disk_stops_hints_until_there_is_room() {
    let vfs = FaultyVfs::new(Arc::new(MemoryVfs::new()));
    let mut log = open(&vfs);
    append(&mut log, 0..5, 5);
    log.sync().unwrap();
    vfs.fill();
    let appended = log.append(&[hint(5, 80, 5), hint(6, 2_000, 5)], 5);
    assert_eq!((appended.written, appended.failed), (0, 2));
    assert!(appended.error.is_some());
    assert_eq!(numbers(&mut log), [0, 1, 2, 3, 4], "what there was is delivered");
    vfs.make_room();
    append(&mut log, 7..20, 5);
    log.sync().unwrap();
    assert_eq!(numbers(&mut open(&vfs)), (0..5).chain(7..20).collect::<Vec<_>>());
}

/// Appends, syncs and acknowledges by turns; what is durable and what is acknowledged, as numbers before these.
fn script(log: &mut HintLog, synced: &mut u64, acknowledged: &mut u64) {
    for round in 0..6u64 {
        let hints: Vec<_> = (round * 5..round * 5 + 5).map(|number| hint(number, 120, 1)).collect();
        if log.append(&hints, 1).written == 5 && log.sync().is_ok() {
            *synced = round * 5 + 5;
        } else {
            return;
        }
        let place = pending(log).get(2).map(|(number, place)| (*number, *place));
        if let Some((number, place)) = place {
            *acknowledged = number + 1;
            if log.acknowledge(place).is_err() || log.save().is_err() {
                return;
            }
        }
    }
}

/// The power goes at every call in turn, and again at every call of the start after it.
#[test]
fn power_may_go_at_any_call() {
    let whole = MemoryVfs::new();
    script(&mut open(&whole), &mut 0, &mut 0);
    for stop in 1..=whole.operations() {
        for seed in 0..3 {
            let vfs = MemoryVfs::new();
            let (mut synced, mut acknowledged) = (0, 0);
            vfs.power_off_at(stop);
            if let Ok(mut log) = HintLog::open(Arc::new(vfs.clone()), options()) {
                script(&mut log, &mut synced, &mut acknowledged);
            }
            vfs.crash(seed * 1_000 + stop);
            let again = stop % 17 + 1;
            vfs.power_off_at(again);
            drop(HintLog::open(Arc::new(vfs.clone()), options()));
            vfs.crash(seed * 1_000 + stop + 500);
            let mut log = open(&vfs);
            let found = numbers(&mut log);
            assert!(found.is_sorted_by(|one, next| one < next), "{stop} {seed}: {found:?}");
            let owed: Vec<u64> = (acknowledged..synced).collect();
            assert!(owed.iter().all(|number| found.contains(number)), "{stop} {seed}: {owed:?} of {found:?}");
            assert_eq!(log.damaged(), 0, "{stop} {seed}");
            append(&mut log, 100..103, 1);
            log.sync().unwrap();
            vfs.crash(seed);
            assert!(numbers(&mut open(&vfs)).ends_with(&[100, 101, 102]), "{stop} {seed}");
        }
    }
}

/// A segment that could be neither begun nor removed is there with a header that the disk does not have. The next run must
/// not rely on it: the segment behind it tells where this one ends.
#[test]
fn a_header_that_a_failed_sync_has_left_is_not_relied_on() {
    for seed in 0..20 {
        let memory = MemoryVfs::new();
        let vfs = FaultyVfs::new(Arc::new(memory.clone()));
        let mut log = open(&vfs);
        append(&mut log, 0..1, 1);
        drop(log);
        let mut log = reopened(&vfs);
        vfs.fail(Operation::Remove, 1, Fault::Device);
        memory.fail_next_sync(seed);
        assert_eq!(log.append(&[hint(1, 8, 1)], 1).failed, 1);
        drop(log);
        let mut log = reopened(&vfs);
        append(&mut log, 2..3, 1);
        drop(log);
        memory.crash(seed);
        assert_eq!(reopened(&vfs).damaged(), 0, "{seed}");
    }
}

#[derive(Debug, Clone)]
enum Act {
    Append(u64, usize),
    Sync,
    FailSync(u64),
    Acknowledge(u64),
    Save,
    Restart,
    Crash(u64),
    Fault(Operation, u64, Fault),
}

fn act() -> impl Strategy<Value = Act> {
    let operations = [
        Operation::Create,
        Operation::Open,
        Operation::SyncDir,
        Operation::Rename,
        Operation::Remove,
        Operation::Write,
        Operation::Sync,
        Operation::Exists,
        Operation::List,
        Operation::Len,
    ];
    let faults = [Fault::Device, Fault::Full, Fault::ShortWrite];
    prop_oneof![
        4 => (1..12u64, 8..400usize).prop_map(|(count, size)| Act::Append(count, size)),
        3 => Just(Act::Sync),
        1 => any::<u64>().prop_map(Act::FailSync),
        2 => (0..30u64).prop_map(Act::Acknowledge),
        1 => Just(Act::Save),
        1 => Just(Act::Restart),
        1 => any::<u64>().prop_map(Act::Crash),
        1 => (proptest::sample::select(operations.to_vec()), 1..3u64, proptest::sample::select(faults.to_vec()))
            .prop_map(|(operation, nth, fault)| Act::Fault(operation, nth, fault)),
    ]
}

/// What must be there: numbers that were synced and not acknowledged yet.
#[derive(Default)]
struct Owed {
    next: u64,
    /// Appended since the last sync.
    fresh: Vec<u64>,
    synced: Vec<u64>,
}

fn reopened(vfs: &FaultyVfs) -> HintLog {
    // A fault that is still due may be met here; the next attempt goes well.
    (0..40).find_map(|_| HintLog::open(Arc::new(vfs.clone()), options()).ok()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Through power losses, failed syncs and failing calls: what was synced comes until it is acknowledged, in its order,
    /// and only what was appended comes.
    #[test]
    fn nothing_durable_is_lost(acts in proptest::collection::vec(act(), 1..40)) {
        let memory = MemoryVfs::new();
        let vfs = FaultyVfs::new(Arc::new(memory.clone()));
        let (mut log, mut owed) = (open(&vfs), Owed::default());
        for act in acts {
            match act {
                Act::Append(count, size) => {
                    let hints: Vec<_> = (owed.next..owed.next + count).map(|number| hint(number, size, 1)).collect();
                    let lost = log.lost();
                    let appended = log.append(&hints, 1);
                    prop_assert_eq!(appended.written + appended.failed, count);
                    owed.fresh.extend(owed.next..owed.next + appended.written);
                    if log.lost() > lost {
                        // A segment was full and could not be synced: nothing was written behind it.
                        owed.fresh.clear();
                    }
                    owed.next += count;
                }
                Act::Sync => match log.sync() {
                    Ok(()) => owed.synced.append(&mut owed.fresh),
                    Err(_) => owed.fresh.clear(),
                },
                Act::FailSync(seed) => memory.fail_next_sync(seed),
                Act::Acknowledge(count) => {
                    if let Some((number, place)) = pending(&mut log).get(count as usize).copied() {
                        let _ = log.acknowledge(place);
                        owed.synced.retain(|synced| *synced > number);
                        owed.fresh.retain(|fresh| *fresh > number);
                    }
                }
                Act::Save => drop(log.save()),
                Act::Restart => {
                    drop(log);
                    log = reopened(&vfs);
                    owed.fresh.clear();
                    prop_assert_eq!(log.damaged(), 0);
                }
                Act::Crash(seed) => {
                    drop(log);
                    memory.crash(seed);
                    log = reopened(&vfs);
                    owed.fresh.clear();
                    let found = numbers(&mut log);
                    prop_assert!(found.is_sorted_by(|one, next| one < next), "{found:?}");
                    prop_assert!(found.last().is_none_or(|last| *last < owed.next));
                    prop_assert_eq!(log.damaged(), 0);
                    // What was there and not relied on is, from now on.
                    owed.synced.extend(found.iter().filter(|number| owed.synced.last().is_none_or(|last| *number > last)).copied().collect::<Vec<_>>());
                }
                Act::Fault(operation, nth, fault) => vfs.fail(operation, nth, fault),
            }
            let found = numbers(&mut log);
            let missing: Vec<_> = owed.synced.iter().filter(|number| !found.contains(number)).collect();
            prop_assert!(missing.is_empty(), "{missing:?} of {found:?}");
        }
    }
}
