//! Every call of the file system fails, one after the other, while a store works through a script.
//!
//! The script writes to two tables in both modes, flushes, compacts, makes and removes snapshots, drops a table for another,
//! closes and opens again. It
//! runs once to count the calls, then once for every call and every way in which that call can fail. What must hold:
//!
//! - The step that met the fault fails or has done its work. Tried again, it succeeds without a restart; only after a
//!   failed sync the log takes nothing more until the store is opened again.
//! - At each moment reads answer exactly what was inserted, and what is told as received is durable and inserted.
//! - After a restart or a loss of power everything that was acknowledged is there, nothing that was refused for certain,
//!   and the data is that of the received set.
//!
//! - A snapshot that was made holds what was seen when it was, whatever happened since; so does the one of the dropped table.
//!
//! Random workloads of the same steps lose their power at every call in turn: what must hold is the same.
//!
//! `TREFOIL_FAULTS=all` tries every call; otherwise it is a slice of them.

use std::path::Path;

use trefoil::Error;
use trefoil::snapshot::Cause;
use trefoil::store::SnapshotScope;
use trefoil::vfs::faulty::{Fault, FaultyVfs, Operation};

use super::*;

/// One in so many faults is tried unless all are asked for; a prime, so that no kind of call is left out.
const SLICE: u64 = 67;

/// Workloads that lose their power at every call, and one in so many of these that is tried unless all are asked for.
const WORKLOADS: u64 = 100;
const POINTS_SLICE: u64 = 61;

/// After so many steps behind the fault everything is looked at.
const WATCHED: u32 = 4;

const OPERATIONS: [Operation; 17] = [
    Operation::Create,
    Operation::Open,
    Operation::Exists,
    Operation::List,
    Operation::CreateDir,
    Operation::SyncDir,
    Operation::Rename,
    Operation::Link,
    Operation::Remove,
    Operation::RemoveDir,
    Operation::Lock,
    Operation::Read,
    Operation::Write,
    Operation::Sync,
    Operation::Len,
    Operation::SetLen,
    Operation::Map,
];

/// Takes the place of the second table.
const SUCCESSOR: TableId = TableId(Uuid::from_u128(3));

/// One step of the script.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Three writes in one group, acknowledged when they are durable.
    Commit,
    /// Three writes in one group, visible before they are durable.
    Periodic,
    Sync,
    PrepareLog,
    FlushNext,
    Flush,
    Compact,
    Snapshot,
    /// The oldest.
    RemoveSnapshot,
    DropTable,
    Read,
    Close,
    Restart,
}

fn script() -> Vec<Step> {
    use Step::*;
    let mut steps = Vec::new();
    for round in 0..8 {
        steps.extend([Commit, Periodic, if round % 3 == 0 { FlushNext } else { Commit }, Flush]);
    }
    steps.extend([
        Read,
        Snapshot,
        Compact,
        Compact,
        Read,
        PrepareLog,
        Commit,
        Periodic,
        Snapshot,
        Sync,
        DropTable,
        Commit,
        FlushNext,
        Read,
        RemoveSnapshot,
        Restart,
    ]);
    steps.extend([Commit, Flush, Commit, Periodic, Close, Restart, Read, Periodic, Commit, FlushNext]);
    steps
}

/// A workload without reads: those are at its end.
fn workload(seed: u64) -> Vec<Step> {
    use Step::*;
    let mut random = Random(seed);
    let mut steps = Vec::new();
    for _ in 0..30 {
        match random.below(18) {
            0..4 => steps.push(Commit),
            4..7 => steps.push(Periodic),
            7 => steps.push(Sync),
            8..10 => steps.push(FlushNext),
            10 => steps.push(Flush),
            11..13 => steps.push(Compact),
            13..15 => steps.push(Snapshot),
            15 => steps.push(RemoveSnapshot),
            16 => steps.push(Restart),
            _ => steps.extend([Close, Restart]),
        }
    }
    steps.insert(random.below(steps.len() as u64) as usize, DropTable);
    // Where it has split a stop from the start behind it, the log takes nothing: the start comes first.
    if let Some(at) = steps.windows(2).position(|pair| matches!(pair, [Close, DropTable])) {
        steps.swap(at + 1, at + 2);
    }
    steps
}

