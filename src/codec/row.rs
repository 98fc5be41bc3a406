//! Rows as bytes: the form in which they travel and are stored.
//!
//! ```text
//! row       flags u8 | base i64 | [marker] | [deletion] | count varint | cell ... | [complex columns]
//! flags     01 marker   02 row deletion   04 complex columns   08..80 reserved, zero
//! base      the largest timestamp in the row; every other timestamp is stored as  base - timestamp  (varint)
//! marker    kind u8 (0 live, 1 expiring, 2 expired) | back varint | [ttl varint | expiry varint]
//! deletion  back varint | ldt varint
//! cell      column id (first: itself, then the difference) varint | kind u8 | [back varint] | body
//! kind      low 3 bits  0 live  1 expiring  2 expired  3 tombstone  4 counter ;  08: timestamp = base, no back
//! body      live: bytes · expiring: ttl varint, expiry varint, bytes · expired: ttl varint, expiry varint · tombstone: ldt varint
//!           · counter: count varint | shard ...
//! shard     node varint | incarnation varint | clock varint | value zigzag varint
//! bytes     length varint | that many bytes
//!
//! complex columns   count varint | complex ...
//! complex   column id (as of cells) varint | flags u8 (01 deletion) | [deletion] | count varint | element ...
//! element   path bytes | kind u8 | [back varint] | body
//! ```
//!
//! The empty row (no marker, deletion, cell or complex column) has no encoding, nor has a complex column without a
//! deletion and elements; elements are no counters. Column ids, paths and the owners of shards strictly ascend. Seconds
//! (expiry, ldt) are 0..=2^32-1, a ttl is 1..=630,720,000. A difference of timestamps may need all 64 bits. Reserved for
//! later: kinds 5..7.

mod shards;
pub mod view;

use bytes::Bytes;

use self::view::{CellView, Part, RowView};
use super::varint::{put_bytes, put_varint};
use crate::Result;
use crate::model::reconcile::{merge_rows, shadow_row};
use crate::model::{
    Cell, CellKind, ColumnId, Complex, Deletion, LiveColumns, Liveness, LivenessKind, Reconcile, Row, Timestamp,
};

const HAS_MARKER: u8 = 0x01;
const HAS_DELETION: u8 = 0x02;
const HAS_COMPLEX: u8 = 0x04;

/// Flag of a complex column.
const COMPLEX_HAS_DELETION: u8 = 0x01;

const LIVE: u8 = 0;
const EXPIRING: u8 = 1;
const EXPIRED: u8 = 2;
const TOMBSTONE: u8 = 3;
const COUNTER: u8 = 4;
/// Beside the kind of a cell: its timestamp is the base.
const BASE: u8 = 0x08;

/// Enough for everything of a row but its cells, and of a cell but its value, unless numbers are unusually long: what
/// encoders reserve.
const ROW_USUAL_BYTES: usize = 32;
const CELL_USUAL_BYTES: usize = 12;

/// The fewest bytes of a row: flags, base, a deletion, count.
pub(super) const ROW_LEAST_BYTES: usize = 12;

/// A row in its stored form. Equal rows have equal bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EncodedRow(Bytes);

impl EncodedRow {
    /// Encodes a row that is not empty.
    pub fn encode(row: &Row) -> EncodedRow {
        let mut out = Vec::with_capacity(usual_bytes(row));
        put_row(&mut out, row);
        EncodedRow(Bytes::from(out))
    }

    /// Takes bytes that were encoded elsewhere, after checking every byte of them.
    pub fn checked(bytes: Bytes) -> Result<EncodedRow> {
        RowView::check(&bytes)?;
        Ok(EncodedRow(bytes))
    }

    /// Takes bytes that this process encoded or whose checksum was verified; a fault in them shows when they are decoded.
    pub fn trusted(bytes: Bytes) -> EncodedRow {
        EncodedRow(bytes)
    }

    /// The row.
    pub fn decode(&self) -> Result<Row> {
        let RowView { marker, deletion, parts, .. } = self.view()?;
        let mut row = Row { marker, deletion, cells: Vec::with_capacity(parts.cells_left()), complex: Vec::new() };
        for part in parts {
            match part? {
                Part::Cell(cell) => row.cells.push((cell.column, cell.to_cell(&self.0)?)),
                Part::Complex { column, deletion, elements } => {
                    row.complex.push((column, Complex { deletion, cells: Vec::with_capacity(elements) }));
                }
                Part::Element(path, cell) => {
                    if let Some((_, complex)) = row.complex.last_mut() {
                        complex.cells.push((self.0.slice_ref(path), cell.to_cell(&self.0)?));
                    }
                }
            }
        }
        Ok(row)
    }

