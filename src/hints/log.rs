//! The hints for one node: appended in the order in which they are missed, read from the oldest on, removed file by file.
//!
//! Bounds are of bytes and of time and of nothing else: while one is reached new hints are not written, and the hole
//! remains. A failed write leaves the log as it was; a failed sync leaves the segment with what was durable before, and the
//! next append begins another.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::segment::{
    DAMAGED, ENDING, FILE_BYTES_MAX, HEADER_BYTES, HINT_OVERHEAD_BYTES, Header, MARK_BYTES, finds_mark_beyond,
    number_of, path, put_hint, put_mark, walk,
};
use super::{Hint, Place, Stored, progress};
use crate::codec::frame::FRAME_HEADER_BYTES;
use crate::model::{Identity, NodeId};
use crate::vfs::{File, Vfs};
use crate::{Corrupt, Error, Result};

/// What is read at once, if a single hint is not larger.
const CHUNK_BYTES: u64 = 64 << 10;

/// Where a log is, whose it is, and its bounds.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// The directory of this one target.
    pub directory: PathBuf,
    /// Who keeps the hints.
    pub owner: Identity,
    /// For whom.
    pub target: NodeId,
    /// A segment that is larger is followed by another.
    pub segment_bytes: u64,
    /// Files that hold hints take no more.
    pub bytes_max: u64,
    /// No hints are written while the oldest one is older, in microseconds.
    pub window_us: i64,
}

/// What a hint is refused by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The files hold as much as they may.
    Bytes,
    /// The oldest hint is as old as it may be for others to be written.
    Age,
}

/// What became of hints that were to be appended.
#[derive(Debug, Default)]
pub struct Appended {
    /// So many are in the log, not durable yet.
    pub written: u64,
    /// So many were refused, and by what; the log is full and too old at once never.
    pub refused: Option<(Bound, u64)>,
    /// So many could not be written.
    pub failed: u64,
    /// Why not.
    pub error: Option<Error>,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Hints in their order.
    pub hints: Vec<Stored>,
    /// Where to read on; as before where nothing is left.
    pub next: Place,
}

/// The log of hints for one node.
pub struct HintLog {
    vfs: Arc<dyn Vfs>,
    options: LogOptions,
    /// By number: where what it holds ends.
    segments: BTreeMap<u64, u64>,
    writer: Option<Writer>,
    next_number: u64,
    acknowledged: Place,
    saved: Place,
    /// When the first hint behind this place was written.
    oldest: Option<(Place, i64)>,
    damaged: u64,
    lost: u64,
    /// A segment of an earlier run that could not be made durable up to its end: the next one must not tell of that end.
    unsure: Option<u64>,
}

/// The segment that is being written.
struct Writer {
    number: u64,
    file: Arc<dyn File>,
    end: u64,
    synced: u64,
    /// The last mark says that so much was durable.
    marked: u64,
    /// Hints since the last sync.
    unsynced: u64,
}

/// The nodes that there are hints for in `directory`, which holds one directory for each, named by its number.
pub fn targets(vfs: &dyn Vfs, directory: &Path) -> Result<Vec<NodeId>> {
    if !vfs.exists(directory)? {
        return Ok(Vec::new());
    }
    let names = vfs.list(directory)?;
    let number = |name: &String| name.parse().ok().filter(|number: &u32| *number > 0 && number.to_string() == *name);
    let mut targets: Vec<NodeId> = names.iter().filter_map(number).map(NodeId).collect();
    targets.sort_unstable();
    Ok(targets)
}

impl HintLog {
    /// Opens the log, or begins one. What does not read is set aside; errors are those of the file system, or of a file that
    /// a newer build has written.
    pub fn open(vfs: Arc<dyn Vfs>, options: LogOptions) -> Result<HintLog> {
        vfs.create_dir(&options.directory)?;
        // What this run sees of names it also relies on.
        vfs.sync_dir(&options.directory)?;
        let names = vfs.list(&options.directory)?;
        let acknowledged = progress::read(&*vfs, &options.directory)?;
        let numbers = |ending| names.iter().filter_map(move |name| number_of(name, ending));
        let damaged = numbers(DAMAGED).count() as u64;
        let last = numbers(DAMAGED).chain(numbers(ENDING)).chain([acknowledged.segment]).max().unwrap_or(0);
        let found: Vec<u64> = numbers(ENDING).collect();
        let mut log = HintLog {
            vfs,
            options,
            segments: BTreeMap::new(),
            writer: None,
            next_number: last + 1,
            acknowledged,
            saved: acknowledged,
            oldest: None,
            damaged,
            lost: 0,
            unsure: None,
        };
        log.take_in(&found)?;
        log.remove_acknowledged()?;
        Ok(log)
    }