/// How one call fails.
#[derive(Debug, Clone, Copy)]
enum Failure {
    Planned(Fault),
    /// As page caches fail: the seed says what is on the disk, and reads see all of it.
    LostSync(u64),
}

impl Failure {
    fn all_of(operation: Operation, nth: u64) -> Vec<Failure> {
        let mut failures = vec![Failure::Planned(Fault::Device), Failure::Planned(Fault::Full)];
        match operation {
            Operation::Write => failures.push(Failure::Planned(Fault::ShortWrite)),
            Operation::Sync => failures.extend([nth, !nth, nth << 20].map(Failure::LostSync)),
            _ => {}
        }
        failures
    }
}

/// What happens as soon as the fault was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    GoesOn,
    Restarts,
    LosesPower,
    /// It goes on for a while first.
    LosesPowerLater,
}

const ENDINGS: [Then; 4] = [Then::GoesOn, Then::Restarts, Then::LosesPower, Then::LosesPowerLater];

/// What is known of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It was refused; the log may hold it all the same.
    Unknown,
    /// Inserted, not known to be durable.
    Visible,
    Acknowledged,
    /// It must never be seen.
    Void,
}

/// A store and everything that must be true of it.
struct Run {
    memory: MemoryVfs,
    vfs: FaultyVfs,
    store: Option<Store>,
    tables: [TableId; 2],
    writes: Vec<(Write, Fate)>,
    random: Random,
    fault: Option<(Operation, u64, Failure)>,
    then: Then,
    /// What is to happen with the fault has happened.
    is_settled: bool,
    /// Steps after which everything is looked at again.
    watched: u32,
    /// Snapshots that are there, with what was seen when they were made.
    snapshots: BTreeMap<String, Data>,
    snapshots_made: usize,
    /// The power goes at some call, not yet met.
    is_power_doomed: bool,
}

impl Run {
    fn new(seed: u64, fault: Option<(Operation, u64, Failure)>, then: Then) -> Run {
        let memory = MemoryVfs::new();
        let vfs = FaultyVfs::new(Arc::new(memory.clone()));
        match fault {
            Some((operation, nth, Failure::Planned(fault))) => vfs.fail(operation, nth, fault),
            Some((_, nth, Failure::LostSync(seed))) => memory.fail_sync(nth, seed),
            None => {}
        }
        let (random, writes) = (Random(seed), Vec::new());
        let tables = TABLES;
        let (store, is_settled, watched) = (None, false, 0);
        let (snapshots, snapshots_made, is_power_doomed) = (BTreeMap::new(), 0, false);
        Run {
            memory,
            vfs,
            store,
            tables,
            writes,
            random,
            fault,
            then,
            is_settled,
            watched,
            snapshots,
            snapshots_made,
            is_power_doomed,
        }
    }

    /// One whose power goes at a call of the file system, counted from 1.
    fn losing_power(seed: u64, at: u64) -> Run {
        let run = Run::new(seed, None, Then::GoesOn);
        run.memory.power_off_at(at);
        Run { is_power_doomed: true, ..run }
    }

    fn is_met(&self) -> bool {
        self.fault.is_some_and(|(operation, nth, _)| self.vfs.calls(operation) >= nth)
    }

