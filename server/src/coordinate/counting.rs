//! Additions to counters.
//!
//! ```text
//!   request ─► a replica? ─no─► handed on, never twice
//!      │yes
//!      ▼
//!   turn of the partition ─► read the own shard ─► log it with the next clock ─► turn over ─► to the other replicas ─► level met
//!                            (own replica)         (own replica: logged, inserted)
//! ```
//!
//! Each replica adds in a shard of its own, which bears its number and its run, so two replicas never contend for one.
//!
//! **Invariants:** from reading the own shard until its next state is inserted nobody else adds to counters of the
//! partition on this node, so that no clock is used twice · no other replica sees a state of the shard that this one has not
//! logged · a run writes no shard of the run before (B029) · what may have been done is not done again (B011).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use prost::Message;
use tonic::Code;
use trefoil::codec::entry::{Trust, read_entry};
use trefoil::codec::varint::Reader;
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::coordinator::{Consistency, FailureReason, Requirement, WriteOp};
use trefoil::model::{
    Direction, Fragment, Instant, Page, PartitionKey, ReadCommand, Row, Shard, Stamp, TableId, Target,
};
use trefoil_proto::convert::counter::{self, Increment};
use trefoil_proto::v1;

use super::again::Attempts;
use super::forward::Again;
use super::ops::Op;
use super::request::{Kind, Reply, Request};
use super::write::{Kept, Write};
use super::{Lane, Place, failure};
use crate::clock;
use crate::replica::{Outcome, Ticket, WriteJob};

/// Additions that may wait for others to one partition; more are refused.
const WAITING_MAX: usize = 1_024;

/// Bytes after which a read of counters ends; the counters of one row are far smaller.
const READ_BYTES_MAX: u32 = 16 << 20;

/// A partition with counters.
type Partition = (TableId, PartitionKey);

/// Additions that wait for their turn, and where each is under way.
type Waiting = VecDeque<(Arc<Lane>, Box<Counting>)>;

/// Who adds to counters of which partition, and who waits to. A partition that nobody adds to is not here.
#[derive(Default)]
pub struct CounterTurns {
    partitions: Mutex<HashMap<Partition, Waiting>>,
}

/// An addition under way, as far as the own replica is concerned.
pub(super) struct Counting {
    /// `None` once it was answered.
    request: Option<Request>,
    place: Place,
    increment: Increment,
    level: Consistency,
    observed: Stamp,
    deadline: Instant,
    /// What the own replica is logging; before that it reads.
    logging: Option<(Box<Write>, CheckedRecord)>,
}

impl Counting {
    /// `None` once it was answered: what is left to be done takes as long as it takes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.request.is_some().then_some(self.deadline)
    }

    fn partition(&self) -> Partition {
        (self.increment.table, self.increment.key.clone())
    }

    fn fail(mut self: Box<Self>, error: v1::Error) {
        if let Some(request) = self.request.take() {
            request.fail(error);
        }
    }

    fn requirement(&self, lane: &Lane) -> Result<WriteOp, v1::Error> {
        let replicas = self.place.state.ring().replicas(&self.place.keyspace, self.increment.key.token());
        let regions: Vec<u16> = replicas.nodes.iter().map(|replica| replica.region.0).collect();
        let own_region = lane.shared.own_region(&self.place.state).0;
        let requirement = Requirement::new(self.level, &regions, own_region);
        WriteOp::start(requirement, lane.shared.alive_mask(&replicas))
            .map_err(|unavailable| failure::unavailable(self.level, unavailable))
    }
}

impl CounterTurns {
    /// Takes the turn of a partition, or waits for it (`None`); an error, with the addition, if too many wait.
    fn take(&self, lane: &Arc<Lane>, counting: Box<Counting>) -> Result<Option<Box<Counting>>, Box<Counting>> {
        match self.partitions.lock().entry(counting.partition()) {
            Entry::Vacant(vacant) => {
                vacant.insert(VecDeque::new());
                Ok(Some(counting))
            }
            Entry::Occupied(waiting) if waiting.get().len() >= WAITING_MAX => Err(counting),
            Entry::Occupied(mut waiting) => {
                waiting.get_mut().push_back((lane.clone(), counting));
                Ok(None)
            }
        }
    }

    /// Ends the turn of a partition; who has it now.
    fn pass_on(&self, partition: &Partition) -> Option<(Arc<Lane>, Box<Counting>)> {
        let mut partitions = self.partitions.lock();
        let next = partitions.get_mut(partition)?.pop_front();
        if next.is_none() {
            partitions.remove(partition);
        }
        next
    }
}

