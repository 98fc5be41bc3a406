//! One replica: the exchange of the core, and around it a toy of the store and of the server's threads.
//!
//! Each thread is a row of small steps, and anything may happen between two of them: another thread's step, a message, a
//! pause longer than every bound, the loss of power.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trefoil::model::{Instant, KeyspaceId, MutationName, NodeId, Stamp, Vnode};
use trefoil::received::exchange::{Arrival, Exchange};
use trefoil::received::namer::{CEILING_STEP_US, HybridClock, Namer, Tick};
use trefoil::received::report::Report;
use trefoil::received::told::Reconciled;
use trefoil::received::{ReceivedSet, Slice};

use crate::disk::{Data, Disk, Mutation, Record, Version};
use crate::loss::Greeted;
use crate::settings::Settings;

pub const SLICE: Slice = (KeyspaceId(1), Vnode(7));

/// What nodes send each other.
#[derive(Debug, Clone)]
pub enum Message {
    /// What it does to the slice, and under which number of its placement it is meant to count.
    Write(Mutation, u64),
    Ack(usize),
    /// The record came too late, and will not be taken.
    TooLate(usize),
    Report(Vec<u8>),
    Fetch(Vec<MutationName>),
    AskData(u8),
    Greet,
    Greeted(Greeted),
    Data {
        placement: u64,
        key: u8,
        version: Option<Version>,
        history: BTreeSet<usize>,
        known_through: Stamp,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thread {
    /// Appends, inserts, syncs, acknowledges.
    Log,
    /// Names a client's write, then hands it on.
    Coordinator,
    /// Closes, and reports.
    Reporter,
    /// Flushes, saves what is reconciled, purges.
    Keeper,
    /// Fetches what is missing, and sends again what was not acknowledged.
    Filler,
}

pub const THREADS: [Thread; 5] = [Thread::Log, Thread::Coordinator, Thread::Reporter, Thread::Keeper, Thread::Filler];

/// What waits to be logged, and for whom.
#[derive(Debug, Clone)]
enum Waiting {
    Write(NodeId, Mutation),
    Data(u8, Option<Version>, BTreeSet<usize>, Stamp),
}

#[derive(Debug)]
pub struct Run {
    pub exchange: Exchange,
    /// Whether all peers have been greeted: before, nothing is named, taken or told.
    pub open: bool,
    pub to_greet: BTreeSet<NodeId>,
    /// The ceiling of the clock as the disk had it.
    pub ceiling_found: Stamp,
    /// The disk was older than what peers know.
    pub begin_again: bool,
    clock: HybridClock,
    namer: Namer,
    queue: VecDeque<Waiting>,
    /// Flushed data and what is inserted above it.
    pub memtable: Data,
    pub inserted: usize,
    pub own: ReceivedSet,
    /// Named records behind what is in the set: where they end, and what they are.
    pub pending: BTreeMap<usize, Mutation>,
    /// Who waits for which record, by where it ends.
    pub waiters: BTreeMap<usize, (NodeId, usize)>,
    log_step: u8,
    last_sync: Instant,
    writes: VecDeque<(u8, i64, bool)>,
    named: Option<Mutation>,
    closing: (u8, Stamp, Stamp),
    pub keeping: (u8, Vec<(Slice, Reconciled)>),
    /// Writes by whom they still lack.
    unacknowledged: BTreeMap<usize, (Mutation, BTreeSet<NodeId>)>,
}

pub struct Node {
    pub id: NodeId,
    pub disk: Disk,
    pub run: Option<Run>,
    /// What the wall clock is off by.
    pub clock_off: i64,
    pub started_at: i64,
    /// The number of the slice's placement as this node knows it.
    pub placement: u64,
    /// Nobody counts on this disk: it lost something, and is not rebuilt yet.
    pub damaged: bool,
}

/// What a step did that others must know of.
#[derive(Default)]
pub struct Effects {
    pub send: Vec<(NodeId, Message)>,
    /// Deletions that went.
    pub purged: Vec<(u8, Version)>,
    pub told: Option<(NodeId, Report)>,
    /// The slice was withdrawn: the metadata log is to give its placement the next number.
    pub withdrew: bool,
}

/// What a node may look at while it takes a step.
pub struct Context<'a> {
    pub now: i64,
    pub settings: &'a Settings,
    pub nodes: &'a [NodeId],
    /// All mutations ever named.
    pub mutations: &'a mut Vec<Mutation>,
    pub rng: &'a mut rand::rngs::SmallRng,
}

impl Node {
    pub fn wall(&self, now: i64) -> i64 {
        now + self.clock_off
    }

