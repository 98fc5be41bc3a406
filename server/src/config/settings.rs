//! The numbers among the settings: what each means, its range, its default; and the settings of a file that says no more
//! than it must.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::available_parallelism;

use tracing::Level;

use super::{
    ClusterConfig, CompactionConfig, Config, GuardrailsConfig, HintsConfig, LimitsConfig, LogConfig, LogFormat,
    NodeConfig, ReplicationConfig, ScrubConfig, SnapshotsConfig, StorageConfig,
};

/// A setting that is a whole number. The name ends in its unit.
pub(super) struct Number {
    /// Its name within its section.
    pub key: &'static str,
    /// The least it can be.
    pub min: u64,
    /// The most it can be.
    pub max: u64,
    /// What it is unless the file says otherwise.
    pub default: u64,
    /// What it means, for the commented file.
    pub about: &'static str,
}

pub(super) const fn number(key: &'static str, min: u64, max: u64, default: u64, about: &'static str) -> Number {
    Number { key, min, max, default, about }
}

// More than twice the largest message of 20 MiB, so that no record needs more than half a segment.
pub(super) const SEGMENT_MIB: Number = number("segment_mib", 48, 1_024, 64, "size of a commit log segment");
pub(super) const LOG_KEPT_MIB: Number = number(
    "log_kept_mib",
    0,
    1 << 24,
    10 << 10,
    "commit log that is kept because other replicas lack writes in it, or the backup lacks it; the oldest goes first",
);
pub(super) const MEMTABLE_MIB: Number =
    number("memtable_mib", 8, 1 << 20, 256, "memory of all memtables; at half of it flushing begins");
pub(super) const CACHE_MIB: Number = number("cache_mib", 8, 1 << 20, 256, "memory for decoded blocks of SSTables");

pub(super) const MIB_PER_S: Number = number(
    "mib_per_s",
    1,
    1 << 20,
    64,
    "read in a second; faster where that would not work off what waits in a minute",
);

pub(super) const REPORT_MS: Number =
    number("report_ms", 100, 60_000, 1_000, "milliseconds from one report of what a replica has to the next");
pub(super) const CLOSED_BEHIND_S: Number = number(
    "closed_behind_s",
    1,
    3_600,
    60,
    "seconds after which a write that no replica has is refused; before it is raised stop the node for as long",
);
pub(super) const PURGE_AFTER_S: Number = number(
    "purge_after_s",
    1,
    1 << 20,
    600,
    "seconds for which all replicas must have held a deletion before it may go; less only in tests",
);
pub(super) const FETCH_MIB_PER_S: Number =
    number("fetch_mib_per_s", 1, 1 << 20, 16, "fetched in a second of what others have and this node lacks");

/// How many threads compact: half of the cores, but two, since one can be at a large compaction for long.
pub(super) fn threads() -> Number {
    let cores = available_parallelism().map_or(1, usize::from);
    let default = (cores / 2).clamp(2, 8) as u64;
    number(
        "threads",
        1,
        64,
        default,
        "threads at most, more than one only where much waits; default: half of the cores, 2 to 8",
    )
}

pub(super) const SCRUB_EVERY_DAYS: Number = number(
    "every_days",
    0,
    3_650,
    30,
    "each file is read again once in so many days and compared with its hash; 0 is never",
);
pub(super) const SCRUB_MIB_PER_S: Number = number("mib_per_s", 1, 1 << 20, 4, "read in a second, at most");

pub(super) const DROPPED_KEPT_DAYS: Number = number("dropped_kept_days", 1, 3_650, 7, "so long such a snapshot stays");
pub(super) const DROPPED_KEPT_MOST: Number =
    number("dropped_kept_most", 1, 10_000, 100, "so many of them stay; of more the oldest goes, however young");

pub(super) const REQUESTS_IN_FLIGHT: Number =
    number("requests_in_flight", 16, 1_000_000, 16_384, "requests of clients at once; more are refused");
pub(super) const REQUEST_MIB_IN_FLIGHT: Number =
    number("request_mib_in_flight", 20, 1 << 16, 256, "their size together; more are refused");
pub(super) const TIMEOUT_DEFAULT_MS: Number =
    number("timeout_default_ms", 10, 600_000, 5_000, "deadline of requests that bring none");
pub(super) const TIMEOUT_MAX_MS: Number =
    number("timeout_max_ms", 10, 600_000, 60_000, "no request takes longer, whatever it asks");
