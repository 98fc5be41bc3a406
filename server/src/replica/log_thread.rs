//! The one thread that writes the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use trefoil::Error;
use trefoil::commitlog::Position;
use trefoil::coordinator::FailureReason;
use trefoil::model::{Durability, Instant};
use trefoil::store::Store;

use super::background::Background;
use super::{Arrivals, Completions, Outbox, Outcome, Refusal, WriteJob, arrivals, refusal};
use crate::clock;

/// Longest time that records of `periodic` tables wait for their fsync. The documented bound is 10 s; this leaves room.
const PERIODIC_SYNC: Duration = Duration::from_secs(5);

/// How long to wait for a flush before looking at deadlines again.
const BUSY_WAIT: Duration = Duration::from_millis(20);

/// After the disk was found full writes are refused for so long before it is tried again: a try may fill what room there
/// is, and take it away again.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Bytes of records that may wait for the log thread: what it writes in some tenths of a second. While it waits for a
/// flush, the writes of all coordinators gather here, and those that were given up are only dropped when it goes on.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Room for so many records is kept from one group to the next.
const KEPT_RECORDS_MAX: usize = 4_096;

/// Records that wait for the log thread.
#[derive(Default)]
pub(super) struct LogQueue {
    state: Mutex<State>,
    ready: Arc<Condvar>,
    len: AtomicUsize,
}

#[derive(Default)]
struct State {
    jobs: Vec<WriteJob>,
    bytes: usize,
    closed: bool,
}

enum Wake {
    Jobs,
    Idle,
    Closed,
}

