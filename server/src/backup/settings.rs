//! How a node backs up.

use std::sync::Arc;
use std::time::Duration;

use trefoil_s3::{Limits, Location, ObjectStore};

/// How a node backs up.
#[derive(Clone)]
pub struct BackupSettings {
    /// Where to.
    pub bucket: Bucket,
    /// From one piece of the log to the next.
    pub log_every: Duration,
    /// How far behind its clock a node promises to take nothing new, as the settings of replication have it.
    pub closed_behind: Duration,
    /// From one backup of everything to the next; none: only when asked for.
    pub every: Option<Duration>,
    /// Younger backups are not pruned.
    pub keep_days: u64,
    /// So many of the newest are not pruned.
    pub keep_count: u64,
    /// How long a backup waits for a node that is down.
    pub absent_after: Duration,
    /// How long a backup may take.
    pub give_up: Duration,
}

/// The bucket of a cluster.
#[derive(Clone)]
pub enum Bucket {
    /// One of an S3-compatible store.
    At(Location, Limits),
    /// A door that is open already.
    Given(Arc<dyn ObjectStore>),
}
