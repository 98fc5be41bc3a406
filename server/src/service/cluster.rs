//! The service `Cluster`: the nodes, the ring, and what they are doing.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response, Status};
use trefoil::metadata::{ClusterState, Epoch};
use trefoil::model::NodeId;
use trefoil::ring::{Node, NodeState};
use trefoil::snapshot::check_name;
use trefoil_proto::convert::schema as convert;
use trefoil_proto::v1;
use trefoil_proto::v1::cluster_server::Cluster;
use trefoil_proto::v1::snapshot_call::Call;

use super::Control;
use crate::clock;
use crate::peers::epoch_to_proto;

/// A watcher is told what is so at least so often: it may have no other sign that the node is there.
const WATCH_INTERVAL: Duration = Duration::from_secs(30);

/// The service.
pub(super) struct ClusterService {
    control: Arc<Control>,
}

impl ClusterService {
    pub(super) fn new(control: Arc<Control>) -> ClusterService {
        ClusterService { control }
    }
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::Topology, Status>> + Send>>;
    type VerifyStream = Pin<Box<dyn Stream<Item = Result<v1::VerifyProgress, Status>> + Send>>;

    async fn status(&self, _request: Request<v1::StatusRequest>) -> Result<Response<v1::StatusResponse>, Status> {
        let state = self.control.state();
        let alive = self.control.shared().peers.alive();
        let asked: Vec<NodeId> = members(&state).map(|node| node.id).filter(|id| alive.contains(id)).collect();
        let reports = self.control.reports(&asked).await;
        let mut reports: BTreeMap<NodeId, v1::NodeReport> =
            asked.into_iter().zip(reports).filter_map(|(node, report)| Some((node, report?))).collect();
        let vnodes = vnodes_owned(&state);
        let status = |member: &Node| v1::NodeStatus {
            node: Some(node(member, &alive)),
            report: reports.remove(&member.id),
            vnodes: vnodes.get(&member.id).copied().unwrap_or(0),
        };
        Ok(Response::new(v1::StatusResponse {
            nodes: members(&state).map(status).collect(),
            cluster_id: Bytes::copy_from_slice(state.cluster().as_bytes()),
            cluster_name: state.name().to_owned(),
            answered_by: self.control.shared().identity.node.0,
            epoch: Some(epoch_to_proto(state.epoch())),
            metadata_leader: self.control.log().leader().map_or(0, |leader| leader.0),
        }))
    }

    async fn ring(&self, _request: Request<v1::RingRequest>) -> Result<Response<v1::Topology>, Status> {
        Ok(Response::new(topology_now(&self.control)))
    }

    async fn watch(&self, _request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let watcher = Watcher {
            control: self.control.clone(),
            peers: self.control.shared().peers.changes(),
            epochs: self.control.log().watch(),
            told: None,
        };
        Ok(Response::new(Box::pin(stream::unfold(watcher, Watcher::next))))
    }

    async fn flush(&self, request: Request<v1::FlushRequest>) -> Result<Response<v1::FlushResponse>, Status> {
        let state = self.control.state();
        let v1::FlushRequest { table, nodes } = request.into_inner();
        let table = table.map(|reference| table_named(&state, &reference)).transpose()?;
        let nodes: Vec<NodeId> = if nodes.is_empty() {
            let alive = self.control.shared().peers.alive();
            members(&state).map(|node| node.id).filter(|id| alive.contains(id)).collect()
        } else {
            nodes.into_iter().map(|id| known_node(&state, id)).collect::<Result<_, _>>()?
        };
        let flushed = self.control.flush(&nodes, table).await;
        let item = |(node, flushed): (&NodeId, Result<(), String>)| v1::NodeFlush {
            node: node.0,
            error: flushed.err().unwrap_or_default(),
        };
        Ok(Response::new(v1::FlushResponse { nodes: nodes.iter().zip(flushed).map(item).collect() }))
    }

    async fn compaction(
        &self,
        request: Request<v1::CompactionRequest>,
    ) -> Result<Response<v1::CompactionResponse>, Status> {
        let nodes = self.nodes(request.into_inner().nodes)?;
        Ok(Response::new(v1::CompactionResponse { nodes: self.control.compaction(&nodes, None).await }))
    }

    async fn compact(&self, request: Request<v1::CompactRequest>) -> Result<Response<v1::CompactionResponse>, Status> {
        let v1::CompactRequest { table, nodes } = request.into_inner();
        let table = table_named(&self.control.state(), &table.ok_or_else(table_missing)?)?;
        let nodes = self.nodes(nodes)?;
        Ok(Response::new(v1::CompactionResponse { nodes: self.control.compaction(&nodes, Some(table)).await }))
    }

