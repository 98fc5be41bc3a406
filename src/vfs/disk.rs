//! The file system of the machine.
#![allow(clippy::disallowed_methods, reason = "this is the door to files that everything else is kept to")]

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::{File, Lock, Vfs, map};
use crate::{Error, Result};

/// Files of the operating system. Sync is `fdatasync`, maps are `mmap`, locks are `flock`.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskVfs;

/// The same files for tools that must change nothing: opened for reading alone, so files of a read-only mount will do.
/// Everything that would change a file or a name is refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadOnlyDiskVfs;

struct DiskFile {
    file: fs::File,
    path: PathBuf,
}

/// The lock goes with the open file.
struct DiskLock {
    _file: fs::File,
}

impl Lock for DiskLock {}

fn handle(file: fs::File, path: &Path) -> Arc<dyn File> {
    Arc::new(DiskFile { file, path: path.to_owned() })
}

fn sync_directory(directory: &Path) -> Result<()> {
    let named = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    fs::File::open(named).and_then(|opened| opened.sync_all()).map_err(|e| Error::io("sync directory", directory, e))
}

impl Vfs for DiskVfs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let opened = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        opened.map(|file| handle(file, path)).map_err(|e| Error::io("create", path, e))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        opened.map(|file| handle(file, path)).map_err(|e| Error::io("open", path, e))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        fs::exists(path).map_err(|e| Error::io("look for", path, e))
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        let failed = |e| Error::io("list", directory, e);
        let mut names = Vec::new();
        for entry in fs::read_dir(directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name = name.into_string().map_err(|_| failed(io::Error::other("a file name is not UTF-8")))?;
            names.push(name);
        }
        names.sort();
        Ok(names)
    }

    fn create_dir(&self, directory: &Path) -> Result<()> {
        if fs::exists(directory).map_err(|e| Error::io("look for", directory, e))? {
            return Ok(());
        }
        let parent = directory.parent().unwrap_or(Path::new(""));
        if !parent.as_os_str().is_empty() {
            self.create_dir(parent)?;
        }
        match fs::create_dir(directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(Error::io("create directory", directory, e)),
            _ => sync_directory(parent),
        }
    }

    fn sync_dir(&self, directory: &Path) -> Result<()> {
        sync_directory(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|e| Error::io("rename", from, e))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        fs::hard_link(from, to).map_err(|e| Error::io("link", to, e))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|e| Error::io("remove", path, e))
    }

    fn remove_dir(&self, directory: &Path) -> Result<()> {
        fs::remove_dir(directory).map_err(|e| Error::io("remove directory", directory, e))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        take_lock(OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path), path)
    }
}

fn take_lock(opened: io::Result<fs::File>, path: &Path) -> Result<Box<dyn Lock>> {
    let file = opened.map_err(|e| Error::io("open", path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(Box::new(DiskLock { _file: file })),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { directory: super::parent(path).to_owned() }),
        Err(TryLockError::Error(e)) => Err(Error::io("lock", path, e)),
    }
}

fn refused<T>(operation: &'static str, path: &Path) -> Result<T> {
    Err(Error::io(operation, path, io::ErrorKind::ReadOnlyFilesystem.into()))
}

impl Vfs for ReadOnlyDiskVfs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        refused("create", path)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        fs::File::open(path).map(|file| handle(file, path)).map_err(|e| Error::io("open", path, e))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        DiskVfs.exists(path)
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        DiskVfs.list(directory)
    }

    fn create_dir(&self, directory: &Path) -> Result<()> {
        refused("create directory", directory)
    }

    fn sync_dir(&self, directory: &Path) -> Result<()> {
        refused("sync directory", directory)
    }

    fn rename(&self, from: &Path, _to: &Path) -> Result<()> {
        refused("rename", from)
    }

    fn link(&self, _from: &Path, to: &Path) -> Result<()> {
        refused("link", to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        refused("remove", path)
    }

    fn remove_dir(&self, directory: &Path) -> Result<()> {
        refused("remove directory", directory)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        take_lock(fs::File::open(path), path)
    }
}

impl DiskFile {
    fn failed(&self, operation: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::io(operation, &self.path, source)
    }
}

impl File for DiskFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buffer, offset).map_err(self.failed("read"))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(self.failed("write to"))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(self.failed("sync"))
    }

    fn len(&self) -> Result<u64> {
        self.file.metadata().map(|data| data.len()).map_err(self.failed("take the length of"))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(self.failed("set the length of"))
    }

    fn map(&self, offset: u64, len: usize) -> Result<Bytes> {
        map::map(&self.file, offset, len).map_err(self.failed("map"))
    }
}
