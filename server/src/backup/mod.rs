//! Backups of a running node: its files and its log go to a bucket as they come to be, and jobs make backups of that.
//!
//! ```text
//!   store ── files ──► files.rs ─► obj/..           each SSTable once, by its hash
//!         ── log ────► log.rs ───► log/<node>/..    a piece every log_every, or as soon as a backup waits for one
//!   a job (driver.rs, on one node): intent ─► every node makes its part (part.rs) ─► cut ─► logs closed through it
//!         ─► manifest ─► index                      keeper.rs begins jobs that are due, and takes over those of nodes that are gone
//! ```
//!
//! What is in the bucket is asked of the bucket: a failed upload is not remembered as done, and a node that starts anew goes on
//! where the bucket says (B082). All of it runs on the control runtime and its blocking threads, off the data path.
//!
//! **Invariants:** a piece says `told` only if it reaches the end that the log had when that was so · a part is there only once
//! all its files are · a manifest is written last (B035) · nothing here deletes or overwrites an object, but for index
//! and intents, which are compared first.

mod driver;
mod files;
mod jobs;
mod keeper;
mod log;
mod part;
mod settings;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use trefoil::backup::{Intent, StateAt};
use trefoil::metadata::ClusterState;
use trefoil::model::{Identity, Stamp};
use trefoil_s3::repository::Repository;
use trefoil_s3::{Location, ObjectStore, S3, Traffic};
use uuid::Uuid;

pub use jobs::{JobError, NewJob};
pub use keeper::{Crew, run};
pub use log::End;
pub use part::PartProgress;
pub use settings::{BackupSettings, Bucket};
pub use status::Standing;

/// How often it is looked whether there is something to do.
const LOOK: Duration = Duration::from_millis(500);

/// The first pause after something failed; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause after something failed: so soon after the bucket can be reached again everything goes on.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What has happened since the start, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    /// Files uploaded.
    pub files: AtomicU64,
    /// Their bytes.
    pub file_bytes: AtomicU64,
    /// Pieces of the log uploaded.
    pub pieces: AtomicU64,
    /// Their bytes.
    pub piece_bytes: AtomicU64,
    /// What failed and was tried again later: uploads of files, of pieces, steps of jobs.
    pub failures: AtomicU64,
    /// Stretches of the log that went before they were archived.
    pub gaps: AtomicU64,
    /// Backups that became complete while this node saw to them.
    pub complete: AtomicU64,
    /// Backups that failed while this node saw to them.
    pub failed: AtomicU64,
}

/// A node's share of the archive in the bucket.
pub struct Archive {
    settings: BackupSettings,
    /// Everything below the cluster's id.
    traffic: Option<Arc<Traffic>>,
    repository: Repository,
    /// The objects of the repository.
    door: Arc<dyn ObjectStore>,
    identity: Identity,
    counts: Counts,
    /// The last piece, once the bucket has told.
    end: Mutex<Option<End>>,
    /// Why the log, or files, did not go to the bucket when that was tried last.
    troubles: Mutex<BTreeMap<&'static str, String>>,
    /// Files that are not in the bucket yet, as far as is known.
    files_waiting: AtomicU64,
    /// The number of the piece behind the last gap that was told.
    gap_before: AtomicU64,
    /// Up to where some backup waits for the log.
    wanted: AtomicI64,
    /// States of the cluster that no piece has yet.
    states: Mutex<Vec<StateAt>>,
    /// The newest complete backup: when it was begun, and its cut.
    newest: Mutex<Option<(Stamp, Stamp)>>,
    parts: Mutex<BTreeMap<Uuid, PartProgress>>,
    /// Intents that do not change any more, as they were read.
    over: Mutex<BTreeMap<Uuid, Intent>>,
    jobs: Mutex<JoinSet<()>>,
}

