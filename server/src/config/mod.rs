//! Every setting of a node: its unit, its range, its default, checked once.
//!
//! ```text
//!  node.toml ──section.rs: values in range, nothing unknown──► Config ──► store, limits, listeners, log
//!                                          (settings.rs: the table of what there is)  └─► to_toml, which reads back
//! ```
//!
//! A setting that is unknown, missing or out of range is an error that names the file, the setting, the value and what
//! would be right. Nothing is corrected silently, and nothing outside this module looks at the file.

mod backup;
mod load;
mod section;
mod settings;
#[cfg(test)]
mod tests;
mod write;

pub use backup::BackupConfig;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use trefoil::model::VnodeBits;
use trefoil::ring::Zone;
use trefoil::store::{BeforeDrop, SnapshotOptions, StoreOptions};

use crate::backup::BackupSettings;
use crate::coordinate::{Admission, Guardrails, Limits};
use crate::hints::HintSettings;
use crate::replica::{CompactionSettings, ScrubSettings};
use crate::replication::{ReplicationSettings, WithoutOthers};

/// All settings of a node. Numbers have the units of the file, which their names end in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The cluster as it begins.
    pub cluster: ClusterConfig,
    /// This node.
    pub node: NodeConfig,
    /// Sizes of its store.
    pub storage: StorageConfig,
    /// How its files are compacted.
    pub compaction: CompactionConfig,
    /// How they are looked after.
    pub scrub: ScrubConfig,
    /// `[replication]`.
    pub replication: ReplicationConfig,
    /// Snapshots that it makes by itself.
    pub snapshots: SnapshotsConfig,
    /// What is kept for nodes that miss writes.
    pub hints: HintsConfig,
    /// Where backups go; none: there are none.
    pub backup: Option<BackupConfig>,
    /// What requests may ask, and how many at once.
    pub limits: LimitsConfig,
    /// What is refused, or told of.
    pub guardrails: GuardrailsConfig,
    /// What is logged.
    pub log: LogConfig,
}

/// The cluster as it begins. Every initial member lists the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    /// For people.
    pub name: String,
    /// Fixed for ever when the cluster begins.
    pub vnodes: VnodeBits,
    /// The nodes it begins with; they get the numbers 1, 2, ... in this order.
    pub initial_members: Vec<MemberConfig>,
}

/// A node that the cluster begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberConfig {
    /// Its `node.peer_address`.
    pub address: SocketAddr,
    /// Where it stands.
    pub zone: Zone,
}

/// This node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// Where its data lies.
    pub data_dir: PathBuf,
    /// Where it stands.
    pub zone: Zone,
    /// Where clients reach it.
    pub client_address: SocketAddr,
    /// Where other nodes reach it.
    pub peer_address: SocketAddr,
    /// Where metrics and health are.
    pub http_address: SocketAddr,
    /// Threads that serve requests, each with its own connections.
    pub runtimes: usize,
}

/// Sizes of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageConfig {
    /// Size of a commit log segment.
    pub segment_mib: u64,
    /// Commit log that is kept for other replicas only.
    pub log_kept_mib: u64,
    /// Memory for all memtables together.
    pub memtable_mib: u64,
    /// Memory for decoded blocks.
    pub cache_mib: u64,
}

/// How files are compacted; what becomes of which is an option of each table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionConfig {
    /// Threads at most.
    pub threads: u64,
    /// What they read in a second, unless much waits.
    pub mib_per_s: u64,
}

/// How files are read again, to see whether they are whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubConfig {
    /// Each file once in so many days; 0: never.
    pub every_days: u64,
    /// What is read in a second, at most.
    pub mib_per_s: u64,
}

/// How replicas keep each other informed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicationConfig {
    /// From one report to the next.
    pub report_ms: u64,
    /// How far behind its clock a node promises to take nothing new.
    pub closed_behind_s: u64,
    /// How long everything must have been on all replicas before deletions go.
    pub purge_after_s: u64,
    /// What is fetched from other replicas in a second.
    pub fetch_mib_per_s: u64,
    /// Whether the node starts though no other one answers.
    pub start_alone: bool,
}

