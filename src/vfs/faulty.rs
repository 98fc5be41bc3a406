//! A layer that lets chosen calls fail, over any other file system.
//!
//! A failed call has not happened, with two exceptions that real disks know: a [`Fault::ShortWrite`] has written a part,
//! and after a failed sync nothing is known of what was written before. The layer takes a bad case of the latter: every
//! later sync through the same handle succeeds without doing anything. (The memory version knows the worst, see
//! [`super::memory::MemoryVfs::fail_next_sync`]: it survives closing the file.)

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{File, Lock, Vfs};
use crate::{Error, Result};

/// What Unix says where a device fails.
const EIO: i32 = 5;

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// [`Vfs::create`].
    Create,
    /// [`Vfs::open`].
    Open,
    /// [`Vfs::exists`].
    Exists,
    /// [`Vfs::list`].
    List,
    /// [`Vfs::create_dir`].
    CreateDir,
    /// [`Vfs::sync_dir`].
    SyncDir,
    /// [`Vfs::rename`].
    Rename,
    /// [`Vfs::link`].
    Link,
    /// [`Vfs::remove`].
    Remove,
    /// [`Vfs::remove_dir`].
    RemoveDir,
    /// [`Vfs::lock`].
    Lock,
    /// [`File::read_at`].
    Read,
    /// [`File::write_at`].
    Write,
    /// [`File::sync`].
    Sync,
    /// [`File::len`].
    Len,
    /// [`File::set_len`].
    SetLen,
    /// [`File::map`].
    Map,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device failed: `EIO`.
    Device,
    /// The disk is full: `ENOSPC`.
    Full,
    /// The disk became full in the middle of a write: the first half is written. Any other call fails as `Full`.
    ShortWrite,
}

/// A file system whose calls fail as planned; clones share plan and counts.
#[derive(Clone)]
pub struct FaultyVfs {
    inner: Arc<dyn Vfs>,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Default)]
struct Plan {
    calls: BTreeMap<Operation, u64>,
    faults: BTreeMap<(Operation, u64), Fault>,
    is_full: bool,
}

impl FaultyVfs {
    /// A layer that lets everything through until told otherwise.
    pub fn new(inner: Arc<dyn Vfs>) -> FaultyVfs {
        FaultyVfs { inner, plan: Arc::default() }
    }

    /// Lets the `nth` call of `operation` from now on fail (1 is the next one).
    pub fn fail(&self, operation: Operation, nth: u64, fault: Fault) {
        let mut plan = self.plan.lock();
        let at = plan.calls.get(&operation).copied().unwrap_or(0) + nth;
        plan.faults.insert((operation, at), fault);
    }

    /// Fills the disk: from now on whatever needs room fails as [`Fault::Full`], until [`FaultyVfs::make_room`].
    pub fn fill(&self) {
        self.plan.lock().is_full = true;
    }

    /// Ends what [`FaultyVfs::fill`] began.
    pub fn make_room(&self) {
        self.plan.lock().is_full = false;
    }

    /// Calls of `operation` so far, failed ones included.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.plan.lock().calls.get(&operation).copied().unwrap_or(0)
    }

    fn meet(&self, operation: Operation) -> Option<Fault> {
        let mut plan = self.plan.lock();
        let calls = plan.calls.entry(operation).or_insert(0);
        *calls += 1;
        let at = *calls;
        let planned = plan.faults.remove(&(operation, at));
        planned.or((plan.is_full && operation.needs_room()).then_some(Fault::Full))
    }

    fn pass(&self, operation: Operation, path: &Path) -> Result<()> {
        self.meet(operation).map_or(Ok(()), |fault| Err(fault.error(operation, path)))
    }

    fn wrap(&self, file: Arc<dyn File>, path: &Path) -> Arc<dyn File> {
        let forgotten = AtomicBool::new(false);
        Arc::new(FaultyFile { vfs: self.clone(), path: path.to_owned(), file, forgotten })
    }
}

impl Operation {
    fn needs_room(self) -> bool {
        use Operation::{Create, CreateDir, Link, Rename, SetLen, Write};
        matches!(self, Create | CreateDir | Link | Rename | SetLen | Write)
    }

    fn verb(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Open => "open",
            Operation::Exists => "look for",
            Operation::List => "list",
            Operation::CreateDir => "create directory",
            Operation::SyncDir => "sync directory",
            Operation::Rename => "rename",
            Operation::Link => "link",
            Operation::Remove => "remove",
            Operation::RemoveDir => "remove directory",
            Operation::Lock => "lock",
            Operation::Read => "read",
            Operation::Write => "write to",
            Operation::Sync => "sync",
            Operation::Len => "take the length of",
            Operation::SetLen => "set the length of",
            Operation::Map => "map",
        }
    }
}

impl Fault {
    fn error(self, operation: Operation, path: &Path) -> Error {
        let source = match self {
            Fault::Device => io::Error::from_raw_os_error(EIO),
            Fault::Full | Fault::ShortWrite => io::ErrorKind::StorageFull.into(),
        };
        Error::io(operation.verb(), path, source)
    }
}

impl Vfs for FaultyVfs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.pass(Operation::Create, path)?;
        Ok(self.wrap(self.inner.create(path)?, path))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.pass(Operation::Open, path)?;
        Ok(self.wrap(self.inner.open(path)?, path))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.pass(Operation::Exists, path)?;
        self.inner.exists(path)
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        self.pass(Operation::List, directory)?;
        self.inner.list(directory)
    }

    fn create_dir(&self, directory: &Path) -> Result<()> {
        self.pass(Operation::CreateDir, directory)?;
        self.inner.create_dir(directory)
    }

    fn sync_dir(&self, directory: &Path) -> Result<()> {
        self.pass(Operation::SyncDir, directory)?;
        self.inner.sync_dir(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.pass(Operation::Rename, from)?;
        self.inner.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.pass(Operation::Link, to)?;
        self.inner.link(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.pass(Operation::Remove, path)?;
        self.inner.remove(path)
    }

    fn remove_dir(&self, directory: &Path) -> Result<()> {
        self.pass(Operation::RemoveDir, directory)?;
        self.inner.remove_dir(directory)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.pass(Operation::Lock, path)?;
        self.inner.lock(path)
    }
}

struct FaultyFile {
    vfs: FaultyVfs,
    path: std::path::PathBuf,
    file: Arc<dyn File>,
    /// A sync has failed: the system believes that nothing is left to write.
    forgotten: AtomicBool,
}

impl File for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.vfs.pass(Operation::Read, &self.path)?;
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        match self.vfs.meet(Operation::Write) {
            None => self.file.write_at(bytes, offset),
            Some(fault) => {
                if fault == Fault::ShortWrite {
                    self.file.write_at(&bytes[..bytes.len() / 2], offset)?;
                }
                Err(fault.error(Operation::Write, &self.path))
            }
        }
    }

    fn sync(&self) -> Result<()> {
        if let Some(fault) = self.vfs.meet(Operation::Sync) {
            self.forgotten.store(true, Ordering::Relaxed);
            return Err(fault.error(Operation::Sync, &self.path));
        }
        if self.forgotten.load(Ordering::Relaxed) { Ok(()) } else { self.file.sync() }
    }

    fn len(&self) -> Result<u64> {
        self.vfs.pass(Operation::Len, &self.path)?;
        self.file.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.vfs.pass(Operation::SetLen, &self.path)?;
        self.file.set_len(len)
    }

    fn map(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.vfs.pass(Operation::Map, &self.path)?;
        self.file.map(offset, len)
    }
}
