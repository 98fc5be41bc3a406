//! The rows of one partition within a slice, as they stand in blocks, where the file holds nothing of it but rows.
//!
//! That is what most reads of several rows find, and whoever copies rows from here to a page needs neither a fragment nor
//! a decoded row: one entry of a block is one entry of a page. Whatever is more than rows, a deletion above all, is left to
//! the streams of `scan.rs`; the filter knows beforehand.

use std::sync::Arc;

use super::Access;
use super::block::Block;
use super::blocks::Blocks;
use super::filter::RowHash;
use super::reader::Sstable;
use super::rows::{Spot, Whereabouts, seek_block};
use crate::Result;
use crate::codec::EncodedRow;
use crate::codec::entry::row_behind_key;
use crate::model::{ClusteringKey, Direction, PartitionKey, ReadCost, Slice};

/// What a file holds of a partition within a slice.
pub enum Plain {
    /// Nothing.
    Absent,
    /// Rows and nothing else, the first of them at hand.
    Rows(Box<PlainRows>),
    /// More than rows, or perhaps more.
    More,
}

/// Whether there is a row at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There is.
    Row,
    /// There is none: the slice or the partition has ended.
    End,
    /// There may be, but not only rows.
    More,
}

/// See the module. A row is at hand as long as the last [`Progress`] said so.
pub struct PlainRows {
    blocks: Blocks,
    key: PartitionKey,
    slice: Slice,
    direction: Direction,
    spot: Spot,
    /// The place in the block at which the slice or the block ends, in the direction of the read.
    stop: u32,
}

impl Sstable {
    /// What it holds of the partition within the slice. `row` and `cost` as in [`Sstable::partition`].
    pub fn plain_rows(
        self: &Arc<Self>,
        key: &PartitionKey,
        slice: &Slice,
        rows: &[RowHash],
        direction: Direction,
        access: Access,
        cost: &mut ReadCost,
    ) -> Result<Plain> {
        let first = match self.may_matter(key, std::slice::from_ref(slice), rows) {
            true => seek_block(&self.index, key, slice, direction)?,
            false => None,
        };
        let Some(number) = first else {
            cost.sstables_skipped += 1;
            return Ok(Plain::Absent);
        };
        if self.filter.may_know_more_than_rows(key.token()) {
            return Ok(Plain::More);
        }
        cost.sstables_read += 1;
        let mut blocks = Blocks::cached(self, access);
        if blocks.get(number)?.span(key).is_none() {
            *cost += blocks.cost();
            return Ok(Plain::Absent);
        }
        let spot = Spot::seek(&mut blocks, key, slice, direction, Whereabouts::FirstSlice(number))?;
        let mut rows = PlainRows { blocks, key: key.clone(), slice: slice.clone(), direction, spot, stop: 0 };
        let progress = if rows.enter() { rows.settle()? } else { Progress::More };
        Ok(match progress {
            Progress::Row => Plain::Rows(Box::new(rows)),
            Progress::More => Plain::More,
            Progress::End => {
                *cost += rows.cost();
                Plain::Absent
            }
        })
    }
}

impl PlainRows {
    /// The clustering bytes of the row at hand.
    pub fn key(&self) -> &[u8] {
        self.spot.block.key(self.at())
    }

