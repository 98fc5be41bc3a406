//! The rows and range changes of one partition, within slices, in either direction.
//!
//! ```text
//! slice            (start ------------------ end)
//! entries   ... c0 |   r1   c1   r2   c2   r3 | c3 ...      c: changes; forward: open at start what c0 put in force,
//!                                                           then r1 c1 r2 c2 r3, then close at end what c2 put in force
//! ```
//!
//! An entry that stands exactly at an end of the slice lies outside: what it changes is told by opening or closing there.
//! Backwards, a change says what is in force *below* it, which is what the change before it, or the block's prologue,
//! put in force. Blocks are visited only while they can hold something of the slice; where one partition goes on in the
//! next block, both must agree on the deletion in force, or the file is corrupt (B100 in `docs/testing.md`).

use std::cmp::Ordering;
use std::sync::Arc;

use super::block::{Block, Span};
use super::blocks::Blocks;
use super::index::Index;
use crate::codec::EncodedRow;
use crate::model::{Bound, Deletion, Direction, Fragment, PartitionKey, Slice};
use crate::{Error, Result};

/// What is read of each partition.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    slices: Arc<[Slice]>,
    direction: Direction,
}

/// What is known of where the partition stands, beside what the index says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// Nothing.
    Unknown,
    /// The first slice begins in this block.
    FirstSlice(u32),
    /// All of the partition is in this block.
    Whole(u32),
}

/// See the module.
pub(super) struct Rows {
    key: PartitionKey,
    selection: Selection,
    whereabouts: Whereabouts,
    slices_done: usize,
    /// Where the present slice is being read; `None` between slices.
    spot: Option<Spot>,
    /// What comes next, where a part was passed over.
    pending: Option<Fragment<EncodedRow>>,
}

/// A place between two entries of the partition.
pub(super) struct Spot {
    pub(super) number: u32,
    pub(super) block: Arc<Block>,
    pub(super) span: Span,
    /// The entry above the place.
    pub(super) above: u32,
    /// The range deletion in force at the place.
    pub(super) in_force: Option<Deletion>,
}

impl Selection {
    /// Slices must ascend and not overlap. Those that touch become one, so that nothing is closed and opened at one place;
    /// empty ones are left out.
    pub(super) fn new(slices: &[Slice], direction: Direction) -> Result<Selection> {
        let mut joined: Vec<Slice> = Vec::with_capacity(slices.len());
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            match joined.last_mut() {
                Some(last) if slice.start < last.end => {
                    return Err(Error::invalid("slices of a read", "they must ascend and not overlap"));
                }
                Some(last) if slice.start == last.end => last.end = slice.end.clone(),
                _ => joined.push(slice.clone()),
            }
        }
        Ok(Selection { slices: joined.into(), direction })
    }

    /// Everything, forward.
    pub(super) fn all() -> Selection {
        Selection { slices: [Slice::all()].into(), direction: Direction::Forward }
    }

    fn slice(&self, done: usize) -> Option<&Slice> {
        match self.direction {
            Direction::Forward => self.slices.get(done),
            Direction::Reverse => self.slices.len().checked_sub(done + 1).map(|at| &self.slices[at]),
        }
    }

    /// The block in which reading `key` begins; it is that of the partition's header if nothing of its rows is wanted.
    /// `None`: the partition is not in the file.
    pub(super) fn first_block(&self, blocks: &Blocks, key: &PartitionKey) -> Result<Option<u32>> {
        match self.slice(0) {
            Some(slice) => seek_block(blocks.index(), key, slice, self.direction),
            None => {
                let header = (key.token(), key.bytes().as_ref(), [].as_slice());
                Ok(blocks.index().leading(|entry| entry.order() <= header)?.checked_sub(1))
            }
        }
    }
}

impl Rows {
    /// The selected rows of a partition that is in the file.
    pub(super) fn new(key: PartitionKey, selection: Selection, whereabouts: Whereabouts) -> Rows {
        Rows { key, selection, whereabouts, slices_done: 0, spot: None, pending: None }
    }

