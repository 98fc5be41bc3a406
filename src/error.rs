//! What can go wrong in the core, as facts that a caller can act on.
//!
//! One type for the whole crate. A variant carries the facts; its text says what to check. [`Error::class`] drives
//! what happens next: try again, report that it is not to be had now, quarantine a file, or tell the caller that the
//! request itself is wrong. Bytes from a disk or a peer are never asserted about: they are [`Error::Corrupt`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What Unix says where a device fails; the standard library has no name for it.
const EIO: i32 = 5;

/// The result of everything in the core that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Nothing is wrong that time does not heal: the same call may succeed soon.
    Retry,
    /// A resource is not to be had now: a full disk, a directory held by another process.
    Unavailable,
    /// Bytes are not what was written. The file they came from must not be trusted.
    Corrupt,
    /// The caller asked for something that can never be done.
    Invalid,
}

/// Bytes that are not what was written, and where they were found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is corrupt{}: {reason}", self.place())]
pub struct Corrupt {
    /// The kind of thing that was being decoded, as named in `docs/formats.md`: "row", "log record", ...
    pub what: &'static str,
    /// What was expected and what was found.
    pub reason: String,
    /// The file, once known; a decoder that sees only bytes leaves it out and its caller adds it.
    pub file: Option<PathBuf>,
    /// Offset in bytes: within the file if `file` is known, else within the decoded bytes.
    pub offset: Option<u64>,
}

impl Corrupt {
    /// A finding without a place yet.
    pub fn new(what: &'static str, reason: impl Into<String>) -> Corrupt {
        Corrupt { what, reason: reason.into(), file: None, offset: None }
    }

    /// The same finding, placed in a file.
    pub fn at(mut self, file: &Path, offset: u64) -> Corrupt {
        self.file = Some(file.to_owned());
        self.offset = Some(offset);
        self
    }

    fn place(&self) -> String {
        match (&self.file, self.offset) {
            (Some(file), Some(offset)) => format!(" in {} at byte {offset}", file.display()),
            (Some(file), None) => format!(" in {}", file.display()),
            (None, Some(offset)) => format!(" at byte {offset}"),
            (None, None) => String::new(),
        }
    }
}

/// Why something in the core failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes from a disk or a peer are not what was written.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),

    /// A file was written by a newer Trefoil, or by something else.
    #[error("{} has {what} format version {found}; this build reads versions {oldest} to {newest}", file.display())]
    Version {
        /// The kind of file, as in the table of `codec`.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// The version it carries.
        found: u32,
        /// The oldest version this build reads.
        oldest: u32,
        /// The newest version this build reads.
        newest: u32,
    },

    /// The operating system refused a file operation.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb: "read", "append to", "sync".
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },

    /// Memory that waits to be flushed is at its budget; the write was not begun. Try again when a flush is done.
    #[error(
        "memtables hold {held_bytes} of {budget_bytes} bytes; the write was not begun, retry when a flush has finished"
    )]
    Busy {
        /// Bytes held by all memtables.
        held_bytes: u64,
        /// The configured limit.
        budget_bytes: u64,
    },

    /// Work in the background was told to stop, and has had no effect.
    #[error("it was stopped before it was done")]
    Stopped,

    /// A block is not in the cache and the caller had asked not to touch the disk for it.
    #[error("the read needs a block that is not cached")]
    NotCached,

    /// After a failed fsync the log no longer knows what is on disk; only a restart, which replays it, does.
    #[error("the commit log takes no more writes since {cause}; check the disk, then restart the node")]
    LogFailed {
        /// The first failure.
        cause: String,
    },

    /// The request names a table that this store does not have.
    #[error("table {table} is not known to this node")]
    UnknownTable {
        /// The table's id.
        table: crate::model::TableId,
    },

    /// A file is not what was written, and may hold something of what the read asks for; another replica can answer.
    #[error(
        "{} of table {table} is quarantined ({reason}); what it may hold cannot be read on this node", file.display()
    )]
    Quarantined {
        /// The table.
        table: crate::model::TableId,
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// This node has lost something of what the read asks for, and is rebuilt from the other replicas; one of them can answer.
    #[error("vnode {} of table {table} is being rebuilt on this node; read it from another replica", vnode.0)]
    Withdrawn {
        /// The table.
        table: crate::model::TableId,
        /// The first of its vnodes that is asked for and cannot be read.
        vnode: crate::model::Vnode,
    },

    /// The data directory belongs to somebody else.
    #[error("{} belongs to {found}, this is {expected}; check `data_dir`", directory.display())]
    WrongDirectory {
        /// The directory.
        directory: PathBuf,
        /// What the directory says it is.
        found: String,
        /// What was asked to open it.
        expected: String,
    },

    /// The data directory is in use by a running process.
    #[error("{} is in use by another process; stop it first", directory.display())]
    Locked {
        /// The directory.
        directory: PathBuf,
    },

    /// A request, a schema change or a value that can never be accepted.
    #[error("{subject}: {reason}")]
    Invalid {
        /// What is wrong: a column, a table, a setting, a key, by its name.
        subject: String,
        /// Why, and what would be right.
        reason: String,
    },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Error::Corrupt(_) | Error::Version { .. } => Class::Corrupt,
            Error::Busy { .. } | Error::Stopped | Error::NotCached => Class::Retry,
            Error::Io { .. }
            | Error::LogFailed { .. }
            | Error::Locked { .. }
            | Error::Quarantined { .. }
            | Error::Withdrawn { .. } => Class::Unavailable,
            Error::UnknownTable { .. } | Error::WrongDirectory { .. } | Error::Invalid { .. } => Class::Invalid,
        }
    }

    /// Whether the system had no room for it: freeing some heals it.
    pub fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Error::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// What it says of a file that was written and cannot be read back as it was: bytes that are not those, a device that
    /// fails to read them (`EIO`), a file that has become shorter. `None` if it says nothing of that kind.
    pub fn damage(&self) -> Option<Corrupt> {
        match self {
            Error::Corrupt(corrupt) => Some(corrupt.clone()),
            Error::Io { operation, path, source } => {
                let is_damage = source.raw_os_error() == Some(EIO) || source.kind() == io::ErrorKind::UnexpectedEof;
                let reason = format!("cannot {operation} it: {source}");
                is_damage.then(|| Corrupt { file: Some(path.clone()), ..Corrupt::new("file", reason) })
            }
            _ => None,
        }
    }

    /// An [`Error::Io`] for `operation` on `path`.
    pub fn io(operation: &'static str, path: &Path, source: io::Error) -> Error {
        Error::Io { operation, path: path.to_owned(), source: Arc::new(source) }
    }

    /// An [`Error::Invalid`].
    pub fn invalid(subject: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Invalid { subject: subject.into(), reason: reason.into() }
    }

    /// The same error, placed in a file if it is a corruption that knows no file yet.
    pub fn in_file(self, file: &Path, offset: u64) -> Error {
        match self {
            Error::Corrupt(corrupt) if corrupt.file.is_none() => Error::Corrupt(corrupt.at(file, offset)),
            other => other,
        }
    }
}