/// Snapshots that a node makes by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotsConfig {
    /// Whether the data of a table that is dropped or truncated is kept in one.
    pub before_drop: bool,
    /// How long it stays.
    pub dropped_kept_days: u64,
    /// How many stay.
    pub dropped_kept_most: u64,
}

/// What is kept for nodes that miss writes, and how it is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintsConfig {
    /// Disk for the hints for one node.
    pub mib_per_node: u64,
    /// None are written for a node while the oldest one is older.
    pub window_s: u64,
    /// Older ones are not delivered.
    pub kept_s: u64,
    /// Delivered to one node in a second.
    pub mib_per_s: u64,
    /// Memory for what waits to be written.
    pub queue_mib: u64,
}

/// What requests may ask, and how many are taken on at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Requests of clients at once.
    pub requests_in_flight: u64,
    /// Their size together.
    pub request_mib_in_flight: u64,
    /// The deadline of requests that bring none.
    pub timeout_default_ms: u64,
    /// No request takes longer.
    pub timeout_max_ms: u64,
    /// Rows of a page that names no number.
    pub page_rows_default: u64,
    /// Size of a page that names none, and the most one may ask.
    pub page_kib_default: u64,
    /// Largest mutation of one partition.
    pub mutation_mib_max: u64,
}

/// What is refused, or told of, lest one table or request hurts all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardrailsConfig {
    /// A value above this is told of.
    pub value_kib_warn: u64,
    /// A larger value is refused.
    pub value_kib_max: u64,
    /// A row above this is told of.
    pub row_kib_warn: u64,
    /// A row of which one mutation writes more is refused.
    pub row_kib_max: u64,
    /// A partition or clustering key above this is told of.
    pub key_bytes_warn: u64,
    /// A partition above this in one SSTable is told of.
    pub partition_mib_warn: u64,
    /// A partition of more rows in one SSTable is told of.
    pub partition_rows_warn: u64,
    /// A page that meets more tombstones is told of.
    pub tombstones_warn: u64,
    /// A page that meets more tombstones is an error.
    pub tombstones_max: u64,
    /// A read of more clustering ranges is refused.
    pub ranges_max: u64,
    /// A batch of more mutations is told of.
    pub batch_mutations_warn: u64,
    /// A batch of more mutations is refused.
    pub batch_mutations_max: u64,
    /// A larger batch is told of.
    pub batch_kib_warn: u64,
    /// Tables of the cluster.
    pub tables_max: u64,
    /// Tables of a keyspace.
    pub tables_per_keyspace_max: u64,
    /// Columns of a table.
    pub columns_max: u64,
}

/// What is logged, to standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// The least important level that is logged.
    pub level: tracing::Level,
    /// One line per event in this form.
    pub format: LogFormat,
}

/// The form of a line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// What is wrong with the settings, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", file.display())]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong in it.
    pub problem: Problem,
}

/// What is wrong in a file of settings.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// There is no such file, or it is not to be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// It is not TOML.
    #[error("line {line} is not TOML: {reason}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// What the parser said.
        reason: String,
    },
    /// A value that cannot be.
    #[error("{setting} = {value}: {reason}")]
    Value {
        /// The setting with its section.
        setting: String,
        /// As it stands in the file.
        value: String,
        /// What would be right.
        reason: String,
    },
    /// A setting without a default is not there.
    #[error("{setting} is missing: {reason}")]
    Missing {
        /// The setting with its section.
        setting: String,
        /// What would be right.
        reason: String,
    },
    /// Something that is not a setting.
    #[error("{setting} is not a setting; {section} has {known}")]
    Unknown {
        /// As it stands in the file, with its section.
        setting: String,
        /// The section.
        section: String,
        /// What can stand there.
        known: String,
    },
}

