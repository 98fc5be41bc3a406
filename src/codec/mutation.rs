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

use super::row::EncodedRow;
use crate::Result;
use crate::model::{ClusteringKey, Deletion, Mutation, PartitionKey, RangeDeletion, TableId};

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

/// Appends the encoding of `mutation`.
pub fn encode_mutation(_mutation: &Mutation, _out: &mut Vec<u8>) {
    todo!()
}

/// Decodes a mutation, checking every byte of it (rows included), without unpacking the rows.
pub fn decode_mutation(_bytes: Bytes) -> Result<MutationParts> {
    todo!()
}

/// Decodes a mutation whose bytes were checked before (by the receiver of the message, or by the log's checksum): rows
/// are sliced, not looked into.
pub fn decode_checked_mutation(_bytes: Bytes) -> Result<MutationParts> {
    todo!()
}

/// The table of an encoded mutation, without decoding the rest.
pub fn table_of(_bytes: &Bytes) -> Result<TableId> {
    todo!()
}