impl Lane {
    /// Adds to counters. `hops`: how often it has been handed on.
    pub(super) fn increment(
        self: &Arc<Self>,
        request: v1::IncrementRequest,
        deadline: Instant,
        reply: Reply,
        hops: u32,
    ) {
        let (size, options) = (request.encoded_len(), request.options.clone());
        let Some((under_way, options)) = self.admit(Kind::Increment, size, options, deadline, reply) else { return };
        let planned = failure::level(&options).and_then(|level| {
            let place = self.place(request.table.as_ref())?;
            let increment = counter::increment(request.clone(), &place.table)
                .map_err(|invalid| v1::Error::invalid(invalid.table(&place.keyspace.name, &place.table.name)))?;
            Ok((level, place, increment))
        });
        let (level, place, increment) = match planned {
            Ok(planned) => planned,
            Err(error) => return under_way.fail(error),
        };
        let replicas = place.state.ring().replicas(&place.keyspace, increment.key.token());
        if !self.shared.may_coordinate(place.keyspace.id, &replicas) {
            let operation = v1::pipe_operation::Op::Increment(request);
            return self.forward_operation(&place, &replicas, (Ok(level), operation, Again::Twice), under_way, hops);
        }
        let (observed, logging) = (Stamp(options.observed_stamp), None);
        let request = Some(under_way);
        let counting = Box::new(Counting { request, place, increment, level, observed, deadline, logging });
        // What cannot be met is refused before anything waits for it (B110).
        if let Err(error) = counting.requirement(self) {
            return counting.fail(error);
        }
        match self.shared.counters.take(self, counting) {
            Ok(Some(counting)) => self.read_shard(counting),
            Ok(None) => {}
            Err(counting) => counting.fail(v1::Error::overloaded("counters", std::time::Duration::from_millis(50))),
        }
    }

    /// Reads what this run has added before.
    fn read_shard(self: &Arc<Self>, counting: Box<Counting>) {
        let command = Arc::new(ReadCommand {
            table: counting.increment.table,
            target: Target::Partition(counting.increment.key.clone()),
            slices: vec![counting.increment.slice()],
            direction: Direction::Forward,
            after: None,
            now_s: clock::wall_us().div_euclid(1_000_000),
            limit_rows: 1,
            limit_bytes: READ_BYTES_MAX,
        });
        let deadline = counting.deadline;
        let id = self.ops.lock().insert(Op::Counting(counting));
        let answer = self.shared.replica.read(&command, deadline, Ticket { lane: self.number, id });
        let outcome = match answer {
            Some(Ok((page, cost))) => Outcome::Read(page, cost),
            Some(Err((reason, text))) => Outcome::Failed(reason, text),
            None => return,
        };
        // Taken out first: what follows locks the slab.
        let taken = self.ops.lock().remove(id);
        if let Some(Op::Counting(counting)) = taken {
            self.count_on(counting, outcome);
        }
    }

    /// The own replica has read, or logged.
    pub(super) fn count_on(self: &Arc<Self>, mut counting: Box<Counting>, outcome: Outcome) {
        let partition = counting.partition();
        match (counting.logging.take(), outcome) {
            (None, Outcome::Read(page, _)) if counting.request.is_some() => {
                if let Some(failed) = self.log_shard(counting, page) {
                    self.end_turn(&partition);
                    let (counting, error) = failed;
                    counting.fail(error);
                }
            }
            (Some((write, record)), Outcome::Written) => {
                self.end_turn(&partition);
                self.send_to_others(write, record.bytes(), counting.request.take());
            }
            (logging, outcome) => {
                self.end_turn(&partition);
                counting.fail(not_done(logging.is_some(), outcome));
            }
        }
    }

    /// Logs the next state of the own shard; gives the addition back with an error if that is not possible.
    fn log_shard(self: &Arc<Self>, counting: Box<Counting>, page: Page) -> Option<(Box<Counting>, v1::Error)> {
        match self.next_shard(&counting, page) {
            Err(error) => Some((counting, error)),
            Ok((write, record, turn)) => {
                let mut counting = counting;
                let (durability, deadline) = (counting.place.table.options.durability, counting.deadline);
                counting.logging = Some((write, record.clone()));
                let id = self.ops.lock().insert(Op::Counting(counting));
                let ticket = Ticket { lane: self.number, id };
                let refused = self.shared.replica.submit(WriteJob { record, durability, deadline, ticket }).err();
                // Until here nothing later may be named.
                drop(turn);
                let (reason, text) = refused?;
                let taken = self.ops.lock().remove(id);
                match taken {
                    Some(Op::Counting(counting)) => Some((counting, not_done(false, Outcome::Failed(reason, text)))),
                    _ => None,
                }
            }
        }
    }

