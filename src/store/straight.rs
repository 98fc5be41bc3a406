//! Reads of several rows of one partition of which no source holds anything but rows: what most scans find.
//!
//! ```text
//! file a   r1      r4  r5            the least key of all is copied from its block to the page, as it stands there;
//! file b       r2  r4       r7       only where several sources have a row (r4) the versions are decoded and merged
//! memory           r4   r6
//! ```
//!
//! The answer is the same as that of [`crate::model::Merge`], which does this for fragments of every kind and pays for it with
//! a fragment for each row. Where a source turns out to have more than rows the read begins anew there; files say so before
//! anything was read, and a memtable as soon as its partition is looked at, unless a deletion arrives meanwhile.

use std::cmp::Ordering;

use super::TableSpec;
use super::page::PageBuilder;
use super::point::rows_sought;
use super::view::View;
use crate::Result;
use crate::codec::EncodedRow;
use crate::model::{
    ClusteringKey, Direction, Fragment, PagePosition, PartitionHeader, PartitionKey, ReadCost, Reconcile, Slice,
};
use crate::sstable::{Access, FragmentStream, Plain, PlainRows, Progress};

/// The sources of such a read, each with a row at hand.
pub(super) struct Straight {
    sources: Vec<Source>,
    direction: Direction,
    cost: ReadCost,
}

enum Source {
    File(Box<PlainRows>),
    Memory(FragmentStream, (ClusteringKey, EncodedRow)),
}

/// Where the page ends, if it is full, and what was touched.
pub(super) type Ran = (Option<PagePosition>, ReadCost);

