//! Reads that a node coordinates: one page is as many commands as it takes, each asked of the replicas of its partition or,
//! for a scan, of the longest run of vnodes that have the same ones.

use std::sync::Arc;

use bytes::Bytes;
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::coordinator::{
    Assembler, Consistency, Distance, Extent, Next, PageLimits, PagingState, ReadAction, ReadAnswer, ReadError, ReadOp,
    Start, Waiting, Want, nearest_first,
};
use trefoil::model::{
    LiveColumns, Mutation, NodeId, PagePosition, ReadCommand, Slice, Stamp, Target, Token, TokenRange, Vnode,
};
use trefoil::ring::{Replica, Replicas};

use super::event::{Answer, Event, Message, Read, ReadTarget};
use super::log::{Job, Ticket};
use super::node::{Node, Op, Reply, is_at};
use super::scheduler::Sim;
use super::schema::{VALUE, written_by};
use super::shape::place_of;
use super::workload::required;
use super::write::TIMEOUT_US;

/// Answers that have not come by then are late.
const LATE_US: u64 = 100_000;

/// A page under way.
pub struct ReadSession {
    call: u64,
    read: Read,
    level: Consistency,
    now_s: i64,
    assembler: Assembler,
    began_us: u64,
    /// Where the next command begins.
    after: Option<PagePosition>,
    /// For a scan: the tokens that no command has covered yet; `None` once all are.
    remaining: Option<TokenRange>,
    commands: u64,
    round: Option<Round>,
}

/// One command and the replicas it is asked of.
struct Round {
    op: ReadOp,
    nodes: Vec<Replica>,
    placement: u64,
    run: Option<TokenRange>,
    /// Writes back to each replica that are not acknowledged yet.
    repairs: Vec<(usize, usize)>,
    /// How many replicas its level takes.
    required: usize,
    /// The lowest that any of the replicas had reconciled before it was read.
    known_through: Stamp,
}

impl ReadSession {
    pub fn waits_for(&self, node: NodeId) -> bool {
        self.round.as_ref().is_some_and(|round| round.nodes.iter().any(|replica| replica.node == node))
    }

    /// The command covered all it asked for.
    fn next_target(&mut self, run: Option<TokenRange>) {
        self.after = None;
        self.remaining = match (run, self.remaining) {
            (Some(run), Some(remaining)) if run.up_to.is_some() => Some(TokenRange { after: run.up_to, ..remaining }),
            _ => None,
        };
    }

    /// One step of the state machine.
    fn step(&mut self, from: NodeId, reply: Reply, actions: &mut Vec<ReadAction>) {
        let Some(round) = &mut self.round else { return };
        let Some(replica) = round.nodes.iter().position(|replica| replica.node == from) else { return };
        match reply {
            Reply::Page(page, reconciled) => {
                round.known_through = round.known_through.min(reconciled);
                round.op.page(replica, page, actions);
            }
            Reply::Digest(digest) => round.op.digest(replica, digest, actions),
            Reply::Failed(reason) => round.op.fail(replica, reason, actions),
            Reply::Acknowledged => {
                let waits = round.repairs.iter_mut().find(|(at, left)| *at == replica && *left > 0);
                let Some((_, left)) = waits else { return };
                *left -= 1;
                if *left == 0 {
                    round.op.repaired(replica, actions);
                }
            }
        }
    }
}

