//! What the services need beside a lane, and what this node answers other nodes about itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use prost::Message;
use tokio::sync::Semaphore;
use tonic::Status;
use trefoil::liveness::View;
use trefoil::metadata::{ClusterState, Epoch};
use trefoil::model::{NodeId, TableId, Vnode};
use trefoil::store::QuarantinedFile;
use trefoil_proto::convert::schema as convert;
use trefoil_proto::v1;

use crate::backup::Crew;
use crate::clock;
use crate::coordinate::Shared;
use crate::metadata_log::{MetadataLog, voters};
use crate::peer_rpc::PeerRpc;
use crate::peers::epoch_to_proto;
use crate::replication::Peering;
use crate::restore::share::Shares;

/// How long another node may take to tell of itself.
pub(super) const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long another node may take to write its memtables to files.
pub(super) const FLUSH_TIMEOUT: Duration = Duration::from_secs(120);

/// How often a node looks whether it has itself applied what it waits for; of others it is told.
const LOOK: Duration = Duration::from_millis(10);

/// A node as an operator sees it.
pub struct Control {
    shared: Arc<Shared>,
    log: Arc<dyn MetadataLog>,
    rpc: Arc<dyn PeerRpc>,
    shares: Arc<Shares>,
    /// Whose turn it is to read a vnode for its digest.
    digesting: Arc<Semaphore>,
    crew: Option<Arc<Crew>>,
    peering: Arc<Peering>,
}

impl Control {
    /// Over these parts of a node.
    pub fn new(
        shared: Arc<Shared>,
        log: Arc<dyn MetadataLog>,
        rpc: Arc<dyn PeerRpc>,
        shares: Arc<Shares>,
        crew: Option<Arc<Crew>>,
        peering: Arc<Peering>,
    ) -> Control {
        Control { shared, log, rpc, shares, digesting: Arc::new(Semaphore::new(1)), crew, peering }
    }

    pub(super) fn peering(&self) -> &Peering {
        &self.peering
    }

    /// Whoever sees to backups, if there are any.
    pub(super) fn crew(&self) -> Option<&Arc<Crew>> {
        self.crew.as_ref()
    }

    pub(super) fn digesting(&self) -> Arc<Semaphore> {
        self.digesting.clone()
    }

    pub(super) fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn log(&self) -> &dyn MetadataLog {
        &*self.log
    }

    pub(super) fn rpc(&self) -> &dyn PeerRpc {
        &*self.rpc
    }

    /// The state that requests are served by.
    pub(crate) fn state(&self) -> Arc<ClusterState> {
        self.shared.cluster.load_full()
    }

    /// Waits until every node seen alive, this one included, serves by `epoch`; at most for `patience`. Answers the nodes
    /// that do not.
    pub(super) async fn applied_everywhere(&self, epoch: Epoch, patience: Duration) -> Vec<NodeId> {
        let give_up = clock::after(patience);
        let mut changes = self.shared.peers.changes();
        loop {
            let state = self.state();
            let own = (state.epoch() < epoch).then_some(self.shared.identity.node);
            let behind: Vec<NodeId> = own.into_iter().chain(self.shared.peers.behind(state.ring(), epoch)).collect();
            if behind.is_empty() || clock::now() >= give_up {
                return behind;
            }
            // Whatever ends the wait, it is looked again.
            let _ = tokio::time::timeout(LOOK, changes.changed()).await;
        }
    }