    /// Replays the log, makes it durable, and begins a run.
    pub fn start(&mut self, context: &mut Context) {
        self.started_at = context.now;
        let manifest = &self.disk.manifest;
        let mut memtable = manifest.data.clone();
        let mut own = manifest.set.clone();
        let mut seen = Stamp(0);
        for record in &self.disk.log[manifest.replay_from..] {
            record.apply(&mut memtable);
            if let Record::Named(mutation) = record {
                own.add(mutation.name);
                seen = seen.max(mutation.stamp);
            }
        }
        let ceiling_found = self.disk.ceiling;
        let clock = HybridClock::new(ceiling_found, seen);
        let closed = clock.closed_at_start();
        let start = Stamp(self.wall(context.now).max(clock.last().0 + 1));
        let (reconciled, purged) = (manifest.reconciled.clone(), manifest.purged);
        self.disk.sync(self.disk.log.len());
        self.disk.ceiling = start;
        let mut exchange = Exchange::new(self.id, start.0 as u64, closed, context.settings.purge_after_us);
        exchange.restore(SLICE, own.clone(), reconciled, purged, Instant(0));
        exchange.place(SLICE, self.placement, context.nodes, Instant(0));
        if self.disk.manifest.withdrawn {
            exchange.withdraw(SLICE, Instant(0));
        }
        self.run = Some(Run {
            exchange,
            open: false,
            to_greet: context.nodes.iter().copied().filter(|node| *node != self.id).collect(),
            ceiling_found,
            begin_again: false,
            clock: HybridClock::new(start, seen),
            namer: Namer::new(self.id, start).unwrap(),
            queue: VecDeque::new(),
            memtable,
            inserted: self.disk.log.len(),
            own,
            pending: BTreeMap::new(),
            waiters: BTreeMap::new(),
            log_step: 0,
            last_sync: Instant(0),
            writes: VecDeque::new(),
            named: None,
            closing: (0, Stamp(0), Stamp(0)),
            keeping: (0, Vec::new()),
            unacknowledged: BTreeMap::new(),
        });
    }

    pub fn instant(&self, now: i64) -> Instant {
        Instant((now - self.started_at) as u64)
    }

    pub fn client_write(&mut self, key: u8, before_us: i64, delete: bool) {
        if let Some(run) = &mut self.run {
            run.writes.push_back((key, before_us, delete));
        }
    }

    /// The metadata log has given the slice's placement another number. What waits to be logged was meant for the one before.
    pub fn place(&mut self, placement: u64, context: &mut Context) {
        let instant = self.instant(context.now);
        self.placement = placement;
        if let Some(run) = &mut self.run {
            run.queue.clear();
            run.exchange.place(SLICE, placement, context.nodes, instant);
        }
    }

    pub fn ask_data(&self, key: u8, of: NodeId) -> Vec<(NodeId, Message)> {
        if self.run.is_some() { vec![(of, Message::AskData(key))] } else { Vec::new() }
    }

    pub fn step(&mut self, thread: Thread, context: &mut Context) -> Effects {
        let mut effects = Effects::default();
        let open = self.run.as_ref().map(|run| run.open);
        if open == Some(false) && thread == Thread::Reporter {
            let to_greet = &self.run.as_ref().unwrap().to_greet;
            effects.send.extend(to_greet.iter().map(|node| (*node, Message::Greet)));
        }
        if open == Some(true) && (!self.disk.manifest.withdrawn || thread == Thread::Reporter) {
            match thread {
                Thread::Log => self.log(context, &mut effects),
                Thread::Coordinator => self.coordinate(context, &mut effects),
                Thread::Reporter => self.report(context, &mut effects),
                Thread::Keeper => self.keep(context, &mut effects),
                Thread::Filler => self.fill(context, &mut effects),
            }
        }
        effects
    }

