//! Writes that this node coordinates.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::coordinator::{FailureReason, Requirement, WriteError, WriteOp, indices};
use trefoil::model::{Durability, Instant, KeyspaceId, NodeId, PartitionKey, Stamp, TableId, Timestamp, Vnode};
use trefoil::ring::{Replica as RingReplica, Replicas};
use trefoil_proto::convert::{key, mutation};
use trefoil_proto::v1;
use trefoil_proto::v1::pipe_answer::Result as Answer;

use super::again::{Again, Attempts};
use super::naming::Turn;
use super::ops::Op;
use super::request::{Batch, Kind, Reply, Request};
use super::{Lane, Place, failure};
use crate::clock;
use crate::hints::Hints;
use crate::replica::{Ticket, WriteJob};

/// How often a mutation is handed on at most.
pub(super) const HOPS_MAX: u32 = 3;

/// A write under way.
pub(super) struct Write {
    pub(super) op: WriteOp,
    pub(super) nodes: Vec<RingReplica>,
    pub(super) placement: u64,
    pub(super) request: Option<Request>,
    pub(super) level: trefoil::coordinator::Consistency,
    pub(super) result: v1::WriteResult,
    pub(super) deadline: Instant,
    pub(super) kept: Kept,
    pub(super) attempts: Attempts,
    /// It has failed, and will be made again.
    pub(super) again: Option<Again>,
}

/// What a hint for a replica that misses the write is made of.
pub(super) struct Kept {
    pub(super) keyspace: KeyspaceId,
    pub(super) vnode: Vnode,
    pub(super) record: Bytes,
}

/// Where a mutation belongs.
type Located = (Place, PartitionKey);

/// The mutations of a batch that are one write, or the reason why they are none.
type Part = (Result<Located, v1::Error>, v1::Mutation);

impl Write {
    pub(super) fn waits_for(&self, node: NodeId) -> bool {
        self.index_of(node).is_some_and(|replica| self.op.outstanding() >> replica & 1 == 1)
    }

    fn index_of(&self, node: NodeId) -> Option<usize> {
        self.nodes.iter().position(|replica| replica.node == node)
    }

    /// When something is to be done about it.
    pub(super) fn due(&self) -> Instant {
        self.again.as_ref().map_or(self.deadline, |again| again.at)
    }

    /// Lets everyone who misses the write by now get a hint.
    pub(super) fn hint_missed(&mut self, hints: &Hints) {
        for replica in indices(self.op.take_missed()) {
            let Kept { keyspace, vnode, record } = &self.kept;
            hints.keep(self.nodes[replica].node, *keyspace, *vnode, record.clone());
        }
    }

    /// Answers, or waits to be made again.
    fn answer(&mut self, outcome: Option<Result<(), WriteError>>) {
        let Some(outcome) = outcome else { return };
        if let (Err(error), true) = (&outcome, self.request.is_some()) {
            self.again = Again::after(error, self.attempts, self.deadline);
        }
        if self.again.is_none() {
            self.end(outcome);
        }
    }

    fn end(&mut self, outcome: Result<(), WriteError>) {
        let Some(request) = self.request.take() else { return };
        match outcome {
            Ok(()) => request.finish(Answer::Write(std::mem::take(&mut self.result))),
            Err(error) => request.fail(failure::write(self.level, error, |at| self.nodes[at].node)),
        }
    }
}

/// A mutation that has its name, with the turn that gave it.
pub(super) struct Named<'a> {
    pub(super) write: Box<Write>,
    pub(super) record: CheckedRecord,
    /// None where it was named before.
    pub(super) turn: Option<Turn<'a>>,
}

impl Lane {
    /// A mutation of one partition. `hops`: how often it has been handed on.
    pub(super) fn mutate(self: &Arc<Self>, request: v1::MutateRequest, deadline: Instant, reply: Reply, hops: u32) {
        let size = request.encoded_len();
        let Some((under_way, options)) = self.admit(Kind::Mutate, size, request.options, deadline, reply) else {
            return;
        };
        let Some(mutation) = request.mutation else {
            return under_way.fail(v1::Error::invalid(v1::InvalidDetail::new("the request has no mutation")));
        };
        match self.locate(&mutation) {
            Ok(located) => self.write_partition(located, mutation, options, under_way, hops),
            Err(error) => under_way.fail(error),
        }
    }

    /// Mutations of several partitions: those of one partition of one table are one write.
    pub(super) fn batch(self: &Arc<Self>, request: v1::BatchRequest, deadline: Instant, reply: Reply) {
        let size = request.encoded_len();
        let Some((under_way, options)) = self.admit(Kind::Batch, size, request.options, deadline, reply) else {
            return;
        };
        if request.mutations.is_empty() {
            return under_way.fail(v1::Error::invalid(v1::InvalidDetail::new("the batch has no mutations")));
        }
        let warnings = match self.shared.guardrails.check_batch(request.mutations.len(), size) {
            Ok(warnings) => warnings,
            Err(invalid) => return under_way.fail(v1::Error::invalid(invalid)),
        };
        let (parts, part_of) = self.group_by_partition(request.mutations);
        let batch = Batch::new(under_way, part_of, warnings);
        for (number, (located, mutation)) in parts.into_iter().enumerate() {
            let reply = Reply::Part(batch.clone(), number);
            let part = Request::new(Kind::Mutate, reply, deadline, options.request_id.clone(), None);
            match located {
                Ok(located) => self.write_partition(located, mutation, options.clone(), part, 0),
                Err(error) => part.fail(error),
            }
        }
    }

