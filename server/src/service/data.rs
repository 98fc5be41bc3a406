//! The service `Data`: every call becomes operations of the lane.
//!
//! **Invariant:** a caller that goes away takes nothing with it but the place for its answer: what was begun is the
//! lane's (B073).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::sync::oneshot;
use tonic::{Code, Request, Response, Status, Streaming};
use trefoil::model::Instant;
use trefoil_proto::v1;
use trefoil_proto::v1::data_server::Data;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op as Operation;

use super::deadline;
use crate::clock;
use crate::coordinate::{AnswerQueue, Answers, Lane, Reply};

/// The service, for the connections of one lane.
pub(super) struct DataService {
    lane: Arc<Lane>,
}

impl DataService {
    pub(super) fn new(lane: Arc<Lane>) -> DataService {
        DataService { lane }
    }
}

#[tonic::async_trait]
impl Data for DataService {
    type PipeStream = Answers;
    type ReadStreamStream = Pin<Box<dyn Stream<Item = Result<v1::ReadPage, Status>> + Send>>;

    async fn pipe(&self, request: Request<Streaming<v1::PipeRequest>>) -> Result<Response<Answers>, Status> {
        let answers = Arc::new(AnswerQueue::default());
        tokio::spawn(take_in(self.lane.clone(), request.into_inner(), answers.clone()));
        Ok(Response::new(Answers(answers)))
    }

    async fn read(&self, request: Request<v1::ReadRequest>) -> Result<Response<v1::ReadPage>, Status> {
        let timeout = deadline::timeout(request.metadata());
        page(&self.lane, request.into_inner(), timeout).await.map(Response::new)
    }

    async fn read_stream(&self, request: Request<v1::ReadRequest>) -> Result<Response<Self::ReadStreamStream>, Status> {
        let deadline = deadline::timeout(request.metadata()).map(clock::after);
        let pages = Pages { lane: self.lane.clone(), request: Some(request.into_inner()), deadline };
        Ok(Response::new(Box::pin(stream::unfold(pages, Pages::next))))
    }

    async fn mutate(&self, request: Request<v1::MutateRequest>) -> Result<Response<v1::WriteResult>, Status> {
        let timeout = deadline::timeout(request.metadata());
        match ask(&self.lane, Operation::Mutate(request.into_inner()), timeout).await? {
            Answer::Write(result) => Ok(Response::new(result)),
            _ => Err(mixed_up()),
        }
    }

    async fn increment_counters(
        &self,
        request: Request<v1::IncrementRequest>,
    ) -> Result<Response<v1::WriteResult>, Status> {
        let timeout = deadline::timeout(request.metadata());
        match ask(&self.lane, Operation::Increment(request.into_inner()), timeout).await? {
            Answer::Write(result) => Ok(Response::new(result)),
            _ => Err(mixed_up()),
        }
    }

    async fn batch(&self, request: Request<v1::BatchRequest>) -> Result<Response<v1::BatchResult>, Status> {
        let timeout = deadline::timeout(request.metadata());
        match ask(&self.lane, Operation::Batch(request.into_inner()), timeout).await? {
            Answer::Batch(result) => Ok(Response::new(result)),
            _ => Err(mixed_up()),
        }
    }
}

/// Begins what comes over a Pipe, until the client has no more or is gone. A client that does not take its answers is
/// not read from either.
async fn take_in(lane: Arc<Lane>, mut requests: Streaming<v1::PipeRequest>, answers: Arc<AnswerQueue>) {
    while let Ok(Some(request)) = requests.message().await {
        for v1::PipeOperation { id, timeout_ms, op } in request.operations {
            answers.open().await;
            let reply = Reply::Pipe(answers.clone(), id);
            let timeout = (timeout_ms > 0).then(|| Duration::from_millis(u64::from(timeout_ms)));
            match op {
                Some(operation) => lane.begin(operation, timeout, reply),
                None => {
                    let invalid = v1::InvalidDetail::new("the operation is empty or of a later release");
                    reply.send(Answer::Error(v1::Error::invalid(invalid)));
                }
            }
        }
    }
    answers.end();
}

/// One operation and its answer; errors as the status of the call.
async fn ask(lane: &Arc<Lane>, operation: Operation, timeout: Option<Duration>) -> Result<Answer, Status> {
    let (sender, receiver) = oneshot::channel();
    lane.begin(operation, timeout, Reply::Unary(sender));
    match receiver.await {
        Ok(Answer::Error(error)) => Err(error.into_status()),
        Ok(answer) => Ok(answer),
        // Every operation is answered, unless the node itself ends.
        Err(_) => Err(v1::Error::new(Code::Unavailable, "the node is stopping", v1::Outcome::Unknown).into_status()),
    }
}

async fn page(lane: &Arc<Lane>, request: v1::ReadRequest, timeout: Option<Duration>) -> Result<v1::ReadPage, Status> {
    match ask(lane, Operation::Read(request), timeout).await? {
        Answer::Page(page) => Ok(page),
        _ => Err(mixed_up()),
    }
}

fn mixed_up() -> Status {
    let text = "the request was answered with something else";
    v1::Error::new(Code::Internal, text, v1::Outcome::Unknown).into_status()
}

/// A read as a stream: the next page is read when the one before has been taken.
struct Pages {
    lane: Arc<Lane>,
    /// Of the next page; `None` after the last.
    request: Option<v1::ReadRequest>,
    /// Of all pages together; without one each page has the node's default.
    deadline: Option<Instant>,
}

impl Pages {
    async fn next(mut self) -> Option<(Result<v1::ReadPage, Status>, Pages)> {
        let request = self.request.take()?;
        let left = self.deadline.map(|deadline| Duration::from_micros(deadline.since_us(clock::now())));
        let page = page(&self.lane, request.clone(), left).await;
        if let Ok(page) = &page
            && !page.paging_state.is_empty()
        {
            self.request = Some(v1::ReadRequest { paging_state: page.paging_state.clone(), ..request });
        }
        Some((page, self))
    }
}
