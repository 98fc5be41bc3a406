//! Streams over a file: one partition, the partitions of a range, all of it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;

use super::block::{Block, Span};
use super::blocks::Blocks;
use super::filter::RowHash;
use super::reader::Sstable;
use super::rows::{Rows, Selection, Whereabouts};
use super::{Access, FragmentStream};
use crate::Result;
use crate::codec::EncodedRow;
use crate::model::{
    Bound, Deletion, Direction, Fragment, PartitionHeader, PartitionKey, ReadCost, ScanRange, Slice, Stream, Token,
};

impl Sstable {
    /// The partition's header, and its rows and range changes within `slices`, in `direction`; nothing if the file holds
    /// nothing of the partition, or nothing that a read of these slices could see. `slices` ascend and do not overlap;
    /// without any, only the header is read. If each of them is just one row, `rows` may say which, and the file is passed over
    /// if it has none of them; else it is empty. `cost` is what was looked at in vain; the stream tells the rest.
    pub fn partition(
        self: &Arc<Self>,
        key: &PartitionKey,
        slices: &[Slice],
        rows: &[RowHash],
        direction: Direction,
        access: Access,
        cost: &mut ReadCost,
    ) -> Result<Option<PartitionStream>> {
        let selection = Selection::new(slices, direction)?;
        let mut blocks = Blocks::cached(self, access);
        let first = match self.may_matter(key, slices, rows) {
            true => selection.first_block(&blocks, key)?,
            false => None,
        };
        let Some(number) = first else {
            cost.sstables_skipped += 1;
            return Ok(None);
        };
        cost.sstables_read += 1;
        let block = blocks.get(number)?;
        let Some(span) = block.span(key) else {
            *cost += blocks.cost();
            return Ok(None);
        };
        let header = header(&mut blocks, number, &block, span)?;
        let whereabouts = match span.header {
            Some(_) if span.end < block.len() => Whereabouts::Whole(number),
            _ => Whereabouts::FirstSlice(number),
        };
        let rows = Rows::new(key.clone(), selection, whereabouts);
        let deletion = header.deletion;
        let fragments = ended(Partition { blocks, header: Some(header), rows });
        Ok(Some(PartitionStream { deletion, fragments }))
    }

    /// Every partition of the range, in order, each within `slices` in `direction`. `slices` as in
    /// [`Sstable::partition`].
    pub fn scan(
        self: &Arc<Self>,
        range: ScanRange,
        slices: &[Slice],
        direction: Direction,
        access: Access,
    ) -> Result<FragmentStream> {
        let selection = Selection::new(slices, direction)?;
        Ok(ended(Scan::new(Blocks::cached(self, access), range, selection)))
    }

    /// All of it, forward, read in large pieces without going through the cache.
    pub fn read_through(self: &Arc<Self>) -> Result<FragmentStream> {
        self.read_through_counted(Arc::default())
    }

    /// The same; the bytes of blocks that are read are added to `read` as it goes.
    pub fn read_through_counted(self: &Arc<Self>, read: Arc<AtomicU64>) -> Result<FragmentStream> {
        Ok(ended(Scan::new(Blocks::ahead(self, read), ScanRange::default(), Selection::all())))
    }
}

/// A partition as it is found in a file.
pub struct PartitionStream {
    /// Its deletion, which its header repeats: whoever knows it may pass over older files.
    pub deletion: Option<Deletion>,
    /// Its header, and what was asked for of it.
    pub fragments: FragmentStream,
}

/// A stream that, after an error or its end, yields nothing more and holds no blocks.
struct Ended<S> {
    stream: Option<S>,
    /// What it had cost when it ended.
    cost: ReadCost,
}

fn ended(stream: impl Stream<EncodedRow> + Send + 'static) -> FragmentStream {
    Box::new(Ended { stream: Some(stream), cost: ReadCost::default() })
}

impl<S: Stream<EncodedRow>> Stream<EncodedRow> for Ended<S> {
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        let next = stream.next();
        if !matches!(next, Ok(Some(_))) {
            self.cost = stream.cost();
            self.stream = None;
        }
        next
    }

    fn pass(&mut self, place: &Bound, deletion: Deletion, seen: Option<Deletion>) -> Result<bool> {
        match &mut self.stream {
            Some(stream) => stream.pass(place, deletion, seen),
            None => Ok(false),
        }
    }

    fn cost(&self) -> ReadCost {
        self.stream.as_ref().map_or(self.cost, |stream| stream.cost())
    }
}

/// One partition.
struct Partition {
    blocks: Blocks,
    header: Option<PartitionHeader<EncodedRow>>,
    rows: Rows,
}

impl Stream<EncodedRow> for Partition {
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        match self.header.take() {
            Some(header) => Ok(Some(Fragment::Partition(header))),
            None => self.rows.next(&mut self.blocks),
        }
    }

    fn pass(&mut self, place: &Bound, deletion: Deletion, seen: Option<Deletion>) -> Result<bool> {
        Ok(self.blocks.is_older_than(deletion) && self.rows.pass(&mut self.blocks, place, seen)?)
    }

    fn cost(&self) -> ReadCost {
        self.blocks.cost()
    }
}

