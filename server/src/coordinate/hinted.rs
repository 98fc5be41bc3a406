//! Hints on their way: each is an operation of a lane, so that lost links and deadlines are seen as for any other.

use std::sync::Arc;
use std::time::Duration;

use trefoil::coordinator::FailureReason;
use trefoil::hints::delivery::Outcome;
use trefoil::hints::{Hint, Place, route};
use trefoil::model::{Instant, NodeId};
use trefoil_proto::v1;

use super::Lane;
use super::ops::Op;
use super::write::timeout_ms;
use crate::clock;
use crate::hints::Postman;
use crate::replica::{Ticket, WriteJob};

/// How long a node may take to log a hint.
const HINT_TIMEOUT: Duration = Duration::from_secs(5);

/// A hint that was sent.
pub(super) struct Hinted {
    /// For whom it was kept.
    target: NodeId,
    /// Where it ends in the log of that target.
    place: Place,
    /// Where it was sent to.
    pub(super) node: NodeId,
    pub(super) deadline: Instant,
}

/// Carries hints over the links of lanes, those for one node always over the same one.
pub struct LanePostman {
    lanes: Vec<Arc<Lane>>,
}

impl LanePostman {
    /// Over these lanes, of which there is at least one.
    pub fn new(lanes: Vec<Arc<Lane>>) -> LanePostman {
        LanePostman { lanes }
    }

    fn lane(&self, target: NodeId) -> &Arc<Lane> {
        &self.lanes[target.0 as usize % self.lanes.len()]
    }
}

impl Postman for LanePostman {
    fn can_reach(&self, target: NodeId) -> bool {
        let shared = self.lane(target).shared();
        if shared.peers.alive().contains(&target) {
            return true;
        }
        // Of a node that owns nothing any more others have taken the place.
        !shared.cluster.load().ring().node(target).is_some_and(|node| node.state.owns_vnodes())
    }

    fn send(&self, target: NodeId, place: Place, hint: &Hint) -> Result<(), Outcome> {
        self.lane(target).send_hint(target, place, hint)
    }
}

impl Lane {
    /// Sends a hint for `target` to whoever stands in its place today.
    fn send_hint(&self, target: NodeId, place: Place, hint: &Hint) -> Result<(), Outcome> {
        let (own, state) = (self.shared.identity.node, self.shared.cluster.load());
        let keyspace = state.keyspace(hint.keyspace).map(|keyspace| &**keyspace);
        let node = route::destination(state.ring(), keyspace, hint.vnode, target, own);
        let placement = state.ring().placement(hint.vnode);
        let deadline = clock::after(HINT_TIMEOUT);
        let id = self.ops.lock().insert(Op::Hint(Hinted { target, place, node, deadline }));
        let sent = if node == own {
            self.log_own_hint(id, hint, placement, deadline)
        } else {
            let op = Some(v1::peer_operation::Op::Hint(hint.record.clone()));
            let operation = v1::PeerOperation { id, timeout_ms: timeout_ms(deadline), placement, op };
            self.link(node).ok_or(FailureReason::Disconnected).and_then(|link| link.send(operation))
        };
        sent.map_err(|reason| {
            self.ops.lock().remove(id);
            outcome_of(reason)
        })
    }

    /// A write that the own replica had refused.
    fn log_own_hint(&self, id: u64, hint: &Hint, placement: u64, deadline: Instant) -> Result<(), FailureReason> {
        let (record, durability) = self.check_own_hint(hint.record.clone(), placement)?;
        let ticket = Ticket { lane: self.number, id };
        let job = WriteJob { record, durability, deadline, ticket };
        self.shared.replica.submit(job).map_err(|(reason, _)| reason)
    }

    /// What became of a hint; whether it was one.
    pub(super) fn hint_done(&self, id: u64, outcome: Outcome) -> bool {
        let taken = self.ops.lock().remove_if(id, |op| matches!(op, Op::Hint(_)));
        let Some(Op::Hint(Hinted { target, place, .. })) = taken else { return false };
        self.shared.hints.outcome(target, place, outcome);
        true
    }
}

/// What a failure means for a hint.
pub(super) fn outcome_of(reason: FailureReason) -> Outcome {
    match reason {
        FailureReason::TooLate => Outcome::TooLate,
        FailureReason::Malformed => Outcome::Unacceptable,
        FailureReason::Disconnected | FailureReason::Expired => Outcome::Lost,
        FailureReason::Overloaded
        | FailureReason::Storage
        | FailureReason::DiskFull
        | FailureReason::Stale
        | FailureReason::Clock
        | FailureReason::TooLarge => Outcome::NotNow,
    }
}
