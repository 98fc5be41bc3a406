//! From the fragments of reads to the rows of a page: visibility, static columns, limits.
//!
//! A page is filled by as many read commands as it takes: a replica cut short by its limits is asked again from where
//! the merge ended (B007, B025), never by counting what came.

use std::sync::Arc;

use super::paging::Resume;
use super::read::ReadAnswer;
use crate::Result;
use crate::codec::EncodedRow;
use crate::model::{
    ClusteringKey, Fragment, LiveColumns, PageEnd, PagePosition, PartitionHeader, PartitionKey, Row, RowPosition,
};

/// A row as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultRow {
    /// Its partition.
    pub partition: PartitionKey,
    /// Its place; `None` for the row that stands for a partition of which only static values are visible.
    pub clustering: Option<ClusteringKey>,
    /// The partition's static row, shared by all rows of the partition.
    pub static_row: Option<Arc<Row>>,
    /// Marker and cells; empty if `clustering` is `None`.
    pub row: Row,
}

/// What a page may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimits {
    /// Rows; at least 1.
    pub rows: u32,
    /// Bytes of encoded rows, after which the page ends; at least one row is always answered.
    pub bytes: u64,
    /// Visible rows of one partition, over all pages; `None`: no limit.
    pub rows_per_partition: Option<u32>,
}

/// How much a page may meet on its way to its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadGuards {
    /// With more tombstones the page is refused; less than what was asked for is never answered for it.
    pub tombstones_max: u64,
    /// Rows that are larger, as encoded, are told of.
    pub row_bytes_warn: u64,
}

/// A row that is larger than [`ReadGuards::row_bytes_warn`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargeRow {
    /// Its partition.
    pub partition: PartitionKey,
    /// Its size, as encoded.
    pub bytes: u64,
}

/// What a target asks of each partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All rows: a partition with visible static values and no visible rows is shown as one row.
    WholePartitions,
    /// Some rows.
    Slices,
}

/// What to do after an answer was taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Read on from here: the page is not full.
    ReadAfter(PagePosition),
    /// The page is full; the next one begins here.
    PageFull(Resume),
    /// Nothing is left, and the page has room yet.
    Complete,
    /// There are more tombstones than a page may meet; the page is refused.
    TooManyTombstones {
        /// The partition in which the limit was passed.
        partition: PartitionKey,
        /// How many there were until then.
        found: u64,
    },
}

/// A page being filled.
#[derive(Debug)]
pub struct Assembler {
    limits: PageLimits,
    now_s: i64,
    live: LiveColumns,
    extent: Extent,
    rows: Vec<ResultRow>,
    bytes: u64,
    partition: Option<Current>,
    /// The partition a page before this one ended in, and the visible rows it had shown of it.
    resumed: Option<(PartitionKey, u32)>,
    guards: ReadGuards,
    tombstones: u64,
    /// The largest of those that are too large to say nothing about.
    large_row: Option<LargeRow>,
}

/// The partition whose rows are being taken.
#[derive(Debug)]
struct Current {
    key: PartitionKey,
    static_row: Option<Arc<Row>>,
    /// Its size, as encoded: each row of the page is answered with it.
    static_bytes: u64,
    rows: u32,
}

impl Assembler {
    /// Begins a page, at `resume` if the page before ended within the first target. Cells of other columns than `live` do
    /// not count: a replica may not have heard yet that a column was dropped, or have heard before of one that was added.
    pub fn new(limits: PageLimits, now_s: i64, live: LiveColumns, resume: Option<&Resume>) -> Assembler {
        Assembler {
            limits,
            now_s,
            live,
            extent: Extent::Slices,
            rows: Vec::new(),
            bytes: 0,
            partition: None,
            resumed: resume.map(|resume| (resume.position.partition.clone(), resume.rows_in_partition)),
            guards: ReadGuards { tombstones_max: u64::MAX, row_bytes_warn: u64::MAX },
            tombstones: 0,
            large_row: None,
        }
    }

    /// The page, with an eye on what it meets.
    pub fn guarded(self, guards: ReadGuards) -> Assembler {
        Assembler { guards, ..self }
    }

    /// Tombstones that were met so far.
    pub fn tombstones(&self) -> u64 {
        self.tombstones
    }

    /// The largest row that is worth a warning.
    pub fn large_row(&self) -> Option<&LargeRow> {
        self.large_row.as_ref()
    }

    /// From here on answers belong to a target of this extent.
    pub fn begin_target(&mut self, extent: Extent) {
        self.extent = extent;
    }

    /// Rows that are still wanted.
    pub fn wanted(&self) -> u32 {
        self.limits.rows.saturating_sub(self.rows.len() as u32).max(1)
    }

    /// The rows of the page.
    pub fn into_rows(self) -> Vec<ResultRow> {
        self.rows
    }

    /// Takes in what a read answered.
    pub fn take(&mut self, answer: ReadAnswer) -> Result<Next> {
        for fragment in answer.fragments {
            let full = match fragment {
                Fragment::Partition(header) => {
                    let full = if self.is_same_partition(&header.key) { None } else { self.end_partition() };
                    self.begin_partition(header)?;
                    full
                }
                Fragment::Row(key, row) => self.take_row(key, &row)?,
                Fragment::Change(_, deletion) => {
                    self.tombstones += u64::from(deletion.is_some());
                    None
                }
            };
            if self.tombstones > self.guards.tombstones_max
                && let Some(current) = &self.partition
            {
                return Ok(Next::TooManyTombstones { partition: current.key.clone(), found: self.tombstones });
            }
            if let Some(resume) = full {
                return Ok(Next::PageFull(resume));
            }
        }
        Ok(self.after_answer(answer.end))
    }

