//! Queues that become streams: whatever is queued goes into one message when the stream can take more.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::Stream;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Notify;
use trefoil_proto::MESSAGE_BYTES_MAX;
use trefoil_proto::v1::{PeerFailure, PeerFailureKind, PeerMessage, PeerOperation, PeerReply, Ping, peer_reply};

/// Most operations or replies in one message.
const BATCH_ITEMS: usize = 128;

/// Bytes after which a message takes no more items.
const BATCH_BYTES: usize = 64 << 10;

/// Bytes of operations that may wait for one peer before more are refused, and of replies before no more of its
/// operations are taken in.
const QUEUE_BYTES_MAX: usize = 32 << 20;

/// The largest operation or reply: with what else is in its message it must not exceed what a message may have, since
/// that would end the stream with everything under way on it.
pub const ITEM_BYTES_MAX: usize = MESSAGE_BYTES_MAX - BATCH_BYTES - (1 << 10);

/// What waits to be sent on one stream. Both kinds of streams between nodes use it; each fills only its own parts.
#[derive(Default)]
pub struct Outbox {
    state: Mutex<State>,
    drained: Notify,
}

#[derive(Default)]
struct State {
    operations: Queue<PeerOperation>,
    replies: Queue<PeerReply>,
    ping: Option<Ping>,
    /// The latest counts: each one says what those before did that were not taken in.
    report: Option<Bytes>,
    /// Operations that were taken in and are not replied to yet.
    open: usize,
    waker: Option<Waker>,
    /// No more operations are taken in: the stream ends with the last reply.
    ended: bool,
    closed: bool,
}

/// Things that wait, with the size of each and of all.
struct Queue<T> {
    items: VecDeque<(usize, T)>,
    bytes: usize,
}

/// Why an operation was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Too many bytes wait for this peer.
    Full,
    /// It does not fit in a message.
    TooLarge,
    /// The stream is gone.
    Closed,
}

impl Outbox {
    /// Queues an operation.
    pub fn operation(&self, operation: PeerOperation) -> Result<(), Refused> {
        let size = operation.encoded_len();
        let mut state = self.state.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        if size > ITEM_BYTES_MAX {
            return Err(Refused::TooLarge);
        }
        if state.operations.bytes + size > QUEUE_BYTES_MAX {
            return Err(Refused::Full);
        }
        state.operations.push(size, operation);
        state.wake();
        Ok(())
    }

    /// Operations were taken in, each of which will be replied to.
    pub(super) fn opened(&self, operations: usize) {
        self.state.lock().open += operations;
    }

    /// Queues a reply. Replies are not refused: they answer what was taken in.
    fn reply(&self, reply: PeerReply) {
        let mut state = self.state.lock();
        state.open = state.open.saturating_sub(1);
        if !state.closed {
            let (size, reply) = fitting(reply);
            state.replies.push(size, reply);
            state.wake();
        }
    }

    /// Waits until the peer has taken enough of its replies, or is gone.
    pub(super) async fn room(&self) {
        while self.state.lock().replies.bytes >= QUEUE_BYTES_MAX {
            // A message that was taken since then has left a permit.
            self.drained.notified().await;
        }
    }

    /// Sends a report with the next message; whether the stream is still there. One that fits in no message is not sent.
    pub fn report(&self, report: Bytes) -> bool {
        let mut state = self.state.lock();
        if state.closed || report.len() > ITEM_BYTES_MAX {
            return false;
        }
        state.report = Some(report);
        state.wake();
        true
    }

    /// Sends a ping with the next message.
    pub fn ping(&self, ping: Ping) {
        let mut state = self.state.lock();
        if !state.closed {
            state.ping = Some(ping);
            state.wake();
        }
    }

