//! The log for an archive: its records from a position on, and what stays until they are archived.
//!
//! ```text
//!   first ─────────► from ─────────────────────► to ──────────► synced ──────► end
//!         archived before │ records, in log order │  next time  │ nobody may rely on it yet
//! ```
//!
//! One who ships the log away asks from where it was before, and is answered whole records up to a new position. All of it
//! was durable when it was read, so a position that was once answered is before or at the end of the log after every crash.
//!
//! While there is an archive, a segment stays until it is archived, or until the bound of what is kept is reached
//! ([`super::LogOptions::kept_bytes_max`]). What goes before its time is told, and whoever asks for it is told where
//! the log begins by now: a gap in the archive is seen at both ends.

use std::cmp::Ordering;

use bytes::Bytes;

use super::kept::Reading;
use super::position::Position;
use super::replay::SegmentFile;
use super::segment::{FOOTER, HEADER_BYTES, MARK};
use super::writer::{CommitLog, Sealed};
use crate::Result;
use crate::codec::CheckedRecord;
use crate::codec::frame::{Framed, read_frame};
use crate::vfs::Vfs;

/// Bytes of a segment that are read at a time; a frame that is longer is read whole.
const WINDOW_BYTES: u64 = 1 << 20;

/// What the log answers to who asks for it from a position on.
#[derive(Debug)]
pub enum Since {
    /// Records that are durable; none where there are no newer ones.
    Records(LogRange),
    /// What stood at the position is gone. The log begins here.
    Gone {
        /// The first position there is.
        first: Position,
    },
    /// The log never came so far: the data directory is not the one that was asked before, or is of an earlier day.
    Ahead {
        /// Up to here it is durable.
        end: Position,
    },
}

/// Records of the log, one behind the other.
#[derive(Debug)]
pub struct LogRange {
    /// Where they begin.
    pub from: Position,
    /// Where they end, which is where to go on. It is `from` where there are none, and may lie behind it all the same: at the
    /// beginning of the next segment.
    pub to: Position,
    /// The records, in the order of the log.
    pub records: Vec<Logged>,
}

/// A record of the log, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Where it ends.
    pub end: Position,
    /// The record.
    pub record: CheckedRecord,
}

/// Where to read, found out with the log held; read without.
#[derive(Debug)]
pub enum Stretch {
    /// What there is from the position on.
    Readings(Vec<Reading>),
    /// See [`Since::Gone`].
    Gone(Position),
    /// See [`Since::Ahead`].
    Ahead(Position),
}

/// Records as they are gathered.
#[derive(Debug, Default)]
pub struct Gathering {
    to: Position,
    records: Vec<Logged>,
    bytes: usize,
}

impl CommitLog {
    /// Where the log begins: the first segment that is still there.
    pub fn first(&self) -> Position {
        let oldest = self.sealed.front().map_or(self.synced.segment, |oldest| oldest.number);
        Position { segment: oldest, offset: HEADER_BYTES }
    }

    /// From when on there is an archive, and what it has: segments from there on stay. `None`: there is none, and nothing
    /// stays for it.
    pub fn set_archived(&mut self, archived: Option<Position>) -> Result<()> {
        self.archived = archived;
        self.discard_unwanted()
    }

    /// Bytes of the log that are not archived; 0 without an archive.
    pub fn unarchived_bytes(&self) -> u64 {
        let Some(archived) = self.archived else { return 0 };
        let left = |(number, bytes): (u64, u64)| match number.cmp(&archived.segment) {
            Ordering::Less => 0,
            Ordering::Equal => bytes.saturating_sub(archived.offset),
            Ordering::Greater => bytes,
        };
        self.extents().map(left).sum()
    }

    /// Segments that went in this run though there is an archive and it did not have them.
    pub fn unarchived_lost(&self) -> u64 {
        self.unarchived_lost
    }

    /// Whether an archive does not need the segment any more.
    pub(super) fn is_archived(&self, sealed: &Sealed) -> bool {
        self.archived.is_none_or(|archived| sealed.number < archived.segment)
    }

