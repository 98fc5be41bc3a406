//! The files of `metadata/` in a data directory.
//!
//! ```text
//!  state   frame: version u8 | node varint | Raft's position | cluster state     replaced whole after every change
//!  vote    frame: version u8 | vote                                              replaced whole
//!  log     "TRFLMLG1" | version u8 | frames, each salted with its offset:
//!            1 | list of entries     appended at once, fsynced at once
//!            2 | index varint        entries from here on were taken back
//!            3 | optional log id     always the first: entries up to here are in the state and were dropped
//! ```
//!
//! `state` is written first of all at birth: a directory without it belongs to nobody yet. A frame that is not whole at the
//! end of `log` was never acknowledged and is cut off; one in its middle is corruption.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use trefoil::codec::frame::{FRAME_HEADER_BYTES, Framed, put_frame, read_frame};
use trefoil::codec::varint::{Reader, put_varint};
use trefoil::metadata::ClusterState;
use trefoil::model::NodeId;
use trefoil::vfs::{File, Vfs};
use trefoil::{Corrupt, Error, Result};

use super::types::{Entry, LogId, StoredMembership, Vote};
use super::wire::Wire;

/// How often a full disk is tried again.
const ROOM_PAUSE: Duration = Duration::from_millis(200);

const FORMAT_VERSION: u8 = 1;
const LOG_MAGIC: &[u8; 8] = b"TRFLMLG1";
const LOG_HEADER_BYTES: u64 = 9;
const STATE_SALT: u64 = u64::from_le_bytes(*b"metastat");
const VOTE_SALT: u64 = u64::from_le_bytes(*b"metavote");

/// The directory.
#[derive(Clone)]
pub(crate) struct Files {
    vfs: Arc<dyn Vfs>,
    directory: PathBuf,
    /// Whether whoever writes waits for room on a full disk. Raft takes no error for an answer: it would stop for good.
    waits_for_room: Arc<AtomicBool>,
}

/// How far Raft has come on this node. Nowhere on nodes that do not vote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) applied: Option<LogId>,
    pub(super) membership: StoredMembership,
}

/// What `state` holds.
pub(crate) struct Saved {
    pub(crate) node: NodeId,
    pub(super) position: Position,
    pub(crate) state: ClusterState,
}

impl Files {
    /// The files of a data directory; makes `metadata/` if it is not there.
    pub(crate) fn open(vfs: Arc<dyn Vfs>, data_directory: &Path) -> Result<Files> {
        let directory = data_directory.join("metadata");
        vfs.create_dir(&directory)?;
        vfs.sync_dir(data_directory)?;
        Ok(Files { vfs, directory, waits_for_room: Arc::default() })
    }

    /// Who this node is and what it knows; nothing in a directory that has not been born.
    pub(crate) fn read_state(&self) -> Result<Option<Saved>> {
        let Some(payload) = self.read_whole("state", STATE_SALT)? else {
            for orphan in ["vote", "log"] {
                if self.vfs.exists(&self.directory.join(orphan))? {
                    let reason = format!("it holds `{orphan}` but no `state`, which is never removed; restore it");
                    return Err(Error::invalid(self.directory.display().to_string(), reason));
                }
            }
            return Ok(None);
        };
        read_saved(payload).map(Some).map_err(|error| error.in_file(&self.directory.join("state"), 0))
    }

    /// Makes this node's identity, position and state durable.
    pub(super) fn write_state(&self, node: NodeId, position: &Position, state: &ClusterState) -> Result<()> {
        let mut payload = vec![FORMAT_VERSION];
        put_varint(&mut payload, u64::from(node.0));
        position.applied.put(&mut payload);
        position.membership.put(&mut payload);
        payload.extend_from_slice(&state.encode());
        self.replace("state", STATE_SALT, &payload)
    }

    /// Takes up an identity: the first thing that is ever written to a directory.
    pub(crate) fn begin(&self, node: NodeId, state: &ClusterState) -> Result<()> {
        self.write_state(node, &Position::default(), state)
    }

    pub(super) fn read_vote(&self) -> Result<Option<Vote>> {
        let Some(payload) = self.read_whole("vote", VOTE_SALT)? else { return Ok(None) };
        let read = |payload| {
            let mut reader = Reader::new("raft vote", payload);
            version(&mut reader)?;
            let vote = Vote::read(&mut reader)?;
            reader.end()?;
            Ok(Some(vote))
        };
        read(payload).map_err(|error: Error| error.in_file(&self.directory.join("vote"), 0))
    }

    pub(super) fn write_vote(&self, vote: &Vote) -> Result<()> {
        let mut payload = vec![FORMAT_VERSION];
        vote.put(&mut payload);
        self.replace("vote", VOTE_SALT, &payload)
    }

    /// Writes state and vote anew, as far as they are there: what was read of them may be in the page cache alone, after a
    /// sync that failed in the run before.
    pub(super) fn settle(&self) -> Result<()> {
        for (name, salt) in [("state", STATE_SALT), ("vote", VOTE_SALT)] {
            if let Some(payload) = self.read_whole(name, salt)? {
                self.replace(name, salt, &payload)?;
            }
        }
        Ok(())
    }

