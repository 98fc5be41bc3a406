//! A row read off its bytes, part by part: what decodes, checks and answers questions about rows, so that there is one
//! reading of the format.
//!
//! **Invariant:** whoever reads a [`RowView`] to the end without an error has seen exactly what the encoder would
//! write for that row.

use bytes::Bytes;

use super::super::varint::Cursor;
use super::{
    BASE, COMPLEX_HAS_DELETION, COUNTER, EXPIRED, EXPIRING, HAS_COMPLEX, HAS_DELETION, HAS_MARKER, LIVE, TOMBSTONE,
    shards,
};
use crate::Result;
use crate::model::time::{EXPIRY_MAX_S, TTL_MAX_S};
use crate::model::{Cell, CellKind, ColumnId, Deletion, Liveness, LivenessKind, Timestamp};

/// The fewest bytes of a cell or an element: column id or length of the path, kind, one byte of body.
const CELL_LEAST_BYTES: usize = 3;
/// The fewest bytes of a complex column: column id, flags, a deletion, count.
const COMPLEX_LEAST_BYTES: usize = 5;

/// What stands before the cells, and all that follows.
#[derive(Debug, Clone)]
pub struct RowView<'a> {
    /// The largest timestamp in the row.
    pub newest: Timestamp,
    /// As in the row.
    pub marker: Option<Liveness>,
    /// As in the row.
    pub deletion: Option<Deletion>,
    /// The cells and complex columns, not yet read.
    pub parts: Parts<'a>,
}

/// The cells of a row, ascending by column, and then its complex columns, each followed by its elements. After an error
/// it yields nothing more.
#[derive(Debug, Clone)]
pub struct Parts<'a> {
    cursor: Cursor<'a>,
    times: Times,
    /// The column of the last cell, or of the complex column that is being read.
    column: Option<u32>,
    /// The path of its last element.
    path: Option<&'a [u8]>,
    stage: Stage,
    /// Cells or elements of this stage to come.
    left: usize,
}

/// What is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The cells. Whether complex columns follow.
    Cells { complex_follow: bool },
    /// The elements of a complex column; behind them, as many complex columns.
    Elements { columns_left: usize },
    /// Nothing.
    Done,
}

/// One part of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// A cell.
    Cell(CellView<'a>),
    /// A complex column begins.
    Complex {
        /// Which one.
        column: ColumnId,
        /// As in [`crate::model::Complex`].
        deletion: Option<Deletion>,
        /// How many elements follow.
        elements: usize,
    },
    /// An element of the complex column that began last, with its path.
    Element(&'a [u8], CellView<'a>),
}

impl<'a> Part<'a> {
    /// The cell or element, if it is one.
    pub fn cell(&self) -> Option<&CellView<'a>> {
        match self {
            Part::Cell(cell) | Part::Element(_, cell) => Some(cell),
            Part::Complex { .. } => None,
        }
    }
}

/// One cell, its value still in the row's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellView<'a> {
    /// Its column.
    pub column: ColumnId,
    /// Decides between versions.
    pub timestamp: Timestamp,
    /// What it says; as in [`CellKind`].
    pub kind: KindView<'a>,
}

