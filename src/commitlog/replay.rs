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

use super::footer::Contents;
use super::position::Position;
use super::segment::{self, FOOTER, FileName, HEADER_BYTES, Header, MARK, read_mark, segment_path};
use super::writer::{Sealed, write_seal};
use super::{Examined, LogOptions, Replayed, SEGMENT_BYTES_MAX};
use crate::codec::CheckedRecord;
use crate::codec::frame::{Framed, read_frame};
use crate::model::Identity;
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
    let Listing { segments, spares, unfinished } = list(&**vfs, directory)?;
    unfinished.iter().try_for_each(|path| vfs.remove(path))?;
    check_complete(&segments, from, directory)?;
    let on_record: OnRecord = &mut |replayed| if replayed.end > from { on_record(replayed) } else { Ok(()) };
    let mut sealed = VecDeque::new();
    for number in &segments {
        let file = SegmentFile::open(&**vfs, directory, options.owner, *number)?;
        let (bytes, contents) = if Some(number) == segments.last() {
            file.replay_last(from, on_record).map(|(end, contents)| (end, Some(contents)))?
        } else if *number < from.segment {
            // Kept for others, if at all. It is read when they ask.
            file.check_header()?;
            (file.len, None)
        } else {
            file.read_sealed(on_record).map(|walk| (walk.end, Some(walk.contents)))?
        };
        sealed.push_back(Sealed { number: *number, bytes, contents });
    }
    Ok(Past { sealed, spares })
}

/// Reads the whole log as [`replay`] would and changes nothing; every record there is goes to `on_record`.
pub(super) fn examine(
    vfs: &dyn Vfs,
    directory: &Path,
    owner: Identity,
    from: Position,
    on_record: OnRecord,
) -> Result<Examined> {
    let segments = if vfs.exists(directory)? { list(vfs, directory)?.segments } else { Vec::new() };
    let mut examined = Examined { segments: segments.len() as u64, ..Examined::default() };
    examined.faults.extend(check_complete(&segments, from, directory).err());
    for number in &segments {
        let is_last = Some(number) == segments.last();
        let read = SegmentFile::open(vfs, directory, owner, *number).and_then(|file| {
            examined.bytes += file.len;
            if is_last {
                file.examine_last(from, on_record, &mut examined)
            } else {
                file.read_sealed(on_record).map(drop)
            }
        });
        examined.faults.extend(read.err().map(|error| error.in_file(&segment_path(directory, *number), 0)));
    }
    Ok(examined)
}

/// The files of a log.
#[derive(Default)]
struct Listing {
    /// Their numbers, ascending.
    segments: Vec<u64>,
    /// Their numbers, ascending.
    spares: Vec<u64>,
    /// Files that never became a spare.
    unfinished: Vec<PathBuf>,
}

