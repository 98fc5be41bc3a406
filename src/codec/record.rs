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
//!
//! An origin is never node 0, a name's sequence is never 0. Tags strictly ascend.

use bytes::Bytes;

use super::mutation;
use super::varint::{Cursor, put_varint};
use crate::Result;
use crate::model::{KeyspaceId, Mutation, MutationName, NodeId, Stamp};

const NAMED: u8 = 1;
const NAMELESS: u8 = 2;

/// Bytes before the mutation, when there are no tags.
const HEADER_BYTES: usize = 34;

/// Bytes before the tags.
const FIXED_BYTES: usize = 33;

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
    pub fn encode(kind: RecordKind, keyspace: KeyspaceId, stamp: Stamp, mutation: &Mutation) -> Record {
        let mut out = Vec::with_capacity(HEADER_BYTES + mutation::usual_bytes(mutation));
        put_fixed(&mut out, kind, keyspace, stamp);
        put_varint(&mut out, 0);
        mutation::encode_mutation(mutation, &mut out);
        let bytes = Bytes::from(out);
        Record { kind, keyspace, stamp, mutation: bytes.slice(HEADER_BYTES..), bytes }
    }

    /// Reads the header of an encoded record; the mutation is checked only when it is decoded.
    pub fn decode(bytes: Bytes) -> Result<Record> {
        let Head { kind, keyspace, stamp, mutation } = Head::decode(&bytes)?;
        let mutation = bytes.slice(bytes.len() - mutation.len()..);
        Ok(Record { bytes, kind, keyspace, stamp, mutation })
    }
}

/// The bytes of the same record under another name.
pub(super) fn named_anew(record: &[u8], keyspace: KeyspaceId, name: MutationName, stamp: Stamp) -> Bytes {
    let mut out = Vec::with_capacity(record.len());
    put_fixed(&mut out, RecordKind::Named(name), keyspace, stamp);
    out.extend_from_slice(&record[FIXED_BYTES..]);
    Bytes::from(out)
}

/// Everything before the tags.
fn put_fixed(out: &mut Vec<u8>, kind: RecordKind, keyspace: KeyspaceId, stamp: Stamp) {
    let (code, name) = match kind {
        RecordKind::Named(name) => (NAMED, name),
        RecordKind::Nameless { composer, known_through } => {
            (NAMELESS, MutationName { origin: composer, incarnation: known_through.0 as u64, sequence: 0 })
        }
    };
    out.push(code);
    out.extend_from_slice(&keyspace.0.to_le_bytes());
    out.extend_from_slice(&stamp.0.to_le_bytes());
    out.extend_from_slice(&name.origin.0.to_le_bytes());
    out.extend_from_slice(&name.incarnation.to_le_bytes());
    out.extend_from_slice(&name.sequence.to_le_bytes());
}

/// A [`Record`] that borrows its bytes: for those who only look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// See [`Record::kind`].
    pub kind: RecordKind,
    /// See [`Record::keyspace`].
    pub keyspace: KeyspaceId,
    /// See [`Record::stamp`].
    pub stamp: Stamp,
    /// The encoded mutation: the last of the bytes.
    pub mutation: &'a [u8],
}

impl Head<'_> {
    /// Reads the header of an encoded record.
    pub fn decode(bytes: &[u8]) -> Result<Head<'_>> {
        let mut cursor = Cursor::new("record", bytes);
        let code = cursor.u8()?;
        let keyspace = KeyspaceId(cursor.u32()?);
        let stamp = Stamp(cursor.i64()?);
        let origin = NodeId(cursor.u32()?);
        let (incarnation, sequence) = (cursor.u64()?, cursor.u64()?);
        if origin == NodeId(0) {
            return Err(cursor.corrupt("node 0 is not a node").into());
        }
        let kind = match (code, sequence) {
            (NAMED, 1..) => RecordKind::Named(MutationName { origin, incarnation, sequence }),
            (NAMELESS, 0) => RecordKind::Nameless { composer: origin, known_through: Stamp(incarnation as i64) },
            _ => return Err(cursor.corrupt(format!("kind {code:02x} with sequence {sequence}")).into()),
        };
        check_tags(cursor.bytes()?)?;
        let mutation = cursor.take(cursor.remaining())?;
        Ok(Head { kind, keyspace, stamp, mutation })
    }
}

/// Whether these bytes are a list of tags, known or not.
fn check_tags(tags: &[u8]) -> Result<()> {
    let mut cursor = Cursor::new("record tags", tags);
    let mut before = None;
    while cursor.remaining() > 0 {
        let tag = cursor.u8()?;
        if before.is_some_and(|before| before >= tag) {
            return Err(cursor.corrupt("tags do not ascend").into());
        }
        before = Some(tag);
        cursor.bytes()?;
    }
    Ok(())
}
