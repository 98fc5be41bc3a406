//! Why an entry had no effect.

use bytes::Bytes;

use crate::Result;
use crate::codec::varint::{Reader, put_bytes};

/// The kind of a [`Refusal`], for programs. The numbers travel between nodes and are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// There is no node of this number.
    UnknownNode = 1,
    /// There is a keyspace or table of this name, or a table of this id.
    Exists = 2,
    /// There is no keyspace of this name.
    UnknownKeyspace = 3,
    /// There is no table of this name.
    UnknownTable = 4,
    /// The replication names a region that has no nodes.
    UnknownRegion = 5,
    /// The replication asks for no copy at all, or for more copies than the region has zones.
    BadCopies = 6,
    /// A name is empty, too long or has characters that it must not have.
    BadName = 7,
    /// The columns do not make a table: no partition key, a key column in the wrong place, a static column without rows.
    BadKey = 8,
    /// A column of the primary key has a type that cannot be ordered or hashed.
    KeyType = 9,
    /// Two columns share a name.
    DuplicateColumn = 10,
    /// An option has a value that it must not have.
    BadOption = 11,
    /// A limit on the number of things is reached.
    TooMany = 12,
    /// The members of a new cluster contradict each other.
    BadMembers = 13,
    /// There is no column of this name in the table.
    UnknownColumn = 14,
    /// The table has another version than the one the change is meant for.
    OtherVersion = 15,
    /// A type that there cannot be, or not for this column.
    BadType = 16,
    /// There is no user-defined type of this name.
    UnknownType = 17,
    /// Something else is made of it.
    InUse = 18,
}

impl Reason {
    /// Every reason, by ascending number.
    pub const ALL: [Reason; 18] = [
        Reason::UnknownNode,
        Reason::Exists,
        Reason::UnknownKeyspace,
        Reason::UnknownTable,
        Reason::UnknownRegion,
        Reason::BadCopies,
        Reason::BadName,
        Reason::BadKey,
        Reason::KeyType,
        Reason::DuplicateColumn,
        Reason::BadOption,
        Reason::TooMany,
        Reason::BadMembers,
        Reason::UnknownColumn,
        Reason::OtherVersion,
        Reason::BadType,
        Reason::UnknownType,
        Reason::InUse,
    ];

    /// The number that travels.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The reason of a number, if there is one.
    pub fn from_code(code: u8) -> Option<Reason> {
        Reason::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// An entry that stands in the log and has no effect, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{subject}: {explanation}")]
pub struct Refusal {
    /// The kind.
    pub reason: Reason,
    /// What is wrong, by its name: a keyspace, a table, a column, an option.
    pub subject: String,
    /// Why, and what would be right.
    pub explanation: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(reason: Reason, subject: impl Into<String>, explanation: impl Into<String>) -> Refusal {
        Refusal { reason, subject: subject.into(), explanation: explanation.into() }
    }

    /// The bytes by which it travels from the leader of the log to the node that asked.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.reason.code()];
        put_bytes(&mut out, self.subject.as_bytes());
        put_bytes(&mut out, self.explanation.as_bytes());
        out
    }

    /// What [`Refusal::encode`] made.
    pub fn decode(bytes: Bytes) -> Result<Refusal> {
        let mut reader = Reader::new("refusal", bytes);
        let code = reader.u8()?;
        let reason = Reason::from_code(code).ok_or_else(|| reader.corrupt(format!("no reason has number {code}")))?;
        let refusal = Refusal { reason, subject: reader.text()?, explanation: reader.text()? };
        reader.end()?;
        Ok(refusal)
    }
}
