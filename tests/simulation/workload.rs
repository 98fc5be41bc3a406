//! Clients: each asks for one thing after the other, of a node that it takes for alive, and remembers what it was told.

use std::collections::BTreeMap;

use bytes::Bytes;
use trefoil::coordinator::Consistency;
use trefoil::model::{Direction, Stamp, Vnode};

use super::event::{Answer, Event, Read, ReadTarget, Request};
use super::faults::AHEAD_US;
use super::history::{Change, Expected, Kind};
use super::random::Random;
use super::scheduler::{EPOCH_US, Sim};
use super::schema::{LATENESS_S, PARTITIONS, ROWS};
use super::shape::{Shape, place_of};

/// A client waits no longer; longer than any coordinator takes.
const PATIENCE_US: u64 = 8_000_000;

const LEVELS: [Consistency; 8] = [
    Consistency::Quorum,
    Consistency::Quorum,
    Consistency::Quorum,
    Consistency::LocalQuorum,
    Consistency::EachQuorum,
    Consistency::One,
    Consistency::Two,
    Consistency::All,
];

pub struct Workload {
    clients: Vec<Client>,
    calls: BTreeMap<u64, Call>,
    last_call: u64,
    /// Whether clients want anything more.
    pub is_over: bool,
}

/// Somebody who asks.
struct Client {
    /// What it likes to do.
    taste: Taste,
    observed: Stamp,
}

#[derive(Debug, Clone, Copy)]
enum Taste {
    Writer,
    Deleter,
    Reader,
    Scanner,
}

/// A request that was sent.
struct Call {
    client: usize,
    began_us: u64,
    level: Consistency,
    what: What,
}

enum What {
    Write { write: u64, replicas: usize },
    Read { read: Read, expected: Expected, shown: Vec<(u8, u8, u64)>, now_s: Option<(i64, i64)> },
}

impl Workload {
    pub fn new(clients: usize) -> Workload {
        let tastes = [Taste::Writer, Taste::Reader, Taste::Deleter, Taste::Scanner];
        let client = |number: usize| Client { taste: tastes[number % tastes.len()], observed: Stamp(0) };
        let clients = (0..clients).map(client).collect();
        Workload { clients, calls: BTreeMap::new(), last_call: 0, is_over: false }
    }

    /// Calls that nobody has answered.
    pub fn under_way(&self) -> usize {
        self.calls.len()
    }

    /// A client wants something.
    pub fn want(&mut self, sim: &mut Sim, client: usize) {
        if self.is_over {
            return;
        }
        let level = *sim.random.pick(&LEVELS);
        let is_read = match self.clients[client].taste {
            Taste::Reader | Taste::Scanner => !sim.random.one_in(5),
            Taste::Writer | Taste::Deleter => sim.random.one_in(5),
        };
        if is_read {
            let read = draw_read(&mut sim.random, self.clients[client].taste, sim.shape.schema.tables.len());
            self.begin_read(sim, client, read, level);
        } else {
            let change = draw_change(&mut sim.random, self.clients[client].taste, sim.shape.schema.tables.len());
            self.begin_write(sim, client, change, level);
        }
    }

    fn begin_write(&mut self, sim: &mut Sim, client: usize, change: Change, level: Consistency) {
        let table = &sim.shape.schema.tables[change.table];
        let key = sim.shape.schema.partition(change.partition);
        let replicas = sim.shape.ring.replicas(&table.keyspace, key.token());
        let coordinator = place_of(sim.random.pick(&replicas.nodes).node);
        let required = required(&sim.shape, change.table, level, coordinator);
        let write = sim.history.begin_write(change);
        let observed = self.observed(sim, client);
        let request = Request::Write { write, level, observed };
        self.call(sim, client, coordinator, level, What::Write { write, replicas: required }, request);
    }

    fn begin_read(&mut self, sim: &mut Sim, client: usize, read: Read, level: Consistency) {
        let (partitions, rows) = match read.target {
            ReadTarget::Row(partition, row) => (partition..partition + 1, row..row + 1),
            ReadTarget::Partition(partition) => (partition..partition + 1, 0..ROWS),
            ReadTarget::Scan => (0..PARTITIONS, 0..ROWS),
        };
        // Its pages may come from coordinators in any region: the least that any of them asks.
        let nodes = 0..sim.shape.nodes();
        let least = nodes.map(|node| required(&sim.shape, read.table, level, node)).min().unwrap_or(1);
        let expected = sim.history.expect(read.table, partitions, rows, least, sim.now_us);
        let what = What::Read { read, expected, shown: Vec::new(), now_s: None };
        self.next_page(sim, client, level, what, Bytes::new(), sim.now_us);
    }

    fn next_page(&mut self, sim: &mut Sim, client: usize, level: Consistency, what: What, state: Bytes, began_us: u64) {
        let What::Read { read, .. } = &what else { return };
        let request = Request::Read { read: read.clone(), level, observed: self.observed(sim, client), state };
        let coordinator = sim.random.below(sim.shape.nodes() as u64) as usize;
        let call = self.call(sim, client, coordinator, level, what, request);
        if let Some(call) = self.calls.get_mut(&call) {
            call.began_us = began_us;
        }
    }

    /// Half of the requests carry what the client has seen.
    fn observed(&self, sim: &mut Sim, client: usize) -> Stamp {
        if sim.random.one_in(2) { self.clients[client].observed } else { Stamp(0) }
    }

