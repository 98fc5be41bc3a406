//! What a read need not look for in a file, by what the file says of its contents as a whole.
//!
//! ```text
//! keys         the partition, or the range of tokens, lies outside first .. last
//! filter       it says that the partition is not there; or, of a read of single rows, that none of them is, and nothing
//!              that concerns rows which are not (filter.rs)
//! clustering   no slice meets least .. greatest, and nothing concerns rows anywhere ("must read")
//! timestamps   everything is older than a deletion of the whole partition that was found elsewhere; or than a range
//!              deletion: then the blocks within that range alone; or than every part of the one row that is sought
//! ```
//!
//! **Invariant:** a read that skips answers the same bytes as one that does not. Bounds hold both ends of every range
//! deletion, and a partition deletion or a static row forbids skipping by clustering (B004, B023 in `docs/testing.md`).
//! By timestamps only what lies *strictly* before the deletion is skipped: of two deletions of one timestamp the greater
//! local deletion time is answered.

use super::filter::RowHash;
use super::reader::Sstable;
use crate::Result;
use crate::codec::EncodedRow;
use crate::codec::row::view::{KindView, Part, RowView};
use crate::model::{Deletion, Glance, Lone, PartitionKey, ScanRange, Slice};

impl Sstable {
    /// Whether a read of these slices of the partition can see anything of this file. `rows`: which rows the slices are, if
    /// each of them is one.
    pub(super) fn may_matter(&self, key: &PartitionKey, slices: &[Slice], rows: &[RowHash]) -> bool {
        let is_within = self.stats.keys.as_ref().is_some_and(|(first, last)| first <= key && key <= last);
        let is_known = || match rows {
            [] => self.filter.may_hold_partition(key.token()),
            rows => self.filter.may_concern_rows(key.token(), rows),
        };
        is_within && is_known() && self.may_hold(slices)
    }

    /// Whether a read of these slices of the partitions in the range can see anything of this file.
    pub fn may_matter_to_scan(&self, range: &ScanRange, slices: &[Slice]) -> bool {
        let Some((first, last)) = &self.stats.keys else { return false };
        let (after, up_to) = (range.tokens.after, range.tokens.up_to);
        let is_behind = after.is_some_and(|after| last.token() <= after)
            || range.after.as_ref().is_some_and(|(token, key)| (last.token(), last.bytes()) <= (*token, key));
        let is_before = up_to.is_some_and(|up_to| first.token() > up_to);
        !is_behind && !is_before && self.may_hold(slices)
    }

    /// Whether everything in it of what a deletion that was found elsewhere covers by place is covered by time too, and
    /// leaves no trace.
    pub fn is_older_than(&self, deletion: Deletion) -> bool {
        self.stats.timestamps.is_none_or(|(_, newest)| newest < deletion.timestamp)
    }

    /// Whether what this file has may change what was `seen` in other places of the one row that is sought.
    ///
    /// It does not where the file deletes nothing and has no static rows, all in it is older than everything of that row, and
    /// the row has a marker and a cell, no counter, for each column that rows of the file say anything of: then each part
    /// that the file may have of the row loses to a later one.
    pub(super) fn may_change(&self, seen: &Glance<EncodedRow>) -> Result<bool> {
        let Glance::Lone(Lone { row: Some((_, row)), .. }) = seen else { return Ok(true) };
        let (Some((_, newest)), Some(columns)) = (self.stats.timestamps, &self.stats.row_columns) else {
            return Ok(true);
        };
        if self.stats.must_read || self.stats.tombstones > 0 {
            return Ok(true);
        }
        let RowView { marker, parts, .. } = row.view()?;
        if marker.is_none_or(|marker| marker.timestamp <= newest) {
            return Ok(true);
        }
        let mut missing = columns.iter().peekable();
        for part in parts {
            let Part::Cell(cell) = part? else { break };
            if matches!(cell.kind, KindView::Counter(_)) || cell.timestamp <= newest {
                return Ok(true);
            }
            missing.next_if(|column| **column == cell.column);
        }
        Ok(missing.peek().is_some())
    }

    fn may_hold(&self, slices: &[Slice]) -> bool {
        let Some((least, greatest)) = &self.stats.clustering else { return self.stats.must_read };
        let meets = |slice: &Slice| slice.start.bytes() < greatest && least < slice.end.bytes();
        self.stats.must_read || slices.iter().any(meets)
    }
}
