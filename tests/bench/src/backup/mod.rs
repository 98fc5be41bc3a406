//! What backups cost whoever writes and reads meanwhile, and how fast they and restores are beside plain requests.
//!
//! ```text
//!   foreground   two clusters in turn, one of them backs up: the same load a third of what is possible
//!   transfer     all files at once into the bucket beside plain PUTs, a table back from it beside plain GETs
//!   bucket       the server, in a process of its own       plain   the library alone
//! ```

pub mod bucket;
mod foreground;
mod plain;
mod transfer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use trefoil::cql;
use trefoil_client::{Client, SnapshotOf};
use trefoil_proto::v1::BackupPhase;
use uuid::Uuid;

use self::bucket::Bucket;
use crate::cluster::{self, Cluster, Settings};
use crate::report::Report;
use crate::{Result, data, machine};

const SCHEMA: &str = "
    CREATE KEYSPACE bench WITH replication = {'local': 3};
    CREATE TABLE bench.kept (k bigint PRIMARY KEY, v blob) WITH durability = 'periodic';
";
const KEYSPACE: &str = "bench";
const TABLE: &str = "kept";
const KEPT: &str = "bench.kept";

/// The smallest there are: flushed at half of this, some seconds apart.
const MEMTABLE_MIB: u64 = 32;

/// More callers than are ever used.
const IN_FLIGHT_MAX: usize = 1024;

/// How long a backup may take.
const BACKUP_PATIENCE: Duration = Duration::from_secs(120);

/// How long to wait between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Rounds of load without and with backups.
    pub rounds: usize,
    /// Rounds of transfers.
    pub transfers: usize,
    /// How long operations are counted in a round of load.
    pub window: Duration,
    /// How long rows are written for each round of transfers.
    pub load: Duration,
}

impl Options {
    /// The run whose figures count: about five minutes.
    pub fn full() -> Options {
        let (window, load) = (Duration::from_secs(12), Duration::from_secs(5));
        Options { rounds: 5, transfers: 3, window, load }
    }

    /// A look whether everything runs.
    pub fn short() -> Options {
        Options { rounds: 1, transfers: 1, window: Duration::from_secs(3), load: Duration::from_secs(1) }
    }
}

/// Measures all of it.
pub fn run(options: &Options) -> Result<Report> {
    let (begun, load_before) = (Instant::now(), machine::load_average()?);
    let mut report = Report::new(machine::look()?, options.rounds);
    let binary = cluster::binary()?;
    let mut bucket = Bucket::start()?;
    let mut kept = Side::start(&binary, &bucket.settings(MEMTABLE_MIB))?;
    let mut bare = Side::start(&binary, &Bucket::settings_without_backups(MEMTABLE_MIB))?;
    foreground::measure(options, &mut bucket, &mut bare, &mut kept, &mut report)?;
    transfer::measure(options, &bucket, &mut kept, &bare, &mut report)?;
    report.took = begun.elapsed();
    report.load_average = (load_before, machine::load_average()?);
    Ok(report)
}

/// A cluster, with a client in this thread.
struct Side {
    cluster: Cluster,
    runtime: Runtime,
    client: Client,
    /// Operations so far.
    numbers: Arc<AtomicU64>,
    /// Rows so far.
    rows: Arc<AtomicU64>,
}

impl Side {
    fn start(binary: &Path, settings: &Settings) -> Result<Side> {
        let mut cluster = Cluster::start_with(binary, settings)?;
        // Of its own, so that connections are kept up while the other side has its turn.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = runtime.block_on(async {
            let client = cluster.connect(IN_FLIGHT_MAX).await?;
            for statement in cql::parse(SCHEMA)? {
                client.apply(&statement).await?;
            }
            Ok::<_, crate::Error>(client)
        })?;
        Ok(Side { cluster, runtime, client, numbers: Arc::default(), rows: Arc::default() })
    }

    fn told(&self, error: crate::Error) -> crate::Error {
        format!("{error}\n{}", self.cluster.logs()).into()
    }

    /// Makes files of everything.
    fn flush(&self) -> Result<()> {
        let flushed = self.runtime.block_on(self.client.flush(None))?;
        match flushed.nodes.iter().find(|node| !node.error.is_empty()) {
            Some(failed) => Err(format!("node {} did not flush: {}", failed.node, failed.error).into()),
            None => Ok(()),
        }
    }
}

/// Writes a row that was not there.
async fn put(client: &Client, rows: &AtomicU64) -> Result<()> {
    let row = rows.fetch_add(1, Ordering::Relaxed);
    client.insert(KEPT).key("k", row as i64).value("v", data::value(row)).send().await?;
    Ok(())
}

/// Begins a backup of everything.
async fn begin_backup(client: &Client) -> Result<Uuid> {
    let begun = client.create_backup("bench", "", SnapshotOf::All).await?;
    Ok(Uuid::from_slice(&begun.backup)?)
}

/// Waits until it is complete.
async fn await_backup(client: &Client, backup: Uuid) -> Result<()> {
    let give_up = Instant::now() + BACKUP_PATIENCE;
    loop {
        let job = client.backup_status(Some(backup)).await?.into_iter().next();
        match job.as_ref().map(|job| job.phase()) {
            Some(BackupPhase::Complete) => return Ok(()),
            Some(BackupPhase::Running | BackupPhase::Paused) if Instant::now() < give_up => {}
            _ => return Err(format!("the backup did not become complete: {job:?}").into()),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
