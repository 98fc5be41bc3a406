//! The other nodes of the cluster: who is alive, how far their metadata is, and the streams to them.
//!
//! ```text
//!   lane 0 ──Link──► peer 2       a stream from each lane to each peer: operations out, replies back
//!   lane 0 ──Link──► peer 3       (peers have streams of their own for what they ask of us: serve.rs)
//! ```
//!
//! A link sends whatever is queued in one message each time it can write, and never waits for more. Its queue is bounded
//! in bytes: a slow peer is answered "overloaded" and does not hold up the others.

mod link;
mod pulse;
mod queue;
mod rpc;
mod serve;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::sync::watch;
use trefoil::liveness::{Heartbeat, LinkId, Liveness, OwnClock, View};
use trefoil::metadata::Epoch;
use trefoil::model::NodeId;
use trefoil::ring::Ring;
use trefoil_proto::v1;

use crate::clock;

pub use link::{Link, LinkEvents, run_link};
pub use queue::{ITEM_BYTES_MAX, OutgoingReplies, ReplyQueue};
pub use rpc::{Caller, PeerClient};
pub use serve::{PeerEvents, PeerService};

/// The oldest protocol between nodes that this build speaks.
pub const PROTOCOL_MIN: u32 = 1;
/// The newest.
pub const PROTOCOL_MAX: u32 = 1;

/// What is known of the other nodes, shared by all lanes.
pub struct Peers {
    own: NodeId,
    liveness: Mutex<Liveness>,
    alive: ArcSwap<BTreeSet<NodeId>>,
    own_clock: AtomicI64,
    epochs: Mutex<BTreeMap<NodeId, Epoch>>,
    /// Rises whenever a peer comes, goes or tells a new epoch.
    changes: watch::Sender<u64>,
}

impl Peers {
    /// Nobody is known yet.
    pub fn new(own: NodeId) -> Peers {
        Peers {
            own,
            liveness: Mutex::default(),
            alive: ArcSwap::from_pointee(BTreeSet::from([own])),
            own_clock: AtomicI64::new(0),
            epochs: Mutex::default(),
            changes: watch::channel(0).0,
        }
    }

    /// The nodes that requests may be sent to, this one included.
    pub fn alive(&self) -> Guard<Arc<BTreeSet<NodeId>>> {
        self.alive.load()
    }

    /// Told whenever a peer comes, goes or tells a new metadata epoch.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The newest metadata epoch a peer has told.
    pub fn epoch_of(&self, node: NodeId) -> Option<Epoch> {
        self.epochs.lock().get(&node).copied()
    }

    /// Nodes of `ring` that are alive and have not applied `epoch`, as far as they have told.
    pub fn behind(&self, ring: &Ring, epoch: Epoch) -> Vec<NodeId> {
        let alive = self.alive.load();
        let epochs = self.epochs.lock();
        ring.nodes()
            .map(|node| node.id)
            .filter(|id| *id != self.own && alive.contains(id))
            .filter(|id| epochs.get(id).is_none_or(|known| *known < epoch))
            .collect()
    }

    /// A handshake with `node` was completed on a new link.
    pub fn connected(&self, node: NodeId) -> LinkId {
        let id = self.liveness.lock().connected(node, clock::now());
        self.refresh();
        id
    }

    /// A link to `node` broke.
    pub fn disconnected(&self, node: NodeId, link: LinkId, reason: String) {
        self.liveness.lock().disconnected(node, link, reason);
        self.refresh();
    }

    /// No link to `node` can be made.
    pub fn refused(&self, node: NodeId, reason: String) {
        self.liveness.lock().refused(node, reason);
    }

    /// Something came from `node` over a link.
    pub fn heard(&self, node: NodeId, link: LinkId) {
        self.liveness.lock().heard(node, link, clock::now());
    }

    /// A heartbeat came from `node` over a link.
    pub fn heartbeat(&self, node: NodeId, link: LinkId, heartbeat: Heartbeat) {
        self.liveness.lock().heartbeat(node, link, heartbeat, clock::now());
    }

    /// Why a link must be given up, if it must.
    pub fn fault(&self, node: NodeId, link: LinkId) -> Option<String> {
        self.liveness.lock().fault(node, link, clock::now())
    }

    /// The others, as this node sees them.
    pub fn views(&self) -> Vec<View> {
        self.liveness.lock().views(clock::now()).collect()
    }

    /// How far the own clock is ahead of what a majority of the nodes says, in microseconds, if it is off.
    pub fn own_clock_off(&self) -> Option<i64> {
        Some(self.own_clock.load(Ordering::Relaxed)).filter(|off| *off != 0)
    }

    /// Now by the clocks of the majority: by the own one unless that is off.
    pub fn wall_us(&self) -> i64 {
        clock::wall_us().saturating_sub(self.own_clock.load(Ordering::Relaxed))
    }

    /// `node` has told that it has applied the metadata up to `epoch`.
    pub fn told(&self, node: NodeId, epoch: Epoch) {
        let mut epochs = self.epochs.lock();
        let known = epochs.entry(node).or_default();
        if *known < epoch {
            *known = epoch;
            drop(epochs);
            self.changes.send_modify(|version| *version += 1);
        }
    }

    /// Looks again who is alive; called a few times a second, since silence is not an event.
    pub fn refresh(&self) {
        let (alive, own_clock) = {
            let mut liveness = self.liveness.lock();
            let alive = liveness.refresh(clock::now());
            (alive.into_iter().chain([self.own]).collect::<BTreeSet<NodeId>>(), liveness.own_clock())
        };
        self.note_clock(own_clock);
        if **self.alive.load() != alive {
            tracing::info!(alive = ?alive.iter().map(|node| node.0).collect::<Vec<_>>(), "the nodes seen alive changed");
            self.alive.store(Arc::new(alive));
            self.changes.send_modify(|version| *version += 1);
        }
    }
}

impl Peers {
    fn note_clock(&self, own_clock: OwnClock) {
        let off_us = match own_clock {
            OwnClock::Right => 0,
            OwnClock::Off(off_us) => off_us,
        };
        let before = self.own_clock.swap(off_us, Ordering::Relaxed);
        match (before, off_us) {
            (0, 0) => {}
            (0, _) => tracing::error!(
                ahead_ms = off_us / 1_000,
                "this node's clock is off, says a majority of the nodes: it coordinates no writes until it is right"
            ),
            (_, 0) => tracing::info!("this node's clock is right again"),
            _ => {}
        }
    }
}

/// An epoch as it is sent.
pub fn epoch_to_proto(epoch: Epoch) -> v1::Epoch {
    v1::Epoch { generation: epoch.generation, index: epoch.index }
}

/// An epoch as it was sent.
pub fn epoch_from_proto(epoch: &v1::Epoch) -> Epoch {
    Epoch { generation: epoch.generation, index: epoch.index }
}
