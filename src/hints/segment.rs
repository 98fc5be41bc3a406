//! One file of hints.
//!
//! ```text
//! file      header | frame | frame | ...            named <number, 20 digits>.hints; frames as in codec/frame.rs
//! header    TRFLHNT1 | version u32 | cluster 16 bytes | node u32 | vnode bits u8 | target u32 | segment u64
//!           | made at i64 (µs since 1970) | end of the segment before u64 | crc32 of all this u32
//! frame     salt: segment << 32 ^ offset of the frame
//! payload   01 hint: written at i64 | keyspace u32 | vnode u32 | record (codec/record.rs)
//!           fe mark: synced u64: the bytes before it were durable when it was written
//! ```
//!
//! A segment does not say where it ends: the next one does, once that is durable. So nothing has to be written to a file
//! whose sync has failed. The last one ends with the last frame that reads, unless a mark behind it shows that more was
//! durable.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{Hint, Place, Stored};
use crate::codec::frame::{FRAME_HEADER_BYTES, Framed, put_frame, read_frame};
use crate::codec::varint::Reader;
use crate::model::{Identity, KeyspaceId, NodeId, Vnode, VnodeBits};
use crate::{Corrupt, Error, Result};

const MAGIC: &[u8; 8] = b"TRFLHNT1";
const VERSION: u32 = 1;

/// Where the first frame stands.
pub(super) const HEADER_BYTES: u64 = 65;

const CHECKSUM_AT: usize = HEADER_BYTES as usize - 4;

const HINT: u8 = 1;
const MARK: u8 = 254;
const MARK_PAYLOAD_BYTES: usize = 9;

/// What a frame takes beside the record of its hint.
pub(super) const HINT_OVERHEAD_BYTES: usize = FRAME_HEADER_BYTES + 17;

/// What a mark takes.
pub(super) const MARK_BYTES: u64 = (FRAME_HEADER_BYTES + MARK_PAYLOAD_BYTES) as u64;

/// No file of hints is larger; one that is was not written by this.
pub(super) const FILE_BYTES_MAX: u64 = 128 << 20;

/// The first bytes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Who keeps the hints.
    pub(super) owner: Identity,
    /// For whom.
    pub(super) target: NodeId,
    /// The segment's number.
    pub(super) segment: u64,
    /// When it was begun: no hint in it is older.
    pub(super) made_at_us: i64,
    /// Where the segment with the number before ends; 0 where there was none.
    pub(super) end_before: u64,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES as usize);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(self.owner.cluster.as_bytes());
        out.extend_from_slice(&self.owner.node.0.to_le_bytes());
        out.push(self.owner.vnode_bits.bits());
        out.extend_from_slice(&self.target.0.to_le_bytes());
        out.extend_from_slice(&self.segment.to_le_bytes());
        out.extend_from_slice(&self.made_at_us.to_le_bytes());
        out.extend_from_slice(&self.end_before.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out
    }

    /// Reads the header at the beginning of `bytes`, those of `file`.
    pub(super) fn decode(bytes: &Bytes, file: &Path) -> Result<Header> {
        let corrupt = |reason: &str| Error::from(Corrupt::new("hint segment", reason).at(file, 0));
        let Some(header) = bytes.get(..HEADER_BYTES as usize) else {
            return Err(corrupt("the file is shorter than a header"));
        };
        if !header.starts_with(MAGIC) {
            return Err(corrupt("it does not begin with TRFLHNT1"));
        }
        if header[CHECKSUM_AT..] != crc32fast::hash(&header[..CHECKSUM_AT]).to_le_bytes() {
            return Err(corrupt("the checksum does not fit"));
        }
        let mut reader = Reader::new("hint segment", bytes.slice(MAGIC.len()..CHECKSUM_AT));
        let found = reader.u32()?;
        if found != VERSION {
            let what = "hint segment";
            return Err(Error::Version { what, file: file.to_owned(), found, oldest: VERSION, newest: VERSION });
        }
        let cluster = uuid::Uuid::from_bytes(reader.array()?);
        let node = NodeId(reader.u32()?);
        let vnode_bits =
            VnodeBits::new(reader.u8()?).ok_or_else(|| corrupt("its number of vnodes is out of bounds"))?;
        let owner = Identity { cluster, node, vnode_bits };
        let target = NodeId(reader.u32()?);
        let (segment, made_at_us, end_before) = (reader.u64()?, reader.i64()?, reader.u64()?);
        reader.end()?;
        Ok(Header { owner, target, segment, made_at_us, end_before })
    }
}

/// The number in the name of a segment; `None` if it is not the name of one.
pub(super) fn number_of(name: &str, ending: &str) -> Option<u64> {
    let number = name.strip_suffix(ending)?;
    number.parse().ok().filter(|parsed| format!("{parsed:020}") == number && *parsed > 0)
}

