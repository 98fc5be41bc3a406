//! Mutations as bytes.
//!
//! ```text
//! mutation  table 16 bytes | key length varint, key bytes | flags u8 | [partition deletion] | [static row] | rows | ranges
//! flags     01 partition deletion   02 static row
//! deletion  timestamp i64 | ldt varint
//! static    length varint | row (codec/row.rs)
//! rows      count varint | (key length varint, clustering key, length varint, row) ...   strictly ascending
//! ranges    count varint | (start, end as length varint and bytes, deletion) ...         ascending, not overlapping
//! ```

use bytes::Bytes;
use uuid::Uuid;

use super::entry::{self, HAS_DELETION, HAS_STATIC_ROW, Trust};
use super::row::{self, EncodedRow};
use super::varint::{Cursor, Reader, put_bytes, put_prefixed, put_varint};
use crate::Result;
use crate::model::{ClusteringKey, ColumnId, Deletion, Mutation, PartitionKey, RangeDeletion, TableId, Token};

/// Bytes of a table id, the first thing in a mutation.
const TABLE_BYTES: usize = 16;
/// The fewest bytes of a row with its key.
const KEYED_ROW_LEAST_BYTES: usize = 2 + row::ROW_LEAST_BYTES;
/// The fewest bytes of a range: two lengths, timestamp, ldt.
const RANGE_LEAST_BYTES: usize = 11;

/// A mutation whose rows are still encoded: what a replica inserts. Same invariants as [`Mutation`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MutationParts {
    /// The table.
    pub table: TableId,
    /// The partition.
    pub key: PartitionKey,
    /// Deletes the whole partition.
    pub deletion: Option<Deletion>,
    /// Changes of static columns.
    pub static_row: Option<EncodedRow>,
    /// Changes of rows.
    pub rows: Vec<(ClusteringKey, EncodedRow)>,
    /// Range deletions.
    pub ranges: Vec<RangeDeletion>,
}

impl MutationParts {
    /// The greatest column that the mutation says anything of.
    pub fn last_column(&self) -> Result<Option<ColumnId>> {
        let mut last = None;
        for row in self.static_row.iter().chain(self.rows.iter().map(|(_, row)| row)) {
            last = last.max(row.last_column()?);
        }
        Ok(last)
    }
}

/// Appends the encoding of `mutation`.
pub fn encode_mutation(mutation: &Mutation, out: &mut Vec<u8>) {
    out.reserve(usual_bytes(mutation));
    out.extend_from_slice(mutation.table.0.as_bytes());
    put_bytes(out, mutation.key.bytes());
    out.push(entry::partition_flags(mutation.deletion, mutation.static_row.as_ref()));
    if let Some(deletion) = mutation.deletion {
        entry::put_deletion(out, deletion);
    }
    if let Some(row) = &mutation.static_row {
        put_prefixed(out, |out| row::put_row(out, row));
    }
    put_varint(out, mutation.rows.len() as u64);
    for (key, row) in &mutation.rows {
        put_bytes(out, key.bytes());
        put_prefixed(out, |out| row::put_row(out, row));
    }
    put_varint(out, mutation.ranges.len() as u64);
    for range in &mutation.ranges {
        put_bytes(out, range.start.bytes());
        put_bytes(out, range.end.bytes());
        entry::put_deletion(out, range.deletion);
    }
}

/// About how long an encoding is; at least that long for usual mutations.
pub(super) fn usual_bytes(mutation: &Mutation) -> usize {
    const LENGTHS: usize = 8;
    let header = TABLE_BYTES + mutation.key.bytes().len() + LENGTHS;
    let deletion = if mutation.deletion.is_some() { 16 } else { 0 };
    let static_row = mutation.static_row.as_ref().map_or(0, |row| LENGTHS + row::usual_bytes(row));
    let rows = mutation.rows.iter().map(|(key, row)| LENGTHS + key.bytes().len() + row::usual_bytes(row));
    let ranges = mutation.ranges.iter().map(|range| range.start.bytes().len() + range.end.bytes().len() + 16 + LENGTHS);
    header + deletion + static_row + rows.sum::<usize>() + ranges.sum::<usize>()
}

/// Decodes a mutation, checking every byte of it (rows included), without unpacking the rows.
pub fn decode_mutation(bytes: Bytes) -> Result<MutationParts> {
    decode(bytes, Trust::Checked)
}

/// Decodes a mutation whose bytes were checked before (by the receiver of the message, or by the log's checksum): rows
/// are sliced, not looked into.
pub fn decode_checked_mutation(bytes: Bytes) -> Result<MutationParts> {
    decode(bytes, Trust::Trusted)
}

/// The table of an encoded mutation, without decoding the rest.
pub fn table_of(bytes: &Bytes) -> Result<TableId> {
    read_table(&mut reader(bytes.clone()))
}

/// The token of an encoded mutation's partition, without decoding the rest.
pub fn token_of(bytes: &[u8]) -> Result<Token> {
    let mut cursor = Cursor::new("mutation", bytes);
    cursor.take(TABLE_BYTES)?;
    Ok(Token::of(cursor.bytes()?))
}

fn reader(bytes: Bytes) -> Reader {
    Reader::new("mutation", bytes)
}

fn decode(bytes: Bytes, trust: Trust) -> Result<MutationParts> {
    let mut reader = reader(bytes);
    let table = read_table(&mut reader)?;
    let key = PartitionKey::from_bytes(reader.bytes()?);
    let flags = entry::read_partition_flags(&mut reader)?;
    let deletion = if flags & HAS_DELETION != 0 { Some(entry::read_deletion(&mut reader)?) } else { None };
    let static_row = if flags & HAS_STATIC_ROW != 0 { Some(entry::read_static_row(&mut reader, trust)?) } else { None };
    let rows = read_rows(&mut reader, trust)?;
    let ranges = read_ranges(&mut reader)?;
    reader.end()?;
    Ok(MutationParts { table, key, deletion, static_row, rows, ranges })
}

fn read_table(reader: &mut Reader) -> Result<TableId> {
    Ok(TableId(Uuid::from_bytes(reader.array::<TABLE_BYTES>()?)))
}

fn read_rows(reader: &mut Reader, trust: Trust) -> Result<Vec<(ClusteringKey, EncodedRow)>> {
    let count = reader.count(KEYED_ROW_LEAST_BYTES)?;
    let mut rows: Vec<(ClusteringKey, EncodedRow)> = Vec::with_capacity(count);
    for _ in 0..count {
        let key = entry::read_clustering_key(reader)?;
        if rows.last().is_some_and(|(before, _)| *before >= key) {
            return Err(reader.corrupt("rows do not ascend").into());
        }
        rows.push((key, entry::read_row(reader, trust)?));
    }
    Ok(rows)
}

fn read_ranges(reader: &mut Reader) -> Result<Vec<RangeDeletion>> {
    let count = reader.count(RANGE_LEAST_BYTES)?;
    let mut ranges: Vec<RangeDeletion> = Vec::with_capacity(count);
    for _ in 0..count {
        let start = entry::read_bound(reader)?;
        let end = entry::read_bound(reader)?;
        let range = RangeDeletion { start, end, deletion: entry::read_deletion(reader)? };
        if range.start >= range.end {
            return Err(reader.corrupt("a range is empty").into());
        }
        if let Some(before) = ranges.last() {
            if before.end > range.start {
                return Err(reader.corrupt("ranges overlap or do not ascend").into());
            }
            if before.end == range.start && before.deletion == range.deletion {
                return Err(reader.corrupt("ranges that touch say the same and are not one").into());
            }
        }
        ranges.push(range);
    }
    Ok(ranges)
}
