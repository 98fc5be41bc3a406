//! One simulated node: the core's own parts, and around them the thinnest shell that carries out what they decide.
//!
//! What stays when a process ends: the disk, and how far the clock is off. Everything else is a [`Process`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use trefoil::codec::CheckedRecord;
use trefoil::codec::frame::{Framed, put_frame, read_frame};
use trefoil::compaction::Unpaced;
use trefoil::coordinator::{Digest, FailureReason, ReplicaMask, bit, digest};
use trefoil::liveness::{Heartbeat, LinkId, Liveness};
use trefoil::model::{Durability, Identity, Instant, NodeId, ReadCommand, Stamp, Target, Vnode};
use trefoil::received::exchange::Exchange;
use trefoil::received::namer::{HybridClock, Namer, Tick};
use trefoil::ring::Replicas;
use trefoil::store::{Access, Store, StoreOptions};
use trefoil::vfs::Vfs;
use trefoil::vfs::faulty::FaultyVfs;
use trefoil::vfs::memory::MemoryVfs;
use trefoil::{Class, Error, Result};
use uuid::Uuid;

use super::event::{Event, Message, Timer};
use super::hints::{self, HintsFor};
use super::log::{Job, Log, Ticket};
use super::network::STRAY;
use super::read::ReadSession;
use super::replication::{self, SAVE_US};
use super::scheduler::{EPOCH_US, Sim};
use super::shape::{node_id, place_of};
use super::write::Write;

const DIRECTORY: &str = "/node";
const CEILING: &str = "/node/clock";
const CEILING_NEW: &str = "/node/clock.new";

pub struct Node {
    pub at: usize,
    pub memory: MemoryVfs,
    pub disk: FaultyVfs,
    /// How far its wall clock is ahead.
    pub skew_us: i64,
    /// Rises with each start.
    pub run: u64,
    pub process: Option<Process>,
    /// Whether it is to be started again by whoever stops it.
    pub is_away: bool,
    /// Whether the power goes in the midst of one of the next calls of the disk.
    pub is_failing: bool,
    /// The largest stamp it has ever given.
    pub last_given: Stamp,
}

/// What a node is while it runs.
pub struct Process {
    pub store: Store,
    pub clock: HybridClock,
    pub namer: Namer,
    pub exchange: Exchange,
    pub hints: BTreeMap<NodeId, HintsFor>,
    pub liveness: Liveness,
    pub log: Log,
    pub ops: BTreeMap<u64, Op>,
    pub last_id: u64,
    /// When the last heartbeat came from each peer.
    heard_us: Vec<u64>,
    /// The connection to each peer.
    links: Vec<Option<LinkId>>,
}

/// Something that a node has begun for a client.
pub enum Op {
    Write(Box<Write>),
    Read(Box<ReadSession>),
}

/// What the own replica or a peer says to an operation.
#[derive(Debug)]
pub enum Reply {
    Acknowledged,
    Page(trefoil::model::Page, Stamp),
    Digest(Digest),
    Failed(FailureReason),
}

impl Node {
    pub fn new(at: usize, skew_us: i64) -> Node {
        let memory = MemoryVfs::new();
        let disk = FaultyVfs::new(Arc::new(memory.clone()));
        Node {
            at,
            memory,
            disk,
            skew_us,
            run: 0,
            process: None,
            is_away: false,
            is_failing: false,
            last_given: Stamp(0),
        }
    }

    pub fn id(&self) -> NodeId {
        node_id(self.at)
    }

    pub fn wall_us(&self, sim: &Sim) -> i64 {
        EPOCH_US + sim.now_us as i64 + self.skew_us
    }

    /// The process; whoever is called by an event of its own knows that it runs.
    pub fn running(&mut self) -> &mut Process {
        self.process.as_mut().unwrap()
    }

    pub fn timer(&self, sim: &mut Sim, delay_us: u64, timer: Timer) {
        sim.after(delay_us, Event::Timer { node: self.at, run: self.run, timer });
    }