pub(super) const PAGE_ROWS_DEFAULT: Number =
    number("page_rows_default", 1, 100_000, 5_000, "rows of a page that names no number");
// A page holds at least one row, whose cells may together be as large as a mutation.
pub(super) const PAGE_KIB_DEFAULT: Number =
    number("page_kib_default", 4, 4_096, 1_024, "size of a page that names none, and the most one may ask");
pub(super) const MUTATION_MIB_MAX: Number = number("mutation_mib_max", 1, 16, 16, "largest mutation of one partition");

pub(super) const HINT_MIB_PER_NODE: Number = number(
    "mib_per_node",
    1,
    1 << 20,
    10_240,
    "disk for the hints for one node; beyond it no more are written, and what the node misses it misses",
);
pub(super) const HINT_WINDOW_S: Number = number(
    "window_s",
    1,
    604_800,
    10_800,
    "no hints are written for a node while the oldest one that it has not got is older",
);
pub(super) const HINT_KEPT_S: Number =
    number("kept_s", 1, 31_536_000, 259_200, "hints that are older are not delivered any more");
pub(super) const HINT_MIB_PER_S: Number =
    number("mib_per_s", 1, 1 << 20, 16, "delivered to one node in a second, at most");
pub(super) const HINT_QUEUE_MIB: Number =
    number("queue_mib", 1, 1_024, 32, "memory for hints that wait to be written; what does not fit is not kept");

pub(super) const VALUE_KIB_WARN: Number =
    number("value_kib_warn", 1, 8192, 1024, "a value above this is written and told of");
pub(super) const VALUE_KIB_MAX: Number = number("value_kib_max", 1, 8192, 8192, "a larger value is refused");
pub(super) const ROW_KIB_WARN: Number =
    number("row_kib_warn", 1, 16_384, 4096, "a row above this is written or answered and told of");
pub(super) const ROW_KIB_MAX: Number =
    number("row_kib_max", 1, 16_384, 16_384, "a row of which one mutation writes more is refused");
pub(super) const KEY_BYTES_WARN: Number = number(
    "key_bytes_warn",
    1,
    65_535,
    4096,
    "a partition or clustering key above this is told of; 65535 are possible",
);
pub(super) const PARTITION_MIB_WARN: Number =
    number("partition_mib_warn", 1, 1_048_576, 128, "a partition above this in one SSTable is told of");
pub(super) const PARTITION_ROWS_WARN: Number =
    number("partition_rows_warn", 1, 1_000_000_000, 500_000, "a partition of more rows in one SSTable is told of");
pub(super) const TOMBSTONES_WARN: Number =
    number("tombstones_warn", 1, 1_000_000_000, 1000, "a page that meets more is told of");
pub(super) const TOMBSTONES_MAX: Number = number(
    "tombstones_max",
    1,
    1_000_000_000,
    100_000,
    "a page that meets more is an error, never less than what was asked for",
);
pub(super) const RANGES_MAX: Number =
    number("ranges_max", 1, 100_000, 1000, "a read of more clustering ranges is refused");
pub(super) const BATCH_MUTATIONS_WARN: Number =
    number("batch_mutations_warn", 1, 1_000_000, 1000, "a batch of more is told of");
pub(super) const BATCH_MUTATIONS_MAX: Number =
    number("batch_mutations_max", 1, 1_000_000, 20_000, "a batch of more is refused");
pub(super) const BATCH_KIB_WARN: Number = number("batch_kib_warn", 1, 20_480, 5120, "a larger batch is told of");
pub(super) const TABLES_MAX: Number =
    number("tables_max", 1, 5000, 1000, "with so many in the cluster no more are made");
pub(super) const TABLES_PER_KEYSPACE_MAX: Number =
    number("tables_per_keyspace_max", 1, 5000, 500, "with so many in a keyspace no more are made in it");
pub(super) const COLUMNS_MAX: Number = number("columns_max", 1, 1000, 500, "a table of more is not made");

/// The setting `node.runtimes`, whose default depends on the machine.
pub(super) fn runtimes() -> Number {
    let cores = available_parallelism().map_or(1, usize::from);
    let default = (cores / 2).clamp(1, 64) as u64;
    number("runtimes", 1, 64, default, "threads that serve requests; default: half of the cores")
}

