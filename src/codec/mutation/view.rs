//! A mutation read off its bytes, part by part: what decodes it, checks it and applies it, so that there is one reading of
//! the format.

use bytes::Bytes;
use uuid::Uuid;

use super::super::entry::{self, HAS_DELETION, HAS_STATIC_ROW};
use super::super::row;
use super::super::varint::Cursor;
use super::{KEYED_ROW_LEAST_BYTES, RANGE_LEAST_BYTES, TABLE_BYTES};
use crate::Result;
use crate::model::{Bound, ClusteringKey, ColumnId, Deletion, RangeDeletion, TableId, Token};

/// A mutation whose bytes are borrowed. Same invariants as [`crate::model::Mutation`], so far as it has been read.
#[derive(Debug, Clone)]
pub struct MutationView<'a> {
    /// The table.
    pub table: TableId,
    /// The partition's key.
    pub key: &'a [u8],
    /// Deletes the whole partition.
    pub deletion: Option<Deletion>,
    /// Changes of static columns: an encoded row.
    pub static_row: Option<&'a [u8]>,
    /// Keys and encoded rows, not yet read.
    pub rows: RowViews<'a>,
}

/// The rows of a mutation, ascending by key. After an error it yields nothing more.
#[derive(Debug, Clone)]
pub struct RowViews<'a> {
    cursor: Cursor<'a>,
    left: usize,
    before: Option<&'a [u8]>,
}

impl<'a> MutationView<'a> {
    /// Reads what stands before the rows.
    pub fn new(bytes: &'a [u8]) -> Result<MutationView<'a>> {
        let mut cursor = Cursor::new("mutation", bytes);
        let table = TableId(Uuid::from_bytes(cursor.array::<TABLE_BYTES>()?));
        let key = cursor.bytes()?;
        let flags = entry::partition_flags_at(&mut cursor)?;
        let deletion = if flags & HAS_DELETION != 0 { Some(entry::deletion_at(&mut cursor)?) } else { None };
        let static_row = if flags & HAS_STATIC_ROW != 0 { Some(static_row_at(&mut cursor)?) } else { None };
        let left = cursor.count(KEYED_ROW_LEAST_BYTES)?;
        Ok(MutationView { table, key, deletion, static_row, rows: RowViews { cursor, left, before: None } })
    }

    /// The partition's token: a hash of the key.
    pub fn token(&self) -> Token {
        Token::of(self.key)
    }

    /// Range deletions, with memory of their own; found by passing over the rows.
    pub fn ranges(&self) -> Result<Vec<RangeDeletion>> {
        let mut rows = self.rows.clone();
        rows.try_for_each(|row| row.map(drop))?;
        ranges_at(&mut rows.cursor)
    }

    /// Reads to the end, looking at every byte: an error unless this is a mutation. Answers the greatest column that it says
    /// anything of.
    pub fn check(&self) -> Result<Option<ColumnId>> {
        let mut last = self.static_row.map(row::last_column).transpose()?.flatten();
        let mut rows = self.rows.clone();
        for row in &mut rows {
            last = row::last_column(row?.1)?.max(last);
        }
        ranges_at(&mut rows.cursor)?;
        Ok(last)
    }
}

impl<'a> RowViews<'a> {
    /// How many are to come.
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether none is to come.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    fn row(&mut self) -> Result<(&'a [u8], &'a [u8])> {
        let key = self.cursor.bytes()?;
        ClusteringKey::check(key).map_err(|error| self.cursor.corrupt(error.to_string()))?;
        if self.before.is_some_and(|before| before >= key) {
            return Err(self.cursor.corrupt("rows do not ascend").into());
        }
        self.before = Some(key);
        Ok((key, self.cursor.bytes()?))
    }
}

impl<'a> Iterator for RowViews<'a> {
    type Item = Result<(&'a [u8], &'a [u8])>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let row = self.row();
        if row.is_err() {
            self.left = 0;
        }
        Some(row)
    }
}

fn static_row_at<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8]> {
    let row = cursor.bytes()?;
    if !row::may_be_static(row) {
        return Err(cursor.corrupt("a static row with a marker or a deletion").into());
    }
    Ok(row)
}

/// The last of a mutation.
fn ranges_at(cursor: &mut Cursor<'_>) -> Result<Vec<RangeDeletion>> {
    let count = cursor.count(RANGE_LEAST_BYTES)?;
    let mut ranges: Vec<RangeDeletion> = Vec::with_capacity(count);
    for _ in 0..count {
        let (start, end) = (bound_at(cursor)?, bound_at(cursor)?);
        let range = RangeDeletion { start, end, deletion: entry::deletion_at(cursor)? };
        if range.start >= range.end {
            return Err(cursor.corrupt("a range is empty").into());
        }
        if let Some(before) = ranges.last() {
            if before.end > range.start {
                return Err(cursor.corrupt("ranges overlap or do not ascend").into());
            }
            if before.end == range.start && before.deletion == range.deletion {
                return Err(cursor.corrupt("ranges that touch say the same and are not one").into());
            }
        }
        ranges.push(range);
    }
    cursor.end()?;
    Ok(ranges)
}

fn bound_at(cursor: &mut Cursor<'_>) -> Result<Bound> {
    let bytes = Bytes::copy_from_slice(cursor.bytes()?);
    Bound::from_bytes(bytes).map_err(|error| cursor.corrupt(error.to_string()).into())
}