impl LogQueue {
    pub(super) fn push(&self, job: WriteJob) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        if state.closed {
            return Err((FailureReason::Storage, "the node is stopping".to_owned()));
        }
        if state.bytes >= QUEUE_BYTES_MAX {
            return Err((FailureReason::Overloaded, format!("{} records wait for the log", state.jobs.len())));
        }
        state.bytes += job.record.bytes().len();
        state.jobs.push(job);
        self.len.store(state.jobs.len(), Ordering::Relaxed);
        if state.jobs.len() == 1 {
            self.wake_behind_this_turn();
        }
        Ok(())
    }

    /// Wakes the log thread once the runtime is done with what it is at. Waking it at the first record of a message would
    /// let it write a handful at a time while the others of the message are still on their way into the queue.
    fn wake_behind_this_turn(&self) {
        match Handle::try_current() {
            Ok(runtime) => {
                let ready = self.ready.clone();
                runtime.spawn(async move { ready.notify_one() });
            }
            Err(_) => {
                self.ready.notify_one();
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.ready.notify_one();
    }

    /// Everything that is queued, into `jobs`, which is empty and whose room the queue takes over; waits at most `patience`
    /// for the first.
    fn take(&self, patience: Duration, jobs: &mut Vec<WriteJob>) -> Wake {
        let mut state = self.state.lock();
        if state.jobs.is_empty() && !state.closed {
            self.ready.wait_for(&mut state, patience);
        }
        self.len.store(0, Ordering::Relaxed);
        state.bytes = 0;
        match (state.jobs.is_empty(), state.closed) {
            (false, _) => {
                std::mem::swap(&mut state.jobs, jobs);
                Wake::Jobs
            }
            (true, true) => Wake::Closed,
            (true, false) => Wake::Idle,
        }
    }
}

pub(super) fn start(
    queue: Arc<LogQueue>,
    store: Arc<Store>,
    flushing: Arc<Background>,
    lanes: Vec<Completions>,
    arrivals: Arc<dyn Arrivals>,
) -> std::io::Result<JoinHandle<()>> {
    let mut log = LogThread {
        store,
        flushing,
        outbox: Outbox::new(lanes),
        arrivals,
        ends: Vec::new(),
        unsynced_since: None,
        full: None,
    };
    std::thread::Builder::new().name("log".to_owned()).spawn(move || log.run(&queue))
}

struct LogThread {
    store: Arc<Store>,
    flushing: Arc<Background>,
    outbox: Outbox,
    arrivals: Arc<dyn Arrivals>,
    /// Where the records of the present group end in the log.
    ends: Vec<Position>,
    /// When the oldest record was written that no fsync covers yet.
    unsynced_since: Option<Instant>,
    /// That the disk is full, and until when nothing is tried.
    full: Option<(Instant, Error)>,
}

impl LogThread {
    fn run(&mut self, queue: &LogQueue) {
        let mut jobs = Vec::new();
        loop {
            match queue.take(Duration::from_millis(500), &mut jobs) {
                Wake::Jobs => self.write(&mut jobs),
                Wake::Idle => {}
                Wake::Closed => break,
            }
            self.sync_periodic();
        }
        if self.unsynced_since.is_some()
            && let Err(error) = self.store.sync()
        {
            tracing::error!(%error, "the last sync of the commit log failed");
        }
    }

    /// One group: append, sync if any of its tables wants that before the acknowledgement, insert, acknowledge.
    ///
    /// Records are inserted strictly in log order, across tables too: what is flushed is known by position. So a
    /// `periodic` record that shares its group with a `commit` one waits for the sync as well.
    fn write(&mut self, jobs: &mut Vec<WriteJob>) {
        let mut logged = self.append(jobs);
        if logged.is_ok() && !jobs.is_empty() {
            if jobs.iter().any(|job| job.durability == Durability::Commit) {
                logged = self.store.sync().map(|_| self.unsynced_since = None);
            } else {
                self.unsynced_since.get_or_insert_with(clock::now);
            }
        }
        match logged {
            Ok(()) => self.insert(jobs),
            Err(error) => self.refuse(jobs, &error),
        }
        self.outbox.send();
        jobs.clear();
        jobs.shrink_to(KEPT_RECORDS_MAX);
        if self.store.wants_flush() {
            self.flushing.wake();
        }
    }

    /// Appends what has not expired. While memtables are over their budget it waits for a flush: writers slow down, and
    /// what meanwhile passes its deadline is dropped. Where flushes fail nothing is waited for.
    fn append(&mut self, jobs: &mut Vec<WriteJob>) -> Result<(), Error> {
        loop {
            self.drop_expired(jobs);
            if let Some((until, error)) = &self.full
                && clock::now() < *until
            {
                return Err(error.clone());
            }
            arrivals::take_out(jobs, &self.store, &*self.arrivals, &mut self.outbox);
            self.ends.clear();
            let appended = match jobs.is_empty() {
                true => Ok(()),
                false => self.store.append(&jobs[..], &mut self.ends),
            };
            self.full = appended.as_ref().err().filter(|error| error.is_disk_full()).map(full_for_a_while);
            if !matches!(appended, Err(Error::Busy { .. })) {
                return appended;
            }
            self.store.cancel_append();
            if let Some(failure) = self.flushing.failure() {
                return Err(failure);
            }
            self.outbox.send();
            self.flushing.wake_and_wait(BUSY_WAIT);
        }
    }

    fn drop_expired(&mut self, jobs: &mut Vec<WriteJob>) {
        let now = clock::now();
        for job in jobs.extract_if(.., |job| job.deadline < now) {
            let text = "the deadline passed before the write was begun".to_owned();
            self.outbox.push(job.ticket, Outcome::Failed(FailureReason::Expired, text));
        }
    }

    fn insert(&mut self, jobs: &[WriteJob]) {
        for (job, end) in jobs.iter().zip(&self.ends) {
            let outcome = match self.store.insert(&job.record, *end) {
                Ok(()) => Outcome::Written,
                Err(error) => {
                    let (reason, text) = refusal(&error);
                    Outcome::Failed(reason, text)
                }
            };
            self.outbox.push(job.ticket, outcome);
        }
    }

    fn refuse(&mut self, jobs: &[WriteJob], error: &Error) {
        let (reason, text) = refusal(error);
        for job in jobs {
            self.outbox.push(job.ticket, Outcome::Failed(reason, text.clone()));
        }
    }

    fn sync_periodic(&mut self) {
        let due =
            self.unsynced_since.is_some_and(|since| clock::now().since_us(since) >= PERIODIC_SYNC.as_micros() as u64);
        if due {
            self.unsynced_since = None;
            if let Err(error) = self.store.sync() {
                tracing::error!(%error, "the commit log could not be synced");
            }
        }
    }
}

fn full_for_a_while(error: &Error) -> (Instant, Error) {
    (clock::after(FULL_PAUSE), error.clone())
}

#[cfg(test)]
mod tests;
