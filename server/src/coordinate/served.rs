//! What this node does for others: writes and reads of its own data, requests handed on to it; and what comes back from
//! others for what it had asked.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use trefoil::codec::CheckedRecord;
use trefoil::coordinator::{FailureReason, Unseen, digest};
use trefoil::hints::delivery::Outcome as HintOutcome;
use trefoil::model::{ColumnId, Durability, Instant, NodeId, Page, ReadCommand, ReadCost, Stamp, Target};
use trefoil_proto::convert::peer as convert;
use trefoil_proto::v1;
use trefoil_proto::v1::peer_operation::Op as Operation;
use trefoil_proto::v1::peer_reply::Result as Reply;

use super::ops::Op;
use super::round::Found;
use super::{Lane, failure, hinted, request};
use crate::clock;
use crate::peers::{ReplyQueue, epoch_from_proto, epoch_to_proto};
use crate::replica::{Completion, Judgement, NOT_WHOLE, Outcome, TOO_LATE, Ticket, WriteJob, judge};

/// How long a record that was found elsewhere may wait for the log.
const FOUND_PATIENCE: Duration = Duration::from_secs(10);

/// The operation of nobody: no slot has this number.
const NOBODY: u64 = u64::MAX;

/// Records that may wait for the log before hints are refused: some groups of it.
const HINTS_YIELD_ABOVE: usize = 4_096;

/// Work of the own replica for a peer.
pub(super) struct Served {
    replies: ReplyQueue,
    id: u64,
    /// Of a read the digest is asked for, without what does not show.
    digest: Option<Unseen>,
    /// Of a read: what all replicas had before it.
    known_through: Stamp,
}

/// What a peer asked, and by when.
pub(super) struct Asked {
    peer: NodeId,
    placement: u64,
    pub(super) deadline: Instant,
    pub(super) work: Work,
    served: Served,
}

/// What is to be done.
pub(super) enum Work {
    /// A record to be logged, and the greatest column of which it says anything.
    Write(CheckedRecord, Option<ColumnId>),
    /// The same, of a write that this node had missed: it waits for nothing, since it comes again.
    Hint(CheckedRecord, Option<ColumnId>),
    /// A read of the own data.
    Read(Arc<ReadCommand>),
    /// A request for one partition to be coordinated.
    Forward(Box<Handed>, u32),
}

/// What is handed on between nodes.
pub(super) enum Handed {
    /// A mutation.
    Mutate(v1::MutateRequest),
    /// Additions to counters.
    Increment(v1::IncrementRequest),
}

impl Handed {
    /// Its size.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Handed::Mutate(request) => request.encoded_len(),
            Handed::Increment(request) => request.encoded_len(),
        }
    }

    fn table(&self) -> Option<&v1::TableRef> {
        match self {
            Handed::Mutate(request) => request.mutation.as_ref()?.table.as_ref(),
            Handed::Increment(request) => request.table.as_ref(),
        }
    }
}

/// Why it is not done.
#[expect(clippy::large_enum_variant, reason = "it is made where something is refused and consumed at once")]
enum Obstacle {
    /// It cannot be.
    Refused(Reply),
    /// This node does not know the table, or one of its columns, yet.
    Early,
}

impl Served {
    fn reply(&self, result: Reply) {
        self.replies.send(v1::PeerReply { id: self.id, result: Some(result) });
    }

    /// The page that was read, or its digest.
    fn read(&self, page: Page, cost: &ReadCost) -> Reply {
        match self.digest.map(|unseen| digest(&page, unseen)) {
            None => {
                let page = convert::replica_page(page, cost);
                Reply::Page(v1::ReplicaPage { known_through: self.known_through.0, ..page })
            }
            Some(Ok(digest)) => Reply::Page(convert::replica_digest(digest, cost)),
            Some(Err(error)) => failed(FailureReason::Storage, error.to_string()),
        }
    }
}

impl Lane {
    /// An operation of a peer; its reply goes to `replies`.
    pub fn serve(self: &Arc<Self>, peer: NodeId, operation: v1::PeerOperation, replies: &ReplyQueue) {
        let deadline = clock::after(Duration::from_millis(u64::from(operation.timeout_ms)));
        let digest = match &operation.op {
            Some(Operation::Read(read)) => convert::wanted_digest(read),
            _ => None,
        };
        let known_through = Stamp::default();
        let mut served = Served { replies: replies.clone(), id: operation.id, digest, known_through };
        let work = work(operation.op);
        if let (Ok(Work::Read(command)), None) = (&work, &served.digest) {
            served.known_through = self.shared.known_through(command);
        }
        match work {
            Ok(work) => self.try_serve(Asked { peer, placement: operation.placement, deadline, work, served }),
            Err(reply) => refuse(peer, &served, reply),
        }
    }

