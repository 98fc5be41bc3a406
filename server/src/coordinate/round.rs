//! One command of a read: its replicas are asked, answer, differ, are late and are written back to.
//!
//! The state machine ([`ReadOp`]) says what to do; this is how it is done. A command is looked at when something happens to
//! it, and at one instant that it names itself ([`Round::look_at`]): when its first answers are later than usual, one
//! replica more is asked; when replicas differ and some are silent, they are not waited for any longer.

use std::sync::Arc;

use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::coordinator::{Digest, FailureReason, ReadAction, ReadOp, ReplicaMask, Waiting, Want, bit, indices};
use trefoil::model::{Instant, Mutation, NodeId, Page, ReadCost, Stamp, TokenRange};
use trefoil::ring::Replica as RingReplica;
use trefoil_proto::convert::peer as convert;
use trefoil_proto::v1;

use super::Lane;
use super::ops::Op;
use super::read::ReadSession;
use super::write::timeout_ms;
use crate::replica::{Ticket, WriteJob};
use crate::{clock, metrics};

/// How long replicas are waited for that the level does not need, once answers differ; no more than a quarter of the time
/// that is left.
const WIDEN_US_MAX: u64 = 200_000;

/// One command and the replicas it is asked of.
pub(super) struct Round {
    op: ReadOp,
    pub(super) nodes: Vec<RingReplica>,
    placement: u64,
    /// For a scan: the tokens it covers.
    pub(super) run: Option<TokenRange>,
    /// Writes back to each replica that are not acknowledged yet.
    repairs: Vec<(usize, usize)>,
    began: Instant,
    /// Those that were asked at the beginning and whose time is not noted yet.
    timed: ReplicaMask,
    /// The one that was asked because others were late.
    extra: Option<usize>,
    /// What it waited for when it was looked at last.
    waiting: Waiting,
    /// When it is to be looked at although nothing has happened.
    pub(super) look_at: Option<Instant>,
    /// What all replicas had before any of the pages was read, by the least that those say who were asked.
    known_through: Option<Stamp>,
}

/// What a replica answers to a read.
pub(super) enum Found {
    /// Its page.
    Page(Page),
    /// The digest of it.
    Digest(Digest),
}

/// Something that happened to a command.
pub(super) enum Event {
    /// A replica answered.
    Found(NodeId, Found, ReadCost),
    /// A replica could not, or was lost.
    Failed(NodeId, FailureReason),
    /// A replica took one write back.
    Repaired(NodeId),
    /// The instant has come that it named.
    Late,
    /// The deadline has passed.
    Expired,
}

impl Round {
    pub(super) fn new(op: ReadOp, nodes: Vec<RingReplica>, placement: u64, run: Option<TokenRange>) -> Round {
        let timed = op.outstanding();
        Round {
            op,
            nodes,
            placement,
            run,
            repairs: Vec::new(),
            began: clock::now(),
            timed,
            extra: None,
            waiting: Waiting::Nothing,
            look_at: None,
            known_through: None,
        }
    }

    fn index_of(&self, node: NodeId) -> Option<usize> {
        self.nodes.iter().position(|replica| replica.node == node)
    }
}

impl Lane {
    /// Does what the read wants done until it waits for somebody else, and puts it under way; answers the session if its
    /// command is over and another one is to follow.
    ///
    /// Meanwhile its slot says [`Op::Stepping`]: replies come on this lane's own thread, so none comes in between.
    pub(super) fn carry_out(
        &self,
        mut session: Box<ReadSession>,
        id: u64,
        mut actions: Vec<ReadAction>,
    ) -> Option<Box<ReadSession>> {
        loop {
            let mut events = Vec::new();
            let mut answer = None;
            for action in actions.drain(..) {
                match action {
                    ReadAction::Ask(replica, want) => self.ask(&mut session, id, (replica, want), &mut events),
                    ReadAction::Repair(replica, mutations) => {
                        self.repair(&mut session, id, replica, mutations, &mut events);
                    }
                    ReadAction::Answer(result) => answer = Some(result),
                }
            }
            if let Some(result) = answer {
                self.ops.lock().remove(id);
                return self.take_answer(session, result);
            }
            if events.is_empty() {
                break;
            }
            for event in events {
                self.step(&mut session, event, &mut actions);
            }
        }
        self.look_again(&mut session);
        self.ops.lock().replace(id, Op::Read(session));
        None
    }

