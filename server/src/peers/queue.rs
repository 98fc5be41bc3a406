//! Queues that become streams: whatever is queued goes into one message when the stream can take more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use parking_lot::Mutex;
use prost::Message;
use trefoil_proto::v1::{PeerMessage, PeerOperation, PeerReply, Ping};

/// Most operations or replies in one message.
const BATCH_ITEMS: usize = 128;

/// Bytes after which a message takes no more items.
const BATCH_BYTES: usize = 64 << 10;

/// Bytes that may wait for one peer; more are refused.
const QUEUE_BYTES_MAX: usize = 32 << 20;

/// What waits to be sent on one stream. Both kinds of streams between nodes use it; each fills only its own parts.
#[derive(Default)]
pub struct Outbox {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    operations: Vec<PeerOperation>,
    replies: Vec<PeerReply>,
    ping: Option<Ping>,
    bytes: usize,
    waker: Option<Waker>,
    closed: bool,
}

/// The queue is full, or its stream is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Too many bytes wait for this peer.
    Full,
    /// The stream is gone.
    Closed,
}

impl Outbox {
    /// Queues an operation.
    pub fn operation(&self, operation: PeerOperation) -> Result<(), Refused> {
        let bytes = operation.encoded_len();
        let mut state = self.state.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        if state.bytes + bytes > QUEUE_BYTES_MAX {
            return Err(Refused::Full);
        }
        state.bytes += bytes;
        state.operations.push(operation);
        state.wake();
        Ok(())
    }

    /// Queues a reply. Replies are not refused: they answer what was admitted.
    fn reply(&self, reply: PeerReply) {
        let mut state = self.state.lock();
        if !state.closed {
            state.bytes += reply.encoded_len();
            state.replies.push(reply);
            state.wake();
        }
    }

    /// Sends a ping with the next message.
    pub fn ping(&self, ping: Ping) {
        let mut state = self.state.lock();
        if !state.closed {
            state.ping = Some(ping);
            state.wake();
        }
    }

    /// Ends the stream; what is queued is dropped.
    pub fn close(&self) {
        let mut state = self.state.lock();
        let waker = state.waker.take();
        *state = State { closed: true, ..State::default() };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn next_message(&mut self) -> Option<PeerMessage> {
        if self.operations.is_empty() && self.replies.is_empty() && self.ping.is_none() {
            return None;
        }
        let message = PeerMessage {
            hello: None,
            operations: take_batch(&mut self.operations, |operation| operation.encoded_len()),
            replies: take_batch(&mut self.replies, |reply| reply.encoded_len()),
            ping: self.ping.take(),
        };
        let waiting = self.operations.iter().map(Message::encoded_len).sum::<usize>();
        self.bytes = waiting + self.replies.iter().map(Message::encoded_len).sum::<usize>();
        Some(message)
    }
}

fn take_batch<T>(queue: &mut Vec<T>, size: impl Fn(&T) -> usize) -> Vec<T> {
    let mut bytes = 0;
    let fits = queue.iter().take(BATCH_ITEMS).take_while(|item| {
        let fits = bytes == 0 || bytes < BATCH_BYTES;
        bytes += size(item);
        fits
    });
    let count = fits.count();
    if count == queue.len() {
        return std::mem::take(queue);
    }
    queue.drain(..count).collect()
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
            return Poll::Ready(Some(message));
        }
        if state.closed {
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

/// An [`Outgoing`] as the answering side's stream, which may not fail.
pub struct OutgoingReplies(pub Outgoing);

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
    /// Sends a reply with whatever else is ready; dropped if the stream is gone.
    pub fn send(&self, reply: PeerReply) {
        self.0.reply(reply);
    }
}
