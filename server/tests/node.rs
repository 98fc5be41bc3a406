//! One node in this process, in memory, asked over gRPC as any client asks.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::{Code, Request};
use trefoil::model::VnodeBits;
use trefoil::ring::Zone;
use trefoil::vfs::memory::MemoryVfs;
use trefoil_proto::v1;
use trefoil_proto::v1::cluster_client::ClusterClient;
use trefoil_proto::v1::data_client::DataClient;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op;
use trefoil_proto::v1::read_request::Target;
use trefoil_proto::v1::schema_client::SchemaClient;
use trefoil_server::config::{ClusterConfig, Config, MemberConfig, NodeConfig};
use trefoil_server::node::{Node, NodeSettings};

const PATIENCE: Duration = Duration::from_secs(20);

/// Three ports that nobody listens on.
fn free_ports() -> [std::net::SocketAddr; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

/// A cluster of one node, with the table `k.t (k int PRIMARY KEY, v int)`.
async fn start() -> (Node, Channel) {
    let [client_address, peer_address, http_address] = free_ports();
    let zone = Zone { region: "r".to_owned(), name: "a".to_owned() };
    let cluster = ClusterConfig {
        name: "one".to_owned(),
        vnodes: VnodeBits::DEFAULT,
        initial_members: vec![MemberConfig { address: peer_address, zone: zone.clone() }],
    };
    let data_dir = PathBuf::from("/data");
    let node = NodeConfig { data_dir, zone, client_address, peer_address, http_address, runtimes: 1 };
    let settings = NodeSettings::new(&Config::of_member(cluster, node));
    let node = Node::start(settings, Arc::new(MemoryVfs::new())).await.unwrap();
    let channel = Channel::from_shared(format!("http://{client_address}")).unwrap().connect().await.unwrap();
    for statement in trefoil::cql::parse("CREATE KEYSPACE k; CREATE TABLE k.t (k int PRIMARY KEY, v int);").unwrap() {
        let ddl = Some(trefoil_proto::convert::schema::ddl(&statement));
        let applied = SchemaClient::new(channel.clone()).apply(v1::ApplyRequest { ddl }).await.unwrap();
        assert!(applied.into_inner().nodes_behind.is_empty());
    }
    (node, channel)
}

fn table() -> Option<v1::TableRef> {
    Some(v1::TableRef { keyspace: "k".to_owned(), name: "t".to_owned(), ..v1::TableRef::default() })
}

fn options() -> Option<v1::Options> {
    Some(v1::Options { consistency: v1::Consistency::Quorum.into(), ..v1::Options::default() })
}

fn integer(value: i64) -> v1::Value {
    v1::Value { kind: Some(v1::value::Kind::Integer(value)) }
}

fn mutate(key: i64) -> v1::MutateRequest {
    let cells = vec![v1::CellWrite::set("v", integer(key))];
    let row = v1::RowWrite { clustering: Vec::new(), cells };
    let change = v1::Change { op: Some(v1::change::Op::Insert(row)), ..v1::Change::default() };
    let mutation = v1::Mutation { table: table(), partition: vec![integer(key)], changes: vec![change] };
    v1::MutateRequest { options: options(), mutation: Some(mutation) }
}

fn scan() -> v1::ReadRequest {
    let target = Some(Target::Scan(v1::TokenScan::default()));
    v1::ReadRequest { options: options(), table: table(), target, page_rows: 100, ..v1::ReadRequest::default() }
}

async fn count(channel: &Channel) -> usize {
    let mut pages = DataClient::new(channel.clone()).read_stream(scan()).await.unwrap().into_inner();
    let mut rows = 0;
    while let Some(page) = pages.next().await {
        rows += page.unwrap().rows.len();
    }
    rows
}

/// A caller that was gone took its mutation with it in another system, half of it. Here all operations of one message are
/// begun before the first is answered; the client then drops its stream, and every mutation is made all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b073_mutations_are_made_though_their_client_is_gone() {
    let (node, channel) = start().await;
    let operation = |id| v1::PipeOperation { id, timeout_ms: 0, op: Some(Op::Mutate(mutate(id as i64))) };
    let request = v1::PipeRequest { operations: (1..=500).map(operation).collect() };
    let endless = tokio_stream::once(request).chain(tokio_stream::pending());
    let mut answers = DataClient::new(channel.clone()).pipe(endless).await.unwrap().into_inner();
    let first = answers.next().await.unwrap().unwrap();
    assert!(matches!(first.answers[0].result, Some(Answer::Write(_))));
    drop(answers);

    let until = Instant::now() + PATIENCE;
    let mut rows = count(&channel).await;
    while rows < 500 && Instant::now() < until {
        rows = count(&channel).await;
    }
    assert_eq!(rows, 500);
    node.stop().await.unwrap();
}

/// Also that the deadline of a unary call is that of its header.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_request_is_said_in_its_status() {
    let (node, channel) = start().await;
    let mut data = DataClient::new(channel.clone());
    data.mutate(mutate(1)).await.unwrap();

    let mut unknown = scan();
    unknown.table = Some(v1::TableRef { name: "x".to_owned(), ..table().unwrap() });
    let status = data.read(unknown).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "k.x: there is no such table"));
    let error = v1::Error::from_status(&status);
    assert_eq!(error.outcome(), v1::Outcome::NotApplied);

    let mut too_many = mutate(2);
    too_many.options = Some(v1::Options { consistency: v1::Consistency::Three.into(), ..v1::Options::default() });
    let status = data.mutate(too_many).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(v1::Error::from_status(&status).outcome(), v1::Outcome::NotApplied);

    let mut late = Request::new(mutate(3));
    late.set_timeout(Duration::from_nanos(1));
    let status = data.mutate(late).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");

    let empty = v1::PipeRequest { operations: vec![v1::PipeOperation { id: 9, timeout_ms: 0, op: None }] };
    let mut answers = data.pipe(tokio_stream::once(empty)).await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap().answers.remove(0);
    assert!(matches!(answer.result, Some(Answer::Error(error)) if error.status_code() == Code::InvalidArgument));
    assert!(answers.next().await.is_none(), "a pipe ends when the client has ended it and all is answered");
    node.stop().await.unwrap();
}

/// A watcher is told at once, and again when the metadata changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_tells_of_changes() {
    let (node, channel) = start().await;
    let mut cluster = ClusterClient::new(channel.clone());
    let mut topologies = cluster.watch(v1::WatchRequest {}).await.unwrap().into_inner();
    let first = topologies.next().await.unwrap().unwrap();
    assert_eq!(first.nodes.len(), 1);
    let create = v1::CreateKeyspace {
        keyspace: Some(v1::Keyspace { name: "other".to_owned(), ..v1::Keyspace::default() }),
        if_not_exists: false,
    };
    let ddl = Some(v1::Ddl { op: Some(v1::ddl::Op::CreateKeyspace(create)) });
    let applied = SchemaClient::new(channel).apply(v1::ApplyRequest { ddl }).await.unwrap().into_inner();
    let second = topologies.next().await.unwrap().unwrap();
    assert_eq!(second.epoch, applied.epoch);
    assert!(second.keyspaces.iter().any(|keyspace| keyspace.name == "other"));

    let flushed = cluster.flush(v1::FlushRequest::default()).await.unwrap().into_inner();
    assert_eq!(flushed.nodes, [v1::NodeFlush { node: 1, error: String::new() }]);
    let status = cluster.status(v1::StatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.answered_by, status.metadata_leader), (1, 1));
    assert!(status.nodes[0].report.as_ref().is_some_and(|report| report.voter));
    node.stop().await.unwrap();
}