    /// The next row or change.
    pub(super) fn next(&mut self, blocks: &mut Blocks) -> Result<Option<Fragment<EncodedRow>>> {
        if let Some(pending) = self.pending.take() {
            return Ok(Some(pending));
        }
        loop {
            let direction = self.selection.direction;
            let Some(slice) = self.selection.slice(self.slices_done) else { return Ok(None) };
            let (first, last) = match direction {
                Direction::Forward => (&slice.start, &slice.end),
                Direction::Reverse => (&slice.end, &slice.start),
            };
            let Some(spot) = &mut self.spot else {
                let spot = Spot::seek(blocks, &self.key, slice, direction, self.whereabouts)?;
                let opened = spot.in_force.map(|deletion| Fragment::Change(first.clone(), Some(deletion)));
                self.spot = Some(spot);
                match opened {
                    Some(opened) => return Ok(Some(opened)),
                    None => continue,
                }
            };
            let stepped = match direction {
                Direction::Forward => spot.up(blocks, &self.key, slice)?,
                Direction::Reverse => spot.down(blocks, &self.key, slice)?,
            };
            if stepped.is_some() {
                return Ok(stepped);
            }
            let closed = spot.in_force.map(|_| Fragment::Change(last.clone(), None));
            self.leave_slice();
            if closed.is_some() {
                return Ok(closed);
            }
        }
    }

    /// Goes to `place`, which lies ahead in the present slice, without looking at what lies between. `seen` is the range
    /// deletion that the reader has seen opened last. `false`: it is between two slices, and stays there.
    pub(super) fn pass(&mut self, blocks: &mut Blocks, place: &Bound, seen: Option<Deletion>) -> Result<bool> {
        let direction = self.selection.direction;
        let (Some(slice), true) = (self.selection.slice(self.slices_done), self.spot.is_some()) else {
            return Ok(false);
        };
        let (last, rest) = match direction {
            Direction::Forward => (&slice.end, Slice { start: place.clone(), end: slice.end.clone() }),
            Direction::Reverse => (&slice.start, Slice { start: slice.start.clone(), end: place.clone() }),
        };
        if rest.is_empty() {
            self.pending = seen.map(|_| Fragment::Change(last.clone(), None));
            self.leave_slice();
            return Ok(true);
        }
        let spot = Spot::seek(blocks, &self.key, &rest, direction, Whereabouts::Unknown)?;
        self.pending = (spot.in_force != seen).then(|| Fragment::Change(place.clone(), spot.in_force));
        self.spot = Some(spot);
        Ok(true)
    }

    fn leave_slice(&mut self) {
        self.spot = None;
        self.slices_done += 1;
        if let Whereabouts::FirstSlice(_) = self.whereabouts {
            self.whereabouts = Whereabouts::Unknown;
        }
    }
}

impl Spot {
    /// The place where a slice begins, in the direction of the read.
    pub(super) fn seek(
        blocks: &mut Blocks,
        key: &PartitionKey,
        slice: &Slice,
        direction: Direction,
        whereabouts: Whereabouts,
    ) -> Result<Spot> {
        let number = match whereabouts {
            Whereabouts::Whole(number) | Whereabouts::FirstSlice(number) => Some(number),
            Whereabouts::Unknown => seek_block(blocks.index(), key, slice, direction)?,
        };
        let number = number.ok_or_else(|| blocks.corrupt("the index lost a partition"))?;
        let (block, span) = block_with(blocks, number, key)?;
        let above = match direction {
            Direction::Forward => block.seek(span, |place| place <= slice.start.bytes().as_ref()),
            Direction::Reverse => block.seek(span, |place| place < slice.end.bytes().as_ref()),
        };
        let in_force = block.in_force_before(above, span);
        Ok(Spot { number, block, span, above, in_force })
    }

    /// Goes over the next entry above, if it lies below the end of the slice.
    fn up(&mut self, blocks: &mut Blocks, key: &PartitionKey, slice: &Slice) -> Result<Option<Fragment<EncodedRow>>> {
        while self.above == self.span.end {
            if !self.enter_next_block(blocks, key, &slice.end)? {
                return Ok(None);
            }
        }
        if self.block.key(self.above) >= slice.end.bytes().as_ref() {
            return Ok(None);
        }
        let fragment = self.block.fragment(self.above).map_err(|error| blocks.placed(error, self.number))?;
        self.above += 1;
        if let Fragment::Change(_, deletion) = fragment {
            self.in_force = deletion;
        }
        Ok(Some(fragment))
    }

