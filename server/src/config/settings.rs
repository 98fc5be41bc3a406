//! The numbers among the settings: what each means, its range, its default; and the settings of a file that says no more
//! than it must.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::available_parallelism;

use tracing::Level;

use super::{ClusterConfig, Config, LimitsConfig, LogConfig, LogFormat, NodeConfig, SnapshotsConfig, StorageConfig};

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

const fn number(key: &'static str, min: u64, max: u64, default: u64, about: &'static str) -> Number {
    Number { key, min, max, default, about }
}

// More than twice the largest message of 20 MiB, so that no record needs more than half a segment.
pub(super) const SEGMENT_MIB: Number = number("segment_mib", 48, 1_024, 64, "size of a commit log segment");
pub(super) const MEMTABLE_MIB: Number =
    number("memtable_mib", 32, 1 << 20, 256, "memory of all memtables; at half of it flushing begins");
pub(super) const CACHE_MIB: Number = number("cache_mib", 8, 1 << 20, 256, "memory for decoded blocks of SSTables");

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
            snapshots: SnapshotsConfig::default(),
            limits: LimitsConfig::default(),
            log: LogConfig::default(),
        }
    }
}

impl Default for StorageConfig {
    fn default() -> StorageConfig {
        StorageConfig {
            segment_mib: SEGMENT_MIB.default,
            memtable_mib: MEMTABLE_MIB.default,
            cache_mib: CACHE_MIB.default,
        }
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

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig { level: Level::INFO, format: LogFormat::Text }
    }
}