fn list(vfs: &dyn Vfs, directory: &Path) -> Result<Listing> {
    let mut listing = Listing::default();
    for name in vfs.list(directory)? {
        match FileName::parse(&name) {
            Some(FileName::Segment(number)) => listing.segments.push(number),
            Some(FileName::Spare(number)) => listing.spares.push(number),
            Some(FileName::Unfinished) => listing.unfinished.push(directory.join(name)),
            None => {}
        }
    }
    Ok(listing)
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
pub(super) struct SegmentFile {
    owner: Identity,
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

/// How the last segment was left.
enum Last {
    /// It holds no records.
    Unused,
    /// It reads that far.
    Used(Walk),
}

/// What stands behind the last frame that reads.
enum Ending {
    /// It was a footer.
    Sealed,
    /// Something that is not a frame: why not.
    Open(&'static str),
}

impl SegmentFile {
    pub(super) fn open(vfs: &dyn Vfs, directory: &Path, owner: Identity, number: u64) -> Result<SegmentFile> {
        let path = segment_path(directory, number);
        let file = vfs.open(&path)?;
        let len = file.len()?;
        Ok(SegmentFile { owner, number, path, file, len })
    }

    fn at(&self, offset: u64) -> Position {
        Position { segment: self.number, offset }
    }

    pub(super) fn corrupt(&self, offset: u64, reason: impl Into<String>) -> Error {
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

    /// The first `len` bytes, with a header that was checked.
    pub(super) fn read_whole(&self, len: u64) -> Result<Bytes> {
        let bytes = self.read(len.min(self.len))?;
        self.header(&bytes)?;
        Ok(bytes)
    }

    /// Bytes from within the file.
    pub(super) fn read_range(&self, offset: u64, len: u64) -> Result<Bytes> {
        if offset.saturating_add(len) > self.len {
            return Err(self.corrupt(self.len, "the file ends before what was durable"));
        }
        let mut bytes = vec![0; len as usize];
        self.file.read_at(&mut bytes, offset)?;
        Ok(bytes.into())
    }

    /// The error, placed in this file.
    pub(super) fn placed(&self, error: Error, offset: u64) -> Error {
        error.in_file(&self.path, offset)
    }

    pub(super) fn check_header(&self) -> Result<()> {
        self.header(&self.read(self.len.min(HEADER_BYTES))?).map(drop)
    }

    fn header(&self, bytes: &Bytes) -> Result<Header> {
        let header = Header::decode(bytes, &self.path)?;
        header.check(self.owner, self.number, &self.path)?;
        Ok(header)
    }

    /// A segment that is not the last: all of it was durable.
    fn read_sealed(&self, on_record: OnRecord) -> Result<Walk> {
        let bytes = self.read(self.len)?;
        self.header(&bytes)?;
        let walk = self.walk(&bytes, on_record)?;
        match walk.ending {
            Ending::Sealed => Ok(walk),
            Ending::Open(reason) => Err(self.corrupt(walk.end, format!("{reason}, in a segment that was sealed"))),
        }
    }

    /// The last segment: cuts a torn tail and seals it.
    fn replay_last(&self, from: Position, on_record: OnRecord) -> Result<(u64, Contents)> {
        let bytes = self.read(self.len)?;
        let Last::Used(walk) = self.read_last(&bytes, from, on_record)? else {
            return Ok((self.end_unused()?, Contents::default()));
        };
        self.file.write_at(&bytes[walk.synced as usize..walk.end as usize], walk.synced)?;
        self.file.sync()?;
        let end = match walk.ending {
            Ending::Sealed => walk.end,
            Ending::Open(_) => self.seal(walk.end, &walk.contents)?,
        };
        Ok((end, walk.contents))
    }

    /// Reads the last segment and leaves it as it is; an error if a power loss cannot have left it so.
    fn read_last(&self, bytes: &Bytes, from: Position, on_record: OnRecord) -> Result<Last> {
        let header = match self.header(bytes) {
            Err(Error::Corrupt(damage)) => return self.check_unused(bytes, from, damage),
            other => other?,
        };
        let walk = self.walk(bytes, on_record)?;
        if let Ending::Open(reason) = walk.ending {
            self.check_torn(bytes, &walk, from, reason)?;
            if self.len < header.capacity {
                return self.check_short(header, &walk);
            }
        }
        Ok(Last::Used(walk))
    }

    fn examine_last(&self, from: Position, on_record: OnRecord, examined: &mut Examined) -> Result<()> {
        let bytes = self.read(self.len)?;
        let end = match self.read_last(&bytes, from, on_record)? {
            Last::Used(walk) => walk.end,
            Last::Unused => HEADER_BYTES,
        };
        examined.end = Some(self.at(end));
        Ok(())
    }

    fn seal(&self, end: u64, contents: &Contents) -> Result<u64> {
        let sealed = write_seal(&*self.file, self.at(end), contents)?.offset;
        self.file.sync()?;
        if sealed < self.len / 2 {
            // A node that starts again and again must not leave a full-length file behind each time.
            self.file.set_len(sealed)?;
            self.file.sync()?;
        }
        Ok(sealed)
    }

    /// The last segment's header does not read. It was durable before the first record, so if there is any, that is
    /// corruption; else the segment was never used, and now never will be.
    fn check_unused(&self, bytes: &Bytes, from: Position, damage: Corrupt) -> Result<Last> {
        let used = segment::finds_mark_beyond(bytes, self.number, 0, Position::default());
        if used || from > self.at(HEADER_BYTES) {
            return Err(damage.into());
        }
        Ok(Last::Unused)
    }

    /// The last segment is shorter than it was made, and not by its seal: damage if it was ever used.
    fn check_short(&self, header: Header, walk: &Walk) -> Result<Last> {
        if walk.end > HEADER_BYTES {
            let reason = format!("the file has {} bytes, it was filled to {} before use", self.len, header.capacity);
            return Err(self.corrupt(self.len, reason));
        }
        Ok(Last::Unused)
    }

    /// Seals a segment without records, under a header that promises no more length than that.
    fn end_unused(&self) -> Result<u64> {
        let header = Header { owner: self.owner, segment: self.number, capacity: HEADER_BYTES };
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
    fn walk(&self, bytes: &Bytes, on_record: OnRecord) -> Result<Walk> {
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
                _ => self.on_frame(payload, &mut walk, on_record),
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

    fn on_frame(&self, record: Bytes, walk: &mut Walk, on_record: OnRecord) -> Result<()> {
        let record = CheckedRecord::trusted(record)?;
        walk.contents.add(&record, self.owner.vnode_bits);
        on_record(Replayed { end: self.at(walk.end), record })
    }
}
