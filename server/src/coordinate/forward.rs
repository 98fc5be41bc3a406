//! Mutations that this node does not name, since it holds no copy of their partition or its clock is off: handed on to a
//! replica.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tonic::Code;
use trefoil::coordinator::{Consistency, FailureReason, nearest_first};
use trefoil::model::{Instant, NodeId};
use trefoil::ring::Replicas;
use trefoil_proto::v1;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use uuid::Uuid;

use super::ops::Op;
use super::request::Request;
use super::write::{HOPS_MAX, timeout_ms};
use super::{Lane, Place, failure};
use crate::peers::ITEM_BYTES_MAX;

/// A mutation that another node coordinates for this one.
pub(super) struct Forward {
    /// Who coordinates it now.
    pub(super) node: NodeId,
    request: Request,
    operation: v1::PeerOperation,
    /// Who may coordinate it if that node does not, the nearest last.
    others: Vec<NodeId>,
    /// Whether another node may have it after one that may have done it.
    again: Again,
    /// What can be said of it if nobody acknowledges it: unknown as soon as one node was lost with it (B011).
    so_far: v1::Outcome,
}

/// Whether doing an operation twice is the same as doing it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// It is.
    Same,
    /// It is not: it is not handed on again unless it is certain that nothing was done (B011).
    Twice,
}

impl Forward {
    pub(super) fn deadline(&self) -> Instant {
        self.request.deadline
    }

    /// Answers with what the last node said, unless that says more than is known.
    fn finish(self, mut answer: Answer) {
        if let Answer::Error(v1::Error { detail, .. }) = &mut answer
            && self.so_far == v1::Outcome::Unknown
        {
            detail.get_or_insert_default().outcome = self.so_far.into();
        }
        self.request.finish(answer);
    }

    fn fail(self, code: Code, text: impl Into<String>) {
        let error = v1::Error::new(code, text, self.so_far);
        self.request.fail(error);
    }
}

/// Whether the node surely did nothing and another one may well do it.
fn is_for_another(answer: &Answer) -> bool {
    let Answer::Error(error) = answer else { return false };
    error.outcome() == v1::Outcome::NotApplied
        && matches!(error.status_code(), Code::Unavailable | Code::ResourceExhausted)
}

/// Why this node does not name a mutation although it is a replica.
fn clock_off(off_us: i64) -> String {
    let direction = if off_us > 0 { "ahead of" } else { "behind" };
    format!(
        "this node's clock is {} ms {direction} the others', and no other replica can be reached",
        off_us.abs() / 1_000
    )
}

