//! Bytes: the encodings of everything that is stored or sent.
//!
//! One encoding each for a mutation, a row and a stream entry; what the coordinator encodes once goes unchanged into
//! its own log, to every peer, into the memtable and into files. Decoders are strict: they accept exactly what the
//! encoder produces (so equal rows have equal bytes) and answer [`crate::Corrupt`] to everything else.
//!
//! Integers are little-endian unless they are part of a key or a CQL value. Varints are LEB128 in their shortest form;
//! signed ones are zigzag-coded.
//!
//! | persisted kind | magic | format version | written by |
//! |---|---|---|---|
//! | log segment | `TRFLLOG1` | 1 | [`crate::commitlog`] |
//! | SSTable | `TRFLSST1` | 2, reads 1 | [`crate::sstable`] |
//! | manifest | `TRFLMAN1` | 1 | [`crate::store`] |
//! | manifest of a snapshot | `TRFLSNP1` | 1 | [`crate::snapshot`] |
//! | identity of a data directory | `TRFLIDT1` | 1 | [`crate::store`] |
//! | metadata entry (without magic), cluster state | `TRFLMET1` | 1 | [`crate::metadata`] |
//! | log of the metadata voters | `TRFLMLG1` | 1 | the server's `metadata_log` |
//! | objects of a backup | `TRFLBKP1` | 1 | [`crate::backup`] |
//! | ceiling of the clock | `TRFLCLK1` | 1 | the server's `ceiling` |
//! | notes of a restore | `TRFLRST1` | 1 | the server's `restore` |

pub mod checked;
pub mod compress;
pub mod entry;
pub mod frame;
pub mod mutation;
pub mod position;
pub mod record;
pub mod row;
pub mod skim;
pub mod types;
pub mod varint;

pub use checked::CheckedRecord;
pub use record::{Record, RecordKind};
pub use row::EncodedRow;

#[cfg(test)]
mod tests;
