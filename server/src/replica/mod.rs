//! What a node does as a replica: the threads around its [`Store`].
//!
//! ```text
//!   any runtime ──submit──► log queue ──► log thread: append ─ sync ─ insert ──► completions, one message per runtime
//!   any runtime ──read────► from memory, at once │ a block is missing: a reader thread ──► completion
//!                                                └ a thread each: flush, compact, tidy up, scrub
//! ```
//!
//! One thread writes the log. While its fsync runs, the next group gathers in the queue: no timer, no lingering (group
//! commit). Acknowledgements leave in the groups they were synced in, so that they batch on the streams too.
//!
//! **Invariant:** a record is inserted, hence visible, and acknowledged only once it is as durable as its table's mode
//! says; records of one table are inserted in log order.

mod arrivals;
mod background;
mod compaction;
mod log_thread;
mod readers;
mod scrub;

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use trefoil::codec::CheckedRecord;
use trefoil::coordinator::FailureReason;
use trefoil::model::{Durability, Instant, Page, ReadCommand, ReadCost, TableId};
use trefoil::store::{Access, ScrubStatus, Store};
use trefoil::{Class, Error};

pub use arrivals::{Arrivals, Judgement, NOT_WHOLE, TOO_LATE, judge};
use background::Background;
pub use compaction::CompactionSettings;
use compaction::Pool;
use log_thread::LogQueue;
use readers::ReaderQueue;
pub use scrub::ScrubSettings;
use scrub::Scrubber;

/// The largest record: what nodes can send each other. It is below half of the smallest log segment, beyond which the log
/// would refuse the whole group that the record is in.
const RECORD_BYTES_MAX: usize = trefoil_proto::MESSAGE_BYTES_MAX;

/// Whom to tell: the lane and the operation that asked. Means nothing to the replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The lane (runtime) that asked.
    pub lane: usize,
    /// Its own number for what it asked.
    pub id: u64,
}

/// What became of a write or a read that could not be answered at once.
#[derive(Debug)]
pub struct Completion {
    /// The asker's own number.
    pub id: u64,
    /// How it went.
    pub outcome: Outcome,
}

/// How it went.
#[derive(Debug)]
pub enum Outcome {
    /// The write is durable and visible.
    Written,
    /// The page that was read, and what that has cost.
    Read(Page, ReadCost),
    /// Why not.
    Failed(FailureReason, String),
}

/// A write to be logged.
pub struct WriteJob {
    /// The record, as it is logged.
    pub record: CheckedRecord,
    /// The mode of its table.
    pub durability: Durability,
    /// Not begun after this.
    pub deadline: Instant,
    /// Whom to tell.
    pub ticket: Ticket,
}

impl AsRef<CheckedRecord> for WriteJob {
    fn as_ref(&self) -> &CheckedRecord {
        &self.record
    }
}

/// Why the replica does not do something, as a coordinator is told, and for people.
pub type Refusal = (FailureReason, String);

/// Where completions of one lane go: each message holds all that became ready together.
pub type Completions = mpsc::UnboundedSender<Vec<Completion>>;

/// The replica of a node.
pub struct Replica {
    store: Arc<Store>,
    arrivals: Arc<dyn Arrivals>,
    log: Arc<LogQueue>,
    readers: Arc<ReaderQueue>,
    flushing: Arc<Background>,
    compacting: Arc<Pool>,
    tending: Arc<Background>,
    scrubbing: Arc<Scrubber>,
    threads: Mutex<Threads>,
}

/// In the order in which they end.
#[derive(Default)]
struct Threads {
    /// They end once what is queued for them is done.
    working: Vec<JoinHandle<()>>,
    /// The log thread may be waiting for room that only the flushing one makes: that one ends after it.
    background: Vec<JoinHandle<()>>,
}

impl Replica {
    /// Starts the threads around `store`. `lanes[i]` is where completions for lane i go; `arrivals` knows what is promised.
    pub fn start(
        store: Arc<Store>,
        lanes: Vec<Completions>,
        compaction: CompactionSettings,
        scrub: ScrubSettings,
        arrivals: Arc<dyn Arrivals>,
    ) -> std::io::Result<Replica> {
        let log = Arc::new(LogQueue::default());
        let readers = Arc::new(ReaderQueue::default());
        let [flushing, tending] = std::array::from_fn(|_| Arc::new(Background::default()));
        let compacting = Pool::new(compaction, store.clone());
        let scrubbing = Scrubber::new(scrub, store.clone());
        let mut working =
            vec![log_thread::start(log.clone(), store.clone(), flushing.clone(), lanes.clone(), arrivals.clone())?];
        working.extend(readers::start(&readers, &store, &lanes)?);
        let mut background = vec![
            background::start("flush", flushing.clone(), store.clone(), background::flush)?,
            background::start("upkeep", tending.clone(), store.clone(), background::tend)?,
        ];
        background.extend(compacting.start()?);
        background.extend(scrubbing.start()?);
        let threads = Threads { working, background };
        let threads = Mutex::new(threads);
        Ok(Replica { store, arrivals, log, readers, flushing, compacting, tending, scrubbing, threads })
    }

