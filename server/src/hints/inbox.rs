//! What waits for the thread of the hints.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;
use trefoil::hints::delivery::Outcome;
use trefoil::hints::{Hint, Place};
use trefoil::model::NodeId;

use super::{Action, TargetStatus};

/// What a hint takes in memory beside its record.
const OVERHEAD_BYTES: usize = 96;

/// What an operator wants, and whom to tell.
pub(super) struct Wanted {
    pub(super) action: Action,
    pub(super) target: Option<NodeId>,
    pub(super) answer: oneshot::Sender<BTreeMap<NodeId, TargetStatus>>,
}

/// Everything that waits.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) hints: Vec<(NodeId, Hint)>,
    pub(super) outcomes: Vec<(NodeId, Place, Outcome)>,
    pub(super) wanted: Vec<Wanted>,
    pub(super) is_closed: bool,
    bytes: usize,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.hints.is_empty() && self.outcomes.is_empty() && self.wanted.is_empty()
    }
}

/// Bounded in the bytes of hints; outcomes are bounded by the windows of what was sent.
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    ready: Condvar,
    bytes_max: usize,
    refused: AtomicU64,
}

impl Inbox {
    pub(super) fn new(bytes_max: usize) -> Inbox {
        Inbox { waiting: Mutex::default(), ready: Condvar::new(), bytes_max, refused: AtomicU64::new(0) }
    }

    pub(super) fn push_hint(&self, target: NodeId, hint: Hint) {
        let size = OVERHEAD_BYTES + hint.record.len();
        let mut waiting = self.waiting.lock();
        if waiting.is_closed || waiting.bytes + size > self.bytes_max {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes += size;
        waiting.hints.push((target, hint));
        self.ready.notify_one();
    }

    pub(super) fn push_outcome(&self, target: NodeId, place: Place, outcome: Outcome) {
        self.waiting.lock().outcomes.push((target, place, outcome));
        self.ready.notify_one();
    }

    pub(super) fn push_wanted(&self, wanted: Wanted) {
        let mut waiting = self.waiting.lock();
        // What is dropped unanswered tells its asker that nobody is there.
        if !waiting.is_closed {
            waiting.wanted.push(wanted);
            self.ready.notify_one();
        }
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.ready.notify_one();
    }

    /// Everything that waits; waits itself at most `patience` for the first.
    pub(super) fn take(&self, patience: Duration) -> Waiting {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() && !waiting.is_closed {
            self.ready.wait_for(&mut waiting, patience);
        }
        let is_closed = waiting.is_closed;
        let taken = std::mem::take(&mut *waiting);
        waiting.is_closed = is_closed;
        Waiting { is_closed, ..taken }
    }
}
