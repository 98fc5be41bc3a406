//! Threads for reads that need the disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use trefoil::coordinator::FailureReason;
use trefoil::model::{Instant, ReadCommand};
use trefoil::store::{Access, Store};

use super::{Completions, Outbox, Outcome, Refusal, Ticket, refusal};
use crate::clock;

/// Reads that may wait for the disk at the same time.
const READERS: usize = 4;

/// A read that found a block missing.
pub(super) struct ReadJob {
    pub(super) command: Arc<ReadCommand>,
    pub(super) deadline: Instant,
    pub(super) ticket: Ticket,
}

/// Reads that may wait for a thread. More would wait longer than their callers do, and hold memory meanwhile.
const WAITING_MAX: usize = 4_096;

/// Reads that wait for a thread.
#[derive(Default)]
pub(super) struct ReaderQueue {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<ReadJob>,
    closed: bool,
}

impl ReaderQueue {
    pub(super) fn push(&self, job: ReadJob) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        if state.jobs.len() >= WAITING_MAX {
            return Err((FailureReason::Overloaded, format!("{WAITING_MAX} reads wait for the disk")));
        }
        state.jobs.push_back(job);
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().jobs.len()
    }

    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.ready.notify_all();
    }

    /// The next job; `None` once the queue is closed and empty.
    fn take(&self) -> Option<ReadJob> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            self.ready.wait(&mut state);
        }
    }
}

pub(super) fn start(
    queue: &Arc<ReaderQueue>,
    store: &Arc<Store>,
    lanes: &[Completions],
) -> std::io::Result<Vec<JoinHandle<()>>> {
    (0..READERS)
        .map(|number| {
            let (queue, store, mut outbox) = (queue.clone(), store.clone(), Outbox::new(lanes.to_vec()));
            std::thread::Builder::new().name(format!("reader-{number}")).spawn(move || {
                while let Some(job) = queue.take() {
                    outbox.push(job.ticket, read(&store, &job));
                    outbox.send();
                }
            })
        })
        .collect()
}

fn read(store: &Store, job: &ReadJob) -> Outcome {
    if job.deadline < clock::now() {
        return Outcome::Failed(FailureReason::Expired, "the deadline passed before the read was begun".to_owned());
    }
    match store.read_with_cost(&job.command, Access::Disk) {
        Ok((page, cost)) => Outcome::Read(page, cost),
        Err(error) => {
            let (reason, text) = refusal(&error);
            Outcome::Failed(reason, text)
        }
    }
}
