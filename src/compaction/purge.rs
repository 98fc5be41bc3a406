//! When a deletion may go, and the value of what has expired.
//!
//! A deletion, or what is left of an expired cell, shadows everything of its place that is not later. It may go once
//! nothing that it shadows can turn up any more:
//!
//! ```text
//! timestamp < purged_through - lateness      nothing that old is missing on any replica, or can still arrive
//! timestamp < least timestamp of everything of the partition that the compaction does not read: other files,
//!             memtables, records that are logged and not inserted
//! ```
//!
//! Both are one number per partition, handed in: the *limit*. Where nothing is known to be reconciled there is none, and
//! nothing goes. Time alone never purges (B002 in `docs/testing.md`); it only turns an expiring cell whose expiry has
//! passed into an expired one, without its value, which is the same to every reader and every merge.

use crate::Result;
use crate::codec::EncodedRow;
use crate::codec::row::view::{KindView, Part, RowView};
use crate::model::{
    Cell, CellKind, Complex, Deletion, Fragment, LiveColumns, Liveness, LivenessKind, PartitionHeader, PartitionKey,
    Row, Stream, Timestamp,
};

/// A stream, forward, without what may go. `limit` is asked at most once for each partition that holds a candidate:
/// deletions and expired data below its answer go. What was written to columns that were dropped goes in any case.
pub struct Purge<S, L> {
    source: S,
    limit: L,
    now_s: i64,
    /// `None`: no column was ever dropped.
    live: Option<LiveColumns>,
    partition: Option<(PartitionKey, Limit)>,
    /// A header that says no more than the key. Without anything behind it the partition is left out.
    waiting: Option<PartitionHeader<EncodedRow>>,
    /// What follows a header that waited.
    held: Option<Fragment<EncodedRow>>,
    /// The range deletion that was yielded last.
    in_force: Option<Deletion>,
}

/// The limit of the present partition.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Unasked,
    Known(Option<Timestamp>),
}

