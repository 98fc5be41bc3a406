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

/// Reads that wait for a thread, and threads that wait for reads.
///
/// The thread that went idle last is woken first: each thread holds on to memory for the largest read it has done, so a
/// node with little to read should do it on one.
#[derive(Default)]
pub(super) struct ReaderQueue {
    state: Mutex<State>,
    ready: [Condvar; READERS],
}

#[derive(Default)]
struct State {
    jobs: VecDeque<ReadJob>,
    /// Threads by number; the one that went idle last is last.
    idle: Vec<usize>,
    closed: bool,
}

impl ReaderQueue {
    pub(super) fn push(&self, job: ReadJob) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        if state.jobs.len() >= WAITING_MAX {
            return Err((FailureReason::Overloaded, format!("{WAITING_MAX} reads wait for the disk")));
        }
        state.jobs.push_back(job);
        if let Some(reader) = state.idle.pop() {
            self.ready[reader].notify_one();
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().jobs.len()
    }

    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        for ready in &self.ready {
            ready.notify_one();
        }
    }

    /// The next job for a thread; `None` once the queue is closed and empty.
    fn take(&self, reader: usize) -> Option<ReadJob> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state.idle.push(reader);
            self.ready[reader].wait(&mut state);
            // Woken for a job this is done already; else another thread may have come first, or nothing is the matter.
            state.idle.retain(|other| *other != reader);
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
                while let Some(job) = queue.take(number) {
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
