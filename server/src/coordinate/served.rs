//! What this node does for others: writes and reads of its own data, requests handed on to it; and what comes back from
//! others for what it had asked.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use trefoil::codec::Record;
use trefoil::codec::mutation::decode_mutation;
use trefoil::coordinator::FailureReason;
use trefoil::model::{Instant, NodeId, Target};
use trefoil_proto::convert::peer as convert;
use trefoil_proto::v1;
use trefoil_proto::v1::peer_operation::Op as Operation;
use trefoil_proto::v1::peer_reply::Result as Reply;

use super::ops::Op;
use super::{Lane, failure, request};
use crate::clock;
use crate::peers::{ReplyQueue, epoch_to_proto};
use crate::replica::{Completion, Outcome, Ticket, WriteJob};

/// Work of the own replica for a peer.
pub(super) struct Served {
    replies: ReplyQueue,
    id: u64,
}

impl Served {
    fn reply(&self, result: Reply) {
        self.replies.send(v1::PeerReply { id: self.id, result: Some(result) });
    }
}

impl Lane {
    /// An operation of a peer; its reply goes to `replies`.
    pub fn serve(self: &Arc<Self>, peer: NodeId, operation: v1::PeerOperation, replies: &ReplyQueue) {
        let deadline = clock::after(Duration::from_millis(u64::from(operation.timeout_ms)));
        let served = Served { replies: replies.clone(), id: operation.id };
        let refused = match operation.op {
            Some(Operation::Write(record)) => self.serve_write(record, operation.placement, deadline, served),
            Some(Operation::Read(read)) => self.serve_read(read, operation.placement, deadline, served),
            Some(Operation::Forward(forward)) => self.serve_forward(forward, deadline, served),
            None => Err((served, failed(FailureReason::Malformed, "the operation is empty or of a later protocol"))),
        };
        if let Err((served, reply)) = refused {
            if let Reply::Failure(failure) = &reply {
                tracing::debug!(peer = peer.0, reason = failure.message, "refused an operation of a peer");
            }
            served.reply(reply);
        }
    }

    fn serve_write(
        &self,
        record: Bytes,
        placement: u64,
        deadline: Instant,
        served: Served,
    ) -> Result<(), (Served, Reply)> {
        // Every byte is looked at before it is logged: what cannot be decoded must not get into the log.
        let checked = Record::decode(record).and_then(|record| {
            let parts = decode_mutation(record.mutation.clone())?;
            Ok((record, parts))
        });
        let (record, parts) = match checked {
            Ok(checked) => checked,
            Err(error) => return Err((served, failed(FailureReason::Malformed, error.to_string()))),
        };
        if record.bytes.len() > self.shared.limits.mutation_bytes_max {
            return Err((served, failed(FailureReason::Malformed, "the record is larger than this node takes")));
        }
        let state = self.shared.cluster.load();
        let vnode = state.ring().vnode_bits().vnode(parts.key.token());
        if placement != state.ring().placement(vnode) {
            return Err((served, self.stale(state.ring().placement(vnode))));
        }
        if let Err(ahead) = self.shared.naming.observe(record.stamp) {
            let text = format!("the stamp lies {} ms ahead of this node's clock", ahead.0 / 1_000);
            return Err((served, failed(FailureReason::Clock, text)));
        }
        let durability = match state.table(parts.table) {
            Some(table) => table.options.durability,
            // A mutation of a dropped table is received without effect; of a table not known yet, after the metadata.
            None if state.is_dropped(parts.table) => trefoil::model::Durability::Commit,
            None => return Err((served, self.stale(0))),
        };
        let id = self.ops.lock().insert(Op::Served(served));
        let ticket = Ticket { lane: self.number, id };
        self.shared.replica.submit(WriteJob { record: record.bytes, durability, deadline, ticket });
        Ok(())
    }

    fn serve_read(
        &self,
        read: v1::ReadOperation,
        placement: u64,
        deadline: Instant,
        served: Served,
    ) -> Result<(), (Served, Reply)> {
        let command = match convert::read_command(read) {
            Ok(command) => Arc::new(command),
            Err(error) => return Err((served, failed(FailureReason::Malformed, error.to_string()))),
        };
        let state = self.shared.cluster.load();
        if state.table(command.table).is_none() {
            return Err((served, self.stale(0)));
        }
        let own = match &command.target {
            Target::Partition(key) => state.ring().placement(state.ring().vnode_bits().vnode(key.token())),
            Target::Scan(range) => state.ring().placement_in(*range),
        };
        if placement != own {
            return Err((served, self.stale(own)));
        }
        let id = self.ops.lock().insert(Op::Served(served));
        if let Some(result) = self.shared.replica.read(&command, deadline, Ticket { lane: self.number, id }) {
            let outcome = match result {
                Ok(page) => Outcome::Read(page),
                Err((reason, text)) => Outcome::Failed(reason, text),
            };
            self.served_done(id, outcome);
        }
        Ok(())
    }