    fn work(&mut self, script: &[Step]) {
        self.step(Step::Restart);
        for step in script {
            self.step(*step);
        }
        self.lose_power();
        let report = Stopped::open(Arc::new(self.memory.clone()), Path::new("/node")).unwrap().check();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        self.step(Step::Restart);
        self.step(Step::Commit);
        self.step(Step::Flush);
        self.store().let_go(1).unwrap();
        self.check();
        self.check_snapshots();
        self.check_files();
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// Takes a step; if it meets the fault it may fail once, and once more if the log has failed.
    fn step(&mut self, step: Step) {
        if let Err(error) = self.attempt(step) {
            if std::mem::replace(&mut self.is_power_doomed, false) {
                return self.recover(step);
            }
            assert!(self.is_met() && !self.is_settled, "{step:?} failed without a fault: {error}");
            self.settle(step);
            // The log says so itself if it needs a restart, and it needs none but for a failed sync.
            if let Some(Err(error)) = self.store.as_ref().map(Store::sync) {
                assert!(matches!(error, Error::LogFailed { .. }), "{error}");
                assert!(
                    matches!(self.fault, Some((Operation::Sync, ..))),
                    "the log has failed without a sync: {error}"
                );
                self.refuses_writes();
                self.restart();
            }
            if let Err(error) = self.attempt(step) {
                panic!("{step:?} does not succeed after the fault: {error}");
            }
        } else if self.is_met() && !self.is_settled {
            self.settle(step);
        }
        // Before the fault all is as in the run without one, and long after it the script reads now and then.
        if self.watched > 0 {
            self.watched -= 1;
            self.check();
            if self.watched == 0 && self.then == Then::LosesPowerLater {
                self.lose_power();
                self.restart();
            }
        }
    }

    /// A file that the device did not give once is out of use until a start reads it whole.
    fn take_back(&mut self) {
        if self.store.as_ref().is_none_or(|store| store.quarantined().is_empty()) {
            return;
        }
        assert!(matches!(self.fault, Some((_, _, Failure::Planned(Fault::Device)))), "{:?}", self.fault);
        self.restart();
        assert!(self.store().quarantined().is_empty());
    }

    /// The power went in `step`.
    fn recover(&mut self, step: Step) {
        if matches!(step, Step::DropTable) {
            // The schema says so, whatever came of it here.
            self.tables = [TABLES[0], SUCCESSOR];
        }
        self.lose_power();
        let directory = Path::new("/node");
        if Stopped::is_at(&self.memory, directory).unwrap() {
            let report = Stopped::open(Arc::new(self.memory.clone()), directory).unwrap().check();
            assert!(report.findings.is_empty(), "{:?}", report.findings);
        }
        self.restart();
        self.check();
        self.attempt(step).unwrap();
    }

    /// The fault was met in `step`.
    fn settle(&mut self, step: Step) {
        self.is_settled = true;
        self.watched = WATCHED;
        self.take_back();
        if self.store.is_some() {
            self.check();
        }
        if matches!(step, Step::DropTable) && matches!(self.then, Then::Restarts | Then::LosesPower) {
            // The schema says so, whatever came of it here.
            self.tables = [TABLES[0], SUCCESSOR];
        }
        match self.then {
            Then::GoesOn | Then::LosesPowerLater => {}
            Then::Restarts => self.restart(),
            Then::LosesPower => {
                self.lose_power();
                self.restart();
            }
        }
    }

    fn attempt(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Commit => self.write(Step::Commit),
            Step::Periodic => self.write(Step::Periodic),
            Step::Sync => self.store().sync().map(drop),
            Step::PrepareLog => self.store().prepare_log(),
            Step::FlushNext => self.store().flush_next().map(drop),
            Step::Flush => self.store().flush(None),
            Step::Compact => self.store().compact_next(0, &Unpaced).map(drop),
            Step::Snapshot => self.make_snapshot(),
            Step::RemoveSnapshot => self.remove_snapshot(),
            Step::DropTable => {
                let tables = [TABLES[0], SUCCESSOR];
                self.store().set_tables(&specs(tables))?;
                self.tables = tables;
                self.store().let_go(1)
            }
            Step::Read => {
                self.check();
                self.check_snapshots();
                Ok(())
            }
            Step::Close => self.store().close(),
            Step::Restart => self.try_open(),
        }
    }

