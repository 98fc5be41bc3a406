//! The paging state that a client hands back: opaque to it, bound to its request, checked when it returns.
//!
//! ```text
//! state   version u8 (1) | fingerprint u64 of the request | rows left varint (0: no limit) | target varint |
//!         start | crc32 u32 over all before
//! start   0 beginning  ·  1 behind a token i64  ·  2 rows shown of the partition varint, position (codec/position.rs)
//! ```

use bytes::Bytes;

use crate::codec::position::{put_position, read_position};
use crate::codec::varint::{Reader, put_varint};
use crate::model::{PagePosition, Token};
use crate::{Corrupt, Error, Result};

const VERSION: u8 = 1;

/// Where a page ended, and all that the next one needs to know of those before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// The place.
    pub position: PagePosition,
    /// Visible rows shown of that partition so far: for limits per partition, and so that its static row is not shown
    /// as a row of its own once rows were.
    pub rows_in_partition: u32,
}

/// Where a page begins within its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// At its beginning.
    Beginning,
    /// In a scan: behind every partition with a token up to this one.
    Behind(Token),
    /// Where the page before ended.
    Resume(Resume),
}

impl Start {
    /// The place where the page before ended, if it is one.
    pub fn resume(&self) -> Option<&Resume> {
        match self {
            Start::Resume(resume) => Some(resume),
            Start::Beginning | Start::Behind(_) => None,
        }
    }
}

/// A paging state, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagingState {
    /// Which of the request's targets comes next, counted from 0.
    pub target: u32,
    /// Where to go on in it.
    pub start: Start,
    /// Rows left of the request's limit; `None`: no limit.
    pub rows_left: Option<u64>,
}

impl PagingState {
    /// The bytes for the client. `fingerprint` identifies the request (everything but limits and position).
    pub fn encode(&self, fingerprint: u64) -> Bytes {
        let mut out = vec![VERSION];
        out.extend_from_slice(&fingerprint.to_le_bytes());
        put_varint(&mut out, self.rows_left.unwrap_or(0));
        put_varint(&mut out, u64::from(self.target));
        match &self.start {
            Start::Beginning => out.push(0),
            Start::Behind(token) => {
                out.push(1);
                out.extend_from_slice(&token.0.to_le_bytes());
            }
            Start::Resume(resume) => {
                out.push(2);
                put_varint(&mut out, u64::from(resume.rows_in_partition));
                put_position(&mut out, &resume.position);
            }
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        Bytes::from(out)
    }

    /// Reads a state that a client handed back, and refuses one that is damaged or belongs to another request.
    pub fn decode(state: &Bytes, fingerprint: u64) -> Result<PagingState> {
        let refuse = |reason: &str| Error::invalid("paging_state", reason);
        let (body, crc) = state.split_last_chunk::<4>().ok_or_else(|| refuse("too short to be a paging state"))?;
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return Err(refuse("damaged; hand back the bytes of the page before unchanged"));
        }
        let mut reader = Reader::new("paging state", state.slice(..body.len()));
        let decoded = PagingState::decode_body(&mut reader, fingerprint);
        decoded.map_err(|error| match error {
            Error::Corrupt(Corrupt { reason, .. }) => refuse(&reason),
            other => other,
        })
    }

    fn decode_body(reader: &mut Reader, fingerprint: u64) -> Result<PagingState> {
        let version = reader.u8()?;
        if version != VERSION {
            return Err(reader
                .corrupt(format!("version {version}, this node knows {VERSION}; begin the read again"))
                .into());
        }
        if reader.u64()? != fingerprint {
            return Err(reader.corrupt("of another request; pages of one read must ask for the same thing").into());
        }
        let rows_left = Some(reader.varint()?).filter(|rows| *rows != 0);
        let target = reader.varint_u32()?;
        let start = match reader.u8()? {
            0 => Start::Beginning,
            1 => Start::Behind(Token(reader.i64()?)),
            2 => {
                let rows_in_partition = reader.varint_u32()?;
                Start::Resume(Resume { position: read_position(reader)?, rows_in_partition })
            }
            other => return Err(reader.corrupt(format!("{other} is no kind of start")).into()),
        };
        reader.end()?;
        Ok(PagingState { target, start, rows_left })
    }
}
