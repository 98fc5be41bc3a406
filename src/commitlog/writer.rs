//! The end of the log that is written.
//!
//! Who calls, and when, is the server's: one thread drains its queue into [`CommitLog::append`], syncs once, and lets those
//! who wait go; while the sync runs the next group gathers. So a group is as large as the disk is slow, without a timer.
//!
//! Records of one append go into one buffer and one write per segment. The switch to the next segment syncs the old one
//! before and after its seal, so that at most one segment ever holds what is not durable; that costs two syncs per
//! segment and lets replay treat damage in any other one as what it is.
//!
//! # When the disk is full
//!
//! An append that fails may be tried again; none that was refused is ever read back once a later one was taken.
//!
//! - At a switch new room is asked for. A group straddles two segments only if it is larger than one, so the switch is
//!   done before any of the group is written. It goes on where it stopped.
//! - After a failed write of records nobody knows what stands behind the end. The segment is sealed there, over it, before
//!   anything else is taken.
//! - A failed sync of a segment, and a group that failed after a part of it was sealed, end the log until it is reopened.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use super::footer::Contents;
use super::kept::Everywhere;
use super::position::Position;
use super::replay::Past;
use super::segment::{HEADER_BYTES, Header, MARK_BYTES, put_mark};
use super::spares::Spares;
use super::{LogOptions, segment};
use crate::codec::CheckedRecord;
use crate::codec::frame::{FRAME_HEADER_BYTES, put_frame};
use crate::vfs::{File, Vfs};
use crate::{Error, Result};

/// The writing end; one thread at a time.
pub struct CommitLog {
    pub(super) options: LogOptions,
    spares: Arc<Spares>,
    /// Oldest first, without a gap, up to the active one.
    pub(super) sealed: VecDeque<Sealed>,
    pub(super) active: Active,
    /// Everything before it is durable.
    pub(super) synced: Position,
    /// Replay will never begin before this position.
    pub(super) released: Position,
    /// What every replica holds; `None`: nobody has said.
    pub(super) everywhere: Option<Everywhere>,
    /// What an archive has; `None`: there is none.
    pub(super) archived: Option<Position>,
    /// Segments that went though an archive lacked them.
    pub(super) unarchived_lost: u64,
    /// The first failure; after it nothing is written.
    failure: Option<String>,
    /// Reused by every append.
    buffer: Vec<u8>,
}

/// A segment that takes no more records.
pub(super) struct Sealed {
    pub(super) number: u64,
    /// Up to the end of its footer.
    pub(super) bytes: u64,
    /// What its footer says; `None`: it was not read in this run.
    pub(super) contents: Option<Contents>,
}

pub(super) struct Active {
    file: Arc<dyn File>,
    end: Position,
    pub(super) contents: Contents,
    next: Next,
}

/// What may be written to the active segment next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Records,
    /// A write failed: what stands behind the end is not known.
    Seal,
    /// The seal is durable, but the next segment could not be begun yet.
    Nothing,
}

impl CommitLog {
    /// The log behind what replay found, in a new segment.
    pub(super) fn start(vfs: Arc<dyn Vfs>, options: LogOptions, past: Past) -> Result<CommitLog> {
        let spares = Spares::open(vfs, &options.directory, options.segment_bytes, &past.spares)?;
        let number = past.sealed.back().map_or(1, |last| last.number + 1);
        let active = begin(&options, &spares, number)?;
        let (synced, spares) = (active.end, Arc::new(spares));
        Ok(CommitLog {
            options,
            spares,
            sealed: past.sealed,
            active,
            synced,
            released: Position::default(),
            everywhere: None,
            archived: None,
            unarchived_lost: 0,
            failure: None,
            buffer: Vec::new(),
        })
    }