    pub fn receive(&mut self, from: NodeId, message: Message, context: &mut Context) -> Effects {
        let mut effects = Effects::default();
        let (wall, instant) = (self.wall(context.now), self.instant(context.now));
        let withdrawn = self.disk.manifest.withdrawn;
        match message {
            Message::Greet => {
                effects.send = self.answer_greeting(from);
                return effects;
            }
            Message::Greeted(greeted) => {
                self.on_greeted(from, greeted, context, &mut effects);
                return effects;
            }
            _ => {}
        }
        let Some(run) = self.run.as_mut().filter(|run| run.open) else { return effects };
        match message {
            Message::Greet | Message::Greeted(_) => {}
            Message::Write(..) | Message::Fetch(_) | Message::AskData(_) | Message::Data { .. } if withdrawn => {}
            Message::Write(mutation, placement) => {
                if placement == self.placement && run.clock.observe(mutation.stamp, wall).is_ok() {
                    run.queue.push_back(Waiting::Write(from, mutation));
                }
            }
            Message::Ack(id) | Message::TooLate(id) => {
                if let Some((_, lacking)) = run.unacknowledged.get_mut(&id) {
                    lacking.remove(&from);
                }
            }
            Message::Report(bytes) => {
                run.exchange.on_report(from, Report::decode(bytes.into()).unwrap(), instant);
                let clock = run.exchange.clock_of(from).max(self.disk.heard.get(&from).copied());
                self.disk.heard.extend(clock.map(|clock| (from, clock)));
            }
            Message::Fetch(names) => {
                // The toy finds every record whose name it has, also one that came with a rebuild and never was in its log:
                // that a replica takes over a set by comparing data is not tried here.
                let own = &run.own;
                let found =
                    context.mutations.iter().filter(|known| names.contains(&known.name) && own.contains(known.name));
                effects.send.extend(found.map(|mutation| (from, Message::Write(*mutation, self.placement))));
            }
            Message::AskData(key) => {
                let known_through = run.exchange.reconciled(SLICE);
                self.sync();
                let data = &self.run.as_ref().unwrap().memtable;
                let history = data.history.get(&key).cloned().unwrap_or_default();
                let version = data.keys.get(&key).copied();
                let placement = self.placement;
                effects.send.push((from, Message::Data { placement, key, version, history, known_through }));
            }
            Message::Data { placement, key, version, history, known_through } => {
                if placement != self.placement {
                    return effects;
                }
                run.queue.push_back(Waiting::Data(key, version, history, known_through));
            }
        }
        effects
    }

    /// One group: logged, then inserted, then synced; whoever waits is told as soon as the mode allows.
    fn log(&mut self, context: &mut Context, effects: &mut Effects) {
        let instant = self.instant(context.now);
        let run = self.run.as_mut().unwrap();
        match run.log_step {
            0 => self.append(effects),
            1 => self.insert(),
            _ => {
                let run = self.run.as_mut().unwrap();
                if !context.settings.periodic || instant.since_us(run.last_sync) > 10_000_000 {
                    run.last_sync = instant;
                    self.sync();
                }
            }
        }
        let run = self.run.as_mut().unwrap();
        run.log_step = (run.log_step + 1) % 3;
        let durable = if context.settings.periodic { run.inserted } else { self.disk.synced.min(run.inserted) };
        let later = run.waiters.split_off(&(durable + 1));
        let ready = std::mem::replace(&mut run.waiters, later);
        effects.send.extend(ready.into_values().map(|(to, id)| (to, Message::Ack(id))));
    }

