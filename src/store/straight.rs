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

use std::cmp::Reverse;

use super::TableSpec;
use super::page::PageBuilder;
use super::point::rows_sought;
use super::view::View;
use super::weave::Weave;
use crate::Result;
use crate::codec::EncodedRow;
use crate::model::{
    ClusteringKey, Direction, Fragment, PagePosition, PartitionHeader, PartitionKey, ReadCost, Reconcile, Slice,
};
use crate::sstable::{Access, FragmentStream, Plain, PlainRows, Progress};

/// The sources of such a read, each with a row at hand; sorted by these rows while the page is filled.
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
        self.sort();
        while !self.sources.is_empty() {
            let (cut, progress) = if self.ties() > 1 { self.merge(page)? } else { self.copy(page)? };
            if cut.is_some() {
                return Ok(Some((cut, self.spent())));
            }
            if progress == Progress::More {
                return Ok(None);
            }
        }
        let cut = page.end_partition()?;
        Ok(Some((cut, self.cost)))
    }

    /// Sorts the sources by the rows they are at, in the direction of the read.
    fn sort(&mut self) {
        let direction = self.direction;
        self.sources.sort_unstable_by(|a, b| direction.order(a.key().cmp(b.key())));
    }

    /// How many sources are at the first row.
    fn ties(&self) -> usize {
        let first = self.sources[0].key();
        1 + self.sources[1..].iter().take_while(|source| source.key() == first).count()
    }

    /// Takes the first row, which no other source has, or as many as can be had at once from the blocks at hand.
    fn copy(&mut self, page: &mut PageBuilder) -> Result<(Option<PagePosition>, Progress)> {
        if matches!(self.sources[0], Source::File(_)) && page.takes_entries() {
            return self.weave(page);
        }
        self.cost.rows += 1;
        let (key, row) = self.sources[0].row()?;
        let cut = page.row(key, row)?;
        let progress = if cut.is_none() { self.sources[0].advance()? } else { Progress::Row };
        if progress == Progress::End {
            self.leave(0);
        }
        self.sort();
        Ok((cut, progress))
    }

    /// Takes rows of all files by the least key: until one is in several sources, or a memtable's comes before it, or a
    /// block has ended.
    fn weave(&mut self, page: &mut PageBuilder) -> Result<(Option<PagePosition>, Progress)> {
        let files = self.sources.iter().enumerate().filter_map(|(at, source)| Some((at, source.file()?)));
        let until = self.sources.iter().find(|source| source.file().is_none()).map(Source::key);
        let mut weave = Weave::new(files, until, self.direction);
        let taken = page.entries(&mut weave)?;
        let mut reached = weave.reached();
        self.cost.rows += taken.rows;
        if taken.is_full {
            reached.truncate(1);
        }
        // From the last one, so that no other moves where one leaves.
        reached.sort_unstable_by_key(|(at, _)| Reverse(*at));
        let (mut cut, mut worst) = (None, Progress::Row);
        for (at, place) in reached {
            let Source::File(rows) = &mut self.sources[at] else { continue };
            match rows.go_to(place)? {
                Progress::Row if taken.is_full => cut = page.cut_behind(rows.row()?.0),
                Progress::Row => {}
                Progress::End => self.leave(at),
                Progress::More => worst = Progress::More,
            }
        }
        self.sort();
        Ok((cut, worst))
    }

    /// Takes the row that several sources are at, and goes on in all of them.
    fn merge(&mut self, page: &mut PageBuilder) -> Result<(Option<PagePosition>, Progress)> {
        let ties = self.ties();
        let (key, mut row) = self.sources[0].row()?;
        for source in &self.sources[1..ties] {
            row = row.merge(source.row()?.1)?;
        }
        self.cost.rows += ties as u64;
        let mut worst = Progress::Row;
        for at in (0..ties).rev() {
            match self.sources[at].advance()? {
                Progress::Row => {}
                Progress::End => self.leave(at),
                Progress::More => worst = Progress::More,
            }
        }
        self.sort();
        Ok((page.row(key, row)?, worst))
    }

    /// A source has ended.
    fn leave(&mut self, at: usize) {
        let ended = self.sources.remove(at);
        self.cost += ended.cost();
    }

    /// What was touched, by those sources too that are still there.
    fn spent(&self) -> ReadCost {
        let mut cost = self.cost;
        self.sources.iter().for_each(|source| cost += source.cost());
        cost
    }
}

impl Source {
    fn file(&self) -> Option<&PlainRows> {
        match self {
            Source::File(rows) => Some(rows),
            Source::Memory(..) => None,
        }
    }

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

    /// Goes to the next row.
    fn advance(&mut self) -> Result<Progress> {
        match self {
            Source::File(rows) => rows.advance(),
            Source::Memory(stream, held) => Ok(match stream.next()? {
                Some(Fragment::Row(key, row)) => {
                    *held = (key, row);
                    Progress::Row
                }
                Some(_) => Progress::More,
                None => Progress::End,
            }),
        }
    }

    fn cost(&self) -> ReadCost {
        match self {
            Source::File(rows) => rows.cost(),
            Source::Memory(stream, _) => stream.cost(),
        }
    }
}
