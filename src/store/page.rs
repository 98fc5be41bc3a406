//! One page of an answer: merged fragments are encoded, and visible rows counted, until a limit cuts them.

use super::TableSpec;
use super::weave::Weave;
use crate::Result;
use crate::codec::entry::{put_entry, put_header, put_row};
use crate::codec::{EncodedRow, row};
use crate::model::{
    Bound, ClusteringKey, Deletion, Fragment, LiveColumns, Lone, Merge, PagePosition, PartitionHeader, PartitionKey,
    ReadCommand, RowPosition, Step, Stream,
};

/// A page ends behind so many long runs of covered rows (`model::merge` says how long): some 10 ms of work, so that a
/// thread that serves others is not held by a deleted million.
const PASSES_MAX: u32 = 8;

/// Room for a partition's header, usually.
const HEADER_USUAL_BYTES: usize = 64;

/// Rows of dropped columns alone after which a page ends.
const ROWS_GONE_MAX: u32 = 10_000;

/// A page that is being filled.
pub(super) struct PageBuilder<'a> {
    command: &'a ReadCommand,
    /// See [`TableSpec::live`].
    live: Option<&'a LiveColumns>,
    /// Whether static values alone make a row: where a read asks for whole partitions.
    pub(super) counts_static: bool,
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

/// What [`PageBuilder::entries`] took.
pub(super) struct Taken {
    pub(super) rows: u64,
    /// Whether the page is full.
    pub(super) is_full: bool,
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
    /// An empty page. `counts_static`: see there.
    pub(super) fn new(command: &'a ReadCommand, spec: &'a TableSpec, counts_static: bool) -> PageBuilder<'a> {
        PageBuilder {
            command,
            live: spec.live.as_ref(),
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
    pub(super) fn resume(&mut self, partition: PartitionKey) {
        self.resumed = Some(partition);
    }

    /// Forgets what was taken.
    pub(super) fn clear(&mut self) {
        self.out.clear();
        self.partition = None;
        (self.visible_rows, self.rows_gone) = (0, 0);
    }

    /// What was encoded.
    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    /// Takes fragments until they end (`None`) or a limit is reached.
    pub(super) fn take<S: Stream<EncodedRow>>(
        &mut self,
        merged: &mut Merge<EncodedRow, S>,
    ) -> Result<Option<PagePosition>> {
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
    pub(super) fn take_lone(&mut self, key: &PartitionKey, lone: Lone<EncodedRow>) -> Result<Option<PagePosition>> {
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

    /// Begins a partition; where the page ends if it was full before.
    pub(super) fn begin_partition(&mut self, mut header: PartitionHeader<EncodedRow>) -> Result<Option<PagePosition>> {
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
    pub(super) fn end_partition(&mut self) -> Result<Option<PagePosition>> {
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

    /// Takes a row; where the page ends if it is full now.
    pub(super) fn row(&mut self, key: ClusteringKey, mut row: EncodedRow) -> Result<Option<PagePosition>> {
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

    /// Whether [`PageBuilder::entries`] may be called: not where columns were dropped.
    pub(super) fn takes_entries(&self) -> bool {
        self.live.is_none()
    }

    /// Makes room for about so many rows, of so many bytes together, or as many as the page may hold.
    pub(super) fn expect(&mut self, rows: usize, bytes: usize) {
        let wanted = rows.min(self.command.limit_rows as usize);
        let bytes = bytes / rows.max(1) * wanted + HEADER_USUAL_BYTES;
        self.out.reserve(bytes.min(self.command.limit_bytes as usize));
    }

    /// Takes rows as they stand in blocks until they end. If the page is full before that, it must be ended behind the row
    /// taken last ([`PageBuilder::cut_behind`]).
    pub(super) fn entries(&mut self, rows: &mut Weave<'_>) -> Result<Taken> {
        let mut taken = Taken { rows: 0, is_full: false };
        let visible_before = self.visible_rows;
        while !taken.is_full
            && let Some((entry, row)) = rows.next()?
        {
            if let Some(open) = &mut self.partition {
                open.put_header(&mut self.out);
            }
            self.visible_rows += u32::from(row::is_visible_at(row, self.command.now_s)?);
            self.out.extend_from_slice(entry);
            taken.rows += 1;
            taken.is_full = self.is_full();
        }
        if let Some(open) = &mut self.partition {
            open.has_visible_row |= self.visible_rows > visible_before;
        }
        Ok(taken)
    }

    /// Ends the page behind a row.
    pub(super) fn cut_behind(&mut self, key: ClusteringKey) -> Option<PagePosition> {
        self.cut(RowPosition::After(key))
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
