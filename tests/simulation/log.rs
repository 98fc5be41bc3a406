//! The log thread of a node, as the server's works: everything queued is one group; append, sync if any of its tables wants
//! that before the acknowledgement, insert, acknowledge. Between append and insert time passes, and power may go.

use trefoil::Error;
use trefoil::codec::{CheckedRecord, Record, RecordKind};
use trefoil::commitlog::Position;
use trefoil::coordinator::FailureReason;
use trefoil::hints::Place;
use trefoil::model::{Durability, MutationName, Stamp};
use trefoil::received::Slice;

use super::event::{Message, Timer};
use super::node::{Node, Reply, refusal};
use super::oracle::Synced;
use super::replication::Verdict;
use super::scheduler::Sim;

/// How long records of periodic tables wait for their sync.
const PERIODIC_SYNC_US: u64 = 5_000_000;

/// A write to be logged.
pub struct Job {
    pub record: CheckedRecord,
    pub durability: Durability,
    /// Not begun after this.
    pub deadline_us: u64,
    pub ticket: Ticket,
}

/// Whom to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticket {
    Own(u64),
    Peer {
        peer: usize,
        id: u64,
    },
    Hint {
        peer: usize,
        place: Place,
    },
    /// A hint for oneself.
    OwnHint(Place),
    /// What was asked for by name is told with the set that it is in.
    Nobody,
}

#[derive(Default)]
pub struct Log {
    queue: Vec<Job>,
    /// What is appended and waits for its sync, and where each record ends.
    group: Vec<(Job, Position)>,
    /// When the thread goes on: it hangs until then.
    pub hangs_until_us: u64,
    is_awake: bool,
    /// When the oldest record was written that no sync covers yet.
    unsynced_since_us: Option<u64>,
}

impl Log {
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.group.is_empty()
    }
}

impl Node {
    /// Queues a write for the log thread.
    pub fn submit(&mut self, sim: &mut Sim, job: Job) -> Result<(), FailureReason> {
        self.running().log.queue.push(job);
        self.wake_log(sim, 50);
        Ok(())
    }

    fn wake_log(&mut self, sim: &mut Sim, delay_us: u64) {
        if !std::mem::replace(&mut self.running().log.is_awake, true) {
            let delay = sim.delay(delay_us, delay_us * 4);
            self.timer(sim, delay, Timer::Append);
        }
    }

    pub fn append(&mut self, sim: &mut Sim) {
        let now_us = sim.now_us;
        let process = self.running();
        let late: Vec<Job> = process.log.queue.extract_if(.., |job| job.deadline_us < now_us).collect();
        late.iter().for_each(|job| self.done(sim, job.ticket, Err(FailureReason::Expired)));
        let jobs = self.admit(sim);
        let process = self.running();
        if jobs.is_empty() {
            process.log.is_awake = false;
            return;
        }
        let records: Vec<&CheckedRecord> = jobs.iter().map(|job| &job.record).collect();
        let mut ends = Vec::new();
        match process.store.append(&records, &mut ends) {
            Ok(()) => {
                let needs_sync = jobs.iter().any(|job| job.durability == Durability::Commit);
                process.log.group = jobs.into_iter().zip(ends).collect();
                if needs_sync {
                    let delay = sim.delay(sim.shape.sync_us / 4, sim.shape.sync_us);
                    self.timer(sim, delay, Timer::Synced);
                } else {
                    process.log.unsynced_since_us.get_or_insert(now_us);
                    self.insert(sim, Synced::NotYet);
                }
            }
            Err(Error::Busy { .. }) => {
                process.store.cancel_append();
                process.log.queue = jobs;
                let _ = process.store.flush_next();
                process.log.is_awake = false;
                self.wake_log(sim, 5_000);
            }
            Err(error) => {
                let reason = refusal(&error);
                jobs.iter().for_each(|job| self.done(sim, job.ticket, Err(reason)));
                self.go_on(sim);
            }
        }
    }

