//! A whole cluster and its clients: the loop that lets things happen, and what must hold in the end.

use trefoil::codec::EncodedRow;
use trefoil::coordinator::read_repair;
use trefoil::model::{Direction, Fragment, ReadCommand, Slice, Stamp, Target, Timestamp, Vnode};
use trefoil::store::Access;
use trefoil::store::digest::{DigestRange, compare};

use super::event::{Answer, Event, Request};
use super::faults::AHEAD_US;
use super::node::{Node, Process};
use super::random::Random;
use super::scheduler::{EPOCH_US, Sim, Tally};
use super::schema::{LATENESS_S, PARTITIONS};
use super::shape::Shape;
use super::workload::Workload;

/// How long clients ask and things go wrong.
pub const TURMOIL_US: u64 = 9 * 60 * 1_000_000;
/// How long afterwards replicas may take to become equal.
const SETTLING_US: u64 = 60 * 1_000_000;
/// So far before the end of all trouble lies, at most, what replicas then know to have in common: what a node promises lies
/// a minute behind its clock, and its clock a little behind the others.
const KNOWN_BEHIND_US: i64 = 10 * 1_000_000;

pub struct Cluster {
    pub sim: Sim,
    pub nodes: Vec<Node>,
    pub workload: Workload,
}

/// How a run ended.
#[derive(Default)]
pub struct Report {
    pub hash: u64,
    pub events: u64,
    /// What was not as it must be.
    pub failure: Option<String>,
    pub trace: Vec<String>,
    /// How often what has happened.
    pub tally: Tally,
}

/// Runs one seed to its end.
pub fn run(seed: u64, is_traced: bool) -> Report {
    let mut random = Random::new(seed);
    let shape = Shape::draw(&mut random);
    let skews: Vec<i64> = (0..shape.nodes()).map(|_| random.between(-shape.skew_us, shape.skew_us)).collect();
    let sim = Sim::new(seed, shape, random, is_traced);
    let nodes = skews.into_iter().enumerate().map(|(at, skew_us)| Node::new(at, skew_us)).collect();
    let workload = Workload::new(sim.shape.clients);
    let mut cluster = Cluster { sim, nodes, workload };
    cluster.run();
    let sim = &mut cluster.sim;
    let (trace, tally, failure) = (sim.trace(), std::mem::take(&mut sim.tally), sim.failure.take());
    Report { hash: sim.hash, events: sim.events, failure, trace, tally }
}

