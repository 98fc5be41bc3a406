//! A row read off its bytes, cell by cell: what decodes, checks and answers questions about rows, so that there is one
//! reading of the format.
//!
//! **Invariant:** whoever reads a [`RowView`] to the end without an error has seen exactly what the encoder would
//! write for that row.

use bytes::Bytes;

use super::super::varint::Cursor;
use super::{BASE, EXPIRED, EXPIRING, HAS_DELETION, HAS_MARKER, LIVE, TOMBSTONE};
use crate::Result;
use crate::model::time::{EXPIRY_MAX_S, TTL_MAX_S};
use crate::model::{Cell, CellKind, ColumnId, Deletion, Liveness, LivenessKind, Timestamp};

/// The fewest bytes of a cell: column id, kind, one byte of body.
const CELL_LEAST_BYTES: usize = 3;

/// What stands before the cells, and the cells.
#[derive(Debug, Clone)]
pub struct RowView<'a> {
    /// The largest timestamp in the row.
    pub newest: Timestamp,
    /// As in the row.
    pub marker: Option<Liveness>,
    /// As in the row.
    pub deletion: Option<Deletion>,
    /// The cells, not yet read.
    pub cells: Cells<'a>,
}

/// The cells of a row, ascending by column. After an error it yields nothing more.
#[derive(Debug, Clone)]
pub struct Cells<'a> {
    cursor: Cursor<'a>,
    times: Times,
    column: Option<u32>,
    left: usize,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    Done,
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
}

/// Turns differences into timestamps, and sees to it that they are what the encoder would have written.
#[derive(Debug, Clone)]
struct Times {
    base: Timestamp,
    /// The row's own deletion: nothing else may be as old.
    floor: Option<Timestamp>,
    /// Whether anything bears the base; if nothing does, the base is not the largest timestamp.
    base_borne: bool,
}

impl Times {
    fn read(cursor: &mut Cursor<'_>) -> Result<Times> {
        let base = Timestamp(cursor.i64()?);
        if base < Timestamp::MIN {
            return Err(cursor.corrupt("a timestamp is below the smallest there is").into());
        }
        Ok(Times { base, floor: None, base_borne: false })
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
            _ => Ok(timestamp),
        }
    }
}

impl<'a> RowView<'a> {
    /// Reads what stands before the cells.
    pub fn new(bytes: &'a [u8]) -> Result<RowView<'a>> {
        let mut cursor = Cursor::new("row", bytes);
        let flags = cursor.u8()?;
        if flags & !(HAS_MARKER | HAS_DELETION) != 0 {
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
        let cells = Cells { cursor, times, column: None, left, state: State::Reading };
        Ok(RowView { newest, marker, deletion, cells })
    }

    /// Reads to the end: whether these bytes are a row.
    pub fn check(bytes: &[u8]) -> Result<()> {
        RowView::new(bytes)?.cells.try_for_each(|cell| cell.map(drop))
    }

    /// Whether an enclosing deletion covers anything in the row.
    pub fn is_touched_by(self, deletion: Deletion) -> Result<bool> {
        if let Some(own) = self.deletion {
            // What is in the row is later than its own deletion; if that is later still, nothing is covered.
            return Ok(deletion.covers(own.timestamp));
        }
        if self.marker.is_some_and(|marker| deletion.covers(marker.timestamp)) {
            return Ok(true);
        }
        for cell in self.cells {
            if deletion.covers(cell?.timestamp) {
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

impl<'a> Cells<'a> {
    /// How many cells are still to come.
    pub fn left(&self) -> usize {
        self.left
    }

    fn cell(&mut self) -> Result<CellView<'a>> {
        let column = self.next_column()?;
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
            kind => return Err(cursor.corrupt(format!("unknown kind {kind:02x} of cell")).into()),
        };
        Ok(CellView { column: ColumnId(column), timestamp, kind })
    }

    fn next_column(&mut self) -> Result<u32> {
        let step = self.cursor.varint_u32()?;
        let column = match self.column {
            None => Some(step),
            Some(before) if step > 0 => before.checked_add(step),
            Some(_) => None,
        };
        self.column = column;
        column.ok_or_else(|| self.cursor.corrupt("column ids do not ascend").into())
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

impl<'a> Iterator for Cells<'a> {
    type Item = Result<CellView<'a>>;

    fn next(&mut self) -> Option<Result<CellView<'a>>> {
        if self.state == State::Done {
            return None;
        }
        if self.left == 0 {
            self.state = State::Done;
            return self.end().err().map(Err);
        }
        self.left -= 1;
        let cell = self.cell();
        if cell.is_err() {
            self.state = State::Done;
        }
        Some(cell)
    }
}

impl CellView<'_> {
    /// Whether it has a value at `now_s`.
    pub fn is_live_at(&self, now_s: i64) -> bool {
        match self.kind {
            KindView::Live(_) => true,
            KindView::Expiring { expiry_s, .. } => now_s < expiry_s,
            KindView::Expired { .. } | KindView::Tombstone { .. } => false,
        }
    }

    /// The cell; its value is a slice of `row`, the bytes that the view was made of.
    pub fn to_cell(&self, row: &Bytes) -> Cell {
        let kind = match self.kind {
            KindView::Live(value) => CellKind::Live(row.slice_ref(value)),
            KindView::Expiring { value, ttl_s, expiry_s } => {
                CellKind::Expiring { value: row.slice_ref(value), ttl_s, expiry_s }
            }
            KindView::Expired { ttl_s, expiry_s } => CellKind::Expired { ttl_s, expiry_s },
            KindView::Tombstone { ldt_s } => CellKind::Tombstone { ldt_s },
        };
        Cell { timestamp: self.timestamp, kind }
    }
}
