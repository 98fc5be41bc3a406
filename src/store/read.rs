//! The local read path: one view of the table, its memtables and files merged, one page of the result.
//!
//! A page is a position, not a count (`model::query`): nothing but where it ended crosses to the next one (B007). Visible
//! rows are counted after the merge, so that a deleted row or partition counts for nothing (B050), and a partition of
//! which only static values are visible counts once, on the page it begins on (B016).
//!
//! ```text
//! page 1   header  row  row  change(b, D)  row │ change(after the row, none)          ends After(row)
//! page 2   header  change(after the row, D)  row ...                                  begins there, decodes by itself
//! ```

use bytes::Bytes;

use super::page::PageBuilder;
use super::point;
use super::straight::Straight;
use super::view::View;
use super::{Store, TableSpec};
use crate::model::reconcile::merge_deletions;
use crate::model::{
    Bound, Direction, Glance, Merge, Page, PageEnd, PagePosition, PartitionKey, ReadCommand, ReadCost, RowPosition,
    ScanRange, Slice, Stream, Target, TokenRange,
};
use crate::sstable::{Access, FragmentStream, RowHash};
use crate::{Error, Result};

impl Store {
    /// Answers a read from one view of the table.
    pub fn read(&self, command: &ReadCommand, access: Access) -> Result<Page> {
        self.read_with_cost(command, access).map(|(page, _)| page)
    }

    /// The same, and what it has touched; tombstones are counted by whoever merges the answers of replicas.
    pub fn read_with_cost(&self, command: &ReadCommand, access: Access) -> Result<(Page, ReadCost)> {
        let tables = self.memory.tables.load();
        let table = tables.get(&command.table).ok_or(Error::UnknownTable { table: command.table })?;
        let (view, spec) = (table.view(), table.spec());
        self.admit(spec.keyspace, &view, command)?;
        let answered = answer(&view, command, &spec, access);
        answered.map_err(|error| self.on_failed_read(table, error, access))
    }
}

fn answer(view: &View, command: &ReadCommand, spec: &TableSpec, access: Access) -> Result<(Page, ReadCost)> {
    if let Some((key, slice)) = point::sought(command)
        && let Some(answer) = read_lone(view, command, spec, key, &slice, access)?
    {
        return Ok(answer);
    }
    let whole = [Slice::all()];
    let slices = Slice::joined(if command.slices.is_empty() { &whole } else { &command.slices });
    if slices.is_empty() {
        return Ok((Page { entries: Bytes::new(), end: PageEnd::Complete }, ReadCost::default()));
    }
    Read { view, command, spec, slices, access, cost: ReadCost::default() }.page()
}

/// The page of a read of one row; `None`: there is more to it.
fn read_lone(
    view: &View,
    command: &ReadCommand,
    spec: &TableSpec,
    key: &PartitionKey,
    slice: &Slice,
    access: Access,
) -> Result<Option<(Page, ReadCost)>> {
    let mut cost = ReadCost::default();
    let row = slice.only_row(&spec.clustering).map(|components| RowHash::of(key, components));
    let lone = match point::glance(view, key, slice, row, access, &mut cost)? {
        Glance::More => return Ok(None),
        Glance::Absent => return Ok(Some((Page { entries: Bytes::new(), end: PageEnd::Complete }, cost))),
        Glance::Lone(lone) => lone,
    };
    let mut page = PageBuilder::new(command, spec, *slice == Slice::all());
    let cut = page.take_lone(key, lone)?;
    let is_left = |cut: &PagePosition| match &cut.row {
        RowPosition::After(key) => key.is_after_before(&slice.end),
        row => row.bound(Direction::Forward).is_some_and(|bound| bound < slice.end),
    };
    let end = cut.filter(is_left).map_or(PageEnd::Complete, PageEnd::At);
    Ok(Some((Page { entries: page.finish().into(), end }, cost)))
}

struct Read<'a> {
    view: &'a View,
    command: &'a ReadCommand,
    spec: &'a TableSpec,
    /// Never empty; none of them is, and no two touch.
    slices: Vec<Slice>,
    access: Access,
    cost: ReadCost,
}