impl Cluster {
    fn run(&mut self) {
        for node in 0..self.nodes.len() {
            self.sim.after(0, Event::Start { node });
        }
        for client in 0..self.sim.shape.clients {
            self.sim.after(1_000_000, Event::Want { client });
        }
        self.plan_fault();
        self.sim.at(TURMOIL_US, Event::Calm);
        self.sim.at(TURMOIL_US + SETTLING_US, Event::Inspect);
        while self.sim.failure.is_none()
            && let Some(event) = self.sim.next()
        {
            if matches!(event, Event::Inspect) {
                return self.inspect();
            }
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        if let Event::Timer { node, run, .. } | Event::Expire { node, run, .. } | Event::Look { node, run, .. } = event
            && !self.is_alive(node, run)
        {
            return;
        }
        let sim = &mut self.sim;
        match event {
            Event::Deliver { from, to, generation, message } => {
                sim.mix(message.digest());
                if self.nodes[to].process.is_some() && sim.network.is_heard(from, to, generation) {
                    self.nodes[to].on_message(sim, from, message);
                }
            }
            Event::Hangup { node, peer } => {
                if sim.network.found_closed(node, peer) {
                    self.nodes[node].on_lost(sim, peer);
                }
            }
            Event::Connect { node, peer } => self.connect(node, peer),
            Event::Start { node } => self.nodes[node].start(sim),
            Event::Timer { node, timer, .. } => self.nodes[node].on_timer(sim, timer),
            Event::Expire { node, id, .. } => self.nodes[node].expire(sim, id),
            Event::Look { node, id, .. } => self.nodes[node].look(sim, id),
            Event::Request { node, call, request } => self.request(node, call, request),
            Event::Answer { call, answer } => self.workload.on_answer(sim, call, answer),
            Event::GiveUp { call } => self.workload.give_up(sim, call),
            Event::Want { client } => self.workload.want(sim, client),
            Event::Trouble if sim.now_us < TURMOIL_US => {
                let fault = self.draw_fault();
                self.on_fault(fault);
                self.plan_fault();
            }
            Event::Fault(fault) if sim.now_us < TURMOIL_US => self.on_fault(fault),
            Event::Trouble | Event::Fault(_) => {}
            Event::Calm => {
                sim.note(|| "CALM".to_owned());
                self.workload.is_over = true;
                self.heal();
            }
            Event::Inspect => {}
        }
    }

    fn is_alive(&self, node: usize, run: u64) -> bool {
        self.nodes[node].process.is_some() && self.nodes[node].run == run
    }

    fn connect(&mut self, node: usize, peer: usize) {
        let sim = &mut self.sim;
        let is_old = sim.network.is_open(node, peer) || self.nodes[node].process.is_none();
        if is_old {
            return;
        }
        if self.nodes[peer].process.is_none() || !sim.network.is_passable(node, peer) {
            let delay = sim.delay(100_000, 1_000_000);
            sim.after(delay, Event::Connect { node, peer });
            return;
        }
        if sim.network.is_open(peer, node) {
            // It had not noticed that the one before was gone.
            self.nodes[peer].on_lost(sim, node);
        }
        sim.network.open(node, peer);
        self.nodes[node].on_connected(sim, peer);
        self.nodes[peer].on_connected(sim, node);
    }

    fn request(&mut self, node: usize, call: u64, request: Request) {
        if self.nodes[node].process.is_none() {
            let delay = self.sim.delay(100, 2_000);
            return self.sim.after(delay, Event::Answer { call, answer: Answer::NotApplied });
        }
        let (node, sim) = (&mut self.nodes[node], &mut self.sim);
        match request {
            Request::Write { write, level, observed } => node.mutate(sim, call, write, level, observed),
            Request::Read { read, level, observed, state } => node.read(sim, call, read, level, observed, &state),
        }
    }

    /// What must hold once nothing has gone wrong for a while.
    fn inspect(&mut self) {
        if self.workload.under_way() > 0 {
            self.sim.fail(format!("{} requests were never answered", self.workload.under_way()));
        }
        for node in &mut self.nodes {
            match &node.process {
                None => self.sim.fail(format!("n{} has not come back", node.at)),
                Some(process) if !process.ops.is_empty() => {
                    self.sim.fail(format!("n{} still has {} operations", node.at, process.ops.len()));
                }
                Some(process) if process.hints.values().any(|target| !target.is_drained()) => {
                    self.sim.fail(format!("n{} still has hints", node.at));
                }
                Some(process) if !process.log.is_idle() => {
                    self.sim.fail(format!("n{} still has records to log", node.at));
                }
                Some(_) => {}
            }
        }
        self.inspect_knowledge();
        if self.sim.failure.is_none() {
            self.compare();
        }
    }

    /// All replicas know that they have everything that was written before nothing went wrong any more.
    fn inspect_knowledge(&mut self) {
        let known = Stamp(EPOCH_US + TURMOIL_US as i64 - KNOWN_BEHIND_US);
        for node in &self.nodes {
            let Some(process) = &node.process else { continue };
            for slice in self.sim.shape.slices() {
                if !self.sim.shape.replicas_of(slice).contains(&node.id()) {
                    continue;
                }
                let (holes, reconciled) = (process.exchange.holes(slice), process.exchange.reconciled(slice));
                if !holes.is_empty() {
                    return self.sim.fail(format!("n{} still lacks {holes:?} of {slice:?}", node.at));
                }
                if reconciled < known {
                    let at = node.at;
                    return self.sim.fail(format!("n{at} knows {slice:?} to be equal up to {reconciled:?} only"));
                }
            }
        }
    }

    /// All replicas hold the same, row by row, and nothing that was acknowledged is missing.
    fn compare(&mut self) {
        let now_s = (EPOCH_US + self.sim.now_us as i64) / 1_000_000;
        for table in 0..self.sim.shape.schema.tables.len() {
            let mut shown = Vec::new();
            for vnode in (0..self.sim.shape.schema.bits.count()).map(Vnode) {
                match self.compare_vnode(table, vnode, now_s) {
                    Ok(rows) => shown.extend(rows),
                    Err(fault) => return self.sim.fail(fault),
                }
            }
            let expected = self.sim.history.expect_everything(table, self.sim.now_us);
            let fastest_s = (EPOCH_US + self.sim.now_us as i64 + AHEAD_US) / 1_000_000;
            if let Err(fault) = self.sim.history.check(&expected, &shown, (now_s, fastest_s)) {
                return self.sim.fail(format!("in the end {fault}"));
            }
        }
    }

    /// The rows of a vnode that all its replicas show; an error if they differ, in tombstones too.
    fn compare_vnode(&mut self, table: usize, vnode: Vnode, now_s: i64) -> Result<Vec<(u8, u8, u64)>, String> {
        let schema = &self.sim.shape.schema;
        let command = ReadCommand {
            table: schema.tables[table].id,
            target: Target::Scan(schema.bits.range(vnode)),
            slices: vec![Slice::all()],
            direction: Direction::Forward,
            after: None,
            now_s,
            limit_rows: u32::MAX,
            limit_bytes: u32::MAX,
        };
        let slice = (schema.tables[table].keyspace.id, vnode);
        let replicas = self.sim.shape.replicas_of(slice);
        let processes = self.nodes.iter().filter(|node| replicas.contains(&node.id()));
        let processes: Vec<_> = processes.map(|node| (node.at, node.process.as_ref().unwrap())).collect();
        let purged = processes.iter().map(|(_, process)| process.exchange.purged(slice)).max().unwrap_or_default();
        let range = DigestRange {
            table: command.table,
            tokens: schema.bits.range(vnode),
            after: None,
            now_s,
            purged_before: Some(Timestamp(purged.0 - i64::from(LATENESS_S) * 1_000_000)),
        };
        let mut digests = Vec::new();
        for (at, Process { store, .. }) in &processes {
            let page = store.partition_digests(&range, usize::from(PARTITIONS));
            digests.push(page.map_err(|error| format!("n{at}: {error}"))?);
        }
        let differing = compare(&digests).differing;
        let mut pages = Vec::new();
        for (at, Process { store, .. }) in &processes {
            let page = store.read(&command, Access::Disk).map_err(|error| format!("n{at}: {error}"))?;
            pages.push(read_repair::decode(&page, &command).map_err(|error| format!("n{at}: {error}"))?);
        }
        if let Some(difference) = differing.first() {
            let only: Vec<_> = pages.iter().map(|page| unlike(page, &pages[0], &pages[1])).collect();
            return Err(format!("replicas differ in table {table} {vnode:?}: {difference:?}, {only:?}"));
        }
        let digest =
            digests[0].partitions.iter().fold(0, |sum, partition| sum ^ u64::from(crc32fast::hash(&partition.digest)));
        let shown = schema.shown(&pages[0], now_s);
        self.sim.mix(digest);
        Ok(shown)
    }
}

/// What of a page is not in both of two others.
fn unlike(
    page: &[Fragment<EncodedRow>],
    a: &[Fragment<EncodedRow>],
    b: &[Fragment<EncodedRow>],
) -> Vec<Fragment<EncodedRow>> {
    page.iter().filter(|fragment| !a.contains(fragment) || !b.contains(fragment)).take(3).cloned().collect()
}
