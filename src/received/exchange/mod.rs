//! Who has what, as one node knows it: it reports its own sets, takes in those of others, and finds out up to where all
//! replicas of a slice have everything.
//!
//! ```text
//!  own sets ──own_changed──►┌──────────┐──report_for──► a peer, once a second
//!  ring ──────────place────►│ Exchange │◄──on_report─── a peer
//!  clock ─publish, close───►└──────────┘
//!      a record comes ──arrival──► apply it, or not          raised ──► manifest ──saved──► purgeable, ten minutes later
//!                                                            holes ───► to be fetched from whoever has them
//! ```
//!
//! **The promise.** A node publishes a stamp, `closed_through`, and then neither names nor accepts anything stamped so
//! or before that it has not told, unless another replica has. It is asked for every record that is logged, so a
//! promise is kept by all that is logged behind it; what was logged before and is not in a set yet keeps it from being
//! *told* ([`Exchange::close`]).
//!
//! **Invariant:** what is reconciled only rises, and rests on what every replica has told under one's own placement
//! number.
//!
//! Cost: a slice whose replicas are equal costs nothing, as what is reconciled follows from the nodes' closed_through;
//! one that changed costs a comparison of a few intervals for each report. Memory: one set for each slice and replica.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::report::{Report, ReportNumber, SliceReport};
use super::told::{Reconciled, Told};
use super::{ReceivedSet, Slice};
use crate::model::{Instant, KeyspaceId, MutationName, NodeId, Stamp, Vnode};
use slice::SliceState;
pub use slice::Standing;

mod greeting;
mod slice;
#[cfg(test)]
mod tests;

/// How long what is reconciled stands in the manifest before deletions up to it may go, in microseconds.
pub const PURGE_AFTER_US: u64 = 600_000_000;

/// What one node knows.
#[derive(Debug, Clone)]
pub struct Exchange {
    own: NodeId,
    incarnation: u64,
    /// The number of the last report that was made.
    number: u64,
    /// Promised: nothing else that is stamped so or before is logged.
    published: Stamp,
    /// Told: what is stamped so or before is in the sets, if it is here.
    closed: Stamp,
    slices: BTreeMap<Slice, SliceState>,
    /// The slices by the first report that lists their present state.
    changes: BTreeSet<(u64, Slice)>,
    peers: BTreeMap<NodeId, Peer>,
    /// The latest run known of each origin.
    latest: BTreeMap<NodeId, u64>,
    purge_after_us: u64,
    /// What the manifest saved, and when; oldest first.
    aging: VecDeque<(Instant, Vec<(Slice, Stamp)>)>,
    /// Old enough, and pinned.
    pinned: BTreeMap<Slice, Stamp>,
}

#[derive(Debug, Clone, Default)]
struct Peer {
    /// The newest report seen.
    newest: Option<ReportNumber>,
    /// The newest report taken in.
    taken: Option<ReportNumber>,
    /// The last report of mine that it has; 0 for none.
    acked: u64,
    closed: Option<Stamp>,
}

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It was taken in, and told something new of these slices.
    In(Vec<Slice>),
    /// A newer one came before it.
    Old,
    /// It builds on one that is not here. The next report to its sender says so.
    Gap,
}

/// What to do with a named record that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Log it and apply it.
    Apply,
    /// It is here already, and too old to be applied again: acknowledge it.
    Received,
    /// It is not here, and deletions that are younger may be gone already. Its origin may name it anew.
    Purged,
    /// This node has promised to take nothing so old that nobody told. Its origin may name it anew.
    Closed,
}