    /// No more operations are taken in: the stream ends with the reply to the last one.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.wake();
    }

    /// Ends the stream; what is queued is dropped.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.wake();
        *state = State { closed: true, ..State::default() };
        drop(state);
        self.drained.notify_one();
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn next_message(&mut self) -> Option<PeerMessage> {
        let is_empty = self.operations.items.is_empty() && self.replies.items.is_empty();
        if is_empty && self.ping.is_none() && self.report.is_none() {
            return None;
        }
        // A large one goes alone.
        if self.report.as_ref().is_some_and(|report| report.len() > BATCH_BYTES) {
            let report = self.report.take().unwrap_or_default();
            return Some(PeerMessage { report, ..PeerMessage::default() });
        }
        Some(PeerMessage {
            hello: None,
            operations: self.operations.take_batch(),
            replies: self.replies.take_batch(),
            ping: self.ping.take(),
            report: self.report.take().unwrap_or_default(),
        })
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { items: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Queue<T> {
    fn push(&mut self, size: usize, item: T) {
        self.bytes += size;
        self.items.push_back((size, item));
    }

    fn take_batch(&mut self) -> Vec<T> {
        let (mut batch, mut bytes) = (Vec::with_capacity(self.items.len().min(BATCH_ITEMS)), 0);
        while batch.len() < BATCH_ITEMS
            && bytes < BATCH_BYTES
            && let Some((size, item)) = self.items.pop_front()
        {
            bytes += size;
            batch.push(item);
        }
        self.bytes -= bytes;
        batch
    }
}

/// A reply with its size; one that fits in no message becomes the failure that says so.
fn fitting(reply: PeerReply) -> (usize, PeerReply) {
    let size = reply.encoded_len();
    if size <= ITEM_BYTES_MAX {
        return (size, reply);
    }
    let message = format!("the reply takes {size} bytes, at most {ITEM_BYTES_MAX} fit in a message");
    let failure = PeerFailure { kind: PeerFailureKind::TooLarge.into(), message };
    let reply = PeerReply { id: reply.id, result: Some(peer_reply::Result::Failure(failure)) };
    (reply.encoded_len(), reply)
}

/// An [`Outbox`] as the stream that drains it, beginning with a hello.
pub struct Outgoing {
    first: Option<PeerMessage>,
    outbox: Arc<Outbox>,
}

impl Outgoing {
    /// A stream whose first message is `first`.
    pub fn new(first: PeerMessage, outbox: Arc<Outbox>) -> Outgoing {
        Outgoing { first: Some(first), outbox }
    }

    fn poll_message(&mut self, context: &Context<'_>) -> Poll<Option<PeerMessage>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        let mut state = self.outbox.state.lock();
        if let Some(message) = state.next_message() {
            self.outbox.drained.notify_one();
            return Poll::Ready(Some(message));
        }
        if state.closed || (state.ended && state.open == 0) {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// For the asking side.
impl Stream for Outgoing {
    type Item = PeerMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<PeerMessage>> {
        self.poll_message(context)
    }
}

/// What drains an outbox, as the answering side's stream, which may not fail.
pub struct OutgoingReplies(Outgoing);

impl Stream for OutgoingReplies {
    type Item = Result<PeerMessage, tonic::Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_message(context).map(|message| message.map(Ok))
    }
}

impl Drop for OutgoingReplies {
    fn drop(&mut self) {
        self.0.outbox.close();
    }
}

/// Where the replies to one peer's operations go.
#[derive(Clone)]
pub struct ReplyQueue(pub(super) Arc<Outbox>);

impl ReplyQueue {
    /// A queue and the stream that drains it, beginning with `first`.
    pub fn open(first: PeerMessage) -> (ReplyQueue, OutgoingReplies) {
        let outbox = Arc::new(Outbox::default());
        (ReplyQueue(outbox.clone()), OutgoingReplies(Outgoing::new(first, outbox)))
    }

    /// Sends a reply with whatever else is ready; dropped if the stream is gone.
    pub fn send(&self, reply: PeerReply) {
        self.0.reply(reply);
    }
}

#[cfg(test)]
mod tests;