impl Node {
    /// A client wants a page.
    pub fn read(&mut self, sim: &mut Sim, call: u64, read: Read, level: Consistency, observed: Stamp, state: &Bytes) {
        let wall_us = self.wall_us(sim);
        // An observed stamp that is not credible is no reason to refuse a read.
        let _ = self.running().clock.observe(observed, wall_us);
        let start = match state.is_empty() {
            true => Start::Beginning,
            false => PagingState::decode(state, fingerprint(&read)).unwrap().start,
        };
        let now_s = wall_us.div_euclid(1_000_000);
        let live: LiveColumns = [VALUE].into_iter().collect();
        let limits = PageLimits { rows: read.page_rows, bytes: u64::from(read.page_bytes), rows_per_partition: None };
        let after = start.resume().map(|resume| resume.position.clone());
        let mut remaining = TokenRange::ALL;
        if let Start::Behind(token) = start {
            remaining.after = Some(token);
        } else if let Some(position) = &after {
            remaining.after = position.partition.token().0.checked_sub(1).map(Token);
        }
        let assembler = Assembler::new(limits, now_s, live, start.resume());
        let began_us = sim.now_us;
        let session = ReadSession {
            call,
            read,
            level,
            now_s,
            assembler,
            began_us,
            after,
            remaining: Some(remaining),
            commands: 0,
            round: None,
        };
        self.go_on_reading(sim, Box::new(session));
    }

    /// Runs a session until it waits for somebody else or is answered.
    fn go_on_reading(&mut self, sim: &mut Sim, session: Box<ReadSession>) {
        let mut next = Some(session);
        while let Some(session) = next {
            let Some((session, id, actions)) = self.next_command(sim, session) else { return };
            next = self.carry_out(sim, session, id, actions);
        }
    }

    fn next_command(
        &mut self,
        sim: &mut Sim,
        mut session: Box<ReadSession>,
    ) -> Option<(Box<ReadSession>, u64, Vec<ReadAction>)> {
        let Some(remaining) = session.remaining else {
            self.answer_page(sim, session, None);
            return None;
        };
        session.commands += 1;
        let (target, slices, replicas, run) = route(sim, &session.read, remaining);
        let whole = slices == [Slice::all()];
        session.assembler.begin_target(if whole { Extent::WholePartitions } else { Extent::Slices });
        let command = Arc::new(ReadCommand {
            table: sim.shape.schema.tables[session.read.table].id,
            target,
            slices,
            direction: session.read.direction,
            after: session.after.clone(),
            now_s: session.now_s,
            limit_rows: session.assembler.wanted(),
            limit_bytes: session.read.page_bytes,
        });
        let requirement = self.requirement(sim, &replicas, session.level);
        let required = required(&sim.shape, session.read.table, session.level, self.at);
        let distances: Vec<Distance> = replicas.nodes.iter().map(|replica| self.distance(sim, replica)).collect();
        let turn = sim.random.below(8) as usize;
        let order = nearest_first(&distances, self.alive(sim, &replicas), turn);
        let mut actions = Vec::new();
        match ReadOp::start(command, requirement, &order, None, &mut actions) {
            Ok(op) => {
                let (nodes, placement) = (replicas.nodes, replicas.placement);
                session.round = Some(Round {
                    op,
                    nodes,
                    placement,
                    run,
                    repairs: Vec::new(),
                    required,
                    known_through: Stamp(i64::MAX),
                });
                let id = self.next_id();
                sim.after(TIMEOUT_US, Event::Expire { node: self.at, run: self.run, id });
                sim.after(LATE_US, Event::Look { node: self.at, run: self.run, id });
                Some((session, id, actions))
            }
            Err(_) => {
                self.answer(sim, session.call, Answer::NotApplied);
                None
            }
        }
    }

    fn distance(&self, sim: &Sim, replica: &Replica) -> Distance {
        let at = place_of(replica.node);
        match () {
            () if is_at(replica.node, self.at) => Distance::Own,
            () if sim.shape.zones[at] == sim.shape.zones[self.at] => Distance::Zone,
            () if sim.shape.regions[at] == sim.shape.regions[self.at] => Distance::Region,
            () => Distance::Remote,
        }
    }

    /// Does what the read wants done until it waits for somebody else; the session if another command is to follow.
    fn carry_out(
        &mut self,
        sim: &mut Sim,
        mut session: Box<ReadSession>,
        id: u64,
        mut actions: Vec<ReadAction>,
    ) -> Option<Box<ReadSession>> {
        while !actions.is_empty() {
            let mut replies = Vec::new();
            let mut answer = None;
            for action in actions.drain(..) {
                match action {
                    ReadAction::Ask(replica, want) => self.ask(sim, &session, id, (replica, want), &mut replies),
                    ReadAction::Repair(replica, mutations) => {
                        self.repair(sim, &mut session, id, replica, mutations, &mut replies);
                    }
                    ReadAction::Answer(result) => answer = Some(result),
                }
            }
            if let Some(result) = answer {
                return self.take_answer(sim, session, result);
            }
            for (node, reply) in replies {
                session.step(node, reply, &mut actions);
            }
        }
        self.running().ops.insert(id, Op::Read(session));
        None
    }