    async fn hints(&self, request: Request<v1::HintsRequest>) -> Result<Response<v1::HintsResponse>, Status> {
        let v1::HintsRequest { action, nodes, target } = request.into_inner();
        if v1::HintsAction::try_from(action).is_err() {
            let detail = v1::InvalidDetail::new(format!("{action} is nothing that can be done about hints"));
            return Err(v1::Error::invalid(detail).into_status());
        }
        let nodes = self.nodes(nodes)?;
        let call = v1::HintsCall { action, target };
        Ok(Response::new(v1::HintsResponse { nodes: self.control.hints(&nodes, call).await }))
    }

    async fn create_snapshot(
        &self,
        request: Request<v1::CreateSnapshotRequest>,
    ) -> Result<Response<v1::SnapshotsResponse>, Status> {
        let v1::CreateSnapshotRequest { name, keyspace, table, nodes } = request.into_inner();
        let state = self.control.state();
        let invalid = |error: &trefoil::Error| v1::Error::invalid(v1::InvalidDetail::from_core(error)).into_status();
        check_name(&name).map_err(|error| invalid(&error))?;
        if !keyspace.is_empty() && table.is_some() {
            let detail = v1::InvalidDetail::new("a snapshot is of a keyspace or of a table, not of both");
            return Err(v1::Error::invalid(detail).into_status());
        }
        let keyspace = match keyspace.as_str() {
            "" => None,
            name => Some(keyspace_named(&state, name)?),
        };
        let table = table.map(|reference| table_named(&state, &reference)).transpose()?;
        let table = table.map(convert::table_id).unwrap_or_default();
        let make = v1::MakeSnapshot { name, made_at_us: clock::wall_us(), keyspace, table };
        self.snapshots(nodes, Call::Make(make)).await
    }

    async fn list_snapshots(
        &self,
        request: Request<v1::ListSnapshotsRequest>,
    ) -> Result<Response<v1::SnapshotsResponse>, Status> {
        let nodes = request.into_inner().nodes;
        self.snapshots(nodes, Call::List(v1::TellSnapshots {})).await
    }

    async fn remove_snapshot(
        &self,
        request: Request<v1::RemoveSnapshotRequest>,
    ) -> Result<Response<v1::SnapshotsResponse>, Status> {
        let v1::RemoveSnapshotRequest { name, nodes } = request.into_inner();
        self.snapshots(nodes, Call::Remove(name)).await
    }

    async fn verify(&self, request: Request<v1::VerifyRequest>) -> Result<Response<Self::VerifyStream>, Status> {
        let v1::VerifyRequest { table, name_at_most } = request.into_inner();
        let state = self.control.state();
        let id = table_named(&state, &table.ok_or_else(table_missing)?)?;
        let known = state.table(id).and_then(|table| Some((state.keyspace(table.keyspace)?.clone(), table.clone())));
        let (keyspace, table) = known.ok_or_else(table_missing)?;
        Ok(Response::new(Box::pin(self.control.verify(keyspace, table, name_at_most))))
    }
}

impl ClusterService {
    /// These nodes, or all where none is named.
    fn nodes(&self, nodes: Vec<u32>) -> Result<Vec<NodeId>, Status> {
        let state = self.control.state();
        match nodes.is_empty() {
            true => Ok(members(&state).map(|node| node.id).collect()),
            false => nodes.into_iter().map(|id| known_node(&state, id)).collect(),
        }
    }

    /// Of these nodes, or of all, whether they are seen alive or not: who is missing is told.
    async fn snapshots(&self, nodes: Vec<u32>, call: Call) -> Result<Response<v1::SnapshotsResponse>, Status> {
        let nodes = self.nodes(nodes)?;
        Ok(Response::new(v1::SnapshotsResponse { nodes: self.control.snapshots(&nodes, call).await }))
    }
}

fn keyspace_named(state: &ClusterState, name: &str) -> Result<u32, Status> {
    let keyspace = state.keyspace_named(name).map(|keyspace| keyspace.id.0);
    keyspace.ok_or_else(|| {
        let invalid = v1::InvalidDetail::new("there is no such keyspace").table(name, "");
        v1::Error::not_found(invalid).into_status()
    })
}

