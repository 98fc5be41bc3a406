//! Fragments as bytes: the entries of SSTable blocks and of read answers between nodes.
//!
//! ```text
//! entry      kind u8 | body
//! 1 header   key length varint, key bytes | flags u8 (01 deletion, 02 static row) | [timestamp i64, ldt varint] | [length varint, row]
//! 2 row      key length varint, clustering key | length varint, row
//! 3 open     bound length varint, bound | timestamp i64, ldt varint
//! 4 close    bound length varint, bound
//! ```

use super::row::EncodedRow;
use super::varint::Reader;
use crate::Result;
use crate::model::Fragment;

/// Appends one fragment.
pub fn put_entry(_out: &mut Vec<u8>, _fragment: &Fragment<EncodedRow>) {
    todo!()
}

/// Reads the next fragment. `checked` rows: every byte is looked at (bytes from a peer); else they are sliced (bytes
/// whose checksum was verified).
pub fn read_entry(_reader: &mut Reader, _trust: Trust) -> Result<Fragment<EncodedRow>> {
    todo!()
}

/// Whether rows must be looked into while they are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Bytes from another process: check everything.
    Checked,
    /// Bytes under a verified checksum of our own: slice.
    Trusted,
}