    /// Each record is judged where it is appended: what is promised meanwhile concerns those behind it.
    fn append(&mut self, effects: &mut Effects) {
        let run = self.run.as_mut().unwrap();
        for waiting in run.queue.drain(..) {
            match waiting {
                Waiting::Write(from, mutation) => match run.exchange.arrival(SLICE, mutation.name, mutation.stamp) {
                    Arrival::Apply => {
                        self.disk.log.push(Record::Named(mutation));
                        run.pending.insert(self.disk.log.len(), mutation);
                        run.waiters.insert(self.disk.log.len(), (from, mutation.id));
                    }
                    Arrival::Received => effects.send.push((from, Message::Ack(mutation.id))),
                    Arrival::Purged | Arrival::Closed => effects.send.push((from, Message::TooLate(mutation.id))),
                },
                Waiting::Data(key, version, history, known_through) => {
                    if run.exchange.purged(SLICE) <= known_through {
                        self.disk.log.push(Record::Nameless(key, version, history));
                    }
                }
            }
        }
    }

    pub fn insert(&mut self) {
        let run = self.run.as_mut().unwrap();
        self.disk.log[run.inserted..].iter().for_each(|record| record.apply(&mut run.memtable));
        run.inserted = self.disk.log.len();
        run.settle(self.disk.synced);
    }

    pub fn sync(&mut self) {
        self.disk.sync(self.disk.log.len());
        self.run.as_mut().unwrap().settle(self.disk.synced);
    }

    fn coordinate(&mut self, context: &mut Context, effects: &mut Effects) {
        let wall = self.wall(context.now);
        let run = self.run.as_mut().unwrap();
        if let Some(mutation) = run.named.take() {
            run.queue.push_back(Waiting::Write(self.id, mutation));
            run.unacknowledged.insert(mutation.id, (mutation, context.nodes.iter().copied().collect()));
            let others = context.nodes.iter().filter(|node| **node != self.id);
            effects.send.extend(others.map(|node| (*node, Message::Write(mutation, self.placement))));
            return;
        }
        if let Some(ceiling) = run.clock.wants_ceiling(wall) {
            self.disk.ceiling = ceiling.max(self.disk.ceiling);
            run.clock.raised(ceiling);
        }
        let Some((key, before_us, delete)) = run.writes.pop_front() else { return };
        let stamp = match run.clock.next(wall) {
            Tick::Stamp(stamp) => stamp,
            Tick::Raise(ceiling) => {
                self.disk.ceiling = Stamp(ceiling.0 + CEILING_STEP_US);
                run.clock.raised(ceiling);
                return run.writes.push_front((key, before_us, delete));
            }
            Tick::Ahead(_) => return,
        };
        let name = run.namer.name(SLICE.0, SLICE.1);
        let id = context.mutations.len();
        let mutation = Mutation { id, name, stamp, key, ts: stamp.0 - before_us, delete };
        context.mutations.push(mutation);
        run.named = Some(mutation);
    }

    fn report(&mut self, context: &mut Context, effects: &mut Effects) {
        let (wall, instant) = (self.wall(context.now), self.instant(context.now));
        let run = self.run.as_mut().unwrap();
        let (step, promised, through) = &mut run.closing;
        match *step {
            0 => *promised = run.exchange.publish(run.clock.closable(wall)),
            1 => {
                let lowest = run.pending.values().map(|mutation| Stamp(mutation.stamp.0 - 1)).min();
                *through = lowest.map_or(*promised, |lowest| lowest.min(*promised));
            }
            2 => run.exchange.own_changed(SLICE, &run.own, instant),
            3 => run.exchange.close(*through),
            other => {
                let others: Vec<_> = context.nodes.iter().filter(|node| **node != self.id).collect();
                let to = *others[usize::from(other) - 4];
                let report = run.exchange.report_for(to);
                effects.send.push((to, Message::Report(report.encode())));
                effects.told = Some((to, report));
            }
        }
        *step = (*step + 1) % (context.nodes.len() as u8 + 3);
    }

