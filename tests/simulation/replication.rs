//! What a node tells the others of what it has, and gets from them: the shell around [`Exchange`].

use bytes::Bytes;
use trefoil::codec::{CheckedRecord, Record, RecordKind};
use trefoil::commitlog::Everywhere;
use trefoil::coordinator::FailureReason;
use trefoil::model::{Durability, Instant, NodeId, Stamp};
use trefoil::received::exchange::{Arrival, Exchange};
use trefoil::received::namer::HybridClock;
use trefoil::received::report::Report;
use trefoil::received::{ReceivedSet, ReceivedSets, Slice};
use trefoil::store::Store;

use super::cluster::TURMOIL_US;
use super::event::{Message, Timer};
use super::log::{Job, Ticket};
use super::node::Node;
use super::scheduler::Sim;
use super::shape::{Shape, node_id, place_of};

/// How often a node reports, unless its thread is held up.
const REPORT_US: u64 = 1_000_000;
/// How often what is reconciled is saved.
pub const SAVE_US: u64 = 10_000_000;
/// How long what is reconciled stands in the manifest before deletions up to it may go.
pub const PURGE_AFTER_US: u64 = 20_000_000;
/// Names that others have told so long ago are not on their way any more.
const BEHIND_US: u64 = 2_000_000;
/// Bytes of records that are asked for at once.
const FETCH_BYTES: usize = 64 << 10;
const FETCH_TIMEOUT_US: u64 = 10_000_000;

/// What becomes of a record that comes.
pub enum Verdict {
    Apply,
    /// It is here, and is acknowledged once more.
    Here,
    Refused(FailureReason),
}

/// What a node knows when it starts: what it has saved, and nothing of the others.
pub fn start(at: usize, incarnation: u64, clock: &HybridClock, store: &Store, sim: &Sim) -> Exchange {
    let (own, now) = (node_id(at), Instant(sim.now_us));
    let mut exchange = Exchange::new(own, incarnation, clock.closed_at_start(), PURGE_AFTER_US);
    let (mut sets, reconciled, purged) = (store.received(), store.saved_reconciled(), store.saved_purged_through());
    for slice in sim.shape.slices() {
        let replicas = sim.shape.replicas_of(slice);
        if !replicas.contains(&own) {
            continue;
        }
        let held = reconciled.get(&slice).cloned().unwrap_or_default();
        let purged = purged.get(&slice).copied().unwrap_or_default();
        exchange.restore(slice, sets.remove(&slice).unwrap_or_default(), held, purged, now);
        exchange.place(slice, sim.shape.ring.placement(slice.1), &replicas, now);
    }
    store.close_through(exchange.published());
    exchange
}

impl Node {
    /// Promises, tells all peers what has changed, and asks for what is missing.
    pub fn report(&mut self, sim: &mut Sim) {
        let (wall_us, now) = (self.wall_us(sim), Instant(sim.now_us));
        let at = self.at;
        let process = self.running();
        let promised = process.exchange.publish(process.clock.closable(wall_us));
        let through = process.store.close_through(promised);
        for (slice, set) in process.store.take_grown() {
            process.exchange.own_changed(slice, &set, now);
            sim.told(at, slice, &set);
        }
        process.exchange.close(through);
        for peer in sim.network.peers(at) {
            if sim.network.is_open(at, peer) {
                let report = self.running().exchange.report_for(node_id(peer)).encode();
                let _ = self.send(sim, peer, Message::Report { report: report.into() });
            }
        }
        self.fetch(sim);
        let is_held_up = sim.now_us < TURMOIL_US && sim.random.one_in(20);
        let delay = if is_held_up { sim.delay(REPORT_US, sim.shape.report_us + 1) } else { REPORT_US };
        self.timer(sim, delay, Timer::Report);
    }

    pub fn on_report(&mut self, sim: &mut Sim, from: usize, report: Bytes) {
        match Report::decode(report) {
            Ok(report) => drop(self.running().exchange.on_report(node_id(from), report, Instant(sim.now_us))),
            Err(error) => sim.fail(format!("n{} cannot read a report: {error}", self.at)),
        }
    }

    /// Asks for names that others have had for a while.
    fn fetch(&mut self, sim: &mut Sim) {
        let now = Instant(sim.now_us);
        let exchange = &self.running().exchange;
        let behind: Vec<(Slice, Vec<(NodeId, ReceivedSet)>)> =
            exchange.behind(BEHIND_US, now).into_iter().map(|slice| (slice, exchange.holes(slice))).collect();
        for (slice, holders) in behind {
            if holders.is_empty() {
                continue;
            }
            let (holder, names) = sim.random.pick(&holders).clone();
            sim.note(|| format!("n{} lacks {names:?} of {slice:?} and asks {holder}", self.at));
            let _ = self.send(sim, place_of(holder), Message::Fetch { slice, names });
        }
    }

