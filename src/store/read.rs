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

use super::point;
use super::view::View;
use super::{Store, TableSpec};
use crate::codec::EncodedRow;
use crate::codec::entry::{put_entry, put_header, put_row};
use crate::model::reconcile::merge_deletions;
use crate::model::{
    Bound, ClusteringKey, Deletion, Direction, Fragment, Glance, LiveColumns, Lone, Merge, Page, PageEnd, PagePosition,
    PartitionHeader, PartitionKey, ReadCommand, ReadCost, RowPosition, ScanRange, Slice, Step, Stream, Target,
    TokenRange,
};
use crate::sstable::{Access, FragmentStream, RowHash};
use crate::{Error, Result};

/// A page ends behind so many long runs of covered rows (`model::merge` says how long): some 10 ms of work, so that a
/// thread that serves others is not held by a deleted million.
const PASSES_MAX: u32 = 8;

/// Rows of dropped columns alone after which a page ends.
const ROWS_GONE_MAX: u32 = 10_000;

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
        self.admit(&view, command)?;
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
    let mut page = PageBuilder::new(command, spec.live.as_ref(), *slice == Slice::all());
    let cut = page.take_lone(key, lone)?;
    let is_left = |cut: &PagePosition| cut.row.bound(Direction::Forward).is_some_and(|bound| bound < slice.end);
    let end = cut.filter(is_left).map_or(PageEnd::Complete, PageEnd::At);
    Ok(Some((Page { entries: page.out.into(), end }, cost)))
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
        let mut page = PageBuilder::new(self.command, self.spec.live.as_ref(), self.slices == [Slice::all()]);
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
        Ok((Page { entries: page.out.into(), end }, self.cost))
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

/// Encodes merged fragments until a limit cuts them.
struct PageBuilder<'a> {
    command: &'a ReadCommand,
    /// See [`TableSpec::live`].
    live: Option<&'a LiveColumns>,
    /// Whether static values alone make a row: where a read asks for whole partitions.
    counts_static: bool,
    out: Vec<u8>,
    visible_rows: u32,
    /// How often the merge has said that nothing comes.
    passes: u32,
    /// Rows of which nothing is left without dropped columns.
    rows_gone: u32,
    /// The partition in which the page before ended.
    resumed: Option<PartitionKey>,
    partition: Option<OpenPartition>,
}

/// What is known of the partition that is being read.
struct OpenPartition {
    header: PartitionHeader<EncodedRow>,
    is_resumed: bool,
    /// Headers are written when something follows them, or at the end of the partition.
    is_header_written: bool,
    has_visible_row: bool,
    in_force: Option<Deletion>,
}