    fn call(
        &mut self,
        sim: &mut Sim,
        client: usize,
        node: usize,
        level: Consistency,
        what: What,
        request: Request,
    ) -> u64 {
        self.last_call += 1;
        let call = self.last_call;
        self.calls.insert(call, Call { client, began_us: sim.now_us, level, what });
        let delay = sim.delay(100, 1_500);
        sim.after(delay, Event::Request { node, call, request });
        sim.after(PATIENCE_US, Event::GiveUp { call });
        call
    }

    pub fn on_answer(&mut self, sim: &mut Sim, call: u64, answer: Answer) {
        let Some(Call { client, began_us, level, what }) = self.calls.remove(&call) else { return };
        match (what, answer) {
            (What::Write { write, replicas }, Answer::Written { stamp }) => {
                sim.note(|| format!("write {write} is acknowledged at {level}"));
                self.clients[client].observed = self.clients[client].observed.max(stamp);
                sim.count("writes acknowledged");
                sim.history.acknowledged(write, replicas, began_us);
            }
            (What::Write { write, .. }, Answer::NotApplied) => sim.history.not_applied(write),
            (What::Write { .. }, Answer::Unknown) => sim.count("writes unknown"),
            (What::Read { read, expected, mut shown, now_s }, Answer::Page { rows, now_s: as_of, next, stamp }) => {
                self.clients[client].observed = self.clients[client].observed.max(stamp);
                shown.extend(rows);
                let now_s = now_s.map_or((as_of, as_of), |(least, most)| (least.min(as_of), most.max(as_of)));
                if next.is_empty() {
                    sim.note(|| format!("{read:?} at {level} shows {shown:?}"));
                    sim.count("reads");
                    // What has expired by any clock may be gone, though it has not by that of the coordinator.
                    let fastest_s = (EPOCH_US + sim.now_us as i64 + AHEAD_US).div_euclid(1_000_000);
                    if let Err(fault) = sim.history.check(&expected, &shown, (now_s.0, now_s.1.max(fastest_s))) {
                        sim.fail(format!("{read:?} at {level}, begun at {began_us} µs: {fault}"));
                    }
                } else {
                    let what = What::Read { read, expected, shown, now_s: Some(now_s) };
                    return self.next_page(sim, client, level, what, next, began_us);
                }
            }
            (What::Read { .. }, _) => {}
            (What::Write { .. }, Answer::Page { .. }) => sim.fail("a write is answered with a page"),
        }
        self.rest(sim, client);
    }

    /// Nobody answers: a write may have been done.
    pub fn give_up(&mut self, sim: &mut Sim, call: u64) {
        if let Some(call) = self.calls.remove(&call) {
            self.rest(sim, call.client);
        }
    }

    fn rest(&mut self, sim: &mut Sim, client: usize) {
        let rest = sim.delay(1_000, sim.shape.rest_us * 2);
        sim.after(rest, Event::Want { client });
    }
}

/// How many replicas a level takes, for a coordinator in the region of `node`: said once more, not asked of the core.
pub fn required(shape: &Shape, table: usize, level: Consistency, node: usize) -> usize {
    let replicas = shape.ring.replicas_of(&shape.schema.tables[table].keyspace, Vnode(0)).nodes;
    let in_region = |region: u16| replicas.iter().filter(|replica| replica.region.0 == region).count();
    let quorum = |count: usize| if count == 0 { 0 } else { count / 2 + 1 };
    match level {
        Consistency::One | Consistency::LocalOne => 1,
        Consistency::Two => 2,
        Consistency::Three => 3,
        Consistency::Quorum => quorum(replicas.len()),
        Consistency::All => replicas.len(),
        Consistency::LocalQuorum => quorum(in_region(shape.regions[node])).max(1),
        Consistency::EachQuorum => (0..2).map(|region| quorum(in_region(region))).sum(),
    }
}

fn draw_read(random: &mut Random, taste: Taste, tables: usize) -> Read {
    let partition = random.below(u64::from(PARTITIONS)) as u8;
    let scans = if matches!(taste, Taste::Scanner) { 3 } else { 20 };
    let target = match random.below(scans) {
        0 => ReadTarget::Scan,
        at if at % 2 == 0 => ReadTarget::Row(partition, random.below(u64::from(ROWS)) as u8),
        _ => ReadTarget::Partition(partition),
    };
    Read {
        table: random.below(tables as u64) as usize,
        target,
        direction: if random.one_in(4) { Direction::Reverse } else { Direction::Forward },
        page_rows: *random.pick(&[1, 2, 5, 1_000, 1_000]),
        page_bytes: *random.pick(&[200, 100_000, 100_000]),
    }
}

fn draw_change(random: &mut Random, taste: Taste, tables: usize) -> Change {
    let row = random.below(u64::from(ROWS)) as u8;
    let ttl_s = if random.one_in(5) { 1 + random.below(60) as u32 } else { 0 };
    let deletions = if matches!(taste, Taste::Deleter) { 2 } else { 6 };
    let kind = match random.below(deletions * 3) {
        0 => Kind::DeletePartition,
        1 => Kind::DeleteRange,
        2 => Kind::DeleteRow,
        at if at % 2 == 0 => Kind::Update { ttl_s },
        _ => Kind::Put { ttl_s },
    };
    let rows = match kind {
        Kind::DeletePartition => 0..ROWS,
        Kind::DeleteRange => row..row + 1 + random.below(u64::from(ROWS - row)) as u8,
        _ => row..row + 1,
    };
    Change {
        table: random.below(tables as u64) as usize,
        partition: random.below(u64::from(PARTITIONS)) as u8,
        rows,
        kind,
        back_us: if random.one_in(10) { random.between(0, i64::from(LATENESS_S) * 1_000_000) } else { 0 },
    }
}
