//! Reading the log back: every record that was durable, in order, and where the log ends.
//!
//! ```text
//! last segment   ... | group | group | broken ......        no mark speaks of anything beyond: a torn tail
//!                                    └─ cut by a seal here: nothing is read behind a seal
//! then           write again what no mark proves durable · sync · seal · sync · next segment
//! ```
//!
//! The torn tail itself may stay. Were the power lost again before the seal is durable, the next replay ends where this
//! one did, or further on if the first part of the seal happens to mend the chain; both are ends that the first power loss
//! could have left, and nobody has built on this one, since the log was not open yet.
//!
//! Why write again: after a failed sync the system may show bytes from its memory that never reached the disk, and a
//! further sync does not write them. What replay hands out must be durable, so it is written once more.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::footer::{Contents, Entry};
use super::position::Position;
use super::segment::{self, FOOTER, FileName, HEADER_BYTES, Header, MARK, read_mark, segment_path};
use super::writer::{Sealed, write_seal};
use super::{LogOptions, Replayed, SEGMENT_BYTES_MAX};
use crate::codec::frame::{Framed, read_frame};
use crate::vfs::{File, Vfs};
use crate::{Corrupt, Error, Result};

/// What was in the directory.
pub(super) struct Past {
    /// Every segment, oldest first, without a gap; all sealed and durable.
    pub(super) sealed: VecDeque<Sealed>,
    /// Spare files.
    pub(super) spares: Vec<u64>,
}

type OnRecord<'a> = &'a mut dyn FnMut(Replayed) -> Result<()>;

/// Reads the log and leaves every segment sealed.
pub(super) fn replay(vfs: &Arc<dyn Vfs>, options: &LogOptions, from: Position, on_record: OnRecord) -> Result<Past> {
    let directory = &options.directory;
    vfs.create_dir(directory)?;
    // What this run sees of names it also relies on.
    vfs.sync_dir(directory)?;
    let (segments, spares) = list(&**vfs, directory)?;
    check_complete(&segments, from, directory)?;
    let mut sealed = VecDeque::new();
    for number in &segments {
        let file = SegmentFile::open(&**vfs, options, *number)?;
        let end = if Some(number) == segments.last() {
            file.replay_last(from, on_record)?
        } else if *number < from.segment {
            file.check_header()?;
            file.len
        } else {
            file.replay_sealed(from, on_record)?
        };
        sealed.push_back(Sealed { number: *number, bytes: end });
    }
    Ok(Past { sealed, spares })
}

/// The numbers of segments and spares, ascending; files that were never finished go.
fn list(vfs: &dyn Vfs, directory: &Path) -> Result<(Vec<u64>, Vec<u64>)> {
    let (mut segments, mut spares) = (Vec::new(), Vec::new());
    for name in vfs.list(directory)? {
        match FileName::parse(&name) {
            Some(FileName::Segment(number)) => segments.push(number),
            Some(FileName::Spare(number)) => spares.push(number),
            Some(FileName::Unfinished) => vfs.remove(&directory.join(name))?,
            None => {}
        }
    }
    Ok((segments, spares))
}

/// Segments follow one another, and none is missing from `from` on.
fn check_complete(segments: &[u64], from: Position, directory: &Path) -> Result<()> {
    let missing = |number: u64| {
        let file = segment_path(directory, number);
        Err(Corrupt { file: Some(file), ..Corrupt::new("commit log", "this segment is missing") }.into())
    };
    if let Some(pair) = segments.windows(2).find(|pair| pair[0].checked_add(1) != Some(pair[1])) {
        return missing(pair[0].saturating_add(1));
    }
    let held = segments.first().zip(segments.last());
    if from.segment > 0 && !held.is_some_and(|(first, last)| (*first..=*last).contains(&from.segment)) {
        return missing(from.segment);
    }
    Ok(())
}

/// A segment under examination.
struct SegmentFile<'a> {
    options: &'a LogOptions,
    number: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    len: u64,
}

/// How far a segment reads.
struct Walk {
    /// The end of the last frame that reads.
    end: u64,
    /// Everything before is durable, says a mark.
    synced: u64,
    contents: Contents,
    ending: Ending,
}

