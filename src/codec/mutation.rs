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

use self::view::MutationView;
use super::entry;
use super::row::{self, EncodedRow};
use super::varint::{Cursor, put_bytes, put_prefixed, put_varint};
use crate::Result;
use crate::model::{ClusteringKey, Deletion, Mutation, PartitionKey, RangeDeletion, TableId, Token};

pub mod view;

/// Bytes of a table id, the first thing in a mutation.
const TABLE_BYTES: usize = 16;
/// The fewest bytes of a row with its key.
const KEYED_ROW_LEAST_BYTES: usize = 2 + row::ROW_LEAST_BYTES;
/// The fewest bytes of a range: two lengths, timestamp, ldt.
const RANGE_LEAST_BYTES: usize = 11;

/// A mutation whose rows are still encoded. Same invariants as [`Mutation`].
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
    let view = MutationView::new(&bytes)?;
    view.check()?;
    let share = |part: &[u8]| bytes.slice_ref(part);
    let keyed = |row: Result<(&[u8], &[u8])>| -> Result<_> {
        let (key, row) = row?;
        Ok((ClusteringKey::from_bytes(share(key))?, EncodedRow::trusted(share(row))))
    };
    Ok(MutationParts {
        table: view.table,
        key: PartitionKey::from_bytes(share(view.key)),
        deletion: view.deletion,
        static_row: view.static_row.map(|row| EncodedRow::trusted(share(row))),
        rows: view.rows.clone().map(keyed).collect::<Result<_>>()?,
        ranges: view.ranges()?,
    })
}

/// The table of an encoded mutation, without decoding the rest.
pub fn table_of(bytes: &[u8]) -> Result<TableId> {
    Ok(TableId(Uuid::from_bytes(Cursor::new("mutation", bytes).array::<TABLE_BYTES>()?)))
}

/// The token of an encoded mutation's partition, without decoding the rest.
pub fn token_of(bytes: &[u8]) -> Result<Token> {
    let mut cursor = Cursor::new("mutation", bytes);
    cursor.take(TABLE_BYTES)?;
    Ok(Token::of(cursor.bytes()?))
}
