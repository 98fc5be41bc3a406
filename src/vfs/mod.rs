//! The only door to files.
//!
//! Everything durable goes through [`Vfs`], so that the same storage code runs on a disk ([`disk`]), on memory that
//! forgets what was not synced ([`memory`]), and under a layer that fails the n-th call ([`faulty`]). One suite of tests
//! runs on all of them.
//!
//! The contract is that of a POSIX file system at its worst: a write may survive a power loss in part, in any order and
//! torn in the middle until [`File::sync`] returned; a created, renamed, linked or removed name may be undone until
//! [`Vfs::sync_dir`] of its directory returned; after a failed sync nothing is known of what was written before it.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::Result;

pub mod disk;
pub mod faulty;
mod map;
pub mod memory;
#[cfg(test)]
mod tests;

/// A file system. Errors are [`crate::Error::Io`] with the operation and the path.
pub trait Vfs: Send + Sync + 'static {
    /// Makes an empty file and opens it; an error if the name exists.
    fn create(&self, path: &Path) -> Result<Arc<dyn File>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> Result<Arc<dyn File>>;

    /// Whether there is a file or directory of this name.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Names (not paths) in a directory, in ascending order.
    fn list(&self, directory: &Path) -> Result<Vec<String>>;

    /// Makes a directory and its parents, durably; nothing if it is there.
    fn create_dir(&self, directory: &Path) -> Result<()>;

    /// Makes what happened to the names in `directory` durable.
    fn sync_dir(&self, directory: &Path) -> Result<()>;

    /// Renames a file, replacing `to`.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Gives a file a second name; an error if `to` exists.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file. Open handles stay readable.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Removes a directory, which must be empty.
    fn remove_dir(&self, directory: &Path) -> Result<()>;

    /// Takes an exclusive lock by this file name, held until the guard is dropped or the process ends, and says so with
    /// [`crate::Error::Locked`] (naming the directory of `path`) if another holder has it.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;
}

/// The directory that a name is in.
fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// An open file.
pub trait File: Send + Sync {
    /// Fills `buffer` from `offset`; an error if the file ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// Writes all of `bytes` at `offset`, growing the file if needed. Durable only after [`File::sync`].
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;

    /// Makes contents and length durable.
    fn sync(&self) -> Result<()>;

    /// The length in bytes.
    fn len(&self) -> Result<u64>;

    /// Whether the length is 0.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts or grows (with zeros) the file to `len` bytes.
    fn set_len(&self, len: u64) -> Result<()>;

    /// The bytes of `offset..offset + len` for as long as they are held: mapped where the system can, else copied. Only
    /// for files that never change again.
    fn map(&self, offset: u64, len: usize) -> Result<Bytes>;
}

/// A held lock.
pub trait Lock: Send + Sync {}
