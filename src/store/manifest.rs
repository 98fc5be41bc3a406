//! The one durable list of what is live.
//!
//! ```text
//! MANIFEST   magic "TRFLMAN1" | version u32 | frame | frame | ...
//!            frame: codec/frame.rs around one edit (change.rs), salted with its offset; the first one holds everything
//!            that stood in the file before
//! ```
//!
//! An edit is appended and fsynced before anything relies on it, one at a time, so only the last frame can be torn; it is
//! cut off. A damaged frame with a whole one behind it is corruption. A last edit that was whole and has rotted since looks
//! torn; cutting it off is noticed all the same, since it refers to files and segments that went because of it: recovery
//! misses them, and refuses before it removes anything.
//!
//! A file that has grown is rewritten under another name and renamed.
//!
//! After a failed write or fsync nobody knows whether the edit is on the disk. The file is then not touched again: the
//! next edit writes a new one, which settles it. Until then no file may go that the doubtful edit named. An edit that failed
//! before the new file got its name surely did not happen, so that one tried again and again on a full disk takes no room.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::change::{Change, State, decode_edit, encode_edit};
use crate::codec::frame::{FRAME_HEADER_BYTES, Framed, put_frame, read_frame};
use crate::codec::varint::Reader;
use crate::vfs::{File, Vfs};
use crate::{Corrupt, Error, Result};

const MAGIC: &[u8; 8] = b"TRFLMAN1";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 12;

/// A file with more edits than this, in bytes, is rewritten, once it is also several times as large as what it says.
const REWRITE_BYTES: u64 = 1 << 20;
const REWRITE_FACTOR: u64 = 4;

/// More than any manifest grows to; a longer file is something else.
const FILE_MAX_BYTES: u64 = 1 << 30;

/// The open manifest.
pub(super) struct Manifest {
    vfs: Arc<dyn Vfs>,
    directory: PathBuf,
    state: State,
    /// Where edits are appended; `None` when it is not known what the file holds.
    tail: Option<Tail>,
    /// Whether the last edit, if it failed, may have happened all the same.
    is_last_doubtful: bool,
    /// Files of which a doubtful edit may say that they are live. They go once that is settled.
    doubtful: Vec<PathBuf>,
    /// Whether something at the end of the file was passed over when it was read.
    was_torn: bool,
}

struct Tail {
    file: Arc<dyn File>,
    len: u64,
    /// Length after the last rewrite.
    base: u64,
}

impl Manifest {
    pub(super) fn path(directory: &Path) -> PathBuf {
        directory.join("MANIFEST")
    }

    /// Makes an empty one.
    pub(super) fn create(vfs: Arc<dyn Vfs>, directory: &Path) -> Result<Manifest> {
        let mut manifest = Manifest::new(vfs, directory, State::default());
        manifest.commit(Vec::new())?;
        Ok(manifest)
    }

    /// Reads the one in `directory`; a torn last edit is passed over. Nothing may rely on what was read before it is
    /// settled.
    pub(super) fn open(vfs: Arc<dyn Vfs>, directory: &Path) -> Result<Manifest> {
        let Reading { state, torn_at } = read(&*vfs, directory)?;
        if let Some(offset) = torn_at {
            let path = Manifest::path(directory);
            tracing::warn!(file = %path.display(), offset, "a torn edit at the end of the manifest is passed over");
        }
        Ok(Manifest { was_torn: torn_at.is_some(), ..Manifest::new(vfs, directory, state) })
    }

    fn new(vfs: Arc<dyn Vfs>, directory: &Path, state: State) -> Manifest {
        let directory = directory.to_owned();
        Manifest { vfs, directory, state, tail: None, is_last_doubtful: false, doubtful: Vec::new(), was_torn: false }
    }

