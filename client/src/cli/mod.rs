//! The command line `trefoil`: one file per command, `docs/cli.md` for readers.
//!
//! ```text
//! arguments ─► command ─► Client (the library) ─► cluster
//!    text, json, csv ◄─► values                 output: what goes to stdout is for programs, the rest goes to stderr
//! ```
//!
//! Exit codes: 0 done, 1 failed, 2 the command line itself is wrong (nothing was asked of the cluster).

mod backup;
mod bench;
mod check;
mod compaction;
mod csv;
mod delete;
mod duration;
mod element;
mod error;
mod export;
mod flush;
mod get;
mod hints;
mod import;
mod increment;
mod json;
mod level;
mod merged;
mod moment;
mod output;
mod progress;
mod put;
mod replication;
mod report;
mod restore;
mod ring;
mod row;
mod rows;
mod scan;
mod schema;
mod snapshot;
mod sstable;
mod status;
mod stopped;
mod table_name;
mod text;
mod verify;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use trefoil_client::{Client, Consistency};

use error::{Error, Result};

/// How long a command waits for one answer, with all attempts.
const TIMEOUT: Duration = Duration::from_secs(15);

const EXAMPLES: &str = "\
Examples:
  trefoil schema apply flights.cql
  trefoil put demo.kv '{\"key\": 1, \"value\": \"one\"}'
  trefoil get demo.kv '{\"key\": 1}'
  trefoil import demo.flights flights.csv.gz --null NA --consistency QUORUM
  trefoil scan demo.flights --count
  trefoil status --json

Exit codes: 0 done, 1 failed, 2 wrong usage. How values are written: docs/json.md.";

/// Reads, writes and tends a Trefoil cluster.
#[derive(Debug, Parser)]
#[command(name = "trefoil", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct CommandLine {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
struct Global {
    /// Addresses of the cluster, separated by commas; one is enough, more help while nodes are down
    #[arg(
        long,
        global = true,
        env = "TREFOIL_ENDPOINT",
        default_value = "http://127.0.0.1:9440",
        value_delimiter = ',',
        value_name = "URL"
    )]
    endpoint: Vec<String>,
    /// Print JSON, errors too
    #[arg(long, global = true)]
    json: bool,
    /// How many replicas must take part: ONE, TWO, THREE, QUORUM, ALL, LOCAL_ONE, LOCAL_QUORUM or EACH_QUORUM
    #[arg(
        long,
        global = true,
        default_value = "LOCAL_QUORUM",
        value_parser = level::parse,
        value_name = "LEVEL"
    )]
    consistency: Consistency,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make, drop and show keyspaces and tables
    #[command(subcommand)]
    Schema(schema::SchemaCommand),
    /// Write one row
    Put(put::Put),
    /// Read one row, or the rows whose keys begin alike
    Get(get::Get),
    /// Delete a row, the rows whose keys begin alike, or a partition
    Delete(delete::Delete),
    /// Write, read or delete single elements of a list, set, map or user-defined type
    #[command(subcommand)]
    Element(element::ElementCommand),
    /// Add to counters of a row
    Increment(increment::Increment),
    /// Print or count the rows of a table
    Scan(scan::Scan),
    /// Load a CSV or JSON lines file into a table
    Import(import::Import),
    /// Write a table to a file
    Export(export::Export),
    /// Show the nodes and what they are doing
    Status(status::Status),
    /// Show which node owns how much of the ring
    Ring,
    /// Write memtables to files on every node
    Flush(flush::Flush),
    /// Show compaction and what the files of each table cost, or compact a table whole
    Compaction(compaction::Compaction),
    /// Show, pause, resume or drop the writes that nodes keep for others that have missed them
    Hints(hints::Hints),
    /// Make, list and remove snapshots
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    /// Back the cluster up to the bucket of its settings
    #[command(subcommand)]
    Backup(backup::BackupCommand),
    /// Bring tables back from a backup
    #[command(subcommand)]
    Restore(restore::RestoreCommand),
    /// Compare what all replicas of a table hold
    Verify(verify::Verify),
    /// Measure the cluster with reads and writes
    Bench(bench::Bench),
    /// Check the files of a stopped node, without a cluster
    Check(check::Check),
    /// Look into SSTables of a stopped node, without a cluster
    #[command(subcommand)]
    Sstable(sstable::SstableCommand),
}

impl Global {
    async fn connect(&self) -> Result<Client> {
        self.connect_with(TIMEOUT, 1_024).await
    }

    async fn connect_with(&self, timeout: Duration, in_flight_max: usize) -> Result<Client> {
        let endpoints = self.endpoint.iter().map(|endpoint| endpoint.trim()).filter(|endpoint| !endpoint.is_empty());
        let builder = Client::builder(endpoints).consistency(self.consistency).timeout(timeout);
        Ok(builder.in_flight_max(in_flight_max).connect().await?)
    }
}

/// Runs the command of this process's arguments.
pub fn run() -> ExitCode {
    let CommandLine { global, command } = CommandLine::parse();
    // One thread: the transport costs a third more on two, and every command waits for the cluster most of its time.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(source) => return report(&global, &Error::io("start", "the runtime", source)),
    };
    match runtime.block_on(command.run(&global)) {
        Ok(()) => ExitCode::SUCCESS,
        // Who reads our output has enough of it.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => report(&global, &error),
    }
}

fn report(global: &Global, error: &Error) -> ExitCode {
    let text = if global.json {
        serde_json::json!({ "error": error.to_string(), "exit_code": error.exit_code() }).to_string()
    } else {
        format!("error: {error}")
    };
    output::note(&text);
    ExitCode::from(error.exit_code())
}

impl Command {
    async fn run(self, global: &Global) -> Result<()> {
        match self {
            Command::Schema(command) => command.run(global).await,
            Command::Put(command) => command.run(global).await,
            Command::Get(command) => command.run(global).await,
            Command::Delete(command) => command.run(global).await,
            Command::Element(command) => command.run(global).await,
            Command::Increment(command) => command.run(global).await,
            Command::Scan(command) => command.run(global).await,
            Command::Import(command) => command.run(global).await,
            Command::Export(command) => command.run(global).await,
            Command::Status(status) => status.run(global).await,
            Command::Ring => ring::run(global).await,
            Command::Flush(command) => command.run(global).await,
            Command::Compaction(command) => command.run(global).await,
            Command::Hints(command) => command.run(global).await,
            Command::Snapshot(command) => command.run(global).await,
            Command::Backup(command) => command.run(global).await,
            Command::Restore(command) => command.run(global).await,
            Command::Verify(command) => command.run(global).await,
            Command::Bench(command) => command.run(global).await,
            Command::Check(command) => command.run(global),
            Command::Sstable(command) => command.run(global),
        }
    }
}

#[cfg(test)]
mod tests;