    /// Begins what a peer asked, or puts it aside until this node knows the table and its columns.
    pub(super) fn try_serve(self: &Arc<Self>, asked: Asked) {
        let checked = match &asked.work {
            Work::Write(record, last) => self.check_write(record, *last, asked.placement),
            Work::Hint(record, last) => {
                self.check_room_for_hints().and_then(|()| self.check_write(record, *last, asked.placement))
            }
            // Reads wait for no fsync: any mode does.
            Work::Read(command) => self.check_read(command, asked.placement).map(|()| Durability::Commit),
            Work::Forward(handed, _) => self.check_forward(handed, asked.peer).map(|()| Durability::Commit),
        };
        match checked {
            Ok(durability) => self.begin_served(asked, durability),
            Err(Obstacle::Refused(reply)) => refuse(asked.peer, &asked.served, reply),
            Err(Obstacle::Early) if matches!(asked.work, Work::Hint(..)) => {
                refuse(asked.peer, &asked.served, self.stale(0));
            }
            Err(Obstacle::Early) => {
                if let Err(asked) = self.early.lock().put_aside(asked) {
                    refuse(asked.peer, &asked.served, self.stale(0));
                }
            }
        }
    }

    /// Begins what was asked too early if the metadata have come since, and gives up what has waited to its deadline.
    pub(super) fn serve_early(self: &Arc<Self>) {
        let (again, late) = self.early.lock().take(self.shared.cluster.load().epoch(), clock::now());
        for asked in again {
            self.try_serve(asked);
        }
        for asked in late {
            refuse(asked.peer, &asked.served, self.stale(0));
        }
    }

    fn begin_served(self: &Arc<Self>, asked: Asked, durability: Durability) {
        let Asked { deadline, work, served, .. } = asked;
        if let Work::Forward(handed, hops) = work {
            let reply = request::Reply::Peer(served.replies, served.id);
            return match *handed {
                Handed::Mutate(request) => self.mutate(request, deadline, reply, hops),
                Handed::Increment(request) => self.increment(request, deadline, reply, hops),
            };
        }
        let id = self.ops.lock().insert(Op::Served(served));
        let ticket = Ticket { lane: self.number, id };
        let done = match work {
            Work::Write(record, _) | Work::Hint(record, _) => {
                self.shared.replica.submit(WriteJob { record, durability, deadline, ticket }).err().map(Err)
            }
            Work::Read(command) => self.shared.replica.read(&command, deadline, ticket),
            Work::Forward(..) => None,
        };
        match done {
            Some(Ok((page, cost))) => self.served_done(id, Outcome::Read(page, cost)),
            Some(Err((reason, text))) => self.served_done(id, Outcome::Failed(reason, text)),
            None => {}
        }
    }

    /// Hints wait until writes do not.
    fn check_room_for_hints(&self) -> Result<(), Obstacle> {
        let waiting = self.shared.replica.queued_writes();
        if waiting <= HINTS_YIELD_ABOVE {
            return Ok(());
        }
        let text = format!("{waiting} records wait for the log");
        Err(Obstacle::Refused(failed(FailureReason::Overloaded, text)))
    }

    /// A hint for this node itself, checked, and the mode of its table.
    pub(super) fn check_own_hint(
        &self,
        record: Bytes,
        placement: u64,
    ) -> Result<(CheckedRecord, Durability), FailureReason> {
        let (record, last) = CheckedRecord::check(record).map_err(|_| FailureReason::Malformed)?;
        let durability = self.check_write(&record, last, placement).map_err(|obstacle| match obstacle {
            Obstacle::Refused(Reply::Failure(failure)) => failure::reason_of(&failure),
            Obstacle::Refused(_) | Obstacle::Early => FailureReason::Stale,
        })?;
        Ok((record, durability))
    }

    /// Queues a record of this node's that was found elsewhere, if it is in order; nobody waits for it.
    pub fn take_found(&self, record: Bytes) -> bool {
        let Ok((record, last)) = CheckedRecord::check(record) else { return false };
        let state = self.shared.cluster.load();
        let placement = state.ring().placement(state.ring().vnode_bits().vnode(record.token()));
        let Ok(durability) = self.check_write(&record, last, placement) else { return false };
        let ticket = Ticket { lane: self.number, id: NOBODY };
        let deadline = clock::after(FOUND_PATIENCE);
        self.shared.replica.submit(WriteJob { record, durability, deadline, ticket }).is_ok()
    }