/// How one slice stands, for people and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceStatus {
    /// Which slice.
    pub slice: Slice,
    /// The placement in force.
    pub placement: u64,
    /// Whether this replica may be counted.
    pub standing: Standing,
    /// Whether reads are answered: not before everything is here that others held when this node started.
    pub may_answer: bool,
    /// Everything stamped so or before is in all replicas.
    pub reconciled: Stamp,
    /// Deletions so old may be gone.
    pub purged: Stamp,
    /// How many names others have told that this replica lacks.
    pub holes: u64,
    /// How many names each other replica lacks of those that this one has; none if it has told nothing that counts.
    pub lacking: Vec<(NodeId, Option<u64>)>,
}

impl Exchange {
    /// What node `own` knows at the start of the run `incarnation`: nothing. `closed`: what the promises of former runs
    /// cannot have exceeded ([`HybridClock::closed_at_start`](super::namer::HybridClock::closed_at_start)).
    /// `purge_after_us`: see [`PURGE_AFTER_US`].
    pub fn new(own: NodeId, incarnation: u64, closed: Stamp, purge_after_us: u64) -> Exchange {
        Exchange {
            own,
            incarnation,
            number: 0,
            published: closed,
            closed,
            slices: BTreeMap::new(),
            changes: BTreeSet::new(),
            peers: BTreeMap::new(),
            latest: BTreeMap::from([(own, incarnation)]),
            purge_after_us,
            aging: VecDeque::new(),
            pinned: BTreeMap::new(),
        }
    }

    /// What the manifest and the replayed log say of a slice, before it is placed. What was reconciled counts as saved
    /// now.
    pub fn restore(&mut self, slice: Slice, set: ReceivedSet, reconciled: Reconciled, purged: Stamp, now: Instant) {
        learn(&mut self.latest, &set);
        self.published = self.published.max(reconciled.through).max(purged);
        self.age(vec![(slice, reconciled.through)], now);
        self.slices.insert(slice, SliceState::restored(set, reconciled, purged));
    }

    /// The owners of a slice, and their number: serving, pending, and old ones until they are dropped. A number that is
    /// not higher than before changes nothing. Where this node is no owner, the slice is forgotten.
    pub fn place(&mut self, slice: Slice, placement: u64, replicas: &[NodeId], now: Instant) {
        if !replicas.contains(&self.own) {
            self.remove(slice);
            return;
        }
        if self.slices.get(&slice).is_some_and(|state| state.placement >= placement) {
            return;
        }
        let others = replicas.iter().copied().filter(|node| *node != self.own).collect();
        self.change(slice, now, |state| state.place(placement, others));
    }

    /// This node is no replica of the slice any more, or there is no such keyspace.
    pub fn remove(&mut self, slice: Slice) {
        if let Some(state) = self.slices.remove(&slice) {
            self.changes.remove(&(state.changed, slice));
        }
        self.pinned.remove(&slice);
    }

    /// This replica has this: durable and inserted. What it had before it still has, also if the store let go of settled
    /// runs before [`Exchange::saved`] said so here.
    pub fn own_changed(&mut self, slice: Slice, set: &ReceivedSet, now: Instant) {
        learn(&mut self.latest, set);
        let mut own = self.slices.get(&slice).map(|state| state.own.clone()).unwrap_or_default();
        let told = Told::new(set.clone(), own.floors().clone());
        if own.set().covers(told.set()) {
            return;
        }
        own.join(&told);
        self.change(slice, now, |state| state.own = own);
    }

    /// Promises: from now on nothing stamped `through` or before is logged that [`Exchange::arrival`] does not let pass.
    /// The answer is what is promised, never less than before.
    ///
    /// The caller has raised its own clock to it ([`HybridClock::closable`](super::namer::HybridClock::closable)). A node
    /// whose clock is known to be ahead of its peers' had better not promise anything: nobody can take it back.
    pub fn publish(&mut self, through: Stamp) -> Stamp {
        self.published = self.published.max(through);
        self.published
    }

    /// What is promised.
    pub fn published(&self) -> Stamp {
        self.published
    }

