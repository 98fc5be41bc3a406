//! Sees a restore through: orders every node to load its share, and opens the tables once all have.
//!
//! ```text
//!   RestoreBegun in the metadata ─► the lowest node that is seen alive drives
//!        every node: begin, or go on ─► look ─► all done ─► Restored
//!                     ▲   └─ stopped: again after a pause ─┘
//!        RestoreGivenUp in the metadata ─► every node: end
//! ```
//!
//! Nothing is kept here: what is to be done stands in the metadata, what is done on the nodes. So whoever drives may stop at any
//! moment and another goes on; that two of them drive at a time does no harm, since beginning what is begun does nothing.
//!
//! **Invariant:** a restore ends only after every node of the ring has said, in one round, that its share is loaded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use prost::Message;
use trefoil::metadata::{ClusterState, Entry};
use trefoil::model::{Instant, NodeId};
use trefoil_proto::v1;
use trefoil_proto::v1::RestoreShareState as State;
use uuid::Uuid;

use crate::clock;
use crate::service::Control;

/// From one look to the next: a small table is open as soon as it is loaded.
const LOOK: Duration = Duration::from_millis(200);

/// How long the metadata log may take.
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// After how long a node that stopped is ordered to go on: at once where that may help, later where something must be mended first.
const AGAIN: Duration = Duration::from_secs(2);
const AGAIN_DAMAGED: Duration = Duration::from_secs(30);

/// Drives what is to be driven, for as long as the node runs.
pub async fn run(control: Arc<Control>) {
    let mut driver = Driver { control, ordered: BTreeMap::new(), ended: BTreeMap::new() };
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        driver.step().await;
    }
}

struct Driver {
    control: Arc<Control>,
    /// When each node was last ordered to begin or go on.
    ordered: BTreeMap<(Uuid, NodeId), Instant>,
    /// Restores that were under way when it was last looked, and the nodes that are still to be told of their end.
    ended: BTreeMap<Uuid, Vec<NodeId>>,
}

impl Driver {
    async fn step(&mut self) {
        let state = self.control.state();
        let nodes: Vec<NodeId> = state.ring().nodes().map(|node| node.id).collect();
        self.end(&state).await;
        if !self.control.is_lowest_alive() {
            return;
        }
        for (restore, known) in state.restores() {
            self.ended.insert(*restore, nodes.clone());
            let Ok(v1::RestoreRecord { order: Some(order), .. }) = v1::RestoreRecord::decode(known.plan.clone()) else {
                tracing::error!(%restore, "the plan of a restore does not read; cancel it");
                continue;
            };
            if self.load(*restore, &order, &nodes).await {
                self.finish(*restore).await;
            }
        }
    }

    /// One round; whether every node has loaded its share.
    async fn load(&mut self, restore: Uuid, order: &v1::RestoreOrder, nodes: &[NodeId]) -> bool {
        let looks = nodes.iter().map(|node| self.control.share(*node, call(restore, v1::RestoreAction::Look, None)));
        let shares = join_all(looks).await;
        let mut are_done = true;
        for (node, share) in nodes.iter().zip(shares) {
            let is_done = match share {
                Ok(share) if share.state() == State::Done => true,
                Ok(share) if share.state() == State::Running => false,
                Ok(share) => {
                    self.order(restore, *node, &share, order).await;
                    false
                }
                Err(error) => {
                    tracing::debug!(%restore, node = node.0, error, "a node does not say how far it is with a restore");
                    false
                }
            };
            are_done &= is_done;
        }
        are_done
    }

    /// Has a node begin or go on, unless it was ordered to a moment ago.
    async fn order(&mut self, restore: Uuid, node: NodeId, share: &v1::RestoreShare, order: &v1::RestoreOrder) {
        let pause = match (share.state(), share.retry) {
            (State::Stopped, true) => AGAIN,
            (State::Stopped, false) => AGAIN_DAMAGED,
            _ => Duration::ZERO,
        };
        let last = self.ordered.get(&(restore, node));
        if last.is_some_and(|last| clock::now().since_us(*last) < pause.as_micros() as u64) {
            return;
        }
        if !share.error.is_empty() {
            tracing::warn!(%restore, node = node.0, error = share.error, "a node goes on with a restore that stopped there");
        }
        self.ordered.insert((restore, node), clock::now());
        let begun = self.control.share(node, call(restore, v1::RestoreAction::Begin, Some(order.clone()))).await;
        if let Err(error) = begun {
            tracing::warn!(%restore, node = node.0, error, "a node does not begin its share of a restore");
        }
    }

    async fn finish(&mut self, restore: Uuid) {
        match self.control.log().propose(Entry::Restored(restore), PROPOSE_TIMEOUT).await {
            Ok(_) => tracing::info!(%restore, "a restore is done: its tables are open"),
            Err(error) => {
                tracing::warn!(%restore, %error, "a restore is done, but the metadata log did not take it yet")
            }
        }
    }

    /// Tells the nodes of restores that are over.
    async fn end(&mut self, state: &ClusterState) {
        let over: Vec<Uuid> =
            self.ended.keys().filter(|restore| !state.restores().contains_key(restore)).copied().collect();
        for restore in over {
            let nodes = self.ended.remove(&restore).unwrap_or_default();
            let ends = nodes.iter().map(|node| self.control.share(*node, call(restore, v1::RestoreAction::End, None)));
            let told = join_all(ends).await;
            let silent: Vec<NodeId> =
                nodes.iter().zip(told).filter(|(_, told)| told.is_err()).map(|(node, _)| *node).collect();
            self.ordered.retain(|(of, _), _| *of != restore);
            let is_there = |node: &NodeId| state.ring().node(*node).is_some();
            if silent.iter().any(is_there) {
                self.ended.insert(restore, silent);
            }
        }
    }
}

/// What a node is asked about its share.
pub(crate) fn call(restore: Uuid, action: v1::RestoreAction, order: Option<v1::RestoreOrder>) -> v1::RestoreCall {
    v1::RestoreCall { restore: Bytes::copy_from_slice(restore.as_bytes()), action: action.into(), order }
}

impl Control {
    /// Whether no other node that is seen alive has a lower number.
    fn is_lowest_alive(&self) -> bool {
        let own = self.shared().identity.node;
        self.shared().peers.alive().iter().all(|node| *node >= own)
    }
}
