//! The rows of several files by the least key, as long as each is in one of them only and until a block of one ends.
//!
//! ```text
//! block of a   r1      r4  r5             a lane each, sorted by the rows they are at: the first one's row is next, and
//! block of b       r2  r4       r7        its lane is sorted in again; r4 is left to whoever merges
//! ```
//!
//! Within a block the next row is a look at a table, so that the order is what costs: keys are compared by their first
//! eight bytes, as one number, and further only where these are alike.

use crate::Result;
use crate::model::Direction;
use crate::sstable::{PlainRows, Reached, RowsAhead};

/// See the module.
pub(super) struct Weave<'a> {
    /// Never empty, sorted; but for the first, whose row may have been taken.
    lanes: Vec<Lane<'a>>,
    /// A row of another source: what is taken lies before it.
    until: Option<&'a [u8]>,
    direction: Direction,
    is_first_taken: bool,
}

struct Lane<'a> {
    source: usize,
    ahead: RowsAhead<'a>,
    /// Of the row at hand, where there is another to compare it with.
    key: &'a [u8],
    /// See [`RowsAhead::key_and_head`].
    head: u64,
}

impl<'a> Weave<'a> {
    /// The rows of files, each with its number among the sources, as far as they lie before `until`. The files are sorted
    /// by the rows they are at.
    pub(super) fn new(
        files: impl Iterator<Item = (usize, &'a PlainRows)>,
        until: Option<&'a [u8]>,
        direction: Direction,
    ) -> Weave<'a> {
        let lane = |(source, rows): (usize, &'a PlainRows)| {
            let ahead = rows.ahead();
            let (key, head) = ahead.key_and_head();
            Lane { source, ahead, key, head }
        };
        Weave { lanes: files.map(lane).collect(), until, direction, is_first_taken: false }
    }

    /// Takes the next row: the entry of a block, and in it the encoded row. `None`: a block has ended, or the row is in
    /// several files, or does not lie before `until`.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(&'a [u8], &'a [u8])>> {
        if self.is_first_taken && !self.pass() {
            return Ok(None);
        }
        let [first, others @ ..] = self.lanes.as_slice() else { return Ok(None) };
        let is_shared = others.first().is_some_and(|other| first.is_with(other));
        let is_behind = |until| self.direction.order(first.key.cmp(until)).is_ge();
        if is_shared || self.until.is_some_and(is_behind) {
            return Ok(None);
        }
        self.is_first_taken = true;
        first.ahead.entry().map(Some)
    }

    /// Goes behind the row that was taken and sorts its lane in again; `false`: its block has ended.
    fn pass(&mut self) -> bool {
        self.is_first_taken = false;
        let is_alone = self.lanes.len() == 1 && self.until.is_none();
        let Some(first) = self.lanes.first_mut() else { return false };
        let is_left = first.ahead.pass();
        if !is_left || is_alone {
            return is_left;
        }
        (first.key, first.head) = first.ahead.key_and_head();
        let mut at = 0;
        while let [lane, next, ..] = &mut self.lanes[at..]
            && next.is_before(lane, self.direction)
        {
            std::mem::swap(lane, next);
            at += 1;
        }
        true
    }

    /// Where each source is, by its number; the row taken last is still at hand, in the first of these, if the last call did
    /// not answer `None`.
    pub(super) fn reached(self) -> Vec<(usize, Reached)> {
        self.lanes.iter().map(|lane| (lane.source, lane.ahead.reached())).collect()
    }
}

impl Lane<'_> {
    fn is_with(&self, other: &Lane<'_>) -> bool {
        self.head == other.head && self.key == other.key
    }

    fn is_before(&self, other: &Lane<'_>, direction: Direction) -> bool {
        let order = self.head.cmp(&other.head).then_with(|| self.key.cmp(other.key));
        direction.order(order).is_lt()
    }
}