impl Archive {
    /// Opens the door to the bucket. No request is made.
    pub async fn open(settings: BackupSettings, identity: Identity) -> trefoil_s3::Result<Archive> {
        let (bucket, traffic): (Arc<dyn ObjectStore>, _) = match &settings.bucket {
            Bucket::At(location, limits) => {
                let door = S3::connect(location.clone(), limits.clone()).await?;
                let traffic = door.traffic().clone();
                (Arc::new(door), Some(traffic))
            }
            Bucket::Given(store) => (store.clone(), None),
        };
        let repository = Repository::new(bucket, identity.cluster);
        Ok(Archive {
            settings,
            traffic,
            door: repository.store().clone(),
            repository,
            identity,
            counts: Counts::default(),
            end: Mutex::default(),
            troubles: Mutex::default(),
            files_waiting: AtomicU64::default(),
            gap_before: AtomicU64::default(),
            wanted: AtomicI64::default(),
            states: Mutex::default(),
            newest: Mutex::default(),
            parts: Mutex::default(),
            over: Mutex::default(),
            jobs: Mutex::default(),
        })
    }

    /// Where the bucket is, if it is one that others can reach.
    pub fn location(&self) -> Option<&Location> {
        match &self.settings.bucket {
            Bucket::At(location, _) => Some(location),
            Bucket::Given(_) => None,
        }
    }

    /// The settings.
    pub fn settings(&self) -> &BackupSettings {
        &self.settings
    }

    /// What was asked of the bucket since the start, if that is known.
    pub fn traffic(&self) -> Option<&Traffic> {
        self.traffic.as_deref()
    }

    /// What has happened since the start.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A state of the cluster is about to be served by: everything coordinated in it is stamped after `applied_at`.
    pub fn learned(&self, state: &ClusterState, applied_at: Stamp) {
        self.states.lock().push(StateAt { applied_at, state: state.encode().into() });
    }

    /// Ends everything that is under way here. What was begun goes on at the next start.
    pub fn stop(&self) {
        self.jobs.lock().abort_all();
    }

    fn start(&self, job: impl Future<Output = ()> + Send + 'static) {
        let mut jobs = self.jobs.lock();
        while jobs.try_join_next().is_some() {}
        jobs.spawn(job);
    }

    fn failed(&self, what: &'static str, error: String) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(error, "{what} did not go to the backup bucket; it is tried again");
        self.troubles.lock().insert(what, error);
    }

    fn succeeded(&self, what: &'static str) {
        self.troubles.lock().remove(what);
    }
}

/// Pauses that grow as long as something fails.
#[derive(Debug, Default)]
struct Pauses {
    failed: u32,
}

impl Pauses {
    /// Something failed: waits, each time longer.
    async fn wait(&mut self) {
        let pause = PAUSE.saturating_mul(1_u32.checked_shl(self.failed).unwrap_or(u32::MAX)).min(PAUSE_MAX);
        self.failed = (self.failed + 1).min(16);
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
    }

    fn end(&mut self) {
        self.failed = 0;
    }
}

/// Runs something that may wait for a lock or the disk.
async fn off_runtime<T: Send + 'static>(
    work: impl FnOnce() -> trefoil::Result<T> + Send + 'static,
) -> Result<T, Trouble> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(error) => Err(Trouble::Panicked(error.to_string())),
    }
}

/// Why a step did not succeed.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Bucket(#[from] trefoil_s3::Error),
    #[error(transparent)]
    Store(#[from] trefoil::Error),
    #[error("a step ended in the middle: {0}")]
    Panicked(String),
    #[error("{0} is in the bucket with {1} bytes, and should have {2}")]
    OtherLength(String, u64, u64),
    #[error("file {0} is gone from this node and not in the bucket")]
    FileGone(Uuid),
    #[error("file {0} is damaged on this node")]
    Damaged(Uuid),
    #[error("the bucket has not told yet how far the log is archived")]
    LogUnknown,
    #[error("{0}")]
    Intent(String),
    #[error("piece {0} of the log is missing in the bucket")]
    PieceGone(u64),
}
