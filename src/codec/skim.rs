//! The outline of an entry (see [`super::entry`]) without decoding it: what kind it is, its key, where it ends.
//!
//! A block of a file is walked this way once, when it enters the cache; searches then compare the borrowed keys, and
//! only what a reader asked for is decoded.

use super::entry::{CLOSE, HAS_DELETION, HAS_STATIC_ROW, HEADER, OPEN, ROW, deletion_at};
use super::varint::Cursor;
use crate::Result;
use crate::model::Deletion;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outline {
    /// A partition's header.
    Header,
    /// A row.
    Row,
    /// A change of the range deletion in force.
    Change(Option<Deletion>),
}

/// Reads over the next entry: its outline and its key (partition key, clustering key or bound).
pub fn skim_entry<'a>(cursor: &mut Cursor<'a>) -> Result<(Outline, &'a [u8])> {
    let kind = cursor.u8()?;
    let key = cursor.bytes()?;
    let outline = match kind {
        HEADER => {
            skim_header(cursor)?;
            Outline::Header
        }
        ROW => {
            cursor.bytes()?;
            Outline::Row
        }
        OPEN => Outline::Change(Some(deletion_at(cursor)?)),
        CLOSE => Outline::Change(None),
        _ => return Err(cursor.corrupt(format!("unknown kind {kind:02x} of entry")).into()),
    };
    Ok((outline, key))
}

fn skim_header(cursor: &mut Cursor<'_>) -> Result<()> {
    let flags = cursor.u8()?;
    if flags & !(HAS_DELETION | HAS_STATIC_ROW) != 0 {
        return Err(cursor.corrupt(format!("unknown flags {flags:02x} of partition")).into());
    }
    if flags & HAS_DELETION != 0 {
        deletion_at(cursor)?;
    }
    if flags & HAS_STATIC_ROW != 0 {
        cursor.bytes()?;
    }
    Ok(())
}