    /// Takes note that a segment went.
    pub(super) fn note_gone(&mut self, sealed: &Sealed) {
        if !self.is_archived(sealed) {
            self.unarchived_lost += 1;
            tracing::error!(
                segment = sealed.number,
                bytes = sealed.bytes,
                "a segment of the log went that was not archived: the archive has a gap here"
            );
        }
    }

    /// Where the log from a position on is to be read.
    pub fn stretch(&self, from: Position) -> Stretch {
        let first = self.first();
        if from < first && from != (Position { offset: 0, ..first }) {
            return Stretch::Gone(first);
        }
        // A segment that is sealed before there is a next one is left behind all the same.
        let next = Position { segment: self.synced.segment + 1, offset: HEADER_BYTES };
        if from > self.synced && from != next {
            return Stretch::Ahead(self.synced);
        }
        let wanted: Vec<_> = self.extents().filter(|(number, _)| *number >= from.segment).collect();
        match wanted.first() {
            Some((number, end)) if *number == from.segment && *end < from.offset => {
                Stretch::Ahead(Position { segment: *number, offset: *end })
            }
            _ => Stretch::Readings(wanted.into_iter().map(|(number, end)| self.reading(number, end)).collect()),
        }
    }

    /// Every segment and up to where it is durable, oldest first.
    fn extents(&self) -> impl Iterator<Item = (u64, u64)> {
        let sealed = self.sealed.iter().map(|sealed| (sealed.number, sealed.bytes));
        sealed.chain([(self.synced.segment, self.synced.offset)])
    }
}

impl Gathering {
    /// None yet, from a position on.
    pub fn from(position: Position) -> Gathering {
        Gathering { to: position, ..Gathering::default() }
    }

    /// Whether so many bytes of records are gathered.
    pub fn is_full(&self, bytes_max: usize) -> bool {
        self.bytes >= bytes_max
    }

    /// All that was gathered since `from`.
    pub fn finish(self, from: Position) -> LogRange {
        LogRange { from, to: self.to, records: self.records }
    }

    fn take(&mut self, record: Bytes, end: Position) -> Result<()> {
        self.bytes += record.len();
        self.records.push(Logged { end, record: CheckedRecord::trusted(record)? });
        Ok(())
    }
}

impl Reading {
    /// Gathers the records of the segment from where the gathering stands, until they take `bytes_max`: at least one if there
    /// is any. After the last record of a sealed segment the gathering stands at the beginning of the next. Blocks.
    ///
    /// After an error what was gathered before is whole, and the gathering stands behind it.
    pub fn gather(&self, vfs: &dyn Vfs, bytes_max: usize, gathering: &mut Gathering) -> Result<()> {
        let file = SegmentFile::open(vfs, &self.directory, self.owner, self.number)?;
        file.check_header()?;
        let begin = if gathering.to.segment == self.number { gathering.to.offset } else { 0 };
        gathering.to = Position { segment: self.number, offset: begin.max(HEADER_BYTES) };
        let mut window = Bytes::new();
        while gathering.to.offset < self.end && !gathering.is_full(bytes_max) {
            let at = gathering.to;
            let (payload, length) = match read_frame(&window, at.salt()) {
                Framed::Whole(payload, length) => (payload, length),
                // What is not whole in the window may be whole in the file.
                _ if (window.len() as u64) < self.end - at.offset => {
                    let wanted = WINDOW_BYTES.max(2 * window.len() as u64);
                    window = file.read_range(at.offset, wanted.min(self.end - at.offset))?;
                    continue;
                }
                _ => return Err(file.corrupt(at.offset, "a record that was durable does not read")),
            };
            match payload[0] {
                MARK => {}
                FOOTER => {
                    gathering.to = Position { segment: self.number + 1, offset: HEADER_BYTES };
                    return Ok(());
                }
                _ => gathering.take(payload, at.plus(length)).map_err(|error| file.placed(error, at.offset))?,
            }
            window = window.slice(length..);
            gathering.to = at.plus(length);
        }
        Ok(())
    }
}
