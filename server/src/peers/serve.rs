//! What other nodes ask of this one.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};
use trefoil::metadata::Epoch;
use trefoil::model::NodeId;
use trefoil_proto::v1;
use trefoil_proto::v1::peer_server::Peer;

use super::pulse::Pulse;
use super::queue::{Outbox, ReplyQueue};
use super::{PROTOCOL_MAX, PROTOCOL_MIN, epoch_from_proto, link};

/// What the node does with what peers ask.
#[tonic::async_trait]
pub trait PeerEvents: Send + Sync + 'static {
    /// An operation of `peer`; its reply goes to `replies`. Must not block.
    fn operation(&self, peer: NodeId, operation: v1::PeerOperation, replies: &ReplyQueue);

    /// `peer` has applied the metadata up to `epoch`.
    fn told(&self, peer: NodeId, epoch: Epoch);

    /// What `peer` has.
    fn reported(&self, peer: NodeId, report: Bytes);

    /// A single question.
    async fn call(&self, kind: v1::CallKind, from: NodeId, body: Bytes) -> Result<Bytes, Status>;

    /// This node as it greets others now; an error while it does not serve yet.
    fn hello(&self) -> Result<v1::Hello, Status>;

    /// Whether `node` is one of the cluster's, as far as this node knows.
    fn is_member(&self, node: NodeId) -> bool;
}

/// The gRPC service `Peer`.
pub struct PeerService<E> {
    events: Arc<E>,
    stop: watch::Receiver<bool>,
}

impl<E: PeerEvents> PeerService<E> {
    /// Serves peers with `events` until `stop` turns true: then links end, each with its last reply.
    pub fn new(events: Arc<E>, stop: watch::Receiver<bool>) -> PeerService<E> {
        PeerService { events, stop }
    }
}

type MessageStream = Pin<Box<dyn Stream<Item = Result<v1::PeerMessage, Status>> + Send>>;

#[tonic::async_trait]
impl<E: PeerEvents> Peer for PeerService<E> {
    type LinkStream = MessageStream;

    async fn link(&self, request: Request<Streaming<v1::PeerMessage>>) -> Result<Response<MessageStream>, Status> {
        let mut messages = request.into_inner();
        let first = messages.message().await?.and_then(|message| message.hello);
        let theirs = first.ok_or_else(|| Status::invalid_argument("the first message of a link must be a greeting"))?;
        let ours = self.events.hello()?;
        check_hello(&theirs, &ours).map_err(Status::failed_precondition)?;
        if !self.events.is_member(NodeId(theirs.node_id)) {
            let text = format!("the cluster has no node {} as far as node {} knows", theirs.node_id, ours.node_id);
            return Err(Status::failed_precondition(text));
        }
        let hello = v1::PeerMessage { hello: Some(ours), ..v1::PeerMessage::default() };
        let (replies, outgoing) = ReplyQueue::open(hello);
        tokio::spawn(serve(self.events.clone(), NodeId(theirs.node_id), messages, replies, self.stop.clone()));
        Ok(Response::new(Box::pin(outgoing)))
    }

    async fn call(&self, request: Request<v1::CallRequest>) -> Result<Response<v1::CallResponse>, Status> {
        let request = request.into_inner();
        let kind = v1::CallKind::try_from(request.kind)
            .ok()
            .filter(|kind| *kind != v1::CallKind::Unspecified)
            .ok_or_else(|| Status::unimplemented(format!("question {} is not known to this build", request.kind)))?;
        if let Ok(ours) = self.events.hello()
            && !request.cluster_id.is_empty()
            && request.cluster_id != ours.cluster_id
        {
            return Err(Status::failed_precondition("the question comes from a node of another cluster"));
        }
        let body = self.events.call(kind, NodeId(request.node_id), request.body).await?;
        Ok(Response::new(v1::CallResponse { body }))
    }
}

/// Takes in one peer's operations until its stream ends or this node stops.
async fn serve<E: PeerEvents>(
    events: Arc<E>,
    peer: NodeId,
    mut messages: Streaming<v1::PeerMessage>,
    replies: ReplyQueue,
    mut stop: watch::Receiver<bool>,
) {
    let (outbox, pulse) = (&replies.0, Pulse::new());
    let mut pings = tokio::time::interval(link::PING_INTERVAL);
    loop {
        tokio::select! {
            message = next_message(&mut messages, outbox) => match message {
                Ok(Some(message)) => {
                    if let Some(ping) = message.ping {
                        let is_first = !pulse.has_heard();
                        pulse.heard(&ping);
                        // The first is answered at once: a node that starts should know soon whether its clock is right.
                        if is_first && let Ok(hello) = events.hello() {
                            outbox.ping(pulse.beat(hello.epoch));
                        }
                        if let Some(epoch) = ping.epoch {
                            events.told(peer, epoch_from_proto(&epoch));
                        }
                    }
                    if !message.report.is_empty() {
                        events.reported(peer, message.report);
                    }
                    outbox.opened(message.operations.len());
                    for operation in message.operations {
                        events.operation(peer, operation, &replies);
                    }
                }
                Ok(None) => return outbox.end(),
                Err(_) => return outbox.close(),
            },
            _ = pings.tick() => {
                if let Ok(hello) = events.hello() {
                    outbox.ping(pulse.beat(hello.epoch));
                }
            }
            // An error says that the node is gone.
            _ = stop.wait_for(|stop| *stop) => return outbox.end(),
        }
    }
}

/// What a peer asks next. One that does not take its replies is not read from either.
async fn next_message(
    messages: &mut Streaming<v1::PeerMessage>,
    outbox: &Outbox,
) -> Result<Option<v1::PeerMessage>, Status> {
    outbox.room().await;
    messages.message().await
}

/// Whether two nodes can talk: one cluster, a common protocol, two different nodes.
pub(super) fn check_hello(theirs: &v1::Hello, ours: &v1::Hello) -> Result<(), String> {
    if theirs.cluster_id != ours.cluster_id {
        return Err(format!("node {} belongs to another cluster", theirs.node_id));
    }
    if theirs.protocol_min > PROTOCOL_MAX || theirs.protocol_max < PROTOCOL_MIN {
        return Err(format!(
            "node {} speaks protocol {} to {}, this node {PROTOCOL_MIN} to {PROTOCOL_MAX}; upgrade the older one",
            theirs.node_id, theirs.protocol_min, theirs.protocol_max
        ));
    }
    if theirs.node_id == ours.node_id {
        return Err(format!("the other side also says it is node {}", ours.node_id));
    }
    Ok(())
}