    /// A peer asks for records by their names.
    pub fn on_fetch(&mut self, sim: &mut Sim, from: usize, slice: Slice, names: ReceivedSet) {
        let wanted = ReceivedSets::from([(slice, names)]);
        match self.running().store.records_named(&wanted, FETCH_BYTES) {
            Ok(records) if records.is_empty() => sim.note(|| format!("n{} has no such records", self.at)),
            Ok(records) => drop(self.send(sim, from, Message::Records { records })),
            Err(error) => sim.note(|| format!("n{} cannot read its log: {error}", self.at)),
        }
    }

    pub fn on_records(&mut self, sim: &mut Sim, records: Vec<Bytes>) {
        for record in records {
            sim.count("records fetched");
            let deadline_us = sim.now_us + FETCH_TIMEOUT_US;
            let checked = CheckedRecord::check(record).map_err(|error| error.to_string());
            match checked {
                Ok((record, _)) => {
                    let durability = Durability::Commit;
                    let _ = self.submit(sim, Job { record, durability, deadline_us, ticket: Ticket::Nobody });
                }
                Err(error) => sim.fail(format!("n{} was sent {error}", self.at)),
            }
        }
    }

    /// The tests that are made where records are logged, in the order of the log.
    pub fn verdict(&mut self, sim: &mut Sim, record: &Record, slice: Slice) -> Verdict {
        let exchange = &self.running().exchange;
        let verdict = match record.kind {
            RecordKind::Named(name) => match exchange.arrival(slice, name, record.stamp) {
                Arrival::Apply => Verdict::Apply,
                Arrival::Received => Verdict::Here,
                Arrival::Purged | Arrival::Closed => Verdict::Refused(FailureReason::TooLate),
            },
            RecordKind::Nameless { known_through, .. } if known_through < exchange.purged(slice) => {
                Verdict::Refused(FailureReason::TooLate)
            }
            RecordKind::Nameless { .. } => Verdict::Apply,
        };
        match verdict {
            Verdict::Refused(_) => sim.count("records too late"),
            Verdict::Here => sim.count("records that were here"),
            Verdict::Apply => {}
        }
        verdict
    }

    /// Saves what is reconciled, and purges by what was saved long ago.
    pub fn save_reconciled(&mut self, sim: &mut Sim) {
        let (now, at) = (Instant(sim.now_us), self.at);
        let process = self.running();
        let raised = process.exchange.raised();
        if process.store.save_reconciled(&raised).is_ok() {
            process.exchange.saved(&raised, now);
            for (slice, reconciled) in &raised {
                sim.claimed(at, *slice, reconciled.through);
            }
        }
        let purgeable = process.exchange.purgeable(now);
        let changes: Vec<_> = purgeable.iter().map(|((keyspace, vnode), stamp)| (*keyspace, *vnode, *stamp)).collect();
        if process.store.raise_purged_through(&changes).is_ok() {
            for (slice, stamp) in purgeable {
                sim.count("bounds of purging raised");
                sim.claimed(at, slice, stamp);
            }
        }
        let slices =
            sim.shape.slices().into_iter().filter(|slice| sim.shape.replicas_of(*slice).contains(&node_id(at)));
        let everywhere: Everywhere = slices.map(|slice| (slice, process.exchange.reconciled(slice))).collect();
        if let Err(error) = process.store.held_everywhere(everywhere) {
            sim.note(|| format!("n{at} cannot let its log go: {error}"));
        }
        let _ = process.store.read_kept_log();
        self.timer(sim, SAVE_US, Timer::Save);
    }

    /// Up to where everything is known to be everywhere in all of these vnodes: what goes with data that has no names.
    pub fn reconciled_in(&mut self, slices: impl Iterator<Item = Slice>) -> Stamp {
        let exchange = &self.running().exchange;
        slices.map(|slice| exchange.reconciled(slice)).min().unwrap_or_default()
    }
}

impl Shape {
    /// Every slice of every keyspace.
    pub fn slices(&self) -> Vec<Slice> {
        let mut keyspaces: Vec<_> = self.schema.tables.iter().map(|table| table.keyspace.id).collect();
        keyspaces.dedup();
        keyspaces.sort_unstable();
        keyspaces.dedup();
        let vnodes = 0..self.schema.bits.count();
        keyspaces.iter().flat_map(|id| vnodes.clone().map(|vnode| (*id, trefoil::model::Vnode(vnode)))).collect()
    }

    /// Who owns a slice.
    pub fn replicas_of(&self, (keyspace, vnode): Slice) -> Vec<NodeId> {
        let table = self.schema.tables.iter().find(|table| table.keyspace.id == keyspace);
        let replicas = table.map(|table| self.ring.replicas_of(&table.keyspace, vnode).nodes);
        replicas.into_iter().flatten().map(|replica| replica.node).collect()
    }
}