    /// The row, to be read off its bytes without building it.
    pub fn view(&self) -> Result<RowView<'_>> {
        RowView::new(&self.0)
    }

    /// As [`Row::is_visible_at`].
    pub fn is_visible_at(&self, now_s: i64) -> Result<bool> {
        is_visible_at(&self.0, now_s)
    }

    /// What is left of the row without what was written to dropped columns; `None` when nothing is.
    ///
    /// A replica answers and compacts rows in this form, so that what was written to a column that is gone neither makes a
    /// row visible nor makes replicas differ, whichever of them still has it on its disk.
    pub fn without_dropped(self, live: &LiveColumns) -> Result<Option<EncodedRow>> {
        let mut row = self.decode()?;
        Ok(match row.retain_columns(live) {
            false => Some(self),
            true if row.is_empty() => None,
            true => Some(EncodedRow::encode(&row)),
        })
    }

    /// The largest timestamp in the row, its deletion's included.
    pub fn newest_timestamp(&self) -> Result<Timestamp> {
        Ok(self.view()?.newest)
    }

    /// The stored form.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

/// As [`Row::is_visible_at`], of an encoded row.
pub fn is_visible_at(row: &[u8], now_s: i64) -> Result<bool> {
    // Most rows have a marker that never expires; it stands behind the base.
    if let [flags, _, _, _, _, _, _, _, _, LIVE, ..] = row
        && flags & HAS_MARKER != 0
    {
        return Ok(true);
    }
    let view = RowView::new(row)?;
    if view.marker.is_some_and(|marker| marker.is_live_at(now_s)) {
        return Ok(true);
    }
    for part in view.parts {
        if part?.cell().is_some_and(|cell| cell.is_live_at(now_s)) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Reconcile for EncodedRow {
    fn merge(self, other: Self) -> Result<Self> {
        Ok(match merged(&self.0, &other.0)? {
            Merged::Held => self,
            Merged::Other => other,
            Merged::Both(both) => both,
        })
    }

    fn under(self, deletion: Deletion) -> Result<Option<Self>> {
        Ok(match touched(&self.0, deletion)? {
            Touch::Not => Some(self),
            Touch::Partly(left) => Some(left),
            Touch::Wholly => None,
        })
    }
}

/// What two versions of a row make together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// The first of them.
    Held,
    /// The second.
    Other,
    /// Neither.
    Both(EncodedRow),
}

/// Merges two encoded rows. Where one is written over the other in whole, as by far the most are, none is unpacked.
pub fn merged(held: &[u8], other: &[u8]) -> Result<Merged> {
    if held == other || RowView::new(held)?.prevails_over(RowView::new(other)?)? {
        return Ok(Merged::Held);
    }
    if RowView::new(other)?.prevails_over(RowView::new(held)?)? {
        return Ok(Merged::Other);
    }
    Ok(Merged::Both(EncodedRow::encode(&merge_rows(unpacked(held)?, unpacked(other)?))))
}

/// What an enclosing deletion does to a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touch {
    /// Nothing.
    Not,
    /// This is left.
    Partly(EncodedRow),
    /// Nothing is left.
    Wholly,
}

/// What an enclosing deletion does to an encoded row.
pub fn touched(row: &[u8], deletion: Deletion) -> Result<Touch> {
    let view = RowView::new(row)?;
    if deletion.covers(view.newest) {
        return Ok(Touch::Wholly);
    }
    if !view.is_touched_by(deletion)? {
        return Ok(Touch::Not);
    }
    Ok(shadow_row(unpacked(row)?, deletion).map_or(Touch::Wholly, |row| Touch::Partly(EncodedRow::encode(&row))))
}

fn unpacked(row: &[u8]) -> Result<Row> {
    EncodedRow(Bytes::copy_from_slice(row)).decode()
}

/// The greatest column that an encoded row says anything of; every byte of it is looked at, as by [`RowView::check`].
pub(super) fn last_column(row: &[u8]) -> Result<Option<ColumnId>> {
    let mut last = None;
    for part in RowView::new(row)?.parts {
        match part? {
            Part::Cell(CellView { column, .. }) | Part::Complex { column, .. } => last = last.max(Some(column)),
            Part::Element(..) => {}
        }
    }
    Ok(last)
}

/// Whether an encoded row has neither marker nor deletion, as every static row.
pub(super) fn may_be_static(row: &[u8]) -> bool {
    row.first().is_some_and(|flags| flags & (HAS_MARKER | HAS_DELETION) == 0)
}

/// About how long a row's encoding is; at least that long for usual rows.
pub(super) fn usual_bytes(row: &Row) -> usize {
    let elements = row.complex.iter().map(|(_, complex)| {
        let elements = complex.cells.iter().map(|(path, cell)| path.len() + usual_cell_bytes(cell));
        ROW_USUAL_BYTES + elements.sum::<usize>()
    });
    let cells = row.cells.iter().map(|(_, cell)| usual_cell_bytes(cell));
    ROW_USUAL_BYTES + cells.sum::<usize>() + elements.sum::<usize>()
}