    /// Finds where each of these segments ends.
    fn take_in(&mut self, numbers: &[u64]) -> Result<()> {
        let mut next: Option<Header> = None;
        for number in numbers.iter().rev() {
            let told = next.filter(|header| header.segment == number + 1).map(|header| header.end_before);
            next = match self.examine(*number, told.filter(|end| *end > 0)) {
                Ok(header) => header,
                Err(damage @ Error::Corrupt(_)) => {
                    self.set_aside(*number, &damage);
                    None
                }
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Looks at a segment that ends at `told`, or that has to tell by itself where it ends. `None`: it was never used.
    fn examine(&mut self, number: u64, told: Option<u64>) -> Result<Option<Header>> {
        let path = self.path(number);
        let file = self.vfs.open(&path)?;
        let len = file.len()?;
        let corrupt = |reason: String| Error::from(Corrupt::new("hint segment", reason).at(&path, 0));
        if len > FILE_BYTES_MAX {
            return Err(corrupt(format!("{len} bytes are more than a segment has")));
        }
        let whole = told.is_none();
        let mut bytes = vec![0; if whole { len } else { len.min(HEADER_BYTES) } as usize];
        file.read_at(&mut bytes, 0)?;
        let bytes = Bytes::from(bytes);
        let header = match Header::decode(&bytes, &path) {
            // The header is durable before anything follows it.
            Err(Error::Corrupt(_)) if whole && len <= HEADER_BYTES => {
                self.vfs.remove(&path)?;
                return Ok(None);
            }
            other => other?,
        };
        if (header.owner, header.target, header.segment) != (self.options.owner, self.options.target, number) {
            let Header { owner, target, segment, .. } = header;
            let reason =
                format!("it is segment {segment} of node {} of cluster {} for {target}", owner.node, owner.cluster);
            return Err(corrupt(reason));
        }
        let end = match told {
            Some(end) if end < HEADER_BYTES || end > len => {
                return Err(corrupt(format!("{len} bytes, the next one says that it has {end}")));
            }
            Some(end) => end,
            None => self.end_of_last(&bytes, number, &*file),
        };
        self.segments.insert(number, end);
        Ok(Some(header))
    }

    /// Where a segment ends that no other one tells of. What no mark proves durable is written again, since what a failed
    /// sync has left is seen and yet not on the disk.
    fn end_of_last(&mut self, bytes: &Bytes, number: u64, file: &dyn File) -> u64 {
        let read = walk(&bytes.slice(HEADER_BYTES as usize..), number, HEADER_BYTES, &mut |_| {});
        if read.broken.is_some() && finds_mark_beyond(bytes, number, read.end, read.end) {
            // Whoever comes there meets the damage; what is before it can be delivered.
            return bytes.len() as u64;
        }
        // A header that something follows was durable before; one that nothing follows may be what a failed sync has left.
        let proven = if read.end == HEADER_BYTES { 0 } else { read.synced };
        if read.end > proven {
            let again = &bytes[proven as usize..read.end as usize];
            if file.write_at(again, proven).and_then(|()| file.sync()).is_err() {
                self.unsure = Some(number);
            }
        }
        read.end
    }

    fn path(&self, number: u64) -> PathBuf {
        path(&self.options.directory, number, ENDING)
    }

    /// The file keeps its hints for whoever looks into it, and is not looked at again. Should that fail, the next start
    /// tries again.
    fn set_aside(&mut self, number: u64, damage: &Error) {
        tracing::error!(%damage, "a file of hints is set aside; what is in it will not be delivered");
        let to = path(&self.options.directory, number, DAMAGED);
        let moved = self.vfs.rename(&self.path(number), &to).and_then(|()| self.vfs.sync_dir(&self.options.directory));
        if let Err(error) = moved {
            tracing::error!(%error, "a damaged file of hints cannot be renamed");
        }
        self.segments.remove(&number);
        self.writer.take_if(|writer| writer.number == number);
        self.damaged += 1;
    }

    /// Appends hints, as far as the bounds allow; `now_us` is the wall clock.
    pub fn append(&mut self, hints: &[Hint], now_us: i64) -> Appended {
        let mut appended = Appended::default();
        let is_late = self.oldest_us().is_some_and(|oldest| now_us.saturating_sub(oldest) > self.options.window_us);
        if is_late {
            appended.refused = Some((Bound::Age, hints.len() as u64));
            return appended;
        }
        let mut left = hints;
        while !left.is_empty() {
            let room = self.options.bytes_max.saturating_sub(self.bytes());
            let group = self.group(left, room);
            if group == 0 {
                let (_, refused) = appended.refused.get_or_insert((Bound::Bytes, 0));
                *refused += 1;
                left = &left[1..];
                continue;
            }
            match self.write(&left[..group], now_us) {
                Ok(()) => appended.written += group as u64,
                Err(error) => {
                    appended.failed = left.len() as u64;
                    appended.error = Some(error);
                    return appended;
                }
            }
            left = &left[group..];
        }
        appended
    }

    /// How many of these go into the segment that is being written, or into a new one, with `room` bytes to spare.
    fn group(&self, hints: &[Hint], room: u64) -> usize {
        let open = self.writer.as_ref().filter(|writer| writer.end < self.options.segment_bytes);
        let (mut end, mut bytes) = open.map_or((HEADER_BYTES, HEADER_BYTES), |writer| (writer.end, MARK_BYTES));
        let fits = |hint: &&Hint| {
            let is_open = end < self.options.segment_bytes;
            let size = (HINT_OVERHEAD_BYTES + hint.record.len()) as u64;
            (end, bytes) = (end + size, bytes + size);
            is_open && bytes <= room
        };
        hints.iter().take_while(fits).count()
    }

    fn write(&mut self, hints: &[Hint], now_us: i64) -> Result<()> {
        if self.writer.as_ref().is_some_and(|writer| writer.end >= self.options.segment_bytes) {
            self.sync()?;
            self.writer = None;
        }
        if self.writer.is_none() {
            self.writer = Some(self.begin(now_us)?);
        }
        let writer = self.writer.as_mut().expect("one has just been put there");
        let mut bytes = Vec::new();
        let at = |before: usize| Place { segment: writer.number, offset: writer.end + before as u64 };
        if writer.synced > writer.marked {
            put_mark(&mut bytes, at(0), writer.synced);
        }
        for hint in hints {
            let place = at(bytes.len());
            put_hint(&mut bytes, place, hint);
        }
        writer.file.write_at(&bytes, writer.end)?;
        writer.marked = writer.synced;
        writer.end += bytes.len() as u64;
        writer.unsynced += hints.len() as u64;
        self.segments.insert(writer.number, writer.end);
        Ok(())
    }

    /// Begins a segment. Its header is durable before anything follows it.
    fn begin(&mut self, now_us: i64) -> Result<Writer> {
        let number = self.next_number;
        let end_before = match self.segments.get(&(number - 1)) {
            Some(end) if self.unsure != Some(number - 1) => *end,
            _ => 0,
        };
        let LogOptions { owner, target, .. } = self.options;
        let header = Header { owner, target, segment: number, made_at_us: now_us, end_before };
        let path = self.path(number);
        let file = self.vfs.create(&path)?;
        let written = file
            .write_at(&header.encode(), 0)
            .and_then(|()| file.sync())
            .and_then(|()| self.vfs.sync_dir(&self.options.directory));
        if let Err(error) = written {
            if self.vfs.remove(&path).is_err() {
                self.next_number += 1;
            }
            return Err(error);
        }
        self.next_number += 1;
        let at = HEADER_BYTES;
        Ok(Writer { number, file, end: at, synced: at, marked: at, unsynced: 0 })
    }

    /// Makes everything appended durable. After an error what was appended since the last time counts as lost.
    pub fn sync(&mut self) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if writer.synced == writer.end {
            return Ok(());
        }
        match writer.file.sync() {
            Ok(()) => {
                writer.synced = writer.end;
                writer.unsynced = 0;
                Ok(())
            }
            Err(error) => {
                self.segments.insert(writer.number, writer.synced);
                self.lost += writer.unsynced;
                self.writer = None;
                Err(error)
            }
        }
    }

    /// Reads about `bytes` of hints behind `from`, at least one if there is one.
    pub fn load(&mut self, from: Place, bytes: usize) -> Result<Loaded> {
        let behind = |(number, end): &(&u64, &u64)| **number > from.segment || from.offset < **end;
        let mut here = self.segments.range(from.segment..).filter(behind);
        let Some((&number, &end)) = here.next() else {
            return Ok(Loaded { hints: Vec::new(), next: from });
        };
        let start = if number == from.segment { from.offset.max(HEADER_BYTES) } else { HEADER_BYTES };
        if start == end {
            // Nothing was written to it yet, or everything in it was lost.
            return Ok(Loaded { hints: Vec::new(), next: Place { segment: number, offset: end } });
        }
        let file = self.vfs.open(&self.path(number))?;
        match read_hints(&*file, number, (start, end), bytes as u64) {
            Ok((hints, next)) => Ok(Loaded { hints, next }),
            Err(reason) => {
                let damage = Corrupt::new("hint segment", reason).at(&self.path(number), start);
                self.set_aside(number, &damage.into());
                Ok(Loaded { hints: Vec::new(), next: Place { segment: number, offset: end } })
            }
        }
    }

    /// Everything before `through` need not be kept: removes the files that hold nothing else.
    pub fn acknowledge(&mut self, through: Place) -> Result<()> {
        self.acknowledged = self.acknowledged.max(through);
        self.remove_acknowledged()
    }

    fn remove_acknowledged(&mut self) -> Result<()> {
        let mut is_changed = false;
        while let Some((&number, &end)) = self.segments.first_key_value() {
            let is_unused = end <= HEADER_BYTES && self.writer.as_ref().is_none_or(|writer| writer.number != number);
            if (Place { segment: number, offset: end }) > self.acknowledged && !is_unused {
                break;
            }
            self.vfs.remove(&self.path(number))?;
            self.segments.remove(&number);
            self.writer.take_if(|writer| writer.number == number);
            is_changed = true;
        }
        if is_changed { self.vfs.sync_dir(&self.options.directory) } else { Ok(()) }
    }

    /// Makes durable what is acknowledged, if that has changed.
    pub fn save(&mut self) -> Result<()> {
        if self.saved < self.acknowledged {
            progress::write(&*self.vfs, &self.options.directory, self.acknowledged)?;
            self.saved = self.acknowledged;
        }
        Ok(())
    }

    /// Drops every hint, and what was set aside. What the node has missed it misses on.
    pub fn clear(&mut self) -> Result<()> {
        self.acknowledge(self.end())?;
        self.save()?;
        for name in self.vfs.list(&self.options.directory)? {
            if number_of(&name, DAMAGED).is_some() {
                self.vfs.remove(&self.options.directory.join(name))?;
            }
        }
        self.damaged = 0;
        self.vfs.sync_dir(&self.options.directory)
    }

    /// Where the next hint will not stand before.
    pub fn end(&self) -> Place {
        let last = self.segments.last_key_value();
        last.map_or(self.acknowledged, |(&segment, &offset)| self.acknowledged.max(Place { segment, offset }))
    }

    /// Up to where hints are acknowledged.
    pub fn acknowledged(&self) -> Place {
        self.acknowledged
    }

    /// Bytes of the files that hold hints.
    pub fn bytes(&self) -> u64 {
        self.segments.values().sum()
    }

    /// Bytes of hints that are not acknowledged.
    pub fn pending_bytes(&self) -> u64 {
        let acknowledged = self.acknowledged;
        let pending = |(&number, &end): (&u64, &u64)| match number.cmp(&acknowledged.segment) {
            Ordering::Less => 0,
            Ordering::Equal => end.saturating_sub(acknowledged.offset.max(HEADER_BYTES)),
            Ordering::Greater => end.saturating_sub(HEADER_BYTES),
        };
        self.segments.iter().map(pending).sum()
    }

    /// Hints that were appended and are lost again since a sync has failed, of this run.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Files that did not read.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// When the oldest hint that is not acknowledged was written; `None` if there is none that reads.
    pub fn oldest_us(&mut self) -> Option<i64> {
        if self.pending_bytes() == 0 {
            return None;
        }
        if let Some((place, oldest)) = self.oldest
            && place == self.acknowledged
        {
            return Some(oldest);
        }
        let mut from = self.acknowledged;
        loop {
            let loaded = self.load(from, 1).ok()?;
            if let Some(first) = loaded.hints.first() {
                self.oldest = Some((self.acknowledged, first.hint.written_at_us));
                return Some(first.hint.written_at_us);
            }
            if loaded.next == from {
                return None;
            }
            from = loaded.next;
        }
    }
}

/// Hints of the bytes from `start` to `end` of a segment, about `want` bytes of them, and where to read on; an error says
/// why not even the first reads.
fn read_hints(
    file: &dyn File,
    number: u64,
    (start, end): (u64, u64),
    want: u64,
) -> Result<(Vec<Stored>, Place), String> {
    let read = |len: u64| {
        let mut bytes = vec![0; len as usize];
        file.read_at(&mut bytes, start).map(|()| Bytes::from(bytes)).map_err(|error| error.to_string())
    };
    let mut chunk = read((end - start).min(want.max(CHUNK_BYTES)))?;
    let mut hints = Vec::new();
    let mut found = walk(&chunk, number, start, &mut |stored| hints.push(stored));
    if found.end == start && (chunk.len() as u64) < end - start {
        let length = chunk.first_chunk().map_or(0, |length: &[u8; 4]| u32::from_le_bytes(*length));
        let whole = FRAME_HEADER_BYTES as u64 + u64::from(length);
        if whole > end - start {
            return Err("a hint reaches beyond the end".to_owned());
        }
        chunk = read(whole)?;
        found = walk(&chunk, number, start, &mut |stored| hints.push(stored));
    }
    match found.broken {
        Some(reason) if found.end == start => Err(reason.to_owned()),
        _ => Ok((hints, Place { segment: number, offset: found.end })),
    }
}