    /// From now on, whether those that write wait on a full disk until there is room, or fail.
    pub(super) fn wait_for_room(&self, waits: bool) {
        self.waits_for_room.store(waits, Ordering::Relaxed);
    }

    fn with_room<T>(&self, mut write: impl FnMut() -> Result<T>) -> Result<T> {
        let mut told = false;
        loop {
            match write() {
                Err(error) if error.is_disk_full() && self.waits_for_room.load(Ordering::Relaxed) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::error!(%error, "this node takes no part in the metadata log until there is room");
                    }
                    std::thread::sleep(ROOM_PAUSE);
                }
                done => return done,
            }
        }
    }

    fn read_whole(&self, name: &str, salt: u64) -> Result<Option<Bytes>> {
        let path = self.directory.join(name);
        if !self.vfs.exists(&path)? {
            return Ok(None);
        }
        let bytes = read_all(&*self.vfs.open(&path)?)?;
        match read_frame(&bytes, salt) {
            Framed::Whole(payload, len) if len == bytes.len() => Ok(Some(payload)),
            Framed::Broken(reason) => Err(Corrupt::new("metadata file", reason).at(&path, 0).into()),
            _ => Err(Corrupt::new("metadata file", "it is not one whole frame").at(&path, 0).into()),
        }
    }

    fn replace(&self, name: &str, salt: u64, payload: &[u8]) -> Result<()> {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, salt, payload);
        self.replace_bytes(name, &bytes).map(drop)
    }

    /// Writes a new file beside the old one, then puts it in its place: at any time one of the two is whole.
    fn replace_bytes(&self, name: &str, bytes: &[u8]) -> Result<Arc<dyn File>> {
        self.with_room(|| self.try_replace(name, bytes))
    }

    fn try_replace(&self, name: &str, bytes: &[u8]) -> Result<Arc<dyn File>> {
        let (path, fresh) = (self.directory.join(name), self.directory.join(format!("{name}.new")));
        if self.vfs.exists(&fresh)? {
            self.vfs.remove(&fresh)?;
        }
        let file = self.vfs.create(&fresh)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        self.vfs.rename(&fresh, &path)?;
        self.vfs.sync_dir(&self.directory)?;
        Ok(file)
    }
}

fn read_all(file: &dyn File) -> Result<Bytes> {
    let len = file.len()?;
    let mut buffer = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_at(&mut buffer, 0)?;
    Ok(buffer.into())
}

fn version(reader: &mut Reader) -> Result<()> {
    match reader.u8()? {
        FORMAT_VERSION => Ok(()),
        other => Err(reader.corrupt(format!("format version {other}, this build reads {FORMAT_VERSION}")).into()),
    }
}

fn read_saved(payload: Bytes) -> Result<Saved> {
    let mut reader = Reader::new("metadata state", payload);
    version(&mut reader)?;
    let node = NodeId(reader.varint_u32()?);
    let position = Position { applied: Option::read(&mut reader)?, membership: StoredMembership::read(&mut reader)? };
    let state = ClusterState::decode(reader.rest())?;
    if state.ring().node(node).is_none() {
        return Err(reader.corrupt(format!("it belongs to {node}, which the cluster does not know")).into());
    }
    Ok(Saved { node, position, state })
}

/// What `log` amounts to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Logged {
    pub(super) purged: Option<LogId>,
    pub(super) entries: BTreeMap<u64, Entry>,
}

/// The file `log`, open for appending. After a failure it takes nothing more: what is on disk is not known.
pub(super) struct LogFile {
    files: Files,
    file: Arc<dyn File>,
    end: u64,
    failed: Option<Error>,
}

impl LogFile {
    /// Opens or makes the log and reads it.
    pub(super) fn open(files: Files) -> Result<(LogFile, Logged)> {
        let path = files.directory.join("log");
        if !files.vfs.exists(&path)? {
            let logged = Logged::default();
            let (file, end) = rewrite(&files, &logged)?;
            return Ok((LogFile { files, file, end, failed: None }, logged));
        }
        let file = files.vfs.open(&path)?;
        let bytes = read_all(&*file)?;
        let (logged, _) = read_log(&bytes).map_err(|error| error.in_file(&path, 0))?;
        // A process that was stopped after a failed sync may have left what stands in the page cache and not on the disk.
        // Nothing may rely on it before it is written anew; that cuts off a torn end too.
        let (file, end) = rewrite(&files, &logged)?;
        Ok((LogFile { files, file, end, failed: None }, logged))
    }

    /// Appends entries; durable when it returns.
    pub(super) fn append(&mut self, entries: &Vec<Entry>) -> Result<()> {
        let mut payload = vec![1];
        entries.put(&mut payload);
        self.write(&payload)
    }