/// Partitions one after the other.
struct Scan {
    blocks: Blocks,
    selection: Selection,
    up_to: Option<Token>,
    next: Next,
    /// The rest of the present partition.
    rows: Option<Rows>,
}

/// Where the next partition is to be found.
enum Next {
    /// The first one of the file.
    First,
    /// Its header is this entry of this block.
    Here(u32, u32),
    /// The first one behind this place: behind all partitions of the token if there is no key.
    Behind(Token, Option<Bytes>),
}

impl Scan {
    fn new(blocks: Blocks, range: ScanRange, selection: Selection) -> Scan {
        let next = match (range.after, range.tokens.after) {
            (None, None) => Next::First,
            (Some((token, _)), Some(after)) if after >= token => Next::Behind(after, None),
            (None, Some(after)) => Next::Behind(after, None),
            (Some((token, key)), _) => Next::Behind(token, Some(key)),
        };
        Scan { blocks, selection, up_to: range.tokens.up_to, next, rows: None }
    }

    /// Enters the next partition and answers its header.
    fn enter(&mut self) -> Result<Option<PartitionHeader<EncodedRow>>> {
        let Some((number, block, entry)) = self.find()? else { return Ok(None) };
        let following = block.first_header_from(entry + 1);
        let span = Span { header: Some(entry), start: entry + 1, end: following.unwrap_or(block.len()) };
        let header = header(&mut self.blocks, number, &block, span)?;
        let key = header.key.clone();
        if self.up_to.is_some_and(|up_to| key.token() > up_to) {
            return Ok(None);
        }
        let whereabouts = if following.is_some() { Whereabouts::Whole(number) } else { Whereabouts::Unknown };
        self.next = match following {
            Some(following) => Next::Here(number, following),
            None => Next::Behind(key.token(), Some(key.bytes().clone())),
        };
        self.rows = Some(Rows::new(key, self.selection.clone(), whereabouts));
        Ok(Some(header))
    }

    /// The block and entry of the next partition's header.
    fn find(&mut self) -> Result<Option<(u32, Arc<Block>, u32)>> {
        let mut number = match &self.next {
            Next::First => 0,
            Next::Here(number, _) => *number,
            Next::Behind(token, key) => {
                let index = self.blocks.index();
                let begun = index.leading(|entry| {
                    entry.token < *token
                        || (entry.token == *token && key.as_ref().is_none_or(|key| entry.key <= key.as_ref()))
                })?;
                begun.saturating_sub(1)
            }
        };
        while number < self.blocks.index().count() {
            let first = self.blocks.index().entry(number)?.token;
            if self.up_to.is_some_and(|up_to| first > up_to) {
                return Ok(None);
            }
            let block = self.blocks.get(number)?;
            let entry = match &self.next {
                Next::First => block.first_header_from(0),
                Next::Here(_, entry) => Some(*entry),
                Next::Behind(token, key) => block.first_header_behind(*token, key.as_deref()),
            };
            if let Some(entry) = entry {
                return Ok(Some((number, block, entry)));
            }
            number += 1;
        }
        Ok(None)
    }
}

impl Stream<EncodedRow> for Scan {
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        if let Some(rows) = &mut self.rows
            && let Some(fragment) = rows.next(&mut self.blocks)?
        {
            return Ok(Some(fragment));
        }
        self.rows = None;
        Ok(self.enter()?.map(Fragment::Partition))
    }

    fn pass(&mut self, place: &Bound, deletion: Deletion, seen: Option<Deletion>) -> Result<bool> {
        match &mut self.rows {
            Some(rows) if self.blocks.is_older_than(deletion) => rows.pass(&mut self.blocks, place, seen),
            _ => Ok(false),
        }
    }

    fn cost(&self) -> ReadCost {
        self.blocks.cost()
    }
}

/// The header of a partition of which block `number` holds `span`. Only a static row may lie in another block.
fn header(blocks: &mut Blocks, number: u32, block: &Block, span: Span) -> Result<PartitionHeader<EncodedRow>> {
    if let Some(entry) = span.header {
        return match block.fragment(entry).map_err(|error| blocks.placed(error, number))? {
            Fragment::Partition(header) => Ok(header),
            _ => Err(blocks.corrupt(format!("entry {entry} of block {number} is no header"))),
        };
    }
    let lost = |blocks: &Blocks| blocks.corrupt(format!("block {number} continues a partition that has no beginning"));
    let continued = block.continued().ok_or_else(|| lost(blocks))?;
    let static_row = match continued.static_row_in {
        None => None,
        Some(beginning) => {
            if beginning >= number {
                return Err(lost(blocks));
            }
            let first = blocks.get_aside(beginning)?;
            let span = first.span(&continued.key).filter(|span| span.header.is_some());
            let span = span.ok_or_else(|| lost(blocks))?;
            header(blocks, beginning, &first, span)?.static_row
        }
    };
    Ok(PartitionHeader { key: continued.key.clone(), deletion: continued.deletion, static_row })
}