    /// Tells: whatever this node has that is stamped `through` or before is in its sets, as [`Exchange::own_changed`]
    /// gave them. So the order is: publish; find the lowest stamp that is logged and in no set yet; give the sets;
    /// close below that stamp. Not more than what is promised is told.
    pub fn close(&mut self, through: Stamp) {
        self.closed = self.closed.max(through.min(self.published));
    }

    /// The next report to a peer.
    pub fn report_for(&mut self, peer: NodeId) -> Report {
        self.number += 1;
        let known = self.peers.get(&peer);
        let base = known.map_or(0, |known| known.acked);
        let first = (base + 1, (KeyspaceId(0), Vnode(0)));
        let mut slices: Vec<_> = self.changes.range(first..).filter_map(|(_, slice)| self.told(*slice, peer)).collect();
        slices.sort_unstable_by_key(|(slice, _)| *slice);
        Report {
            number: ReportNumber { incarnation: self.incarnation, number: self.number },
            base,
            acked: known.and_then(|known| known.taken),
            closed_through: self.closed,
            slices,
        }
    }

    /// What a peer is told of a slice: nothing if it is no replica.
    fn told(&self, slice: Slice, peer: NodeId) -> Option<(Slice, SliceReport)> {
        let state = self.slices.get(&slice).filter(|state| state.placement > 0 && state.others.contains(&peer))?;
        let told = (state.standing == Standing::Whole).then(|| state.own.clone());
        Some((slice, SliceReport { placement: state.placement, told }))
    }

    /// A report came from a peer, which the connection has proved to be `from`.
    pub fn on_report(&mut self, from: NodeId, report: Report, now: Instant) -> Taken {
        let peer = self.peers.entry(from).or_default();
        if peer.newest >= Some(report.number) {
            return Taken::Old;
        }
        peer.newest = Some(report.number);
        let mine = report.acked.filter(|acked| acked.incarnation == self.incarnation && acked.number <= self.number);
        peer.acked = mine.map_or(0, |acked| acked.number);
        let same_run = peer.taken.filter(|taken| taken.incarnation == report.number.incarnation);
        if report.base > same_run.map_or(0, |taken| taken.number) {
            return Taken::Gap;
        }
        raise(&mut self.latest, from, report.number.incarnation);
        Taken::In(self.take_in(from, report, now))
    }

    /// What was reconciled before is held fast first: the new closed_through counts for the new sets only.
    fn take_in(&mut self, from: NodeId, report: Report, now: Instant) -> Vec<Slice> {
        let mut touched: BTreeSet<Slice> = report.slices.iter().map(|(slice, _)| *slice).collect();
        if report.base == 0 {
            touched
                .extend(self.slices.iter().filter(|(_, state)| state.heard(from).is_some()).map(|(slice, _)| *slice));
        }
        for slice in &touched {
            let low = self.low(*slice);
            let state = self.slices.entry(*slice).or_default();
            state.freeze(low);
            if report.base == 0 {
                state.unhear(from);
            }
        }
        let peer = self.peers.entry(from).or_default();
        peer.taken = Some(report.number);
        peer.closed = peer.closed.max(Some(report.closed_through));
        for (slice, told) in report.slices {
            told.told.iter().for_each(|told| learn(&mut self.latest, told.set()));
            self.slices.entry(slice).or_default().hear(from, told);
        }
        touched.iter().for_each(|slice| self.evaluate(*slice, now));
        touched.into_iter().collect()
    }

    /// What to do with a named record, asked by whoever logs it, in the order of the log. The caller has looked at its
    /// placement and its clock before. One stamped above [`Exchange::published`] is always to be applied.
    pub fn arrival(&self, slice: Slice, name: MutationName, stamp: Stamp) -> Arrival {
        let state = self.slices.get(&slice);
        let here = state.is_some_and(|state| state.own.lists(name));
        if state.is_some_and(|state| stamp <= state.purged) {
            return if here { Arrival::Received } else { Arrival::Purged };
        }
        if stamp > self.published || here || state.is_some_and(|state| state.is_told(name)) {
            return Arrival::Apply;
        }
        Arrival::Closed
    }

