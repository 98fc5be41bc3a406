//! What one write changes in one partition.

use super::cell::Deletion;
use super::key::{Bound, ClusteringKey, PartitionKey};
use super::row::Row;
use super::schema::TableId;

/// All changes of one write to one partition of one table. Applied as a whole or not at all.
///
/// Invariants: `rows` strictly ascend by key and none [`Row::is_empty`]; `ranges` are normalised (see
/// [`RangeDeletion`]); the static row, if any, is not empty; timestamps and expiries are final, so that applying it
/// anywhere, any number of times, in any order, gives the same state. Several operations on one row have been merged by
/// the rule of [`super::reconcile`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// The table.
    pub table: TableId,
    /// The partition.
    pub key: PartitionKey,
    /// Deletes the whole partition.
    pub deletion: Option<Deletion>,
    /// Changes of static columns.
    pub static_row: Option<Row>,
    /// Changes of rows, row deletions among them.
    pub rows: Vec<(ClusteringKey, Row)>,
    /// Range deletions.
    pub ranges: Vec<RangeDeletion>,
}

/// A deletion of everything between two bounds. In a list they ascend, do not overlap, are not empty (`start < end`),
/// and neighbours that touch differ in their deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeDeletion {
    /// Where it begins.
    pub start: Bound,
    /// Where it ends.
    pub end: Bound,
    /// What it says.
    pub deletion: Deletion,
}

impl Mutation {
    /// A mutation that changes nothing yet.
    pub fn new(table: TableId, key: PartitionKey) -> Mutation {
        Mutation { table, key, deletion: None, static_row: None, rows: Vec::new(), ranges: Vec::new() }
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.deletion.is_none() && self.static_row.is_none() && self.rows.is_empty() && self.ranges.is_empty()
    }
}