    fn ask(
        &mut self,
        sim: &mut Sim,
        session: &ReadSession,
        id: u64,
        (replica, want): (usize, Want),
        replies: &mut Vec<(NodeId, Reply)>,
    ) {
        let Some(round) = &session.round else { return };
        let (node, placement, command) = (round.nodes[replica].node, round.placement, round.op.command().clone());
        if node == self.id() {
            let reply = self.serve_read(sim, &command, placement);
            let reply = reply.map_or_else(Reply::Failed, |(page, reconciled)| Reply::Page(page, reconciled));
            replies.push((node, reply));
            return;
        }
        let digest = (want == Want::Digest).then(|| round.op.unseen());
        let message = Message::Read { id, placement, command, digest };
        if let Err(reason) = self.send(sim, place_of(node), message) {
            replies.push((node, Reply::Failed(reason)));
        }
    }

    /// Writes back to a replica what it lacks, as data without a name.
    fn repair(
        &mut self,
        sim: &mut Sim,
        session: &mut ReadSession,
        id: u64,
        replica: usize,
        mutations: Vec<Mutation>,
        replies: &mut Vec<(NodeId, Reply)>,
    ) {
        let Some(round) = &mut session.round else { return };
        let node = round.nodes[replica].node;
        round.repairs.push((replica, mutations.len()));
        let kind = RecordKind::Nameless { composer: self.id(), known_through: round.known_through };
        let made_at = Stamp(self.wall_us(sim));
        for mutation in mutations {
            sim.note(|| format!("n{} repairs {node} {mutation:?}", self.at));
            let table = &sim.shape.schema.tables[session.read.table];
            let durability = table.durability;
            let placement = sim.shape.ring.replicas(&table.keyspace, mutation.key.token()).placement;
            let record = CheckedRecord::encode(kind, table.keyspace.id, made_at, &mutation);
            let sent = if node == self.id() {
                let deadline_us = sim.now_us + TIMEOUT_US;
                self.submit(sim, Job { record, durability, deadline_us, ticket: Ticket::Own(id) })
            } else {
                let record = record.bytes().clone();
                self.send(sim, place_of(node), Message::Write { id, placement, timeout_us: TIMEOUT_US, record })
            };
            if let Err(reason) = sent {
                replies.push((node, Reply::Failed(reason)));
                return;
            }
        }
    }

    pub fn on_read_reply(&mut self, sim: &mut Sim, id: u64, from: NodeId, reply: Reply) {
        self.with_session(sim, id, |session, actions| session.step(from, reply, actions));
    }

    /// What has not come by now is late: another replica is asked, or those that owe their page are not waited for.
    pub fn look(&mut self, sim: &mut Sim, id: u64) {
        self.with_session(sim, id, |session, actions| {
            let Some(round) = &mut session.round else { return };
            match round.op.waiting() {
                Waiting::Answers => {
                    let _ = round.op.speculate(actions);
                }
                Waiting::Pages => round.op.settle(actions),
                Waiting::Repairs | Waiting::Nothing => {}
            }
        });
        if self.running().ops.contains_key(&id) {
            sim.after(LATE_US * 2, Event::Look { node: self.at, run: self.run, id });
        }
    }

    pub fn expire_read(&mut self, sim: &mut Sim, id: u64) {
        self.with_session(sim, id, |session, actions| {
            if let Some(round) = &mut session.round {
                round.op.expire(actions);
            }
        });
    }