    fn keep(&mut self, context: &mut Context, effects: &mut Effects) {
        let instant = self.instant(context.now);
        let run = self.run.as_mut().unwrap();
        match run.keeping.0 {
            0 => self.flush(),
            1 => run.keeping.1 = run.exchange.raised(),
            2 => {
                let floors = run.keeping.1.first().map(|(_, reconciled)| reconciled.clone());
                if let Some(reconciled) = floors {
                    reconciled.floors.settle(&mut self.disk.manifest.set);
                    reconciled.floors.settle(&mut run.own);
                    self.disk.manifest.reconciled = reconciled;
                }
            }
            3 => run.exchange.saved(&std::mem::take(&mut run.keeping.1), instant),
            4 => {
                if let Some((_, purged)) = run.exchange.purgeable(instant).first() {
                    self.disk.manifest.purged = *purged;
                }
            }
            _ => effects.purged = self.purge(context.settings.lateness_us),
        }
        let run = self.run.as_mut().unwrap();
        run.keeping.0 = (run.keeping.0 + 1) % 6;
    }

    /// All that is inserted becomes the file, and the set is saved as of where the log will be replayed from.
    fn flush(&mut self) {
        let inserted = self.run.as_ref().unwrap().inserted;
        self.disk.sync(inserted);
        let run = self.run.as_mut().unwrap();
        run.settle(self.disk.synced);
        let manifest = &mut self.disk.manifest;
        manifest.data = run.memtable.clone();
        manifest.set = run.own.clone();
        manifest.replay_from = inserted;
    }

    /// Deletions that nothing can need any more: what is older than they has arrived everywhere, and none of it is outside
    /// of the file.
    fn purge(&mut self, lateness_us: i64) -> Vec<(u8, Version)> {
        let run = self.run.as_mut().unwrap();
        let manifest = &mut self.disk.manifest;
        let limit = manifest.purged.0 - lateness_us;
        let outside = &self.disk.log[manifest.replay_from..];
        let needed = |key: u8, version: &Version| {
            outside.iter().any(|record| record.touches() == key && record.oldest() <= version.ts)
        };
        let old = |key: u8, version: &Version| version.delete && version.ts < limit && !needed(key, version);
        let gone: Vec<_> = manifest.data.keys.iter().filter(|(key, version)| old(**key, version)).collect();
        let gone: Vec<_> = gone.into_iter().map(|(key, version)| (*key, *version)).collect();
        for (key, version) in &gone {
            manifest.data.keys.remove(key);
            if run.memtable.keys.get(key) == Some(version) {
                run.memtable.keys.remove(key);
            }
        }
        gone
    }

    fn fill(&mut self, context: &mut Context, effects: &mut Effects) {
        let instant = self.instant(context.now);
        let run = self.run.as_mut().unwrap();
        for slice in run.exchange.behind(5_000_000, instant) {
            for (node, names) in run.exchange.holes(slice) {
                let names = names.runs().flat_map(|(origin, incarnation, intervals)| {
                    let sequences = intervals.iter().flat_map(|interval| interval.first..=interval.last);
                    sequences.map(move |sequence| MutationName { origin, incarnation, sequence }).collect::<Vec<_>>()
                });
                effects.send.push((node, Message::Fetch(names.take(20).collect())));
            }
        }
        run.unacknowledged.retain(|_, (mutation, lacking)| {
            lacking.iter().for_each(|node| effects.send.push((*node, Message::Write(*mutation, self.placement))));
            !lacking.is_empty() && !context.settings.forgets(context.rng)
        });
    }

    /// The names that are in the set.
    pub fn has(&self, mutation: &Mutation) -> bool {
        self.disk.lists(mutation) || self.run.as_ref().is_some_and(|run| run.own.contains(mutation.name))
    }
}

impl Run {
    /// What is inserted and durable enters the set.
    fn settle(&mut self, synced: usize) {
        let later = self.pending.split_off(&(synced.min(self.inserted) + 1));
        for mutation in std::mem::replace(&mut self.pending, later).into_values() {
            self.own.add(mutation.name);
        }
    }
}
