//! The commit log of a node: what makes an acknowledgement true.
//!
//! ```text
//! segment   header 4 KiB | group | group | ... | seal | zeros, or what a recycled file held before
//! group     mark | record | record | ...          one per append and segment, written by one system call
//! seal      mark | footer                         nothing is read behind it
//!
//! header    magic TRFLLOG1 | version u32 | cluster 16 bytes | node u32 | vnode bits u8 | segment u64 | capacity u64
//!           | zeros | crc32 u32 of all before, at byte 4,092
//! mark      FE | segment u64 | offset u64         everything before this position was durable when the mark was written
//! record    01 or 02, see codec/record.rs
//! footer    FF | records varint | [lowest stamp i64 | highest stamp i64] | sets varint
//!           | (keyspace u32 | vnode varint | received set) ...          stamps only if there are records; sets ascend
//! ```
//!
//! Mark, record and footer are frames (codec/frame.rs) salted with `segment << 32 ^ offset`. One file at a time is appended
//! to. Files are zero-filled before they are used and recycled afterwards ([`Spares`]): an fsync that changes neither
//! length nor block map has a much shorter tail. The salt tells a stale frame of a recycled file from a new one.
//!
//! # Torn tail or corruption (B040)
//!
//! A frame that does not read is a torn tail if a power loss can have left it so, that is, if no sync had covered it; then
//! it was never acknowledged and is cut off. Else it is corruption, and the log says where instead of shrinking in silence.
//! Both are told apart by what the log says of itself:
//!
//! - A segment is synced, sealed and synced again before the next one is made. So everything in any but the last segment
//!   was durable: damage there is corruption.
//! - In the last segment each group begins with a mark that says up to where the log was durable before. A broken frame
//!   below the position of *any* mark, also of one behind it, is corruption; a power loss leaves no such thing, because
//!   what a mark speaks of was durable before the mark was written. So is one below the position replay begins from.
//! - What remains is damage to the last group of a log that was not closed: nothing was written after its sync that could
//!   tell. [`CommitLog::close`] seals, so that a log that was shut down in order has no such group.
//! - A last file without a mark and without a readable header, or shorter than it was made, counts as never used: other
//!   programs and file systems leave such files, though this log does not.
//!
//! Marks cost 25 bytes per group, and scanning for them is done only where a frame does not read.
//!
//! # What is kept for others
//!
//! A segment that replay does not need any more stays while a replica may lack names in it, within a bound of bytes: whoever
//! misses a name fetches it from here ([`Reading`]). Which names a segment has is known from its footer. Within the same
//! bound it stays until an archive has it ([`Since`]).
//!
//! # Positions
//!
//! They are never used twice: replay seals the last segment where it cuts the torn tail off, and continues in a new one.
//!
//! **Invariants:** a segment exists only if the one before it is sealed and durable · a record is handed out by replay only
//! if all records before it are · after a failed write of records or sync of a segment nothing more is written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::codec::CheckedRecord;
use crate::model::Identity;
use crate::vfs::Vfs;
use crate::{Error, Result};

mod footer;
mod kept;
mod position;
mod replay;
mod segment;
mod since;
mod spares;
#[cfg(test)]
mod tests;
mod writer;

pub use kept::{Everywhere, Named, Reading};
pub use position::Position;
pub use since::{Gathering, LogRange, Logged, Since, Stretch};
pub use spares::Spares;
pub use writer::CommitLog;

/// How a log is laid out.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Where its segments are.
    pub directory: PathBuf,
    /// Size of a segment in bytes, within [`SEGMENT_BYTES_MIN`] and [`SEGMENT_BYTES_MAX`]; no record may be larger than
    /// half of it.
    pub segment_bytes: u64,
    /// Whose log it is: stands in each segment, and a segment of another is refused.
    pub owner: Identity,
    /// Bytes of segments that replay does not need and that are kept all the same, for replicas that lack names in them
    /// ([`CommitLog::held_everywhere`]) and for an archive that lacks them ([`CommitLog::set_archived`]).
    pub kept_bytes_max: u64,
}

/// The smallest size of a segment: the header and a record of half the size must fit.
pub const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// The largest size of a segment: one is read as a whole at replay, and offsets must stay below 32 bits.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// One record that replay found.
pub struct Replayed {
    /// Where it ends: the position that covers it.
    pub end: Position,
    /// The record; the log's checksum is all that was verified of its rows.
    pub record: CheckedRecord,
}

/// What [`CommitLog::examine`] found.
#[derive(Debug, Default)]
pub struct Examined {
    /// Segments there are.
    pub segments: u64,
    /// The length of their files.
    pub bytes: u64,
    /// Where the log ends; `None` if there is none, or if its last segment is damaged.
    pub end: Option<Position>,
    /// What is not as it must be, at most one finding for each segment; a tail that a power loss has torn is none.
    pub faults: Vec<Error>,
}

impl CommitLog {
    /// Reads the log of `owner` in `directory` as [`CommitLog::open`] would, changing nothing: hands every record that
    /// reads to `on_record`, those before `from` too. An error of `on_record` counts as a fault of its segment.
    pub fn examine(
        vfs: &dyn Vfs,
        directory: &Path,
        owner: Identity,
        from: Position,
        on_record: &mut dyn FnMut(Replayed) -> Result<()>,
    ) -> Result<Examined> {
        replay::examine(vfs, directory, owner, from, on_record)
    }

    /// Opens the log in its directory: hands every record from `from` on to `on_record`, in order, cuts a torn tail, and
    /// continues in a new segment behind it. What was handed out is durable when this returns.
    ///
    /// `from` is a position that was durable, or `Position::default()` for all there is. A log that ends before it, or
    /// misses a segment from there on, is corrupt. A segment of another node or cluster is [`Error::WrongDirectory`].
    pub fn open(
        vfs: Arc<dyn Vfs>,
        options: LogOptions,
        from: Position,
        on_record: &mut dyn FnMut(Replayed) -> Result<()>,
    ) -> Result<CommitLog> {
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&options.segment_bytes) {
            let reason =
                format!("{} bytes; choose from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}", options.segment_bytes);
            return Err(Error::invalid("size of a log segment", reason));
        }
        let past = replay::replay(&vfs, &options, from, on_record)?;
        CommitLog::start(vfs, options, past)
    }
}