    fn next_shard(
        &self,
        counting: &Counting,
        page: Page,
    ) -> Result<(Box<Write>, CheckedRecord, super::naming::Turn<'_>), v1::Error> {
        let corrupt = |error: trefoil::Error| {
            let text = format!("the counters cannot be read: {error}");
            v1::Error::new(Code::DataLoss, text, v1::Outcome::NotApplied)
        };
        let (static_row, row) = rows_of(page).map_err(corrupt)?;
        let Counting { place, increment, level, deadline, .. } = counting;
        let op = counting.requirement(self)?;
        let mut turn = self.shared.naming.turn(counting.observed).map_err(|no_stamp| failure::no_stamp(&no_stamp))?;
        let (stamp, timestamp) = (turn.stamp, turn.stamp.timestamp());
        let (node, incarnation) = (self.shared.identity.node, self.shared.incarnation);
        let owner = Shard { node, incarnation, clock: 0, value: 0 };
        let mutation = increment.mutation(owner, timestamp, &static_row, &row);
        let replicas = place.state.ring().replicas(&place.keyspace, increment.key.token());
        let name = turn.name(place.keyspace.id, replicas.vnode);
        let record = CheckedRecord::encode(RecordKind::Named(name), place.keyspace.id, stamp, &mutation);
        let write = Write {
            op,
            nodes: replicas.nodes,
            placement: replicas.placement,
            request: None,
            level: *level,
            result: v1::WriteResult { stamp: stamp.0, timestamp_us: timestamp.0, ..Default::default() },
            deadline: *deadline,
            kept: Kept { keyspace: place.keyspace.id, vnode: replicas.vnode, record: record.bytes().clone() },
            attempts: Attempts::default(),
            again: None,
        };
        Ok((Box::new(write), record, turn))
    }

    /// The next addition to the partition begins, unless its time is over.
    fn end_turn(self: &Arc<Self>, partition: &Partition) {
        while let Some((lane, counting)) = self.shared.counters.pass_on(partition) {
            if counting.deadline > clock::now() {
                // Not from here: what fails at once would begin the next one ever deeper.
                tokio::spawn(async move { lane.read_shard(counting) });
                return;
            }
            counting.fail(failure::no_time());
        }
    }

    /// The deadline has passed. The turn goes on until the own replica is done.
    pub(super) fn counting_expired(&self, id: u64) {
        let mut ops = self.ops.lock();
        let Some(Op::Counting(counting)) = ops.get(id) else { return };
        let Some(request) = counting.request.take() else { return };
        let outcome = match counting.logging {
            None => v1::Outcome::NotApplied,
            Some(_) => v1::Outcome::Unknown,
        };
        drop(ops);
        request.fail(v1::Error::new(Code::DeadlineExceeded, "the own replica did not answer in time", outcome));
    }
}

/// The static row and the row that a page holds.
fn rows_of(page: Page) -> trefoil::Result<(Row, Row)> {
    let (mut static_row, mut row) = (Row::default(), Row::default());
    let mut reader = Reader::new("counters", page.entries);
    while reader.remaining() > 0 {
        match read_entry(&mut reader, Trust::Trusted)? {
            Fragment::Partition(header) => {
                static_row = header.static_row.map(|row| row.decode()).transpose()?.unwrap_or_default();
            }
            Fragment::Row(_, found) => row = found.decode()?,
            Fragment::Change(..) => {}
        }
    }
    Ok((static_row, row))
}

/// The own replica did not read or log; nobody else was told of the addition.
fn not_done(was_logging: bool, outcome: Outcome) -> v1::Error {
    let (reason, text) = match outcome {
        Outcome::Failed(reason, text) => (reason, text),
        Outcome::Written | Outcome::Read(..) => (FailureReason::Expired, "its time was over".to_owned()),
    };
    let text = format!("the coordinating replica did not add: {text}");
    match reason {
        FailureReason::Overloaded => {
            v1::Error { message: text, ..v1::Error::overloaded("replica", std::time::Duration::from_millis(50)) }
        }
        FailureReason::Expired => v1::Error::new(Code::DeadlineExceeded, text, v1::Outcome::NotApplied),
        // It may have been logged all the same, and be found there by the next run.
        _ if was_logging => v1::Error::new(Code::Unavailable, text, v1::Outcome::Unknown),
        _ => v1::Error::new(Code::Unavailable, text, v1::Outcome::NotApplied),
    }
}
