//! Every byte of every file of a store, changed, and every length cut: the store refuses to open, or a read names the
//! damage, or everything is answered as it was. A damaged end of the log's open segment, and only that, may also look like
//! one that was torn while it was written: then the answer is that of an earlier moment, and the check of a stopped store
//! would say the same.
//!
//! Files are small enough that nothing is skipped, but for the zeros that a log's segment is filled with: of those every
//! hundredth is changed. `TREFOIL_BYTES=all` changes them too, and each byte in several ways.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use trefoil::store::{SnapshotScope, Store};
use trefoil::vfs::Vfs;
use trefoil::vfs::memory::MemoryVfs;
use trefoil::{Class, Result};

use crate::{Data, History, Random, TABLES, Write, open, read_tables};

/// Of the bytes behind the last that is not zero, one in so many.
const ZEROS_STEP: usize = 100;

/// A directory: its files by their paths.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// What was written, and what its files are.
struct Sample {
    files: Files,
    history: History,
    /// So many of the writes are in files or below a sync that the log knows of.
    settled: usize,
}

/// How the process ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Closed,
    Killed,
}

/// Files of two flushes, a snapshot of them, and a log behind them.
fn sample(ending: Ending) -> Sample {
    let vfs = MemoryVfs::new();
    let store = open(&vfs).unwrap();
    let (mut random, mut history) = (Random(1), History::default());
    let write = |random: &mut Random, history: &mut History, writes: usize| {
        for _ in 0..writes {
            let write = Write { padding: random.below(40) as usize, ..Write::any(random, TABLES) };
            let record = write.record(history.writes.len() as u64 + 1);
            history.writes.push(write);
            let mut ends = Vec::new();
            store.append(std::slice::from_ref(&record), &mut ends).unwrap();
            store.sync().unwrap();
            store.insert(&record, ends[0]).unwrap();
        }
    };
    write(&mut random, &mut history, 10);
    store.flush(None).unwrap();
    write(&mut random, &mut history, 6);
    store.flush(Some(TABLES[0])).unwrap();
    write(&mut random, &mut history, 4);
    store.create_snapshot("kept", SnapshotScope::All, 1).unwrap();
    let settled = history.writes.len();
    write(&mut random, &mut history, 5);
    if ending == Ending::Closed {
        store.close().unwrap();
    }
    drop(store);
    history.acknowledged = history.writes.len();
    let mut files = Files::new();
    collect(&vfs, Path::new("/node"), &mut files);
    Sample { files, history, settled }
}

fn collect(vfs: &MemoryVfs, directory: &Path, files: &mut Files) {
    for name in vfs.list(directory).unwrap() {
        let path = directory.join(name);
        match vfs.open(&path) {
            Ok(file) => {
                let mut bytes = vec![0; file.len().unwrap() as usize];
                file.read_at(&mut bytes, 0).unwrap();
                files.insert(path, bytes);
            }
            Err(_) => collect(vfs, &path, files),
        }
    }
}

fn restored(files: &Files) -> MemoryVfs {
    let vfs = MemoryVfs::new();
    for (path, bytes) in files {
        vfs.create_dir(path.parent().unwrap()).unwrap();
        let file = vfs.create(path).unwrap();
        file.write_at(bytes, 0).unwrap();
    }
    vfs
}

/// What a damaged directory does.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing is told that is not true: the error is one of damage.
    Noticed,
    Answers(Data),
}

fn outcome(files: &Files) -> Outcome {
    let attempt = || -> Result<Data> {
        let store: Store = open(&restored(files))?;
        let data = read_tables(&store, TABLES)?;
        let list = store.snapshots();
        assert!(list.whole.len() + list.damaged.len() <= 1);
        if let Some(snapshot) = list.whole.values().next() {
            assert_eq!((snapshot.name.as_str(), snapshot.tables.len()), ("kept", 2));
        }
        Ok(data)
    };
    match attempt() {
        Ok(data) => Outcome::Answers(data),
        Err(error) => {
            assert!(matches!(error.class(), Class::Corrupt | Class::Invalid | Class::Unavailable), "{error}");
            Outcome::Noticed
        }
    }
}