    fn serve_forward(
        self: &Arc<Self>,
        forward: v1::ForwardedRequest,
        deadline: Instant,
        served: Served,
    ) -> Result<(), (Served, Reply)> {
        let Some(v1::pipe_operation::Op::Mutate(mutate)) = forward.operation.and_then(|operation| operation.op) else {
            return Err((served, failed(FailureReason::Malformed, "only mutations are handed on")));
        };
        let reply = request::Reply::Peer(served.replies, served.id);
        self.mutate(mutate, deadline, reply, forward.hops);
        Ok(())
    }

    fn stale(&self, placement: u64) -> Reply {
        let epoch = Some(epoch_to_proto(self.shared.cluster.load().epoch()));
        Reply::Stale(v1::Stale { epoch, placement })
    }

    /// The own replica is done with what a peer had asked.
    pub(super) fn served_done(&self, id: u64, outcome: Outcome) {
        let Some(Op::Served(served)) = self.ops.lock().remove_if(id, |op| matches!(op, Op::Served(_))) else { return };
        served.reply(match outcome {
            Outcome::Written => Reply::Acknowledged(v1::Acknowledged {}),
            Outcome::Read(page) => Reply::Page(convert::replica_page(page)),
            Outcome::Failed(reason, text) => failed(reason, text),
        });
    }

    /// A peer's reply to something this lane had asked.
    pub(super) fn on_reply(self: &Arc<Self>, peer: NodeId, reply: v1::PeerReply) {
        let id = reply.id;
        match reply.result {
            Some(Reply::Acknowledged(_)) => {
                self.write_acknowledged(id, peer);
                self.repair_acknowledged(id, peer);
            }
            Some(Reply::Page(page)) => match convert::page(page) {
                Ok(page) => self.read_page(id, peer, page),
                Err(_) => self.on_failure(id, peer, FailureReason::Malformed),
            },
            Some(Reply::Answer(answer)) => self.forward_answered(id, answer.result),
            Some(Reply::Failure(failure)) => {
                tracing::debug!(peer = peer.0, reason = failure.message, "a peer refused an operation");
                self.on_failure(id, peer, failure::reason_of(&failure));
            }
            Some(Reply::Stale(_)) => self.on_failure(id, peer, FailureReason::Stale),
            None => self.on_failure(id, peer, FailureReason::Malformed),
        }
    }

    /// A link broke: what was under way on it may or may not have been done.
    pub(super) fn on_lost(self: &Arc<Self>, peer: NodeId) {
        let waiting = self.ops.lock().waiting_for(peer);
        for id in waiting {
            self.on_failure(id, peer, FailureReason::Disconnected);
        }
    }

    fn on_failure(self: &Arc<Self>, id: u64, peer: NodeId, reason: FailureReason) {
        self.write_failed(id, peer, reason);
        self.read_failed(id, peer, reason);
        self.forward_failed(id, reason);
    }

    /// The own replica is done with something.
    pub(super) fn on_completion(self: &Arc<Self>, completion: Completion) {
        let own = self.shared.identity.node;
        let is_served = matches!(self.ops.lock().get(completion.id), Some(Op::Served(_)));
        if is_served {
            return self.served_done(completion.id, completion.outcome);
        }
        match completion.outcome {
            Outcome::Written => {
                self.write_acknowledged(completion.id, own);
                self.repair_acknowledged(completion.id, own);
            }
            Outcome::Read(page) => self.read_page(completion.id, own, page),
            Outcome::Failed(reason, text) => {
                tracing::debug!(reason = text, "the own replica refused an operation");
                self.on_failure(completion.id, own, reason);
            }
        }
    }

    /// An operation has passed its deadline.
    pub(super) fn expire(self: &Arc<Self>, id: u64) {
        self.write_expired(id);
        self.read_expired(id);
        self.forward_expired(id);
    }
}

fn failed(reason: FailureReason, text: impl Into<String>) -> Reply {
    Reply::Failure(failure::to_peer(reason, text.into()))
}
