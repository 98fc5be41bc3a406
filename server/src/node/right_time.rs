//! Before a node starts its clock: whether the others have the same time.
//!
//! A start makes a ceiling of the clock durable and promises what follows from it, for all later runs too. A clock that is far
//! ahead would leave a node that names nothing, and takes nothing, for as long as it was ahead.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use prost::Message;
use trefoil::liveness::OwnClock;
use trefoil::model::NodeId;
use trefoil::ring::Ring;
use trefoil_proto::v1;

use crate::clock;
use crate::peer_rpc::PeerRpc;

/// How far ahead a clock may be that a node starts with: what it then promises lies in the past all the same.
const AHEAD_MAX_US: i64 = 30_000_000;

/// How long another node may take to tell its time.
const ASK_PATIENCE: Duration = Duration::from_secs(1);

/// How soon they are asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// Waits while most of the nodes say that this one's clock is far ahead. Those that do not answer are not waited for.
pub(super) async fn wait(rpc: &dyn PeerRpc, ring: &Ring, own: NodeId) {
    loop {
        let others: Vec<NodeId> = ring.nodes().map(|node| node.id).filter(|id| *id != own).collect();
        let answers = join_all(others.into_iter().map(|node| ahead_us(rpc, node))).await;
        let offsets: Vec<i64> = answers.into_iter().flatten().collect();
        match OwnClock::Right.judge(&offsets) {
            OwnClock::Off(off_us) if off_us > AHEAD_MAX_US => {
                tracing::error!(
                    ahead_ms = off_us / 1_000,
                    "this node's clock is ahead of the others'; it starts once that is corrected"
                );
                tokio::time::sleep(AGAIN).await;
            }
            OwnClock::Off(_) | OwnClock::Right => return,
        }
    }
}

/// How far the clock of a node is ahead, half a round trip taken into account.
async fn ahead_us(rpc: &dyn PeerRpc, node: NodeId) -> Option<i64> {
    let asked = clock::now();
    let body = rpc.call(node, v1::CallKind::Report, Bytes::new(), ASK_PATIENCE).await.ok()?;
    let their_us = v1::NodeReport::decode(body).ok()?.clock_us;
    let way_us = clock::now().since_us(asked) as i64 / 2;
    Some(their_us.saturating_add(way_us).saturating_sub(clock::wall_us()))
}