impl Lane {
    /// Hands a mutation on to the nearest live replica.
    ///
    /// Its default timestamp and its id are fixed here, so that doing it twice is the same as doing it once: if the replica is lost
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
        let level = failure::level(&options);
        options.default_timestamp_us.get_or_insert_with(|| self.shared.peers.wall_us());
        if options.request_id.is_empty() {
            options.request_id = Bytes::copy_from_slice(Uuid::new_v4().as_bytes());
        }
        let mutate = v1::MutateRequest { options: Some(options), mutation: Some(mutation) };
        let operation = v1::pipe_operation::Op::Mutate(mutate);
        self.forward_operation(place, replicas, (level, operation, Again::Same), request, hops);
    }

    /// Hands an operation on one partition, with its level, on to the nearest live replica.
    pub(super) fn forward_operation(
        self: &Arc<Self>,
        place: &Place,
        replicas: &Replicas,
        (level, operation, again): (Result<Consistency, v1::Error>, v1::pipe_operation::Op, Again),
        request: Request,
        hops: u32,
    ) {
        if hops >= HOPS_MAX {
            let text = match self.shared.peers.own_clock_off() {
                Some(off_us) => clock_off(off_us),
                None => "the request was handed on too often; the nodes do not agree on the ring".to_owned(),
            };
            return request.fail(v1::Error::new(Code::Unavailable, text, v1::Outcome::NotApplied));
        }
        let distances = self.shared.distances(&place.state, replicas);
        let order = nearest_first(&distances, self.shared.alive_mask(replicas), 0);
        let own = self.shared.identity.node;
        let mut others: Vec<NodeId> =
            order.into_iter().rev().map(|at| replicas.nodes[at].node).filter(|node| *node != own).collect();
        let Some(node) = others.pop() else {
            return match (level, self.shared.peers.own_clock_off()) {
                (_, Some(off_us)) if replicas.contains(own) => {
                    let text = clock_off(off_us);
                    request.fail(v1::Error::new(Code::Unavailable, text, v1::Outcome::NotApplied));
                }
                (Ok(level), _) => request.fail(self.nobody_alive(level, replicas, place)),
                (Err(error), _) => request.fail(error),
            };
        };
        let forwarded = v1::ForwardedRequest {
            operation: Some(v1::PipeOperation { id: 0, timeout_ms: 0, op: Some(operation) }),
            hops: hops + 1,
        };
        let operation = v1::PeerOperation {
            id: 0,
            timeout_ms: 0,
            placement: 0,
            op: Some(v1::peer_operation::Op::Forward(forwarded)),
        };
        let size = operation.encoded_len();
        if size > ITEM_BYTES_MAX {
            let reason = format!("the mutation takes {size} bytes, at most {ITEM_BYTES_MAX} can be handed on");
            return request.fail(v1::Error::invalid(v1::InvalidDetail::new(reason)));
        }
        let so_far = v1::Outcome::NotApplied;
        self.hand_on(Box::new(Forward { node, request, operation, others, again, so_far }));
    }

    fn nobody_alive(&self, level: Consistency, replicas: &Replicas, place: &Place) -> v1::Error {
        let regions: Vec<u16> = replicas.nodes.iter().map(|replica| replica.region.0).collect();
        let own = self.shared.own_region(&place.state).0;
        let required = trefoil::coordinator::Requirement::new(level, &regions, own).required();
        failure::unavailable(level, trefoil::coordinator::Unavailable { required, alive: 0 })
    }

    /// Sends it to its node, or to the next one that can be reached.
    fn hand_on(self: &Arc<Self>, mut forward: Box<Forward>) {
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
            let Some(back) = self.take_forward(id) else { return };
            forward = back;
            let Some(next) = forward.others.pop() else { break };
            forward.node = next;
        }
        forward.fail(Code::Unavailable, "no replica of the partition can be reached");
    }

    /// The answer has come back.
    pub(super) fn forward_answered(self: &Arc<Self>, id: u64, answer: Option<Answer>) {
        let Some(mut forward) = self.take_forward(id) else { return };
        let Some(answer) = answer else {
            forward.so_far = v1::Outcome::Unknown;
            let text = format!("{} sent an empty answer", forward.node);
            return forward.fail(Code::Internal, text);
        };
        match is_for_another(&answer).then(|| forward.others.pop()).flatten() {
            Some(next) => {
                forward.node = next;
                self.hand_on(forward);
            }
            None => forward.finish(answer),
        }
    }

    /// The node did not do it, or was lost: another one may.
    pub(super) fn forward_failed(self: &Arc<Self>, id: u64, reason: FailureReason) {
        let Some(mut forward) = self.take_forward(id) else { return };
        match reason {
            FailureReason::Overloaded | FailureReason::Stale | FailureReason::Clock | FailureReason::Expired => {}
            FailureReason::Disconnected
            | FailureReason::Storage
            | FailureReason::DiskFull
            | FailureReason::Malformed
            | FailureReason::TooLarge
            | FailureReason::TooLate => {
                forward.so_far = v1::Outcome::Unknown;
            }
        }
        let may_go_on = forward.again == Again::Same || forward.so_far == v1::Outcome::NotApplied;
        match forward.others.pop().filter(|_| may_go_on) {
            Some(next) => {
                forward.node = next;
                self.hand_on(forward);
            }
            None => {
                let text = format!("{} did not coordinate the request: {}", forward.node, reason.name());
                forward.fail(Code::Unavailable, text);
            }
        }
    }

    /// The deadline has passed.
    pub(super) fn forward_expired(&self, id: u64) {
        let Some(mut forward) = self.take_forward(id) else { return };
        forward.so_far = v1::Outcome::Unknown;
        let text = format!("{} did not answer in time", forward.node);
        forward.fail(Code::DeadlineExceeded, text);
    }

    fn take_forward(&self, id: u64) -> Option<Box<Forward>> {
        match self.ops.lock().remove_if(id, |op| matches!(op, Op::Forward(_)))? {
            Op::Forward(forward) => Some(forward),
            _ => None,
        }
    }
}
