//! The commit log of a node: what makes an acknowledgement true.
//!
//! ```text
//! segment   header 4 KiB: magic, version, cluster id, node id, segment id, crc | frame | frame | ... | zeros
//!           frame: codec/frame.rs around one record, salted with (segment id, offset)
//!           sealed: the last frame is a footer (kind 255): name intervals and stamp bounds of the segment
//! ```
//!
//! One file at a time is appended to. Files are zero-filled before they are used and recycled afterwards: an fsync that
//! changes neither length nor block map has a much shorter tail. Positions (segment, offset) are never reused: a
//! recovered log continues in a new segment, and the salt tells a stale frame of a recycled file from a new one.
//!
//! **Invariant:** below the last synced position any damage is corruption and names segment and offset; above it, at
//! the end of the last segment, it is a torn tail and is cut off (B040).

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::Result;
use crate::model::Identity;
use crate::vfs::Vfs;

/// A place in the log: everything before it was appended earlier. Orders the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// The number of the segment, rising by one; 0 is before all.
    pub segment: u64,
    /// Bytes from the beginning of the segment.
    pub offset: u64,
}

/// How a log is laid out.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Where its segments are.
    pub directory: PathBuf,
    /// Size of a segment in bytes; no record may be larger than half of it.
    pub segment_bytes: u64,
    /// Whose log it is: stands in each segment, and a segment of another is refused.
    pub owner: Identity,
}

/// The writing end; one thread at a time.
pub struct CommitLog {
    _vfs: Arc<dyn Vfs>,
}

/// One record that replay found.
pub struct Replayed {
    /// Where it ends: the position that covers it.
    pub end: Position,
    /// The record's bytes.
    pub record: Bytes,
}

impl CommitLog {
    /// Opens the log in its directory: hands every record from `from` on to `on_record`, in order, cuts a torn tail, and
    /// continues in a new segment behind it.
    pub fn open(
        _vfs: Arc<dyn Vfs>,
        _options: LogOptions,
        _from: Position,
        _on_record: &mut dyn FnMut(Replayed) -> Result<()>,
    ) -> Result<CommitLog> {
        todo!()
    }

    /// Writes records one behind the other with one system call per segment touched, and answers the end position of
    /// each, appended to `ends`. Nothing of it is durable before [`CommitLog::sync`].
    pub fn append(&mut self, _records: &[Bytes], _ends: &mut Vec<Position>) -> Result<()> {
        todo!()
    }

    /// Makes everything appended so far durable and answers up to where. After a failure the log takes no more writes.
    pub fn sync(&mut self) -> Result<Position> {
        todo!()
    }

    /// The end of what was appended.
    pub fn end(&self) -> Position {
        todo!()
    }

    /// Bytes in all segments that hold records.
    pub fn bytes(&self) -> u64 {
        todo!()
    }

    /// Recycles the segments that lie wholly before `position`: all their records are in live SSTables.
    pub fn discard_before(&mut self, _position: Position) -> Result<()> {
        todo!()
    }
}
