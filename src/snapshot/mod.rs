//! A named set of SSTables that nothing takes away: hard links, and a manifest that says what they are.
//!
//! ```text
//! snapshots/<id>/<uuid>.sst    a second name for the file; its bytes stay until the last name goes
//! snapshots/<id>/SNAPSHOT      written last: without it the directory is garbage and goes at the next start
//! ```
//!
//! Directories bear ids. What people call a snapshot, its keyspaces and tables stands inside the manifest alone, so that
//! no name, whatever it is, is ever taken for a path or a path for a name (B091).
//!
//! **Invariants:** every file that a manifest lists is in its directory · a manifest is whole or not there: its links are
//! durable before it, and it goes, durably, before they do · every mutation whose name is in `received`, and every
//! record of the log up to `position`, is in the files as far as it concerns the tables.

mod directory;
mod manifest;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use uuid::Uuid;

use crate::commitlog::Position;
use crate::model::{ColumnId, Identity, KeyspaceId, Stamp, TableId, Type};
use crate::received::ReceivedSets;
use crate::sstable::SstableMeta;
use crate::{Error, Result};

pub use self::directory::{Damaged, Directory, Draft, Found};
pub use self::manifest::{path, read};

/// Longest name of a snapshot, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// What a snapshot holds, as its manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Names its directory.
    pub id: Uuid,
    /// What people call it; no other one of the node is called so.
    pub name: String,
    /// When it was made, by the clock of whoever asked for it: microseconds since 1970.
    pub made_at_us: i64,
    /// Why it was made.
    pub cause: Cause,
    /// Whose data it is.
    pub owner: Identity,
    /// Every record of the log that ends here or before is in the files, as far as it concerns the tables.
    pub position: Position,
    /// The tables, by id.
    pub tables: Vec<TableInfo>,
    /// The files, by id.
    pub files: Vec<SstableMeta>,
    /// The sets of the keyspaces of the tables: what was received, and so is in the files as far as it concerns the tables.
    pub received: ReceivedSets,
}

impl Snapshot {
    /// The bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Whether a file is in it.
    pub fn holds(&self, file: Uuid) -> bool {
        self.files.binary_search_by_key(&file, |listed| listed.id).is_ok()
    }

    /// The greatest stamp of its files; `None` where it has none.
    pub fn last_stamp(&self) -> Option<Stamp> {
        self.files.iter().map(|file| file.stamps.1).max()
    }
}

/// Why a snapshot was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Somebody asked for it; it stays until somebody removes it.
    Operator,
    /// Its table was dropped; it stays for a while.
    BeforeDrop,
    /// Its table was truncated; it stays for a while.
    BeforeTruncate,
    /// It is a part of a backup; it stays until that is uploaded.
    Backup,
    /// The node had lost something, and what it had was to go and come anew from the other replicas; it stays for a while.
    BeforeRebuild,
}

impl Cause {
    const ALL: [Cause; 5] =
        [Cause::Operator, Cause::BeforeDrop, Cause::BeforeTruncate, Cause::Backup, Cause::BeforeRebuild];

    /// Whether a store makes such ones by itself, before data goes, and lets them go again.
    pub fn is_own(self) -> bool {
        matches!(self, Cause::BeforeDrop | Cause::BeforeTruncate | Cause::BeforeRebuild)
    }

    fn code(self) -> u8 {
        match self {
            Cause::Operator => 1,
            Cause::BeforeDrop => 2,
            Cause::BeforeTruncate => 3,
            Cause::Backup => 4,
            Cause::BeforeRebuild => 5,
        }
    }
}

/// A table as files need to be understood by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// The table.
    pub id: TableId,
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// What people call it.
    pub label: TableLabel,
    /// Column ids and types.
    pub columns: Vec<(ColumnId, Type)>,
}

/// What people call a table, and its definition. Only carried about: the store goes by ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableLabel {
    /// The keyspace's name.
    pub keyspace: String,
    /// The table's name in it.
    pub table: String,
    /// Rises with each change of the table.
    pub version: u64,
    /// The whole definition, in whatever form its giver reads.
    pub definition: Bytes,
}

/// Refuses what cannot be told from nothing, or would garble a terminal. Everything else may be a name.
pub fn check_name(name: &str) -> Result<()> {
    let reason = if name.trim().is_empty() {
        "it is empty".to_owned()
    } else if name.len() > NAME_BYTES_MAX {
        format!("it has {} bytes, at most {NAME_BYTES_MAX} are possible", name.len())
    } else if name.chars().any(char::is_control) {
        "it has control characters".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::invalid("name of the snapshot", reason))
}