    /// `false`: the partition ends here, or goes on behind `end` only.
    pub(super) fn enter_next_block(&mut self, blocks: &mut Blocks, key: &PartitionKey, end: &Bound) -> Result<bool> {
        let next = self.number + 1;
        if self.span.end < self.block.len() || !blocks.continues_below(next, key, end)? {
            return self.check_partition_end(blocks, key);
        }
        let (block, span) = block_with(blocks, next, key)?;
        let in_force = block.in_force_before(span.start, span);
        if span.header.is_some() || in_force != self.in_force {
            return Err(disagreement(blocks, next));
        }
        *self = Spot { number: next, block, above: span.start, span, in_force };
        Ok(true)
    }

    fn check_partition_end(&self, blocks: &Blocks, key: &PartitionKey) -> Result<bool> {
        let ends = self.span.end < self.block.len() || !blocks.continues(self.number + 1, key)?;
        if ends && self.in_force.is_some() {
            return Err(blocks.corrupt("a range deletion is not closed in its partition"));
        }
        Ok(false)
    }

    /// Goes over the next entry below, if it lies above the start of the slice.
    fn down(&mut self, blocks: &mut Blocks, key: &PartitionKey, slice: &Slice) -> Result<Option<Fragment<EncodedRow>>> {
        while self.above == self.span.start {
            if !self.enter_previous_block(blocks, key, &slice.start)? {
                return Ok(None);
            }
        }
        let entry = self.above - 1;
        if self.block.key(entry) <= slice.start.bytes().as_ref() {
            return Ok(None);
        }
        self.above = entry;
        let fragment = self.block.fragment(entry).map_err(|error| blocks.placed(error, self.number))?;
        let Fragment::Change(bound, _) = fragment else { return Ok(Some(fragment)) };
        self.in_force = self.block.in_force_before(entry, self.span);
        Ok(Some(Fragment::Change(bound, self.in_force)))
    }

    /// `false`: the partition begins here, or nothing before lies above `start`.
    pub(super) fn enter_previous_block(
        &mut self,
        blocks: &mut Blocks,
        key: &PartitionKey,
        start: &Bound,
    ) -> Result<bool> {
        if self.span.header.is_some() || compare_with_first_behind(self.block.key(0), start).is_le() {
            return Ok(false);
        }
        let number = self.number.checked_sub(1).ok_or_else(|| disagreement(blocks, self.number))?;
        let (block, span) = block_with(blocks, number, key)?;
        let in_force = block.in_force_before(span.end, span);
        if span.end < block.len() || in_force != self.in_force {
            return Err(disagreement(blocks, number));
        }
        *self = Spot { number, block, above: span.end, span, in_force };
        Ok(true)
    }
}

fn block_with(blocks: &mut Blocks, number: u32, key: &PartitionKey) -> Result<(Arc<Block>, Span)> {
    let block = blocks.get(number)?;
    match block.span(key) {
        Some(span) => Ok((block, span)),
        None => Err(disagreement(blocks, number)),
    }
}

fn disagreement(blocks: &Blocks, number: u32) -> Error {
    blocks.corrupt(format!("block {number} does not fit the index or its neighbour"))
}

/// The block in which a slice of a partition begins, in the direction of the read; `None`: before the first block.
pub(super) fn seek_block(
    index: &Index,
    key: &PartitionKey,
    slice: &Slice,
    direction: Direction,
) -> Result<Option<u32>> {
    let (token, key) = (key.token(), key.bytes().as_ref());
    let begun = index.leading_near(token, |entry| {
        let by_place = || match direction {
            Direction::Forward => compare_with_first_behind(entry.place, &slice.start).is_le(),
            Direction::Reverse => entry.place < slice.end.bytes().as_ref(),
        };
        match entry.key.cmp(key) {
            Ordering::Less => true,
            Ordering::Equal => entry.place.is_empty() || by_place(),
            Ordering::Greater => false,
        }
    })?;
    Ok(begun.checked_sub(1))
}

/// Compares a place with the first place that can hold something behind `bound`.
///
/// A bound before a prefix ends in 20, and the least thing that begins with that prefix is the row of just these
/// components, which ends in 38 (see `model::key`). So a block that begins with the row of a point lookup is taken
/// itself, and the one before it is not touched.
fn compare_with_first_behind(place: &[u8], bound: &Bound) -> Ordering {
    const BEFORE: u8 = 0x20;
    const ROW: u8 = 0x38;
    let bound = bound.bytes().as_ref();
    let Some((&BEFORE, prefix)) = bound.split_last() else { return place.cmp(bound) };
    match place.split_at_checked(prefix.len()) {
        None => place.cmp(prefix),
        Some((head, tail)) => head.cmp(prefix).then_with(|| tail.cmp(&[ROW])),
    }
}