    /// Takes entries from `index` on back; durable when it returns.
    pub(super) fn truncate(&mut self, index: u64) -> Result<()> {
        let mut payload = vec![2];
        put_varint(&mut payload, index);
        self.write(&payload)
    }

    /// Replaces the file by one that holds just `logged`.
    pub(super) fn rewrite(&mut self, logged: &Logged) -> Result<()> {
        self.attempt(|this| {
            (this.file, this.end) = rewrite(&this.files, logged)?;
            Ok(())
        })
    }

    fn write(&mut self, payload: &[u8]) -> Result<()> {
        self.attempt(|this| {
            let mut frame = Vec::new();
            put_frame(&mut frame, this.end, payload);
            this.files.with_room(|| this.file.write_at(&frame, this.end))?;
            this.file.sync()?;
            this.end += frame.len() as u64;
            Ok(())
        })
    }

    fn attempt(&mut self, write: impl FnOnce(&mut LogFile) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let done = write(self);
        self.failed = done.as_ref().err().cloned();
        done
    }
}

fn rewrite(files: &Files, logged: &Logged) -> Result<(Arc<dyn File>, u64)> {
    let mut bytes = LOG_MAGIC.to_vec();
    bytes.push(FORMAT_VERSION);
    let mut payload = vec![3];
    logged.purged.put(&mut payload);
    let offset = bytes.len() as u64;
    put_frame(&mut bytes, offset, &payload);
    if !logged.entries.is_empty() {
        let mut payload = vec![1];
        put_varint(&mut payload, logged.entries.len() as u64);
        logged.entries.values().for_each(|entry| entry.put(&mut payload));
        let offset = bytes.len() as u64;
        put_frame(&mut bytes, offset, &payload);
    }
    let file = files.replace_bytes("log", &bytes)?;
    Ok((file, bytes.len() as u64))
}

/// Reads all frames; answers also where the last whole one ends.
fn read_log(bytes: &Bytes) -> Result<(Logged, u64)> {
    let header = bytes.slice(..bytes.len().min(LOG_HEADER_BYTES as usize));
    if header.len() < LOG_HEADER_BYTES as usize || header[..8] != LOG_MAGIC[..] || header[8] != FORMAT_VERSION {
        return Err(Corrupt::new("metadata log", "it does not begin with TRFLMLG1 and version 1").into());
    }
    let mut logged = Logged::default();
    let mut at = LOG_HEADER_BYTES as usize;
    while at < bytes.len() {
        let rest = bytes.slice(at..);
        match read_frame(&rest, at as u64) {
            Framed::Whole(payload, len) => {
                logged.replay(payload).map_err(|error| displaced(error, at))?;
                at += len;
            }
            Framed::Broken(reason) if followed_by_whole(&rest, at) => {
                return Err(displaced(Corrupt::new("metadata log", reason).into(), at));
            }
            Framed::Broken(_) | Framed::Empty => break,
        }
    }
    Ok((logged, at as u64))
}

fn displaced(error: Error, frame: usize) -> Error {
    match error {
        Error::Corrupt(corrupt) => {
            Error::Corrupt(Corrupt { reason: format!("{} (frame at byte {frame})", corrupt.reason), ..corrupt })
        }
        other => other,
    }
}

/// Whether a frame that is broken has a whole one behind it, which was only written once it was durable.
fn followed_by_whole(rest: &Bytes, at: usize) -> bool {
    let Some(length) = rest.first_chunk::<4>() else { return false };
    let next = FRAME_HEADER_BYTES.saturating_add(u32::from_le_bytes(*length) as usize);
    next < rest.len() && matches!(read_frame(&rest.slice(next..), (at + next) as u64), Framed::Whole(..))
}

impl Logged {
    /// The index behind the last entry.
    pub(super) fn next(&self) -> u64 {
        let behind_purged = self.purged.map_or(0, |purged| purged.index + 1);
        self.entries.last_key_value().map_or(behind_purged, |(last, _)| last + 1)
    }

    /// The last entry, or the last one dropped if there is none.
    pub(super) fn last(&self) -> Option<LogId> {
        self.entries.last_key_value().map(|(_, entry)| entry.log_id).or(self.purged)
    }

    fn replay(&mut self, payload: Bytes) -> Result<()> {
        let mut reader = Reader::new("metadata log", payload);
        match reader.u8()? {
            1 => {
                for entry in Vec::<Entry>::read(&mut reader)? {
                    let first = self.entries.is_empty() && self.purged.is_none();
                    if !first && entry.log_id.index != self.next() {
                        let reason = format!("entry {} follows where {} belongs", entry.log_id.index, self.next());
                        return Err(reader.corrupt(reason).into());
                    }
                    self.entries.insert(entry.log_id.index, entry);
                }
            }
            2 => {
                let index = reader.varint()?;
                self.entries.split_off(&index);
            }
            3 => self.purged = Option::read(&mut reader)?,
            other => return Err(reader.corrupt(format!("no record has kind {other}")).into()),
        }
        reader.end()
    }
}
