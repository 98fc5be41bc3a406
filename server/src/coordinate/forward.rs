//! Mutations of partitions that this node does not hold: handed on to a replica, since only replicas name.

use std::sync::Arc;

use trefoil::coordinator::{FailureReason, nearest_first};
use trefoil::model::{Instant, NodeId};
use trefoil::ring::Replicas;
use trefoil_proto::v1;
use trefoil_proto::v1::pipe_answer::Result as Answer;

use super::ops::Op;
use super::request::Request;
use super::write::{HOPS_MAX, timeout_ms};
use super::{Lane, Place, failure};
use crate::clock;

/// A mutation that another node coordinates for this one.
pub(super) struct Forward {
    /// Who coordinates it now.
    pub(super) node: NodeId,
    request: Request,
    operation: v1::PeerOperation,
    /// Who may coordinate it if that node is lost, nearest first.
    others: Vec<NodeId>,
}

impl Forward {
    pub(super) fn deadline(&self) -> Instant {
        self.request.deadline
    }
}

impl Lane {
    /// Hands a mutation on to the nearest live replica.
    ///
    /// Its default timestamp is fixed here, so that doing it twice is the same as doing it once: if the replica is lost
    /// on the way, it is handed on to another.
    pub(super) fn forward(
        self: &Arc<Self>,
        place: &Place,
        replicas: &Replicas,
        mutation: v1::Mutation,
        mut options: v1::Options,
        request: Request,
        hops: u32,
    ) {
        if hops >= HOPS_MAX {
            let text = "the request was handed on too often; the nodes do not agree on the ring";
            return request.fail(v1::Error::new(tonic::Code::Unavailable, text, v1::Outcome::NotApplied));
        }
        let distances = self.shared.distances(&place.state, replicas);
        let order = nearest_first(&distances, self.shared.alive_mask(replicas), 0);
        let mut others: Vec<NodeId> = order.into_iter().rev().map(|at| replicas.nodes[at].node).collect();
        let Some(node) = others.pop() else {
            return match failure::level(&options) {
                Ok(level) => request.fail(self.nobody_alive(level, replicas, place)),
                Err(error) => request.fail(error),
            };
        };
        options.default_timestamp_us.get_or_insert_with(clock::wall_us);
        let mutate = v1::MutateRequest { options: Some(options), mutation: Some(mutation) };
        let forwarded = v1::ForwardedRequest {
            operation: Some(v1::PipeOperation {
                id: 0,
                timeout_ms: 0,
                op: Some(v1::pipe_operation::Op::Mutate(mutate)),
            }),
            now_s: clock::wall_us().div_euclid(1_000_000),
            hops: hops + 1,
        };
        let operation = v1::PeerOperation {
            id: 0,
            timeout_ms: 0,
            placement: 0,
            op: Some(v1::peer_operation::Op::Forward(forwarded)),
        };
        self.hand_on(Box::new(Forward { node, request, operation, others }), false);
    }

    fn nobody_alive(&self, level: trefoil::coordinator::Consistency, replicas: &Replicas, place: &Place) -> v1::Error {
        let regions: Vec<u16> = replicas.nodes.iter().map(|replica| replica.region.0).collect();
        let own = self.shared.own_region(&place.state).0;
        let required = trefoil::coordinator::Requirement::new(level, &regions, own).required();
        failure::unavailable(level, trefoil::coordinator::Unavailable { required, alive: 0 })
    }

    /// Sends it to its node, or to the next one that can be reached.
    fn hand_on(self: &Arc<Self>, mut forward: Box<Forward>, sent_before: bool) {
        loop {
            let node = forward.node;
            let mut operation = forward.operation.clone();
            operation.timeout_ms = timeout_ms(forward.deadline());
            let Some(link) = self.link(node) else {
                let Some(next) = forward.others.pop() else { break };
                forward.node = next;
                continue;
            };
            operation.id = self.ops.lock().insert(Op::Forward(forward));
            let id = operation.id;
            if link.send(operation).is_ok() {
                return;
            }
            let Some(Op::Forward(back)) = self.ops.lock().remove_if(id, |op| matches!(op, Op::Forward(_))) else {
                return;
            };
            forward = back;
            let Some(next) = forward.others.pop() else { break };
            forward.node = next;
        }
        let outcome = if sent_before { v1::Outcome::Unknown } else { v1::Outcome::NotApplied };
        let text = "no replica of the partition can be reached";
        forward.request.fail(v1::Error::new(tonic::Code::Unavailable, text, outcome));
    }

    /// The answer has come back.
    pub(super) fn forward_answered(&self, id: u64, answer: Option<Answer>) {
        let Some(Op::Forward(forward)) = self.ops.lock().remove_if(id, |op| matches!(op, Op::Forward(_))) else {
            return;
        };
        match answer {
            Some(answer) => forward.request.finish(answer),
            None => {
                let text = format!("{} sent an empty answer", forward.node);
                forward.request.fail(v1::Error::new(tonic::Code::Internal, text, v1::Outcome::Unknown));
            }
        }
    }

    /// The node did not do it, or was lost: another one may.
    pub(super) fn forward_failed(self: &Arc<Self>, id: u64, reason: FailureReason) {
        let Some(Op::Forward(mut forward)) = self.ops.lock().remove_if(id, |op| matches!(op, Op::Forward(_))) else {
            return;
        };
        match forward.others.pop() {
            Some(next) => {
                forward.node = next;
                self.hand_on(forward, reason == FailureReason::Disconnected);
            }
            None => {
                let text = format!("{} did not coordinate the request: {}", forward.node, reason.name());
                forward.request.fail(v1::Error::new(tonic::Code::Unavailable, text, v1::Outcome::Unknown));
            }
        }
    }

    /// The deadline has passed.
    pub(super) fn forward_expired(&self, id: u64) {
        let Some(Op::Forward(forward)) = self.ops.lock().remove_if(id, |op| matches!(op, Op::Forward(_))) else {
            return;
        };
        let text = format!("{} did not answer in time", forward.node);
        forward.request.fail(v1::Error::new(tonic::Code::DeadlineExceeded, text, v1::Outcome::Unknown));
    }
}
