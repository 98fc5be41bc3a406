//! The stream from one lane of this node to one other node, kept up for as long as the other is a member.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tonic::Streaming;
use tonic::transport::Channel;
use trefoil::coordinator::FailureReason;
use trefoil::liveness::LinkId;
use trefoil::model::NodeId;
use trefoil_proto::v1;
use trefoil_proto::v1::peer_client::PeerClient as Stub;

use super::pulse::Pulse;
use super::queue::{Outbox, Outgoing, Refused};
use super::{Peers, epoch_from_proto, rpc, serve};

/// Time from the call to the other side's hello.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits between attempts to connect, doubling from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How often each side says that it is there.
pub(super) const PING_INTERVAL: Duration = Duration::from_micros(trefoil::liveness::HEARTBEAT_US);

/// How often a link is looked at on which nothing comes.
const LOOK: Duration = Duration::from_millis(100);

/// One lane's way to one peer.
pub struct Link {
    /// The peer.
    pub node: NodeId,
    address: String,
    open: Mutex<Option<Open>>,
    /// Operations that were sent on the present connection and not replied to.
    in_flight: AtomicI64,
}

/// The present connection.
struct Open {
    outbox: Arc<Outbox>,
    pulse: Arc<Pulse>,
}

/// A connection that was made, as it is received from.
struct Receiving {
    id: LinkId,
    pulse: Arc<Pulse>,
    replies: Streaming<v1::PeerMessage>,
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
        Link { node, address, open: Mutex::new(None), in_flight: AtomicI64::new(0) }
    }

    /// Queues an operation for the peer.
    pub fn send(&self, operation: v1::PeerOperation) -> Result<(), FailureReason> {
        let open = self.open.lock();
        let open = open.as_ref().ok_or(FailureReason::Disconnected)?;
        open.outbox.operation(operation).map_err(|refused| match refused {
            Refused::Full => FailureReason::Overloaded,
            Refused::TooLarge => FailureReason::Malformed,
            Refused::Closed => FailureReason::Disconnected,
        })?;
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Operations that were sent and not replied to.
    pub fn in_flight(&self) -> u64 {
        u64::try_from(self.in_flight.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// What is queued is not sent any more: nobody waits for it.
    fn close(&self) {
        if let Some(open) = self.open.lock().take() {
            open.outbox.close();
        }
        self.in_flight.store(0, Ordering::Relaxed);
    }

    /// Sends a report with the next message, in the place of one that still waits; whether there is a connection.
    pub fn report(&self, report: Bytes) -> bool {
        self.open.lock().as_ref().is_some_and(|open| open.outbox.report(report))
    }

    /// Says that this node is there, and its epoch.
    pub fn ping(&self, epoch: Option<v1::Epoch>) {
        if let Some(open) = &*self.open.lock() {
            open.outbox.ping(open.pulse.beat(epoch));
        }
    }
}

/// Keeps `link` connected until the task is dropped.
pub async fn run_link(link: Arc<Link>, peers: Arc<Peers>, events: Arc<dyn LinkEvents>) {
    let mut backoff = BACKOFF.0;
    loop {
        match connect(&link, &peers, events.as_ref()).await {
            Ok(receiving) => {
                backoff = BACKOFF.0;
                tracing::info!(peer = link.node.0, "linked");
                let id = receiving.id;
                let reason = receive(&link, &peers, events.as_ref(), receiving).await;
                tracing::warn!(peer = link.node.0, reason, "link lost");
                link.close();
                peers.disconnected(link.node, id, reason);
                events.lost(link.node);
            }
            Err(reason) => {
                tracing::debug!(peer = link.node.0, reason, "no link");
                peers.refused(link.node, reason);
            }
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF.1);
    }
}

async fn connect(link: &Link, peers: &Peers, events: &dyn LinkEvents) -> Result<Receiving, String> {
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
    let pulse = Arc::new(Pulse::new());
    *link.open.lock() = Some(Open { outbox, pulse: pulse.clone() });
    let id = peers.connected(link.node);
    if let Some(epoch) = hello.epoch {
        peers.told(link.node, epoch_from_proto(&epoch));
    }
    Ok(Receiving { id, pulse, replies })
}

/// Hands on what comes until the stream ends, and says why it did.
async fn receive(
    link: &Link,
    peers: &Peers,
    events: &dyn LinkEvents,
    Receiving { id, pulse, mut replies }: Receiving,
) -> String {
    let mut next_ping = Instant::now();
    loop {
        let now = Instant::now();
        if now >= next_ping {
            link.ping(events.hello().epoch);
            next_ping = now + PING_INTERVAL;
        }
        match tokio::time::timeout_at(next_ping.min(now + LOOK), replies.message()).await {
            Ok(Ok(Some(message))) => {
                peers.heard(link.node, id);
                if let Some(ping) = message.ping {
                    peers.heartbeat(link.node, id, pulse.heard(&ping));
                    if let Some(epoch) = ping.epoch {
                        peers.told(link.node, epoch_from_proto(&epoch));
                    }
                    // The peer's other links may be well: this one is judged by itself.
                    if let Some(fault) = peers.fault(link.node, id) {
                        return fault;
                    }
                }
                if !message.replies.is_empty() {
                    link.in_flight.fetch_sub(message.replies.len() as i64, Ordering::Relaxed);
                    events.replies(link.node, message.replies);
                }
            }
            Ok(Ok(None)) => return "the peer ended it".to_owned(),
            Ok(Err(status)) => return status.message().to_owned(),
            Err(_) => {
                if let Some(fault) = peers.fault(link.node, id) {
                    return fault;
                }
            }
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