    /// Everything stamped so or before is in all replicas of the slice, or void.
    pub fn reconciled(&self, slice: Slice) -> Stamp {
        self.slices.get(&slice).map_or_else(Stamp::default, |state| state.through(self.low(slice)))
    }

    /// What stamped so or before arrives is not applied; deletions so old may go.
    pub fn purged(&self, slice: Slice) -> Stamp {
        self.slices.get(&slice).map_or_else(Stamp::default, |state| state.purged)
    }

    /// What the manifest does not know yet, of all slices. Worth asking once a minute; it looks at every slice.
    pub fn raised(&self) -> Vec<(Slice, Reconciled)> {
        let latest = |origin: NodeId| self.latest.get(&origin).copied().unwrap_or(0);
        let placed = self.slices.iter().filter(|(_, state)| state.placement > 0);
        placed
            .map(|(slice, state)| (*slice, state.reconciled(self.low(*slice), latest), &state.saved))
            .filter(|(_, reconciled, saved)| reconciled != *saved)
            .map(|(slice, reconciled, _)| (slice, reconciled))
            .collect()
    }

    /// The manifest has saved this. The floors among it are told from now on, and the runs below them may leave the
    /// sets.
    pub fn saved(&mut self, saved: &[(Slice, Reconciled)], now: Instant) {
        for (slice, reconciled) in saved {
            let Some(state) = self.slices.get_mut(slice) else { continue };
            state.saved = reconciled.clone();
            if state.own.floors() != &reconciled.floors {
                let own = Told::new(state.own.set().clone(), reconciled.floors.clone());
                self.change(*slice, now, |state| state.own = own);
            }
        }
        self.age(saved.iter().map(|(slice, reconciled)| (*slice, reconciled.through)).collect(), now);
    }

    /// The slices of which deletions up to a higher stamp may go now. From this call on, what is older is not applied
    /// any more ([`Exchange::arrival`]); the caller makes the stamps durable, then may purge by them.
    pub fn purgeable(&mut self, now: Instant) -> Vec<(Slice, Stamp)> {
        while self.aging.front().is_some_and(|(at, _)| now.since_us(*at) >= self.purge_after_us) {
            for (slice, through) in self.aging.pop_front().into_iter().flat_map(|(_, batch)| batch) {
                let pinned = self.pinned.entry(slice).or_insert(through);
                *pinned = through.max(*pinned);
            }
        }
        let mut raised = Vec::new();
        let slices = &mut self.slices;
        self.pinned.retain(|slice, through| {
            let Some(state) = slices.get_mut(slice) else { return false };
            if state.pins == 0 && *through > state.purged {
                state.purged = *through;
                raised.push((*slice, *through));
            }
            state.pins > 0
        });
        raised
    }

    /// Keeps [`Exchange::purgeable`] from raising this slice, until as many [`Exchange::unpin`]: data without names is
    /// on its way here that may be older than what others purge by then.
    pub fn pin(&mut self, slice: Slice) {
        self.slices.entry(slice).or_default().pins += 1;
    }

    /// Undoes one [`Exchange::pin`].
    pub fn unpin(&mut self, slice: Slice) {
        if let Some(state) = self.slices.get_mut(&slice) {
            state.pins = state.pins.saturating_sub(1);
        }
    }

    /// The names that others have told of a slice and this replica lacks, by who has them. Most are on their way.
    pub fn holes(&self, slice: Slice) -> Vec<(NodeId, ReceivedSet)> {
        self.slices.get(&slice).map(SliceState::holes).unwrap_or_default()
    }

