//! Three nodes in the zones a, b and c that answer what a test says, over real connections.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream, WatchStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};
use trefoil_proto::v1;
use trefoil_proto::v1::cluster_server::ClusterServer;
use trefoil_proto::v1::data_server::DataServer;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op;
use trefoil_proto::v1::schema_server::SchemaServer;
use trefoil_proto::v1::{ColumnKind, PipeAnswer, PipeRequest, PipeResponse, Scalar, Topology};

use crate::Client;

/// What a node does with an operation.
pub(super) enum Reply {
    Answer(Answer),
    /// Ends the stream without an answer.
    HangUp,
}

/// (node, operation, how many came before it at all nodes)
type Handler = dyn Fn(u32, &Op, u64) -> Reply + Send + Sync;

struct Script {
    handler: Box<Handler>,
    seen: Mutex<Vec<(u32, Op)>>,
}

pub(super) struct Cluster {
    script: Arc<Script>,
    topology: watch::Sender<Topology>,
    pub(super) table_version: Arc<AtomicU64>,
    /// Pipes that were ever opened.
    pub(super) pipes: Arc<AtomicU64>,
}

#[derive(Clone)]
struct FakeNode {
    id: u32,
    script: Arc<Script>,
    topology: watch::Receiver<Topology>,
    table_version: Arc<AtomicU64>,
    pipes: Arc<AtomicU64>,
}

impl Cluster {
    pub(super) async fn start(handler: impl Fn(u32, &Op, u64) -> Reply + Send + Sync + 'static) -> Cluster {
        let script = Arc::new(Script { handler: Box::new(handler), seen: Mutex::default() });
        let (table_version, pipes) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
        let (topology, receiver) = watch::channel(Topology::default());
        let mut nodes = Vec::new();
        for id in 1..=3 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            nodes.push(node(id, listener.local_addr().unwrap().to_string()));
            let fake = FakeNode {
                id,
                script: script.clone(),
                topology: receiver.clone(),
                table_version: table_version.clone(),
                pipes: pipes.clone(),
            };
            let server = Server::builder()
                .initial_stream_window_size(4 << 20)
                .initial_connection_window_size(16 << 20)
                .add_service(DataServer::new(fake.clone()))
                .add_service(ClusterServer::new(fake.clone()))
                .add_service(SchemaServer::new(fake));
            tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        }
        topology.send_replace(first_topology(nodes));
        Cluster { script, topology, table_version, pipes }
    }

    pub(super) fn address(&self, node: usize) -> String {
        self.topology.borrow().nodes[node - 1].client_address.clone()
    }

    /// The operations that came, with the node each came to.
    pub(super) fn seen(&self) -> Vec<(u32, Op)> {
        self.script.seen.lock().clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Topology)) {
        self.topology.send_modify(change);
    }

    /// Waits until the client is connected to all nodes.
    pub(super) async fn all_up(&self, client: &Client) {
        self.until(|| client.shared.nodes_up() == 3, client).await;
    }

    /// Waits until something holds that the client's changes bring about.
    pub(super) async fn until(&self, holds: impl Fn() -> bool, client: &Client) {
        let mut changed = client.shared.changes();
        let change = async {
            while !holds() {
                changed.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(60), change).await.unwrap();
    }
}

fn node(id: u32, client_address: String) -> v1::Node {
    v1::Node {
        id,
        region: "local".to_owned(),
        zone: ["a", "b", "c"][id as usize - 1].to_owned(),
        client_address,
        peer_address: String::new(),
        state: v1::NodeState::Serving.into(),
        alive: true,
    }
}