    /// Starts the process, or tries again later: a full disk stops a start, and so does a clock that was set back.
    pub fn start(&mut self, sim: &mut Sim) {
        if self.process.is_some() || self.is_away {
            return;
        }
        match self.open(sim) {
            Ok(Some(process)) => {
                sim.note(|| format!("n{} starts, run {}", self.at, process.namer.incarnation()));
                self.run += 1;
                // What it tells from now on; the part that the manifest had is in no set that grows later.
                let sets = process.store.received();
                sim.came_back(self.at, &process.store);
                self.process = Some(process);
                sets.iter().for_each(|(slice, set)| sim.told(self.at, *slice, set));
                for peer in sim.network.peers(self.at) {
                    let delay = sim.delay(1_000, 20_000);
                    sim.after(delay, Event::Connect { node: self.at, peer });
                }
                for (timer, within_us) in [
                    (Timer::Ping, 1_000_000),
                    (Timer::Ceiling, 500_000),
                    (Timer::Flush, sim.shape.flush_us),
                    (Timer::Compact, 30_000_000),
                    (Timer::Report, sim.shape.report_us),
                    (Timer::Hints, 1_000_000),
                    (Timer::Save, SAVE_US),
                ] {
                    let delay = sim.delay(0, within_us);
                    self.timer(sim, delay, timer);
                }
                self.timer(sim, 5_000_000, Timer::SyncPeriodic);
            }
            Ok(None) => sim.after(50_000, Event::Start { node: self.at }),
            Err(error) => self.on_failed_start(sim, &error),
        }
    }

    fn on_failed_start(&mut self, sim: &mut Sim, error: &Error) {
        match error.class() {
            Class::Unavailable | Class::Retry => {
                sim.note(|| format!("n{} cannot start: {error}", self.at));
                sim.after(500_000, Event::Start { node: self.at });
            }
            Class::Corrupt | Class::Invalid => sim.fail(format!("n{} does not start: {error}", self.at)),
        }
    }

    /// `None`: the clock has not passed yet what was promised.
    fn open(&mut self, sim: &mut Sim) -> Result<Option<Process>> {
        let schema = &sim.shape.schema;
        let vfs: Arc<dyn Vfs> = Arc::new(self.disk.clone());
        let options = StoreOptions {
            directory: PathBuf::from(DIRECTORY),
            segment_bytes: 16 << 10,
            memtable_budget_bytes: 1 << 20,
            cache_bytes: 64 << 10,
            log_kept_bytes_max: 1 << 20,
            snapshots: Default::default(),
        };
        let identity = self.identity(sim);
        let store = Store::open(vfs.clone(), options, identity, &schema.specs())?;
        let mut clock = HybridClock::new(self.read_ceiling()?, store.last_stamp());
        let found = clock.clone();
        let start = loop {
            match clock.next(self.wall_us(sim)) {
                Tick::Stamp(stamp) => break stamp,
                Tick::Raise(to) => {
                    self.write_ceiling(to)?;
                    clock.raised(to);
                }
                Tick::Ahead(_) => return Ok(None),
            }
        };
        self.gave(sim, start);
        let namer = Namer::new(self.id(), start)?;
        let exchange = replication::start(self.at, namer.incarnation(), &found, &store, sim);
        let heard_us = vec![sim.now_us; sim.shape.nodes()];
        Ok(Some(Process {
            store,
            clock,
            namer,
            exchange,
            hints: hints::open_all(&vfs, identity)?,
            liveness: Liveness::default(),
            log: Log::default(),
            ops: BTreeMap::new(),
            last_id: 0,
            links: vec![None; heard_us.len()],
            heard_us,
        }))
    }

    pub fn identity(&self, sim: &Sim) -> Identity {
        Identity { cluster: Uuid::from_u128(1), node: self.id(), vnode_bits: sim.shape.schema.bits }
    }

    /// No stamp is given twice, and all rise, whatever happens to the node and its clock.
    pub fn gave(&mut self, sim: &mut Sim, stamp: Stamp) {
        if stamp <= self.last_given {
            sim.fail(format!("n{} gives stamp {} after {}", self.at, stamp.0, self.last_given.0));
        }
        self.last_given = stamp;
    }

    fn read_ceiling(&self) -> Result<Stamp> {
        if !self.disk.exists(Path::new(CEILING))? {
            return Ok(Stamp(0));
        }
        let file = self.disk.open(Path::new(CEILING))?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_at(&mut bytes, 0)?;
        match read_frame(&Bytes::from(bytes), 1) {
            Framed::Whole(payload, _) => Ok(Stamp(i64::from_le_bytes(payload[..].try_into().unwrap()))),
            _ => panic!("a ceiling is replaced whole"),
        }
    }