impl Straight {
    /// The rows of the partition within the slice; `None`: some source has more than rows.
    pub(super) fn open(
        view: &View,
        spec: &TableSpec,
        direction: Direction,
        key: &PartitionKey,
        slice: &Slice,
        access: Access,
    ) -> Result<Option<Straight>> {
        let slices = std::slice::from_ref(slice);
        let mut found = Straight { sources: Vec::new(), direction, cost: ReadCost::default() };
        for memtable in view.memtables() {
            let Some(mut stream) = memtable.partition(key, slices, direction)? else { continue };
            match stream.next()? {
                Some(Fragment::Partition(header)) if !header.says_something() => {}
                _ => return Ok(None),
            }
            match stream.next()? {
                Some(Fragment::Row(key, row)) => found.sources.push(Source::Memory(stream, (key, row))),
                Some(_) => return Ok(None),
                None => {}
            }
        }
        let rows = rows_sought(key, slices, &spec.clustering);
        for file in &view.files {
            match file.sstable.plain_rows(key, slice, &rows, direction, access, &mut found.cost)? {
                Plain::Absent => {}
                Plain::Rows(rows) => found.sources.push(Source::File(rows)),
                Plain::More => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// Fills the page; `None`: a source has turned out to have more than rows, and what is on the page means nothing.
    pub(super) fn run(mut self, key: &PartitionKey, page: &mut PageBuilder) -> Result<Option<Ran>> {
        if self.sources.is_empty() {
            return Ok(Some((None, self.cost)));
        }
        if let Some(cut) =
            page.begin_partition(PartitionHeader { key: key.clone(), deletion: None, static_row: None })?
        {
            return Ok(Some((Some(cut), self.cost)));
        }
        let reach = self.sources.iter().map(Source::within_reach);
        let (rows, bytes) = reach.fold((0, 0), |(rows, bytes), (more, longer)| (rows + more, bytes + longer));
        page.expect(rows, bytes);
        while !self.sources.is_empty() {
            let (least, ties) = self.least();
            let (cut, advanced) = match ties {
                1 => self.copy(least, page)?,
                _ => self.merge(page)?,
            };
            if cut.is_some() {
                return Ok(Some((cut, self.spent())));
            }
            if advanced == Progress::More {
                return Ok(None);
            }
        }
        let cut = page.end_partition()?;
        Ok(Some((cut, self.cost)))
    }

    /// The source that is at the least row, in the direction of the read, and how many are there.
    fn least(&self) -> (usize, usize) {
        let (mut least, mut ties) = (0, 1);
        for at in 1..self.sources.len() {
            match self.direction.order(self.sources[at].key().cmp(self.sources[least].key())) {
                Ordering::Less => (least, ties) = (at, 1),
                Ordering::Equal => ties += 1,
                Ordering::Greater => {}
            }
        }
        (least, ties)
    }

    /// Takes the row of a source that no other one has, and goes on in that source.
    fn copy(&mut self, at: usize, page: &mut PageBuilder) -> Result<(Option<PagePosition>, Progress)> {
        self.cost.rows += 1;
        let cut = match &mut self.sources[at] {
            Source::File(rows) if page.takes_entries() => {
                let (entry, row) = rows.entry()?;
                match page.entry(entry, row)? {
                    true => page.cut_behind(rows.row()?.0),
                    false => None,
                }
            }
            Source::File(rows) => {
                let (key, row) = rows.row()?;
                page.row(key, row)?
            }
            Source::Memory(_, (key, row)) => page.row(key.clone(), row.clone())?,
        };
        if cut.is_some() {
            return Ok((cut, Progress::Row));
        }
        Ok((None, self.advance(at)?))
    }

    /// Takes the row that several sources are at, and goes on in all of them.
    fn merge(&mut self, page: &mut PageBuilder) -> Result<(Option<PagePosition>, Progress)> {
        let (least, _) = self.least();
        let (key, mut row) = self.sources[least].row()?;
        self.cost.rows += 1;
        let mut progress = self.advance(least)?;
        // From the last one on, since those that have ended leave.
        for at in (0..self.sources.len()).rev() {
            if self.sources[at].key() == key.bytes().as_ref() {
                row = row.merge(self.sources[at].row()?.1)?;
                self.cost.rows += 1;
                progress = worse(progress, self.advance(at)?);
            }
        }
        Ok((page.row(key, row)?, progress))
    }

    /// Goes on in a source, which leaves if it has ended.
    fn advance(&mut self, at: usize) -> Result<Progress> {
        let progress = match &mut self.sources[at] {
            Source::File(rows) => rows.advance()?,
            Source::Memory(stream, held) => match stream.next()? {
                Some(Fragment::Row(key, row)) => {
                    *held = (key, row);
                    Progress::Row
                }
                Some(_) => Progress::More,
                None => Progress::End,
            },
        };
        if progress == Progress::End {
            let ended = self.sources.swap_remove(at);
            self.cost += ended.cost();
        }
        Ok(progress)
    }

    /// What was touched, by those sources too that are still there.
    fn spent(&self) -> ReadCost {
        let mut cost = self.cost;
        self.sources.iter().for_each(|source| cost += source.cost());
        cost
    }
}

fn worse(a: Progress, b: Progress) -> Progress {
    if a == Progress::More { a } else { b }
}

impl Source {
    fn key(&self) -> &[u8] {
        match self {
            Source::File(rows) => rows.key(),
            Source::Memory(_, (key, _)) => key.bytes(),
        }
    }

    /// How many rows, and bytes of them, are at hand without another block.
    fn within_reach(&self) -> (usize, usize) {
        match self {
            Source::File(rows) => rows.within_reach(),
            Source::Memory(_, (key, row)) => (1, key.bytes().len() + row.bytes().len()),
        }
    }

    fn row(&self) -> Result<(ClusteringKey, EncodedRow)> {
        match self {
            Source::File(rows) => rows.row(),
            Source::Memory(_, held) => Ok(held.clone()),
        }
    }

    fn cost(&self) -> ReadCost {
        match self {
            Source::File(rows) => rows.cost(),
            Source::Memory(stream, _) => stream.cost(),
        }
    }
}
