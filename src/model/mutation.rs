//! What one write changes in one partition.

use super::cell::Deletion;
use super::key::{Bound, ClusteringKey, PartitionKey};
use super::ranges::Ranges;
use super::reconcile::{merge_deletions, merge_rows, shadow_row};
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

/// Gathers the operations of one write into a [`Mutation`], in any order, and keeps its invariants.
///
/// The order of calls does not matter: operations of one write are reconciled like any others, so that a row set and
/// deleted at one timestamp is deleted.
#[derive(Debug, Clone)]
pub struct MutationBuilder {
    table: TableId,
    key: PartitionKey,
    deletion: Option<Deletion>,
    static_row: Option<Row>,
    rows: Vec<(ClusteringKey, Row)>,
    ranges: Ranges,
}

impl MutationBuilder {
    /// Begins a write to a partition.
    pub fn new(table: TableId, key: PartitionKey) -> MutationBuilder {
        MutationBuilder { table, key, deletion: None, static_row: None, rows: Vec::new(), ranges: Ranges::new() }
    }

    /// Changes a row: its cells, its marker, its deletion. A row that holds nothing changes nothing.
    pub fn add_row(&mut self, key: ClusteringKey, row: Row) {
        if !row.is_empty() {
            self.rows.push((key, row));
        }
    }

    /// Changes static columns. `row` has cells only.
    pub fn add_static(&mut self, row: Row) {
        debug_assert!(row.marker.is_none() && row.deletion.is_none(), "a static row has cells only");
        if !row.is_empty() {
            self.static_row = Some(match self.static_row.take() {
                Some(earlier) => merge_rows(earlier, row),
                None => row,
            });
        }
    }

    /// Deletes the rows between two bounds; an empty range deletes nothing (B104).
    pub fn delete_range(&mut self, start: Bound, end: Bound, deletion: Deletion) {
        self.ranges.add(start, end, deletion);
    }

    /// Deletes the whole partition, its static row too.
    pub fn delete_partition(&mut self, deletion: Deletion) {
        self.deletion = merge_deletions(self.deletion, Some(deletion));
    }

    /// The mutation: rows sorted and merged, what its own deletions cover left out.
    pub fn finish(mut self) -> Mutation {
        self.rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut rows: Vec<(ClusteringKey, Row)> = Vec::with_capacity(self.rows.len());
        for (key, row) in self.rows {
            match rows.last_mut() {
                Some((last, earlier)) if *last == key => *earlier = merge_rows(std::mem::take(earlier), row),
                _ => rows.push((key, row)),
            }
        }
        let partition = self.deletion;
        let under = |row: Row, deletion: Option<Deletion>| match deletion {
            Some(deletion) => shadow_row(row, deletion),
            None => Some(row),
        };
        let ranges = &self.ranges;
        let rows = rows.into_iter().filter_map(|(key, row)| {
            let covering = merge_deletions(partition, ranges.in_force_at(key.bytes()));
            under(row, covering).map(|row| (key, row))
        });
        let uncovered = |range: &RangeDeletion| partition.is_none_or(|own| !own.covers(range.deletion.timestamp));
        Mutation {
            table: self.table,
            key: self.key,
            deletion: partition,
            static_row: self.static_row.and_then(|row| under(row, partition)),
            rows: rows.collect(),
            ranges: ranges.deletions().filter(uncovered).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
