//! One segment file: its name, its header, and the marks between its records.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::position::Position;
use crate::codec::frame::{FRAME_HEADER_BYTES, Framed, put_frame, read_frame};
use crate::codec::varint::Reader;
use crate::model::{Identity, NodeId, VnodeBits};
use crate::{Corrupt, Error, Result};

/// Where the first frame stands.
pub(super) const HEADER_BYTES: u64 = 4096;

/// The header's checksum stands at its end in every version, so that a version is believed only if it was written so.
const CHECKSUM_AT: usize = HEADER_BYTES as usize - 4;

const MAGIC: &[u8; 8] = b"TRFLLOG1";
const VERSION: u32 = 1;

/// First byte of a mark's payload. Records have their own kinds there, 1 and 2.
pub(super) const MARK: u8 = 254;
/// First byte of a footer's payload.
pub(super) const FOOTER: u8 = 255;

const MARK_PAYLOAD_BYTES: usize = 17;

/// What a mark takes.
pub(super) const MARK_BYTES: u64 = (FRAME_HEADER_BYTES + MARK_PAYLOAD_BYTES) as u64;

/// A file of the log's directory, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileName {
    /// `<number>.log`: part of the log.
    Segment(u64),
    /// `<number>.spare`: a full-length file that waits to become a segment; what it holds means nothing.
    Spare(u64),
    /// `<number>.new`: a spare that was still being filled when its maker stopped.
    Unfinished,
}

impl FileName {
    /// What a file of this name is; `None` if it is not the log's.
    pub(super) fn parse(name: &str) -> Option<FileName> {
        let (number, kind) = name.split_once('.')?;
        let number = number.parse().ok().filter(|parsed| format!("{parsed:020}") == number)?;
        match kind {
            "log" => Some(FileName::Segment(number)),
            "spare" => Some(FileName::Spare(number)),
            "new" => Some(FileName::Unfinished),
            _ => None,
        }
    }
}

/// The path of a segment.
pub(super) fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:020}.log"))
}

/// The first 4 KiB of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Whose log it is.
    pub(super) owner: Identity,
    /// The segment's number.
    pub(super) segment: u64,
    /// The length to which the file was filled before the first record; only a seal leaves it shorter.
    pub(super) capacity: u64,
}

impl Header {
    /// The bytes of the header.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES as usize);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(self.owner.cluster.as_bytes());
        out.extend_from_slice(&self.owner.node.0.to_le_bytes());
        out.push(self.owner.vnode_bits.bits());
        out.extend_from_slice(&self.segment.to_le_bytes());
        out.extend_from_slice(&self.capacity.to_le_bytes());
        out.resize(CHECKSUM_AT, 0);
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out
    }

    /// Reads the header at the beginning of `bytes`, those of `file`.
    pub(super) fn decode(bytes: &Bytes, file: &Path) -> Result<Header> {
        let corrupt = |reason: &str| Corrupt::new("log segment header", reason).at(file, 0);
        if bytes.len() < HEADER_BYTES as usize {
            return Err(corrupt("the file is shorter than a header").into());
        }
        if !bytes.starts_with(MAGIC) {
            return Err(corrupt("it does not begin with TRFLLOG1").into());
        }
        if bytes[CHECKSUM_AT..HEADER_BYTES as usize] != crc32fast::hash(&bytes[..CHECKSUM_AT]).to_le_bytes() {
            return Err(corrupt("the checksum does not fit").into());
        }
        let mut reader = Reader::new("log segment header", bytes.slice(MAGIC.len()..CHECKSUM_AT));
        let found = reader.u32()?;
        if found != VERSION {
            let what = "log segment";
            return Err(Error::Version { what, file: file.to_owned(), found, oldest: VERSION, newest: VERSION });
        }
        let cluster = uuid::Uuid::from_bytes(reader.array()?);
        let node = NodeId(reader.u32()?);
        let bits = reader.u8()?;
        let vnode_bits = VnodeBits::new(bits).ok_or_else(|| corrupt("its number of vnodes is out of bounds"))?;
        let owner = Identity { cluster, node, vnode_bits };
        Ok(Header { owner, segment: reader.u64()?, capacity: reader.u64()? })
    }

    /// Checks that the header is of segment `number` of `owner`.
    pub(super) fn check(&self, owner: Identity, number: u64, file: &Path) -> Result<()> {
        if self.owner != owner {
            let directory = file.parent().unwrap_or(file).to_owned();
            return Err(Error::WrongDirectory { directory, found: named(self.owner), expected: named(owner) });
        }
        if self.segment != number {
            let reason = format!("it is that of segment {}, the file is named {number}", self.segment);
            return Err(Corrupt::new("log segment header", reason).at(file, 0).into());
        }
        Ok(())
    }
}

fn named(owner: Identity) -> String {
    format!("node {} of cluster {} with {} vnodes", owner.node, owner.cluster, owner.vnode_bits.count())
}

/// Appends the mark that stands at `at`: everything before `synced` was durable when it was written.
pub(super) fn put_mark(out: &mut Vec<u8>, at: Position, synced: Position) {
    let mut payload = [0; MARK_PAYLOAD_BYTES];
    payload[0] = MARK;
    payload[1..9].copy_from_slice(&synced.segment.to_le_bytes());
    payload[9..].copy_from_slice(&synced.offset.to_le_bytes());
    put_frame(out, at.salt(), &payload);
}

/// What the mark at `at` says was durable; never what lies behind the mark itself.
pub(super) fn read_mark(payload: &Bytes, at: Position) -> Result<Position> {
    let mut reader = Reader::new("log mark", payload.slice(1..));
    let synced = Position { segment: reader.u64()?, offset: reader.u64()? };
    reader.end()?;
    if synced > at {
        return Err(reader.corrupt("it says that something behind it is durable").into());
    }
    Ok(synced)
}

/// Whether any mark behind offset `start` of this segment says that something beyond `beyond` was durable.
///
/// The records in between may be damaged, so every offset is tried. A mark has a fixed length, whose four bytes are
/// looked for first; that makes it a search for one byte through a mostly empty file.
pub(super) fn finds_mark_beyond(bytes: &Bytes, segment: u64, start: usize, beyond: Position) -> bool {
    let length = (MARK_PAYLOAD_BYTES as u32).to_le_bytes();
    let mut at = start;
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == length[0])) {
        at += found;
        if bytes[at..].starts_with(&length) {
            let place = Position { segment, offset: at as u64 };
            if let Framed::Whole(payload, _) = read_frame(&bytes.slice(at..), place.salt())
                && payload[0] == MARK
                && read_mark(&payload, place).is_ok_and(|synced| synced > beyond)
            {
                return true;
            }
        }
        at += 1;
    }
    false
}