    fn is_same_partition(&self, key: &PartitionKey) -> bool {
        self.partition.as_ref().is_some_and(|current| current.key == *key)
    }

    fn begin_partition(&mut self, header: PartitionHeader<EncodedRow>) -> Result<()> {
        let PartitionHeader { key, deletion, static_row } = header;
        let static_bytes = static_row.as_ref().map_or(0, |row| row.bytes().len() as u64);
        let static_row = match static_row {
            Some(row) => self.decode(&row)?.map(Arc::new),
            None => None,
        };
        if !self.is_same_partition(&key) {
            let in_static = static_row.as_ref().map_or(0, |row| row.tombstones_at(self.now_s));
            self.tombstones += u64::from(deletion.is_some()) + in_static;
        }
        let shown_before = match (&self.partition, self.resumed.take()) {
            (Some(current), _) if current.key == key => current.rows,
            (_, Some((resumed, rows))) if resumed == key => rows,
            _ => 0,
        };
        self.partition = Some(Current { key, static_row, static_bytes, rows: shown_before });
        Ok(())
    }

    /// Takes a row; `Some` if the page is full behind it.
    fn take_row(&mut self, key: ClusteringKey, row: &EncodedRow) -> Result<Option<Resume>> {
        if !row.is_visible_at(self.now_s)? {
            self.tombstones += row.decode()?.tombstones_at(self.now_s);
            return Ok(None);
        }
        let row_bytes = row.bytes().len() as u64;
        let Some(row) = self.decode(row)?.filter(|row| row.is_visible_at(self.now_s)) else { return Ok(None) };
        let Some(current) = self.partition.as_mut() else { return Ok(None) };
        if self.limits.rows_per_partition.is_some_and(|limit| current.rows >= limit) {
            return Ok(None);
        }
        current.rows += 1;
        self.bytes += row_bytes + key.bytes().len() as u64 + current.key.bytes().len() as u64 + current.static_bytes;
        let least = self.large_row.as_ref().map_or(self.guards.row_bytes_warn, |large| large.bytes);
        if row_bytes > least {
            self.large_row = Some(LargeRow { partition: current.key.clone(), bytes: row_bytes });
        }
        let result = ResultRow {
            partition: current.key.clone(),
            clustering: Some(key.clone()),
            static_row: current.static_row.clone(),
            row,
        };
        let (partition, shown) = (current.key.clone(), current.rows);
        self.tombstones += result.row.tombstones_at(self.now_s);
        self.rows.push(result);
        Ok(self.is_full().then(|| Resume {
            position: PagePosition { partition, row: RowPosition::After(key) },
            rows_in_partition: shown,
        }))
    }

    /// The row without cells of columns that the table does not have; `None` if nothing is left.
    fn decode(&self, row: &EncodedRow) -> Result<Option<Row>> {
        let mut row = row.decode()?;
        row.retain_columns(&self.live);
        Ok((!row.is_empty()).then_some(row))
    }

    /// The partition has no more rows: shows its static row if nothing else was. `Some` if the page is full behind it.
    fn end_partition(&mut self) -> Option<Resume> {
        let current = self.partition.take()?;
        let visible = current.static_row.as_ref().is_some_and(|row| row.is_visible_at(self.now_s));
        if !(self.extent == Extent::WholePartitions && visible && current.rows == 0) {
            return None;
        }
        self.bytes += current.key.bytes().len() as u64 + current.static_bytes;
        self.rows.push(ResultRow {
            partition: current.key.clone(),
            clustering: None,
            static_row: current.static_row,
            row: Row::default(),
        });
        self.is_full().then(|| Resume {
            position: PagePosition { partition: current.key, row: RowPosition::End },
            rows_in_partition: 0,
        })
    }

    /// Whether the page takes no more rows.
    fn is_full(&self) -> bool {
        self.rows.len() as u32 >= self.limits.rows || self.bytes >= self.limits.bytes
    }

    fn after_answer(&mut self, end: PageEnd) -> Next {
        let position = match end {
            PageEnd::Complete => {
                self.resumed = None;
                return match self.end_partition() {
                    Some(resume) => Next::PageFull(resume),
                    None => Next::Complete,
                };
            }
            PageEnd::At(position) => position,
        };
        let ended = position.row == RowPosition::End || !self.is_same_partition(&position.partition);
        if ended {
            return match self.end_partition() {
                Some(resume) => Next::PageFull(resume),
                None => Next::ReadAfter(position),
            };
        }
        let over_limit = self
            .partition
            .as_ref()
            .zip(self.limits.rows_per_partition)
            .filter(|(current, limit)| current.rows >= *limit);
        match over_limit {
            Some(_) => Next::ReadAfter(PagePosition { partition: position.partition, row: RowPosition::End }),
            None => Next::ReadAfter(position),
        }
    }

    /// Where the page ends if it is given up before it is full: enough work was done for one request.
    pub fn pause(&self, position: PagePosition) -> Resume {
        let shown = self.partition.as_ref().map(|current| (&current.key, current.rows));
        let shown = shown.or(self.resumed.as_ref().map(|(key, rows)| (key, *rows)));
        let rows_in_partition = shown.filter(|(key, _)| **key == position.partition).map_or(0, |(_, rows)| rows);
        Resume { position, rows_in_partition }
    }
}