    fn check_write(
        &self,
        record: &CheckedRecord,
        last_column: Option<ColumnId>,
        placement: u64,
    ) -> Result<Durability, Obstacle> {
        let state = self.shared.cluster.load();
        let own = state.ring().placement(state.ring().vnode_bits().vnode(record.token()));
        if placement != own {
            return Err(Obstacle::Refused(self.stale(own)));
        }
        let knows = |column| state.next_column(record.table()).is_some_and(|next| column < next);
        let durability = match state.table(record.table()) {
            // A column from the next number on is one that this node has yet to hear of. What is written to a dropped one
            // is logged with the rest, so that the name is received, and has no effect.
            Some(table) if last_column.is_none_or(knows) => table.options.durability,
            Some(_) => return Err(Obstacle::Early),
            // A mutation of a dropped table is received without effect.
            None if state.is_dropped(record.table()) => Durability::Commit,
            None => return Err(Obstacle::Early),
        };
        if let Err(ahead) = self.shared.naming.observe(record.stamp()) {
            let text = format!("the stamp lies {} ms ahead of this node's clock", ahead.0 / 1_000);
            return Err(Obstacle::Refused(failed(FailureReason::Clock, text)));
        }
        match judge(&*self.shared.replication, record) {
            Judgement::Apply => Ok(durability),
            Judgement::Received => Err(Obstacle::Refused(Reply::Acknowledged(v1::Acknowledged {}))),
            Judgement::TooLate => Err(Obstacle::Refused(failed(FailureReason::TooLate, TOO_LATE))),
            Judgement::NotWhole => Err(Obstacle::Refused(failed(FailureReason::Storage, NOT_WHOLE))),
        }
    }

    fn check_read(&self, command: &ReadCommand, placement: u64) -> Result<(), Obstacle> {
        let state = self.shared.cluster.load();
        let own = match &command.target {
            Target::Partition(key) => state.ring().placement(state.ring().vnode_bits().vnode(key.token())),
            Target::Scan(range) => state.ring().placement_in(*range),
        };
        match state.table(command.table) {
            Some(_) if placement == own => Ok(()),
            None if !state.is_dropped(command.table) => Err(Obstacle::Early),
            _ => Err(Obstacle::Refused(self.stale(own))),
        }
    }

