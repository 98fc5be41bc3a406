//! The answers of one Pipe: whatever is ready goes into one message.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use parking_lot::Mutex;
use prost::Message;
use tonic::Status;
use trefoil_proto::v1::{PipeAnswer, PipeResponse};

/// Most answers in one message.
const BATCH_ANSWERS: usize = 128;

/// Bytes after which a message takes no more answers.
const BATCH_BYTES: usize = 256 << 10;

/// Answers that wait to be sent.
#[derive(Default)]
pub struct AnswerQueue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answers: Vec<PipeAnswer>,
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
            state.answers.push(answer);
            wake(&mut state);
        }
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
        if !state.answers.is_empty() {
            let mut bytes = 0;
            let fits = state.answers.iter().take(BATCH_ANSWERS).take_while(|answer| {
                let fits = bytes < BATCH_BYTES;
                bytes += answer.encoded_len();
                fits
            });
            let count = fits.count();
            let rest = state.answers.split_off(count);
            let answers = std::mem::replace(&mut state.answers, rest);
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
    }
}
