//! Files in memory that know what a power loss takes.
//!
//! ```text
//!             now                 durable              between them, until synced
//!  contents   what reads see      what is on "disk"    writes and changes of length, in order
//!  names      what opens see      what is on "disk"    creations, renames, links, removals, in order
//! ```
//!
//! [`MemoryVfs::crash`] decides by a seed, for everything that is not synced, whether it happened: each write is kept,
//! lost, or kept in some of its 512-byte sectors only; each change of a name is kept or lost, except that a change is
//! lost whenever an earlier one of the same name is (a journal keeps that much order). Syncing a directory makes durable
//! all changes that touch it. What survives is the durable state from then on, and handles from before are dead.
//!
//! [`MemoryVfs::power_off_at`] stops the world in the middle: the n-th call fails, having done its work or not, and so
//! does every call behind it until the crash.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{File, Lock, Vfs, parent};
use crate::{Error, Result};

/// What a disk writes as a whole.
const SECTOR_BYTES: usize = 512;

/// More than any test writes; a larger offset is refused as a disk would, not tried.
const FILE_MAX_BYTES: u64 = 1 << 32;

/// A file system in memory; clones are the same one.
#[derive(Clone, Default)]
pub struct MemoryVfs {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    names: Names,
    durable: Names,
    renamed: Vec<NameChange>,
    directories: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
    /// Rises with each crash; handles of an earlier epoch are dead.
    epoch: u64,
    operations: u64,
    off_at: Option<u64>,
    off: bool,
    /// The sync of a file that fails, counted from the next one, and the seed that decides what of it reached the disk.
    failing_sync: Option<(u64, u64)>,
}

type Names = BTreeMap<PathBuf, Arc<Mutex<Inode>>>;

#[derive(Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

enum NameChange {
    Set { path: PathBuf, inode: Arc<Mutex<Inode>> },
    Remove { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, inode: Arc<Mutex<Inode>> },
}

/// Which unsynced changes a crash spares: a third of the crashes go to the extremes, where many faults hide.
#[derive(Clone, Copy)]
enum Mercy {
    All,
    None,
    Some,
}

impl MemoryVfs {
    /// An empty file system.
    pub fn new() -> MemoryVfs {
        MemoryVfs::default()
    }

    /// Calls so far, of the file system and of its files, since it was made or crashed last.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Lets the call number `operation` (counted as [`MemoryVfs::operations`] does, from 1) and all behind it fail. A
    /// write or change of a name that is stopped so may have happened.
    pub fn power_off_at(&self, operation: u64) {
        self.state.lock().off_at = Some(operation);
    }

    /// Lets the next sync of a file fail as page caches do: `seed` decides what reached the disk, reads go on to see all of
    /// it, and no later sync writes the rest.
    pub fn fail_next_sync(&self, seed: u64) {
        self.fail_sync(1, seed);
    }

    /// Lets the `nth` sync of a file from now on (1 is the next one) fail as [`MemoryVfs::fail_next_sync`] does.
    pub fn fail_sync(&self, nth: u64, seed: u64) {
        self.state.lock().failing_sync = Some((nth, seed));
    }

    /// Takes the power away and gives it back: what was not synced is kept, lost or torn, as `seed` decides.
    pub fn crash(&self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let mercy = Mercy::draw(&mut random);
        let mut state = self.state.lock();
        state.lose_names(mercy, &mut random);
        for inode in state.durable.values() {
            let mut inode = inode.lock();
            inode.settle(mercy, &mut random);
            inode.now = inode.durable.clone();
        }
        state.names = state.durable.clone();
        // Where a removal was lost, so was that of the directory it was in.
        let kept: Vec<_> = state.names.keys().flat_map(|path| path.ancestors().skip(1).map(Path::to_owned)).collect();
        state.directories.extend(kept);
        state.locks.clear();
        state.epoch += 1;
        state.operations = 0;
        state.off_at = None;
        state.off = false;
        state.failing_sync = None;
    }

