//! What does not come from a node of the cluster, or not from one that is well, on the port for nodes.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use trefoil_proto::v1::Consistency::All;
use trefoil_proto::v1::peer_client::PeerClient;
use trefoil_proto::v1::{
    CallKind, CallRequest, Hello, PeerFailureKind, PeerMessage, PeerOperation, ReadOperation, peer_operation,
    peer_reply,
};

use crate::cluster::Cluster;
use crate::wait::PATIENCE;

/// A link to node 1, and what node 1 said first.
async fn link(
    cluster: &Cluster,
    hello: Option<Hello>,
) -> Result<(mpsc::Sender<PeerMessage>, Streaming<PeerMessage>), Status> {
    let (send, messages) = mpsc::channel(4);
    send.send(PeerMessage { hello, ..PeerMessage::default() }).await.unwrap();
    let mut replies = stub(cluster).await.link(ReceiverStream::new(messages)).await?.into_inner();
    replies.message().await?.and_then(|first| first.hello).ok_or_else(|| Status::internal("no greeting came back"))?;
    Ok((send, replies))
}

async fn stub(cluster: &Cluster) -> PeerClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", cluster.node(1).place.peer)).unwrap();
    PeerClient::new(endpoint.connect().await.unwrap())
}

/// A greeting that node 1 takes: as node 2 would send it.
async fn greeting(cluster: &Cluster) -> Hello {
    let topology = cluster.door(1).ring().await.unwrap();
    Hello {
        protocol_min: 1,
        protocol_max: 1,
        cluster_id: topology.cluster_id,
        node_id: 2,
        incarnation: 1,
        epoch: topology.epoch,
        clock_us: 0,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_of_a_stranger_is_refused() {
    let cluster = Cluster::start(1).await;
    let good = greeting(&cluster).await;
    link(&cluster, Some(good.clone())).await.unwrap();
    let cases = [
        (None, Code::InvalidArgument, "greeting"),
        (Some(Hello { cluster_id: Bytes::from_static(&[9; 16]), ..good.clone() }), Code::FailedPrecondition, "cluster"),
        (Some(Hello { cluster_id: Bytes::new(), ..good.clone() }), Code::FailedPrecondition, "cluster"),
        (Some(Hello { protocol_min: 7, protocol_max: 9, ..good.clone() }), Code::FailedPrecondition, "protocol 7 to 9"),
        (Some(Hello { node_id: 1, ..good.clone() }), Code::FailedPrecondition, "node 1"),
        (Some(Hello { node_id: 77, ..good.clone() }), Code::FailedPrecondition, "node 77"),
    ];
    for (hello, code, names) in cases {
        let refused = link(&cluster, hello).await.expect_err(names);
        assert_eq!(refused.code(), code, "{names}: {refused:?}");
        assert!(refused.message().contains(names), "{names}: {refused:?}");
    }
    lives_on(&cluster).await;
}

/// Operations that cannot be read are answered as such; none of them reaches the log or the store.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_in_a_link_is_answered_and_kept_out() {
    let mut cluster = Cluster::start(1).await;
    cluster.door(1).write(1, 1, All).await.unwrap();
    let garbage: Vec<Bytes> = [&b""[..], b"x", &[0xff; 64], &[0; 64], &[1; 5_000]].map(Bytes::copy_from_slice).to_vec();
    let read = ReadOperation { table: Bytes::from_static(b"short"), ..ReadOperation::default() };
    let mut ops: Vec<_> = garbage.into_iter().map(peer_operation::Op::Write).map(Some).collect();
    ops.extend([Some(peer_operation::Op::Read(read)), Some(peer_operation::Op::Forward(Default::default())), None]);
    let hello = greeting(&cluster).await;
    let (send, mut replies) = link(&cluster, Some(hello)).await.unwrap();
    for (id, op) in (0..).zip(ops) {
        let operations = vec![PeerOperation { id, timeout_ms: 5_000, placement: 0, op: op.clone() }];
        send.send(PeerMessage { operations, ..PeerMessage::default() }).await.unwrap();
        let reply = loop {
            let message = tokio::time::timeout(PATIENCE, replies.message()).await.expect("an answer").unwrap().unwrap();
            if let Some(reply) = message.replies.into_iter().next() {
                break reply;
            }
        };
        assert_eq!(reply.id, id);
        let Some(peer_reply::Result::Failure(failure)) = reply.result else { panic!("{op:?}: {reply:?}") };
        assert_eq!(failure.kind(), PeerFailureKind::Invalid, "{op:?}: {failure:?}");
        assert!(!failure.message.is_empty());
    }
    lives_on(&cluster).await;
    cluster.kill_all();
    cluster.start_all().await;
    assert_eq!(cluster.door(1).read(1, All).await.unwrap(), Some(1), "and the log is read back");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_in_single_questions_is_refused() {
    let cluster = Cluster::start(1).await;
    let cluster_id = cluster.door(1).ring().await.unwrap().cluster_id;
    let kinds = [
        CallKind::RaftAppend,
        CallKind::RaftVote,
        CallKind::RaftSnapshot,
        CallKind::Birth,
        CallKind::Metadata,
        CallKind::Propose,
        CallKind::Flush,
    ];
    let mut stub = stub(&cluster).await;
    for kind in kinds.map(i32::from).into_iter().chain([0, 99]) {
        for body in [&b"\xff"[..], &[0xff; 300], &[7; 40]] {
            let (body, cluster_id) = (Bytes::copy_from_slice(body), cluster_id.clone());
            let mut request = tonic::Request::new(CallRequest { kind, body, cluster_id, node_id: 2 });
            request.set_timeout(Duration::from_secs(10));
            let refused = stub.call(request).await.expect_err("garbage");
            assert_ne!(refused.code(), Code::DeadlineExceeded, "kind {kind}: {refused:?}");
            assert!(!refused.message().is_empty(), "kind {kind}: {refused:?}");
        }
    }
    let foreign =
        CallRequest { kind: CallKind::Metadata.into(), cluster_id: Bytes::from_static(&[9; 16]), ..Default::default() };
    let refused = stub.call(foreign).await.unwrap_err();
    assert!(refused.message().contains("another cluster"), "{refused:?}");
    lives_on(&cluster).await;
    cluster.door(2).apply("CREATE TABLE app.after (k int PRIMARY KEY)").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_the_peer_port_hurts_nobody_else() {
    let cluster = Cluster::start(1).await;
    let garbage: Vec<u8> = (0..4_096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for id in cluster.ids() {
        let mut stream = tokio::net::TcpStream::connect(cluster.node(id).place.peer).await.unwrap();
        // The node may hang up before it has read all.
        let _ = stream.write_all(&garbage).await;
        let mut rest = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("the node hangs up").ok();
    }
    lives_on(&cluster).await;
}

async fn lives_on(cluster: &Cluster) {
    for id in cluster.ids() {
        assert!(cluster.node(id).is_running());
        cluster.door(id).write(100 + i64::from(id), 1, All).await.unwrap();
    }
    cluster.settled().await;
}