    /// The slices in which this replica has lacked names for longer than `age_us`: these are not on their way any more. Those
    /// at once that are not answered for before the names are here.
    pub fn behind(&self, age_us: u64, now: Instant) -> Vec<Slice> {
        let old = |state: &SliceState| {
            let lacks = state.behind_since().is_some_and(|since| now.since_us(since) >= age_us);
            state.standing == Standing::Whole && (lacks || !state.has_what_it_wanted())
        };
        self.slices.iter().filter(|(_, state)| old(state)).map(|(slice, _)| *slice).collect()
    }

    /// How every placed slice stands.
    pub fn status(&self) -> impl Iterator<Item = SliceStatus> {
        self.slices.iter().filter(|(_, state)| state.placement > 0).map(|(slice, state)| {
            let mut holes = ReceivedSet::default();
            if state.standing == Standing::Whole {
                state.holes().iter().for_each(|(_, names)| holes.union(names));
            }
            SliceStatus {
                slice: *slice,
                placement: state.placement,
                standing: state.standing,
                may_answer: self.may_answer(*slice),
                reconciled: self.reconciled(*slice),
                purged: state.purged,
                holes: holes.count(),
                lacking: state.lacking(),
            }
        })
    }

    /// This replica lost something of the slice, or is about to get it: it tells nothing of it, and nothing is
    /// reconciled.
    pub fn withdraw(&mut self, slice: Slice, now: Instant) {
        self.aging.iter_mut().for_each(|(_, batch)| batch.retain(|(aging, _)| *aging != slice));
        self.pinned.remove(&slice);
        self.change(slice, now, |state| {
            state.own = Told::default();
            state.stand(Standing::Rebuilt);
        });
    }

    /// The slice is whole again: it has what its sources had told, and takes nothing that is older than what any of them may
    /// have purged.
    pub fn rebuilt(&mut self, slice: Slice, told: Told, purged: Stamp, now: Instant) {
        learn(&mut self.latest, told.set());
        self.published = self.published.max(purged);
        self.change(slice, now, |state| {
            state.saved.floors = told.floors().clone();
            state.own = told;
            state.purged = state.purged.max(purged);
            state.stand(Standing::Whole);
        });
    }

    /// Changes what is told of a slice: holds fast what was reconciled, and decides anew.
    fn change(&mut self, slice: Slice, now: Instant, change: impl FnOnce(&mut SliceState)) {
        let low = self.low(slice);
        let next = self.number + 1;
        let state = self.slices.entry(slice).or_default();
        state.freeze(low);
        change(state);
        self.changes.remove(&(state.changed, slice));
        state.changed = next;
        self.changes.insert((next, slice));
        self.evaluate(slice, now);
    }

    fn evaluate(&mut self, slice: Slice, now: Instant) {
        let low = self.low(slice);
        if let Some(state) = self.slices.get_mut(&slice) {
            state.evaluate(low, now);
        }
    }

    /// The lowest closed_through of all replicas of a slice, as last told. Meaningless where one has told nothing.
    fn low(&self, slice: Slice) -> Stamp {
        let others = self.slices.get(&slice).map_or(&[][..], |state| &state.others);
        let closed = |other: &NodeId| self.peers.get(other).and_then(|peer| peer.closed).unwrap_or(Stamp(i64::MIN));
        others.iter().map(closed).fold(self.closed, Stamp::min)
    }

    fn age(&mut self, batch: Vec<(Slice, Stamp)>, now: Instant) {
        match self.aging.back_mut() {
            Some((at, last)) if *at == now => last.extend(batch),
            _ if batch.is_empty() => {}
            _ => self.aging.push_back((now, batch)),
        }
    }
}

/// A run is known once anybody has told of it.
fn learn(latest: &mut BTreeMap<NodeId, u64>, set: &ReceivedSet) {
    set.runs().for_each(|(origin, incarnation, _)| raise(latest, origin, incarnation));
}

fn raise(latest: &mut BTreeMap<NodeId, u64>, origin: NodeId, incarnation: u64) {
    let known = latest.entry(origin).or_insert(incarnation);
    *known = incarnation.max(*known);
}
