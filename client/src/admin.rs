//! Schema and state of the cluster.

use std::time::Duration;

use futures_util::{Stream, TryStreamExt};
use tonic::Request;
use trefoil::model::ddl::DdlStatement;
use trefoil::model::{Keyspace, Table, UserTypes};
use trefoil_proto::MESSAGE_BYTES_MAX;
use trefoil_proto::convert::schema::{ddl, keyspace_to_model, table_to_model};
use trefoil_proto::convert::types::user_types_to_model;
use trefoil_proto::v1::cluster_client::ClusterClient;
use trefoil_proto::v1::schema_client::SchemaClient;
use trefoil_proto::v1::{
    ApplyRequest, ApplyResponse, CompactRequest, CompactionRequest, CreateSnapshotRequest, DescribeRequest,
    FlushRequest, FlushResponse, HintsAction, HintsRequest, ListSnapshotsRequest, NodeCompaction, NodeHints,
    NodeSnapshots, RemoveSnapshotRequest, RingRequest, StatusRequest, StatusResponse, TableRef, Topology,
    VerifyProgress, VerifyRequest,
};

use crate::client::Client;
use crate::error::{Error, Result};

/// How long such a call may take: a change of the schema waits up to ten seconds for slow nodes.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A snapshot writes memtables to files first, on all nodes at once.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(150);

/// Keyspaces and tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    /// By name.
    pub keyspaces: Vec<Keyspace>,
    /// By keyspace and name; with the keyspace's name.
    pub tables: Vec<(String, Table)>,
    /// User-defined types by keyspace and name, with all their fields.
    pub types: UserTypes,
}

impl Client {
    /// Makes, changes, empties or drops a keyspace or table. It is sent once only: after an unknown outcome, look with [`Client::schema`].
    pub async fn apply(&self, statement: &DdlStatement) -> Result<ApplyResponse> {
        let mut client = SchemaClient::new(self.any_channel().await?);
        let response = client.apply(request(ApplyRequest { ddl: Some(ddl(statement)) })).await;
        response.map(tonic::Response::into_inner).map_err(|status| Error::from_status(&status))
    }

    /// All keyspaces and tables.
    pub async fn schema(&self) -> Result<Schema> {
        let mut client = SchemaClient::new(self.any_channel().await?).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let response = client.describe(request(DescribeRequest::default())).await;
        let described = response.map_err(|status| Error::from_status(&status))?.into_inner();
        let types = user_types_to_model(described.types)?;
        let tables = described.tables.into_iter().map(|table| {
            let keyspace = table.keyspace.clone();
            table_to_model(table, &types).map(|table| (keyspace, table))
        });
        let keyspaces = described.keyspaces.into_iter().map(keyspace_to_model).collect();
        let tables = tables.collect::<Result<_, _>>()?;
        Ok(Schema { keyspaces, tables, types })
    }

    /// The nodes and what each tells of itself.
    pub async fn status(&self) -> Result<StatusResponse> {
        let mut client = self.cluster().await?;
        let response = client.status(request(StatusRequest {})).await;
        response.map(tonic::Response::into_inner).map_err(|status| Error::from_status(&status))
    }

    /// Who owns what.
    pub async fn ring(&self) -> Result<Topology> {
        let mut client = self.cluster().await?;
        let response = client.ring(request(RingRequest {})).await;
        response.map(tonic::Response::into_inner).map_err(|status| Error::from_status(&status))
    }

    /// Writes memtables to files on every node that is alive: those of `keyspace.table`, or all.
    pub async fn flush(&self, table: Option<&str>) -> Result<FlushResponse> {
        let table = table.map(table_ref);
        let mut client = self.cluster().await?;
        let response = client.flush(request(FlushRequest { table, nodes: Vec::new() })).await;
        response.map(tonic::Response::into_inner).map_err(|status| Error::from_status(&status))
    }

    /// What compaction is doing on every node, what waits for it, and what the files of each table cost.
    pub async fn compaction(&self) -> Result<Vec<NodeCompaction>> {
        let response = self.cluster().await?.compaction(request(CompactionRequest::default())).await;
        response.map(|response| response.into_inner().nodes).map_err(|status| Error::from_status(&status))
    }

