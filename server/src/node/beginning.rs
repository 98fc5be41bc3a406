//! What a node begins a run with: what the others know of it, a clock above everything that it ever told, and names.

use std::sync::Arc;
use std::time::Duration;

use trefoil::metadata::ClusterState;
use trefoil::model::{Identity, NodeId, Stamp};
use trefoil::received::namer::{HybridClock, Namer, Tick};
use trefoil::store::Store;

use super::{SWEEP, StartError};
use crate::ceiling::CeilingFile;
use crate::clock;
use crate::coordinate::Naming;
use crate::peer_rpc::PeerRpc;
use crate::replication::{HeardClocks, Replication, ReplicationSettings, greeting};

/// What is on the disk.
pub(super) struct Before<'a> {
    pub(super) identity: Identity,
    pub(super) store: &'a Arc<Store>,
    pub(super) ceiling: &'a CeilingFile,
    pub(super) heard: Arc<HeardClocks>,
}

/// A run that may name, take and tell.
pub(super) struct Begun {
    pub(super) naming: Naming,
    pub(super) incarnation: u64,
    pub(super) replication: Arc<Replication>,
}

impl Before<'_> {
    /// Greets the others and begins, with whatever was lost withdrawn.
    pub(super) async fn begin(
        self,
        rpc: &dyn PeerRpc,
        state: &Arc<ClusterState>,
        settings: &ReplicationSettings,
    ) -> Result<Begun, StartError> {
        let Before { identity, store, ceiling, heard } = self;
        let found = ceiling.read()?;
        // A directory that never was a node's has told nothing.
        let greeted = match found > Stamp::default() {
            true => greeting::greet(rpc, state.ring(), identity.node, settings.without_others).await,
            false => Vec::new(),
        };
        let reached = greeted.iter().map(|greeted| greeted.clock).fold(found, Stamp::max);
        let behind = settings.closed_behind;
        let (naming, incarnation, closed) = start_naming(ceiling, reached, store, identity.node, behind).await?;
        let replication = Replication::new(identity, incarnation, closed, store.clone(), heard, settings.clone());
        let replication = greeting::take_in(replication, state, greeted, found).await?;
        Ok(Begun { naming, incarnation, replication })
    }
}

/// Waits until the clock can give the start stamp of this run, and makes a ceiling above it durable. `reached`: what no clock
/// of an earlier run exceeded.
async fn start_naming(
    ceiling: &CeilingFile,
    reached: Stamp,
    store: &Store,
    node: NodeId,
    behind: Duration,
) -> Result<(Naming, u64, Stamp), StartError> {
    let behind_us = i64::try_from(behind.as_micros()).unwrap_or(i64::MAX);
    let mut hybrid = HybridClock::new(reached, store.last_stamp()).closing_behind(behind_us);
    let closed = hybrid.closed_at_start();
    let mut reported = false;
    let start: Stamp = loop {
        match hybrid.next(clock::wall_us()) {
            Tick::Stamp(stamp) => break stamp,
            Tick::Raise(to) => {
                ceiling.write(to)?;
                hybrid.raised(to);
            }
            Tick::Ahead(behind_us) => {
                if !std::mem::replace(&mut reported, true) {
                    tracing::warn!(behind_ms = behind_us / 1_000, "waiting until the clock passes what was promised");
                }
                tokio::time::sleep(SWEEP).await;
            }
        }
    };
    let namer = Namer::new(node, start)?;
    let incarnation = namer.incarnation();
    Ok((Naming::new(hybrid, namer), incarnation, closed))
}
