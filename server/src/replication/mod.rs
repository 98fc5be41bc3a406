//! Who has what, kept true: reports between replicas, what a record that comes late is held against, what may be purged, and
//! what is missing here and is fetched.
//!
//! ```text
//!   store ──sets that have grown──► Exchange ──report, once a second──► each peer        task.rs
//!   peer's report ───────────────►    │ reconciled ─► manifest ─► ten minutes later: purged ─► compaction
//!   log thread, arrivals ──judge──►   │ holes ─► records by name from whoever has them   holes.rs
//!                                     │       └► in no log: the whole vnode compared     compare.rs
//!   start: what others know of this node ──► less here than was told ─► withdrawn, rebuilt    greeting.rs, rebuild.rs
//! ```
//!
//! The protocol is [`trefoil::received::exchange`]; here are its clock, its peers and its disk. One task on the control runtime
//! does everything but judging, which the log thread and the lanes do themselves, and for records older than a minute only.
//!
//! **Invariant:** what is told to be closed was published before, the store was asked what is on its way after that, and the
//! sets were taken last.

mod compare;
pub mod greeting;
mod heard;
mod holes;
mod known;
mod rebuild;
mod status;
mod task;
#[cfg(test)]
mod tests;
pub mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::metadata::ClusterState;
use trefoil::model::{Identity, Instant, NodeId, ReadCommand, Stamp, Vnode};
use trefoil::received::Slice;
use trefoil::received::exchange::{Arrival, Exchange, SliceStatus, Taken};
use trefoil::received::report::Report;
use trefoil::store::Store;

use crate::clock;
use crate::replica::{Arrivals, Judgement};

pub use heard::HeardClocks;
use known::Known;
pub use status::{Other, Summary, age_s};
pub use task::{Peering, run};

/// How replicas keep each other informed.
#[derive(Debug, Clone)]
pub struct ReplicationSettings {
    /// From one report to the next.
    pub report: Duration,
    /// How far behind its clock a node promises to take nothing new.
    pub closed_behind: Duration,
    /// How long what is reconciled stands in the manifest before deletions up to it may go.
    pub purge_after: Duration,
    /// What is fetched from other replicas in a second, in bytes.
    pub fetch_bytes_per_s: u64,
    /// What a start does while no other node answers.
    pub without_others: WithoutOthers,
}

/// What a node does at its start while no other node answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutOthers {
    /// It waits: nobody can tell it yet whether its data directory holds what it told.
    Wait,
    /// It starts: an operator has said that there is no other node.
    Start,
}

impl Default for ReplicationSettings {
    fn default() -> ReplicationSettings {
        ReplicationSettings {
            report: Duration::from_secs(1),
            closed_behind: Duration::from_secs(60),
            purge_after: Duration::from_secs(600),
            fetch_bytes_per_s: 16 << 20,
            without_others: WithoutOthers::Wait,
        }
    }
}

/// What has happened since the start, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    /// Reports sent.
    pub reports: AtomicU64,
    /// Their bytes.
    pub report_bytes: AtomicU64,
    /// Slices that were listed in them.
    pub slices_told: AtomicU64,
    /// Records that were refused because they came too late.
    pub too_late: AtomicU64,
    /// Records that were fetched from another replica's log.
    pub fetched: AtomicU64,
    /// Bytes that were read to compare data with another replica.
    pub compared_bytes: AtomicU64,
    /// Vnodes that were made equal to another replica's and have its set since.
    pub adopted: AtomicU64,
    /// Vnodes of keyspaces of which something had been lost here, and that were rebuilt from other replicas.
    pub rebuilt: AtomicU64,
}

/// What a node knows of its replicas, and what it has promised them.
pub struct Replication {
    identity: Identity,
    store: Arc<Store>,
    settings: ReplicationSettings,
    exchange: Mutex<Exchange>,
    /// As [`Exchange::published`], for those who only compare.
    published: AtomicI64,
    known: Mutex<Known>,
    /// When each peer's last report came.
    heard: Mutex<BTreeMap<NodeId, Instant>>,
    heard_clocks: Arc<HeardClocks>,
    /// Slices whose reads are not answered: others have what is missing here since the start, or something was lost.
    withheld: ArcSwap<BTreeSet<Slice>>,
    counts: Counts,
}

impl Replication {
    /// At the start of the run `incarnation`, with what the store has; `closed`: what no promise of an earlier run exceeded.
    pub fn new(
        identity: Identity,
        incarnation: u64,
        closed: Stamp,
        store: Arc<Store>,
        heard_clocks: Arc<HeardClocks>,
        settings: ReplicationSettings,
    ) -> Replication {
        let purge_after_us = u64::try_from(settings.purge_after.as_micros()).unwrap_or(u64::MAX);
        let mut exchange = Exchange::new(identity.node, incarnation, closed, purge_after_us);
        let (mut reconciled, purged) = (store.saved_reconciled(), store.saved_purged_through());
        let known = Mutex::new(Known::new(&reconciled));
        let now = clock::now();
        let mut sets: BTreeMap<Slice, _> = store.take_grown().into_iter().collect();
        sets.extend(store.received().into_iter().filter(|(slice, _)| !sets.contains_key(slice)).collect::<Vec<_>>());
        for slice in reconciled.keys() {
            sets.entry(*slice).or_default();
        }
        for (slice, set) in sets {
            let purged = purged.get(&slice).copied().unwrap_or_default();
            exchange.restore(slice, set, reconciled.remove(&slice).unwrap_or_default(), purged, now);
        }
        store.withdrawn().keys().for_each(|slice| exchange.withdraw(*slice, now));
        let published = exchange.published();
        store.close_through(published);
        let (published, exchange) = (AtomicI64::new(published.0), Mutex::new(exchange));
        Replication {
            identity,
            store,
            settings,
            exchange,
            published,
            known,
            heard: Mutex::default(),
            heard_clocks,
            withheld: ArcSwap::default(),
            counts: Counts::default(),
        }
    }