    fn run<T>(
        &self,
        operation: &'static str,
        path: &Path,
        effect: impl FnOnce(&mut State) -> Result<T, io::ErrorKind>,
    ) -> Result<T> {
        self.state.lock().run(operation, path, effect)
    }

    fn handle(&self, path: &Path, inode: &Arc<Mutex<Inode>>, epoch: u64) -> Arc<dyn File> {
        Arc::new(MemoryFile { vfs: self.clone(), path: path.to_owned(), inode: inode.clone(), epoch })
    }
}

fn power_lost(operation: &'static str, path: &Path) -> Error {
    Error::io(operation, path, io::Error::other("the power is off"))
}

impl State {
    fn run<T>(
        &mut self,
        operation: &'static str,
        path: &Path,
        effect: impl FnOnce(&mut State) -> Result<T, io::ErrorKind>,
    ) -> Result<T> {
        if self.off {
            return Err(power_lost(operation, path));
        }
        self.operations += 1;
        self.off = self.off_at.is_some_and(|at| self.operations >= at);
        let done = effect(self).map_err(|kind| Error::io(operation, path, kind.into()))?;
        if self.off { Err(power_lost(operation, path)) } else { Ok(done) }
    }

    /// Counts a sync of a file; the seed of its failure if it is to fail.
    fn fails_sync(&mut self) -> Option<u64> {
        let (nth, seed) = self.failing_sync.take()?;
        if nth <= 1 {
            return Some(seed);
        }
        self.failing_sync = Some((nth - 1, seed));
        None
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.as_os_str().is_empty() || path.parent().is_none() || self.directories.contains(path)
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.renamed.push(change);
    }

    fn create(&mut self, path: &Path) -> Result<Arc<Mutex<Inode>>, io::ErrorKind> {
        if self.names.contains_key(path) || self.is_directory(path) {
            return Err(io::ErrorKind::AlreadyExists);
        }
        self.need_parent(path)?;
        let inode = Arc::new(Mutex::new(Inode::default()));
        self.change_name(NameChange::Set { path: path.to_owned(), inode: inode.clone() });
        Ok(inode)
    }

    fn need_parent(&self, path: &Path) -> Result<(), io::ErrorKind> {
        if self.is_directory(parent(path)) { Ok(()) } else { Err(io::ErrorKind::NotFound) }
    }

    fn find(&self, path: &Path) -> Result<Arc<Mutex<Inode>>, io::ErrorKind> {
        self.names.get(path).cloned().ok_or(io::ErrorKind::NotFound)
    }

    /// Makes durable what touches `directory`, and whatever earlier change one of those builds on.
    fn sync_names(&mut self, directory: &Path) {
        let mut needed = vec![false; self.renamed.len()];
        let mut paths = BTreeSet::new();
        for (at, change) in self.renamed.iter().enumerate().rev() {
            let touched = change.paths();
            if touched.iter().any(|path| parent(path) == directory || paths.contains(*path)) {
                needed[at] = true;
                paths.extend(touched.into_iter().map(Path::to_owned));
            }
        }
        let changes = std::mem::take(&mut self.renamed);
        for (change, needed) in changes.into_iter().zip(needed) {
            if needed {
                change.apply(&mut self.durable);
            } else {
                self.renamed.push(change);
            }
        }
    }

    fn lose_names(&mut self, mercy: Mercy, random: &mut StdRng) {
        let mut lost = BTreeSet::new();
        for change in std::mem::take(&mut self.renamed) {
            let paths = change.paths();
            if mercy.spares(random) && !paths.iter().any(|path| lost.contains(*path)) {
                change.apply(&mut self.durable);
            } else {
                lost.extend(paths.into_iter().map(Path::to_owned));
            }
        }
    }
}

impl Mercy {
    fn draw(random: &mut StdRng) -> Mercy {
        match random.random_range(0..6) {
            0 => Mercy::All,
            1 => Mercy::None,
            _ => Mercy::Some,
        }
    }

