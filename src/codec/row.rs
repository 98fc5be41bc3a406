//! Rows as bytes: the form in which they travel and are stored.
//!
//! ```text
//! row       flags u8 | [base i64] | [marker] | [deletion] | count varint | cell ...
//! flags     01 marker   02 row deletion   08..80 reserved, zero
//! base      the largest timestamp in the row; every other timestamp is stored as  base - timestamp  (varint)
//! marker    kind u8 (0 live, 1 expiring, 2 expired) | back varint | [ttl varint | expiry varint]
//! deletion  back varint | ldt varint
//! cell      column id (first: itself, then the difference) varint | kind u8 | [back varint] | body
//! kind      low 3 bits  0 live  1 expiring  2 expired  3 tombstone  4 counter shards (reserved) ;  08: timestamp = base, no back
//! body      live: bytes · expiring: ttl varint, expiry varint, bytes · expired: ttl varint, expiry varint · tombstone: ldt varint
//! ```
//!
//! The empty row (no marker, deletion or cell) has no encoding. Reserved for later: kinds 5..7, and a path behind the
//! column id for elements of collections (kind bit 10).

use bytes::Bytes;

use crate::Result;
use crate::model::{Deletion, Reconcile, Row};

/// A row in its stored form. Equal rows have equal bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EncodedRow(Bytes);

impl EncodedRow {
    /// Encodes a row that is not empty.
    pub fn encode(_row: &Row) -> EncodedRow {
        todo!()
    }

    /// Takes bytes that were encoded elsewhere, after checking every byte of them.
    pub fn checked(_bytes: Bytes) -> Result<EncodedRow> {
        todo!()
    }

    /// Takes bytes that this process encoded or whose checksum was verified; a fault in them shows when they are decoded.
    pub fn trusted(bytes: Bytes) -> EncodedRow {
        EncodedRow(bytes)
    }

    /// The row.
    pub fn decode(&self) -> Result<Row> {
        todo!()
    }

    /// The stored form.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl Reconcile for EncodedRow {
    fn merge(self, _other: Self) -> Result<Self> {
        todo!()
    }

    fn under(self, _deletion: Deletion) -> Result<Option<Self>> {
        todo!()
    }
}