fn first_topology(nodes: Vec<v1::Node>) -> Topology {
    let owners = |node: &v1::Node| v1::ZoneOwners {
        region: node.region.clone(),
        zone: node.zone.clone(),
        owners: vec![node.id; 4],
    };
    Topology {
        epoch: Some(v1::Epoch { generation: 0, index: 1 }),
        cluster_id: vec![1; 16].into(),
        vnode_bits: 2,
        zones: nodes.iter().map(owners).collect(),
        nodes,
        keyspaces: vec![v1::KeyspaceReplication { name: "ks".to_owned(), ..Default::default() }],
        answered_by: 1,
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl FakeNode {
    /// Answers operations until one of them ends the stream.
    async fn serve(self, mut requests: Streaming<PipeRequest>, answers: mpsc::Sender<Result<PipeResponse, Status>>) {
        while let Ok(Some(request)) = requests.message().await {
            let mut response = PipeResponse::default();
            for operation in request.operations {
                let op = operation.op.unwrap();
                let nth = {
                    let mut seen = self.script.seen.lock();
                    seen.push((self.id, op.clone()));
                    seen.len() as u64 - 1
                };
                match (self.script.handler)(self.id, &op, nth) {
                    Reply::Answer(result) => {
                        response.answers.push(PipeAnswer { id: operation.id, result: Some(result) });
                    }
                    Reply::HangUp => return,
                }
            }
            if answers.send(Ok(response)).await.is_err() {
                return;
            }
        }
    }
}

#[tonic::async_trait]
impl v1::data_server::Data for FakeNode {
    type PipeStream = Answers<PipeResponse>;
    type ReadStreamStream = Answers<v1::ReadPage>;

    async fn pipe(&self, request: Request<Streaming<PipeRequest>>) -> Result<Response<Self::PipeStream>, Status> {
        self.pipes.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(self.clone().serve(request.into_inner(), sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn read(&self, _: Request<v1::ReadRequest>) -> Result<Response<v1::ReadPage>, Status> {
        Err(Status::unimplemented("the client uses the pipe"))
    }

    async fn read_stream(&self, _: Request<v1::ReadRequest>) -> Result<Response<Self::ReadStreamStream>, Status> {
        Err(Status::unimplemented("the client uses the pipe"))
    }

    async fn mutate(&self, _: Request<v1::MutateRequest>) -> Result<Response<v1::WriteResult>, Status> {
        Err(Status::unimplemented("the client uses the pipe"))
    }

    async fn increment_counters(&self, _: Request<v1::IncrementRequest>) -> Result<Response<v1::WriteResult>, Status> {
        Err(Status::unimplemented("the client uses the pipe"))
    }

    async fn batch(&self, _: Request<v1::BatchRequest>) -> Result<Response<v1::BatchResult>, Status> {
        Err(Status::unimplemented("the client uses the pipe"))
    }
}

#[tonic::async_trait]
impl v1::cluster_server::Cluster for FakeNode {
    type WatchStream = Answers<Topology>;
    type VerifyStream = Answers<v1::VerifyProgress>;

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Ok(Response::new(Box::pin(WatchStream::new(self.topology.clone()).map(Ok))))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::StatusResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn ring(&self, _: Request<v1::RingRequest>) -> Result<Response<Topology>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn flush(&self, _: Request<v1::FlushRequest>) -> Result<Response<v1::FlushResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn compaction(&self, _: Request<v1::CompactionRequest>) -> Result<Response<v1::CompactionResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn verify(&self, _: Request<v1::VerifyRequest>) -> Result<Response<Self::VerifyStream>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn compact(&self, _: Request<v1::CompactRequest>) -> Result<Response<v1::CompactionResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn hints(&self, _: Request<v1::HintsRequest>) -> Result<Response<v1::HintsResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn create_snapshot(
        &self,
        _: Request<v1::CreateSnapshotRequest>,
    ) -> Result<Response<v1::SnapshotsResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn list_snapshots(
        &self,
        _: Request<v1::ListSnapshotsRequest>,
    ) -> Result<Response<v1::SnapshotsResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn remove_snapshot(
        &self,
        _: Request<v1::RemoveSnapshotRequest>,
    ) -> Result<Response<v1::SnapshotsResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }
}

#[tonic::async_trait]
impl v1::schema_server::Schema for FakeNode {
    async fn apply(&self, _: Request<v1::ApplyRequest>) -> Result<Response<v1::ApplyResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    /// `ks.t (p text, c int, s text static, v int, primary key (p, c))`, c descending.
    async fn describe(&self, request: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeResponse>, Status> {
        if request.get_ref().table != "t" {
            return Ok(Response::new(v1::DescribeResponse::default()));
        }
        let column = |id, name: &str, scalar: Scalar, kind: ColumnKind| v1::Column {
            name: name.to_owned(),
            r#type: Some(v1::Type { kind: Some(v1::r#type::Kind::Scalar(scalar.into())), frozen: false }),
            kind: kind.into(),
            descending: kind == ColumnKind::Clustering,
            id,
        };
        let table = v1::Table {
            keyspace: "ks".to_owned(),
            name: "t".to_owned(),
            id: vec![7; 16].into(),
            version: self.table_version.load(Ordering::Relaxed),
            columns: vec![
                column(1, "p", Scalar::Text, ColumnKind::PartitionKey),
                column(2, "c", Scalar::Int, ColumnKind::Clustering),
                column(3, "s", Scalar::Text, ColumnKind::Static),
                column(4, "v", Scalar::Int, ColumnKind::Regular),
            ],
            options: None,
            keyspace_id: 1,
        };
        Ok(Response::new(v1::DescribeResponse { tables: vec![table], ..Default::default() }))
    }
}