    fn spares(self, random: &mut StdRng) -> bool {
        match self {
            Mercy::All => true,
            Mercy::None => false,
            Mercy::Some => random.random_bool(0.5),
        }
    }
}

impl NameChange {
    fn paths(&self) -> Vec<&Path> {
        match self {
            NameChange::Set { path, .. } | NameChange::Remove { path } => vec![path],
            NameChange::Rename { from, to, .. } => vec![from, to],
        }
    }

    fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Set { path, inode } => {
                names.insert(path.clone(), inode.clone());
            }
            NameChange::Remove { path } => {
                names.remove(path);
            }
            NameChange::Rename { from, to, inode } => {
                names.remove(from);
                names.insert(to.clone(), inode.clone());
            }
        }
    }
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => put(contents, *offset, bytes),
            Change::SetLen(len) => contents.resize(*len, 0),
        }
    }

    /// Writes only some of the sectors, as a disk does that lost power while it wrote.
    fn tear(&self, contents: &mut Vec<u8>, random: &mut StdRng) {
        let Change::Write { offset, bytes } = self else {
            return self.apply(contents);
        };
        let mut at = 0;
        while at < bytes.len() {
            let sector_end = (offset + at) / SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES;
            let end = bytes.len().min(sector_end - offset);
            if random.random_bool(0.5) {
                put(contents, offset + at, &bytes[at..end]);
            }
            at = end;
        }
    }
}

fn put(contents: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if contents.len() < end {
        contents.resize(end, 0);
    }
    contents[offset..end].copy_from_slice(bytes);
}

impl Inode {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.unsynced.push(change);
    }

    fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Decides what of the unsynced changes reached the disk.
    fn settle(&mut self, mercy: Mercy, random: &mut StdRng) {
        for change in self.unsynced.drain(..) {
            match mercy {
                Mercy::Some if random.random_bool(0.4) => change.tear(&mut self.durable, random),
                _ if mercy.spares(random) => change.apply(&mut self.durable),
                _ => {}
            }
        }
    }

    fn range(&self, offset: u64, len: usize) -> Result<&[u8], io::ErrorKind> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(len).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.now.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)
    }
}

