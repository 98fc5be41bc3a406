//! Snapshots of all nodes: the node that is asked asks each of them.

use bytes::Bytes;
use futures_util::FutureExt;
use prost::Message;
use tonic::Status;
use trefoil::model::{KeyspaceId, NodeId};
use trefoil::snapshot::{Cause, Snapshot};
use trefoil::store::{SnapshotScope, Store};
use trefoil_proto::convert::schema as convert;
use trefoil_proto::v1;
use trefoil_proto::v1::snapshot_call::Call;

use super::Control;
use super::control::FLUSH_TIMEOUT;
use crate::replica::Replica;

impl Control {
    /// What each of these nodes made of it, in their order. One that is not seen alive is not asked.
    pub(super) async fn snapshots(&self, nodes: &[NodeId], call: Call) -> Vec<v1::NodeSnapshots> {
        let call = v1::SnapshotCall { call: Some(call) };
        let own = || self.own_snapshots(call.clone()).boxed();
        let failed = |error| v1::NodeSnapshots { error, ..v1::NodeSnapshots::default() };
        let of =
            |node: NodeId, answer: Result<_, _>| v1::NodeSnapshots { node: node.0, ..answer.unwrap_or_else(failed) };
        self.ask_each(nodes, (v1::CallKind::Snapshot, &call, FLUSH_TIMEOUT), own, of).await
    }

    /// Answers another node, which has sent a [`v1::SnapshotCall`].
    pub(super) async fn answer_snapshots(&self, body: Bytes) -> Result<Bytes, Status> {
        let call = v1::SnapshotCall::decode(body).map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(self.own_snapshots(call).await?.encode_to_vec().into())
    }

    async fn own_snapshots(&self, call: v1::SnapshotCall) -> Result<v1::NodeSnapshots, Status> {
        let call = call.call.ok_or_else(|| Status::invalid_argument("nothing is asked"))?;
        let replica = self.shared().replica.clone();
        let done = tokio::task::spawn_blocking(move || perform(&replica, call)).await;
        done.unwrap_or_else(|error| Err(Status::internal(error.to_string())))
    }
}

fn perform(replica: &Replica, call: Call) -> Result<v1::NodeSnapshots, Status> {
    let store = replica.store();
    let snapshots = match call {
        Call::Make(make) => {
            let made = store.create_snapshot(&make.name, scope(&make)?, make.made_at_us).map_err(refused)?;
            vec![snapshot(&made)]
        }
        Call::List(_) => list(store),
        Call::Remove(name) => {
            let before = list(store);
            let removed = store.remove_snapshot(&name).map_err(refused)?;
            before.into_iter().filter(|one| removed.is_some_and(|id| one.id == id.as_bytes()[..])).collect()
        }
    };
    let only_bytes = store.status().snapshot_only_bytes;
    Ok(v1::NodeSnapshots { snapshots, only_bytes, ..v1::NodeSnapshots::default() })
}

fn refused(error: trefoil::Error) -> Status {
    Status::failed_precondition(error.to_string())
}

fn scope(make: &v1::MakeSnapshot) -> Result<SnapshotScope, Status> {
    match (make.keyspace, &make.table) {
        (None, table) if table.is_empty() => Ok(SnapshotScope::All),
        (Some(keyspace), table) if table.is_empty() => Ok(SnapshotScope::Keyspace(KeyspaceId(keyspace))),
        (None, table) => {
            let table = convert::table_id_to_model(table);
            table.map(SnapshotScope::Table).map_err(|invalid| v1::Error::invalid(invalid).into_status())
        }
        (Some(_), _) => Err(Status::invalid_argument("a keyspace or a table, not both")),
    }
}

/// By time.
fn list(store: &Store) -> Vec<v1::Snapshot> {
    let list = store.snapshots();
    let mut all: Vec<v1::Snapshot> = list.whole.values().map(|whole| snapshot(whole)).collect();
    all.sort_by_key(|snapshot| snapshot.made_at_us);
    all.extend(list.damaged.iter().map(|damaged| v1::Snapshot {
        id: Bytes::copy_from_slice(damaged.id.as_bytes()),
        damage: damaged.error.to_string(),
        ..v1::Snapshot::default()
    }));
    all
}

fn snapshot(snapshot: &Snapshot) -> v1::Snapshot {
    let cause = match snapshot.cause {
        Cause::Operator => v1::SnapshotCause::Operator,
        Cause::BeforeDrop => v1::SnapshotCause::BeforeDrop,
        Cause::BeforeTruncate => v1::SnapshotCause::BeforeTruncate,
        Cause::Backup => v1::SnapshotCause::Backup,
        Cause::BeforeRebuild => v1::SnapshotCause::BeforeRebuild,
    };
    let tables = snapshot.tables.iter().map(|table| v1::SnapshotTable {
        id: convert::table_id(table.id),
        keyspace: table.label.keyspace.clone(),
        name: table.label.table.clone(),
        version: table.label.version,
    });
    v1::Snapshot {
        id: Bytes::copy_from_slice(snapshot.id.as_bytes()),
        name: snapshot.name.clone(),
        made_at_us: snapshot.made_at_us,
        cause: cause.into(),
        tables: tables.collect(),
        files: snapshot.files.len() as u64,
        bytes: snapshot.bytes(),
        damage: String::new(),
    }
}