    /// Joins mutations of one partition of one table, however they name it; says of each mutation which part it is in.
    fn group_by_partition(&self, mutations: Vec<v1::Mutation>) -> (Vec<Part>, Vec<usize>) {
        let mut parts: Vec<Part> = Vec::with_capacity(mutations.len());
        let mut by_key: HashMap<(TableId, PartitionKey), usize> = HashMap::new();
        let mut part_of = Vec::with_capacity(mutations.len());
        for mutation in mutations {
            let located = self.locate(&mutation);
            let known = located.as_ref().ok().map(|(place, key)| (place.table.id, key.clone()));
            let part = known.map_or(parts.len(), |key| *by_key.entry(key).or_insert(parts.len()));
            part_of.push(part);
            match parts.get_mut(part) {
                Some((_, joined)) => joined.changes.extend(mutation.changes),
                None => parts.push((located, mutation)),
            }
        }
        (parts, part_of)
    }

    /// The table and the partition that a mutation is for.
    fn locate(&self, mutation: &v1::Mutation) -> Result<Located, v1::Error> {
        let place = self.place(mutation.table.as_ref())?;
        let key = key::partition_key(mutation.partition.iter().cloned(), &place.table)
            .map_err(|invalid| v1::Error::invalid(invalid.table(&place.keyspace.name, &place.table.name)))?;
        Ok((place, key))
    }

    fn write_partition(
        self: &Arc<Self>,
        (place, key): Located,
        mutation: v1::Mutation,
        options: v1::Options,
        request: Request,
        hops: u32,
    ) {
        let replicas = place.state.ring().replicas(&place.keyspace, key.token());
        if !self.shared.may_coordinate(place.keyspace.id, &replicas) {
            return self.forward(&place, &replicas, mutation, options, request, hops);
        }
        match self.start_write(&place, key, replicas, mutation.changes, &options, &request) {
            Ok(named) => self.send_write(named, place.table.options.durability, request),
            Err(error) => request.fail(error),
        }
    }

