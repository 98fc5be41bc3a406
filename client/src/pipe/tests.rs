//! Framing, slots and the fate of operations, without a network: the test plays the node.

#![allow(clippy::unwrap_used, reason = "tests")]

use futures_util::StreamExt;
use futures_util::future::{join_all, poll_immediate};
use trefoil_proto::v1::{Error, MutateRequest, Mutation, RowWrite, WriteResult, change};

use super::*;

fn op(bytes: usize) -> pipe_operation::Op {
    let cells = vec![trefoil_proto::v1::CellWrite { column: "x".repeat(bytes), op: None }];
    let write = change::Op::Update(RowWrite { clustering: vec![], cells });
    let change = trefoil_proto::v1::Change { op: Some(write), ..Default::default() };
    let mutation = Mutation { changes: vec![change], ..Default::default() };
    pipe_operation::Op::Mutate(MutateRequest { options: None, mutation: Some(mutation) })
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn written(id: u64, stamp: i64) -> PipeAnswer {
    PipeAnswer { id, result: Some(pipe_answer::Result::Write(WriteResult { stamp, ..WriteResult::default() })) }
}

#[tokio::test]
async fn what_is_queued_goes_into_one_message_and_answers_find_their_callers() {
    let pipe = Pipe::new(1_000);
    let mut outgoing = pipe.outgoing();
    let node = async {
        // Wakes once all callers have queued their operations.
        tokio::task::yield_now().await;
        let mut answers = Vec::new();
        let mut messages = Vec::new();
        while answers.len() < 300 {
            let message = outgoing.next().await.unwrap();
            messages.push(message.operations.len());
            answers.extend(message.operations.iter().map(|operation| written(operation.id, operation.id as i64)));
        }
        answers.reverse();
        pipe.answer(answers);
        messages
    };
    let callers = join_all((0..300).map(|_| pipe.call(op(1), soon())));
    let (messages, answers) = tokio::join!(node, callers);
    let sizes = [MESSAGE_OPERATIONS_MAX, MESSAGE_OPERATIONS_MAX, 300 - 2 * MESSAGE_OPERATIONS_MAX];
    assert!(messages == sizes || messages.iter().sum::<usize>() == 300, "{messages:?}");
    let mut stamps: Vec<_> = answers
        .into_iter()
        .map(|answer| match answer {
            Ok(pipe_answer::Result::Write(write)) => write.stamp,
            other => panic!("{other:?}"),
        })
        .collect();
    stamps.dedup();
    assert_eq!(stamps.len(), 300);
    assert!(pipe.state.lock().slots.is_empty());
}

#[tokio::test]
async fn a_message_is_full_at_a_number_of_bytes_but_one_operation_may_be_larger() {
    let pipe = Pipe::new(10);
    let mut outgoing = pipe.outgoing();
    let calls: Vec<_> = [100, MESSAGE_BYTES_FULL * 3, 40_000, 20_000, 20_000]
        .map(|size| Box::pin(pipe.call(op(size), soon())))
        .into_iter()
        .map(|mut call| {
            assert!(futures_util::FutureExt::now_or_never(&mut call).is_none());
            call
        })
        .collect();
    let mut sizes = Vec::new();
    while let Some(message) = poll_immediate(outgoing.next()).await.flatten() {
        sizes.push(message.operations.len());
    }
    assert_eq!(sizes, [1, 1, 2, 1]);
    drop(calls);
}

#[tokio::test]
async fn an_error_is_told_as_what_it_is() {
    let pipe = Pipe::new(10);
    let mut outgoing = pipe.outgoing();
    let node = async {
        let message = outgoing.next().await.unwrap();
        let error = Error { code: 8, ..Default::default() };
        pipe.answer(vec![PipeAnswer { id: message.operations[0].id, result: Some(pipe_answer::Result::Error(error)) }]);
    };
    let (_, answer) = tokio::join!(node, pipe.call(op(1), soon()));
    assert!(matches!(answer, Err(Failure::Refused(error)) if error.code == 8));
}

/// When a stream ends every caller is told whether its operation can have had an effect.
#[tokio::test]
async fn when_the_stream_ends_sent_operations_are_lost_and_queued_ones_are_not_sent() {
    let pipe = Pipe::new(10);
    let mut outgoing = pipe.outgoing();
    let node = async {
        let sent = outgoing.next().await.unwrap().operations.len();
        assert_eq!(sent, 1);
        tokio::task::yield_now().await;
        let late = pipe.call(op(2), soon());
        let end = async {
            tokio::task::yield_now().await;
            pipe.close("gone");
        };
        tokio::join!(late, end).0
    };
    let (late, early) = tokio::join!(node, pipe.call(op(1), soon()));
    assert_eq!(early, Err(Failure::Lost));
    assert_eq!(late, Err(Failure::NotSent("gone".to_owned())));
    assert!(matches!(pipe.call(op(3), soon()).await, Err(Failure::NotSent(_))));
    assert_eq!(outgoing.next().await, None);
}

#[tokio::test]
async fn a_caller_that_goes_frees_its_slot_and_its_late_answer_is_dropped() {
    let pipe = Pipe::new(10);
    let mut outgoing = pipe.outgoing();
    let gone = async {
        let mut call = Box::pin(pipe.call(op(1), soon()));
        assert!(poll_immediate(&mut call).await.is_none());
        let id = outgoing.next().await.unwrap().operations[0].id;
        drop(call);
        id
    }
    .await;
    let mut call = Box::pin(pipe.call(op(2), soon()));
    assert!(poll_immediate(&mut call).await.is_none());
    let id = outgoing.next().await.unwrap().operations[0].id;
    assert_eq!((id as u32, id >> 32 == gone >> 32), (gone as u32, false), "the slot is used again");
    pipe.answer(vec![written(gone, 1)]);
    assert!(poll_immediate(&mut call).await.is_none(), "the late answer is not taken for this one's");
    pipe.answer(vec![written(id, 2), written(id, 3), written(u64::MAX, 4)]);
    assert_eq!(call.await, Ok(pipe_answer::Result::Write(WriteResult { stamp: 2, ..WriteResult::default() })));
}

#[tokio::test(start_paused = true)]
async fn in_time_or_not_at_all() {
    let pipe = Pipe::new(1);
    let mut outgoing = pipe.outgoing();
    let deadline = Instant::now() + Duration::from_secs(1);
    assert!(matches!(pipe.call(op(1), deadline).await, Err(Failure::NotSent(_))), "nobody polled the stream");
    assert!(poll_immediate(outgoing.next()).await.is_none(), "what its caller gave up is not sent");
    let deadline = Instant::now() + Duration::from_secs(1);
    let (sent, refused, message) =
        tokio::join!(pipe.call(op(1), deadline), pipe.call(op(2), deadline), outgoing.next());
    assert_eq!(sent, Err(Failure::NoAnswer));
    assert!(matches!(refused, Err(Failure::NotSent(_))), "one at a time: the second never had its turn");
    assert_eq!(message.unwrap().operations[0].timeout_ms, 900);
}