    /// Takes from the queue what may be logged. Whoever promises must see before what is about to be.
    fn admit(&mut self, sim: &mut Sim) -> Vec<Job> {
        let jobs = std::mem::take(&mut self.running().log.queue);
        let decode = |job: Job| {
            let record = Record::decode(job.record.bytes().clone()).unwrap();
            let slice = (record.keyspace, sim.shape.schema.bits.vnode(job.record.token()));
            (job, record, slice)
        };
        let decoded: Vec<_> = jobs.into_iter().map(decode).collect();
        let named = decoded.iter().filter(|(_, record, _)| matches!(record.kind, RecordKind::Named(_)));
        let lowest = named.map(|(_, record, _)| record.stamp).min();
        let is_group = !decoded.is_empty();
        if is_group {
            self.running().store.begin_append(lowest.unwrap_or(Stamp(i64::MAX)));
        }
        let mut admitted = Vec::new();
        for (job, record, slice) in decoded {
            match self.verdict(sim, &record, slice) {
                Verdict::Apply => admitted.push(job),
                Verdict::Here => self.done(sim, job.ticket, Ok(())),
                Verdict::Refused(reason) => {
                    sim.note(|| format!("n{} refuses {:?} of {slice:?} at {}", self.at, record.kind, record.stamp.0));
                    self.done(sim, job.ticket, Err(reason));
                }
            }
        }
        if is_group && admitted.is_empty() {
            self.running().store.cancel_append();
        }
        admitted
    }

    pub fn on_synced(&mut self, sim: &mut Sim) {
        let process = self.running();
        if process.log.hangs_until_us > sim.now_us {
            // It is mended for good at any time.
            let delay = (process.log.hangs_until_us - sim.now_us).min(1_000_000);
            return self.timer(sim, delay, Timer::Synced);
        }
        match process.store.sync() {
            Ok(_) => {
                process.log.unsynced_since_us = None;
                sim.synced(self.at);
                self.insert(sim, Synced::Already);
            }
            Err(error) => {
                let jobs = std::mem::take(&mut process.log.group);
                jobs.iter().for_each(|(job, _)| self.done(sim, job.ticket, Err(refusal(&error))));
                self.go_on(sim);
            }
        }
    }

    fn insert(&mut self, sim: &mut Sim, synced: Synced) {
        for (job, end) in std::mem::take(&mut self.running().log.group) {
            let inserted = self.running().store.insert(&job.record, end).map_err(|error| refusal(&error));
            if let (Ok(()), Some(named)) = (inserted, named(sim, &job.record)) {
                sim.applied(self.at, named, synced);
            }
            self.done(sim, job.ticket, inserted);
        }
        self.go_on(sim);
    }

    /// What was queued meanwhile is the next group.
    fn go_on(&mut self, sim: &mut Sim) {
        self.running().log.is_awake = false;
        if !self.running().log.queue.is_empty() {
            self.wake_log(sim, 50);
        }
    }

    pub fn sync_periodic(&mut self, sim: &mut Sim) {
        let now_us = sim.now_us;
        let process = self.running();
        // While a group is between append and insert it is the log thread that syncs.
        let is_due = process.log.unsynced_since_us.is_some_and(|since| now_us - since >= PERIODIC_SYNC_US);
        if is_due && process.log.group.is_empty() {
            process.log.unsynced_since_us = None;
            match process.store.sync() {
                Ok(_) => sim.synced(self.at),
                Err(error) => sim.note(|| format!("n{} cannot sync: {error}", self.at)),
            }
        }
    }

    fn done(&mut self, sim: &mut Sim, ticket: Ticket, outcome: Result<(), FailureReason>) {
        let reply = match (ticket, outcome) {
            (Ticket::Own(id), Ok(())) => return self.on_reply(sim, id, self.id(), Reply::Acknowledged),
            (Ticket::Own(id), Err(reason)) => return self.on_reply(sim, id, self.id(), Reply::Failed(reason)),
            (Ticket::OwnHint(place), outcome) => return self.on_hint_outcome(sim, self.id(), place, outcome),
            (Ticket::Nobody, outcome) => {
                return sim.note(|| format!("n{} takes what it had asked for: {outcome:?}", self.at));
            }
            (Ticket::Peer { peer, id }, Ok(())) => (peer, Message::Acknowledged { id }),
            (Ticket::Peer { peer, id }, Err(reason)) => (peer, Message::Failed { id, reason }),
            (Ticket::Hint { peer, place }, outcome) => (peer, Message::HintTaken { place, outcome }),
        };
        // Without a connection it is for the peer to ask again.
        let _ = self.send(sim, reply.0, reply.1);
    }
}

/// The name of a record, if it has one.
fn named(sim: &Sim, record: &CheckedRecord) -> Option<(Slice, MutationName)> {
    let vnode = sim.shape.schema.bits.vnode(record.token());
    let record = Record::decode(record.bytes().clone()).ok()?;
    let RecordKind::Named(name) = record.kind else { return None };
    Some(((record.keyspace, vnode), name))
}
