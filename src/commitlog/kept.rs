//! What the log keeps for others, and how they get it.
//!
//! ```text
//!   oldest ──────────────────► released ─────────────► active
//!   │ in files here; kept while another may lack names │ needed by replay
//! ```
//!
//! Whether a segment is still wanted is judged from its footer: a slice has names in it, and the highest stamp of the
//! segment is behind what every replica of that slice is known to hold. Segments go oldest first, so that one that is
//! wanted keeps those behind it. Footers of segments from before the start are not read at once: until somebody does, they
//! count as wanted.
//!
//! Records are read beside the log, without its lock. A segment that is recycled meanwhile reads as damaged, since every
//! frame is bound to its place; whoever comes upon that looks whether the segment is still there.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;

use super::footer::Contents;
use super::position::Position;
use super::replay::SegmentFile;
use super::segment::{FOOTER, HEADER_BYTES, MARK};
use super::writer::{CommitLog, Sealed};
use crate::Result;
use crate::codec::CheckedRecord;
use crate::codec::frame::{Framed, read_frame};
use crate::model::{Identity, Stamp, VnodeBits};
use crate::received::gathered::Gathered;
use crate::received::{ReceivedSets, Slice};
use crate::vfs::Vfs;

/// Per slice that others hold too: every name stamped at or below is on all of its replicas.
pub type Everywhere = BTreeMap<Slice, Stamp>;

/// A segment to be read beside the log.
#[derive(Debug, Clone)]
pub struct Reading {
    pub(super) directory: PathBuf,
    pub(super) owner: Identity,
    pub(super) number: u64,
    /// Up to here it is durable.
    pub(super) end: u64,
}

/// What a reading found.
#[derive(Debug, Default)]
pub struct Named {
    /// Records of the wanted names, each name once.
    pub records: Vec<Bytes>,
    /// Their names.
    found: Gathered,
    bytes: usize,
}

impl CommitLog {
    /// What all replicas hold: what is kept for others goes up to there. Slices that are missing are nobody else's.
    pub fn held_everywhere(&mut self, everywhere: Everywhere) -> Result<()> {
        self.everywhere = Some(everywhere);
        self.discard_unwanted()
    }

    /// Lets go what is kept for others only: the room is needed. What an archive lacks goes only if there is nothing else.
    pub fn give_up_kept(&mut self) -> Result<()> {
        let before = self.sealed.len();
        self.discard(|log, sealed| !log.is_archived(sealed))?;
        if self.sealed.len() == before { self.discard(|_, _| false) } else { Ok(()) }
    }

    /// Bytes of the segments that are kept for others only.
    pub fn kept_bytes(&self) -> u64 {
        let kept = self.sealed.iter().take_while(|sealed| sealed.number < self.released.segment);
        kept.map(|sealed| sealed.bytes).sum()
    }

    /// Whether a segment that replay does not need is kept.
    pub(super) fn is_kept(&self, sealed: &Sealed) -> bool {
        let is_wanted = match (&sealed.contents, &self.everywhere) {
            (Some(contents), Some(everywhere)) => contents.may_be_lacked(everywhere),
            _ => true,
        };
        (is_wanted || !self.is_archived(sealed)) && self.kept_bytes() <= self.options.kept_bytes_max
    }

    /// The durable segments that may have any of these names, oldest first.
    pub fn holding(&self, wanted: &ReceivedSets) -> Vec<Reading> {
        let may = |sealed: &&Sealed| sealed.contents.as_ref().is_none_or(|contents| contents.has_any(wanted));
        let mut all: Vec<_> =
            self.sealed.iter().filter(may).map(|sealed| self.reading(sealed.number, sealed.bytes)).collect();
        if self.active.contents.has_any(wanted) {
            all.push(self.reading(self.synced.segment, self.synced.offset));
        }
        all
    }

    /// The oldest segment whose footer was not read in this run.
    pub fn unread(&self) -> Option<Reading> {
        let unread = self.sealed.iter().find(|sealed| sealed.contents.is_none())?;
        Some(self.reading(unread.number, unread.bytes))
    }

    /// Takes note of what a segment was found to hold.
    pub fn learn(&mut self, reading: &Reading, contents: Contents) {
        if let Some(sealed) = self.sealed.iter_mut().find(|sealed| sealed.number == reading.number) {
            sealed.contents.get_or_insert(contents);
        }
    }

    /// Whether the segment is still there.
    pub fn has(&self, reading: &Reading) -> bool {
        self.sealed.front().is_none_or(|oldest| oldest.number <= reading.number)
    }

    pub(super) fn reading(&self, number: u64, end: u64) -> Reading {
        Reading { directory: self.options.directory.clone(), owner: self.options.owner, number, end }
    }
}

impl Named {
    /// Whether so many bytes of records are found.
    pub fn is_full(&self, bytes_max: usize) -> bool {
        self.bytes >= bytes_max
    }
}

impl Reading {
    /// Finds records of the wanted names in the segment, until they take `bytes_max`; answers what the segment holds if it
    /// was read to its footer. Blocks.
    pub fn find(
        &self,
        vfs: &dyn Vfs,
        wanted: &ReceivedSets,
        bytes_max: usize,
        named: &mut Named,
    ) -> Result<Option<Contents>> {
        let file = SegmentFile::open(vfs, &self.directory, self.owner, self.number)?;
        let bytes = file.read_whole(self.end)?;
        let mut contents = Contents::default();
        let mut at = HEADER_BYTES as usize;
        while at < bytes.len() && !named.is_full(bytes_max) {
            let place = Position { segment: self.number, offset: at as u64 };
            let Framed::Whole(payload, length) = read_frame(&bytes.slice(at..), place.salt()) else {
                return Err(file.corrupt(place.offset, "a record that was durable does not read"));
            };
            at += length;
            match payload[0] {
                MARK => {}
                FOOTER => return Ok(Some(contents)),
                _ => {
                    let record = CheckedRecord::trusted(payload)?;
                    contents.add(&record, self.owner.vnode_bits);
                    named.take(&record, self.owner.vnode_bits, wanted);
                }
            }
        }
        Ok(None)
    }
}

impl Named {
    fn take(&mut self, record: &CheckedRecord, vnode_bits: VnodeBits, wanted: &ReceivedSets) {
        let Some((slice, name)) = record.name(vnode_bits) else { return };
        if wanted.get(&slice).is_some_and(|set| set.contains(name)) && self.found.add(slice, name) {
            self.bytes += record.bytes().len();
            // A copy: a slice would hold the whole segment in memory.
            self.records.push(Bytes::copy_from_slice(record.bytes()));
        }
    }
}
