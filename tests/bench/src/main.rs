//! `trefoil-bench`: what Trefoil costs, beside what this machine gives to a program that does the least possible.
//!
//! ```text
//!   cargo run --release -p trefoil-bench -- report            all of it, into docs/performance.md
//!   cargo run --release -p trefoil-bench -- report --short    half a minute of it, to see that it runs
//!   cargo run --release -p trefoil-bench --features fjall,rocksdb -- engine   the store beside other engines
//!   cargo run --release -p trefoil-bench -- backup            what backups cost, and how fast they are
//!   valgrind --tool=callgrind target/release/trefoil-bench fixed write     instructions, which repeat exactly
//! ```
//!
//! Two things are compared only within one run, in alternating rounds, and as CPU for each operation of every process
//! involved. The page `docs/performance.md` says what that means.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use report::Marks;

mod backup;
mod cluster;
mod cpu;
mod data;
mod engine;
mod engines;
mod fixed;
mod machine;
mod measure;
mod plan;
mod report;
mod sample;
mod yardstick;

/// As in the binaries that are measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measurements end at the first thing that is not as expected; there is nothing to tell apart.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// See [`Error`].
type Result<T, E = Error> = std::result::Result<T, E>;

/// Measures Trefoil against yardsticks of the same machine and run.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures, prints tables, and rewrites the measured part of docs/performance.md.
    Report {
        /// Half a minute instead of four, for a look whether it runs; writes no file unless told to.
        #[arg(long)]
        short: bool,
        /// Also write everything as JSON into this file.
        #[arg(long)]
        json: Option<PathBuf>,
        /// The page to rewrite between its marks; docs/performance.md unless it is a short run.
        #[arg(long)]
        docs: Option<PathBuf>,
        /// Only the parts named.
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<Part>,
    },
    /// A cluster that is kept busy with one thing, for a profiler: the processes are printed when it begins.
    Busy {
        /// With what.
        #[arg(value_enum)]
        what: measure::Busy,
        /// Callers.
        #[arg(long, default_value_t = 256)]
        in_flight: usize,
        /// How long.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// Measures the store beside other storage engines, prints tables, and rewrites their part of docs/performance.md.
    Engine {
        /// How many rows.
        #[arg(long, default_value_t = 1_000_000)]
        rows: u64,
        /// Each engine is measured so many times, in turn; fewer if a round takes longer than its share of ten minutes for
        /// each million of rows.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Only these, the first named first; all that are built in unless given.
        #[arg(long, value_enum, value_delimiter = ',')]
        engines: Vec<engines::Kind>,
        /// Also write everything as JSON into this file.
        #[arg(long)]
        json: Option<PathBuf>,
        /// The page to rewrite between its marks; docs/performance.md for three rounds of 1,000,000 or 10,000,000 rows with
        /// all engines built in.
        #[arg(long)]
        docs: Option<PathBuf>,
    },
    /// Measures what backups cost and how fast they and restores are, prints tables, and rewrites their part of
    /// docs/performance.md.
    Backup {
        /// Half a minute instead of five, for a look whether it runs; writes no file unless told to.
        #[arg(long)]
        short: bool,
        /// Also write everything as JSON into this file.
        #[arg(long)]
        json: Option<PathBuf>,
        /// The page to rewrite between its marks; docs/performance.md unless it is a short run.
        #[arg(long)]
        docs: Option<PathBuf>,
    },
    /// What `backup` starts: an S3 that serves a directory until its input ends.
    #[command(hide = true)]
    Bucket {
        /// Each directory in it is a bucket.
        directory: PathBuf,
    },
    /// What `engine` starts: one measurement in a process of its own, which prints JSON.
    #[command(hide = true)]
    Alone {
        /// An empty directory.
        #[arg(long)]
        directory: PathBuf,
        /// Which measurement.
        #[command(subcommand)]
        what: engines::Alone,
    },
    /// A fixed amount of work on one thread without sockets, to count instructions.
    Fixed {
        /// Which.
        #[arg(value_enum)]
        work: fixed::Work,
    },
}

/// A part of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The ceiling of gRPC.
    Grpc,
    /// Log, memtable and store.
    Engine,
    /// Three zones and a client.
    Cluster,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Report { short, json, docs, only } => report(short, json, docs, &only),
        Command::Busy { what, in_flight, seconds } => {
            let plan = plan::Plan { cluster_window: Duration::from_secs(seconds), ..plan::Plan::full() };
            measure::keep_busy(&plan, what, in_flight)
        }
        Command::Engine { rows, rounds, engines, json, docs } => {
            let options = engines::Options { rows, rounds, engines };
            engine(&options, json, docs)
        }
        Command::Backup { short, json, docs } => backup(short, json, docs),
        Command::Bucket { directory } => backup::bucket::serve(&directory),
        Command::Alone { directory, what } => engines::run_alone(&what, &directory),
        Command::Fixed { work } => fixed::run(work),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn report(short: bool, json: Option<PathBuf>, docs: Option<PathBuf>, only: &[Part]) -> Result<()> {
    let plan = if short { plan::Plan::short() } else { plan::Plan::full() };
    let whole_run = !short && only.is_empty();
    let docs = docs.or_else(|| whole_run.then(report::page));
    let report = measure::run(&plan, only)?;
    println!("{}", report.markdown());
    if let Some(file) = json {
        std::fs::write(file, format!("{:#}\n", report.json()))?;
    }
    match docs {
        Some(file) => report.rewrite(&file, &Marks::of_report()),
        None => Ok(()),
    }
}

fn engine(options: &engines::Options, json: Option<PathBuf>, docs: Option<PathBuf>) -> Result<()> {
    let docs = docs.or_else(|| options.is_for_the_page().then(report::page));
    let report = engines::run(options)?;
    println!("{}", report.markdown());
    if let Some(file) = json {
        std::fs::write(file, format!("{:#}\n", report.json()))?;
    }
    match docs {
        Some(file) => report.rewrite(&file, &Marks::of_engines(options.rows)),
        None => Ok(()),
    }
}

fn backup(short: bool, json: Option<PathBuf>, docs: Option<PathBuf>) -> Result<()> {
    let options = if short { backup::Options::short() } else { backup::Options::full() };
    let docs = docs.or_else(|| (!short).then(report::page));
    let report = backup::run(&options)?;
    println!("{}", report.markdown());
    if let Some(file) = json {
        std::fs::write(file, format!("{:#}\n", report.json()))?;
    }
    match docs {
        Some(file) => report.rewrite(&file, &Marks::of_backup()),
        None => Ok(()),
    }
}
