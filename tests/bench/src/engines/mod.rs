//! Whole storage engines side by side: the same rows, the same order, the same durability, each in a process of its own.
//!
//! ```text
//! engine ──► for each round, for each engine ──► engine-alone (a process) ──► phases ──► one line of JSON
//!                                                                                          │
//!   tables and ratios of all rounds  ◄─────────────────────────────────────────────────────┘
//! ```
//!
//! A process has one engine and ends with it, so that CPU, memory and bytes written are its own and nobody's else.
//! What prepares a request (encoding a record or a key) is not counted, with any engine.

mod alone;
mod compaction;
mod opening;
mod phase;
mod plain;
mod process;
mod rounds;
mod rows;
mod trefoil;

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};

pub use self::rounds::{Options, run};
use self::rows::Row;
use crate::Result;

/// Rows that are handed over together, and reach the operating system together before the call returns.
const GROUP: usize = 64;

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The store of a node.
    Trefoil,
    /// The yardstick: as little as an engine of this kind can do.
    Plain,
    /// The crate of that name.
    #[cfg(feature = "fjall")]
    Fjall,
    /// The system's library.
    #[cfg(feature = "rocksdb")]
    Rocksdb,
}

impl Kind {
    /// As it is named in tables and on the command line.
    fn name(self) -> &'static str {
        match self {
            Kind::Trefoil => "trefoil",
            Kind::Plain => "plain",
            #[cfg(feature = "fjall")]
            Kind::Fjall => "fjall",
            #[cfg(feature = "rocksdb")]
            Kind::Rocksdb => "rocksdb",
        }
    }

    fn open(self, directory: &Path, limits: Limits) -> Result<Box<dyn Engine>> {
        Ok(match self {
            Kind::Trefoil => Box::new(trefoil::Trefoil::open(directory, limits)?),
            Kind::Plain => Box::new(plain::Plain::open(directory, limits)?),
            #[cfg(feature = "fjall")]
            Kind::Fjall => Box::new(fjall::Fjall::open(directory, limits)?),
            #[cfg(feature = "rocksdb")]
            Kind::Rocksdb => Box::new(rocksdb::Rocks::open(directory, limits)?),
        })
    }
}

/// What is measured in a process of its own.
#[derive(Debug, Clone, Subcommand)]
pub enum Alone {
    /// An engine, through a part of its phases.
    Engine {
        /// Which.
        #[arg(long, value_enum)]
        kind: Kind,
        /// Which part; they follow one another in one directory.
        #[arg(long, value_enum)]
        step: alone::Step,
        /// How many rows.
        #[arg(long)]
        rows: u64,
    },
    /// The merge of files beside lz4.
    Compaction {
        /// How many rows.
        #[arg(long)]
        rows: u64,
    },
    /// Opening a store.
    Opening {
        /// How much it holds.
        #[arg(long)]
        bytes: u64,
    },
}

/// Measures one thing in this process and prints what was found.
pub fn run_alone(what: &Alone, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    match *what {
        Alone::Engine { kind, step, rows } => alone::run(kind, step, rows, directory),
        Alone::Compaction { rows } => compaction::run(rows, directory),
        Alone::Opening { bytes } => opening::run(bytes, directory),
    }
}

/// The memory that every engine is given.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// At this size what was written is flushed; about as much again may wait for its flush.
    write_buffer_bytes: u64,
    /// For decoded blocks.
    cache_bytes: u64,
}

/// What is looked for.
#[derive(Debug, Clone, Copy)]
enum Read {
    /// One row.
    Row(u64),
    /// One row of a partition that was never written.
    Absent(u64),
    /// All rows of a row's partition: [`crate::data::ROWS_PER_PARTITION`] of them.
    Partition(u64),
}

/// A storage engine as it is measured: prepared uncounted, then counted.
trait Engine {
    /// Prepares what [`Engine::put`] will be asked to write.
    fn prepare_rows(&mut self, rows: &[Row]) -> Result<()>;

    /// Writes the prepared rows from `from` on, at most [`GROUP`]: once it answers, the operating system has them.
    fn put(&mut self, from: usize) -> Result<()>;

    /// Prepares what [`Engine::read`] will be asked for.
    fn prepare_reads(&mut self, reads: &[Read]) -> Result<()>;

    /// Answers a prepared read: rows found and the bytes of their values.
    fn read(&mut self, at: usize) -> Result<Found>;

    /// Flushes, and waits until the engine sees nothing more to compact.
    fn settle(&mut self) -> Result<()>;

    /// How many sorted files it has.
    fn files(&self) -> Result<u64>;

    /// Closes it.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What a read has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Found {
    rows: u64,
    value_bytes: u64,
}

impl Found {
    fn value(&mut self, value: &[u8]) {
        self.rows += 1;
        self.value_bytes += value.len() as u64;
    }
}

/// All files below a directory.
fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.extend(files_below(&entry.path())?);
        } else {
            files.push(entry.path());
        }
    }
    Ok(files)
}