    /// What has happened since the start.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Up to which stamp every replica of the slice held everything before any read began that is under way: what data says
    /// of itself that is written back.
    pub fn known_through(&self, slice: Slice) -> Stamp {
        self.known.lock().through(slice)
    }

    /// How every slice of this node stands.
    pub fn status(&self) -> Vec<SliceStatus> {
        self.exchange.lock().status().collect()
    }

    /// A report came from a peer, over a connection that has proved it to be `from`.
    pub fn on_report(&self, from: NodeId, report: Bytes) {
        match Report::decode(report) {
            Ok(report) => {
                let number = report.number;
                self.heard.lock().insert(from, clock::now());
                if self.exchange.lock().on_report(from, report, clock::now()) == Taken::Gap {
                    tracing::debug!(peer = from.0, ?number, "a report builds on one that is not here");
                }
            }
            Err(error) => tracing::error!(peer = from.0, %error, "a report means nothing"),
        }
    }

    /// The owners of all slices of this node, as the metadata have them.
    fn place(&self, state: &ClusterState) {
        let now = clock::now();
        let mut exchange = self.exchange.lock();
        let mut gone: BTreeSet<Slice> = exchange.status().map(|status| status.slice).collect();
        for keyspace in state.keyspaces() {
            for vnode in (0..state.ring().vnode_bits().count()).map(Vnode) {
                let replicas = state.ring().replicas_of(keyspace, vnode);
                let nodes: Vec<NodeId> = replicas.nodes.iter().map(|replica| replica.node).collect();
                if nodes.contains(&self.identity.node) {
                    exchange.place((keyspace.id, vnode), replicas.placement, &nodes, now);
                    gone.remove(&(keyspace.id, vnode));
                }
            }
        }
        gone.into_iter().for_each(|slice| exchange.remove(slice));
    }

    /// Whether this replica may be counted: it lost nothing of the slice, or has it again.
    pub fn is_whole(&self, slice: Slice) -> bool {
        self.withheld.load().is_empty() || self.exchange.lock().is_whole(slice)
    }

    /// Whether these slices have by now what they waited for: what came since the last report is looked at, too.
    fn has_caught_up(&self, slices: &[Slice]) -> bool {
        let now = clock::now();
        for slice in slices {
            let set = self.store.received_of(*slice);
            self.exchange.lock().own_changed(*slice, &set, now);
        }
        self.look_what_is_withheld();
        let withheld = self.withheld.load();
        slices.iter().all(|slice| !withheld.contains(slice))
    }

    /// Whoever reads goes by what is withheld now.
    fn look_what_is_withheld(&self) {
        let withheld: BTreeSet<Slice> = self.exchange.lock().withheld().into_iter().collect();
        if **self.withheld.load() != withheld {
            self.withheld.store(Arc::new(withheld));
        }
    }

    /// Whoever logs goes by what was promised.
    fn publish_what_is_promised(&self) {
        let published = self.exchange.lock().published();
        self.store.close_through(published);
        self.published.store(published.0, Ordering::Relaxed);
    }

    /// Promises up to `closable`, and tells what follows from it; the next reports say so.
    fn close(&self, closable: Stamp) {
        let published = self.exchange.lock().publish(closable);
        self.published.store(published.0, Ordering::Relaxed);
        let closed = self.store.close_through(published);
        let grown = self.store.take_grown();
        let now = clock::now();
        let mut exchange = self.exchange.lock();
        for (slice, set) in &grown {
            exchange.own_changed(*slice, set, now);
        }
        exchange.close(closed);
        drop(exchange);
        self.look_what_is_withheld();
    }
}

impl Arrivals for Replication {
    fn published(&self) -> Stamp {
        Stamp(self.published.load(Ordering::Relaxed))
    }

    fn takes(&self, record: &CheckedRecord) -> bool {
        let is_named = matches!(record.kind(), RecordKind::Named(_));
        let slice = || (record.keyspace(), self.identity.vnode_bits.vnode(record.token()));
        !is_named || self.withheld.load().is_empty() || self.is_whole(slice())
    }

    fn withholds(&self, command: &ReadCommand) -> bool {
        let withheld = self.withheld.load();
        let asked = if withheld.is_empty() { None } else { self.store.asked(command) };
        let Some((keyspace, first, last)) = asked else { return false };
        // What was lost does not come within a request; the store says so.
        let withdrawn = self.store.withdrawn();
        let slices = withheld.range((keyspace, first)..=(keyspace, last));
        let behind: Vec<Slice> = slices.filter(|slice| !withdrawn.contains_key(slice)).copied().collect();
        !behind.is_empty() && !self.has_caught_up(&behind)
    }

    fn judge(&self, record: &CheckedRecord) -> Judgement {
        let slice = (record.keyspace(), self.identity.vnode_bits.vnode(record.token()));
        let judgement = match record.kind() {
            RecordKind::Named(name) if self.store.has_name(slice, name) => Judgement::Received,
            RecordKind::Named(name) => match self.exchange.lock().arrival(slice, name, record.stamp()) {
                Arrival::Apply => Judgement::Apply,
                Arrival::Received => Judgement::Received,
                Arrival::Purged | Arrival::Closed => Judgement::TooLate,
            },
            RecordKind::Nameless { known_through, .. } if known_through < self.exchange.lock().purged(slice) => {
                Judgement::TooLate
            }
            RecordKind::Nameless { .. } => Judgement::Apply,
        };
        if judgement == Judgement::TooLate {
            self.counts.too_late.fetch_add(1, Ordering::Relaxed);
        }
        judgement
    }
}
