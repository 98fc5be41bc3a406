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
mod queue;
mod rpc;
mod serve;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::sync::watch;
use trefoil::liveness::Liveness;
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

    /// A handshake with `node` was completed on one more link.
    pub fn connected(&self, node: NodeId) {
        self.liveness.lock().connected(node, clock::now());
        self.refresh();
    }

    /// A link to `node` broke.
    pub fn disconnected(&self, node: NodeId) {
        self.liveness.lock().disconnected(node);
        self.refresh();
    }

    /// Something came from `node` over a link.
    pub fn heard(&self, node: NodeId) {
        self.liveness.lock().heard(node, clock::now());
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
        let now = clock::now();
        let alive: BTreeSet<NodeId> = {
            let liveness = self.liveness.lock();
            liveness.connected_nodes().filter(|node| liveness.is_alive(*node, now)).chain([self.own]).collect()
        };
        if **self.alive.load() != alive {
            tracing::info!(alive = ?alive.iter().map(|node| node.0).collect::<Vec<_>>(), "the nodes seen alive changed");
            self.alive.store(Arc::new(alive));
            self.changes.send_modify(|version| *version += 1);
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