    fn ask(&self, session: &mut ReadSession, id: u64, (replica, want): (usize, Want), events: &mut Vec<Event>) {
        let Some(round) = &session.round else { return };
        let node = round.nodes[replica].node;
        let deadline = session.request.deadline;
        if node == self.shared.identity.node {
            let ticket = Ticket { lane: self.number, id };
            match self.shared.replica.read(round.op.command(), deadline, ticket) {
                // The page does where its digest is wanted.
                Some(Ok((page, cost))) => events.push(Event::Found(node, Found::Page(page), cost)),
                Some(Err((reason, text))) => {
                    tracing::debug!(reason = text, "the own replica refused a read");
                    events.push(Event::Failed(node, reason));
                }
                None => {}
            }
            return;
        }
        let read = match want {
            Want::Page => convert::read_operation(round.op.command()),
            Want::Digest => convert::digest_operation(round.op.command(), round.op.unseen()),
        };
        let operation = v1::PeerOperation {
            id,
            timeout_ms: timeout_ms(deadline),
            placement: round.placement,
            op: Some(v1::peer_operation::Op::Read(read)),
        };
        if let Err(reason) = self.link(node).ok_or(FailureReason::Disconnected).and_then(|link| link.send(operation)) {
            events.push(Event::Failed(node, reason));
        }
    }

    /// Writes back to a replica what it lacks, as data without a name.
    fn repair(
        &self,
        session: &mut ReadSession,
        id: u64,
        replica: usize,
        mutations: Vec<Mutation>,
        events: &mut Vec<Event>,
    ) {
        metrics::read_repair(mutations.len());
        let deadline = session.request.deadline;
        let Some(round) = &mut session.round else { return };
        let node = round.nodes[replica].node;
        round.repairs.push((replica, mutations.len()));
        let made_at = Stamp(self.shared.peers.wall_us());
        let ring = session.place.state.ring();
        for mutation in mutations {
            let vnode = ring.vnode_bits().vnode(mutation.key.token());
            let placement = ring.placement(vnode);
            let own = self.shared.replication.known_through((session.place.keyspace.id, vnode));
            let known_through = own.max(round.known_through.unwrap_or_default());
            let kind = RecordKind::Nameless { composer: self.shared.identity.node, known_through };
            let record = CheckedRecord::encode(kind, session.place.keyspace.id, made_at, &mutation);
            if node == self.shared.identity.node {
                let durability = session.place.table.options.durability;
                let ticket = Ticket { lane: self.number, id };
                let job = WriteJob { record, durability, deadline, ticket };
                if let Err((reason, text)) = self.shared.replica.submit(job) {
                    tracing::debug!(reason = text, "the own replica refused a repair");
                    events.push(Event::Failed(node, reason));
                    return;
                }
                continue;
            }
            let operation = v1::PeerOperation {
                id,
                timeout_ms: timeout_ms(deadline),
                placement,
                op: Some(v1::peer_operation::Op::Write(record.bytes().clone())),
            };
            let sent = self.link(node).ok_or(FailureReason::Disconnected).and_then(|link| link.send(operation));
            if let Err(reason) = sent {
                events.push(Event::Failed(node, reason));
                return;
            }
        }
    }

    pub(super) fn read_found(self: &Arc<Self>, id: u64, node: NodeId, found: Found, cost: ReadCost) {
        self.read_event(id, Event::Found(node, found, cost));
    }

    /// What a replica says that all had before it read its page.
    pub(super) fn read_knows(&self, id: u64, through: Stamp) {
        if let Some(Op::Read(session)) = self.ops.lock().get(id)
            && let Some(round) = &mut session.round
        {
            round.known_through = Some(round.known_through.map_or(through, |known| known.min(through)));
        }
    }

    pub(super) fn read_failed(self: &Arc<Self>, id: u64, node: NodeId, reason: FailureReason) {
        self.read_event(id, Event::Failed(node, reason));
    }