impl<'a> PageBuilder<'a> {
    fn new(command: &'a ReadCommand, live: Option<&'a LiveColumns>, counts_static: bool) -> PageBuilder<'a> {
        PageBuilder {
            command,
            live,
            counts_static,
            out: Vec::new(),
            visible_rows: 0,
            passes: 0,
            rows_gone: 0,
            resumed: None,
            partition: None,
        }
    }

    /// The page begins within this partition: what its header says was answered before.
    fn resume(&mut self, partition: PartitionKey) {
        self.resumed = Some(partition);
    }

    /// Takes fragments until they end (`None`) or a limit is reached.
    fn take<S: Stream<EncodedRow>>(&mut self, merged: &mut Merge<EncodedRow, S>) -> Result<Option<PagePosition>> {
        loop {
            let cut = match merged.step()? {
                Step::Fragment(Fragment::Partition(header)) => self.begin_partition(header)?,
                Step::Fragment(Fragment::Row(key, row)) => self.row(key, row)?,
                Step::Fragment(Fragment::Change(bound, deletion)) => self.change(bound, deletion),
                Step::Passed(bound) => self.pass(bound),
                Step::End => return self.end_partition(),
            };
            if cut.is_some() {
                return Ok(cut);
            }
        }
    }

    /// Rows that are covered cost time and fill no page: there is an end to them too, behind what covers them.
    fn pass(&mut self, bound: Bound) -> Option<PagePosition> {
        self.passes += 1;
        if self.passes < PASSES_MAX {
            return None;
        }
        self.partition.as_mut()?.put_header(&mut self.out);
        self.cut(RowPosition::At(bound))
    }

    /// Takes a partition of at most one row.
    fn take_lone(&mut self, key: &PartitionKey, lone: Lone<EncodedRow>) -> Result<Option<PagePosition>> {
        if lone.says_nothing() {
            return Ok(None);
        }
        self.out.reserve(lone_bytes(key, &lone));
        let Lone { deletion, static_row, row } = lone;
        self.begin_partition(PartitionHeader { key: key.clone(), deletion, static_row })?;
        if let Some((key, row)) = row
            && let Some(cut) = self.row(key, row)?
        {
            return Ok(Some(cut));
        }
        self.end_partition()
    }

    fn is_full(&self) -> bool {
        self.visible_rows >= self.command.limit_rows.max(1) || self.out.len() >= self.command.limit_bytes as usize
    }

    fn begin_partition(&mut self, mut header: PartitionHeader<EncodedRow>) -> Result<Option<PagePosition>> {
        let cut = self.end_partition()?;
        if let Some(live) = self.live
            && let Some(row) = header.static_row.take()
        {
            header.static_row = row.without_dropped(live)?;
        }
        if cut.is_none() {
            let is_resumed = self.resumed.as_ref() == Some(&header.key);
            let open =
                OpenPartition { header, is_resumed, is_header_written: false, has_visible_row: false, in_force: None };
            self.partition = Some(open);
        }
        Ok(cut)
    }

    /// Closes the partition that is open, if any; where the page ends if it is full.
    fn end_partition(&mut self) -> Result<Option<PagePosition>> {
        let Some(mut open) = self.partition.take() else { return Ok(None) };
        // Where the page begins within the partition too: whoever gave up the page before has seen no row yet, perhaps, and
        // shows the static values now.
        if open.header.says_something() {
            open.put_header(&mut self.out);
        }
        if !open.is_resumed
            && self.counts_static
            && !open.has_visible_row
            && let Some(row) = &open.header.static_row
            && row.is_visible_at(self.command.now_s)?
        {
            self.visible_rows += 1;
        }
        Ok(self.is_full().then_some(PagePosition { partition: open.header.key, row: RowPosition::End }))
    }

    fn row(&mut self, key: ClusteringKey, mut row: EncodedRow) -> Result<Option<PagePosition>> {
        if let Some(live) = self.live {
            match row.without_dropped(live)? {
                Some(left) => row = left,
                None => return Ok(self.gone(key)),
            }
        }
        let is_visible = row.is_visible_at(self.command.now_s)?;
        let Some(open) = &mut self.partition else { return Ok(None) };
        open.put_header(&mut self.out);
        open.has_visible_row |= is_visible;
        self.visible_rows += u32::from(is_visible);
        put_row(&mut self.out, &key, &row);
        Ok(if self.is_full() { self.cut(RowPosition::After(key)) } else { None })
    }

    /// Of this row nothing is left. Such rows cost time and fill no page: there is an end to them too.
    fn gone(&mut self, key: ClusteringKey) -> Option<PagePosition> {
        self.rows_gone += 1;
        if self.rows_gone < ROWS_GONE_MAX {
            return None;
        }
        self.partition.as_mut()?.put_header(&mut self.out);
        self.cut(RowPosition::After(key))
    }

    /// A full page may also end before a change, so that a run of tombstones ends pages; but not before its first
    /// fragment, or the next page would begin where this one did.
    fn change(&mut self, bound: Bound, deletion: Option<Deletion>) -> Option<PagePosition> {
        let is_full = self.is_full();
        let open = self.partition.as_mut()?;
        if is_full && open.is_header_written {
            return self.cut(RowPosition::At(bound));
        }
        open.put_header(&mut self.out);
        open.in_force = deletion;
        put_entry(&mut self.out, &Fragment::Change(bound, deletion));
        None
    }

    /// Ends the page within the open partition, closing the range deletion in force.
    fn cut(&mut self, row: RowPosition) -> Option<PagePosition> {
        let open = self.partition.take()?;
        if open.in_force.is_some()
            && let Some(bound) = row.bound(self.command.direction)
        {
            put_entry(&mut self.out, &Fragment::Change(bound, None));
        }
        Some(PagePosition { partition: open.header.key, row })
    }
}

/// How many bytes the entries of a partition of one row take, or some more.
fn lone_bytes(key: &PartitionKey, lone: &Lone<EncodedRow>) -> usize {
    const BESIDE_KEYS_AND_ROWS: usize = 48;
    let row = lone.row.as_ref().map_or(0, |(key, row)| key.bytes().len() + row.bytes().len());
    let static_row = lone.static_row.as_ref().map_or(0, |row| row.bytes().len());
    BESIDE_KEYS_AND_ROWS + key.bytes().len() + row + static_row
}

impl OpenPartition {
    fn put_header(&mut self, out: &mut Vec<u8>) {
        if !self.is_header_written {
            put_header(out, &self.header);
            self.is_header_written = true;
        }
    }
}