    fn write(&mut self, mode: Step) -> Result<()> {
        let first = self.writes.len();
        for _ in 0..3 {
            self.writes.push((Write::any(&mut self.random, self.tables), Fate::Unknown));
        }
        let records: Vec<_> = self.writes[first..]
            .iter()
            .zip(first as u64 + 1..)
            .map(|((write, _), number)| write.record(number))
            .collect();
        let mut ends = Vec::new();
        let store = self.store.as_ref().unwrap();
        store.append(&records, &mut ends)?;
        // Now that others stand where they might have stood, those that were refused are gone for good.
        for (_, fate) in self.writes[..first].iter_mut().filter(|(_, fate)| *fate == Fate::Unknown) {
            *fate = Fate::Void;
        }
        if matches!(mode, Step::Commit) {
            store.sync()?;
        }
        for (record, end) in records.iter().zip(&ends) {
            store.insert(record, *end)?;
        }
        let fate = if matches!(mode, Step::Commit) { Fate::Acknowledged } else { Fate::Visible };
        self.writes[first..].iter_mut().for_each(|(_, present)| *present = fate);
        Ok(())
    }

    fn make_snapshot(&mut self) -> Result<()> {
        let name = format!("snapshot {}", self.snapshots_made);
        let seen = self.seen_in(&self.tables);
        // One that failed may be there after a restart; it is whole then.
        if !self.store().snapshots().whole.values().any(|snapshot| snapshot.name == name) {
            self.store().create_snapshot(&name, SnapshotScope::All, 1)?;
        }
        self.snapshots_made += 1;
        self.snapshots.insert(name, seen);
        Ok(())
    }

    fn remove_snapshot(&mut self) -> Result<()> {
        let Some(name) = self.snapshots.keys().next().cloned() else { return Ok(()) };
        self.store().remove_snapshot(&name)?;
        self.snapshots.remove(&name);
        Ok(())
    }

    /// What was inserted into these tables.
    fn seen_in(&self, tables: &[TableId]) -> Data {
        let mut data = Data::new();
        for ((write, fate), number) in self.writes.iter().zip(1..) {
            if matches!(fate, Fate::Acknowledged | Fate::Visible) && tables.contains(&write.place.0) {
                write.apply(number, &mut data);
            }
        }
        data
    }

    /// Each snapshot holds what it must, and there is none that nobody made.
    fn check_snapshots(&self) {
        let list = self.store().snapshots();
        assert!(list.damaged.is_empty(), "{:?}", list.damaged);
        let (asked, own): (Vec<_>, Vec<_>) =
            list.whole.values().partition(|snapshot| snapshot.cause == Cause::Operator);
        let names: Vec<&String> = asked.iter().map(|snapshot| &snapshot.name).collect();
        assert!(names.len() == self.snapshots.len(), "{names:?}");
        for snapshot in asked {
            assert_eq!(kept::read(&self.memory, snapshot), self.snapshots[&snapshot.name], "{}", snapshot.name);
        }
        let dropped = self.seen_in(&TABLES[1..]);
        if self.tables == TABLES || self.store().has_leaving() {
            assert!(own.is_empty() || self.store().has_leaving(), "{own:?}");
        } else if !dropped.is_empty() {
            let [snapshot] = own[..] else { panic!("the dropped table is kept {} times", own.len()) };
            assert_eq!(kept::read(&self.memory, snapshot), dropped);
        }
    }

    fn refuses_writes(&self) {
        let record = Write::any(&mut Random(1), self.tables).record(1);
        let writes = self.vfs.calls(Operation::Write);
        let refused = self.store().append(&[record], &mut Vec::new());
        assert!(matches!(refused, Err(Error::LogFailed { .. })), "{refused:?}");
        assert_eq!(self.vfs.calls(Operation::Write), writes);
    }

