//! Files that wait to become segments.
//!
//! A new segment needs a file whose blocks are all there: an fsync that changes neither length nor block map has a much
//! shorter tail. Filling 64 MiB takes longer than any write should wait, so files are filled ahead of time, and those
//! that the log no longer needs are used again.
//!
//! ```text
//!   nothing ─fill, sync─► n.new ─► n.spare ─header, sync─► n.log ─discard─► n.spare, or removed
//! ```
//!
//! **Invariant:** a file is named `.log` only once its header and its length are durable. A file of which any step failed
//! is removed and never used: after a failed sync nothing is known of it, and on a full disk half a file is in the way.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::segment::{Header, segment_path};
use crate::Result;
use crate::vfs::{File, Vfs};

/// More spare files than this are not kept.
pub(super) const SPARES_MAX: usize = 4;

/// Zeros are written in pieces of this size.
const FILL_BYTES: u64 = 1 << 20;

/// The spare files of a log. Any one thread may prepare them while another appends.
pub struct Spares {
    vfs: Arc<dyn Vfs>,
    directory: PathBuf,
    segment_bytes: u64,
    state: Mutex<State>,
}

struct State {
    ready: Vec<PathBuf>,
    /// Were segments; they are ready once a sync of the directory has made that durable.
    given: Vec<PathBuf>,
    /// Number of the next spare, above all there are.
    next: u64,
}

impl Spares {
    /// The spares found in the directory, by number. Too many, or of another length, they go.
    pub(super) fn open(vfs: Arc<dyn Vfs>, directory: &Path, segment_bytes: u64, found: &[u64]) -> Result<Spares> {
        let mut state = State {
            ready: Vec::new(),
            given: Vec::new(),
            next: found.iter().max().map_or(1, |last| last.saturating_add(1)),
        };
        for number in found {
            let path = spare_path(directory, *number);
            if state.ready.len() < SPARES_MAX && vfs.open(&path)?.len()? >= segment_bytes {
                state.ready.push(path);
            } else {
                vfs.remove(&path)?;
            }
        }
        Ok(Spares { vfs, directory: directory.to_owned(), segment_bytes, state: Mutex::new(state) })
    }

    /// Fills a file if none is ready, so that the next segment need not wait for it. To be called now and then, off the
    /// thread that appends.
    pub fn prepare(&self) -> Result<()> {
        let number = {
            let mut state = self.state.lock();
            if !state.ready.is_empty() {
                return Ok(());
            }
            state.take_number()
        };
        // Not under the lock: whoever appends must not wait for this.
        let path = self.fill(number)?;
        self.state.lock().ready.push(path);
        Ok(())
    }

    /// Makes a file the segment of this header: durable, and never seen without its header.
    pub(super) fn take(&self, header: &Header) -> Result<Arc<dyn File>> {
        let spare = self.ready_or_filled()?;
        self.make_segment(&spare, header).inspect_err(|_| self.abandon(&spare))
    }

    /// May be tried again with another spare, which then takes the place of a segment that nothing was written to.
    fn make_segment(&self, spare: &Path, header: &Header) -> Result<Arc<dyn File>> {
        let file = self.vfs.open(spare)?;
        file.write_at(&header.encode(), 0)?;
        file.sync()?;
        self.vfs.rename(spare, &segment_path(&self.directory, header.segment))?;
        self.vfs.sync_dir(&self.directory)?;
        Ok(file)
    }

    /// Takes a segment out of the log, durably: keeps its file if it is of full length and wanted, else removes it.
    pub(super) fn give(&self, segment: &Path) -> Result<()> {
        let mut state = self.state.lock();
        // It is gone already if an earlier attempt failed only in the sync.
        if self.vfs.exists(segment)? {
            let spares = state.ready.len() + state.given.len();
            if spares < SPARES_MAX && self.vfs.open(segment)?.len()? >= self.segment_bytes {
                let path = spare_path(&self.directory, state.take_number());
                self.vfs.rename(segment, &path)?;
                state.given.push(path);
            } else {
                self.vfs.remove(segment)?;
            }
        }
        self.vfs.sync_dir(&self.directory)?;
        // Only now: were the old name to come back after the file got another header, it would look like corruption.
        let State { ready, given, .. } = &mut *state;
        ready.append(given);
        Ok(())
    }

    fn ready_or_filled(&self) -> Result<PathBuf> {
        let mut state = self.state.lock();
        if let Some(ready) = state.ready.pop() {
            return Ok(ready);
        }
        let number = state.take_number();
        drop(state);
        self.fill(number)
    }

    fn fill(&self, number: u64) -> Result<PathBuf> {
        let unfinished = self.directory.join(format!("{number:020}.new"));
        let spare = spare_path(&self.directory, number);
        let filled = self.fill_file(&unfinished).and_then(|()| self.vfs.rename(&unfinished, &spare));
        filled.map(|()| spare).inspect_err(|_| self.abandon(&unfinished))
    }

    fn fill_file(&self, path: &Path) -> Result<()> {
        let file = self.vfs.create(path)?;
        let zeros = vec![0; self.segment_bytes.min(FILL_BYTES) as usize];
        let mut at = 0;
        while at < self.segment_bytes {
            let length = (self.segment_bytes - at).min(FILL_BYTES);
            file.write_at(&zeros[..length as usize], at)?;
            at += length;
        }
        file.sync()
    }

    fn abandon(&self, path: &Path) {
        let outcome = self.vfs.exists(path).and_then(|exists| if exists { self.vfs.remove(path) } else { Ok(()) });
        if let Err(error) = outcome {
            tracing::warn!(file = %path.display(), %error, "a file that is not in use stays until the next start");
        }
    }
}

impl State {
    fn take_number(&mut self) -> u64 {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        number
    }
}

fn spare_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:020}.spare"))
}
