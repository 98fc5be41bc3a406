//! What a replica tells another about once a second.
//!
//! ```text
//!  report 7, base 5, acked 12, closed through 10:00:00
//!     ks 1, vnode 30, placement 2, told ...        changed since report 5, the last of mine that you have
//!     ks 1, vnode 31, placement 3, being rebuilt
//! ```
//!
//! A report lists, whole, what changed since the last one that its reader acknowledged, so nothing is lost with a
//! report that is: the next one lists it again. A reader that has not the base (it started again) does not take the
//! report in; the `acked` of its own next report says so, and the sender begins with base 0, which lists everything.
//! Where nothing changes it has no slice.

use bytes::Bytes;

use super::Slice;
use super::told::Told;
use crate::Result;
use crate::codec::varint::{Reader, put_varint};
use crate::model::{KeyspaceId, Stamp, Vnode};

/// The version of the encoding; its first byte.
const VERSION: u8 = 1;
/// No slice takes less: keyspace, vnode, placement and standing.
const SLICE_BYTES_MIN: usize = 4;

const REBUILT: u8 = 0;
const WHOLE: u8 = 1;

/// Which report of a node: those of a later run, and of a later number in it, are newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReportNumber {
    /// The start stamp of the sender's run.
    pub incarnation: u64,
    /// 1, 2, 3, ... within the run.
    pub number: u64,
}

/// What one node tells one other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Which report it is.
    pub number: ReportNumber,
    /// The number of the report of the same run on which it builds: what did not change since is not listed. 0: it
    /// lists all.
    pub base: u64,
    /// The last report of the reader that the sender took in.
    pub acked: Option<ReportNumber>,
    /// A promise: the sender names nothing stamped here or before, and accepts nothing so stamped that it has not told,
    /// unless another replica has told it.
    pub closed_through: Stamp,
    /// By ascending slice.
    pub slices: Vec<(Slice, SliceReport)>,
}

/// What a node tells of one slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceReport {
    /// The number of the placement under which it is told.
    pub placement: u64,
    /// What the sender has; none while it is being rebuilt, and counts for nothing.
    pub told: Option<Told>,
}

impl Report {
    /// The bytes (docs/formats.md, "report").
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_number(&mut out, self.number);
        put_varint(&mut out, self.base);
        match self.acked {
            None => out.push(0),
            Some(acked) => {
                out.push(1);
                put_number(&mut out, acked);
            }
        }
        out.extend_from_slice(&self.closed_through.0.to_le_bytes());
        put_varint(&mut out, self.slices.len() as u64);
        for ((keyspace, vnode), slice) in &self.slices {
            put_varint(&mut out, u64::from(keyspace.0));
            put_varint(&mut out, u64::from(vnode.0));
            slice.encode(&mut out);
        }
        out
    }

    /// Reads what [`Report::encode`] wrote, and nothing else.
    pub fn decode(bytes: Bytes) -> Result<Report> {
        let mut reader = Reader::new("report", bytes);
        let version = reader.u8()?;
        if version != VERSION {
            return Err(reader.corrupt(format!("version {version}, and this build reads {VERSION}")).into());
        }
        let number = read_number(&mut reader)?;
        let base = reader.varint()?;
        if base >= number.number {
            return Err(reader.corrupt("a report builds on one that is not before it").into());
        }
        let acked = match reader.u8()? {
            0 => None,
            1 => Some(read_number(&mut reader)?),
            other => return Err(reader.corrupt(format!("{other} is neither 0 nor 1")).into()),
        };
        let closed_through = Stamp(reader.i64()?);
        let slices = read_slices(&mut reader)?;
        reader.end()?;
        Ok(Report { number, base, acked, closed_through, slices })
    }
}

impl SliceReport {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.placement);
        match &self.told {
            None => out.push(REBUILT),
            Some(told) => {
                out.push(WHOLE);
                told.encode(out);
            }
        }
    }

    fn decode(reader: &mut Reader) -> Result<SliceReport> {
        let placement = reader.varint()?;
        let told = match reader.u8()? {
            REBUILT => None,
            WHOLE => Some(Told::decode(reader)?),
            other => return Err(reader.corrupt(format!("no slice stands at {other}")).into()),
        };
        Ok(SliceReport { placement, told })
    }
}

fn put_number(out: &mut Vec<u8>, number: ReportNumber) {
    out.extend_from_slice(&number.incarnation.to_le_bytes());
    put_varint(out, number.number);
}

fn read_number(reader: &mut Reader) -> Result<ReportNumber> {
    let (incarnation, number) = (reader.u64()?, reader.varint()?);
    if number == 0 {
        return Err(reader.corrupt("reports are numbered from 1").into());
    }
    Ok(ReportNumber { incarnation, number })
}

fn read_slices(reader: &mut Reader) -> Result<Vec<(Slice, SliceReport)>> {
    let count = reader.count(SLICE_BYTES_MIN)?;
    let mut slices: Vec<(Slice, SliceReport)> = Vec::new();
    for _ in 0..count {
        let slice = (KeyspaceId(reader.varint_u32()?), Vnode(reader.varint_u32()?));
        if slices.last().is_some_and(|(last, _)| *last >= slice) {
            return Err(reader.corrupt("the slices of a report do not ascend").into());
        }
        slices.push((slice, SliceReport::decode(reader)?));
    }
    Ok(slices)
}
