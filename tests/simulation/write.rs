//! Writes that a node coordinates.

use bytes::Bytes;
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::coordinator::{Consistency, FailureReason, Requirement, WriteError, WriteOp, indices};
use trefoil::model::{MutationName, NodeId, Stamp};
use trefoil::received::Slice;
use trefoil::received::namer::Tick;
use trefoil::ring::{Replica, Replicas};

use super::event::{Answer, Event, Message};
use super::log::{Job, Ticket};
use super::node::{Node, Op, Reply};
use super::scheduler::Sim;
use super::shape::place_of;
use super::workload::required;

/// How long a request may take.
pub const TIMEOUT_US: u64 = 2_000_000;

/// A write under way.
pub struct Write {
    pub op: WriteOp,
    pub nodes: Vec<Replica>,
    pub slice: Slice,
    pub record: Bytes,
    /// Whom to answer; `None` once that was done.
    call: Option<u64>,
    stamp: Stamp,
    name: MutationName,
    /// How many replicas its level takes.
    required: usize,
}

impl Write {
    pub fn waits_for(&self, node: NodeId) -> bool {
        self.index_of(node).is_some_and(|replica| self.op.outstanding() >> replica & 1 == 1)
    }

    fn take(&mut self, replica: usize, reply: Reply) -> Option<Result<(), WriteError>> {
        match reply {
            Reply::Acknowledged => self.op.acknowledge(replica),
            Reply::Failed(reason) => self.op.fail(replica, reason),
            Reply::Page(..) | Reply::Digest(_) => self.op.fail(replica, FailureReason::Malformed),
        }
    }

    fn index_of(&self, node: NodeId) -> Option<usize> {
        self.nodes.iter().position(|replica| replica.node == node)
    }
}

impl Node {
    /// A client wants something written.
    pub fn mutate(&mut self, sim: &mut Sim, call: u64, write: u64, level: Consistency, observed: Stamp) {
        let change = sim.history.change(write).clone();
        let table = &sim.shape.schema.tables[change.table];
        let key = sim.shape.schema.partition(change.partition);
        let (keyspace, durability) = (table.keyspace.clone(), table.durability);
        let replicas = sim.shape.ring.replicas(&keyspace, key.token());
        let Some((op, stamp)) = self.begin_write(sim, &replicas, level, observed) else {
            return self.answer(sim, call, Answer::NotApplied);
        };
        let mutation = sim.shape.schema.mutation(&change, write, stamp);
        let name = self.running().namer.name(keyspace.id, replicas.vnode);
        sim.history.stamped(write, stamp);
        sim.named((keyspace.id, replicas.vnode), name, stamp);
        sim.note(|| format!("n{} names write {write} {change:?} {name:?} at {}", self.at, stamp.0));
        let record = CheckedRecord::encode(RecordKind::Named(name), keyspace.id, stamp, &mutation);
        let (targets, nodes, placement) = (op.targets(), replicas.nodes.clone(), replicas.placement);
        let id = self.next_id();
        let slice = (keyspace.id, replicas.vnode);
        let required = required(&sim.shape, change.table, level, self.at);
        let (nodes_of, bytes) = (replicas.nodes, record.bytes().clone());
        let mut under_way =
            Write { op, nodes: nodes_of, slice, record: bytes, call: Some(call), stamp, name, required };
        self.keep_hints(sim, &mut under_way);
        self.running().ops.insert(id, Op::Write(Box::new(under_way)));
        sim.after(TIMEOUT_US, Event::Expire { node: self.at, run: self.run, id });
        for node in indices(targets).map(|replica| nodes[replica].node) {
            let sent = if node == self.id() {
                let deadline_us = sim.now_us + TIMEOUT_US;
                let record = record.clone();
                self.submit(sim, Job { record, durability, deadline_us, ticket: Ticket::Own(id) })
            } else {
                let record = record.bytes().clone();
                let message = Message::Write { id, placement, timeout_us: TIMEOUT_US, record };
                self.send(sim, place_of(node), message)
            };
            if let Err(reason) = sent {
                self.on_reply(sim, id, node, Reply::Failed(reason));
            }
        }
    }

    /// Whether the level can be met, and a stamp; `None` if not, and nothing was begun.
    fn begin_write(
        &mut self,
        sim: &mut Sim,
        replicas: &Replicas,
        level: Consistency,
        observed: Stamp,
    ) -> Option<(WriteOp, Stamp)> {
        if !replicas.contains(self.id()) {
            return None;
        }
        let requirement = self.requirement(sim, replicas, level);
        let op = WriteOp::start(requirement, self.alive(sim, replicas)).ok()?;
        let wall_us = self.wall_us(sim);
        let clock = &mut self.running().clock;
        let is_credible = clock.observe(observed, wall_us).is_ok();
        let Tick::Stamp(stamp) = clock.next(wall_us) else { return None };
        if is_credible && stamp <= observed {
            sim.fail(format!("n{} gives stamp {} to who has seen {}", self.at, stamp.0, observed.0));
        }
        self.gave(sim, stamp);
        Some((op, stamp))
    }

    pub fn requirement(&self, sim: &Sim, replicas: &Replicas, level: Consistency) -> Requirement {
        let regions: Vec<u16> = replicas.nodes.iter().map(|replica| replica.region.0).collect();
        Requirement::new(level, &regions, sim.shape.regions[self.at])
    }

    pub fn on_write_reply(&mut self, sim: &mut Sim, id: u64, from: NodeId, reply: Reply) {
        let Some(Op::Write(mut write)) = self.running().ops.remove(&id) else { return };
        let outcome = write.index_of(from).and_then(|replica| write.take(replica, reply));
        let (call, stamp, is_over) = (write.call, write.stamp, write.op.outstanding() == 0);
        if outcome == Some(Ok(())) {
            sim.acknowledged(write.slice, write.name, write.required);
        }
        if outcome.is_some() {
            write.call = None;
        }
        self.keep_hints(sim, &mut write);
        if !is_over {
            self.running().ops.insert(id, Op::Write(write));
        }
        self.answer_write(sim, call, stamp, outcome);
    }

    pub fn expire_write(&mut self, sim: &mut Sim, id: u64) {
        if let Some(Op::Write(mut write)) = self.running().ops.remove(&id) {
            let outcome = write.op.expire();
            self.keep_hints(sim, &mut write);
            self.answer_write(sim, write.call, write.stamp, outcome);
        }
    }

    fn answer_write(
        &mut self,
        sim: &mut Sim,
        call: Option<u64>,
        stamp: Stamp,
        outcome: Option<Result<(), WriteError>>,
    ) {
        match (call, outcome) {
            (Some(call), Some(Ok(()))) => self.answer(sim, call, Answer::Written { stamp }),
            (Some(call), Some(Err(_))) => self.answer(sim, call, Answer::Unknown),
            _ => {}
        }
    }

    /// Tells a client.
    pub fn answer(&mut self, sim: &mut Sim, call: u64, answer: Answer) {
        let delay = sim.delay(100, 2_000);
        sim.after(delay, Event::Answer { call, answer });
    }
}
