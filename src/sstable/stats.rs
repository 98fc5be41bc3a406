//! What a file says about its contents as a whole.
//!
//! ```text
//! statistics  table 16 bytes | stamps i64, i64 | partitions, rows, cells, tombstones: varint each
//!             | flags u8 | keys | clustering | timestamps | expiries | ldts | columns | row columns
//! flags       01 must read   02 keys   04 clustering   08 timestamps   10 expiries   20 local deletion times
//!             40 nothing lasts; a part is absent if its flag is
//! keys        first, last partition key          clustering  least, greatest     (length varint, bytes each)
//! timestamps  min, max i64                       expiries, ldts  min, max i64, seconds since 1970
//! columns     count varint | (id varint, type) ...        user-defined types with their fields
//! row columns count varint | (id, the first itself, then the difference, varint) ...       from format 2 on
//! ```
//!
//! Invariant: the clustering bounds hold every row *and both ends of every range deletion*; a partition deletion or a
//! static row concerns rows anywhere and sets "must read". Nobody may skip a file for a read by less than that (B004,
//! B023 in `docs/testing.md`).

use bytes::Bytes;

use super::format::OLDEST_VERSION;
use crate::Result;
use crate::codec::EncodedRow;
use crate::codec::row::view::{CellView, KindView, Part, RowView};
use crate::codec::types::{UserTypes, put_type, take_type};
use crate::codec::varint::{Reader, put_bytes, put_varint};
use crate::model::{
    ColumnId, Deletion, Fragment, Liveness, LivenessKind, PartitionKey, Stamp, TableId, Timestamp, Type,
};

const MUST_READ: u8 = 0x01;
const KEYS: u8 = 0x02;
const CLUSTERING: u8 = 0x04;
const TIMESTAMPS: u8 = 0x08;
const EXPIRIES: u8 = 0x10;
const LDTS: u8 = 0x20;
const NOTHING_LASTS: u8 = 0x40;

/// What a row is, where that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Row,
    Static,
}

/// Statistics of one file. Bounds are inclusive, and absent where the file holds nothing of the kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// The table.
    pub table: TableId,
    /// Stamp bounds of the records it was made of.
    pub stamps: (Stamp, Stamp),
    /// Partitions.
    pub partitions: u64,
    /// Rows, deleted ones too; static rows are not counted.
    pub rows: u64,
    /// Cells of rows and static rows, tombstones too; in a complex column each element is one.
    pub cells: u64,
    /// Deletions of partitions, ranges, rows and complex columns, tombstones of cells, and whatever has been marked as expired.
    pub tombstones: u64,
    /// Whether there is a partition deletion or a static row: they concern reads outside the clustering bounds.
    pub must_read: bool,
    /// First and last partition key.
    pub keys: Option<(PartitionKey, PartitionKey)>,
    /// Bounds of clustering bytes of rows and of the ends of range deletions.
    pub clustering: Option<(Bytes, Bytes)>,
    /// Whether there is a value or a row marker that does not expire. Without any the file has nothing to say once all its
    /// expiries have passed and its deletions may go (B121 in `docs/testing.md`).
    pub lasts: bool,
    /// Of everything that has a timestamp.
    pub timestamps: Option<(Timestamp, Timestamp)>,
    /// Of everything that expires, seconds since 1970.
    pub expiries_s: Option<(i64, i64)>,
    /// Local deletion times of everything that deletes, seconds since 1970.
    pub ldts_s: Option<(i64, i64)>,
    /// Column ids and types of the table when the file was written.
    pub columns: Vec<(ColumnId, Type)>,
    /// The columns that rows, not static ones, say anything of, ascending: whoever has a later version of all of them need
    /// not look here. `None`: a file of format 1, which does not say.
    pub row_columns: Option<Vec<ColumnId>>,
}

impl Stats {
    /// Statistics of nothing yet.
    pub(super) fn new(table: TableId, stamps: (Stamp, Stamp), columns: Vec<(ColumnId, Type)>) -> Stats {
        Stats {
            table,
            stamps,
            partitions: 0,
            rows: 0,
            cells: 0,
            tombstones: 0,
            must_read: false,
            keys: None,
            clustering: None,
            lasts: false,
            timestamps: None,
            expiries_s: None,
            ldts_s: None,
            columns,
            row_columns: Some(Vec::new()),
        }
    }