    /// What this node tells of itself.
    pub(super) fn report(&self) -> v1::NodeReport {
        let state = self.state();
        let store = self.shared.replica.store().status();
        let mut report = v1::NodeReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: Some(epoch_to_proto(state.epoch())),
            uptime_s: clock::now().0 / 1_000_000,
            voter: voters(state.ring()).contains(&self.shared.identity.node),
            log_bytes: store.log_bytes,
            memtable_bytes: store.memtable_bytes,
            memtables_frozen: store.memtables_frozen,
            sstables: store.sstables,
            sstable_bytes: store.sstable_bytes,
            cache_bytes: store.cache_bytes,
            requests_in_flight: self.shared.admission.requests(),
            snapshots: store.snapshots,
            snapshot_only_bytes: store.snapshot_only_bytes,
            tables_leaving: store.tables_leaving,
            quarantined: self.shared.replica.store().quarantined().iter().map(quarantined).collect(),
            log_failure: self.shared.replica.store().log_failure().unwrap_or_default(),
            storage_failure: self.shared.storage_failure().unwrap_or_default(),
            peers: self.shared.peers.views().iter().map(peer_view).collect(),
            clock_off_us: self.shared.peers.own_clock_off(),
            clock_us: clock::wall_us(),
            ..v1::NodeReport::default()
        };
        self.report_hints(&mut report);
        self.report_replication(&mut report);
        self.report_backup(&mut report);
        report
    }

    /// What each of these nodes tells of itself, in their order; `None` where no answer came.
    pub(super) async fn reports(&self, nodes: &[NodeId]) -> Vec<Option<v1::NodeReport>> {
        let ask = |node: NodeId| async move {
            if node == self.shared.identity.node {
                return Some(self.report());
            }
            let answer = self.rpc.call(node, v1::CallKind::Report, Bytes::new(), REPORT_TIMEOUT).await;
            answer.ok().and_then(|body| v1::NodeReport::decode(body).ok())
        };
        join_all(nodes.iter().map(|node| ask(*node))).await
    }

    /// Makes each of these nodes write its memtables to files, in their order; the errors are for people.
    pub(super) async fn flush(&self, nodes: &[NodeId], table: Option<TableId>) -> Vec<Result<(), String>> {
        let body = table.map(convert::table_id).unwrap_or_default();
        let ask = |node: NodeId, body: Bytes| async move {
            if node == self.shared.identity.node {
                return self.flush_own(table).await;
            }
            let answer = self.rpc.call(node, v1::CallKind::Flush, body, FLUSH_TIMEOUT).await;
            answer.map(drop).map_err(|error| error.to_string())
        };
        join_all(nodes.iter().map(|node| ask(*node, body.clone()))).await
    }

    async fn flush_own(&self, table: Option<TableId>) -> Result<(), String> {
        let replica = self.shared.replica.clone();
        let flushed = tokio::task::spawn_blocking(move || replica.flush(table)).await;
        match flushed {
            Ok(flushed) => flushed.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Answers another node: `Report` has an empty question and a [`v1::NodeReport`], `Flush` the id of a table, or
    /// nothing for all tables, and an empty answer, `Snapshot` a [`v1::SnapshotCall`] and [`v1::NodeSnapshots`],
    /// `Compaction` a [`v1::CompactionCall`] and a [`v1::NodeCompaction`], `Digests` a [`v1::DigestCall`] and a
    /// [`v1::DigestAnswer`], `Hints` a
    /// [`v1::HintsCall`] and [`v1::NodeHints`], `Replication` a [`v1::ReplicationCall`],
    /// `Restore` a [`v1::RestoreCall`] and a [`v1::RestoreShare`],
    /// `Backup` a [`v1::BackupCall`] and a [`v1::BackupPart`].
    pub async fn answer(&self, kind: v1::CallKind, body: Bytes) -> Result<Bytes, Status> {
        match kind {
            v1::CallKind::Report => Ok(Bytes::from(self.report().encode_to_vec())),
            v1::CallKind::Flush => {
                let table = match body.is_empty() {
                    true => None,
                    false => {
                        let id = convert::table_id_to_model(&body);
                        Some(id.map_err(|invalid| v1::Error::invalid(invalid).into_status())?)
                    }
                };
                self.flush_own(table).await.map_err(Status::unavailable)?;
                Ok(Bytes::new())
            }
            v1::CallKind::Snapshot => self.answer_snapshots(body).await,
            v1::CallKind::Compaction => self.answer_compaction(body).await,
            v1::CallKind::Digests => self.answer_digests(body).await,
            v1::CallKind::Hints => self.answer_hints(body).await,
            v1::CallKind::Replication => self.answer_replication(body).await,
            v1::CallKind::Restore => self.answer_share(body).await,
            v1::CallKind::Backup => self.answer_backup(body).await,
            other => Err(Status::unimplemented(format!("{} is not asked here", other.as_str_name()))),
        }
    }
}

fn peer_view(view: &View) -> v1::PeerView {
    v1::PeerView {
        node: view.node.0,
        state: view.state.name().to_owned(),
        reason: view.reason.clone().unwrap_or_default(),
        for_ms: view.for_us / 1_000,
        phi: view.phi,
        round_trip_us: view.round_trip_us,
        clock_ahead_us: view.ahead_us,
    }
}

fn quarantined(file: &QuarantinedFile) -> v1::QuarantinedFile {
    let run = |(first, last): &(Vnode, Vnode)| v1::VnodeRun { first: first.0, last: last.0 };
    v1::QuarantinedFile {
        path: file.path.display().to_string(),
        keyspace: file.label.keyspace.clone(),
        table: file.label.table.clone(),
        vnodes: file.vnodes.iter().map(run).collect(),
        reason: file.reason.clone(),
    }
}