    /// Checks, names, stamps and encodes the mutation.
    fn start_write(
        &self,
        place: &Place,
        key: PartitionKey,
        replicas: Replicas,
        changes: Vec<v1::Change>,
        options: &v1::Options,
        request: &Request,
    ) -> Result<Named<'_>, v1::Error> {
        let level = failure::level(options)?;
        let regions: Vec<u16> = replicas.nodes.iter().map(|replica| replica.region.0).collect();
        let requirement = Requirement::new(level, &regions, self.shared.own_region(&place.state).0);
        let op = WriteOp::start(requirement, self.shared.alive_mask(&replicas))
            .map_err(|unavailable| failure::unavailable(level, unavailable))?;
        let mut turn =
            self.shared.naming.turn(Stamp(options.observed_stamp)).map_err(|no_stamp| failure::no_stamp(&no_stamp))?;
        let own_id = request_id(self.shared.identity.node, turn.stamp);
        let context = mutation::WriteContext {
            table: &place.table,
            stamp: turn.stamp,
            default_timestamp: options.default_timestamp_us.map(Timestamp),
            request_id: if options.request_id.is_empty() { &own_id } else { &options.request_id },
        };
        let mutation = mutation::mutation(&context, key, changes)
            .map_err(|invalid| v1::Error::invalid(invalid.table(&place.keyspace.name, &place.table.name)))?;
        let warnings = self.shared.guardrails.check_write(&mutation, &place.table);
        let warnings =
            warnings.map_err(|invalid| v1::Error::invalid(invalid.table(&place.keyspace.name, &place.table.name)))?;
        let (stamp, timestamp) = (turn.stamp, context.timestamp());
        let name = turn.name(place.keyspace.id, replicas.vnode);
        let record = CheckedRecord::encode(RecordKind::Named(name), place.keyspace.id, stamp, &mutation);
        let (size, size_max) = (record.bytes().len(), self.shared.limits.mutation_bytes_max);
        if size > size_max {
            // The name stays void: no replica will ever report it.
            let reason =
                format!("the mutation takes {size} bytes, at most {size_max} are possible; write it in several");
            let invalid = v1::InvalidDetail::new(reason).table(&place.keyspace.name, &place.table.name);
            return Err(v1::Error::invalid(invalid));
        }
        let write = Write {
            op,
            nodes: replicas.nodes,
            placement: replicas.placement,
            request: None,
            level,
            result: v1::WriteResult { stamp: stamp.0, timestamp_us: timestamp.0, warnings },
            deadline: request.deadline,
            kept: Kept { keyspace: place.keyspace.id, vnode: replicas.vnode, record: record.bytes().clone() },
            attempts: Attempts::default(),
            again: None,
        };
        Ok(Named { write: Box::new(write), record, turn: Some(turn) })
    }

    /// Hands the record to the own log and to every other live replica.
    pub(super) fn send_write(&self, named: Named<'_>, durability: Durability, request: Request) {
        let Named { mut write, record, turn } = named;
        let (targets, nodes, deadline) = (write.op.targets(), write.nodes.clone(), write.deadline);
        write.request = Some(request);
        write.hint_missed(&self.shared.hints);
        let (placement, timeout_ms) = (write.placement, timeout_ms(deadline));
        let id = self.ops.lock().insert(Op::Write(write));
        for replica in indices(targets) {
            let node = nodes[replica].node;
            if node == self.shared.identity.node {
                let ticket = Ticket { lane: self.number, id };
                let job = WriteJob { record: record.clone(), durability, deadline, ticket };
                if let Err((reason, text)) = self.shared.replica.submit(job) {
                    tracing::debug!(reason = text, "the own replica refused a write");
                    self.write_failed(id, node, reason);
                }
                continue;
            }
            self.send_record(id, node, (placement, timeout_ms), record.bytes().clone());
        }
        // Until here nothing later may be named: whoever sees this stamp passed finds the mutation in a queue.
        drop(turn);
    }

    fn send_record(&self, id: u64, node: NodeId, (placement, timeout_ms): (u64, u32), record: Bytes) {
        let operation =
            v1::PeerOperation { id, timeout_ms, placement, op: Some(v1::peer_operation::Op::Write(record)) };
        let sent = self.link(node).ok_or(FailureReason::Disconnected).and_then(|link| link.send(operation));
        if let Err(reason) = sent {
            self.write_failed(id, node, reason);
        }
    }

    /// Hands a record that the own replica has already to every other live one.
    pub(super) fn send_to_others(&self, mut write: Box<Write>, record: &Bytes, request: Option<Request>) {
        let (targets, nodes) = (write.op.targets(), write.nodes.clone());
        let how = (write.placement, timeout_ms(write.deadline));
        write.request = request;
        write.hint_missed(&self.shared.hints);
        let (own, id) = (self.shared.identity.node, self.ops.lock().insert(Op::Write(write)));
        for node in indices(targets).map(|replica| nodes[replica].node).filter(|node| *node != own) {
            self.send_record(id, node, how, record.clone());
        }
        self.write_acknowledged(id, own);
    }

    /// A replica has acknowledged; whether it was a write that waits for it.
    pub(super) fn write_acknowledged(&self, id: u64, node: NodeId) -> bool {
        self.with_write(id, |write| {
            let Some(replica) = write.index_of(node) else { return };
            let outcome = write.op.acknowledge(replica);
            write.answer(outcome);
        })
    }

    /// A replica has failed; whether it was a write that waits for it.
    pub(super) fn write_failed(&self, id: u64, node: NodeId, reason: FailureReason) -> bool {
        self.with_write(id, |write| {
            let Some(replica) = write.index_of(node) else { return };
            let outcome = write.op.fail(replica, reason);
            write.answer(outcome);
        })
    }

    /// Ends a write: what has not come by now is not waited for.
    pub(super) fn end_write(&self, mut write: Box<Write>) {
        let outcome = write.op.expire();
        write.hint_missed(&self.shared.hints);
        if let Some(outcome) = write.again.take().map(|again| Err(again.error)).or(outcome) {
            write.end(outcome);
        }
    }

    /// Takes a write out; `None` if it is over.
    pub(super) fn take_write(&self, id: u64) -> Option<Box<Write>> {
        match self.ops.lock().remove_if(id, |op| matches!(op, Op::Write(_)))? {
            Op::Write(write) => Some(write),
            _ => None,
        }
    }

    /// This node stops: replicas that have not acknowledged get hints now.
    pub fn give_up_writes(&self) {
        let ids = self.ops.lock().ids_of_writes();
        ids.into_iter().filter_map(|id| self.take_write(id)).for_each(|write| self.end_write(write));
    }

    /// Takes a step of a write; whether there is one with this id.
    fn with_write(&self, id: u64, step: impl FnOnce(&mut Write)) -> bool {
        let mut ops = self.ops.lock();
        let Some(Op::Write(write)) = ops.get(id) else { return false };
        step(write);
        // One that is made again is hinted then, if it must be.
        if write.again.is_some() {
            return true;
        }
        write.hint_missed(&self.shared.hints);
        if write.op.outstanding() == 0 {
            ops.remove(id);
        }
        true
    }
}

/// What tells a request that has no id from others: no node gives one stamp twice.
fn request_id(node: NodeId, stamp: Stamp) -> [u8; 12] {
    let mut id = [0; 12];
    id[..4].copy_from_slice(&node.0.to_be_bytes());
    id[4..].copy_from_slice(&stamp.0.to_be_bytes());
    id
}

/// Milliseconds until `deadline`, at least 1.
pub(super) fn timeout_ms(deadline: Instant) -> u32 {
    let left = Duration::from_micros(deadline.since_us(clock::now()));
    u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1)
}