    /// Takes the next fragment into account; in forward order.
    pub(super) fn observe(&mut self, fragment: &Fragment<EncodedRow>) -> Result<()> {
        match fragment {
            Fragment::Partition(header) => {
                self.partitions += 1;
                let first = self.keys.take().map_or_else(|| header.key.clone(), |(first, _)| first);
                self.keys = Some((first, header.key.clone()));
                self.must_read |= header.deletion.is_some() || header.static_row.is_some();
                header.deletion.iter().for_each(|deletion| self.deletion(deletion));
                if let Some(row) = &header.static_row {
                    self.row(row, Kind::Static)?;
                }
            }
            Fragment::Row(key, row) => {
                self.rows += 1;
                self.place(key.bytes());
                self.row(row, Kind::Row)?;
            }
            Fragment::Change(bound, deletion) => {
                self.place(bound.bytes());
                deletion.iter().for_each(|deletion| self.deletion(deletion));
            }
        }
        Ok(())
    }

    fn place(&mut self, place: &Bytes) {
        // A copy, lest two small keys keep whole chunks of a memtable alive.
        let copy = || Bytes::copy_from_slice(place);
        match &mut self.clustering {
            None => self.clustering = Some((copy(), copy())),
            Some((least, _)) if place < least => *least = copy(),
            Some((_, greatest)) if place > greatest => *greatest = copy(),
            Some(_) => {}
        }
    }

    fn row(&mut self, row: &EncodedRow, kind: Kind) -> Result<()> {
        let RowView { marker, deletion, parts, .. } = row.view()?;
        marker.iter().for_each(|marker| self.marker(marker));
        deletion.iter().for_each(|deletion| self.deletion(deletion));
        for part in parts {
            let part = part?;
            if let (Kind::Row, Part::Cell(CellView { column, .. }) | Part::Complex { column, .. }) = (kind, part) {
                self.row_column(column);
            }
            match part {
                Part::Cell(cell) | Part::Element(_, cell) => self.cell(&cell),
                Part::Complex { deletion, .. } => deletion.iter().for_each(|deletion| self.deletion(deletion)),
            }
        }
        Ok(())
    }

    fn row_column(&mut self, column: ColumnId) {
        if let Some(columns) = &mut self.row_columns
            && let Err(at) = columns.binary_search(&column)
        {
            columns.insert(at, column);
        }
    }

    fn deletion(&mut self, deletion: &Deletion) {
        self.tombstones += 1;
        widen(&mut self.timestamps, deletion.timestamp);
        widen(&mut self.ldts_s, deletion.ldt_s);
    }

    fn marker(&mut self, marker: &Liveness) {
        widen(&mut self.timestamps, marker.timestamp);
        match marker.kind {
            LivenessKind::Live => self.lasts = true,
            LivenessKind::Expiring { expiry_s, .. } => widen(&mut self.expiries_s, expiry_s),
            LivenessKind::Expired { expiry_s, .. } => {
                self.tombstones += 1;
                widen(&mut self.expiries_s, expiry_s);
            }
        }
    }

    fn cell(&mut self, cell: &CellView<'_>) {
        self.cells += 1;
        widen(&mut self.timestamps, cell.timestamp);
        match cell.kind {
            KindView::Live(_) | KindView::Counter(_) => self.lasts = true,
            KindView::Expiring { expiry_s, .. } => widen(&mut self.expiries_s, expiry_s),
            KindView::Expired { expiry_s, .. } => {
                self.tombstones += 1;
                widen(&mut self.expiries_s, expiry_s);
            }
            KindView::Tombstone { ldt_s } => {
                self.tombstones += 1;
                widen(&mut self.ldts_s, ldt_s);
            }
        }
    }

