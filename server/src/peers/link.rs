//! The stream from one lane of this node to one other node, kept up for as long as the other is a member.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tonic::Streaming;
use tonic::transport::Channel;
use trefoil::coordinator::FailureReason;
use trefoil::model::NodeId;
use trefoil_proto::v1;
use trefoil_proto::v1::peer_client::PeerClient as Stub;

use super::queue::{Outbox, Outgoing, Refused};
use super::{Peers, epoch_from_proto, rpc, serve};

/// Time from the call to the other side's hello.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits between attempts to connect, doubling from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A link on which nothing came for so long is given up.
const SILENCE_MAX: Duration = Duration::from_micros(trefoil::liveness::SILENCE_MAX_US);

/// How often each side says that it is there.
pub(super) const PING_INTERVAL: Duration = Duration::from_millis(500);

/// One lane's way to one peer.
pub struct Link {
    /// The peer.
    pub node: NodeId,
    address: String,
    outbox: Mutex<Option<Arc<Outbox>>>,
}

/// What a lane does with what comes over a link.
pub trait LinkEvents: Send + Sync + 'static {
    /// Replies of the peer.
    fn replies(&self, peer: NodeId, replies: Vec<v1::PeerReply>);

    /// The link broke: the outcome of everything under way on it is unknown.
    fn lost(&self, peer: NodeId);

    /// This node as it greets others now.
    fn hello(&self) -> v1::Hello;
}

impl Link {
    /// A link that is not connected yet.
    pub fn new(node: NodeId, address: String) -> Link {
        Link { node, address, outbox: Mutex::new(None) }
    }

    /// Queues an operation for the peer.
    pub fn send(&self, operation: v1::PeerOperation) -> Result<(), FailureReason> {
        let outbox = self.outbox.lock();
        let outbox = outbox.as_ref().ok_or(FailureReason::Disconnected)?;
        outbox.operation(operation).map_err(|refused| match refused {
            Refused::Full => FailureReason::Overloaded,
            Refused::TooLarge => FailureReason::Malformed,
            Refused::Closed => FailureReason::Disconnected,
        })
    }

    /// What is queued is not sent any more: nobody waits for it.
    fn close(&self) {
        if let Some(outbox) = self.outbox.lock().take() {
            outbox.close();
        }
    }

    /// Says that this node is there, and its epoch.
    pub fn ping(&self, ping: v1::Ping) {
        if let Some(outbox) = &*self.outbox.lock() {
            outbox.ping(ping);
        }
    }
}

/// Keeps `link` connected until the task is dropped.
pub async fn run_link(link: Arc<Link>, peers: Arc<Peers>, events: Arc<dyn LinkEvents>) {
    let mut backoff = BACKOFF.0;
    loop {
        match connect(&link, &peers, events.as_ref()).await {
            Ok(replies) => {
                backoff = BACKOFF.0;
                tracing::info!(peer = link.node.0, "linked");
                let reason = receive(&link, &peers, events.as_ref(), replies).await;
                tracing::warn!(peer = link.node.0, reason, "link lost");
                link.close();
                peers.disconnected(link.node);
                events.lost(link.node);
            }
            Err(reason) => tracing::debug!(peer = link.node.0, reason, "no link"),
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF.1);
    }
}

async fn connect(link: &Link, peers: &Peers, events: &dyn LinkEvents) -> Result<Streaming<v1::PeerMessage>, String> {
    let channel: Channel = rpc::endpoint(&link.address)?.connect().await.map_err(|error| chain(&error))?;
    let outbox = Arc::new(Outbox::default());
    let hello = v1::PeerMessage { hello: Some(events.hello()), ..v1::PeerMessage::default() };
    let outgoing = Outgoing::new(hello, outbox.clone());
    let greeted = timeout(HANDSHAKE_TIMEOUT, async {
        let mut stub = rpc::stub(Stub::new(channel));
        let mut replies = stub.link(outgoing).await?.into_inner();
        let first = replies.message().await?;
        Ok::<_, tonic::Status>((replies, first))
    });
    let (replies, first) = match greeted.await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(status)) => return Err(status.message().to_owned()),
        Err(_) => return Err("no greeting came back".to_owned()),
    };
    let hello = first.and_then(|message| message.hello).ok_or("its first message is no greeting")?;
    serve::check_hello(&hello, &events.hello())?;
    if hello.node_id != link.node.0 {
        return Err(format!("{} is node {}, not {}", link.address, hello.node_id, link.node.0));
    }
    *link.outbox.lock() = Some(outbox);
    peers.connected(link.node);
    if let Some(epoch) = hello.epoch {
        peers.told(link.node, epoch_from_proto(&epoch));
    }
    Ok(replies)
}

/// Hands on what comes until the stream ends, and says why it did.
async fn receive(
    link: &Link,
    peers: &Peers,
    events: &dyn LinkEvents,
    mut replies: Streaming<v1::PeerMessage>,
) -> String {
    let (mut next_ping, mut heard) = (Instant::now(), Instant::now());
    loop {
        if Instant::now() >= next_ping {
            link.ping(serve::ping(&events.hello()));
            next_ping = Instant::now() + PING_INTERVAL;
        }
        match tokio::time::timeout_at(next_ping, replies.message()).await {
            Ok(Ok(Some(message))) => {
                heard = Instant::now();
                peers.heard(link.node);
                if let Some(epoch) = message.ping.and_then(|ping| ping.epoch) {
                    peers.told(link.node, epoch_from_proto(&epoch));
                }
                if !message.replies.is_empty() {
                    events.replies(link.node, message.replies);
                }
            }
            Ok(Ok(None)) => return "the peer ended it".to_owned(),
            Ok(Err(status)) => return status.message().to_owned(),
            // The peer's other links may be well: this one is judged by itself.
            Err(_) if heard.elapsed() > SILENCE_MAX => return format!("nothing came for {SILENCE_MAX:?}"),
            Err(_) => {}
        }
    }
}

/// An error with its causes, since tonic's own text is "transport error".
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