    fn write_ceiling(&self, ceiling: Stamp) -> Result<()> {
        if self.disk.exists(Path::new(CEILING_NEW))? {
            self.disk.remove(Path::new(CEILING_NEW))?;
        }
        let file = self.disk.create(Path::new(CEILING_NEW))?;
        let mut bytes = Vec::new();
        put_frame(&mut bytes, 1, &ceiling.0.to_le_bytes());
        file.write_at(&bytes, 0)?;
        file.sync()?;
        self.disk.rename(Path::new(CEILING_NEW), Path::new(CEILING))?;
        self.disk.sync_dir(Path::new(DIRECTORY))
    }

    /// The process ends, whatever it is at.
    pub fn stop(&mut self, sim: &mut Sim) {
        sim.note(|| format!("n{} stops", self.at));
        self.process = None;
    }

    pub fn on_timer(&mut self, sim: &mut Sim, timer: Timer) {
        match timer {
            Timer::Append => self.append(sim),
            Timer::Synced => self.on_synced(sim),
            Timer::SyncPeriodic => {
                self.sync_periodic(sim);
                self.timer(sim, 1_000_000, timer);
            }
            Timer::Ping => self.ping(sim),
            Timer::Report => self.report(sim),
            Timer::Hints => self.deliver_hints(sim),
            Timer::Save => self.save_reconciled(sim),
            Timer::Ceiling => {
                let wall_us = self.wall_us(sim);
                if let Some(ceiling) = self.running().clock.wants_ceiling(wall_us)
                    && self.write_ceiling(ceiling).is_ok()
                {
                    self.running().clock.raised(ceiling);
                }
                self.timer(sim, 250_000, timer);
            }
            Timer::Flush => {
                let flushed = self.running().store.flush_next();
                self.on_background(sim, "flush", flushed.map(|_| ()));
                let delay = sim.delay(2_000_000, sim.shape.flush_us);
                self.timer(sim, delay, timer);
            }
            Timer::Compact => {
                self.compact(sim);
                let delay = sim.delay(2_000_000, 30_000_000);
                self.timer(sim, delay, timer);
            }
        }
    }

    fn compact(&mut self, sim: &mut Sim) {
        let now_s = self.wall_us(sim) / 1_000_000;
        let store = &self.running().store;
        let compacted = match sim.random.one_in(4) {
            true => {
                let table = sim.random.below(sim.shape.schema.tables.len() as u64) as usize;
                store.compact_table(sim.shape.schema.tables[table].id, now_s, &Unpaced)
            }
            false => store.compact_next(now_s, &Unpaced).map(|_| ()),
        };
        self.on_background(sim, "compaction", compacted);
    }

    /// Work that nobody waits for may fail where the disk does, and is done another time.
    fn on_background(&mut self, sim: &mut Sim, what: &str, outcome: Result<()>) {
        if let Err(error) = outcome {
            sim.note(|| format!("n{} {what} failed: {error}", self.at));
            if matches!(error.class(), Class::Corrupt | Class::Invalid) {
                sim.fail(format!("n{}: {what}: {error}", self.at));
            }
        }
    }

    fn ping(&mut self, sim: &mut Sim) {
        let (at, now_us) = (self.at, sim.now_us);
        for peer in sim.network.peers(at) {
            let process = self.running();
            let Some(link) = process.links[peer] else { continue };
            let fault = process.liveness.fault(node_id(peer), link, Instant(now_us));
            let unheard_us = now_us - process.heard_us[peer];
            match fault {
                Some(_) => self.hang_up(sim, peer),
                None => drop(self.send(sim, peer, Message::Ping { unheard_us }).is_ok()),
            }
        }
        self.running().liveness.refresh(Instant(now_us));
        self.timer(sim, 1_000_000, Timer::Ping);
    }

    /// Gives a connection up and tries to make a new one.
    pub fn hang_up(&mut self, sim: &mut Sim, peer: usize) {
        if sim.network.close(self.at, peer) {
            sim.after(1_000, Event::Hangup { node: peer, peer: self.at });
        }
        self.on_lost(sim, peer);
        let delay = sim.delay(50_000, 1_000_000);
        sim.after(delay, Event::Connect { node: self.at, peer });
    }