    /// Whether the file, as it was read, may lack an edit.
    pub(super) fn was_torn(&self) -> bool {
        self.was_torn
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// A number for a file, never given again in this run; durable with the edit that lists the file.
    pub(super) fn next_file(&mut self) -> u64 {
        let number = self.state.next_file;
        self.state.next_file += 1;
        number
    }

    /// Makes one edit durable: all of `changes` or none. After an error it may or may not have happened, and what it
    /// added must be kept until that is known (see [`Manifest::remove_once_settled`]).
    pub(super) fn commit(&mut self, changes: Vec<Change>) -> Result<()> {
        let mut next = self.state.clone();
        let mut payload = encode_edit(&changes);
        payload.extend(encode_edit(&[Change::NextFile(self.state.next_file)]));
        next.apply(changes)?;
        match self.tail.take() {
            Some(tail) if !tail.is_overgrown() => {
                self.is_last_doubtful = true;
                self.tail = Some(tail.append(&payload)?);
            }
            _ => self.rewrite(&next)?,
        }
        self.state = next;
        Ok(())
    }

    /// Makes what was read durable, by writing the file anew: a process that was stopped after a failed sync may have left
    /// an edit that stands in the page cache and not on the disk.
    pub(super) fn settle(&mut self) -> Result<()> {
        if self.tail.is_some() {
            return Ok(());
        }
        self.commit(Vec::new())
    }

    /// A file that the last edit, which failed, was to add goes when it is certain that no manifest lists it.
    pub(super) fn remove_once_settled(&mut self, file: PathBuf) {
        if self.is_last_doubtful {
            self.doubtful.push(file);
        } else {
            self.remove(&file);
        }
    }

    fn rewrite(&mut self, state: &State) -> Result<()> {
        self.is_last_doubtful = false;
        let new = self.directory.join("MANIFEST.new");
        let tail = self.write_new(&new, state).inspect_err(|_| self.remove(&new))?;
        self.is_last_doubtful = true;
        self.vfs.rename(&new, &Manifest::path(&self.directory))?;
        self.vfs.sync_dir(&self.directory)?;
        self.tail = Some(tail);
        std::mem::take(&mut self.doubtful).iter().for_each(|path| self.remove(path));
        Ok(())
    }

    fn write_new(&self, path: &Path, state: &State) -> Result<Tail> {
        if self.vfs.exists(path)? {
            self.vfs.remove(path)?;
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        put_frame(&mut bytes, HEADER_BYTES as u64, &encode_edit(&state.as_edit()));
        let file = self.vfs.create(path)?;
        file.write_at(&bytes, 0)?;
        file.sync()?;
        let len = bytes.len() as u64;
        Ok(Tail { file, len, base: len })
    }

    /// Removes a file that is not in use, if it is there; what cannot be removed now goes at the next start.
    fn remove(&self, path: &Path) {
        let outcome = self.vfs.exists(path).and_then(|exists| if exists { self.vfs.remove(path) } else { Ok(()) });
        if let Err(error) = outcome {
            tracing::warn!(file = %path.display(), %error, "a file that is not live stays until the next start");
        }
    }
}

impl Tail {
    fn is_overgrown(&self) -> bool {
        self.len > REWRITE_BYTES && self.len / REWRITE_FACTOR > self.base
    }

    fn append(self, payload: &[u8]) -> Result<Tail> {
        let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + payload.len());
        put_frame(&mut frame, self.len, payload);
        self.file.write_at(&frame, self.len)?;
        self.file.sync()?;
        Ok(Tail { len: self.len + frame.len() as u64, ..self })
    }
}

/// What a manifest says.
pub(super) struct Reading {
    pub(super) state: State,
    /// Where the torn edit at its end begins, if there is one.
    pub(super) torn_at: Option<u64>,
}

/// Reads the manifest in `directory` and leaves it as it is.
pub(super) fn read(vfs: &dyn Vfs, directory: &Path) -> Result<Reading> {
    let path = Manifest::path(directory);
    let file = vfs.open(&path)?;
    let len = file.len()?;
    if !(HEADER_BYTES as u64..FILE_MAX_BYTES).contains(&len) {
        return Err(Corrupt::new("manifest", format!("{len} bytes is not its length")).at(&path, 0).into());
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(&mut bytes, 0)?;
    let (state, whole) = read_edits(&path, &Bytes::from(bytes))?;
    Ok(Reading { state, torn_at: (whole < len).then_some(whole) })
}

/// The state that the edits of a file add up to, and where the last whole one ends.
fn read_edits(path: &Path, bytes: &Bytes) -> Result<(State, u64)> {
    let mut header = Reader::new("manifest", bytes.slice(..HEADER_BYTES));
    if header.array::<8>()? != *MAGIC {
        return Err(Corrupt::new("manifest", "the magic does not stand at its beginning").at(path, 0).into());
    }
    let found = header.u32()?;
    if found != VERSION {
        let what = "manifest";
        return Err(Error::Version { what, file: path.to_owned(), found, oldest: VERSION, newest: VERSION });
    }
    let mut state = State::default();
    let mut at = HEADER_BYTES;
    while at < bytes.len() {
        let Framed::Whole(payload, taken) = read_frame(&bytes.slice(at..), at as u64) else { break };
        decode_edit(payload)
            .and_then(|changes| state.apply(changes))
            .map_err(|error| error.in_file(path, at as u64))?;
        at += taken;
    }
    // The first frame was synced before the file got its name, so it is never torn.
    if at == HEADER_BYTES || has_whole_frame_behind(bytes, at) {
        return Err(Corrupt::new("manifest", "an edit is damaged that was whole once").at(path, at as u64).into());
    }
    Ok((state, at as u64))
}

/// Whether a frame stands anywhere behind `damaged`: then the damage is not a torn end.
fn has_whole_frame_behind(bytes: &Bytes, damaged: usize) -> bool {
    let starts = damaged + 1..bytes.len().saturating_sub(FRAME_HEADER_BYTES);
    starts.into_iter().any(|at| matches!(read_frame(&bytes.slice(at..), at as u64), Framed::Whole(..)))
}
