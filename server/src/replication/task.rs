//! The one task that keeps replicas informed of each other, on the control runtime.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::MissedTickBehavior;
use trefoil::metadata::Epoch;
use trefoil::model::{Instant, NodeId, Stamp};
use trefoil::received::Slice;

use super::Replication;
use super::holes::Holes;
use super::rebuild::Rebuilding;
use crate::clock;
use crate::coordinate::{Lane, Shared};
use crate::metadata_log::MetadataLog;
use crate::peer_rpc::PeerRpc;
use crate::replica::Completion;

/// Reports between two looks at what the manifest and the log should know: a minute, by default.
const REPORTS_PER_SAVE: u64 = 60;

/// What the task needs beside what it keeps.
pub struct Peering {
    /// The node.
    pub shared: Arc<Shared>,
    /// Over its links reports go.
    pub lane: Arc<Lane>,
    /// For questions to single nodes.
    pub rpc: Arc<dyn PeerRpc>,
    /// Where it is written that something was lost.
    pub log: Arc<dyn MetadataLog>,
    /// What becomes of what was found to be missing here and is logged.
    pub found: tokio::sync::Mutex<UnboundedReceiver<Vec<Completion>>>,
    /// The number under which that comes, behind those of the lanes.
    pub found_lane: usize,
}

/// Runs until it is dropped.
pub async fn run(peering: Arc<Peering>) {
    let settings = peering.shared.replication.settings.clone();
    let mut ticks = tokio::time::interval(settings.report);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changes = peering.shared.peers.changes();
    let mut rounds = Rounds {
        peering,
        placed: None,
        raising: Vec::new(),
        holes: Holes::default(),
        rebuilding: Rebuilding::default(),
    };
    // More often where what is purged is looked at sooner.
    let per_purge = (settings.purge_after.as_millis() / settings.report.as_millis().max(1) / 4) as u64;
    let per_save = per_purge.clamp(1, REPORTS_PER_SAVE);
    for round in 0_u64.. {
        // A peer that has just come is told at once.
        tokio::select! {
            _ = ticks.tick() => {}
            changed = changes.changed() => if changed.is_err() {
                return;
            }
        }
        rounds.place();
        rounds.tell().await;
        rounds.fill();
        if round % per_save == 0 {
            rounds.save().await;
        }
    }
}

struct Rounds {
    peering: Arc<Peering>,
    /// The metadata by which slices were placed.
    placed: Option<Epoch>,
    /// What may be purged from the next look on.
    raising: Vec<(Slice, Stamp)>,
    holes: Holes,
    rebuilding: Rebuilding,
}

impl Rounds {
    fn replication(&self) -> &Arc<Replication> {
        &self.peering.shared.replication
    }

    /// Follows the metadata.
    fn place(&mut self) {
        let state = self.peering.shared.cluster.load_full();
        if self.placed != Some(state.epoch()) {
            self.replication().place(&state);
            self.placed = Some(state.epoch());
        }
    }

    /// Promises, and tells every peer that is linked.
    async fn tell(&self) {
        let replication = self.replication().clone();
        let shared = &self.peering.shared;
        // By a clock that is off nothing is promised.
        let closable = match shared.peers.own_clock_off() {
            None => shared.naming.closable(),
            Some(_) => Stamp::default(),
        };
        // The store's lock of the log is not for a runtime to wait for.
        off_runtime(move || replication.close(closable)).await;
        let replication = self.replication();
        for peer in self.peering.lane.linked() {
            let report = replication.exchange.lock().report_for(peer);
            let slices = report.slices.len();
            let report = Bytes::from(report.encode());
            let bytes = report.len();
            if self.peering.lane.report(peer, report) {
                let counts = &replication.counts;
                counts.reports.fetch_add(1, Ordering::Relaxed);
                counts.report_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                counts.slices_told.fetch_add(slices as u64, Ordering::Relaxed);
            }
        }
    }

    /// Begins to fetch what has been missing for long, and to rebuild what was lost.
    fn fill(&mut self) {
        self.holes.fill(&self.peering);
        self.rebuilding.step(&self.peering);
    }

    /// Makes durable what is reconciled, lets go what is old enough, and log that nobody lacks.
    async fn save(&mut self) {
        let replication = self.replication().clone();
        let raising = std::mem::take(&mut self.raising);
        self.raising = off_runtime(move || replication.save(&raising, clock::now())).await.unwrap_or_default();
    }
}

impl Replication {
    /// Answers what may be purged from the next call on: by then nothing is under way that was judged before.
    fn save(&self, raising: &[(Slice, Stamp)], now: Instant) -> Vec<(Slice, Stamp)> {
        let raising: Vec<_> = raising.iter().map(|((keyspace, vnode), stamp)| (*keyspace, *vnode, *stamp)).collect();
        if !raising.is_empty()
            && let Err(error) = self.store.raise_purged_through(&raising)
        {
            tracing::error!(%error, "the manifest does not say yet what may be purged; it is tried again");
            return raising.into_iter().map(|(keyspace, vnode, stamp)| ((keyspace, vnode), stamp)).collect();
        }
        let raised = self.exchange.lock().raised();
        match self.store.save_reconciled(&raised) {
            Ok(()) => self.exchange.lock().saved(&raised, now),
            Err(error) => tracing::error!(%error, "the manifest does not say yet what is reconciled"),
        }
        self.known.lock().rotate(&raised);
        self.release_log();
        self.keep_clocks();
        self.exchange.lock().purgeable(now)
    }

    /// What other nodes' clocks had come to, for when they start again.
    fn keep_clocks(&self) {
        let heard: Vec<NodeId> = self.heard.lock().keys().copied().collect();
        let clocks: Vec<_> = {
            let exchange = self.exchange.lock();
            heard.into_iter().filter_map(|node| Some((node, exchange.clock_of(node)?))).collect()
        };
        if let Err(error) = self.heard_clocks.learn(clocks) {
            tracing::warn!(%error, "how far the clocks of other nodes had come is not on disk yet");
        }
    }

    fn release_log(&self) {
        let shared = |status: &trefoil::received::exchange::SliceStatus| !status.lacking.is_empty();
        let everywhere: BTreeMap<Slice, Stamp> = self
            .status()
            .iter()
            .filter(|status| shared(status))
            .map(|status| (status.slice, status.reconciled))
            .collect();
        let released = self.store.read_kept_log().and_then(|_| self.store.held_everywhere(everywhere));
        if let Err(error) = released {
            tracing::warn!(%error, "log that no replica lacks is kept for now");
        }
    }
}

/// Runs something that may wait for a lock or the disk. `None` if it panicked.
pub(super) async fn off_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(error) => {
            tracing::error!(%error, "a step of replication failed");
            None
        }
    }
}