    /// Writes records one behind the other with one system call per segment touched, and answers the end position of
    /// each, appended to `ends`. Nothing of it is durable before [`CommitLog::sync`].
    ///
    /// Nothing is written if any of them is larger than half a segment ([`Error::Invalid`]). After [`Error::Io`] the same call may be tried again; until an append has succeeded, the log
    /// may show the refused records when it is reopened. After a failed sync it answers [`Error::LogFailed`] from then on.
    pub fn append<R: AsRef<CheckedRecord>>(&mut self, records: &[R], ends: &mut Vec<Position>) -> Result<()> {
        self.check_alive()?;
        records.iter().try_for_each(|record| self.check(record.as_ref()))?;
        if self.needs_switch(records) {
            self.switch()?;
        }
        let before = ends.len();
        self.write(records, ends).inspect_err(|_| ends.truncate(before))
    }

    /// Why the log takes no more writes, if it does not.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Makes everything appended so far durable and answers up to where. After a failure the log takes no more writes.
    pub fn sync(&mut self) -> Result<Position> {
        self.check_alive()?;
        self.sync_active()?;
        Ok(self.synced)
    }

    /// Makes everything durable and seals the log: the next open finds no doubtful end. It takes no more records then. A
    /// log that had failed stays as it is.
    pub fn close(&mut self) -> Result<()> {
        self.check_alive()?;
        self.seal()?;
        self.failure = Some("it was closed".to_owned());
        Ok(())
    }

    /// The end of what was appended.
    pub fn end(&self) -> Position {
        self.active.end
    }

    /// Bytes in the segments that replay may need.
    pub fn bytes(&self) -> u64 {
        let needed = self.sealed.iter().filter(|sealed| sealed.number >= self.released.segment);
        needed.map(|sealed| sealed.bytes).sum::<u64>() + self.active.end.offset
    }

    /// Files made ahead of time; see [`Spares::prepare`].
    pub fn spares(&self) -> Arc<Spares> {
        self.spares.clone()
    }

    /// Recycles the segments with a smaller number than that of `position`, except for what is kept for others: all their
    /// records are in live SSTables, and replay will never begin before `position` again. May be called again if it failed.
    pub fn discard_before(&mut self, position: Position) -> Result<()> {
        self.released = position.max(self.released);
        self.discard_unwanted()
    }

    /// Recycles what neither replay nor anybody else needs.
    pub(super) fn discard_unwanted(&mut self) -> Result<()> {
        self.discard(CommitLog::is_kept)
    }

    /// Recycles what replay does not need, oldest first, up to the first that is to stay.
    pub(super) fn discard(&mut self, stays: impl Fn(&CommitLog, &Sealed) -> bool) -> Result<()> {
        while let Some(oldest) = self.sealed.front()
            && oldest.number < self.released.segment
            && !stays(self, oldest)
        {
            // One by one, oldest first and each durable before the next: a power loss must leave no gap.
            self.spares.give(&self.path(oldest.number))?;
            if let Some(gone) = self.sealed.pop_front() {
                self.note_gone(&gone);
            }
        }
        Ok(())
    }

    pub(super) fn path(&self, number: u64) -> PathBuf {
        segment::segment_path(&self.options.directory, number)
    }

