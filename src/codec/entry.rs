//! Fragments as bytes: the entries of SSTable blocks and of read answers between nodes.
//!
//! ```text
//! entry      kind u8 | body
//! 1 header   key length varint, key bytes | flags u8 (01 deletion, 02 static row) | [timestamp i64, ldt varint] | [length varint, row]
//! 2 row      key length varint, clustering key | length varint, row
//! 3 open     bound length varint, bound | timestamp i64, ldt varint
//! 4 close    bound length varint, bound
//! ```
//!
//! An entry says nothing of its neighbours: whoever merges streams of them checks their order
//! ([`crate::model::merge`]).

use std::ops::Range;

use bytes::Bytes;

use super::row::{self, EncodedRow, view};
use super::varint::{Cursor, Reader, VARINT_MAX_BYTES, put_bytes, put_varint};
use crate::Result;
use crate::model::{Bound, ClusteringKey, Deletion, Fragment, PartitionHeader, PartitionKey, Stream, Timestamp};

pub(super) const HEADER: u8 = 1;
pub(super) const ROW: u8 = 2;
pub(super) const OPEN: u8 = 3;
pub(super) const CLOSE: u8 = 4;

pub(super) const HAS_DELETION: u8 = 0x01;
pub(super) const HAS_STATIC_ROW: u8 = 0x02;

/// Whether rows must be looked into while they are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Bytes from another process: check everything.
    Checked,
    /// Bytes under a verified checksum of our own: slice.
    Trusted,
}

/// The entries in some bytes, one behind the other, as a stream: a peer's answer, ready to be merged.
///
/// The order of the fragments is not checked here: [`crate::model::Merge`] does that for every source.
#[derive(Debug)]
pub struct Entries {
    reader: Reader,
    trust: Trust,
}

impl Entries {
    /// Reads `bytes`, which hold entries and nothing else.
    pub fn new(bytes: Bytes, trust: Trust) -> Entries {
        Entries { reader: Reader::new("entries", bytes), trust }
    }
}

impl Stream<EncodedRow> for Entries {
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        if self.reader.remaining() == 0 {
            return Ok(None);
        }
        let entry = read_entry(&mut self.reader, self.trust);
        if entry.is_err() {
            self.reader.rest();
        }
        entry.map(Some)
    }
}

/// Appends one fragment.
pub fn put_entry(out: &mut Vec<u8>, fragment: &Fragment<EncodedRow>) {
    match fragment {
        Fragment::Partition(header) => put_header(out, header),
        Fragment::Row(key, row) => put_row(out, key, row),
        Fragment::Change(bound, Some(deletion)) => {
            out.push(OPEN);
            put_bytes(out, bound.bytes());
            put_deletion(out, *deletion);
        }
        Fragment::Change(bound, None) => {
            out.push(CLOSE);
            put_bytes(out, bound.bytes());
        }
    }
}

/// Appends a row.
pub fn put_row(out: &mut Vec<u8>, key: &ClusteringKey, row: &EncodedRow) {
    out.reserve(1 + 2 * VARINT_MAX_BYTES + key.bytes().len() + row.bytes().len());
    out.push(ROW);
    put_bytes(out, key.bytes());
    put_bytes(out, row.bytes());
}

/// Appends the header of a partition.
pub fn put_header(out: &mut Vec<u8>, header: &PartitionHeader<EncodedRow>) {
    out.push(HEADER);
    put_bytes(out, header.key.bytes());
    out.push(partition_flags(header.deletion, header.static_row.as_ref()));
    if let Some(deletion) = header.deletion {
        put_deletion(out, deletion);
    }
    if let Some(row) = &header.static_row {
        put_bytes(out, row.bytes());
    }
}

/// Reads the next fragment. `Checked`: every byte of its rows is looked at; else they are sliced.
pub fn read_entry(reader: &mut Reader, trust: Trust) -> Result<Fragment<EncodedRow>> {
    let kind = reader.u8()?;
    match kind {
        HEADER => read_header(reader, trust).map(Fragment::Partition),
        ROW => Ok(Fragment::Row(read_clustering_key(reader)?, read_row(reader, trust)?)),
        OPEN => Ok(Fragment::Change(read_bound(reader)?, Some(read_deletion(reader)?))),
        CLOSE => Ok(Fragment::Change(read_bound(reader)?, None)),
        _ => Err(reader.corrupt(format!("unknown kind {kind:02x} of entry")).into()),
    }
}