    /// Begins to make as few files of `keyspace.table` as there can be, on every node, and does not wait for it.
    pub async fn compact(&self, table: &str) -> Result<Vec<NodeCompaction>> {
        let asked = CompactRequest { table: Some(table_ref(table)), nodes: Vec::new() };
        let response = self.cluster().await?.compact(request(asked)).await;
        response.map(|response| response.into_inner().nodes).map_err(|status| Error::from_status(&status))
    }

    /// The hints that these nodes keep for others, or every node where none is named, after having done something about
    /// those for `target` (0: for all).
    pub async fn hints(&self, action: HintsAction, nodes: &[u32], target: u32) -> Result<Vec<NodeHints>> {
        let asked = HintsRequest { action: action.into(), nodes: nodes.to_vec(), target };
        let response = self.cluster().await?.hints(request(asked)).await;
        response.map(|response| response.into_inner().nodes).map_err(|status| Error::from_status(&status))
    }

    /// Makes a snapshot on every node: of `keyspace.table`, of a keyspace, or of all tables.
    pub async fn create_snapshot(&self, name: &str, of: SnapshotOf<'_>) -> Result<Vec<NodeSnapshots>> {
        let (keyspace, table) = match of {
            SnapshotOf::All => (String::new(), None),
            SnapshotOf::Keyspace(name) => (name.to_owned(), None),
            SnapshotOf::Table(name) => (String::new(), Some(table_ref(name))),
        };
        let asked = CreateSnapshotRequest { name: name.to_owned(), keyspace, table, nodes: Vec::new() };
        let mut request = Request::new(asked);
        request.set_timeout(SNAPSHOT_TIMEOUT);
        let response = self.cluster().await?.create_snapshot(request).await;
        response.map(|response| response.into_inner().nodes).map_err(|status| Error::from_status(&status))
    }

    /// The snapshots of every node.
    pub async fn snapshots(&self) -> Result<Vec<NodeSnapshots>> {
        let response = self.cluster().await?.list_snapshots(request(ListSnapshotsRequest::default())).await;
        response.map(|response| response.into_inner().nodes).map_err(|status| Error::from_status(&status))
    }

    /// Removes a snapshot, by its name or id, from every node that has it. Answers what was removed.
    pub async fn remove_snapshot(&self, name: &str) -> Result<Vec<NodeSnapshots>> {
        let asked = RemoveSnapshotRequest { name: name.to_owned(), nodes: Vec::new() };
        let response = self.cluster().await?.remove_snapshot(request(asked)).await;
        response.map(|response| response.into_inner().nodes).map_err(|status| Error::from_status(&status))
    }

    /// Compares what all replicas of `keyspace.table` hold, and tells how far it is and what differs as it goes. Names at
    /// most so many differing partitions; the last message has done all vnodes.
    pub async fn verify(
        &self,
        table: &str,
        name_at_most: u32,
    ) -> Result<impl Stream<Item = Result<VerifyProgress>> + Unpin + use<>> {
        let asked = VerifyRequest { table: Some(table_ref(table)), name_at_most };
        // A large table takes as long as reading it does.
        let response = self.cluster().await?.verify(Request::new(asked)).await;
        let messages = response.map_err(|status| Error::from_status(&status))?.into_inner();
        Ok(messages.map_err(|status| Error::from_status(&status)))
    }

    async fn cluster(&self) -> Result<ClusterClient<tonic::transport::Channel>> {
        Ok(ClusterClient::new(self.any_channel().await?).max_decoding_message_size(MESSAGE_BYTES_MAX))
    }
}

/// What a snapshot is to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotOf<'a> {
    /// All tables.
    All,
    /// Those of the keyspace of this name.
    Keyspace(&'a str),
    /// The one of this name, `keyspace.table`.
    Table(&'a str),
}

pub(crate) fn table_ref(name: &str) -> TableRef {
    let (keyspace, name) = name.split_once('.').unwrap_or((name, ""));
    TableRef { keyspace: keyspace.to_owned(), name: name.to_owned(), ..TableRef::default() }
}

pub(crate) fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
}