impl Config {
    /// The settings of the store, which lives in `store` within the data directory.
    pub fn store(&self) -> StoreOptions {
        let StorageConfig { segment_mib, log_kept_mib, memtable_mib, cache_mib } = self.storage;
        StoreOptions {
            directory: self.node.data_dir.join("store"),
            segment_bytes: segment_mib << 20,
            log_kept_bytes_max: log_kept_mib << 20,
            memtable_budget_bytes: memtable_mib << 20,
            cache_bytes: cache_mib << 20,
            snapshots: self.snapshots.options(),
        }
    }
}

impl Config {
    /// How a node backs up, if it does.
    pub fn backup_of_nodes(&self) -> Option<BackupSettings> {
        self.backup.as_ref().map(|backup| backup.of_nodes(self.replication.of_nodes().closed_behind))
    }
}

impl ReplicationConfig {
    /// The settings of a node.
    pub fn of_nodes(&self) -> ReplicationSettings {
        ReplicationSettings {
            report: Duration::from_millis(self.report_ms),
            closed_behind: Duration::from_secs(self.closed_behind_s),
            purge_after: Duration::from_secs(self.purge_after_s),
            fetch_bytes_per_s: self.fetch_mib_per_s << 20,
            without_others: if self.start_alone { WithoutOthers::Start } else { WithoutOthers::Wait },
        }
    }
}

impl CompactionConfig {
    /// The settings of the threads.
    pub fn of_threads(&self) -> CompactionSettings {
        CompactionSettings { threads: self.threads as usize, bytes_per_s: self.mib_per_s << 20 }
    }
}

impl ScrubConfig {
    /// The settings of the thread.
    pub fn of_thread(&self) -> ScrubSettings {
        ScrubSettings { period_s: self.every_days as i64 * 24 * 3_600, bytes_per_s: self.mib_per_s << 20 }
    }
}

impl SnapshotsConfig {
    fn options(&self) -> SnapshotOptions {
        SnapshotOptions {
            before_drop: if self.before_drop { BeforeDrop::Snapshot } else { BeforeDrop::Nothing },
            kept_s: self.dropped_kept_days * 24 * 3_600,
            kept_most: self.dropped_kept_most as usize,
        }
    }
}

impl HintsConfig {
    /// The bounds of the hints of a node.
    pub fn bounds(&self) -> HintSettings {
        HintSettings {
            bytes_max: self.mib_per_node << 20,
            window_s: self.window_s,
            kept_s: self.kept_s,
            bytes_per_s: self.mib_per_s << 20,
            queue_bytes: (self.queue_mib << 20) as usize,
        }
    }
}

impl LimitsConfig {
    /// What one request may ask.
    pub fn of_requests(&self) -> Limits {
        Limits {
            timeout_default: Duration::from_millis(self.timeout_default_ms),
            timeout_max: Duration::from_millis(self.timeout_max_ms),
            page_rows_default: self.page_rows_default as u32,
            page_bytes_default: (self.page_kib_default << 10) as u32,
            mutation_bytes_max: (self.mutation_mib_max << 20) as usize,
        }
    }

    /// How many at once.
    pub fn admission(&self) -> Admission {
        Admission::new(self.requests_in_flight, self.request_mib_in_flight << 20)
    }
}

impl GuardrailsConfig {
    /// What requests are held against.
    pub fn of_requests(&self) -> Guardrails {
        Guardrails {
            value_bytes_warn: self.value_kib_warn << 10,
            value_bytes_max: self.value_kib_max << 10,
            row_bytes_warn: self.row_kib_warn << 10,
            row_bytes_max: self.row_kib_max << 10,
            key_bytes_warn: self.key_bytes_warn,
            partition_bytes_warn: self.partition_mib_warn << 20,
            partition_rows_warn: self.partition_rows_warn,
            tombstones_warn: self.tombstones_warn,
            tombstones_max: self.tombstones_max,
            ranges_max: self.ranges_max,
            batch_mutations_warn: self.batch_mutations_warn,
            batch_mutations_max: self.batch_mutations_max,
            batch_bytes_warn: self.batch_kib_warn << 10,
            tables_max: self.tables_max,
            tables_per_keyspace_max: self.tables_per_keyspace_max,
            columns_max: self.columns_max,
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        })
    }
}