    fn check_alive(&self) -> Result<()> {
        match &self.failure {
            Some(cause) => Err(Error::LogFailed { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    fn fail(&mut self, error: Error) -> Error {
        self.failure.get_or_insert_with(|| error.to_string());
        error
    }

    fn check(&self, record: &CheckedRecord) -> Result<()> {
        let (bytes, largest) = (record.bytes().len(), self.options.segment_bytes / 2);
        if bytes as u64 > largest {
            let reason = format!("{bytes} bytes; the log takes at most {largest}, half a segment");
            return Err(Error::invalid("record", reason));
        }
        Ok(())
    }

    fn write<R: AsRef<CheckedRecord>>(&mut self, records: &[R], ends: &mut Vec<Position>) -> Result<()> {
        let mut written = 0;
        while written < records.len() {
            match self.write_some(&records[written..], ends) {
                Ok(count) => written += count,
                // The first part is durable in a sealed segment and cannot be taken back.
                Err(error) if written > 0 => return Err(self.fail(error)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_some<R: AsRef<CheckedRecord>>(&mut self, records: &[R], ends: &mut Vec<Position>) -> Result<usize> {
        if !self.fits(MARK_BYTES, records[0].as_ref()) {
            self.switch()?;
        }
        self.write_group(records, ends)
    }

    /// Whether the records must wait for another segment: they do not fit into this one, but into an empty one.
    fn needs_switch<R: AsRef<CheckedRecord>>(&self, records: &[R]) -> bool {
        let group = MARK_BYTES + records.iter().map(|record| framed_bytes(record.as_ref())).sum::<u64>();
        let fits_behind = |offset: u64| offset + group <= self.options.segment_bytes;
        self.active.next != Next::Records || (!fits_behind(self.active.end.offset) && fits_behind(HEADER_BYTES))
    }

    /// Whether `record` fits behind `before` more bytes.
    fn fits(&self, before: u64, record: &CheckedRecord) -> bool {
        self.active.end.offset + before + framed_bytes(record) <= self.options.segment_bytes
    }

    /// Writes as many of the records as fit into the active segment; how many.
    fn write_group<R: AsRef<CheckedRecord>>(&mut self, records: &[R], ends: &mut Vec<Position>) -> Result<usize> {
        let start = self.active.end;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        put_mark(&mut buffer, start, self.synced);
        let mut count = 0;
        for record in records.iter().map(AsRef::as_ref) {
            if !self.fits(buffer.len() as u64, record) {
                break;
            }
            let salt = start.plus(buffer.len()).salt();
            put_frame(&mut buffer, salt, record.bytes());
            ends.push(start.plus(buffer.len()));
            count += 1;
        }
        self.active.file.write_at(&buffer, start.offset).inspect_err(|_| self.active.next = Next::Seal)?;
        let vnode_bits = self.options.owner.vnode_bits;
        records[..count].iter().for_each(|record| self.active.contents.add(record.as_ref(), vnode_bits));
        self.active.end = start.plus(buffer.len());
        self.buffer = buffer;
        Ok(count)
    }

    fn sync_active(&mut self) -> Result<()> {
        if self.synced < self.active.end {
            self.active.file.sync().map_err(|error| self.fail(error))?;
            self.synced = self.active.end;
        }
        Ok(())
    }

    /// Seals the active segment, once. If only the write fails, nothing relies on it, and it may be tried again.
    fn seal(&mut self) -> Result<()> {
        if self.active.next == Next::Nothing {
            return Ok(());
        }
        self.sync_active()?;
        let end = write_seal(&*self.active.file, self.active.end, &self.active.contents)?;
        self.active.file.sync().map_err(|error| self.fail(error))?;
        (self.active.end, self.active.next, self.synced) = (end, Next::Nothing, end);
        Ok(())
    }

    fn switch(&mut self) -> Result<()> {
        self.seal()?;
        let Position { segment: number, offset: bytes } = self.active.end;
        let next = begin(&self.options, &self.spares, number + 1)?;
        let contents = Some(std::mem::replace(&mut self.active, next).contents);
        self.sealed.push_back(Sealed { number, bytes, contents });
        self.synced = self.active.end;
        Ok(())
    }
}

fn framed_bytes(record: &CheckedRecord) -> u64 {
    (FRAME_HEADER_BYTES + record.bytes().len()) as u64
}

fn begin(options: &LogOptions, spares: &Spares, number: u64) -> Result<Active> {
    let file = spares.take(&Header { owner: options.owner, segment: number, capacity: options.segment_bytes })?;
    let end = Position { segment: number, offset: HEADER_BYTES };
    Ok(Active { file, end, contents: Contents::default(), next: Next::Records })
}

/// Writes the seal of a segment that is durable up to `end`; answers where it ends. It holds once it is synced. A footer
/// that does not fit lets the file grow.
pub(super) fn write_seal(file: &dyn File, end: Position, contents: &Contents) -> Result<Position> {
    let mut buffer = Vec::new();
    put_mark(&mut buffer, end, end);
    let salt = end.plus(buffer.len()).salt();
    put_frame(&mut buffer, salt, &contents.encode());
    file.write_at(&buffer, end.offset)?;
    Ok(end.plus(buffer.len()))
}