    /// The data.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Queues a write; its [`Completion`] comes to the ticket's lane, unless it is refused at once. Never blocks.
    pub fn submit(&self, job: WriteJob) -> Result<(), Refusal> {
        let size = job.record.bytes().len();
        if size > RECORD_BYTES_MAX {
            let text = format!("the record takes {size} bytes, at most {RECORD_BYTES_MAX} are possible");
            return Err((FailureReason::Malformed, text));
        }
        self.log.push(job)
    }

    /// Reads from memory at once, or queues the read for a reader thread (`None`): then its completion comes later.
    pub fn read(
        &self,
        command: &Arc<ReadCommand>,
        deadline: Instant,
        ticket: Ticket,
    ) -> Option<Result<(Page, ReadCost), Refusal>> {
        if self.arrivals.withholds(command) {
            // Whoever needs just this replica asks again until it is whole.
            return Some(Err((FailureReason::Stale, NOT_WHOLE.to_owned())));
        }
        match self.store.read_with_cost(command, Access::CachedOnly) {
            Ok(answer) => Some(Ok(answer)),
            Err(Error::NotCached) => {
                let job = readers::ReadJob { command: command.clone(), deadline, ticket };
                self.readers.push(job).err().map(Err)
            }
            Err(error) => Some(Err(refusal(&error))),
        }
    }

    /// Writes memtables to files. Blocks: for threads that may.
    pub fn flush(&self, table: Option<TableId>) -> Result<(), Error> {
        self.store.flush(table)
    }

    /// The set of tables has changed: the data of those that are gone is to follow.
    pub fn tables_changed(&self) {
        if self.store.has_leaving() {
            self.tending.wake();
        }
    }

    /// Begins to make as few files of a table as there can be; its progress is in the store's status.
    pub fn compact(&self, table: TableId) {
        self.compacting.request(table);
    }

    /// Why files cannot be written at present, if they cannot: a full disk, a failing one. Healed without a restart.
    pub fn storage_failure(&self) -> Option<Error> {
        self.flushing.failure()
    }

    /// How far the reading of files that nobody asks for has come.
    pub fn scrub_status(&self) -> ScrubStatus {
        self.scrubbing.status()
    }

    /// Records that wait for the log.
    pub fn queued_writes(&self) -> usize {
        self.log.len()
    }

    /// Reads that wait for a thread that may go to the disk.
    pub fn queued_reads(&self) -> usize {
        self.readers.len()
    }

    /// Stops the threads after what was queued, and flushes everything. Blocks. Queued work is finished, not dropped.
    pub fn stop(&self) -> Result<(), Error> {
        let threads = std::mem::take(&mut *self.threads.lock());
        self.log.close();
        self.readers.close();
        self.compacting.close();
        self.tending.close();
        self.scrubbing.close();
        threads.working.into_iter().for_each(join);
        self.flushing.close();
        threads.background.into_iter().for_each(join);
        self.store.flush(None)?;
        self.store.close()
    }
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a replica thread panicked");
    }
}

/// A core error as what a coordinator is told.
pub fn refusal(error: &Error) -> Refusal {
    let reason = match (error, error.class()) {
        (Error::UnknownTable { .. }, _) => FailureReason::Stale,
        _ if error.is_disk_full() => FailureReason::DiskFull,
        (_, Class::Retry) => FailureReason::Overloaded,
        (_, Class::Unavailable | Class::Corrupt) => FailureReason::Storage,
        (_, Class::Invalid) => FailureReason::Malformed,
    };
    (reason, error.to_string())
}

/// Completions gathered by lane, sent with one message each.
struct Outbox {
    lanes: Vec<Completions>,
    pending: Vec<Vec<Completion>>,
}

impl Outbox {
    fn new(lanes: Vec<Completions>) -> Outbox {
        let pending = lanes.iter().map(|_| Vec::new()).collect();
        Outbox { lanes, pending }
    }

    fn push(&mut self, ticket: Ticket, outcome: Outcome) {
        self.pending[ticket.lane].push(Completion { id: ticket.id, outcome });
    }

    /// A lane that is gone has no use for its completions.
    fn send(&mut self) {
        for (lane, pending) in self.lanes.iter().zip(&mut self.pending) {
            if !pending.is_empty() {
                // The next group will be about as large.
                let room = Vec::with_capacity(pending.len());
                let _ = lane.send(std::mem::replace(pending, room));
            }
        }
    }
}
