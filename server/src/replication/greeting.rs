//! Before a node names, takes or answers anything: what the others know of it.
//!
//! ```text
//!   data directory opened ─► every other node is asked, one at least must answer ─► clock and names ─► losses withdrawn ─► serving
//! ```
//!
//! What the answers mean is [`trefoil::received::exchange`]'s to say; here they are asked for and given.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use prost::Message;
use trefoil::metadata::ClusterState;
use trefoil::model::{NodeId, Stamp};
use trefoil::received::Slice;
use trefoil::received::report::Report;
use trefoil::ring::Ring;
use trefoil_proto::v1;

use super::heard::HeardClocks;
use super::task::off_runtime;
use super::{Replication, WithoutOthers};
use crate::clock;
use crate::peer_rpc::PeerRpc;

/// How long another node may take to answer.
const ASK_PATIENCE: Duration = Duration::from_secs(2);

/// How soon those are asked again of whom none has answered.
const AGAIN: Duration = Duration::from_millis(300);

/// What another node knows of this one.
pub struct Greeted {
    from: NodeId,
    /// How far this node's clock had come, by what it told; 0: it was never heard.
    pub clock: Stamp,
    /// What it told last; none if that node has not heard it since its own start.
    remembered: Option<Report>,
    /// What that node tells itself; none if it starts, too.
    report: Option<Report>,
}

/// Greets every other node that can be reached, and at least one, unless the node is to start without. A node that has no
/// others greets nobody.
pub async fn greet(rpc: &dyn PeerRpc, ring: &Ring, own: NodeId, without_others: WithoutOthers) -> Vec<Greeted> {
    let others: Vec<NodeId> = ring.nodes().map(|node| node.id).filter(|id| *id != own).collect();
    let mut is_waiting = false;
    loop {
        let answers = join_all(others.iter().map(|node| ask(rpc, *node))).await;
        let greeted: Vec<Greeted> = answers.into_iter().flatten().collect();
        if !greeted.is_empty() || others.is_empty() || without_others == WithoutOthers::Start {
            return greeted;
        }
        if !std::mem::replace(&mut is_waiting, true) {
            tracing::warn!(
                "no other node answers; this one waits, as only another can tell whether its data directory holds what it told \
                 (if there is none any more: start_alone = true in [replication])"
            );
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn ask(rpc: &dyn PeerRpc, node: NodeId) -> Option<Greeted> {
    let body = Bytes::from(v1::Greeting {}.encode_to_vec());
    let answer = rpc.call(node, v1::CallKind::Greet, body, ASK_PATIENCE).await.ok()?;
    read(node, answer)
        .inspect_err(|reason| tracing::error!(peer = node.0, reason, "the answer to a greeting means nothing"))
        .ok()
}

fn read(from: NodeId, answer: Bytes) -> Result<Greeted, String> {
    let v1::Greeted { clock, remembered, report } = v1::Greeted::decode(answer).map_err(|error| error.to_string())?;
    let read = |bytes: Bytes| {
        let report = (!bytes.is_empty()).then(|| Report::decode(bytes)).transpose();
        report.map_err(|error| error.to_string())
    };
    Ok(Greeted { from, clock: Stamp(clock), remembered: read(remembered)?, report: read(report)? })
}

/// What a node answers that starts itself: what its disk has.
pub fn answer_while_starting(heard: &HeardClocks, from: NodeId) -> v1::Greeted {
    v1::Greeted { clock: heard.of(from).0, ..v1::Greeted::default() }
}

/// Takes in what the others know, before anything is answered. `ceiling`: that of the clock, as it was found on the disk.
///
/// # Errors
/// The manifest does not say that something was lost; the node must not go on.
pub async fn take_in(
    replication: Replication,
    state: &Arc<ClusterState>,
    greeted: Vec<Greeted>,
    ceiling: Stamp,
) -> trefoil::Result<Arc<Replication>> {
    let (replication, state) = (Arc::new(replication), state.clone());
    let taking = replication.clone();
    let taken = off_runtime(move || taking.take_greetings(&state, greeted, ceiling)).await;
    taken.unwrap_or(Err(trefoil::Error::Stopped)).map(|()| replication)
}

impl Replication {
    /// Answers a node that starts.
    pub fn answer_greeting(&self, from: NodeId) -> v1::Greeted {
        let mut exchange = self.exchange.lock();
        let clock = exchange.clock_of(from).unwrap_or_default().max(self.heard_clocks.of(from));
        let remembered = exchange.remembered(from).map(|report| report.encode()).unwrap_or_default();
        let report = exchange.report_for_greeting(from).encode();
        v1::Greeted { clock: clock.0, remembered: remembered.into(), report: report.into() }
    }

    /// Blocks.
    fn take_greetings(&self, state: &ClusterState, greeted: Vec<Greeted>, ceiling: Stamp) -> trefoil::Result<()> {
        self.place(state);
        let mut lost: BTreeMap<Slice, u64> = BTreeMap::new();
        for Greeted { from, clock, remembered, report } in greeted {
            let mut exchange = self.exchange.lock();
            if let Some(report) = report {
                exchange.on_report(from, report, clock::now());
            }
            let less = exchange.lost(from, remembered.as_ref(), clock, ceiling);
            // What was promised holds, also where the disk does not know of it.
            let promised = remembered.as_ref().map(|report| report.closed_through);
            exchange.publish(promised.max((clock > ceiling).then_some(clock)).unwrap_or_default());
            if !less.is_empty() {
                tracing::error!(
                    peer = from.0,
                    vnodes = less.len(),
                    ahead_ms = clock.0.saturating_sub(ceiling.0).max(0) / 1_000,
                    "this data directory holds less than this node has told: it is an older one, or lost something"
                );
            }
            lost.extend(less.into_iter().map(|slice| (slice, state.ring().placement(slice.1))));
            exchange.want(from);
        }
        self.publish_what_is_promised();
        self.withdraw(&lost)
    }
}