    /// A connection is made.
    pub fn on_connected(&mut self, sim: &mut Sim, peer: usize) {
        let now_us = sim.now_us;
        let process = self.running();
        process.links[peer] = Some(process.liveness.connected(node_id(peer), Instant(now_us)));
        process.heard_us[peer] = now_us;
    }

    /// A connection is gone: what was under way on it may or may not have been done.
    pub fn on_lost(&mut self, sim: &mut Sim, peer: usize) {
        let Some(process) = &mut self.process else { return };
        if let Some(link) = process.links[peer].take() {
            process.liveness.disconnected(node_id(peer), link, "lost".to_owned());
        }
        let waiting: Vec<u64> =
            process.ops.iter().filter(|(_, op)| op.waits_for(node_id(peer))).map(|(id, _)| *id).collect();
        for id in waiting {
            self.on_reply(sim, id, node_id(peer), Reply::Failed(FailureReason::Disconnected));
        }
        self.hints_lost(sim, peer);
    }

    /// Sends a message, unless there is no connection.
    pub fn send(&mut self, sim: &mut Sim, to: usize, message: Message) -> Result<(), FailureReason> {
        let (from, now_us) = (self.at, sim.now_us);
        let sent = sim.network.send(from, to, now_us, &mut sim.random);
        let (generation, arrivals) = sent.ok_or(FailureReason::Disconnected)?;
        if let Some(at_us) = sim.network.stray(now_us, &mut sim.random) {
            sim.at(at_us, Event::Deliver { from, to, generation: STRAY, message: message.clone() });
        }
        for at_us in arrivals.into_iter().flatten() {
            sim.at(at_us, Event::Deliver { from, to, generation, message: message.clone() });
        }
        Ok(())
    }

    pub fn on_message(&mut self, sim: &mut Sim, from: usize, message: Message) {
        let now_us = sim.now_us;
        let process = self.running();
        if let Some(link) = process.links[from] {
            let (node, now) = (node_id(from), Instant(now_us));
            if let Message::Ping { unheard_us } = message {
                process.heard_us[from] = now_us;
                let heartbeat = Heartbeat { unheard_us: Some(unheard_us), ..Heartbeat::default() };
                process.liveness.heartbeat(node, link, heartbeat, now);
            } else {
                process.liveness.heard(node, link, now);
            }
        }
        match message {
            Message::Write { id, placement, timeout_us, record } => {
                let deadline_us = now_us + timeout_us;
                let queued = self.check_write(sim, record, placement).and_then(|(record, durability)| {
                    let ticket = Ticket::Peer { peer: from, id };
                    self.submit(sim, Job { record, durability, deadline_us, ticket })
                });
                if let Err(reason) = queued {
                    let _ = self.send(sim, from, Message::Failed { id, reason });
                }
            }
            Message::Read { id, placement, command, digest: unseen } => {
                let reply = match self.serve_read(sim, &command, placement) {
                    Ok((page, reconciled)) => match unseen {
                        None => Message::Page { id, page, reconciled },
                        Some(unseen) => Message::Digest { id, digest: digest(&page, unseen).unwrap() },
                    },
                    Err(reason) => Message::Failed { id, reason },
                };
                let _ = self.send(sim, from, reply);
            }
            Message::Acknowledged { id } => self.on_reply(sim, id, node_id(from), Reply::Acknowledged),
            Message::Page { id, page, reconciled } => {
                self.on_reply(sim, id, node_id(from), Reply::Page(page, reconciled));
            }
            Message::Digest { id, digest } => self.on_reply(sim, id, node_id(from), Reply::Digest(digest)),
            Message::Failed { id, reason } => self.on_reply(sim, id, node_id(from), Reply::Failed(reason)),
            Message::Ping { .. } => {}
            Message::Report { report } => self.on_report(sim, from, report),
            Message::Fetch { slice, names } => self.on_fetch(sim, from, slice, names),
            Message::Hint { place, placement, record } => {
                if let Err(reason) = self.take_hint(sim, record, placement, Ticket::Hint { peer: from, place }) {
                    let _ = self.send(sim, from, Message::HintTaken { place, outcome: Err(reason) });
                }
            }
            Message::HintTaken { place, outcome } => self.on_hint_outcome(sim, node_id(from), place, outcome),
            Message::Records { records } => self.on_records(sim, records),
        }
    }

