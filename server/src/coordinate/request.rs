//! A request of a client while it is under way: where its answer goes, what it holds, and what is noted when it ends.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use trefoil::model::{Instant, ReadCost};
use trefoil_proto::v1;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op as Operation;

use super::Lane;
use super::admission::Permit;
use super::pipe::AnswerQueue;
use crate::clock;
use crate::metrics;
use crate::peers::ReplyQueue;

/// Bytes of the name that a request has in logs.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// Requests that take longer are logged.
const SLOW_US: u64 = 500_000;

/// What a request does, for metrics and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A mutation of one partition.
    Mutate,
    /// A batch.
    Batch,
    /// One page.
    Read,
    /// Additions to counters.
    Increment,
}

impl Kind {
    /// That of an operation.
    pub fn of(operation: &Operation) -> Kind {
        match operation {
            Operation::Mutate(_) => Kind::Mutate,
            Operation::Batch(_) => Kind::Batch,
            Operation::Read(_) => Kind::Read,
            Operation::Increment(_) => Kind::Increment,
        }
    }

    /// The word in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mutate => "mutate",
            Kind::Batch => "batch",
            Kind::Read => "read",
            Kind::Increment => "increment",
        }
    }
}

/// Where an answer goes.
pub enum Reply {
    /// To a unary call.
    Unary(oneshot::Sender<Answer>),
    /// To a Pipe, under the id its client chose.
    Pipe(Arc<AnswerQueue>, u64),
    /// To the node that handed the request on.
    Peer(ReplyQueue, u64),
    /// To its place in a batch.
    Part(Arc<Batch>, usize),
}

/// A request under way.
pub struct Request {
    reply: Reply,
    kind: Kind,
    started: Instant,
    request_id: Bytes,
    /// What its reads have cost so far.
    pub cost: ReadCost,
    /// Not answered later than this.
    pub deadline: Instant,
    /// Held until the answer; parts of a batch share the batch's.
    _permit: Option<Permit>,
}

impl Request {
    /// A request that has been admitted.
    pub fn new(kind: Kind, reply: Reply, deadline: Instant, request_id: Bytes, permit: Option<Permit>) -> Request {
        let (started, cost) = (clock::now(), ReadCost::default());
        Request { reply, kind, started, request_id, cost, deadline, _permit: permit }
    }

    /// Whether half of its time is gone.
    pub fn is_half_spent(&self) -> bool {
        let now = clock::now();
        now.since_us(self.started) > self.deadline.since_us(now)
    }

    /// Sends the answer.
    pub fn finish(self, answer: Answer) {
        let elapsed_us = clock::now().since_us(self.started);
        let code = match &answer {
            Answer::Error(error) => error.status_code(),
            _ => tonic::Code::Ok,
        };
        if !matches!(self.reply, Reply::Part(..)) {
            metrics::request(self.kind, code, elapsed_us);
        }
        if self.kind == Kind::Read {
            metrics::read_cost(&self.cost);
        }
        if elapsed_us > SLOW_US {
            self.log_slow(elapsed_us, code, &answer);
        }
        self.reply.send(answer);
    }

    fn log_slow(&self, elapsed_us: u64, code: tonic::Code, answer: &Answer) {
        let warnings = match answer {
            Answer::Write(write) => write.warnings.join("; "),
            Answer::Batch(batch) => batch.warnings.join("; "),
            Answer::Page(page) => page.warnings.join("; "),
            Answer::Error(error) => error.message.clone(),
        };
        let ReadCost { sstables_read, blocks_cached, blocks_read, bytes_read, rows, tombstones, .. } = self.cost;
        tracing::warn!(
            kind = self.kind.name(),
            request_id = %self.request_id.escape_ascii(),
            elapsed_ms = elapsed_us / 1_000,
            outcome = ?code,
            sstables = sstables_read,
            blocks = blocks_cached + blocks_read,
            blocks_read,
            bytes_read,
            rows,
            tombstones,
            warnings,
            "slow operation"
        );
    }

    /// Answers with an error.
    pub fn fail(self, error: v1::Error) {
        self.finish(Answer::Error(error));
    }
}

impl Lane {
    /// Admits a request of `size` bytes, or answers that it is not taken.
    pub(super) fn admit(
        &self,
        kind: Kind,
        size: usize,
        options: Option<v1::Options>,
        deadline: Instant,
        reply: Reply,
    ) -> Option<(Request, v1::Options)> {
        let options = options.unwrap_or_default();
        let length = options.request_id.len();
        let permit = match length <= REQUEST_ID_BYTES_MAX {
            true => self.shared.admission.admit(size),
            false => {
                let reason = format!("request_id has {length} bytes, at most {REQUEST_ID_BYTES_MAX} are possible");
                Err(v1::Error::invalid(v1::InvalidDetail::new(reason)))
            }
        };
        match permit {
            Ok(permit) => {
                Some((Request::new(kind, reply, deadline, options.request_id.clone(), Some(permit)), options))
            }
            Err(error) => {
                Request::new(kind, reply, deadline, Bytes::new(), None).fail(error);
                None
            }
        }
    }
}

impl Reply {
    /// Sends the answer; nobody may be left to take it.
    pub fn send(self, answer: Answer) {
        match self {
            Reply::Unary(sender) => drop(sender.send(answer)),
            Reply::Pipe(queue, id) => queue.push(v1::PipeAnswer { id, result: Some(answer) }),
            Reply::Peer(queue, id) => queue.send(v1::PeerReply {
                id,
                result: Some(v1::peer_reply::Result::Answer(v1::PipeAnswer { id: 0, result: Some(answer) })),
            }),
            Reply::Part(batch, part) => batch.part_done(part, answer),
        }
    }
}

/// A batch whose parts, one per partition, are under way by themselves.
pub struct Batch {
    state: Mutex<BatchState>,
}

struct BatchState {
    request: Option<Request>,
    /// For each mutation of the request, its part.
    parts: Vec<usize>,
    results: Vec<Option<v1::batch_item::Result>>,
    /// Of the batch as a whole.
    warnings: Vec<String>,
    open: usize,
}

impl Batch {
    /// A batch of mutations that belong to these parts.
    pub fn new(request: Request, parts: Vec<usize>, warnings: Vec<String>) -> Arc<Batch> {
        let count = parts.iter().max().map_or(0, |last| last + 1);
        let results = (0..count).map(|_| None).collect();
        let state = BatchState { request: Some(request), parts, results, warnings, open: count };
        Arc::new(Batch { state: Mutex::new(state) })
    }

    fn part_done(&self, part: usize, answer: Answer) {
        let mut state = self.state.lock();
        state.results[part] = Some(match answer {
            Answer::Write(write) => v1::batch_item::Result::Write(write),
            Answer::Error(error) => v1::batch_item::Result::Error(error),
            Answer::Batch(_) | Answer::Page(_) => {
                let text = "a part of a batch was answered with something else";
                v1::batch_item::Result::Error(v1::Error::new(tonic::Code::Internal, text, v1::Outcome::Unknown))
            }
        });
        state.open -= 1;
        if state.open > 0 {
            return;
        }
        let item = |part: &usize| v1::BatchItem { result: state.results[*part].clone() };
        let items = state.parts.iter().map(item).collect();
        let warnings = std::mem::take(&mut state.warnings);
        if let Some(request) = state.request.take() {
            drop(state);
            request.finish(Answer::Batch(v1::BatchResult { items, warnings }));
        }
    }
}