    /// The section's bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(self.table.0.as_bytes());
        put_pair(&mut out, (self.stamps.0.0, self.stamps.1.0));
        for count in [self.partitions, self.rows, self.cells, self.tombstones] {
            put_varint(&mut out, count);
        }
        out.push(self.flags());
        if let Some((first, last)) = &self.keys {
            put_bytes(&mut out, first.bytes());
            put_bytes(&mut out, last.bytes());
        }
        if let Some((least, greatest)) = &self.clustering {
            put_bytes(&mut out, least);
            put_bytes(&mut out, greatest);
        }
        let timestamps = self.timestamps.map(|(min, max)| (min.0, max.0));
        for pair in [timestamps, self.expiries_s, self.ldts_s].into_iter().flatten() {
            put_pair(&mut out, pair);
        }
        put_columns(&mut out, &self.columns);
        if let Some(columns) = &self.row_columns {
            put_varint(&mut out, columns.len() as u64);
            let mut before = 0;
            for ColumnId(column) in columns {
                put_varint(&mut out, u64::from(column - before));
                before = *column;
            }
        }
        out
    }

    fn flags(&self) -> u8 {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        flag(self.must_read, MUST_READ)
            | flag(self.keys.is_some(), KEYS)
            | flag(self.clustering.is_some(), CLUSTERING)
            | flag(self.timestamps.is_some(), TIMESTAMPS)
            | flag(self.expiries_s.is_some(), EXPIRIES)
            | flag(self.ldts_s.is_some(), LDTS)
            | flag(!self.lasts, NOTHING_LASTS)
    }

    /// Reads a section's bytes, of a file of this format.
    pub(super) fn decode(bytes: Bytes, version: u32) -> Result<Stats> {
        let mut reader = Reader::new("SSTable statistics", bytes);
        let table = TableId(super::format::uuid(&mut reader)?);
        let stamps = (Stamp(reader.i64()?), Stamp(reader.i64()?));
        let mut stats = Stats::new(table, stamps, Vec::new());
        for count in [&mut stats.partitions, &mut stats.rows, &mut stats.cells, &mut stats.tombstones] {
            *count = reader.varint()?;
        }
        let flags = reader.u8()?;
        if flags & 0x80 != 0 {
            return Err(reader.corrupt(format!("unknown flags {flags:#04x}")).into());
        }
        stats.must_read = flags & MUST_READ != 0;
        stats.lasts = flags & NOTHING_LASTS == 0;
        if flags & KEYS != 0 {
            let (first, last) = (reader.bytes()?, reader.bytes()?);
            stats.keys = Some((PartitionKey::from_bytes(first), PartitionKey::from_bytes(last)));
        }
        if flags & CLUSTERING != 0 {
            stats.clustering = Some((reader.bytes()?, reader.bytes()?));
        }
        let timestamps = pair(&mut reader, flags & TIMESTAMPS)?;
        stats.timestamps = timestamps.map(|(min, max)| (Timestamp(min), Timestamp(max)));
        stats.expiries_s = pair(&mut reader, flags & EXPIRIES)?;
        stats.ldts_s = pair(&mut reader, flags & LDTS)?;
        stats.columns = read_columns(&mut reader)?;
        stats.row_columns = if version > OLDEST_VERSION { Some(read_ids(&mut reader)?) } else { None };
        reader.end()?;
        Ok(stats)
    }
}

fn read_ids(reader: &mut Reader) -> Result<Vec<ColumnId>> {
    let mut ids: Vec<ColumnId> = Vec::new();
    for _ in 0..reader.varint()? {
        let step = reader.varint_u32()?;
        let next = match ids.last() {
            None => Some(step),
            Some(ColumnId(before)) => before.checked_add(step).filter(|_| step > 0),
        };
        ids.push(ColumnId(next.ok_or_else(|| reader.corrupt("column ids do not ascend"))?));
    }
    Ok(ids)
}

/// Appends column ids and types.
pub fn put_columns(out: &mut Vec<u8>, columns: &[(ColumnId, Type)]) {
    put_varint(out, columns.len() as u64);
    for (id, ty) in columns {
        put_varint(out, u64::from(id.0));
        put_type(out, ty, UserTypes::Whole);
    }
}

/// Reads what [`put_columns`] wrote.
pub fn read_columns(reader: &mut Reader) -> Result<Vec<(ColumnId, Type)>> {
    let mut columns = Vec::new();
    for _ in 0..reader.varint()? {
        columns.push((ColumnId(reader.varint_u32()?), take_type(reader, UserTypes::Whole)?));
    }
    Ok(columns)
}

fn widen<T: Copy + Ord>(bounds: &mut Option<(T, T)>, value: T) {
    let (min, max) = bounds.unwrap_or((value, value));
    *bounds = Some((min.min(value), max.max(value)));
}

fn put_pair(out: &mut Vec<u8>, (min, max): (i64, i64)) {
    out.extend_from_slice(&min.to_le_bytes());
    out.extend_from_slice(&max.to_le_bytes());
}

fn pair(reader: &mut Reader, flag: u8) -> Result<Option<(i64, i64)>> {
    if flag == 0 {
        return Ok(None);
    }
    Ok(Some((reader.i64()?, reader.i64()?)))
}