    /// The row at hand and those behind it in its block.
    pub fn ahead(&self) -> RowsAhead<'_> {
        RowsAhead { rows: self, block: &self.spot.block, above: self.spot.above }
    }

    /// The row at hand, by itself.
    pub fn row(&self) -> Result<(ClusteringKey, EncodedRow)> {
        let row = self.spot.block.row(self.at());
        row.map_err(|error| self.blocks.placed(error, self.spot.number))
    }

    /// How many rows there are still in the block at hand, and how many bytes their entries take.
    pub fn within_reach(&self) -> (usize, usize) {
        let (from, to) = match self.direction {
            Direction::Forward => (self.spot.above, self.stop),
            Direction::Reverse => (self.stop, self.spot.above),
        };
        ((to - from) as usize, self.spot.block.bytes_between(from, to))
    }

    /// Goes to the next row.
    pub fn advance(&mut self) -> Result<Progress> {
        self.go_to(Reached(next(self.spot.above, self.direction)))
    }

    /// Goes to where [`RowsAhead`] has come to.
    pub fn go_to(&mut self, Reached(above): Reached) -> Result<Progress> {
        self.spot.above = above;
        if self.spot.above != self.stop { Ok(Progress::Row) } else { self.settle() }
    }

    /// The blocks that it has looked at.
    pub fn cost(&self) -> ReadCost {
        self.blocks.cost()
    }

    fn at(&self) -> u32 {
        entry_at(self.spot.above, self.direction)
    }

    /// Goes to the block in which there are more rows of the slice.
    fn settle(&mut self) -> Result<Progress> {
        while self.spot.above == self.stop {
            let (key, slice, span) = (&self.key, &self.slice, self.spot.span);
            let (left, number) = (Arc::clone(&self.spot.block), self.spot.number);
            let has_entered = match self.direction {
                Direction::Forward => {
                    self.stop == span.end && self.spot.enter_next_block(&mut self.blocks, key, &slice.end)?
                }
                Direction::Reverse => {
                    self.stop == span.start && self.spot.enter_previous_block(&mut self.blocks, key, &slice.start)?
                }
            };
            if !has_entered {
                return Ok(Progress::End);
            }
            if !self.enter() {
                return Ok(Progress::More);
            }
            let last = match self.direction {
                Direction::Forward => span.end.checked_sub(1),
                Direction::Reverse => Some(span.start),
            };
            let has_row = self.spot.above != self.stop;
            if let Some(last) = last.filter(|last| has_row && (span.start..span.end).contains(last))
                && self.direction.order(self.key().cmp(left.key(last))).is_le()
            {
                return Err(self.blocks.corrupt(format!("block {} does not follow block {number}", self.spot.number)));
            }
        }
        Ok(Progress::Row)
    }

    /// Finds where the slice ends in the block; whether there are only rows in it.
    fn enter(&mut self) -> bool {
        let Spot { block, span, in_force, .. } = &self.spot;
        self.stop = match self.direction {
            Direction::Forward => block.seek(*span, |place| place < self.slice.end.bytes().as_ref()),
            Direction::Reverse => block.seek(*span, |place| place <= self.slice.start.bytes().as_ref()),
        };
        in_force.is_none() && !block.has_changes(*span)
    }
}

/// The rows from the one at hand to where the block or the slice ends. Nothing is moved by looking at them.
pub struct RowsAhead<'a> {
    rows: &'a PlainRows,
    block: &'a Block,
    /// As in [`Spot`].
    above: u32,
}

/// A place that [`RowsAhead`] has come to.
#[derive(Debug, Clone, Copy)]
pub struct Reached(u32);

impl<'a> RowsAhead<'a> {
    /// The clustering bytes of the row at hand, and their beginning as a number: where the numbers of two rows differ, the
    /// row with the smaller one comes first.
    pub fn key_and_head(&self) -> (&'a [u8], u64) {
        self.block.key_and_head(entry_at(self.above, self.rows.direction))
    }

    /// The row at hand: the entry as a page has it, and in it the encoded row.
    pub fn entry(&self) -> Result<(&'a [u8], &'a [u8])> {
        let (entry, behind_key) = self.block.entry(entry_at(self.above, self.rows.direction));
        let row = row_behind_key(behind_key).map_err(|error| self.rows.blocks.placed(error, self.rows.spot.number))?;
        Ok((entry, row))
    }

    /// Goes to the next row; `false`: there is none in the block, and none is at hand.
    pub fn pass(&mut self) -> bool {
        self.above = next(self.above, self.rows.direction);
        self.above != self.rows.stop
    }

    /// Where it is.
    pub fn reached(&self) -> Reached {
        Reached(self.above)
    }
}

/// The entry behind a place between two, in the direction of a read.
fn entry_at(above: u32, direction: Direction) -> u32 {
    match direction {
        Direction::Forward => above,
        Direction::Reverse => above - 1,
    }
}

/// The place behind the entry behind a place.
fn next(above: u32, direction: Direction) -> u32 {
    match direction {
        Direction::Forward => above + 1,
        Direction::Reverse => above - 1,
    }
}
