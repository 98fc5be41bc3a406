//! The thread that flushes memtables and compacts files.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use trefoil::store::Store;

/// How long to wait before looking again when there was nothing to do: compaction is noticed by looking.
const IDLE: Duration = Duration::from_secs(1);

/// How long to wait after a failure: a full disk is not cured by trying hard.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Wakes and ends the thread.
#[derive(Default)]
pub(super) struct Background {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    woken: bool,
    closed: bool,
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

    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.ready.notify_one();
    }

    /// Waits to be woken, at most `patience`; `false` once closed.
    fn wait(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.woken && !state.closed {
            self.ready.wait_for(&mut state, patience);
        }
        state.woken = false;
        !state.closed
    }
}

pub(super) fn start(background: Arc<Background>, store: Arc<Store>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("background".to_owned()).spawn(move || {
        let mut patience = IDLE;
        while background.wait(patience) {
            patience = match work(&store) {
                Ok(()) => IDLE,
                Err(error) => {
                    tracing::error!(%error, "flush or compaction failed; it is tried again");
                    AFTER_FAILURE
                }
            };
        }
    })
}

fn work(store: &Store) -> Result<(), trefoil::Error> {
    while store.wants_flush() && store.flush_next()? {}
    while !store.wants_flush() && store.compact_next()? {}
    Ok(())
}
