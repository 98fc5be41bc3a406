//! A record: one mutation with its name and stamp, as it stands in the log, in a message to a peer, in a hint and in a
//! backup. Encoded once, by the origin; everyone else passes the bytes on.
//!
//! ```text
//! record    kind u8 | keyspace u32 | stamp i64 | origin u32 | incarnation u64 | sequence u64 | tags | mutation
//!           kind 1 named:    stamp, origin, incarnation, sequence as given by the origin
//!           kind 2 nameless: stamp = made_at, origin = who composed it, incarnation = known_through (i64 bits), sequence 0
//! tags      length varint | (tag u8, length varint, bytes) ...     none so far; reserved: 1 request id. Unknown tags are kept.
//! mutation  see codec/mutation.rs
//! ```

use bytes::Bytes;

use crate::Result;
use crate::model::{KeyspaceId, Mutation, MutationName, NodeId, Stamp};

/// A decoded record header with its mutation still encoded; `bytes` is the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The whole record, as it is logged and sent.
    pub bytes: Bytes,
    /// Named by its origin, or composed of data that had been named before.
    pub kind: RecordKind,
    /// The keyspace of the table.
    pub keyspace: KeyspaceId,
    /// The origin's clock when it was named; for nameless data the clock when it was composed.
    pub stamp: Stamp,
    /// The encoded mutation (a slice of `bytes`).
    pub mutation: Bytes,
}

/// Whether a record bears a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A mutation as its origin named it.
    Named(MutationName),
    /// Data written back by a read repair or a stream.
    Nameless {
        /// Who composed it.
        composer: NodeId,
        /// The lowest reconciled_through of its sources before they were read; `Stamp(0)` where nothing is known.
        known_through: Stamp,
    },
}

impl Record {
    /// Encodes a record.
    pub fn encode(_kind: RecordKind, _keyspace: KeyspaceId, _stamp: Stamp, _mutation: &Mutation) -> Record {
        todo!()
    }

    /// Reads the header of an encoded record; the mutation is checked only when it is decoded.
    pub fn decode(_bytes: Bytes) -> Result<Record> {
        todo!()
    }
}