impl Read<'_> {
    fn page(mut self) -> Result<(Page, ReadCost)> {
        let mut page = PageBuilder::new(self.command, self.spec, self.slices == [Slice::all()]);
        let cut = match (&self.command.target, &self.command.after) {
            (Target::Partition(key), None) => self.partition(key, &self.slices.clone(), &mut page)?,
            (Target::Partition(key), Some(after)) => self.rest_of_partition(Some(key), after, &mut page)?,
            (Target::Scan(tokens), None) => self.scan(*tokens, None, &mut page)?,
            (Target::Scan(tokens), Some(after)) => {
                let cut = match tokens.contains(after.partition.token()) {
                    true => self.rest_of_partition(None, after, &mut page)?,
                    false => None,
                };
                match cut {
                    Some(cut) => Some(cut),
                    None => self.scan(*tokens, Some(&after.partition), &mut page)?,
                }
            }
        };
        let end = cut.filter(|cut| self.leaves_something(cut)).map_or(PageEnd::Complete, PageEnd::At);
        Ok((Page { entries: page.finish().into(), end }, self.cost))
    }

    /// Whether the command asks for anything behind the cut: a read of one row that was found is complete.
    fn leaves_something(&self, cut: &PagePosition) -> bool {
        match (&self.command.target, cut.row.bound(self.command.direction)) {
            (Target::Scan(_), _) => true,
            (Target::Partition(_), Some(bound)) => !self.slices_behind(bound).is_empty(),
            (Target::Partition(_), None) => cut.row == RowPosition::Header,
        }
    }

    fn slices_behind(&self, bound: Bound) -> Vec<Slice> {
        let cut = |slice: &Slice| match self.command.direction {
            Direction::Forward => Slice { start: slice.start.clone().max(bound.clone()), end: slice.end.clone() },
            Direction::Reverse => Slice { start: slice.start.clone(), end: slice.end.clone().min(bound.clone()) },
        };
        self.slices.iter().map(cut).filter(|slice| slice.start < slice.end).collect()
    }

    /// What lies behind `after` in its partition, which must be `expected` if that is given.
    fn rest_of_partition(
        &mut self,
        expected: Option<&PartitionKey>,
        after: &PagePosition,
        page: &mut PageBuilder,
    ) -> Result<Option<PagePosition>> {
        if expected.is_some_and(|expected| *expected != after.partition) {
            return Err(Error::invalid("page position", "it is not in the partition that the read names"));
        }
        let slices = match (&after.row, after.row.bound(self.command.direction)) {
            (_, Some(bound)) => self.slices_behind(bound),
            (RowPosition::Header, _) => self.slices.clone(),
            (_, None) => Vec::new(),
        };
        page.resume(after.partition.clone());
        // Behind all rows there may be static values to tell yet, to whoever gave up the page before: see `end_partition`.
        let is_over = slices.is_empty() && (after.row == RowPosition::End || !page.counts_static);
        if is_over { Ok(None) } else { self.partition(&after.partition, &slices, page) }
    }

    fn partition(
        &mut self,
        key: &PartitionKey,
        slices: &[Slice],
        page: &mut PageBuilder,
    ) -> Result<Option<PagePosition>> {
        let direction = self.command.direction;
        if let [slice] = slices
            && let Some(cut) = self.straight(key, slice, page)?
        {
            return Ok(cut);
        }
        let mut sources: Vec<FragmentStream> = Vec::new();
        let mut deletion = None;
        let rows = point::rows_sought(key, slices, &self.spec.clustering);
        for memtable in self.view.memtables() {
            deletion = merge_deletions(deletion, memtable.deletion(key));
            sources.extend(memtable.partition(key, slices, direction)?);
        }
        for (at, file) in self.view.files.iter().enumerate() {
            if deletion.is_some_and(|deletion| file.sstable.is_older_than(deletion)) {
                self.cost.sstables_skipped += (self.view.files.len() - at) as u64;
                break;
            }
            if let Some(found) = file.sstable.partition(key, slices, &rows, direction, self.access, &mut self.cost)? {
                deletion = merge_deletions(deletion, found.deletion);
                sources.push(found.fragments);
            }
        }
        self.take(sources, page)
    }

    /// Where nothing but rows is there; `None` where there is more, and nothing has been taken.
    fn straight(
        &mut self,
        key: &PartitionKey,
        slice: &Slice,
        page: &mut PageBuilder,
    ) -> Result<Option<Option<PagePosition>>> {
        let Read { view, command, spec, access, .. } = *self;
        let Some(found) = Straight::open(view, spec, command.direction, key, slice, access)? else { return Ok(None) };
        let Some((cut, cost)) = found.run(key, page)? else {
            page.clear();
            return Ok(None);
        };
        self.cost += cost;
        Ok(Some(cut))
    }

    fn scan(
        &mut self,
        tokens: TokenRange,
        after: Option<&PartitionKey>,
        page: &mut PageBuilder,
    ) -> Result<Option<PagePosition>> {
        let direction = self.command.direction;
        let after = after.map(|key| (key.token(), key.bytes().clone()));
        let range = ScanRange { after, tokens };
        let mut sources: Vec<FragmentStream> = Vec::new();
        for memtable in self.view.memtables() {
            sources.push(memtable.scan(range.clone(), &self.slices, direction));
        }
        for file in &self.view.files {
            if file.sstable.may_matter_to_scan(&range, &self.slices) {
                sources.push(file.sstable.scan(range.clone(), &self.slices, direction, self.access)?);
            }
        }
        let read = sources.len() - self.view.memtables().count();
        self.cost.sstables_read += read as u64;
        self.cost.sstables_skipped += (self.view.files.len() - read) as u64;
        self.take(sources, page)
    }

    fn take(&mut self, sources: Vec<FragmentStream>, page: &mut PageBuilder) -> Result<Option<PagePosition>> {
        let mut merged = Merge::new(sources, self.command.direction);
        let cut = page.take(&mut merged);
        self.cost += merged.cost();
        cut
    }
}