    fn lose_power(&mut self) {
        self.store = None;
        self.memory.crash(self.random.below(u64::MAX));
    }

    /// Stops without closing anything, as a killed process does, and starts again, where the fault may be met.
    fn restart(&mut self) {
        self.step_open().unwrap();
    }

    fn step_open(&mut self) -> Result<()> {
        let was_met = self.is_met();
        match self.try_open() {
            Err(_) if !was_met && self.is_met() => self.try_open(),
            outcome => outcome,
        }
    }

    fn try_open(&mut self) -> Result<()> {
        self.store = None;
        let store = open_on(Arc::new(self.vfs.clone()), self.tables)?;
        self.resolve(&store);
        self.store = Some(store);
        Ok(())
    }

    /// What an open store has found: all that was acknowledged, nothing that is void, and of the rest what it says.
    fn resolve(&mut self, store: &Store) {
        let names = received_names(store);
        for ((_, fate), number) in self.writes.iter_mut().zip(1..) {
            *fate = match (*fate, names.binary_search(&number).is_ok()) {
                (Fate::Acknowledged, false) => panic!("write {number} was acknowledged and is lost"),
                (Fate::Void, true) => panic!("write {number} was refused and has come back"),
                (_, true) => Fate::Acknowledged,
                (_, false) => Fate::Void,
            };
        }
        assert!(names.last().is_none_or(|last| *last <= self.writes.len() as u64), "names were invented: {names:?}");
    }

    /// Reads answer what was inserted, and what is told is durable.
    fn check(&mut self) {
        let was_met = self.is_met();
        let read = match read_tables(self.store(), self.tables) {
            Err(error) => {
                assert!(!was_met && self.is_met(), "a read failed without a fault: {error}");
                self.take_back();
                read_tables(self.store(), self.tables).unwrap()
            }
            Ok(read) => read,
        };
        let names = received_names(self.store());
        let mut data = Data::new();
        for ((write, fate), number) in self.writes.iter_mut().zip(1..) {
            let is_told = names.binary_search(&number).is_ok();
            match fate {
                Fate::Acknowledged => assert!(is_told, "write {number} is not told any more"),
                Fate::Visible if is_told => *fate = Fate::Acknowledged,
                Fate::Visible => {}
                Fate::Unknown | Fate::Void => assert!(!is_told, "write {number} is told and was refused"),
            }
            let is_seen = matches!(fate, Fate::Acknowledged | Fate::Visible);
            if is_seen && self.tables.contains(&write.place.0) {
                write.apply(number, &mut data);
            }
        }
        assert_eq!(read, data);
    }

    fn files(&self) -> Vec<String> {
        ["/node", "/node/data", "/node/log"]
            .iter()
            .flat_map(|path| self.memory.list(Path::new(path)).unwrap())
            .collect()
    }

    /// Nothing is left lying about.
    fn check_files(&self) {
        let data = self.memory.list(Path::new("/node/data")).unwrap();
        assert_eq!(data.len() as u64, self.store().status().sstables, "{data:?}");
        let log = self.memory.list(Path::new("/node/log")).unwrap();
        assert!(!log.iter().any(|name| name.ends_with(".new")), "{log:?}");
        let snapshots = Path::new("/node/snapshots");
        let kept =
            if self.memory.exists(snapshots).unwrap() { self.memory.list(snapshots).unwrap() } else { Vec::new() };
        assert_eq!(kept.len() as u64, self.store().status().snapshots, "{kept:?}");
    }
}

/// Lets the calls of a script fail in turn, in one of `slice` ways.
fn fail_in_turn(script: &[Step], seed: u64, operations: &[Operation], slice: u64) {
    let mut clean = Run::new(seed, None, Then::GoesOn);
    clean.work(script);
    let mut at = 0;
    for operation in operations {
        for nth in 1..=clean.vfs.calls(*operation) {
            for failure in Failure::all_of(*operation, nth) {
                for then in ENDINGS {
                    at += 1;
                    if at % slice == 0 {
                        fail_once(script, seed, (*operation, nth, failure), then);
                    }
                }
            }
        }
    }
}

