//! How much is measured.

use std::time::Duration;

/// Sizes of a run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Everything that is compared is measured so many times, in turn.
    pub rounds: usize,
    /// Time in which nothing is counted, before each window.
    pub warm_up: Duration,
    /// Time in which echoes are counted.
    pub echo_window: Duration,
    /// Calls in flight at which gRPC is measured.
    pub echo_in_flight: &'static [usize],
    /// Records of the log, rows of the memtable and of the store.
    pub rows: u64,
    /// Records of the log where each group is synced.
    pub synced_records: usize,
    /// Time in which nothing is counted, before each window of a cluster.
    pub cluster_warm_up: Duration,
    /// Time in which operations of a cluster are counted.
    pub cluster_window: Duration,
}

impl Plan {
    /// The run whose figures count: about four minutes.
    pub fn full() -> Plan {
        Plan {
            rounds: 3,
            warm_up: Duration::from_millis(150),
            echo_window: Duration::from_millis(700),
            echo_in_flight: &[1, 16, 64, 256, 1024],
            rows: 400_000,
            synced_records: 20_000,
            cluster_warm_up: Duration::from_millis(500),
            cluster_window: Duration::from_millis(2_000),
        }
    }

    /// A look whether everything runs: half a minute.
    pub fn short() -> Plan {
        Plan {
            rounds: 1,
            warm_up: Duration::from_millis(50),
            echo_window: Duration::from_millis(200),
            echo_in_flight: &[1, 256],
            rows: 40_000,
            synced_records: 3_000,
            cluster_warm_up: Duration::from_millis(200),
            cluster_window: Duration::from_millis(500),
        }
    }
}
