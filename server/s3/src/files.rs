//! Files that are objects: what reads SSTables from a disk reads them from a bucket by the same code.
//!
//! ```text
//!   Sstable::open, scan ──read_at──► window that was read ahead ──or──► range GET, waited for
//! ```
//!
//! To be used from threads that may block, outside of any runtime. A file that is read in order gets larger and larger windows, so that
//! the delay of a request is paid for many blocks at once; one that is read here and there pays for what it reads and
//! a little more. The end of a file, where its sections stand, is read at once.
//!
//! **Invariant:** an object whose length is not the one that is known is damaged, and never read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use trefoil::vfs::{File, Lock, Vfs};
use trefoil::{Corrupt, Error, Result};

use crate::{Class, ObjectStore};

/// What is read at least where a read has no neighbour.
const WINDOW_BYTES_MIN: u64 = 64 << 10;

/// What is read of the end of a file where its last bytes are asked for: footer and sections of most files.
const TAIL_BYTES: u64 = 256 << 10;

/// What is read at once of a file that is read in order, unless somebody asks for another size.
const WINDOW_BYTES_MAX: u64 = 4 << 20;

/// An object, as whoever lists it knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whereabouts {
    /// Its key.
    pub key: String,
    /// Its length.
    pub bytes: u64,
}

/// Objects as files that can only be read.
pub struct ObjectFiles {
    store: Arc<dyn ObjectStore>,
    runtime: Handle,
    objects: BTreeMap<PathBuf, Whereabouts>,
    /// Bytes that were fetched, and requests.
    fetched: Arc<Fetched>,
    window_bytes_max: u64,
}

/// What reading has cost so far.
#[derive(Debug, Default)]
struct Fetched {
    bytes: AtomicU64,
    requests: AtomicU64,
}

impl ObjectFiles {
    /// The `objects` of `store`, each under the path it is to be known by; requests are run by `runtime`.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        runtime: Handle,
        objects: impl IntoIterator<Item = (PathBuf, Whereabouts)>,
    ) -> ObjectFiles {
        let objects = objects.into_iter().collect();
        ObjectFiles { store, runtime, objects, fetched: Arc::default(), window_bytes_max: WINDOW_BYTES_MAX }
    }

    /// The same, with windows of at most so many bytes: an open file holds one.
    pub fn with_window(mut self, bytes_max: u64) -> ObjectFiles {
        self.window_bytes_max = bytes_max.max(WINDOW_BYTES_MIN);
        self
    }

    /// Bytes that were fetched so far, and by how many requests.
    pub fn fetched(&self) -> (u64, u64) {
        (self.fetched.bytes.load(Ordering::Relaxed), self.fetched.requests.load(Ordering::Relaxed))
    }

    fn read_only<T>(path: &Path) -> Result<T> {
        Err(Error::invalid(path.display().to_string(), "objects of a bucket are only read"))
    }
}

impl Vfs for ObjectFiles {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        ObjectFiles::read_only(path)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let Some(object) = self.objects.get(path) else {
            return Err(Corrupt { file: Some(path.to_owned()), ..Corrupt::new("object", "it is not listed") }.into());
        };
        Ok(Arc::new(ObjectFile {
            store: self.store.clone(),
            runtime: self.runtime.clone(),
            path: path.to_owned(),
            object: object.clone(),
            fetched: self.fetched.clone(),
            window: Mutex::default(),
            window_bytes_max: self.window_bytes_max,
        }))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.objects.contains_key(path))
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        let inside = self.objects.keys().filter(|path| path.parent() == Some(directory));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create_dir(&self, directory: &Path) -> Result<()> {
        ObjectFiles::read_only(directory)
    }

    fn sync_dir(&self, directory: &Path) -> Result<()> {
        ObjectFiles::read_only(directory)
    }

    fn rename(&self, from: &Path, _: &Path) -> Result<()> {
        ObjectFiles::read_only(from)
    }

    fn link(&self, from: &Path, _: &Path) -> Result<()> {
        ObjectFiles::read_only(from)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        ObjectFiles::read_only(path)
    }

    fn remove_dir(&self, directory: &Path) -> Result<()> {
        ObjectFiles::read_only(directory)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        ObjectFiles::read_only(path)
    }
}