impl<S, L> Purge<S, L>
where
    S: Stream<EncodedRow>,
    L: FnMut(&PartitionKey) -> Result<Option<Timestamp>>,
{
    /// Purges `source` as of `now_s`. `live`: the columns that are not dropped; `None` if none ever was.
    pub fn new(source: S, now_s: i64, live: Option<LiveColumns>, limit: L) -> Purge<S, L> {
        Purge { source, limit, now_s, live, partition: None, waiting: None, held: None, in_force: None }
    }

    fn may_go(&mut self, timestamp: Timestamp) -> Result<bool> {
        let Some((key, limit)) = &mut self.partition else { return Ok(false) };
        if let Limit::Unasked = limit {
            *limit = Limit::Known((self.limit)(key)?);
        }
        Ok(matches!(limit, Limit::Known(Some(limit)) if timestamp < *limit))
    }

    fn deletion(&mut self, deletion: Option<Deletion>) -> Result<Option<Deletion>> {
        match deletion {
            Some(deletion) if self.may_go(deletion.timestamp)? => Ok(None),
            kept => Ok(kept),
        }
    }

    fn partition(&mut self, header: PartitionHeader<EncodedRow>) -> Result<Option<Fragment<EncodedRow>>> {
        self.partition = Some((header.key.clone(), Limit::Unasked));
        (self.waiting, self.in_force) = (None, None);
        let deletion = self.deletion(header.deletion)?;
        let static_row = match header.static_row {
            Some(row) => self.row(row)?,
            None => None,
        };
        let header = PartitionHeader { key: header.key, deletion, static_row };
        if header.deletion.is_some() || header.static_row.is_some() {
            return Ok(Some(Fragment::Partition(header)));
        }
        self.waiting = Some(header);
        Ok(None)
    }

    /// A row without what may go; `None` if nothing is left. One that loses nothing passes as it is.
    fn row(&mut self, row: EncodedRow) -> Result<Option<EncodedRow>> {
        if !self.has_candidate(row.view()?)? {
            return Ok(Some(row));
        }
        let mut row = row.decode()?;
        self.purge(&mut row)?;
        Ok((!row.is_empty()).then(|| EncodedRow::encode(&row)))
    }

    /// Whether anything in the row is a deletion, has expired, or is of a column that was dropped.
    fn has_candidate(&self, row: RowView<'_>) -> Result<bool> {
        let is_past = |expiry_s| expiry_s <= self.now_s;
        let marker = row.marker.is_some_and(|marker| match marker.kind {
            LivenessKind::Live => false,
            LivenessKind::Expiring { expiry_s, .. } | LivenessKind::Expired { expiry_s, .. } => is_past(expiry_s),
        });
        if marker || row.deletion.is_some() {
            return Ok(true);
        }
        for part in row.parts {
            let (column, is_candidate) = match part? {
                Part::Complex { column, deletion, .. } => (column, deletion.is_some()),
                Part::Cell(cell) | Part::Element(_, cell) => (
                    cell.column,
                    match cell.kind {
                        KindView::Tombstone { .. } => true,
                        KindView::Expiring { expiry_s, .. } | KindView::Expired { expiry_s, .. } => is_past(expiry_s),
                        KindView::Live(_) | KindView::Counter(_) => false,
                    },
                ),
            };
            if is_candidate || self.live.as_ref().is_some_and(|live| !live.contains(column)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn purge(&mut self, row: &mut Row) -> Result<()> {
        if let Some(live) = &self.live {
            row.retain_columns(live);
        }
        row.deletion = self.deletion(row.deletion)?;
        if let Some(marker) = row.marker {
            row.marker = self.marker(marker)?;
        }
        let mut cells = Vec::with_capacity(row.cells.len());
        for (column, cell) in std::mem::take(&mut row.cells) {
            cells.extend(self.cell(cell)?.map(|cell| (column, cell)));
        }
        row.cells = cells;
        let mut columns = Vec::with_capacity(row.complex.len());
        for (column, complex) in std::mem::take(&mut row.complex) {
            let complex = self.complex(complex)?;
            columns.extend((!complex.is_empty()).then_some((column, complex)));
        }
        row.complex = columns;
        Ok(())
    }

    fn complex(&mut self, complex: Complex) -> Result<Complex> {
        let deletion = self.deletion(complex.deletion)?;
        let mut cells = Vec::with_capacity(complex.cells.len());
        for (path, cell) in complex.cells {
            cells.extend(self.cell(cell)?.map(|cell| (path, cell)));
        }
        Ok(Complex { deletion, cells })
    }

    fn marker(&mut self, marker: Liveness) -> Result<Option<Liveness>> {
        let kind = match marker.kind {
            LivenessKind::Expiring { ttl_s, expiry_s } if expiry_s <= self.now_s => {
                LivenessKind::Expired { ttl_s, expiry_s }
            }
            kind => kind,
        };
        let has_expired = matches!(kind, LivenessKind::Expired { expiry_s, .. } if expiry_s <= self.now_s);
        let goes = has_expired && self.may_go(marker.timestamp)?;
        Ok((!goes).then_some(Liveness { kind, ..marker }))
    }

    fn cell(&mut self, cell: Cell) -> Result<Option<Cell>> {
        let timestamp = cell.timestamp;
        let kind = match cell.kind {
            CellKind::Expiring { ttl_s, expiry_s, .. } if expiry_s <= self.now_s => {
                CellKind::Expired { ttl_s, expiry_s }
            }
            kind => kind,
        };
        let is_candidate = match kind {
            CellKind::Tombstone { .. } => true,
            CellKind::Expired { expiry_s, .. } => expiry_s <= self.now_s,
            _ => false,
        };
        let goes = is_candidate && self.may_go(timestamp)?;
        Ok((!goes).then_some(Cell { timestamp, kind }))
    }

    /// What comes next, behind the header that waits for it.
    fn behind_header(&mut self, fragment: Fragment<EncodedRow>) -> Fragment<EncodedRow> {
        match self.waiting.take() {
            Some(header) => {
                self.held = Some(fragment);
                Fragment::Partition(header)
            }
            None => fragment,
        }
    }
}

impl<S, L> Stream<EncodedRow> for Purge<S, L>
where
    S: Stream<EncodedRow>,
    L: FnMut(&PartitionKey) -> Result<Option<Timestamp>>,
{
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        if let Some(fragment) = self.held.take() {
            return Ok(Some(fragment));
        }
        while let Some(fragment) = self.source.next()? {
            let kept = match fragment {
                Fragment::Partition(header) => match self.partition(header)? {
                    Some(header) => return Ok(Some(header)),
                    None => continue,
                },
                Fragment::Row(key, row) => self.row(row)?.map(|row| Fragment::Row(key, row)),
                Fragment::Change(bound, deletion) => {
                    let deletion = self.deletion(deletion)?;
                    let changes = deletion != self.in_force;
                    self.in_force = deletion;
                    changes.then_some(Fragment::Change(bound, deletion))
                }
            };
            if let Some(fragment) = kept {
                return Ok(Some(self.behind_header(fragment)));
            }
        }
        Ok(None)
    }
}

/// The least timestamp of anything in a stream.
pub fn least_timestamp(stream: &mut impl Stream<EncodedRow>) -> Result<Option<Timestamp>> {
    let mut least = Least(None);
    while let Some(fragment) = stream.next()? {
        match fragment {
            Fragment::Partition(header) => {
                least.deletion(header.deletion);
                header.static_row.iter().try_for_each(|row| least.row(row))?;
            }
            Fragment::Row(_, row) => least.row(&row)?,
            Fragment::Change(_, deletion) => least.deletion(deletion),
        }
    }
    Ok(least.0)
}

struct Least(Option<Timestamp>);

impl Least {
    fn take(&mut self, timestamp: Timestamp) {
        self.0 = Some(self.0.map_or(timestamp, |least| least.min(timestamp)));
    }

    fn deletion(&mut self, deletion: Option<Deletion>) {
        deletion.into_iter().for_each(|deletion| self.take(deletion.timestamp));
    }

    fn row(&mut self, row: &EncodedRow) -> Result<()> {
        let RowView { marker, deletion, parts, .. } = row.view()?;
        self.deletion(deletion);
        marker.into_iter().for_each(|marker| self.take(marker.timestamp));
        for part in parts {
            match part? {
                Part::Cell(cell) | Part::Element(_, cell) => self.take(cell.timestamp),
                Part::Complex { deletion, .. } => self.deletion(deletion),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