/// The row that ends at `end` and has its key at `key`, in bytes that [`super::skim::skim_entry`] went over and found so;
/// `None` if the entry is no row. `kind_at` is where the entry begins.
pub fn walked_row(
    bytes: &Bytes,
    kind_at: usize,
    key: Range<usize>,
    end: usize,
) -> Result<Option<(ClusteringKey, EncodedRow)>> {
    if bytes.get(kind_at) != Some(&ROW) {
        return Ok(None);
    }
    let mut cursor = Cursor::new("row of an entry", bytes.get(key.end..end).unwrap_or_default());
    let row_len = cursor.bytes()?.len();
    cursor.end()?;
    let key = ClusteringKey::from_bytes(bytes.slice(key))?;
    Ok(Some((key, EncodedRow::trusted(bytes.slice(end - row_len..end)))))
}

/// The encoded row in what stands behind the key of an entry that [`super::skim::skim_entry`] found to be a row.
pub fn row_behind_key(bytes: &[u8]) -> Result<&[u8]> {
    // Lengths take one byte or two, nearly always.
    match bytes {
        [length, row @ ..] if usize::from(*length) == row.len() && *length < 0x80 => Ok(row),
        [low @ 0x80..=0xff, high @ 1..0x80, row @ ..]
            if usize::from(low & 0x7f) | usize::from(*high) << 7 == row.len() =>
        {
            Ok(row)
        }
        bytes => Cursor::new("row of an entry", bytes).bytes(),
    }
}

fn read_header(reader: &mut Reader, trust: Trust) -> Result<PartitionHeader<EncodedRow>> {
    let key = PartitionKey::from_bytes(reader.bytes()?);
    let (deletion, static_row) = read_header_behind_key(reader, trust)?;
    Ok(PartitionHeader { key, deletion, static_row })
}

/// Deletion and static row of a header whose kind and key have been read.
pub fn read_header_behind_key(reader: &mut Reader, trust: Trust) -> Result<(Option<Deletion>, Option<EncodedRow>)> {
    let flags = read_partition_flags(reader)?;
    let deletion = if flags & HAS_DELETION != 0 { Some(read_deletion(reader)?) } else { None };
    let static_row = if flags & HAS_STATIC_ROW != 0 { Some(read_static_row(reader, trust)?) } else { None };
    Ok((deletion, static_row))
}

pub(super) fn partition_flags<R>(deletion: Option<Deletion>, static_row: Option<&R>) -> u8 {
    deletion.map_or(0, |_| HAS_DELETION) | static_row.map_or(0, |_| HAS_STATIC_ROW)
}

fn read_partition_flags(reader: &mut Reader) -> Result<u8> {
    reader.read(partition_flags_at)
}

pub(super) fn partition_flags_at(cursor: &mut Cursor<'_>) -> Result<u8> {
    let flags = cursor.u8()?;
    if flags & !(HAS_DELETION | HAS_STATIC_ROW) != 0 {
        return Err(cursor.corrupt(format!("unknown flags {flags:02x} of partition")).into());
    }
    Ok(flags)
}

/// A deletion outside a row: `timestamp i64 | ldt varint`.
pub fn put_deletion(out: &mut Vec<u8>, deletion: Deletion) {
    out.extend_from_slice(&deletion.timestamp.0.to_le_bytes());
    put_varint(out, deletion.ldt_s as u64);
}

/// Reads what [`put_deletion`] wrote.
pub fn read_deletion(reader: &mut Reader) -> Result<Deletion> {
    reader.read(deletion_at)
}

pub(super) fn deletion_at(cursor: &mut Cursor<'_>) -> Result<Deletion> {
    let timestamp = Timestamp(cursor.i64()?);
    if timestamp < Timestamp::MIN {
        return Err(cursor.corrupt("a timestamp is below the smallest there is").into());
    }
    Ok(Deletion { timestamp, ldt_s: view::read_seconds(cursor)? })
}

fn read_clustering_key(reader: &mut Reader) -> Result<ClusteringKey> {
    let bytes = reader.bytes()?;
    ClusteringKey::from_bytes(bytes).map_err(|error| reader.corrupt(error.to_string()).into())
}

fn read_bound(reader: &mut Reader) -> Result<Bound> {
    let bytes = reader.bytes()?;
    Bound::from_bytes(bytes).map_err(|error| reader.corrupt(error.to_string()).into())
}

/// A row behind its length.
fn read_row(reader: &mut Reader, trust: Trust) -> Result<EncodedRow> {
    let bytes = reader.bytes()?;
    match trust {
        Trust::Checked => EncodedRow::checked(bytes),
        Trust::Trusted => Ok(EncodedRow::trusted(bytes)),
    }
}

/// As [`read_row`]; a static row has neither marker nor deletion.
fn read_static_row(reader: &mut Reader, trust: Trust) -> Result<EncodedRow> {
    let row = read_row(reader, trust)?;
    if !row::may_be_static(row.bytes()) {
        return Err(reader.corrupt("a static row with a marker or a deletion").into());
    }
    Ok(row)
}