    /// The tests at arrival, in their order: every byte, placement, table, clock.
    pub fn check_write(
        &mut self,
        sim: &mut Sim,
        record: Bytes,
        placement: u64,
    ) -> Result<(CheckedRecord, Durability), FailureReason> {
        let (record, _) = CheckedRecord::check(record).map_err(|_| FailureReason::Malformed)?;
        let ring = &sim.shape.ring;
        if placement != ring.placement(ring.vnode_bits().vnode(record.token())) {
            return Err(FailureReason::Stale);
        }
        let table = sim.shape.schema.table_of(record.table()).ok_or(FailureReason::Stale)?;
        let durability = sim.shape.schema.tables[table].durability;
        let wall_us = self.wall_us(sim);
        self.running().clock.observe(record.stamp(), wall_us).map_err(|_| FailureReason::Clock)?;
        Ok((record, durability))
    }

    /// Reads the own data.
    pub fn serve_read(
        &mut self,
        sim: &mut Sim,
        command: &ReadCommand,
        _placement: u64,
    ) -> Result<(trefoil::model::Page, Stamp), FailureReason> {
        let schema = &sim.shape.schema;
        let keyspace = schema.table_of(command.table).map(|table| schema.tables[table].keyspace.id);
        let keyspace = keyspace.ok_or(FailureReason::Stale)?;
        let vnodes = (0..schema.bits.count()).map(Vnode).filter(|vnode| match &command.target {
            Target::Partition(key) => schema.bits.vnode(key.token()) == *vnode,
            Target::Scan(tokens) => schema.bits.range(*vnode).up_to.is_none_or(|last| tokens.contains(last)),
        });
        let reconciled = self.reconciled_in(vnodes.map(|vnode| (keyspace, vnode)));
        let page = self.running().store.read(command, Access::Disk).map_err(|error| {
            sim.note(|| format!("n{} cannot read: {error}", self.at));
            refusal(&error)
        })?;
        Ok((page, reconciled))
    }

    /// The own replica or a peer has answered an operation.
    pub fn on_reply(&mut self, sim: &mut Sim, id: u64, from: NodeId, reply: Reply) {
        match self.running().ops.get(&id) {
            Some(Op::Write(_)) => self.on_write_reply(sim, id, from, reply),
            Some(Op::Read(_)) => self.on_read_reply(sim, id, from, reply),
            None => {}
        }
    }

    pub fn expire(&mut self, sim: &mut Sim, id: u64) {
        match self.running().ops.get(&id) {
            Some(Op::Write(_)) => self.expire_write(sim, id),
            Some(Op::Read(_)) => self.expire_read(sim, id),
            None => {}
        }
    }

    /// An id for an operation, of which the node's later runs will have none alike.
    pub fn next_id(&mut self) -> u64 {
        let run = self.run;
        let process = self.running();
        process.last_id += 1;
        run << 32 | process.last_id
    }

    /// The live ones among the replicas; a node is always alive to itself.
    pub fn alive(&mut self, sim: &Sim, replicas: &Replicas) -> ReplicaMask {
        let (own, now) = (self.id(), Instant(sim.now_us));
        let liveness = &self.running().liveness;
        let is_alive = |node: NodeId| node == own || liveness.is_alive(node, now);
        let alive = replicas.nodes.iter().enumerate().filter(|(_, replica)| is_alive(replica.node));
        alive.fold(0, |mask, (at, _)| mask | bit(at))
    }
}

impl Op {
    fn waits_for(&self, node: NodeId) -> bool {
        match self {
            Op::Write(write) => write.waits_for(node),
            Op::Read(session) => session.waits_for(node),
        }
    }
}

/// A core error as what a coordinator is told.
pub fn refusal(error: &Error) -> FailureReason {
    match (error, error.class()) {
        (Error::UnknownTable { .. }, _) => FailureReason::Stale,
        (_, Class::Retry) => FailureReason::Overloaded,
        (_, Class::Unavailable | Class::Corrupt) => FailureReason::Storage,
        (_, Class::Invalid) => FailureReason::Malformed,
    }
}

/// Whether this node is the one at this place.
pub fn is_at(node: NodeId, at: usize) -> bool {
    place_of(node) == at
}