    pub(super) fn repair_acknowledged(self: &Arc<Self>, id: u64, node: NodeId) {
        self.read_event(id, Event::Repaired(node));
    }

    pub(super) fn read_event(self: &Arc<Self>, id: u64, event: Event) {
        let mut ops = self.ops.lock();
        let Some(Op::Read(session)) = ops.get(id) else { return };
        let mut actions = Vec::new();
        self.step(session, event, &mut actions);
        if actions.is_empty() {
            return self.look_again(session);
        }
        // The same command goes on under the same id unless it is over.
        let Some(Op::Read(session)) = ops.replace(id, Op::Stepping) else { return };
        drop(ops);
        if let Some(session) = self.carry_out(session, id, actions) {
            self.run(session);
        }
    }

    /// One step of the state machine.
    fn step(&self, session: &mut ReadSession, event: Event, actions: &mut Vec<ReadAction>) {
        let Some(round) = &mut session.round else { return };
        match event {
            Event::Found(node, found, cost) => {
                session.request.cost += cost;
                let Some(replica) = round.index_of(node) else { return };
                if round.timed & bit(replica) != 0 {
                    round.timed &= !bit(replica);
                    self.haste.lock().answered(node, clock::now().since_us(round.began));
                }
                match found {
                    Found::Page(page) => round.op.page(replica, page, actions),
                    Found::Digest(digest) => round.op.digest(replica, digest, actions),
                }
            }
            Event::Failed(node, reason) => {
                let Some(replica) = round.index_of(node) else { return };
                round.timed &= !bit(replica);
                round.op.fail(replica, reason, actions);
            }
            Event::Repaired(node) => {
                let Some(replica) = round.index_of(node) else { return };
                let waits = round.repairs.iter_mut().find(|(at, left)| *at == replica && *left > 0);
                let Some((_, left)) = waits else { return };
                *left -= 1;
                if *left == 0 {
                    round.op.repaired(replica, actions);
                }
            }
            Event::Late => self.late(round, actions),
            Event::Expired => round.op.expire(actions),
        }
    }

    /// What is waited for takes long.
    fn late(&self, round: &mut Round, actions: &mut Vec<ReadAction>) {
        round.look_at = None;
        match round.op.waiting() {
            Waiting::Answers if self.haste.lock().spend() => {
                round.extra = round.op.speculate(actions);
                if round.extra.is_some() {
                    metrics::read_speculated();
                }
            }
            Waiting::Pages => round.op.settle(actions),
            Waiting::Answers | Waiting::Repairs | Waiting::Nothing => {}
        }
    }

    /// Says when the command is to be looked at if nothing happens to it.
    fn look_again(&self, session: &mut ReadSession) {
        let deadline = session.request.deadline;
        let Some(round) = &mut session.round else { return };
        let waiting = round.op.waiting();
        if waiting == std::mem::replace(&mut round.waiting, waiting) {
            return;
        }
        round.look_at = match waiting {
            Waiting::Answers if round.op.can_speculate() => {
                let asked = indices(round.op.outstanding()).map(|replica| round.nodes[replica].node);
                Some(round.began.plus_us(self.haste.lock().late_us(asked)))
            }
            Waiting::Pages => {
                metrics::read_differs();
                let now = clock::now();
                Some(now.plus_us(WIDEN_US_MAX.min(deadline.since_us(now) / 4)))
            }
            Waiting::Answers | Waiting::Repairs | Waiting::Nothing => None,
        };
    }

    /// A command is over: what it tells of those that are not waited for any more.
    pub(super) fn note_end(&self, round: &Round) {
        let elapsed_us = clock::now().since_us(round.began);
        let late = round.timed & round.op.outstanding();
        if late != 0 {
            let mut haste = self.haste.lock();
            indices(late).for_each(|replica| haste.left_waiting(round.nodes[replica].node, elapsed_us));
        }
        if round.extra.is_some_and(|extra| round.op.outstanding() & bit(extra) == 0 && late != 0) {
            metrics::read_speculation_won();
        }
    }
}
