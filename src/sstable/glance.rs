//! The shortest way to one row: what a file holds of a partition within a slice, if that is one row at most.
//!
//! It answers what the streams of `scan.rs` would, without making one: a block is found, searched, and at most a header and
//! a row are decoded. Whatever is more than that, a range deletion above all, is left to them.

use super::Access;
use super::block::{Block, Span};
use super::filter::RowHash;
use super::reader::Sstable;
use super::rows::seek_block;
use crate::Result;
use crate::codec::EncodedRow;
use crate::model::{Deletion, Direction, Fragment, Glance, Lone, PartitionKey, ReadCost, Slice};

impl Sstable {
    /// What it holds of the partition within the slice, as [`Sstable::partition`] would yield it, unless that changes nothing
    /// of what was `seen` in other places. `row`: the only one that can lie in the slice, if there is but one.
    pub fn glance(
        &self,
        key: &PartitionKey,
        slice: &Slice,
        row: Option<RowHash>,
        seen: &Glance<EncodedRow>,
        access: Access,
        cost: &mut ReadCost,
    ) -> Result<Glance<EncodedRow>> {
        let is_seen = || Ok::<_, crate::Error>(row.is_some() && !self.may_change(seen)?);
        let first = match self.may_matter(key, std::slice::from_ref(slice), row.as_slice()) && !is_seen()? {
            true => seek_block(&self.index, key, slice, Direction::Forward)?,
            false => None,
        };
        let Some(number) = first else {
            cost.sstables_skipped += 1;
            return Ok(Glance::Absent);
        };
        cost.sstables_read += 1;
        let block = self.block(number, access, cost)?;
        let Some(span) = block.span(key) else { return Ok(Glance::Absent) };
        let from = block.seek(span, |place| place <= slice.start.bytes().as_ref());
        if block.in_force_before(from, span).is_some() {
            return Ok(Glance::More);
        }
        let to = block.seek(Span { start: from, ..span }, |place| place < slice.end.bytes().as_ref());
        if to > from + 1 || (to == block.len() && self.goes_on_within(number + 1, key, slice)?) {
            return Ok(Glance::More);
        }
        let row = match to > from {
            false => None,
            true => match block.fragment(from).map_err(|error| self.placed_in_block(error, number))? {
                Fragment::Row(key, row) => Some((key, row)),
                _ => return Ok(Glance::More),
            },
        };
        cost.rows += u64::from(row.is_some());
        let (deletion, static_row) = self.header(number, &block, span, access, cost)?;
        Lone { deletion, static_row, row }.shadowed().map(Glance::Lone)
    }

    /// Whether the next block begins within the partition, and within the slice.
    fn goes_on_within(&self, number: u32, key: &PartitionKey, slice: &Slice) -> Result<bool> {
        if number >= self.index.count() {
            return Ok(false);
        }
        let entry = self.index.entry(number)?;
        Ok((entry.token, entry.key) == (key.token(), key.bytes()) && entry.place < slice.end.bytes().as_ref())
    }

    /// The partition's deletion and static row. Only the latter may be in another block.
    fn header(
        &self,
        number: u32,
        block: &Block,
        span: Span,
        access: Access,
        cost: &mut ReadCost,
    ) -> Result<(Option<Deletion>, Option<EncodedRow>)> {
        if let Some(entry) = span.header {
            return block.header(entry).map_err(|error| self.placed_in_block(error, number));
        }
        let lost = || self.corrupt(format!("block {number} continues a partition that has no beginning"));
        let continued = block.continued().ok_or_else(lost)?;
        let Some(beginning) = continued.static_row_in else { return Ok((continued.deletion, None)) };
        if beginning >= number {
            return Err(lost());
        }
        let first = self.block(beginning, access, cost)?;
        let entry = first.span(&continued.key).and_then(|span| span.header).ok_or_else(lost)?;
        let (_, static_row) = first.header(entry).map_err(|error| self.placed_in_block(error, beginning))?;
        Ok((continued.deletion, static_row))
    }

    fn placed_in_block(&self, error: crate::Error, number: u32) -> crate::Error {
        self.placed(error, self.index.entry(number).map_or(0, |entry| entry.offset))
    }
}
