//! Many operations in flight on one stream.
//!
//! ```text
//! call ─► slot, queue ─► Outgoing (the request stream drains the queue each time it is polled) ─► node
//! call ◄─ slot ◄──────── answers(): finds the slot by id ◄────────────────────────────────────── node
//! ```
//!
//! An id is a slot and the generation of its use: an answer that comes after its caller has gone meets another generation
//! and is dropped. No task and no map lookup per operation; its deadline is one timer of the runtime.
//!
//! **Invariant:** an operation is either in the queue (not sent, nothing can have happened), or sent (the outcome is
//! unknown until the answer). When a stream ends, every waiting caller is told which.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::Stream;
use parking_lot::Mutex;
use prost::Message;
use slab::Slab;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use trefoil_proto::v1::pipe_answer;
use trefoil_proto::v1::{PipeAnswer, PipeOperation, PipeRequest, pipe_operation};

use crate::retry::Failure;

/// Operations in one message, at most.
const MESSAGE_OPERATIONS_MAX: usize = 128;

/// Once a message holds so many bytes no further operation is added. One operation may be larger.
const MESSAGE_BYTES_FULL: usize = 64 << 10;

/// The answer of one operation, or how it failed.
pub(crate) type Answer = Result<pipe_answer::Result, Failure>;

/// One stream's operations. Shared by callers, the request stream and the reader of answers.
#[derive(Debug)]
pub(crate) struct Pipe {
    state: Mutex<State>,
    permits: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    slots: Slab<Slot>,
    /// Ids of operations with themselves, not sent yet. Those whose caller has gone are skipped.
    queue: VecDeque<PipeOperation>,
    /// Counts uses of slots.
    generation: u32,
    /// The request stream, if it waits for something to send.
    sender: Option<Waker>,
    closed: bool,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    progress: Progress,
    caller: oneshot::Sender<Answer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Queued,
    Sent,
}

impl Pipe {
    /// A pipe that holds at most `in_flight_max` operations; more callers wait their turn.
    pub(crate) fn new(in_flight_max: usize) -> Arc<Pipe> {
        Arc::new(Pipe { state: Mutex::default(), permits: Semaphore::new(in_flight_max) })
    }

    /// The stream of requests, to be given to the call. There is one per pipe.
    pub(crate) fn outgoing(self: &Arc<Self>) -> Outgoing {
        Outgoing(self.clone())
    }

    /// Sends an operation and waits for its answer, until `deadline`.
    pub(crate) async fn call(&self, op: pipe_operation::Op, deadline: Instant) -> Answer {
        // Nearly always there is one, and then no timer is needed for it.
        let _permit = match self.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => match timeout_at(deadline, self.permits.acquire()).await {
                Ok(Ok(permit)) => permit,
                _ => return Err(Failure::NotSent("too many operations in flight to the node".to_owned())),
            },
        };
        let Some((mut ticket, mut answer)) = self.enqueue(op, deadline) else {
            return Err(Failure::NotSent("the connection has ended".to_owned()));
        };
        match timeout_at(deadline, &mut answer).await {
            Ok(Ok(answer)) => {
                ticket.done = true;
                answer
            }
            // The pipe was dropped with its slots: the connection is gone.
            Ok(Err(_)) => Err(Failure::Lost),
            Err(_) => match ticket.give_up() {
                Some(Progress::Queued) => Err(Failure::NotSent("the connection takes no more".to_owned())),
                _ => answer.try_recv().unwrap_or(Err(Failure::NoAnswer)),
            },
        }
    }

    fn enqueue(&self, op: pipe_operation::Op, deadline: Instant) -> Option<(Ticket<'_>, oneshot::Receiver<Answer>)> {
        let (caller, answer) = oneshot::channel();
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        state.generation = state.generation.wrapping_add(1);
        let generation = state.generation;
        let slot = state.slots.insert(Slot { generation, progress: Progress::Queued, caller });
        let id = u64::from(generation) << 32 | slot as u64;
        let timeout_ms = server_timeout_ms(deadline.saturating_duration_since(Instant::now()));
        state.queue.push_back(PipeOperation { id, timeout_ms, op: Some(op) });
        let sender = state.sender.take();
        drop(state);
        if let Some(sender) = sender {
            sender.wake();
        }
        Some((Ticket { pipe: self, id, done: false }, answer))
    }

    /// Gives answers to their callers.
    pub(crate) fn answer(&self, answers: Vec<PipeAnswer>) {
        for PipeAnswer { id, result } in answers {
            let Some(slot) = self.state.lock().take(id) else { continue };
            let answer = match result {
                Some(pipe_answer::Result::Error(error)) => Err(Failure::Refused(error)),
                Some(result) => Ok(result),
                None => Err(Failure::NoAnswer),
            };
            // A caller that has just gone does not want its answer.
            let _ = slot.caller.send(answer);
        }
    }

    /// The stream has ended: nothing more can be sent, and nothing more will be answered.
    pub(crate) fn close(&self, reason: &str) {
        let mut state = self.state.lock();
        state.closed = true;
        state.queue.clear();
        let slots = std::mem::take(&mut state.slots);
        let sender = state.sender.take();
        drop(state);
        for (_, slot) in slots {
            let failure = match slot.progress {
                Progress::Queued => Failure::NotSent(reason.to_owned()),
                Progress::Sent => Failure::Lost,
            };
            let _ = slot.caller.send(Err(failure));
        }
        if let Some(sender) = sender {
            sender.wake();
        }
    }
}