impl Vfs for MemoryVfs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let made = self.run("create", path, |state| Ok((state.create(path)?, state.epoch)));
        made.map(|(inode, epoch)| self.handle(path, &inode, epoch))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let found = self.run("open", path, |state| Ok((state.find(path)?, state.epoch)));
        found.map(|(inode, epoch)| self.handle(path, &inode, epoch))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.run("look for", path, |state| Ok(state.names.contains_key(path) || state.is_directory(path)))
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        self.run("list", directory, |state| {
            if !state.is_directory(directory) {
                return Err(io::ErrorKind::NotFound);
            }
            let all = state.names.keys().chain(&state.directories);
            let inside = all.filter(|path| path.parent() == Some(directory));
            let mut names: Vec<String> =
                inside.filter_map(|path| path.file_name()?.to_str()).map(str::to_owned).collect();
            names.sort();
            Ok(names)
        })
    }

    fn create_dir(&self, directory: &Path) -> Result<()> {
        self.run("create directory", directory, |state| {
            if directory.ancestors().any(|path| state.names.contains_key(path)) {
                return Err(io::ErrorKind::NotADirectory);
            }
            let missing: Vec<_> = directory.ancestors().filter(|path| !state.is_directory(path)).collect();
            state.directories.extend(missing.into_iter().map(Path::to_owned));
            Ok(())
        })
    }

    fn sync_dir(&self, directory: &Path) -> Result<()> {
        self.run("sync directory", directory, |state| {
            if !state.is_directory(directory) {
                return Err(io::ErrorKind::NotFound);
            }
            if !state.off {
                state.sync_names(directory);
            }
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.run("rename", from, |state| {
            let inode = state.find(from)?;
            state.need_parent(to)?;
            if from != to {
                state.change_name(NameChange::Rename { from: from.to_owned(), to: to.to_owned(), inode });
            }
            Ok(())
        })
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.run("link", to, |state| {
            let inode = state.find(from)?;
            state.need_parent(to)?;
            if state.names.contains_key(to) {
                return Err(io::ErrorKind::AlreadyExists);
            }
            state.change_name(NameChange::Set { path: to.to_owned(), inode });
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.run("remove", path, |state| {
            state.find(path)?;
            state.change_name(NameChange::Remove { path: path.to_owned() });
            Ok(())
        })
    }

    fn remove_dir(&self, directory: &Path) -> Result<()> {
        self.run("remove directory", directory, |state| {
            if !state.directories.contains(directory) {
                return Err(io::ErrorKind::NotFound);
            }
            if state.names.keys().chain(&state.directories).any(|path| path.parent() == Some(directory)) {
                return Err(io::ErrorKind::DirectoryNotEmpty);
            }
            state.directories.remove(directory);
            Ok(())
        })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let taken = self.run("lock", path, |state| {
            if state.locks.contains(path) {
                return Ok(None);
            }
            if !state.names.contains_key(path) {
                state.create(path)?;
            }
            state.locks.insert(path.to_owned());
            Ok(Some(state.epoch))
        })?;
        match taken {
            Some(epoch) => Ok(Box::new(MemoryLock { vfs: self.clone(), path: path.to_owned(), epoch })),
            None => Err(Error::Locked { directory: parent(path).to_owned() }),
        }
    }
}

struct MemoryLock {
    vfs: MemoryVfs,
    path: PathBuf,
    epoch: u64,
}

impl Lock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut state = self.vfs.state.lock();
        if state.epoch == self.epoch {
            state.locks.remove(&self.path);
        }
    }
}

struct MemoryFile {
    vfs: MemoryVfs,
    path: PathBuf,
    inode: Arc<Mutex<Inode>>,
    epoch: u64,
}

impl MemoryFile {
    fn run<T>(
        &self,
        operation: &'static str,
        effect: impl FnOnce(&mut State, &mut Inode) -> Result<T, io::ErrorKind>,
    ) -> Result<T> {
        self.vfs.run(operation, &self.path, |state| {
            if state.epoch != self.epoch {
                return Err(io::ErrorKind::StaleNetworkFileHandle);
            }
            effect(state, &mut self.inode.lock())
        })
    }
}

impl File for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.run("read", |_, inode| {
            buffer.copy_from_slice(inode.range(offset, buffer.len())?);
            Ok(())
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.run("write to", |_, inode| {
            let end = offset.saturating_add(bytes.len() as u64);
            if end > FILE_MAX_BYTES {
                return Err(io::ErrorKind::FileTooLarge);
            }
            if !bytes.is_empty() {
                inode.change(Change::Write { offset: offset as usize, bytes: bytes.to_vec() });
            }
            Ok(())
        })
    }

    fn sync(&self) -> Result<()> {
        self.run("sync", |state, inode| {
            if let Some(seed) = state.fails_sync() {
                let mut random = StdRng::seed_from_u64(seed);
                inode.settle(Mercy::draw(&mut random), &mut random);
                return Err(io::ErrorKind::Other);
            }
            // A sync that the power loss met leaves everything open; the crash decides.
            if !state.off {
                inode.sync();
            }
            Ok(())
        })
    }

    fn len(&self) -> Result<u64> {
        self.run("take the length of", |_, inode| Ok(inode.now.len() as u64))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.run("set the length of", |_, inode| {
            if len > FILE_MAX_BYTES {
                return Err(io::ErrorKind::FileTooLarge);
            }
            inode.change(Change::SetLen(len as usize));
            Ok(())
        })
    }

    fn map(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.run("map", |_, inode| inode.range(offset, len).map(Bytes::copy_from_slice))
    }
}
