//! The threads that flush memtables and tidy up: one each, since a failure of one must not hold up the other. Those that
//! compact are beside it (`compaction.rs`).

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use trefoil::Error;
use trefoil::store::Store;

use crate::clock;

/// How long to wait before looking again when there was nothing to do: compaction is noticed by looking.
pub(super) const IDLE: Duration = Duration::from_secs(1);

/// How long to wait after a failure: a full disk is not cured by trying hard.
pub(super) const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Whether a call ends a wait. After a failure it does not: every refused write calls, and would make the thread spin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hear {
    Calls,
    Nothing,
}

/// Wakes and ends one of the threads.
#[derive(Default)]
pub(super) struct Background {
    state: Mutex<State>,
    ready: Condvar,
    progress: Condvar,
}

#[derive(Default)]
struct State {
    woken: bool,
    closed: bool,
    /// Of the last attempt.
    failure: Option<Error>,
}

impl Background {
    /// There may be something to flush.
    pub(super) fn wake(&self) {
        let mut state = self.state.lock();
        if !state.woken {
            state.woken = true;
            self.ready.notify_one();
        }
    }

    /// There is something to flush, and the caller cannot go on before: waits until some of it is done, at most `patience`.
    pub(super) fn wake_and_wait(&self, patience: Duration) {
        self.wake();
        let mut state = self.state.lock();
        if !state.closed {
            self.progress.wait_for(&mut state, patience);
        }
    }

    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.ready.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Why the last attempt failed, until one succeeds.
    pub(super) fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }

    fn attempted(&self, outcome: &Result<(), Error>) {
        self.state.lock().failure = outcome.as_ref().err().cloned();
    }

    /// Waits at most `patience`, or until somebody wakes it, unless that is not to be heard; `false` once closed.
    pub(super) fn wait(&self, patience: Duration, hear: Hear) -> bool {
        let until = std::time::Instant::now() + patience;
        let mut state = self.state.lock();
        while !(state.closed || state.woken && hear == Hear::Calls) {
            if self.ready.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.woken = false;
        !state.closed
    }
}

/// What one of the threads does until there is nothing left to do.
pub(super) type Work = fn(&Background, &Store) -> Result<(), Error>;

pub(super) fn start(
    name: &'static str,
    background: Arc<Background>,
    store: Arc<Store>,
    work: Work,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let mut pause = (IDLE, Hear::Calls);
        while background.wait(pause.0, pause.1) {
            let outcome = work(&background, &store);
            background.attempted(&outcome);
            pause = match outcome {
                Ok(()) => (IDLE, Hear::Calls),
                Err(error) => {
                    tracing::error!(%error, "{name} failed; it is tried again");
                    (AFTER_FAILURE, Hear::Nothing)
                }
            };
        }
    })
}

pub(super) fn flush(background: &Background, store: &Store) -> Result<(), Error> {
    let flushed = flush_all(background, store);
    if flushed.as_ref().is_err_and(Error::is_disk_full) {
        store.give_up_kept_log()?;
    }
    flushed
}

fn flush_all(background: &Background, store: &Store) -> Result<(), Error> {
    // Where there is no room for a segment there may be some for a file, which lets segments go.
    let prepared = store.prepare_log();
    // Where too many files wait to be compacted, writers must: memtables fill up, and then they are told so.
    while store.wants_flush() && !store.must_compact(clock::wall_us() / 1_000_000) && store.flush_next()? {
        background.progress.notify_all();
    }
    prepared
}

/// What nobody waits for: the data of tables that are gone goes, and so do snapshots that have had their time.
pub(super) fn tend(_: &Background, store: &Store) -> Result<(), Error> {
    store.save_quarantines()?;
    store.let_go(clock::wall_us())?;
    store.expire_snapshots(clock::wall_us())
}
