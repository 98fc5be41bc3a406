//! A record that is one: what may be logged and applied.
//!
//! **Invariant:** there is none whose bytes are not a record, since each way to one checks them or made them itself. So
//! each replica looks at a record's rows once, when it arrives, and neither the log nor the memtable need refuse it.

use bytes::Bytes;

use super::mutation::view::MutationView;
use super::record::{Head, Record, RecordKind, named_anew};
use crate::Result;
use crate::model::{ColumnId, KeyspaceId, Mutation, MutationName, Stamp, TableId, Token, Vnode, VnodeBits};

/// An encoded record and what the log and the store need to know of it. A copy shares its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedRecord {
    bytes: Bytes,
    mutation_at: usize,
    kind: RecordKind,
    keyspace: KeyspaceId,
    stamp: Stamp,
    table: TableId,
    token: Token,
}

impl CheckedRecord {
    /// Looks at every byte; also answers the greatest column that the mutation says anything of, which whoever takes it in
    /// compares with the schema.
    pub fn check(bytes: Bytes) -> Result<(CheckedRecord, Option<ColumnId>)> {
        let record = CheckedRecord::trusted(bytes)?;
        let last_column = record.mutation()?.check()?;
        Ok((record, last_column))
    }

    /// A record that was checked before its bytes were stored under a checksum that was verified. A fault in its rows shows
    /// when it is applied.
    pub fn trusted(bytes: Bytes) -> Result<CheckedRecord> {
        let Head { kind, keyspace, stamp, mutation } = Head::decode(&bytes)?;
        let mutation_at = bytes.len() - mutation.len();
        let MutationView { table, key, .. } = MutationView::new(mutation)?;
        let token = Token::of(key);
        Ok(CheckedRecord { bytes, mutation_at, kind, keyspace, stamp, table, token })
    }

    /// Encodes a record.
    pub fn encode(kind: RecordKind, keyspace: KeyspaceId, stamp: Stamp, mutation: &Mutation) -> CheckedRecord {
        let Record { bytes, mutation: encoded, .. } = Record::encode(kind, keyspace, stamp, mutation);
        let mutation_at = bytes.len() - encoded.len();
        let (table, token) = (mutation.table, mutation.key.token());
        CheckedRecord { bytes, mutation_at, kind, keyspace, stamp, table, token }
    }

    /// The same mutation under another name: its cells keep their timestamps.
    pub fn named_anew(&self, name: MutationName, stamp: Stamp) -> CheckedRecord {
        let bytes = named_anew(&self.bytes, self.keyspace, name, stamp);
        CheckedRecord { bytes, kind: RecordKind::Named(name), stamp, ..self.clone() }
    }

    /// The whole record, as it is logged and sent.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Its slice and its name there, if it has one.
    pub fn name(&self, bits: VnodeBits) -> Option<((KeyspaceId, Vnode), MutationName)> {
        match self.kind {
            RecordKind::Named(name) => Some(((self.keyspace, bits.vnode(self.token)), name)),
            RecordKind::Nameless { .. } => None,
        }
    }

    /// Whether it has a name, or what it is known by instead.
    pub fn kind(&self) -> RecordKind {
        self.kind
    }

    /// The keyspace of its table.
    pub fn keyspace(&self) -> KeyspaceId {
        self.keyspace
    }

    /// See [`Record::stamp`].
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The table of the mutation.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// The token of its partition.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The mutation, to be read off its bytes.
    pub fn mutation(&self) -> Result<MutationView<'_>> {
        MutationView::new(&self.bytes[self.mutation_at..])
    }
}

/// Whatever comes with a record is logged as it stands in a queue, without a copy of the record.
impl AsRef<CheckedRecord> for CheckedRecord {
    fn as_ref(&self) -> &CheckedRecord {
        self
    }
}
