//! The answers of one Pipe: whatever is ready goes into one message.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Notify;
use tonic::Status;
use trefoil_proto::v1::{PipeAnswer, PipeResponse};

/// Most answers in one message.
const BATCH_ANSWERS: usize = 128;

/// Bytes after which a message takes no more answers.
const BATCH_BYTES: usize = 256 << 10;

/// Bytes of answers that wait for a client before nothing more is taken from it.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// Answers that wait to be sent.
#[derive(Default)]
pub struct AnswerQueue {
    state: Mutex<State>,
    drained: Notify,
}

#[derive(Default)]
struct State {
    /// With the size of each.
    answers: VecDeque<(usize, PipeAnswer)>,
    /// The size of all.
    bytes: usize,
    /// Operations that were taken in and are not answered yet.
    open: usize,
    /// The client will send no more.
    ended: bool,
    gone: bool,
    waker: Option<Waker>,
}

impl AnswerQueue {
    /// An operation was taken in.
    pub fn opened(&self) {
        self.state.lock().open += 1;
    }

    /// Sends an answer with whatever else is ready.
    pub fn push(&self, answer: PipeAnswer) {
        let mut state = self.state.lock();
        state.open = state.open.saturating_sub(1);
        if !state.gone {
            let size = answer.encoded_len();
            state.bytes += size;
            state.answers.push_back((size, answer));
            wake(&mut state);
        }
    }

    /// Waits until the client has taken enough of its answers, or is gone.
    pub async fn room(&self) {
        while self.is_full() {
            // A message that was taken since `is_full` has left a permit.
            self.drained.notified().await;
        }
    }

    fn is_full(&self) -> bool {
        let state = self.state.lock();
        !state.gone && state.bytes >= WAITING_BYTES_MAX
    }

    /// The client will send no more: the stream ends with the last answer.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        wake(&mut state);
    }
}

fn wake(state: &mut State) {
    if let Some(waker) = state.waker.take() {
        waker.wake();
    }
}

/// The queue as the stream that drains it.
pub struct Answers(pub Arc<AnswerQueue>);

impl Stream for Answers {
    type Item = Result<PipeResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.0.state.lock();
        let (mut answers, mut bytes) = (Vec::new(), 0);
        while answers.len() < BATCH_ANSWERS
            && bytes < BATCH_BYTES
            && let Some((size, answer)) = state.answers.pop_front()
        {
            bytes += size;
            answers.push(answer);
        }
        if !answers.is_empty() {
            state.bytes -= bytes;
            self.0.drained.notify_one();
            return Poll::Ready(Some(Ok(PipeResponse { answers })));
        }
        if state.ended && state.open == 0 {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.gone = true;
        state.answers.clear();
        state.bytes = 0;
        self.0.drained.notify_one();
    }
}
