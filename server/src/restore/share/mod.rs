//! A node's share of a restore: the data of the vnodes that it owns, from the bucket into its own store.
//!
//! ```text
//!   begin ─► what is its own ─► files: groups of vnodes, several at a time ─► logs: piece by piece ─► done
//!                                 copies that suffice, merged ─► new files ─► one edit, then noted      │
//!   look  ◄─ how far it is         records ─► memtables ─► new files ─► one edit, then noted ◄──────────┘
//! ```
//!
//! Whoever drives the restore orders the same of every node, and asks how far each is. A node that was restarted, or whose share has
//! stopped because of a failure, goes on when it is ordered again, where its notes end. Data is never taken over as a file:
//! tables have new ids here, and other owners, vnodes and cuts.
//!
//! **Invariants:** what is noted is live · loading twice changes nothing · what is restored is what all copies and logs of the
//! backup amount to at its time, tombstones included; nothing is purged meanwhile · a damaged object stops the share and
//! is named, nothing of it is loaded.

mod files;
mod job;
mod logs;
mod notes;
mod order;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use trefoil::metadata::ClusterState;
use trefoil::model::NodeId;
use trefoil::store::Store;
use trefoil::vfs::Vfs;
use trefoil_proto::v1;
use trefoil_s3::{Limits, Location, ObjectStore, S3};
use uuid::Uuid;

pub use self::notes::Notes;
pub use self::order::Order;
use job::{Failure, Job};
use notes::NotesFile;
use order::Owned;

/// Vnode groups that are loaded at once: one waits for the bucket while another merges.
const WORKERS: usize = 4;

/// The way to a bucket.
pub trait Buckets: Send + Sync + 'static {
    /// Opens the door to it.
    fn open(&self, location: Location, limits: Limits) -> BoxFuture<'_, trefoil_s3::Result<Arc<dyn ObjectStore>>>;
}

/// Buckets as they are, with the credentials of this process.
pub struct OfS3;

impl Buckets for OfS3 {
    fn open(&self, location: Location, limits: Limits) -> BoxFuture<'_, trefoil_s3::Result<Arc<dyn ObjectStore>>> {
        Box::pin(async move { Ok(Arc::new(S3::connect(location, limits).await?) as Arc<dyn ObjectStore>) })
    }
}

/// What shares stand on.
pub struct Ground {
    /// Where notes are kept.
    pub vfs: Arc<dyn Vfs>,
    /// Their directory.
    pub directory: PathBuf,
    /// Where data goes.
    pub store: Arc<Store>,
    /// Whose it is.
    pub node: NodeId,
    /// Runs the requests.
    pub runtime: Handle,
    /// Where data comes from.
    pub buckets: Arc<dyn Buckets>,
}

/// The shares of all restores that this node was ordered to load since it was started.
pub struct Shares {
    ground: Arc<Ground>,
    all: Mutex<BTreeMap<Uuid, Arc<Share>>>,
}

/// One of them.
struct Share {
    restore: Uuid,
    order: [u8; 32],
    stop: AtomicBool,
    standing: Mutex<Standing>,
    progress: Progress,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Where it stands.
#[derive(Debug, Clone)]
enum Standing {
    Running,
    Done,
    Stopped(Failure),
}

/// How far it is.
#[derive(Debug, Default)]
struct Progress {
    steps: AtomicU64,
    steps_done: AtomicU64,
    bytes_fetched: AtomicU64,
    requests: AtomicU64,
    bytes_loaded: AtomicU64,
    records: AtomicU64,
}

impl Shares {
    /// None yet.
    pub fn new(ground: Ground) -> Shares {
        Shares { ground: Arc::new(ground), all: Mutex::default() }
    }

