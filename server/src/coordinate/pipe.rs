//! The answers of one Pipe: whatever is ready goes into one message.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Notify;
use tonic::{Code, Status};
use trefoil_proto::MESSAGE_BYTES_MAX;
use trefoil_proto::v1::{Error, Outcome, PipeAnswer, PipeResponse, pipe_answer};

/// Most answers in one message.
const BATCH_ANSWERS: usize = 128;

/// Bytes after which a message takes no more answers.
const BATCH_BYTES: usize = 256 << 10;

/// The largest answer: with what else is in its message it must not exceed what a message may have.
const ANSWER_BYTES_MAX: usize = MESSAGE_BYTES_MAX - BATCH_BYTES - (1 << 10);

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
    /// Takes in one operation, once the client has taken enough of its answers or is gone.
    pub async fn open(&self) {
        while !self.try_open() {
            // A message that was taken since then has left a permit.
            self.drained.notified().await;
        }
    }

    fn try_open(&self) -> bool {
        let mut state = self.state.lock();
        let has_room = state.gone || state.bytes < WAITING_BYTES_MAX;
        state.open += usize::from(has_room);
        has_room
    }

    /// Sends an answer with whatever else is ready.
    pub fn push(&self, answer: PipeAnswer) {
        let mut state = self.state.lock();
        state.open = state.open.saturating_sub(1);
        if !state.gone {
            let (size, answer) = fitting(answer);
            state.bytes += size;
            state.answers.push_back((size, answer));
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

/// An answer with its size; one that fits in no message becomes the error that says so, since it would end the stream.
fn fitting(answer: PipeAnswer) -> (usize, PipeAnswer) {
    let size = answer.encoded_len();
    if size <= ANSWER_BYTES_MAX {
        return (size, answer);
    }
    let text =
        format!("the answer takes {size} bytes, at most {ANSWER_BYTES_MAX} fit in a message; ask for less at once");
    let error = Error::new(Code::OutOfRange, text, Outcome::NotApplied);
    let answer = PipeAnswer { id: answer.id, result: Some(pipe_answer::Result::Error(error)) };
    (answer.encoded_len(), answer)
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use futures_util::{FutureExt, StreamExt};
    use trefoil_proto::v1::{ReadPage, WriteResult};

    use super::*;

    fn page(id: u64, bytes: usize) -> PipeAnswer {
        let page = ReadPage { paging_state: vec![0; bytes].into(), ..ReadPage::default() };
        PipeAnswer { id, result: Some(pipe_answer::Result::Page(page)) }
    }

    /// Many small reads of large pages fit in one request: the answers must not gather faster than they are taken.
    #[test]
    fn a_client_that_takes_no_answers_is_not_served_on() {
        let queue = Arc::new(AnswerQueue::default());
        let mut answers = Answers(queue.clone());
        let served = (0..1_000).take_while(|id| {
            let is_open = queue.open().now_or_never().is_some();
            if is_open {
                queue.push(page(*id, 1 << 20));
            }
            is_open
        });
        assert_eq!(served.count(), WAITING_BYTES_MAX >> 20);
        assert!(answers.next().now_or_never().is_some());
        assert!(queue.open().now_or_never().is_some());
    }

    #[test]
    fn a_stream_ends_with_the_last_answer_and_none_is_too_large_for_it() {
        let queue = Arc::new(AnswerQueue::default());
        let mut answers = Answers(queue.clone());
        queue.open().now_or_never().unwrap();
        queue.open().now_or_never().unwrap();
        queue.end();
        queue.push(page(1, MESSAGE_BYTES_MAX));
        let message = answers.next().now_or_never().unwrap().unwrap().unwrap();
        assert!(matches!(message.answers[0].result, Some(pipe_answer::Result::Error(_))));
        assert!(answers.next().now_or_never().is_none(), "one answer is due");
        queue.push(PipeAnswer { id: 2, result: Some(pipe_answer::Result::Write(WriteResult::default())) });
        assert!(answers.next().now_or_never().unwrap().is_some());
        assert!(answers.next().now_or_never().unwrap().is_none());
    }
}