impl State {
    /// Ends the use of a slot, if the id is that of its present use.
    fn take(&mut self, id: u64) -> Option<Slot> {
        let at = (id & u64::from(u32::MAX)) as usize;
        let current = self.slots.get(at).is_some_and(|slot| u64::from(slot.generation) == id >> 32);
        current.then(|| self.slots.remove(at))
    }

    /// Marks an operation as sent; `false` if its caller has gone.
    fn mark_sent(&mut self, id: u64) -> bool {
        let at = (id & u64::from(u32::MAX)) as usize;
        match self.slots.get_mut(at) {
            Some(slot) if u64::from(slot.generation) == id >> 32 => {
                slot.progress = Progress::Sent;
                true
            }
            _ => false,
        }
    }

    fn next_message(&mut self) -> Option<PipeRequest> {
        let mut operations = Vec::with_capacity(self.queue.len().min(MESSAGE_OPERATIONS_MAX));
        let mut bytes = 0;
        while operations.len() < MESSAGE_OPERATIONS_MAX && bytes < MESSAGE_BYTES_FULL {
            let Some(next) = self.queue.front() else { break };
            let size = next.encoded_len();
            if bytes > 0 && bytes + size > MESSAGE_BYTES_FULL {
                break;
            }
            let Some(operation) = self.queue.pop_front() else { break };
            if self.mark_sent(operation.id) {
                bytes += size;
                operations.push(operation);
            }
        }
        (!operations.is_empty()).then_some(PipeRequest { operations })
    }
}

/// What the node is told: a little less than the caller waits, so that the node's own answer, which knows more, comes first.
fn server_timeout_ms(wait: Duration) -> u32 {
    let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
    (wait_ms - (wait_ms / 10).min(100)).max(1)
}

/// A caller's place; dropping it before the answer frees the slot.
struct Ticket<'a> {
    pipe: &'a Pipe,
    id: u64,
    done: bool,
}

impl Ticket<'_> {
    /// Frees the slot; how far the operation had come, unless it was answered in the meantime.
    fn give_up(&mut self) -> Option<Progress> {
        self.done = true;
        self.pipe.state.lock().take(self.id).map(|slot| slot.progress)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.give_up();
        }
    }
}

/// The stream of requests: whatever is queued when it is polled.
#[derive(Debug)]
pub(crate) struct Outgoing(Arc<Pipe>);

impl Stream for Outgoing {
    type Item = PipeRequest;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<PipeRequest>> {
        let mut state = self.0.state.lock();
        if let Some(message) = state.next_message() {
            return Poll::Ready(Some(message));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        state.sender = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