/// What stands behind the last frame that reads.
enum Ending {
    /// It was a footer.
    Sealed,
    /// Something that is not a frame: why not.
    Open(&'static str),
}

impl<'a> SegmentFile<'a> {
    fn open(vfs: &dyn Vfs, options: &'a LogOptions, number: u64) -> Result<SegmentFile<'a>> {
        let path = segment_path(&options.directory, number);
        let file = vfs.open(&path)?;
        let len = file.len()?;
        Ok(SegmentFile { options, number, path, file, len })
    }

    fn at(&self, offset: u64) -> Position {
        Position { segment: self.number, offset }
    }

    fn corrupt(&self, offset: u64, reason: impl Into<String>) -> Error {
        Corrupt::new("log segment", reason).at(&self.path, offset).into()
    }

    fn read(&self, len: u64) -> Result<Bytes> {
        // Twice the largest segment: a footer may have let it grow.
        if len > 2 * SEGMENT_BYTES_MAX {
            return Err(self.corrupt(0, format!("{len} bytes are more than a segment has")));
        }
        let mut bytes = vec![0; len as usize];
        self.file.read_at(&mut bytes, 0)?;
        Ok(bytes.into())
    }

    fn check_header(&self) -> Result<()> {
        self.header(&self.read(self.len.min(HEADER_BYTES))?).map(drop)
    }

    fn header(&self, bytes: &Bytes) -> Result<Header> {
        let header = Header::decode(bytes, &self.path)?;
        header.check(self.options.owner, self.number, &self.path)?;
        Ok(header)
    }

    /// A segment that is not the last: all of it was durable.
    fn replay_sealed(&self, from: Position, on_record: OnRecord) -> Result<u64> {
        let bytes = self.read(self.len)?;
        self.header(&bytes)?;
        let walk = self.walk(&bytes, from, on_record)?;
        match walk.ending {
            Ending::Sealed => Ok(walk.end),
            Ending::Open(reason) => Err(self.corrupt(walk.end, format!("{reason}, in a segment that was sealed"))),
        }
    }

    /// The last segment: cuts a torn tail and seals it.
    fn replay_last(&self, from: Position, on_record: OnRecord) -> Result<u64> {
        let bytes = self.read(self.len)?;
        let header = match self.header(&bytes) {
            Err(Error::Corrupt(damage)) => return self.begin_unused(&bytes, from, damage),
            other => other?,
        };
        let walk = self.walk(&bytes, from, on_record)?;
        if let Ending::Open(reason) = walk.ending {
            self.check_torn(&bytes, &walk, from, reason)?;
            if self.len < header.capacity {
                return self.end_short(header, &walk);
            }
        }
        self.file.write_at(&bytes[walk.synced as usize..walk.end as usize], walk.synced)?;
        self.file.sync()?;
        match walk.ending {
            Ending::Sealed => Ok(walk.end),
            Ending::Open(_) => self.seal(walk.end, &walk.contents),
        }
    }

    fn seal(&self, end: u64, contents: &Contents) -> Result<u64> {
        let sealed = write_seal(&*self.file, self.at(end), contents)?.offset;
        if sealed < self.len / 2 {
            // A node that starts again and again must not leave a full-length file behind each time.
            self.file.set_len(sealed)?;
            self.file.sync()?;
        }
        Ok(sealed)
    }

    /// The last segment's header does not read. It was durable before the first record, so if there is any, that is
    /// corruption; else the segment was never used, and now never will be.
    fn begin_unused(&self, bytes: &Bytes, from: Position, damage: Corrupt) -> Result<u64> {
        let used = segment::finds_mark_beyond(bytes, self.number, 0, Position::default());
        if used || from > self.at(HEADER_BYTES) {
            return Err(damage.into());
        }
        self.end_unused()
    }

    /// The last segment is shorter than it was made, and not by its seal: damage if it was ever used.
    fn end_short(&self, header: Header, walk: &Walk) -> Result<u64> {
        if walk.end > HEADER_BYTES {
            let reason = format!("the file has {} bytes, it was filled to {} before use", self.len, header.capacity);
            return Err(self.corrupt(self.len, reason));
        }
        self.end_unused()
    }

    /// Seals a segment without records, under a header that promises no more length than that.
    fn end_unused(&self) -> Result<u64> {
        let header = Header { owner: self.options.owner, segment: self.number, capacity: HEADER_BYTES };
        self.file.write_at(&header.encode(), 0)?;
        self.file.sync()?;
        self.seal(HEADER_BYTES, &Contents::default())
    }

    /// An error unless a power loss can have left the end of this last segment so.
    fn check_torn(&self, bytes: &Bytes, walk: &Walk, from: Position, reason: &'static str) -> Result<()> {
        let end = self.at(walk.end);
        if from > end {
            return Err(self.corrupt(walk.end, format!("{reason}; replay is to begin at {}, behind it", from.offset)));
        }
        if segment::finds_mark_beyond(bytes, self.number, walk.end as usize, end) {
            return Err(self.corrupt(walk.end, format!("{reason}, in a place that was durable")));
        }
        Ok(())
    }

    /// Reads frames until one does not read, and hands out the records.
    fn walk(&self, bytes: &Bytes, from: Position, on_record: OnRecord) -> Result<Walk> {
        let (contents, ending) = (Contents::default(), Ending::Open(""));
        let mut walk = Walk { end: HEADER_BYTES, synced: HEADER_BYTES, contents, ending };
        loop {
            let at = self.at(walk.end);
            let (payload, length) = match read_frame(&bytes.slice(walk.end as usize..), at.salt()) {
                Framed::Whole(payload, length) => (payload, length),
                Framed::Empty => return Ok(Walk { ending: Ending::Open("nothing is written here"), ..walk }),
                Framed::Broken(reason) => return Ok(Walk { ending: Ending::Open(reason), ..walk }),
            };
            walk.end += length as u64;
            let read = match payload[0] {
                MARK => self.on_mark(&payload, at, &mut walk),
                FOOTER => {
                    self.on_footer(&payload, &walk).map_err(|error| error.in_file(&self.path, at.offset))?;
                    return Ok(Walk { ending: Ending::Sealed, ..walk });
                }
                _ => self.on_frame(payload, &mut walk, from, on_record),
            };
            read.map_err(|error| error.in_file(&self.path, at.offset))?;
        }
    }

    fn on_mark(&self, payload: &Bytes, at: Position, walk: &mut Walk) -> Result<()> {
        let synced = read_mark(payload, at)?;
        if synced.segment == self.number {
            walk.synced = walk.synced.max(synced.offset);
        }
        Ok(())
    }

    fn on_footer(&self, payload: &Bytes, walk: &Walk) -> Result<()> {
        if Contents::decode(payload)? != walk.contents {
            return Err(Corrupt::new("log segment footer", "it does not tell what the segment holds").into());
        }
        Ok(())
    }

    fn on_frame(&self, record: Bytes, walk: &mut Walk, from: Position, on_record: OnRecord) -> Result<()> {
        walk.contents.add(&Entry::of(&record, self.options.owner.vnode_bits)?);
        let end = self.at(walk.end);
        if end > from { on_record(Replayed { end, record }) } else { Ok(()) }
    }
}