/// Where a node listens unless its file says otherwise: for clients, for peers, for HTTP.
pub(super) fn addresses() -> [SocketAddr; 3] {
    [9440, 9441, 9442].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

impl Config {
    /// The settings of a member of `cluster` that says no more than it must: `node` has what cannot be left out.
    pub fn of_member(cluster: ClusterConfig, node: NodeConfig) -> Config {
        Config {
            cluster,
            node,
            storage: StorageConfig::default(),
            compaction: CompactionConfig::default(),
            scrub: ScrubConfig::default(),
            replication: ReplicationConfig::default(),
            snapshots: SnapshotsConfig::default(),
            hints: HintsConfig::default(),
            backup: None,
            limits: LimitsConfig::default(),
            guardrails: GuardrailsConfig::default(),
            log: LogConfig::default(),
        }
    }
}

impl Default for StorageConfig {
    fn default() -> StorageConfig {
        StorageConfig {
            segment_mib: SEGMENT_MIB.default,
            log_kept_mib: LOG_KEPT_MIB.default,
            memtable_mib: MEMTABLE_MIB.default,
            cache_mib: CACHE_MIB.default,
        }
    }
}

impl Default for ReplicationConfig {
    fn default() -> ReplicationConfig {
        ReplicationConfig {
            report_ms: REPORT_MS.default,
            closed_behind_s: CLOSED_BEHIND_S.default,
            purge_after_s: PURGE_AFTER_S.default,
            fetch_mib_per_s: FETCH_MIB_PER_S.default,
            start_alone: false,
        }
    }
}

impl Default for CompactionConfig {
    fn default() -> CompactionConfig {
        CompactionConfig { threads: threads().default, mib_per_s: MIB_PER_S.default }
    }
}

impl Default for ScrubConfig {
    fn default() -> ScrubConfig {
        ScrubConfig { every_days: SCRUB_EVERY_DAYS.default, mib_per_s: SCRUB_MIB_PER_S.default }
    }
}

impl Default for SnapshotsConfig {
    fn default() -> SnapshotsConfig {
        SnapshotsConfig {
            before_drop: true,
            dropped_kept_days: DROPPED_KEPT_DAYS.default,
            dropped_kept_most: DROPPED_KEPT_MOST.default,
        }
    }
}

impl Default for HintsConfig {
    fn default() -> HintsConfig {
        HintsConfig {
            mib_per_node: HINT_MIB_PER_NODE.default,
            window_s: HINT_WINDOW_S.default,
            kept_s: HINT_KEPT_S.default,
            mib_per_s: HINT_MIB_PER_S.default,
            queue_mib: HINT_QUEUE_MIB.default,
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> LimitsConfig {
        LimitsConfig {
            requests_in_flight: REQUESTS_IN_FLIGHT.default,
            request_mib_in_flight: REQUEST_MIB_IN_FLIGHT.default,
            timeout_default_ms: TIMEOUT_DEFAULT_MS.default,
            timeout_max_ms: TIMEOUT_MAX_MS.default,
            page_rows_default: PAGE_ROWS_DEFAULT.default,
            page_kib_default: PAGE_KIB_DEFAULT.default,
            mutation_mib_max: MUTATION_MIB_MAX.default,
        }
    }
}

impl Default for GuardrailsConfig {
    fn default() -> GuardrailsConfig {
        GuardrailsConfig {
            value_kib_warn: VALUE_KIB_WARN.default,
            value_kib_max: VALUE_KIB_MAX.default,
            row_kib_warn: ROW_KIB_WARN.default,
            row_kib_max: ROW_KIB_MAX.default,
            key_bytes_warn: KEY_BYTES_WARN.default,
            partition_mib_warn: PARTITION_MIB_WARN.default,
            partition_rows_warn: PARTITION_ROWS_WARN.default,
            tombstones_warn: TOMBSTONES_WARN.default,
            tombstones_max: TOMBSTONES_MAX.default,
            ranges_max: RANGES_MAX.default,
            batch_mutations_warn: BATCH_MUTATIONS_WARN.default,
            batch_mutations_max: BATCH_MUTATIONS_MAX.default,
            batch_kib_warn: BATCH_KIB_WARN.default,
            tables_max: TABLES_MAX.default,
            tables_per_keyspace_max: TABLES_PER_KEYSPACE_MAX.default,
            columns_max: COLUMNS_MAX.default,
        }
    }
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig { level: Level::INFO, format: LogFormat::Text }
    }
}