/// One object, open.
struct ObjectFile {
    store: Arc<dyn ObjectStore>,
    runtime: Handle,
    path: PathBuf,
    object: Whereabouts,
    fetched: Arc<Fetched>,
    window: Mutex<Window>,
    window_bytes_max: u64,
}

/// What was read last.
#[derive(Default)]
struct Window {
    begin: u64,
    bytes: Bytes,
}

impl Window {
    fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    fn slice(&self, range: &Range<u64>) -> Option<Bytes> {
        let is_inside = self.begin <= range.start && range.end <= self.end();
        is_inside.then(|| self.bytes.slice((range.start - self.begin) as usize..(range.end - self.begin) as usize))
    }
}

impl ObjectFile {
    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if range.end > self.object.bytes {
            let reason = format!("bytes {}..{} are asked for of {}", range.start, range.end, self.object.bytes);
            return Err(Corrupt::new("object", reason).at(&self.path, range.start).into());
        }
        let mut window = self.window.lock();
        if let Some(found) = window.slice(&range) {
            return Ok(found);
        }
        // What begins inside the window or right behind it is read in order: the next one is twice as large.
        let is_in_order = !window.bytes.is_empty() && (window.begin..=window.end()).contains(&range.start);
        let ahead = if is_in_order { 2 * window.bytes.len() as u64 } else { WINDOW_BYTES_MIN };
        let ahead = ahead.clamp(WINDOW_BYTES_MIN, self.window_bytes_max);
        let wanted = if range.end == self.object.bytes && !is_in_order {
            range.start.min(range.end.saturating_sub(TAIL_BYTES.min(self.window_bytes_max)))..range.end
        } else {
            range.start..range.end.max(range.start + ahead).min(self.object.bytes)
        };
        let begin = wanted.start;
        let bytes = self.fetch(wanted)?;
        *window = Window { begin, bytes };
        window.slice(&range).ok_or_else(|| Corrupt::new("object", "less came than was asked for").into())
    }

    fn fetch(&self, range: Range<u64>) -> Result<Bytes> {
        let got = self.runtime.block_on(self.store.get(&self.object.key, Some(range.clone())));
        let object = got.map_err(|error| self.failed(&error))?;
        if object.whole_bytes != self.object.bytes {
            let reason = format!("it has {} bytes, and should have {}", object.whole_bytes, self.object.bytes);
            return Err(Corrupt::new("object", reason).at(&self.path, 0).into());
        }
        self.fetched.bytes.fetch_add(object.bytes.len() as u64, Ordering::Relaxed);
        self.fetched.requests.fetch_add(1, Ordering::Relaxed);
        Ok(object.bytes)
    }

    /// What is not there, or is not what it should be, is damage; everything else may be better later.
    fn failed(&self, error: &crate::Error) -> Error {
        match error.class {
            Class::NotFound | Class::Damaged => Corrupt::new("object", error.to_string()).at(&self.path, 0).into(),
            Class::Retry | Class::Denied | Class::Conflict | Class::Invalid => {
                Error::io("read", &self.path, std::io::Error::other(error.to_string()))
            }
        }
    }
}

impl File for ObjectFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let bytes = self.read(offset..offset + buffer.len() as u64)?;
        buffer.copy_from_slice(&bytes);
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        ObjectFiles::read_only(&self.path)
    }

    fn sync(&self) -> Result<()> {
        ObjectFiles::read_only(&self.path)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.object.bytes)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        ObjectFiles::read_only(&self.path)
    }

    fn map(&self, offset: u64, len: usize) -> Result<Bytes> {
        let range = offset..offset.saturating_add(len as u64);
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if range.end > self.object.bytes {
            return Err(Corrupt::new("object", "a part of it lies behind its end").at(&self.path, offset).into());
        }
        // A copy: what is mapped is held for long, and would hold all of the window.
        if let Some(found) = self.window.lock().slice(&range) {
            return Ok(Bytes::copy_from_slice(&found));
        }
        self.fetch(range)
    }
}