    fn with_session(&mut self, sim: &mut Sim, id: u64, step: impl FnOnce(&mut ReadSession, &mut Vec<ReadAction>)) {
        let Some(Op::Read(mut session)) = self.running().ops.remove(&id) else { return };
        let mut actions = Vec::new();
        step(&mut session, &mut actions);
        if let Some(session) = self.carry_out(sim, session, id, actions) {
            self.go_on_reading(sim, session);
        }
    }

    /// A command is over: answers the session, or goes on.
    fn take_answer(
        &mut self,
        sim: &mut Sim,
        mut session: Box<ReadSession>,
        result: Result<ReadAnswer, ReadError>,
    ) -> Option<Box<ReadSession>> {
        let round = session.round.take()?;
        let Ok(answer) = result else {
            self.answer(sim, session.call, Answer::Unknown);
            return None;
        };
        if answer.repaired {
            sim.count("reads repaired");
        }
        sim.history.answered(&sim.shape.schema, round.op.command(), &answer, round.required, session.began_us);
        match session.assembler.take(answer) {
            Err(error) => {
                sim.fail(format!("n{}: the answer of the replicas cannot be read: {error}", self.at));
                None
            }
            Ok(Next::TooManyTombstones { .. }) => None,
            Ok(Next::PageFull(resume)) => {
                self.answer_page(sim, session, Some(Start::Resume(resume)));
                None
            }
            Ok(Next::ReadAfter(position)) => {
                session.after = Some(position);
                Some(session)
            }
            Ok(Next::Complete) => {
                session.next_target(round.run);
                Some(session)
            }
        }
    }

    fn answer_page(&mut self, sim: &mut Sim, session: Box<ReadSession>, next: Option<Start>) {
        let ReadSession { call, read, now_s, assembler, .. } = *session;
        let rows = assembler.into_rows().into_iter().filter_map(|row| {
            let number = sim.shape.schema.row_number(row.clustering.as_ref()?)?;
            Some((row.partition.bytes()[0], number, written_by(&row.row, now_s)?))
        });
        let rows = rows.collect();
        let next = next
            .map_or(Bytes::new(), |start| PagingState { target: 0, start, rows_left: None }.encode(fingerprint(&read)));
        let stamp = self.running().clock.last();
        self.answer(sim, call, Answer::Page { rows, now_s, next, stamp });
    }
}

/// Who holds what a read asks for next.
fn route(sim: &Sim, read: &Read, remaining: TokenRange) -> (Target, Vec<Slice>, Replicas, Option<TokenRange>) {
    let (schema, ring) = (&sim.shape.schema, &sim.shape.ring);
    let keyspace = &schema.tables[read.table].keyspace;
    let (partition, slices) = match read.target {
        ReadTarget::Row(partition, row) => (partition, vec![schema.slice(row)]),
        ReadTarget::Partition(partition) => (partition, vec![Slice::all()]),
        ReadTarget::Scan => {
            let first = remaining.after.map_or(Token(i64::MIN), |after| Token(after.0.saturating_add(1)));
            let sorted = |vnode| {
                let mut replicas = ring.replicas_of(keyspace, vnode);
                replicas.nodes.sort_unstable_by_key(|replica| replica.node);
                replicas
            };
            let mut replicas = sorted(schema.bits.vnode(first));
            while replicas.vnode.0 + 1 < schema.bits.count() {
                let next = sorted(Vnode(replicas.vnode.0 + 1));
                if next.nodes != replicas.nodes {
                    break;
                }
                replicas.vnode = next.vnode;
            }
            let run = TokenRange { after: remaining.after, up_to: schema.bits.range(replicas.vnode).up_to };
            replicas.placement = ring.placement_in(run);
            return (Target::Scan(run), vec![Slice::all()], replicas, Some(run));
        }
    };
    let key = schema.partition(partition).clone();
    let replicas = ring.replicas(keyspace, key.token());
    (Target::Partition(key), slices, replicas, None)
}

/// What must stay the same from page to page.
fn fingerprint(read: &Read) -> u64 {
    (read.table as u64) << 8 | u64::from(read.direction == trefoil::model::Direction::Reverse)
}
