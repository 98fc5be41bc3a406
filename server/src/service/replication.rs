//! What replicas ask each other about what they have.

use bytes::Bytes;
use prost::Message;
use tonic::Status;
use trefoil::model::{KeyspaceId, NodeId, Stamp, Vnode};
use trefoil::received::exchange::SliceStatus;
use trefoil_proto::v1;
use trefoil_proto::v1::replication_call::Call;

use super::Control;
use crate::clock;
use crate::replication::{Other, Summary, age_s};

impl Control {
    /// What a report says of replicas.
    pub(super) fn report_replication(&self, report: &mut v1::NodeReport) {
        let state = self.state();
        for (keyspace, summary) in self.shared().replication.summaries() {
            if let Some(keyspace) = state.keyspace(keyspace) {
                report.replication.push(told(keyspace.name.clone(), &summary));
            }
        }
    }

    /// Answers a node that starts, and has sent a [`v1::Greeting`].
    pub fn answer_greeting(&self, from: NodeId) -> Bytes {
        self.shared().replication.answer_greeting(from).encode_to_vec().into()
    }

    /// Answers another node, which has sent a [`v1::ReplicationCall`].
    pub(super) async fn answer_replication(&self, body: Bytes) -> Result<Bytes, Status> {
        let call = v1::ReplicationCall::decode(body).map_err(|error| Status::invalid_argument(error.to_string()))?;
        match call.call {
            Some(Call::Fetch(fetch)) => {
                let found = self.shared().replication.found(fetch).await;
                let found = found.map_err(|error| Status::unavailable(error.to_string()))?;
                Ok(found.encode_to_vec().into())
            }
            Some(Call::Told(told)) => {
                let slice = (KeyspaceId(told.keyspace), Vnode(told.vnode));
                let placement = self.state().ring().placement(slice.1);
                let found = self.shared().replication.told(placement, slice).await;
                let found = found.map_err(|error| Status::unavailable(error.to_string()))?;
                Ok(found.encode_to_vec().into())
            }
            Some(Call::Page(read)) => {
                let page = self.shared().replication.page(read).await;
                let page = page.map_err(|error| Status::unavailable(error.to_string()))?;
                Ok(page.encode_to_vec().into())
            }
            Some(Call::Give(given)) => {
                self.peering().take_given(given).await.map_err(Status::unavailable)?;
                Ok(v1::GivenRecords {}.encode_to_vec().into())
            }
            None => Err(Status::unimplemented("the question is empty or of a later build")),
        }
    }
}

fn told(keyspace: String, summary: &Summary) -> v1::KeyspaceReplicas {
    v1::KeyspaceReplicas {
        keyspace,
        vnodes: summary.vnodes,
        vnodes_behind: summary.vnodes_behind,
        holes: summary.holes,
        vnodes_withdrawn: summary.vnodes_withdrawn,
        vnodes_not_read: summary.vnodes_not_read,
        lag_ms: (summary.unknown == 0).then(|| millis(summary.lag_s)),
        purge_lag_ms: (summary.unpurged == 0).then(|| millis(summary.purge_lag_s)),
        others: summary.others.iter().map(|(node, other)| replica_view(*node, other)).collect(),
        worst: summary.worst.iter().map(|(vnode, status)| vnode_replication(*vnode, status)).collect(),
    }
}

fn replica_view(node: NodeId, other: &Other) -> v1::ReplicaView {
    let report_age_ms = other.reported.map(|at| clock::now().since_us(at) / 1_000);
    v1::ReplicaView { node: node.0, vnodes: other.vnodes, silent: other.silent, lacks: other.lacks, report_age_ms }
}

fn vnode_replication(vnode: Vnode, status: &SliceStatus) -> v1::VnodeReplication {
    let is_waited_for = |(_, lacks): &&(NodeId, Option<u64>)| *lacks != Some(0);
    v1::VnodeReplication {
        vnode: vnode.0,
        lag_ms: (status.reconciled > Stamp(0)).then(|| millis(age_s(status.reconciled, clock::wall_us()))),
        holes: status.holes,
        waits_for: status.lacking.iter().filter(is_waited_for).map(|(node, _)| node.0).collect(),
    }
}

fn millis(seconds: f64) -> u64 {
    (seconds * 1e3) as u64
}