fn fail_once(script: &[Step], seed: u64, fault: (Operation, u64, Failure), then: Then) {
    let outcome = std::panic::catch_unwind(|| Run::new(seed, Some(fault), then).work(script));
    if let Err(panic) = outcome {
        let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        let (operation, nth, failure) = fault;
        panic!("seed {seed}: call {nth} of {operation:?} fails as {failure:?}, then the store {then:?}: {said}");
    }
}

fn tries_all() -> bool {
    std::env::var("TREFOIL_FAULTS").is_ok_and(|value| value == "all")
}

#[test]
fn every_call_may_fail_once() {
    fail_in_turn(&script(), 7, &OPERATIONS, if tries_all() { 1 } else { SLICE });
}

/// The power goes at each call of random workloads, with everything in them that changes a file.
#[test]
fn every_call_of_a_workload_may_be_the_last() {
    let (slice, mut at) = (if tries_all() { 1 } else { POINTS_SLICE }, 0);
    for seed in 0..WORKLOADS {
        let steps = workload(seed);
        let mut clean = Run::new(seed, None, Then::GoesOn);
        clean.step(Step::Restart);
        steps.iter().for_each(|step| clean.step(*step));
        for call in 1..=clean.memory.operations() {
            at += 1;
            if at % slice == 0
                && let Err(panic) = std::panic::catch_unwind(|| Run::losing_power(seed, call).work(&steps))
            {
                let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                panic!("seed {seed}: the power goes at call {call}: {said}");
            }
        }
    }
}

/// Nothing but manifest edits, one after the other: what an edit that failed has left must not get into the next one's
/// way, and no file may go that it may have listed.
#[test]
fn every_change_may_fail_once_between_flushes() {
    let script = [Step::Commit, Step::Flush, Step::Commit, Step::Flush, Step::Commit, Step::Flush];
    let changes = [Operation::Write, Operation::Sync, Operation::SyncDir, Operation::Rename, Operation::Remove];
    let (seeds, slice) = if tries_all() { (20, 1) } else { (1, 3) };
    for seed in 0..seeds {
        fail_in_turn(&script, seed, &changes, slice);
    }
}

/// A disk that is full for a while: writes, flushes and compactions are refused and change nothing, reads go on, and with
/// room again everything does, without a restart.
#[test]
fn a_full_disk_refuses_writes_keeps_reads_and_resumes() {
    let script = script();
    let (first, every) = if tries_all() { (0, 1) } else { (3, 8) };
    for at in (first..script.len()).step_by(every) {
        if matches!(script[..at].last(), Some(Step::Close)) {
            continue; // A log that was closed takes nothing, whatever the disk.
        }
        let mut run = Run::new(at as u64, None, Then::GoesOn);
        run.step(Step::Restart);
        script[..at].iter().for_each(|step| run.step(*step));
        run.vfs.fill();
        for step in [Step::Commit, Step::Periodic, Step::Flush, Step::FlushNext, Step::Compact, Step::Commit] {
            match run.attempt(step) {
                Err(Error::Io { source, .. }) => assert_eq!(source.kind(), std::io::ErrorKind::StorageFull),
                Err(error) => panic!("{error}"),
                Ok(()) => assert!(!matches!(step, Step::Commit | Step::Periodic), "{step:?} needs room"),
            }
            run.check();
        }
        let held = run.files();
        run.attempt(Step::Flush).ok();
        run.attempt(Step::Commit).ok();
        assert_eq!(run.files(), held, "what fails leaves nothing on a disk that is full");
        run.vfs.make_room();
        for step in [Step::Commit, Step::Periodic, Step::Flush, Step::Compact] {
            run.step(step);
            run.check();
        }
        run.work(&script[at..]);
    }
}