impl Sample {
    /// Tries the directory with one file changed; whether it was noticed.
    fn with(&self, path: &Path, bytes: Vec<u8>, what: &str) -> bool {
        let mut files = self.files.clone();
        files.insert(path.to_owned(), bytes);
        let outcome = catch_unwind(AssertUnwindSafe(|| outcome(&files)));
        let found = outcome.unwrap_or_else(|_| panic!("{}, {what}: a panic", path.display()));
        let Outcome::Answers(data) = found else { return true };
        let all = self.history.writes.len();
        let earliest = if is_log(path) { self.settled } else { all };
        let is_true = (earliest..=all).rev().any(|writes| self.history.data(writes) == data);
        assert!(is_true, "{}, {what}: a wrong answer", path.display());
        false
    }

    fn check(&self, path: &Path) -> (usize, usize) {
        let bytes = &self.files[path];
        let everything = std::env::var("TREFOIL_BYTES").is_ok_and(|value| value == "all");
        let filled = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let is_tried = |at: &usize| everything || *at < filled || at.is_multiple_of(ZEROS_STEP);
        let masks: &[u8] = if everything { &[0x01, 0x80, 0xff] } else { &[0] };
        let (mut tried, mut noticed) = (0, 0);
        for at in (0..bytes.len()).filter(is_tried) {
            for mask in masks {
                let mask = if *mask == 0 { 1 << (at % 8) } else { *mask };
                let mut flipped = bytes.clone();
                flipped[at] ^= mask;
                tried += 1;
                noticed += usize::from(self.with(path, flipped, &format!("byte {at} ^ {mask:02x}")));
            }
            noticed += usize::from(self.with(path, bytes[..at].to_vec(), &format!("cut to {at} bytes")));
            tried += 1;
        }
        (tried, noticed)
    }
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

/// Files whose name fits, each with every byte changed and every length cut; most of it must be noticed, or the test
/// damages nothing.
fn every_byte(ending: Ending, kind: fn(&Path) -> bool, least_noticed_percent: usize) {
    let sample = sample(ending);
    assert_eq!(outcome(&sample.files), Outcome::Answers(sample.history.data(sample.history.writes.len())));
    let paths: Vec<_> = sample.files.keys().filter(|path| kind(path) && !sample.files[*path].is_empty()).collect();
    assert!(!paths.is_empty(), "no such file among {:?}", sample.files.keys());
    for path in paths {
        assert!(sample.files[path].len() <= 64 << 10);
        let (tried, noticed) = sample.check(path);
        let percent = noticed * 100 / tried;
        assert!(percent >= least_noticed_percent, "{}: {noticed} of {tried} were noticed", path.display());
    }
}

#[test]
fn every_byte_of_the_manifest() {
    every_byte(Ending::Killed, |path| path.ends_with("MANIFEST"), 30);
}

#[test]
fn every_byte_of_the_identity() {
    every_byte(Ending::Killed, |path| path.ends_with("IDENTITY"), 100);
}

#[test]
fn every_byte_of_tables_files() {
    every_byte(Ending::Killed, |path| path.starts_with("/node/data"), 100);
}

/// Nothing is answered from a snapshot; that its manifest and files are checked is shown where snapshots are.
#[test]
fn every_byte_of_a_snapshot_leaves_the_store_alone() {
    every_byte(Ending::Killed, |path| path.starts_with("/node/snapshots"), 0);
}

#[test]
fn every_byte_of_a_sealed_log() {
    every_byte(Ending::Closed, is_log, 1);
}

#[test]
fn every_byte_of_an_open_log() {
    every_byte(Ending::Killed, is_log, 1);
}