    /// Begins a share, or goes on with it; nothing if it is under way or done. The error says why it cannot be begun here
    /// and now: the tables are not there, or not to be loaded. Blocks for as long as reading notes takes.
    pub fn begin(&self, restore: Uuid, order: Order, state: &ClusterState) -> Result<v1::RestoreShare, String> {
        let owned = Owned::of(&order, state, self.ground.node)?;
        for (_, table) in &order.tables {
            self.ground.store.loader(*table).map_err(|error| error.to_string())?;
        }
        let digest = owned.digest(&order);
        let mut all = self.all.lock();
        if let Some(share) = all.get(&restore) {
            let goes_on = matches!(*share.standing.lock(), Standing::Running | Standing::Done);
            if goes_on && share.order == digest {
                return Ok(share.tell());
            }
            if goes_on {
                return Err(format!("restore {restore} was ordered otherwise before; end it first"));
            }
        }
        let file = NotesFile::new(self.ground.vfs.clone(), self.ground.directory.clone(), restore);
        let notes = file.read().map_err(|error| error.to_string())?;
        let notes = if notes.order == digest { notes } else { Notes { order: digest, ..Notes::default() } };
        let standing = if notes.is_done { Standing::Done } else { Standing::Running };
        let share = Arc::new(Share {
            restore,
            order: digest,
            stop: AtomicBool::new(false),
            standing: Mutex::new(standing.clone()),
            progress: Progress::default(),
            thread: Mutex::default(),
        });
        if matches!(standing, Standing::Running) {
            let job =
                Job { ground: self.ground.clone(), share: share.clone(), order, owned, notes: Mutex::new(notes), file };
            let started = std::thread::Builder::new().name("restore".to_owned()).spawn(move || job.carry_out());
            *share.thread.lock() = Some(started.map_err(|error| format!("cannot start a thread: {error}"))?);
        }
        let told = share.tell();
        all.insert(restore, share);
        Ok(told)
    }

    /// How far a share is.
    pub fn look(&self, restore: Uuid) -> v1::RestoreShare {
        self.all.lock().get(&restore).map(|share| share.tell()).unwrap_or_default()
    }

    /// Stops a share if it is under way, and forgets its notes. Blocks until its threads have ended.
    pub fn end(&self, restore: Uuid) -> Result<(), String> {
        let share = self.all.lock().get(&restore).cloned();
        share.iter().for_each(|share| share.halt());
        let file = NotesFile::new(self.ground.vfs.clone(), self.ground.directory.clone(), restore);
        file.remove().map_err(|error| error.to_string())?;
        let mut all = self.all.lock();
        // Not one that was begun meanwhile.
        if let (Some(share), Some(present)) = (share, all.get(&restore))
            && Arc::ptr_eq(&share, present)
        {
            all.remove(&restore);
        }
        Ok(())
    }

    /// Stops all of them; ordered again they go on. Blocks until their threads have ended.
    pub fn stop(&self) {
        let all: Vec<Arc<Share>> = self.all.lock().values().cloned().collect();
        all.iter().for_each(|share| share.stop.store(true, Ordering::Relaxed));
        all.iter().for_each(|share| share.halt());
    }
}

impl Share {
    fn tell(&self) -> v1::RestoreShare {
        let Progress { steps, steps_done, bytes_fetched, requests, bytes_loaded, records } = &self.progress;
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let mut told = v1::RestoreShare {
            steps: of(steps),
            steps_done: of(steps_done),
            bytes_fetched: of(bytes_fetched),
            requests: of(requests),
            bytes_loaded: of(bytes_loaded),
            records: of(records),
            ..v1::RestoreShare::default()
        };
        match &*self.standing.lock() {
            Standing::Running => told.set_state(v1::RestoreShareState::Running),
            Standing::Done => told.set_state(v1::RestoreShareState::Done),
            Standing::Stopped(failure) => {
                told.set_state(v1::RestoreShareState::Stopped);
                (told.error, told.retry) = (failure.reason.clone(), failure.retry);
            }
        }
        told
    }

    /// Ends its thread.
    fn halt(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(restore = %self.restore, "a thread of a restore has panicked");
        }
    }
}