fn usual_cell_bytes(cell: &Cell) -> usize {
    match &cell.kind {
        CellKind::Live(value) | CellKind::Expiring { value, .. } => CELL_USUAL_BYTES + value.len(),
        CellKind::Expired { .. } | CellKind::Tombstone { .. } => CELL_USUAL_BYTES,
        CellKind::Counter(counter) => CELL_USUAL_BYTES + counter.shards().len() * shards::SHARD_USUAL_BYTES,
    }
}

/// Appends the encoding of a row that is not empty.
pub(super) fn put_row(out: &mut Vec<u8>, row: &Row) {
    let start = out.len();
    let base = row.newest_timestamp().expect("empty rows are dropped by whoever makes mutations and fragments");
    out.push(flags(row));
    out.extend_from_slice(&base.0.to_le_bytes());
    if let Some(marker) = &row.marker {
        put_marker(out, base, marker);
    }
    if let Some(deletion) = &row.deletion {
        put_deletion(out, base, deletion);
    }
    put_varint(out, row.cells.len() as u64);
    let mut before = 0;
    for (ColumnId(column), cell) in &row.cells {
        put_varint(out, u64::from(column - before));
        before = *column;
        put_cell(out, base, cell);
    }
    if !row.complex.is_empty() {
        put_complex_columns(out, base, &row.complex);
    }
    debug_assert_eq!(RowView::check(&out[start..]).err().map(|error| error.to_string()), None, "{row:?}");
}

fn flags(row: &Row) -> u8 {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    flag(row.marker.is_some(), HAS_MARKER)
        | flag(row.deletion.is_some(), HAS_DELETION)
        | flag(!row.complex.is_empty(), HAS_COMPLEX)
}

fn put_complex_columns(out: &mut Vec<u8>, base: Timestamp, columns: &[(ColumnId, Complex)]) {
    put_varint(out, columns.len() as u64);
    let mut before = 0;
    for (ColumnId(column), complex) in columns {
        put_varint(out, u64::from(column - before));
        before = *column;
        match &complex.deletion {
            Some(deletion) => {
                out.push(COMPLEX_HAS_DELETION);
                put_deletion(out, base, deletion);
            }
            None => out.push(0),
        }
        put_varint(out, complex.cells.len() as u64);
        for (path, cell) in &complex.cells {
            put_bytes(out, path);
            put_cell(out, base, cell);
        }
    }
}

/// How far `timestamp` lies behind `base`: exact in 64 bits without sign, even where the difference exceeds an i64.
fn put_back(out: &mut Vec<u8>, base: Timestamp, timestamp: Timestamp) {
    put_varint(out, base.0.wrapping_sub(timestamp.0) as u64);
}

fn put_deletion(out: &mut Vec<u8>, base: Timestamp, deletion: &Deletion) {
    put_back(out, base, deletion.timestamp);
    put_varint(out, deletion.ldt_s as u64);
}

fn put_marker(out: &mut Vec<u8>, base: Timestamp, marker: &Liveness) {
    let (code, expiry) = match marker.kind {
        LivenessKind::Live => (LIVE, None),
        LivenessKind::Expiring { ttl_s, expiry_s } => (EXPIRING, Some((ttl_s, expiry_s))),
        LivenessKind::Expired { ttl_s, expiry_s } => (EXPIRED, Some((ttl_s, expiry_s))),
    };
    out.push(code);
    put_back(out, base, marker.timestamp);
    if let Some((ttl_s, expiry_s)) = expiry {
        put_expiry(out, ttl_s, expiry_s);
    }
}

fn put_cell(out: &mut Vec<u8>, base: Timestamp, cell: &Cell) {
    let code = match cell.kind {
        CellKind::Live(_) => LIVE,
        CellKind::Expiring { .. } => EXPIRING,
        CellKind::Expired { .. } => EXPIRED,
        CellKind::Tombstone { .. } => TOMBSTONE,
        CellKind::Counter(_) => COUNTER,
    };
    if cell.timestamp == base {
        out.push(code | BASE);
    } else {
        out.push(code);
        put_back(out, base, cell.timestamp);
    }
    match &cell.kind {
        CellKind::Live(value) => put_bytes(out, value),
        CellKind::Expiring { value, ttl_s, expiry_s } => {
            put_expiry(out, *ttl_s, *expiry_s);
            put_bytes(out, value);
        }
        CellKind::Expired { ttl_s, expiry_s } => put_expiry(out, *ttl_s, *expiry_s),
        CellKind::Tombstone { ldt_s } => put_varint(out, *ldt_s as u64),
        CellKind::Counter(counter) => shards::put(out, counter),
    }
}

fn put_expiry(out: &mut Vec<u8>, ttl_s: u32, expiry_s: i64) {
    put_varint(out, u64::from(ttl_s));
    put_varint(out, expiry_s as u64);
}