fn table_named(state: &ClusterState, reference: &v1::TableRef) -> Result<trefoil::model::TableId, Status> {
    let v1::TableRef { keyspace, name, .. } = reference;
    let table = state.table_named(keyspace, name).map(|table| table.id);
    table.ok_or_else(|| {
        let invalid = v1::InvalidDetail::new("there is no such table").table(keyspace, name);
        v1::Error::not_found(invalid).into_status()
    })
}

fn table_missing() -> Status {
    v1::Error::invalid(v1::InvalidDetail::new("the table is missing")).into_status()
}

fn known_node(state: &ClusterState, id: u32) -> Result<NodeId, Status> {
    let known = members(state).find(|node| node.id.0 == id).map(|node| node.id);
    known.ok_or_else(|| v1::Error::not_found(v1::InvalidDetail::new(format!("there is no node {id}"))).into_status())
}

/// Tells one client of changes.
struct Watcher {
    control: Arc<Control>,
    peers: watch::Receiver<u64>,
    epochs: watch::Receiver<Epoch>,
    told: Option<v1::Topology>,
}

impl Watcher {
    /// Waits for something that the client has not been told, or for as long as it may hear nothing.
    async fn next(mut self) -> Option<(Result<v1::Topology, Status>, Watcher)> {
        let until = Instant::now() + WATCH_INTERVAL;
        loop {
            let now = topology_now(&self.control);
            if self.told.as_ref() != Some(&now) {
                self.told = Some(now.clone());
                return Some((Ok(now), self));
            }
            let changed = async {
                tokio::select! {
                    changed = self.peers.changed() => changed.is_ok(),
                    changed = self.epochs.changed() => changed.is_ok(),
                }
            };
            match timeout_at(until, changed).await {
                Ok(true) => {}
                // The node is stopping.
                Ok(false) => return None,
                Err(_) => return Some((Ok(now), self)),
            }
        }
    }
}

/// The nodes that are or may be there.
fn members(state: &ClusterState) -> impl Iterator<Item = &Node> {
    state.ring().nodes().filter(|node| node.state != NodeState::Gone)
}

fn vnodes_owned(state: &ClusterState) -> BTreeMap<NodeId, u32> {
    let mut counts = BTreeMap::new();
    for owner in state.ring().owners().values().flatten() {
        *counts.entry(*owner).or_insert(0) += 1;
    }
    counts
}

fn node(node: &Node, alive: &BTreeSet<NodeId>) -> v1::Node {
    let state = match node.state {
        NodeState::Serving => v1::NodeState::Serving,
        // No node comes into any other state yet, and the wire has no numbers for them.
        NodeState::Joining | NodeState::Draining | NodeState::Leaving | NodeState::Down | NodeState::Gone => {
            v1::NodeState::Unspecified
        }
    };
    v1::Node {
        id: node.id.0,
        region: node.zone.region.clone(),
        zone: node.zone.name.clone(),
        client_address: node.client_address.clone(),
        peer_address: node.peer_address.clone(),
        state: state.into(),
        alive: alive.contains(&node.id),
    }
}

fn topology_now(control: &Control) -> v1::Topology {
    let shared = control.shared();
    // The log tells of its changes; the state that requests are served by follows a moment later, and untold.
    topology(&control.log().state(), &shared.peers.alive(), shared.identity.node)
}

/// Everything that routing needs, as `teller` sees it.
pub(super) fn topology(state: &ClusterState, alive: &BTreeSet<NodeId>, teller: NodeId) -> v1::Topology {
    let ring = state.ring();
    let zones = ring.owners().iter().map(|(zone, owners)| v1::ZoneOwners {
        region: zone.region.clone(),
        zone: zone.name.clone(),
        owners: owners.iter().map(|owner| owner.0).collect(),
    });
    let mut keyspaces: Vec<v1::KeyspaceReplication> = state
        .keyspaces()
        .map(|keyspace| v1::KeyspaceReplication {
            name: keyspace.name.clone(),
            replication: keyspace.replication.clone(),
        })
        .collect();
    keyspaces.sort_by(|one, other| one.name.cmp(&other.name));
    v1::Topology {
        epoch: Some(epoch_to_proto(state.epoch())),
        cluster_id: Bytes::copy_from_slice(state.cluster().as_bytes()),
        vnode_bits: u32::from(ring.vnode_bits().bits()),
        nodes: members(state).map(|member| node(member, alive)).collect(),
        zones: zones.collect(),
        keyspaces,
        answered_by: teller.0,
    }
}
