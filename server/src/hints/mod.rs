//! Hints as a node keeps and delivers them: one thread around [`trefoil::hints`].
//!
//! ```text
//!   lanes ──keep──► inbox (bounded) ──► hint thread: one log for each node, written, synced once a second
//!   lanes ◄──send (Postman)──            └── one delivery for each node that is seen alive: throttled, in order
//!         ──outcome──────────────────────►  acknowledged: saved, files removed
//! ```
//!
//! Requests never wait for hints: what does not fit in the inbox, or is beyond a bound, or meets a full disk, is counted and
//! gone, and the hole remains until it is found otherwise.

mod inbox;
mod target;
mod thread;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use trefoil::hints::Place;
use trefoil::hints::delivery::Outcome;
use trefoil::model::{Identity, KeyspaceId, NodeId, Vnode};
use trefoil::vfs::Vfs;

use crate::clock;
use inbox::{Inbox, Wanted};

pub use target::TargetStatus;

/// Bounds of hints, from the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HintSettings {
    /// Bytes on disk for each node.
    pub bytes_max: u64,
    /// No hints are written for a node while the oldest one for it is older, in seconds.
    pub window_s: u64,
    /// Hints older than this are not delivered any more, in seconds.
    pub kept_s: u64,
    /// Bytes delivered to one node in a second.
    pub bytes_per_s: u64,
    /// Bytes of hints that may wait in memory for the thread that writes them.
    pub queue_bytes: usize,
}

/// Who carries hints to other nodes.
pub trait Postman: Send + Sync + 'static {
    /// Whether there is a point in sending what `target` has missed.
    fn can_reach(&self, target: NodeId) -> bool;

    /// Sends a hint for `target` to whoever stands in its place today. What becomes of it is told to [`Hints::outcome`], by
    /// some deadline; an error is told at once and not again. Never blocks.
    fn send(&self, target: NodeId, place: Place, hint: &trefoil::hints::Hint) -> Result<(), Outcome>;
}

/// What an operator can ask of hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// To tell of them.
    Tell,
    /// Not to deliver them.
    Pause,
    /// To deliver them again.
    Resume,
    /// To forget them.
    Drop,
}

/// What the thread works on.
pub struct Ground {
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// The directory of all hints.
    pub directory: PathBuf,
    /// Whose they are.
    pub owner: Identity,
    /// Who carries them.
    pub postman: Arc<dyn Postman>,
}

/// The hints that a node keeps for others.
pub struct Hints {
    settings: HintSettings,
    inbox: Inbox,
    told: Mutex<BTreeMap<NodeId, TargetStatus>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Hints {
    /// No hints yet; they gather in memory, within their bound, until [`Hints::start`].
    pub fn new(settings: HintSettings) -> Hints {
        let inbox = Inbox::new(settings.queue_bytes);
        Hints { settings, inbox, told: Mutex::default(), thread: Mutex::default() }
    }

    /// Starts the thread, which takes up what earlier runs have left.
    pub fn start(self: &Arc<Self>, ground: Ground) -> std::io::Result<()> {
        let hints = self.clone();
        let thread = std::thread::Builder::new().name("hints".to_owned()).spawn(move || thread::run(&hints, ground))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Keeps a record for a node that has missed it. Never blocks.
    pub fn keep(&self, target: NodeId, keyspace: KeyspaceId, vnode: Vnode, record: Bytes) {
        let hint = trefoil::hints::Hint { written_at_us: clock::wall_us(), keyspace, vnode, record };
        self.inbox.push_hint(target, hint);
    }

    /// What became of a hint that was sent.
    pub fn outcome(&self, target: NodeId, place: Place, outcome: Outcome) {
        self.inbox.push_outcome(target, place, outcome);
    }

    /// Does something about the hints for `target`, or for all nodes, and tells of them. `None` if the thread has ended.
    pub async fn ask(&self, action: Action, target: Option<NodeId>) -> Option<BTreeMap<NodeId, TargetStatus>> {
        let (answer, answered) = oneshot::channel();
        self.inbox.push_wanted(Wanted { action, target, answer });
        answered.await.ok()
    }

    /// The hints for each node as they were a moment ago.
    pub fn status(&self) -> BTreeMap<NodeId, TargetStatus> {
        self.told.lock().clone()
    }

    /// Hints for which there was no room in memory, since the start.
    pub fn refused_queue(&self) -> u64 {
        self.inbox.refused()
    }

    /// Ends the thread once everything that waits is durable. Blocks.
    pub fn stop(&self) {
        self.inbox.close();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the hints panicked");
        }
    }
}

#[cfg(test)]
mod tests;
