//! How the archive of a node stands.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Archive;
use crate::clock;

/// So many pieces of the log may be missing before that is told.
const PIECES_BEHIND_MAX: u32 = 3;

/// How the archive of a node stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// How old the newest mutation may be that a loss of the cluster now would cost; none: the bucket was not reached yet.
    pub rpo: Option<Duration>,
    /// More than this is too much.
    pub rpo_max: Duration,
    /// Age of the newest complete backup that is known here.
    pub newest_age: Option<Duration>,
    /// Files that are not in the bucket yet.
    pub files_waiting: u64,
    /// What did not go to the bucket when it was tried last, and why.
    pub troubles: Vec<String>,
    /// Stretches of the log that went before they were archived, since the start.
    pub gaps: u64,
}

impl Standing {
    /// Whether a loss would cost more than is meant.
    pub fn is_behind(&self) -> bool {
        self.rpo.is_some_and(|rpo| rpo > self.rpo_max)
    }
}

impl Archive {
    /// How it stands.
    pub fn standing(&self) -> Standing {
        let now_us = clock::wall_us();
        let since = |us: i64| Duration::from_micros(now_us.saturating_sub(us).max(0) as u64);
        let told = self.end().map(|end| end.told).filter(|told| told.0 > 0);
        Standing {
            rpo: told.map(|told| since(told.0)),
            rpo_max: self.rpo_max(),
            newest_age: self.newest.lock().map(|(_, cut)| since(cut.0)),
            files_waiting: self.files_waiting.load(Ordering::Relaxed),
            troubles: self.troubles.lock().iter().map(|(what, error)| format!("{what}: {error}")).collect(),
            gaps: self.counts.gaps.load(Ordering::Relaxed),
        }
    }

    /// So old may be what a loss would cost: what is not closed yet, and some pieces of the log.
    pub fn rpo_max(&self) -> Duration {
        self.settings.closed_behind + self.settings.log_every * PIECES_BEHIND_MAX
    }
}
