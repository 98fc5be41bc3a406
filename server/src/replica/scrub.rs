//! The thread that reads files which nobody asks for, slowly, so that damage is found before a read needs them.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use trefoil::Error;
use trefoil::compaction::{Pace, Proceed};
use trefoil::store::{ScrubStatus, Store};

use super::background::{AFTER_FAILURE, Background, Hear};
use crate::clock;

/// How often it is looked whether a file's turn has come.
const LOOK: Duration = Duration::from_secs(5);

/// How often files are read, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubSettings {
    /// Each file is read once in so many seconds; 0: none is.
    pub period_s: i64,
    /// Bytes that are read in a second, at most.
    pub bytes_per_s: u64,
}

/// What the thread has in common with whoever stops or asks it.
pub(super) struct Scrubber {
    settings: ScrubSettings,
    store: Arc<Store>,
    background: Background,
}

impl Scrubber {
    pub(super) fn new(settings: ScrubSettings, store: Arc<Store>) -> Arc<Scrubber> {
        Arc::new(Scrubber { settings, store, background: Background::default() })
    }

    /// Starts the thread, if it is to do anything.
    pub(super) fn start(self: &Arc<Scrubber>) -> std::io::Result<Option<JoinHandle<()>>> {
        if self.settings.period_s == 0 {
            return Ok(None);
        }
        let scrubber = self.clone();
        std::thread::Builder::new().name("scrub".to_owned()).spawn(move || scrubber.run()).map(Some)
    }

    pub(super) fn close(&self) {
        self.background.close();
    }

    pub(super) fn status(&self) -> ScrubStatus {
        match self.settings.period_s {
            0 => ScrubStatus::default(),
            period_s => self.store.scrub_status(now_s(), period_s),
        }
    }

    fn run(&self) {
        let mut pause = Duration::ZERO;
        while self.background.wait(pause, Hear::Nothing) {
            pause = match self.store.scrub_next(now_s(), self.settings.period_s, self) {
                Ok(true) => Duration::ZERO,
                Ok(false) | Err(Error::Stopped) => LOOK,
                Err(error) => {
                    tracing::error!(%error, "a file could not be read to see whether it is whole; its turn comes again");
                    AFTER_FAILURE
                }
            };
        }
    }
}

impl Pace for Scrubber {
    /// Waits as long as the bytes may take at the rate, whatever the reading took.
    fn spend(&self, bytes: u64) -> Proceed {
        let micros = u128::from(bytes) * 1_000_000 / u128::from(self.settings.bytes_per_s.max(1));
        let pause = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        if self.background.wait(pause, Hear::Nothing) { Proceed::On } else { Proceed::Stop }
    }
}

/// The present second.
fn now_s() -> i64 {
    clock::wall_us().div_euclid(1_000_000)
}