    /// A client names tables by name: one that is not known, or not in this form, may be one that only the peer knows.
    fn check_forward(&self, handed: &Handed, peer: NodeId) -> Result<(), Obstacle> {
        let Some(table) = handed.table() else { return Ok(()) };
        let state = self.shared.cluster.load();
        let known = state.table_named(&table.keyspace, &table.name);
        let is_known = known.is_some_and(|known| trefoil_proto::convert::schema::fits(table, known));
        let is_behind = || self.shared.peers.epoch_of(peer).is_some_and(|epoch| epoch > state.epoch());
        if !is_known && is_behind() { Err(Obstacle::Early) } else { Ok(()) }
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
            Outcome::Read(page, cost) => served.read(page, &cost),
            // This node does not answer yet: the asker may ask again.
            Outcome::Failed(FailureReason::Stale, _) => self.stale(0),
            Outcome::Failed(reason, text) => failed(reason, text),
        });
    }

    /// A peer's reply to something this lane had asked.
    pub(super) fn on_reply(self: &Arc<Self>, peer: NodeId, reply: v1::PeerReply) {
        let id = reply.id;
        match reply.result {
            Some(Reply::Acknowledged(_)) => self.acknowledged(id, peer),
            Some(Reply::Page(page)) => self.on_page(id, peer, page),
            Some(Reply::Answer(answer)) => self.forward_answered(id, answer.result),
            Some(Reply::Failure(failure)) => {
                tracing::debug!(peer = peer.0, reason = failure.message, "a peer refused an operation");
                self.on_failure(id, peer, failure::reason_of(&failure));
            }
            Some(Reply::Stale(stale)) => {
                if let Some(epoch) = stale.epoch {
                    self.shared.peers.told(peer, epoch_from_proto(&epoch));
                }
                self.on_failure(id, peer, FailureReason::Stale);
            }
            None => self.on_failure(id, peer, FailureReason::Malformed),
        }
    }

    fn on_page(self: &Arc<Self>, id: u64, peer: NodeId, page: v1::ReplicaPage) {
        let answer = match convert::digest(&page) {
            Ok(Some(digest)) => Ok((Found::Digest(digest), convert::cost(page.cost))),
            Ok(None) => {
                self.read_knows(id, Stamp(page.known_through));
                convert::page(page).map(|(page, cost)| (Found::Page(page), cost))
            }
            Err(error) => Err(error),
        };
        match answer {
            Ok((found, cost)) => self.read_found(id, peer, found, cost),
            Err(_) => self.on_failure(id, peer, FailureReason::Malformed),
        }
    }

    /// A link broke: what was under way on it may or may not have been done.
    pub(super) fn on_lost(self: &Arc<Self>, peer: NodeId) {
        let waiting = self.ops.lock().waiting_for(peer);
        for id in waiting {
            self.on_failure(id, peer, FailureReason::Disconnected);
        }
    }

    /// A replica has logged a write, or a repair of a read.
    fn acknowledged(self: &Arc<Self>, id: u64, node: NodeId) {
        if !self.write_acknowledged(id, node) && !self.hint_done(id, HintOutcome::Acknowledged) {
            self.repair_acknowledged(id, node);
        }
    }

    fn on_failure(self: &Arc<Self>, id: u64, peer: NodeId, reason: FailureReason) {
        if !self.write_failed(id, peer, reason) && !self.hint_done(id, hinted::outcome_of(reason)) {
            self.read_failed(id, peer, reason);
            self.forward_failed(id, reason);
        }
    }

    /// The own replica is done with something.
    pub(super) fn on_completion(self: &Arc<Self>, completion: Completion) {
        let own = self.shared.identity.node;
        let is_served = matches!(self.ops.lock().get(completion.id), Some(Op::Served(_)));
        if is_served {
            return self.served_done(completion.id, completion.outcome);
        }
        let is_counting = |op: &Op| matches!(op, Op::Counting(_));
        let counting = self.ops.lock().remove_if(completion.id, is_counting);
        if let Some(Op::Counting(counting)) = counting {
            return self.count_on(counting, completion.outcome);
        }
        match completion.outcome {
            Outcome::Written => self.acknowledged(completion.id, own),
            Outcome::Read(page, cost) => self.read_found(completion.id, own, Found::Page(page), cost),
            Outcome::Failed(reason, text) => {
                tracing::debug!(reason = text, "the own replica refused an operation");
                self.on_failure(completion.id, own, reason);
            }
        }
    }

    /// An operation has passed its deadline, or is a read that is to be looked at.
    pub(super) fn expire(self: &Arc<Self>, id: u64) {
        self.write_due(id);
        self.hint_done(id, HintOutcome::Lost);
        self.read_due(id);
        self.forward_expired(id);
        self.counting_expired(id);
    }
}

fn work(operation: Option<Operation>) -> Result<Work, Reply> {
    match operation {
        // Every byte is looked at before it is logged: what cannot be decoded must not get into the log.
        Some(Operation::Write(record)) => checked(record).map(|(record, last)| Work::Write(record, last)),
        Some(Operation::Hint(record)) => checked(record).map(|(record, last)| Work::Hint(record, last)),
        Some(Operation::Read(read)) => match convert::read_command(read) {
            Ok(command) => Ok(Work::Read(Arc::new(command))),
            Err(error) => Err(failed(FailureReason::Malformed, error.to_string())),
        },
        Some(Operation::Forward(forward)) => match forward.operation.and_then(|operation| operation.op) {
            Some(v1::pipe_operation::Op::Mutate(request)) => {
                Ok(Work::Forward(Box::new(Handed::Mutate(request)), forward.hops))
            }
            Some(v1::pipe_operation::Op::Increment(request)) => {
                Ok(Work::Forward(Box::new(Handed::Increment(request)), forward.hops))
            }
            _ => Err(failed(FailureReason::Malformed, "only mutations and additions to counters are handed on")),
        },
        None => Err(failed(FailureReason::Malformed, "the operation is empty or of a later protocol")),
    }
}

fn checked(record: Bytes) -> Result<(CheckedRecord, Option<ColumnId>), Reply> {
    CheckedRecord::check(record).map_err(|error| failed(FailureReason::Malformed, error.to_string()))
}

fn refuse(peer: NodeId, served: &Served, reply: Reply) {
    tracing::debug!(peer = peer.0, ?reply, "refused an operation of a peer");
    served.reply(reply);
}

fn failed(reason: FailureReason, text: impl Into<String>) -> Reply {
    Reply::Failure(failure::to_peer(reason, text.into()))
}