/// [`CellKind`] without its own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of CellKind")]
pub enum KindView<'a> {
    /// See [`CellKind::Live`].
    Live(&'a [u8]),
    /// See [`CellKind::Expiring`].
    Expiring { value: &'a [u8], ttl_s: u32, expiry_s: i64 },
    /// See [`CellKind::Expired`].
    Expired { ttl_s: u32, expiry_s: i64 },
    /// See [`CellKind::Tombstone`].
    Tombstone { ldt_s: i64 },
    /// See [`CellKind::Counter`]: its encoded shards.
    Counter(&'a [u8]),
}

/// Turns differences into timestamps, and sees to it that they are what the encoder would have written.
#[derive(Debug, Clone)]
struct Times {
    base: Timestamp,
    /// The row's own deletion: nothing else may be as old.
    floor: Option<Timestamp>,
    /// That of the complex column that is being read, which is later than the row's.
    column_floor: Option<Timestamp>,
    /// Whether anything bears the base; if nothing does, the base is not the largest timestamp.
    base_borne: bool,
}

impl Times {
    fn read(cursor: &mut Cursor<'_>) -> Result<Times> {
        let base = Timestamp(cursor.i64()?);
        if base < Timestamp::MIN {
            return Err(cursor.corrupt("a timestamp is below the smallest there is").into());
        }
        Ok(Times { base, floor: None, column_floor: None, base_borne: false })
    }

    /// The base itself.
    fn newest(&mut self, cursor: &Cursor<'_>) -> Result<Timestamp> {
        self.base_borne = true;
        self.above_floor(cursor, self.base)
    }

    /// Reads how far behind the base a timestamp lies.
    fn back(&mut self, cursor: &mut Cursor<'_>) -> Result<Timestamp> {
        let back = cursor.varint()?;
        // The base is not below the smallest timestamp, so the difference is exact although it may exceed an i64.
        let most = self.base.0.wrapping_sub(Timestamp::MIN.0) as u64;
        if back > most {
            return Err(cursor.corrupt("a timestamp is below the smallest there is").into());
        }
        self.base_borne |= back == 0;
        self.above_floor(cursor, Timestamp(self.base.0.wrapping_sub(back as i64)))
    }

    fn above_floor(&self, cursor: &Cursor<'_>, timestamp: Timestamp) -> Result<Timestamp> {
        match self.floor {
            Some(floor) if timestamp <= floor => {
                Err(cursor.corrupt("the row holds what its own deletion covers").into())
            }
            _ if self.column_floor.is_some_and(|floor| timestamp <= floor) => {
                Err(cursor.corrupt("a column holds what its own deletion covers").into())
            }
            _ => Ok(timestamp),
        }
    }
}

impl<'a> RowView<'a> {
    /// Reads what stands before the cells.
    pub fn new(bytes: &'a [u8]) -> Result<RowView<'a>> {
        let mut cursor = Cursor::new("row", bytes);
        let flags = cursor.u8()?;
        if flags & !(HAS_MARKER | HAS_DELETION | HAS_COMPLEX) != 0 {
            return Err(cursor.corrupt(format!("unknown flags {flags:02x}")).into());
        }
        let mut times = Times::read(&mut cursor)?;
        let marker = if flags & HAS_MARKER != 0 { Some(read_marker(&mut cursor, &mut times)?) } else { None };
        let deletion = if flags & HAS_DELETION != 0 { Some(read_deletion(&mut cursor, &mut times)?) } else { None };
        if let Some(deletion) = deletion {
            if marker.is_some_and(|marker| deletion.covers(marker.timestamp)) {
                return Err(cursor.corrupt("the row holds what its own deletion covers").into());
            }
            times.floor = Some(deletion.timestamp);
        }
        let left = cursor.count(CELL_LEAST_BYTES)?;
        let newest = times.base;
        let stage = Stage::Cells { complex_follow: flags & HAS_COMPLEX != 0 };
        let parts = Parts { cursor, times, column: None, path: None, stage, left };
        Ok(RowView { newest, marker, deletion, parts })
    }

    /// Reads to the end: whether these bytes are a row.
    pub fn check(bytes: &[u8]) -> Result<()> {
        RowView::new(bytes)?.parts.try_for_each(|part| part.map(drop))
    }

    /// Whether this row is what both together make, as far as that shows at a glance: everything in the other one is in
    /// this one too, and later here. Complex columns, counters and deletions of the other do not show so.
    pub fn prevails_over(self, other: RowView<'_>) -> Result<bool> {
        let is_later = |ours: Liveness, theirs: Liveness| ours.timestamp > theirs.timestamp;
        let marker = other.marker.is_none_or(|theirs| self.marker.is_some_and(|ours| is_later(ours, theirs)));
        if !marker || other.deletion.is_some() || self.newest <= other.newest {
            return Ok(false);
        }
        let mut ours = self.parts;
        for theirs in other.parts {
            let Part::Cell(theirs) = theirs? else { return Ok(false) };
            let ours = loop {
                match ours.next().transpose()? {
                    Some(Part::Cell(ours)) if ours.column < theirs.column => {}
                    Some(Part::Cell(ours)) if ours.column == theirs.column => break ours,
                    _ => return Ok(false),
                }
            };
            let counts = |cell: &CellView<'_>| matches!(cell.kind, KindView::Counter(_));
            if ours.timestamp <= theirs.timestamp || counts(&ours) || counts(&theirs) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether an enclosing deletion covers anything in the row.
    pub fn is_touched_by(self, deletion: Deletion) -> Result<bool> {
        if let Some(own) = self.deletion {
            // What is in the row is later than its own deletion, and no counter; if that is later still, nothing is covered.
            return Ok(deletion.covers(own.timestamp));
        }
        if self.marker.is_some_and(|marker| deletion.covers(marker.timestamp)) {
            return Ok(true);
        }
        for part in self.parts {
            let covered = match part? {
                Part::Cell(cell) | Part::Element(_, cell) => cell.is_covered_by(deletion),
                Part::Complex { deletion: own, .. } => own.is_some_and(|own| deletion.covers(own.timestamp)),
            };
            if covered {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn read_marker(cursor: &mut Cursor<'_>, times: &mut Times) -> Result<Liveness> {
    let code = cursor.u8()?;
    let timestamp = times.back(cursor)?;
    let kind = match code {
        LIVE => LivenessKind::Live,
        EXPIRING => {
            let (ttl_s, expiry_s) = read_expiry(cursor)?;
            LivenessKind::Expiring { ttl_s, expiry_s }
        }
        EXPIRED => {
            let (ttl_s, expiry_s) = read_expiry(cursor)?;
            LivenessKind::Expired { ttl_s, expiry_s }
        }
        _ => return Err(cursor.corrupt(format!("unknown kind {code:02x} of marker")).into()),
    };
    Ok(Liveness { timestamp, kind })
}

fn read_deletion(cursor: &mut Cursor<'_>, times: &mut Times) -> Result<Deletion> {
    Ok(Deletion { timestamp: times.back(cursor)?, ldt_s: read_seconds(cursor)? })
}

fn read_expiry(cursor: &mut Cursor<'_>) -> Result<(u32, i64)> {
    let ttl_s = cursor.varint_u32()?;
    if !(1..=TTL_MAX_S).contains(&ttl_s) {
        return Err(cursor.corrupt(format!("a time to live of {ttl_s} s; it is 1 to {TTL_MAX_S}")).into());
    }
    Ok((ttl_s, read_seconds(cursor)?))
}

/// An expiry or local deletion time.
pub(in crate::codec) fn read_seconds(cursor: &mut Cursor<'_>) -> Result<i64> {
    let seconds = cursor.varint()?;
    match i64::try_from(seconds) {
        Ok(seconds) if seconds <= EXPIRY_MAX_S => Ok(seconds),
        _ => Err(cursor.corrupt(format!("{seconds} s since 1970; at most {EXPIRY_MAX_S}")).into()),
    }
}

impl<'a> Parts<'a> {
    /// How many cells are still to come, those of complex columns not counted.
    pub fn cells_left(&self) -> usize {
        if matches!(self.stage, Stage::Cells { .. }) { self.left } else { 0 }
    }

    /// Reads the next part; `None` at the end of the row.
    fn advance(&mut self) -> Result<Option<Part<'a>>> {
        match self.stage {
            Stage::Done => Ok(None),
            Stage::Cells { .. } if self.left > 0 => {
                self.left -= 1;
                let column = self.next_column()?;
                self.cell(column).map(|cell| Some(Part::Cell(cell)))
            }
            Stage::Elements { .. } if self.left > 0 => {
                self.left -= 1;
                self.element().map(Some)
            }
            Stage::Cells { complex_follow: true } => {
                let columns = self.cursor.count(COMPLEX_LEAST_BYTES)?;
                if columns == 0 {
                    return Err(self.cursor.corrupt("complex columns announced, and none there").into());
                }
                self.column = None;
                self.complex(columns - 1).map(Some)
            }
            Stage::Elements { columns_left } if columns_left > 0 => self.complex(columns_left - 1).map(Some),
            Stage::Cells { .. } | Stage::Elements { .. } => {
                self.stage = Stage::Done;
                self.end().map(|()| None)
            }
        }
    }

    /// Reads what stands before the elements of a complex column; `columns_left` follow it.
    fn complex(&mut self, columns_left: usize) -> Result<Part<'a>> {
        let column = self.next_column()?;
        let flags = self.cursor.u8()?;
        if flags & !COMPLEX_HAS_DELETION != 0 {
            return Err(self.cursor.corrupt(format!("unknown flags {flags:02x} of a column")).into());
        }
        self.times.column_floor = None;
        let has_deletion = flags & COMPLEX_HAS_DELETION != 0;
        let deletion = if has_deletion { Some(read_deletion(&mut self.cursor, &mut self.times)?) } else { None };
        self.times.column_floor = deletion.map(|deletion| deletion.timestamp);
        let elements = self.cursor.count(CELL_LEAST_BYTES)?;
        if elements == 0 && !has_deletion {
            return Err(self.cursor.corrupt("a column without deletion and elements").into());
        }
        self.path = None;
        self.left = elements;
        self.stage = Stage::Elements { columns_left };
        Ok(Part::Complex { column, deletion, elements })
    }

    fn element(&mut self) -> Result<Part<'a>> {
        let path = self.cursor.bytes()?;
        if self.path.is_some_and(|before| before >= path) {
            return Err(self.cursor.corrupt("paths do not ascend").into());
        }
        self.path = Some(path);
        let cell = self.cell(ColumnId(self.column.unwrap_or_default()))?;
        if matches!(cell.kind, KindView::Counter(_)) {
            return Err(self.cursor.corrupt("a counter within a column of many cells").into());
        }
        Ok(Part::Element(path, cell))
    }

    fn cell(&mut self, column: ColumnId) -> Result<CellView<'a>> {
        let code = self.cursor.u8()?;
        let timestamp = if code & BASE != 0 { self.times.newest(&self.cursor)? } else { self.behind_base()? };
        let cursor = &mut self.cursor;
        let kind = match code & !BASE {
            LIVE => KindView::Live(cursor.bytes()?),
            EXPIRING => {
                let (ttl_s, expiry_s) = read_expiry(cursor)?;
                KindView::Expiring { value: cursor.bytes()?, ttl_s, expiry_s }
            }
            EXPIRED => {
                let (ttl_s, expiry_s) = read_expiry(cursor)?;
                KindView::Expired { ttl_s, expiry_s }
            }
            TOMBSTONE => KindView::Tombstone { ldt_s: read_seconds(cursor)? },
            COUNTER => self.counter()?,
            kind => return Err(cursor.corrupt(format!("unknown kind {kind:02x} of cell")).into()),
        };
        Ok(CellView { column, timestamp, kind })
    }

    fn counter(&mut self) -> Result<KindView<'a>> {
        if self.times.floor.is_some() {
            return Err(self.cursor.corrupt("the row holds what its own deletion covers").into());
        }
        shards::skim(&mut self.cursor).map(KindView::Counter)
    }

    fn next_column(&mut self) -> Result<ColumnId> {
        let step = self.cursor.varint_u32()?;
        let column = match self.column {
            None => Some(step),
            Some(before) if step > 0 => before.checked_add(step),
            Some(_) => None,
        };
        self.column = column;
        column.map(ColumnId).ok_or_else(|| self.cursor.corrupt("column ids do not ascend").into())
    }

    fn behind_base(&mut self) -> Result<Timestamp> {
        let timestamp = self.times.back(&mut self.cursor)?;
        if timestamp == self.times.base {
            return Err(self.cursor.corrupt("a cell at the base is not marked so").into());
        }
        Ok(timestamp)
    }

    fn end(&self) -> Result<()> {
        if !self.times.base_borne {
            return Err(self.cursor.corrupt("nothing in the row bears its largest timestamp").into());
        }
        self.cursor.end()
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<Part<'a>>;

    fn next(&mut self) -> Option<Result<Part<'a>>> {
        let part = self.advance();
        if part.is_err() {
            self.stage = Stage::Done;
        }
        part.transpose()
    }
}

impl CellView<'_> {
    /// Whether it has a value at `now_s`.
    pub fn is_live_at(&self, now_s: i64) -> bool {
        match self.kind {
            KindView::Live(_) | KindView::Counter(_) => true,
            KindView::Expiring { expiry_s, .. } => now_s < expiry_s,
            KindView::Expired { .. } | KindView::Tombstone { .. } => false,
        }
    }

    /// As [`Deletion::covers_cell`].
    pub fn is_covered_by(&self, deletion: Deletion) -> bool {
        matches!(self.kind, KindView::Counter(_)) || deletion.covers(self.timestamp)
    }

    /// The cell; its value is a slice of `row`, the bytes that the view was made of.
    pub fn to_cell(&self, row: &Bytes) -> Result<Cell> {
        let kind = match self.kind {
            KindView::Live(value) => CellKind::Live(row.slice_ref(value)),
            KindView::Expiring { value, ttl_s, expiry_s } => {
                CellKind::Expiring { value: row.slice_ref(value), ttl_s, expiry_s }
            }
            KindView::Expired { ttl_s, expiry_s } => CellKind::Expired { ttl_s, expiry_s },
            KindView::Tombstone { ldt_s } => CellKind::Tombstone { ldt_s },
            KindView::Counter(bytes) => CellKind::Counter(shards::decode(bytes)?),
        };
        Ok(Cell { timestamp: self.timestamp, kind })
    }
}