/// The ending of the names of segments.
pub(super) const ENDING: &str = ".hints";
/// The ending of those that were set aside.
pub(super) const DAMAGED: &str = ".damaged";

pub(super) fn path(directory: &Path, number: u64, ending: &str) -> PathBuf {
    directory.join(format!("{number:020}{ending}"))
}

/// Appends a hint that will stand at `at`.
pub(super) fn put_hint(out: &mut Vec<u8>, at: Place, hint: &Hint) {
    let mut payload = Vec::with_capacity(17 + hint.record.len());
    payload.push(HINT);
    payload.extend_from_slice(&hint.written_at_us.to_le_bytes());
    payload.extend_from_slice(&hint.keyspace.0.to_le_bytes());
    payload.extend_from_slice(&hint.vnode.0.to_le_bytes());
    payload.extend_from_slice(&hint.record);
    put_frame(out, at.salt(), &payload);
}

/// Appends a mark that will stand at `at`.
pub(super) fn put_mark(out: &mut Vec<u8>, at: Place, synced: u64) {
    let mut payload = [0; MARK_PAYLOAD_BYTES];
    payload[0] = MARK;
    payload[1..].copy_from_slice(&synced.to_le_bytes());
    put_frame(out, at.salt(), &payload);
}

/// What one frame says.
pub(super) enum Said {
    Hint(Hint),
    Mark(u64),
}

/// Reads the payload of the frame that begins at `at`.
pub(super) fn read_payload(payload: Bytes, at: Place) -> Result<Said> {
    let mut reader = Reader::new("hint", payload);
    match reader.u8()? {
        HINT => {
            let written_at_us = reader.i64()?;
            let (keyspace, vnode) = (KeyspaceId(reader.u32()?), Vnode(reader.u32()?));
            let record = reader.rest();
            if record.is_empty() {
                return Err(reader.corrupt("it has no record").into());
            }
            Ok(Said::Hint(Hint { written_at_us, keyspace, vnode, record }))
        }
        MARK => {
            let synced = reader.u64()?;
            reader.end()?;
            if synced > at.offset {
                return Err(reader.corrupt("it says that something behind it is durable").into());
            }
            Ok(Said::Mark(synced))
        }
        other => Err(reader.corrupt(format!("kind {other:02x}")).into()),
    }
}

/// How far the bytes of a segment read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Walk {
    /// Behind the last frame that reads.
    pub(super) end: u64,
    /// What marks prove to have been durable.
    pub(super) synced: u64,
    /// Why it goes no further; `None` if nothing is left.
    pub(super) broken: Option<&'static str>,
}

/// Reads frames of segment `number` from offset `start`; `bytes` begin at that offset.
pub(super) fn walk(bytes: &Bytes, number: u64, start: u64, on_hint: &mut dyn FnMut(Stored)) -> Walk {
    let mut walk = Walk { end: start, synced: HEADER_BYTES, broken: None };
    loop {
        let rest = bytes.slice((walk.end - start) as usize..);
        if rest.is_empty() {
            return walk;
        }
        let at = Place { segment: number, offset: walk.end };
        let (payload, length) = match read_frame(&rest, at.salt()) {
            Framed::Whole(payload, length) => (payload, length),
            Framed::Empty => return Walk { broken: Some("nothing is written here"), ..walk },
            Framed::Broken(reason) => return Walk { broken: Some(reason), ..walk },
        };
        let end = walk.end + length as u64;
        match read_payload(payload, at) {
            Ok(Said::Hint(hint)) => on_hint(Stored { end: Place { offset: end, ..at }, hint }),
            Ok(Said::Mark(synced)) => walk.synced = walk.synced.max(synced),
            Err(_) => return Walk { broken: Some("what is framed is neither a hint nor a mark"), ..walk },
        }
        walk.end = end;
    }
}

/// Whether any mark behind offset `start` of this segment says that more than `beyond` was durable. What lies between may be
/// damaged, so every offset is tried.
pub(super) fn finds_mark_beyond(bytes: &Bytes, number: u64, start: u64, beyond: u64) -> bool {
    let length = (MARK_PAYLOAD_BYTES as u32).to_le_bytes();
    let mut at = start as usize;
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == length[0])) {
        at += found;
        if bytes[at..].starts_with(&length) {
            let place = Place { segment: number, offset: at as u64 };
            if let Framed::Whole(payload, _) = read_frame(&bytes.slice(at..), place.salt())
                && let Ok(Said::Mark(synced)) = read_payload(payload, place)
                && synced > beyond
            {
                return true;
            }
        }
        at += 1;
    }
    false
}
