//! What goes on in the background of a node: lanes, and whoever follows the metadata, the peers and the clock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use trefoil::metadata::ClusterState;
use trefoil::model::Stamp;

use super::{SWEEP, table_specs};
use crate::clock;
use crate::coordinate::{Lane, LaneHandle, Shared};
use crate::metadata_log::{MetadataLog, RaftLog};
use crate::peers::{Link, run_link};
use crate::runtime::LaneRuntime;

/// How soon tables that the store did not take are offered again.
const FOLLOW_RETRY: Duration = Duration::from_secs(1);

/// How often liveness is looked at.
const REFRESH: Duration = Duration::from_millis(100);

/// Takes in what the own replica has done for a lane, and looks at deadlines.
pub(super) fn run_lane(
    lane: &Arc<Lane>,
    runtime: &LaneRuntime,
    mut completions: mpsc::UnboundedReceiver<Vec<crate::replica::Completion>>,
) -> [JoinHandle<()>; 2] {
    let (completing, sweeping) = (lane.clone(), lane.clone());
    let complete = runtime.handle().spawn(async move {
        while let Some(done) = completions.recv().await {
            completing.complete(done);
        }
    });
    let sweep = runtime.handle().spawn(async move {
        let mut ticks = tokio::time::interval(SWEEP);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            sweeping.sweep();
        }
    });
    [complete, sweep]
}

/// Follows the metadata: tables into the store, then the state to requests, then links to new members.
pub(super) struct Follower {
    shared: Arc<Shared>,
    log: Arc<RaftLog>,
    lanes: Vec<Arc<Lane>>,
    runtimes: Vec<tokio::runtime::Handle>,
    links: Vec<JoinHandle<()>>,
}

impl Follower {
    /// Has no links yet; `runtimes[i]` is the one of `lanes[i]`.
    pub(super) fn new(
        shared: Arc<Shared>,
        log: Arc<RaftLog>,
        lanes: Vec<Arc<Lane>>,
        runtimes: Vec<tokio::runtime::Handle>,
    ) -> Follower {
        Follower { shared, log, lanes, runtimes, links: Vec::new() }
    }

    pub(super) async fn run(mut self) {
        let mut epochs = self.log.watch();
        self.link_members(&self.log.state());
        loop {
            let state = self.log.state();
            let behind = state.epoch() > self.shared.cluster.load().epoch();
            let followed = if behind { self.follow(state).await } else { Ok(()) };
            if let Err(error) = &followed {
                tracing::error!(error, "the store did not take the new tables; requests keep the old ones meanwhile");
            }
            tokio::select! {
                changed = epochs.changed() => if changed.is_err() {
                    return;
                },
                () = tokio::time::sleep(FOLLOW_RETRY), if followed.is_err() => {}
            }
        }
    }

    async fn follow(&mut self, state: Arc<ClusterState>) -> Result<(), String> {
        let (replica, specs) = (self.shared.replica.clone(), table_specs(&state));
        let set = tokio::task::spawn_blocking(move || replica.store().set_tables(&specs)).await;
        set.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        self.shared.replica.tables_changed();
        self.link_members(&state);
        self.archive(&state);
        self.shared.cluster.store(state);
        for lane in &self.lanes {
            lane.ping_all();
        }
        Ok(())
    }

    /// Tells the archive of a state before anything is coordinated by it.
    fn archive(&self, state: &ClusterState) {
        let Some(archive) = &self.shared.archive else { return };
        // Whatever is named from now on is stamped later.
        let before = self.shared.naming.turn(Stamp::default()).map(|turn| turn.stamp);
        archive.learned(state, before.unwrap_or(Stamp(clock::wall_us())));
    }

    fn link_members(&mut self, state: &ClusterState) {
        for (lane, runtime) in self.lanes.iter().zip(&self.runtimes) {
            let linked = lane.linked();
            let own = self.shared.identity.node;
            for node in state.ring().nodes().filter(|node| node.id != own && !linked.contains(&node.id)) {
                let link = Arc::new(Link::new(node.id, node.peer_address.clone()));
                lane.add_link(link.clone());
                let events = Arc::new(LaneHandle(lane.clone()));
                self.links.push(runtime.spawn(run_link(link, self.shared.peers.clone(), events)));
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        for link in &self.links {
            link.abort();
        }
    }
}

/// Looks who is alive, and tells the metadata log who is ahead.
pub(super) async fn watch_peers(shared: Arc<Shared>, log: Arc<RaftLog>) {
    let mut ticks = tokio::time::interval(REFRESH);
    let mut changes = shared.peers.changes();
    loop {
        tokio::select! {
            _ = ticks.tick() => shared.peers.refresh(),
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
        let own = log.state().epoch();
        for node in shared.peers.alive().iter() {
            if let Some(epoch) = shared.peers.epoch_of(*node).filter(|epoch| *epoch > own) {
                log.heard(*node, epoch);
            }
        }
    }
}
