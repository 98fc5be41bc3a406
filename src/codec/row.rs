//! Rows as bytes: the form in which they travel and are stored.
//!
//! ```text
//! row       flags u8 | base i64 | [marker] | [deletion] | count varint | cell ...
//! flags     01 marker   02 row deletion   04..80 reserved, zero
//! base      the largest timestamp in the row; every other timestamp is stored as  base - timestamp  (varint)
//! marker    kind u8 (0 live, 1 expiring, 2 expired) | back varint | [ttl varint | expiry varint]
//! deletion  back varint | ldt varint
//! cell      column id (first: itself, then the difference) varint | kind u8 | [back varint] | body
//! kind      low 3 bits  0 live  1 expiring  2 expired  3 tombstone  4 counter shards (reserved) ;  08: timestamp = base, no back
//! body      live: bytes · expiring: ttl varint, expiry varint, bytes · expired: ttl varint, expiry varint · tombstone: ldt varint
//! bytes     length varint | that many bytes
//! ```
//!
//! The empty row (no marker, deletion or cell) has no encoding. Seconds (expiry, ldt) are 0..=2^32-1, a ttl is
//! 1..=630,720,000. A difference of timestamps may need all 64 bits. Reserved for later: kinds 5..7, and a path behind
//! the column id for elements of collections (kind bit 10).

pub mod view;

use bytes::Bytes;

use self::view::RowView;
use super::varint::{put_bytes, put_varint};
use crate::Result;
use crate::model::reconcile::{merge_rows, shadow_row};
use crate::model::{Cell, CellKind, ColumnId, Deletion, Liveness, LivenessKind, Reconcile, Row, Timestamp};

const HAS_MARKER: u8 = 0x01;
const HAS_DELETION: u8 = 0x02;

const LIVE: u8 = 0;
const EXPIRING: u8 = 1;
const EXPIRED: u8 = 2;
const TOMBSTONE: u8 = 3;
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
        let RowView { marker, deletion, cells, .. } = self.view()?;
        let mut row = Row { marker, deletion, cells: Vec::with_capacity(cells.left()) };
        for cell in cells {
            let cell = cell?;
            row.cells.push((cell.column, cell.to_cell(&self.0)));
        }
        Ok(row)
    }

    /// The row, to be read off its bytes without building it.
    pub fn view(&self) -> Result<RowView<'_>> {
        RowView::new(&self.0)
    }

    /// As [`Row::is_visible_at`].
    pub fn is_visible_at(&self, now_s: i64) -> Result<bool> {
        let view = self.view()?;
        if view.marker.is_some_and(|marker| marker.is_live_at(now_s)) {
            return Ok(true);
        }
        for cell in view.cells {
            if cell?.is_live_at(now_s) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The largest timestamp in the row, its deletion's included.
    pub fn newest_timestamp(&self) -> Result<Timestamp> {
        Ok(self.view()?.newest)
    }

    /// Whether there is neither marker nor deletion, as in every static row.
    pub(super) fn may_be_static(&self) -> bool {
        self.0.first() == Some(&0)
    }

    /// The stored form.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl Reconcile for EncodedRow {
    fn merge(self, other: Self) -> Result<Self> {
        if self.0 == other.0 {
            return Ok(self);
        }
        Ok(EncodedRow::encode(&merge_rows(self.decode()?, other.decode()?)))
    }

    fn under(self, deletion: Deletion) -> Result<Option<Self>> {
        let view = self.view()?;
        if deletion.covers(view.newest) {
            return Ok(None);
        }
        if !view.is_touched_by(deletion)? {
            return Ok(Some(self));
        }
        Ok(shadow_row(self.decode()?, deletion).map(|row| EncodedRow::encode(&row)))
    }
}

/// About how long a row's encoding is; at least that long for usual rows.
pub(super) fn usual_bytes(row: &Row) -> usize {
    let cell = |(_, cell): &(ColumnId, Cell)| match &cell.kind {
        CellKind::Live(value) | CellKind::Expiring { value, .. } => CELL_USUAL_BYTES + value.len(),
        CellKind::Expired { .. } | CellKind::Tombstone { .. } => CELL_USUAL_BYTES,
    };
    ROW_USUAL_BYTES + row.cells.iter().map(cell).sum::<usize>()
}

/// Appends the encoding of a row that is not empty.
pub(super) fn put_row(out: &mut Vec<u8>, row: &Row) {
    let start = out.len();
    let base = newest(row).expect("empty rows are dropped by whoever makes mutations and fragments");
    let marker_flag = if row.marker.is_some() { HAS_MARKER } else { 0 };
    let deletion_flag = if row.deletion.is_some() { HAS_DELETION } else { 0 };
    out.push(marker_flag | deletion_flag);
    out.extend_from_slice(&base.0.to_le_bytes());
    if let Some(marker) = &row.marker {
        put_marker(out, base, marker);
    }
    if let Some(deletion) = &row.deletion {
        put_back(out, base, deletion.timestamp);
        put_varint(out, deletion.ldt_s as u64);
    }
    put_varint(out, row.cells.len() as u64);
    let mut before = 0;
    for (ColumnId(column), cell) in &row.cells {
        put_varint(out, u64::from(column - before));
        before = *column;
        put_cell(out, base, cell);
    }
    debug_assert_eq!(RowView::check(&out[start..]).err().map(|error| error.to_string()), None, "{row:?}");
}

fn newest(row: &Row) -> Option<Timestamp> {
    let marker = row.marker.map(|marker| marker.timestamp);
    let deletion = row.deletion.map(|deletion| deletion.timestamp);
    let cells = row.cells.iter().map(|(_, cell)| cell.timestamp).max();
    marker.max(deletion).max(cells)
}

/// How far `timestamp` lies behind `base`: exact in 64 bits without sign, even where the difference exceeds an i64.
fn put_back(out: &mut Vec<u8>, base: Timestamp, timestamp: Timestamp) {
    put_varint(out, base.0.wrapping_sub(timestamp.0) as u64);
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
    }
}

fn put_expiry(out: &mut Vec<u8>, ttl_s: u32, expiry_s: i64) {
    put_varint(out, u64::from(ttl_s));
    put_varint(out, expiry_s as u64);
}
