//! Why a command failed.

use std::io;
use std::path::Path;

use super::row::Fault;

/// The result of everything in a command that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster, or the client by itself, refused a request.
    #[error(transparent)]
    Client(#[from] trefoil_client::Error),

    /// What was given does not fit the table.
    #[error(transparent)]
    Input(#[from] Fault),

    /// The schema is not what was named.
    #[error("there is no {what} {name}; see `trefoil schema show`")]
    Missing {
        /// "keyspace" or "table".
        what: &'static str,
        /// Its name.
        name: String,
    },

    /// A file of statements cannot be read as such. The place is a line and a column.
    #[error("{file}: {error}; nothing was done")]
    Statements {
        /// The file.
        file: String,
        /// Where and why.
        error: trefoil::Error,
    },

    /// A statement was refused; those before it were made.
    #[error("statement {number} ({statement}): {error}; the {} before it are done", number - 1)]
    Statement {
        /// Counted from 1.
        number: usize,
        /// What it is.
        statement: String,
        /// Why.
        error: Box<trefoil_client::Error>,
    },

    /// A file, or the standard input or output.
    #[error("cannot {operation} {what}: {source}")]
    Io {
        /// A verb.
        operation: &'static str,
        /// The file.
        what: String,
        /// What the system said.
        source: io::Error,
    },

    /// Options that do not go together, or do not say enough.
    #[error("{0}")]
    Usage(&'static str),

    /// A store's files, read without a cluster.
    #[error(transparent)]
    Store(#[from] trefoil::Error),

    /// A bucket did not do what was asked, or an object in it is not what it must be.
    #[cfg(feature = "backup")]
    #[error(transparent)]
    Bucket(#[from] trefoil_s3::Error),

    /// There is nothing to look into.
    #[error("there is no .sst file in {directory}")]
    NoSstables {
        /// The directory.
        directory: String,
    },

    /// No node has it.
    #[error("no node has a snapshot {name:?}; see `trefoil snapshot list`")]
    NoSnapshot {
        /// What was named.
        name: String,
    },

    /// A backup that did not become complete.
    #[error("backup {backup}: {reason}")]
    Backup {
        /// Its id.
        backup: uuid::Uuid,
        /// How it is.
        reason: String,
    },

    /// A directory that is no snapshot's.
    #[error(
        "{directory} holds no SNAPSHOT; name the directory of a snapshot, `store/snapshots/ID` in a node's data directory"
    )]
    NotASnapshot {
        /// The directory.
        directory: String,
    },

    /// A snapshot without the table.
    #[error("the snapshot in {directory} does not hold {table}")]
    NotInSnapshot {
        /// The table.
        table: String,
        /// The directory.
        directory: String,
    },

    /// Snapshots of different tables of one name.
    #[error("the snapshots are of two tables called {table}, {} and {}: one was dropped before the other was made", ids[0], ids[1])]
    TwoTables {
        /// Their name.
        table: String,
        /// Their ids.
        ids: [String; 2],
    },

    /// Files are not as they must be; each fault has been named.
    #[error("faults found: {0}")]
    Faults(usize),

    /// An import stopped; everything up to a line is in the table.
    #[error(transparent)]
    Import(#[from] super::import::Stopped),

    /// Some nodes did not do as they were told; they have been named.
    #[error("{failed} of {asked} nodes failed")]
    Nodes {
        /// How many failed.
        failed: usize,
        /// How many were asked.
        asked: usize,
    },

    /// Replicas hold not the same.
    #[error("{partitions} partitions differ between replicas")]
    Differing {
        /// How many.
        partitions: u64,
    },

    /// Not all was compared.
    #[error("{vnodes} of {all} vnodes could not be compared on all replicas")]
    NotCompared {
        /// How many.
        vnodes: u32,
        /// Of so many.
        all: u32,
    },

    /// The rows to be read are not all there.
    #[error("{errors} of {keys} keys could not be written before the measurement; the last error: {last}")]
    Fill {
        /// How many failed.
        errors: u64,
        /// How many there were.
        keys: u64,
        /// Why.
        last: String,
    },

    /// The measurement had nothing to measure.
    #[error("none of {errors} operations succeeded; the last error: {last}")]
    Bench {
        /// How many failed.
        errors: u64,
        /// Why.
        last: String,
    },
}

impl Error {
    /// A failure of a file, or of something like one.
    pub fn io(operation: &'static str, what: impl Into<String>, source: io::Error) -> Error {
        Error::Io { operation, what: what.into(), source }
    }

    /// A failure of a file.
    pub fn file(operation: &'static str, path: &Path, source: io::Error) -> Error {
        Error::io(operation, path.display().to_string(), source)
    }

    /// A failure to write to the standard output.
    pub fn stdout(source: io::Error) -> Error {
        Error::io("write to", "the standard output", source)
    }

    /// Whether the reader of the standard output has gone.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Error::Io { operation: "write to", source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// What the process ends with: 1, or 2 where the command line is at fault.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Error::Usage(_)) { 2 } else { 1 }
    }
}
