//! The threads that compact files, and how fast they may.
//!
//! ```text
//! backlog small:  one thread, at the configured rate       backlog grows:  more threads, and so much faster that it would
//!                                                                          be worked off within a minute
//! ```
//!
//! A compaction asks here as it reads: it is made to wait where it is faster than the rate, and told to stop when the node
//! does. What is stopped has had no effect.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use trefoil::Error;
use trefoil::compaction::{Pace, Proceed};
use trefoil::model::TableId;
use trefoil::store::Store;

use super::background::{AFTER_FAILURE, Background, Hear, IDLE};
use crate::clock;

/// The rate rises so far that the backlog would be read within this time.
const WORKED_OFF_S: u64 = 60;

/// A thread more works for each so many seconds of backlog at the configured rate.
const SECONDS_PER_THREAD: u64 = 10;

/// What was not used of the rate may be used later, for as long as this, in microseconds.
const SAVED_US: u64 = 1_000_000;

/// The backlog is looked at so seldom, in microseconds: it concerns all files of all tables.
const LOOK_US: u64 = 1_000_000;

/// How many threads compact, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionSettings {
    /// Threads at most.
    pub threads: usize,
    /// Bytes that all of them read in a second, unless the backlog is large.
    pub bytes_per_s: u64,
}

/// What the threads have in common.
pub(super) struct Pool {
    settings: CompactionSettings,
    store: Arc<Store>,
    background: Background,
    state: Mutex<State>,
    /// Tables that somebody wants to be compacted whole.
    requested: Mutex<VecDeque<TableId>>,
}

#[derive(Default)]
struct State {
    /// When what was spent so far is made up for, on the monotonic clock in microseconds.
    even_at_us: u64,
    backlog_bytes: u64,
    looked_at_us: Option<u64>,
}

impl Pool {
    pub(super) fn new(settings: CompactionSettings, store: Arc<Store>) -> Arc<Pool> {
        let (state, requested) = (Mutex::default(), Mutex::default());
        Arc::new(Pool { settings, store, background: Background::default(), state, requested })
    }

    pub(super) fn start(self: &Arc<Pool>) -> std::io::Result<Vec<JoinHandle<()>>> {
        let thread = |number: usize| {
            let pool = self.clone();
            std::thread::Builder::new().name("compaction".to_owned()).spawn(move || pool.run(number))
        };
        (0..self.settings.threads).map(thread).collect()
    }

    /// A table is to be compacted whole, by whichever thread has time first.
    pub(super) fn request(&self, table: TableId) {
        let mut requested = self.requested.lock();
        if !requested.contains(&table) {
            requested.push_back(table);
        }
        drop(requested);
        self.background.wake();
    }

    pub(super) fn close(&self) {
        self.background.close();
    }

    fn run(&self, number: usize) {
        let mut pause = (IDLE, Hear::Calls);
        while self.background.wait(pause.0, pause.1) {
            pause = match self.work(number) {
                Ok(()) | Err(Error::Stopped) => (IDLE, Hear::Calls),
                Err(error) => {
                    tracing::error!(%error, "a compaction failed; others go on, it is tried again later");
                    (AFTER_FAILURE, Hear::Nothing)
                }
            };
        }
    }

    fn work(&self, number: usize) -> Result<(), Error> {
        while !self.background.is_closed() {
            let requested = self.requested.lock().pop_front();
            if let Some(table) = requested {
                self.store.compact_table(table, now_s(), self)?;
            } else if !self.is_wanted(number) || !self.store.compact_next(now_s(), self)? {
                break;
            }
        }
        Ok(())
    }

    /// Whether so many threads are of use.
    fn is_wanted(&self, number: usize) -> bool {
        let of_others = self.settings.bytes_per_s.saturating_mul(SECONDS_PER_THREAD).saturating_mul(number as u64);
        number == 0 || self.backlog_bytes() > of_others
    }

    fn backlog_bytes(&self) -> u64 {
        let now_us = clock::now().0;
        let mut state = self.state.lock();
        if state.looked_at_us.is_none_or(|looked_at_us| now_us >= looked_at_us + LOOK_US) {
            state.looked_at_us = Some(now_us);
            // Whoever asks meanwhile makes do with what was seen last.
            drop(state);
            let backlog_bytes = self.store.compaction_backlog_bytes(now_s());
            state = self.state.lock();
            state.backlog_bytes = backlog_bytes;
        }
        state.backlog_bytes
    }

    /// Takes so many bytes off the rate; when that is made up for.
    fn charge(&self, bytes: u64) -> u64 {
        let bytes_per_s = self.settings.bytes_per_s.max(self.backlog_bytes() / WORKED_OFF_S).max(1);
        let cost_us = u64::try_from(u128::from(bytes) * 1_000_000 / u128::from(bytes_per_s)).unwrap_or(u64::MAX);
        let now_us = clock::now().0;
        let mut state = self.state.lock();
        state.even_at_us = state.even_at_us.max(now_us.saturating_sub(SAVED_US)).saturating_add(cost_us);
        state.even_at_us
    }
}

impl Pace for Pool {
    fn spend(&self, bytes: u64) -> Proceed {
        let even_at_us = if bytes > 0 { self.charge(bytes) } else { 0 };
        let left = Duration::from_micros(even_at_us.saturating_sub(clock::now().0));
        let goes_on =
            if left.is_zero() { !self.background.is_closed() } else { self.background.wait(left, Hear::Nothing) };
        if goes_on { Proceed::On } else { Proceed::Stop }
    }
}

/// The present second.
fn now_s() -> i64 {
    clock::wall_us().div_euclid(1_000_000)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use trefoil::model::{Identity, NodeId, VnodeBits};
    use trefoil::store::StoreOptions;
    use trefoil::vfs::memory::MemoryVfs;

    use super::*;

    fn pool(bytes_per_s: u64) -> Arc<Pool> {
        let options = StoreOptions {
            directory: "/node".into(),
            segment_bytes: 1 << 20,
            log_kept_bytes_max: 0,
            memtable_budget_bytes: 1 << 20,
            cache_bytes: 1 << 20,
            snapshots: Default::default(),
        };
        let identity =
            Identity { cluster: uuid::Uuid::from_u128(1), node: NodeId(1), vnode_bits: VnodeBits::new(1).unwrap() };
        let store = Arc::new(Store::open(Arc::new(MemoryVfs::new()), options, identity, &[]).unwrap());
        Pool::new(CompactionSettings { threads: 2, bytes_per_s }, store)
    }

    #[test]
    fn what_is_read_is_charged_to_the_rate_and_a_backlog_raises_it() {
        let pool = pool(1 << 20);
        let begin = clock::now().0;
        // A second of what came before may be free, the next four are not.
        let even = pool.charge(5 << 20);
        assert!((4_000_000..=5_100_000).contains(&(even - begin)), "{}", even - begin);
        pool.state.lock().backlog_bytes = 600 << 20;
        pool.state.lock().looked_at_us = Some(u64::MAX - LOOK_US);
        let faster = pool.charge(10 << 20) - even;
        assert_eq!(faster, 1_000_000, "ten MiB a second are asked by what waits");
        assert!(pool.is_wanted(0) && pool.is_wanted(1) && !pool.is_wanted(60));
    }

    #[test]
    fn one_that_waits_is_stopped_at_once() {
        let pool = pool(1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.spend(1_000_000));
            pool.close();
            assert_eq!(waiting.join().unwrap(), Proceed::Stop);
        });
        assert_eq!(pool.spend(0), Proceed::Stop);
    }
}
