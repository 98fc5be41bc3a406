//! What can happen, and what nodes and clients say to each other.

use std::sync::Arc;

use bytes::Bytes;
use trefoil::coordinator::{Consistency, Digest, FailureReason, Unseen};
use trefoil::hints::Place;
use trefoil::model::{Direction, Page, ReadCommand, Stamp};
use trefoil::received::{ReceivedSet, Slice};

use super::faults::Fault;

/// Something that happens to the whole, a node or a client. `run` is the life of a process: what was meant for an
/// earlier one is forgotten.
#[derive(Debug)]
pub enum Event {
    Deliver {
        from: usize,
        to: usize,
        generation: u64,
        message: Message,
    },
    /// The other process closed the connection.
    Hangup {
        node: usize,
        peer: usize,
    },
    /// An attempt to connect.
    Connect {
        node: usize,
        peer: usize,
    },
    Start {
        node: usize,
    },
    Timer {
        node: usize,
        run: u64,
        timer: Timer,
    },
    /// The deadline of an operation.
    Expire {
        node: usize,
        run: u64,
        id: u64,
    },
    /// Answers to a read may be late.
    Look {
        node: usize,
        run: u64,
        id: u64,
    },
    /// A request reaches a node.
    Request {
        node: usize,
        call: u64,
        request: Request,
    },
    /// An answer reaches a client.
    Answer {
        call: u64,
        answer: Answer,
    },
    /// A client waits no longer.
    GiveUp {
        call: u64,
    },
    /// A client wants something.
    Want {
        client: usize,
    },
    /// Something goes wrong.
    Trouble,
    /// What goes wrong, or comes right again.
    Fault(Fault),
    /// Nothing goes wrong any more.
    Calm,
    /// Time to look whether all is as it must be.
    Inspect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// The log thread takes what is queued.
    Append,
    /// A sync of the log is done.
    Synced,
    /// Records of periodic tables are synced.
    SyncPeriodic,
    Ping,
    Ceiling,
    Flush,
    Compact,
    /// Peers are told what is here.
    Report,
    /// What is reconciled is saved.
    Save,
    /// Hints go out.
    Hints,
}

/// What nodes send each other.
#[derive(Debug, Clone)]
pub enum Message {
    Write {
        id: u64,
        placement: u64,
        timeout_us: u64,
        record: Bytes,
    },
    Read {
        id: u64,
        placement: u64,
        command: Arc<ReadCommand>,
        /// The digest alone is wanted, without this.
        digest: Option<Unseen>,
    },
    Acknowledged {
        id: u64,
    },
    /// `reconciled`: up to where the sender knew everything to be everywhere before it read.
    Page {
        id: u64,
        page: Page,
        reconciled: Stamp,
    },
    Digest {
        id: u64,
        digest: Digest,
    },
    Failed {
        id: u64,
        reason: FailureReason,
    },
    /// `unheard_us`: how long ago the last one came the other way.
    Ping {
        unheard_us: u64,
    },
    Report {
        report: Bytes,
    },
    Fetch {
        slice: Slice,
        names: ReceivedSet,
    },
    Records {
        records: Vec<Bytes>,
    },
    Hint {
        place: Place,
        placement: u64,
        record: Bytes,
    },
    HintTaken {
        place: Place,
        outcome: Result<(), FailureReason>,
    },
}

/// What a client asks.
#[derive(Debug, Clone)]
pub enum Request {
    Write { write: u64, level: Consistency, observed: Stamp },
    Read { read: Read, level: Consistency, observed: Stamp, state: Bytes },
}

/// What rows a client wants, and in what portions.
#[derive(Debug, Clone)]
pub struct Read {
    pub table: usize,
    pub target: ReadTarget,
    pub direction: Direction,
    pub page_rows: u32,
    pub page_bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadTarget {
    Row(u8, u8),
    Partition(u8),
    Scan,
}

/// What a client is told.
#[derive(Debug, Clone)]
pub enum Answer {
    Written {
        stamp: Stamp,
    },
    /// The write that each row is of, the second as of which it was read, and where the next page begins.
    Page {
        rows: Vec<(u8, u8, u64)>,
        now_s: i64,
        next: Bytes,
        stamp: Stamp,
    },
    NotApplied,
    Unknown,
}

impl Message {
    /// What of it becomes part of the hash of a run.
    pub fn digest(&self) -> u64 {
        match self {
            Message::Write { id, record, .. } => id << 8 | 1 | (record.len() as u64) << 40,
            Message::Read { id, .. } => id << 8 | 2,
            Message::Acknowledged { id } => id << 8 | 3,
            Message::Page { id, page, .. } => id << 8 | 4 | u64::from(crc32fast::hash(&page.entries)) << 32,
            Message::Digest { id, digest } => id << 8 | 12 | u64::from(crc32fast::hash(&digest.0)) << 32,
            Message::Failed { id, reason } => id << 8 | 5 | (*reason as u64) << 40,
            Message::Ping { .. } => 6,
            Message::Report { report } => 7 | u64::from(crc32fast::hash(report)) << 8,
            Message::Fetch { names, .. } => 8 | names.count() << 8,
            Message::Hint { place, .. } => 10 | place.offset << 8,
            Message::HintTaken { place, outcome } => 11 | place.offset << 8 | u64::from(outcome.is_ok()) << 40,
            Message::Records { records } => 9 | (records.len() as u64) << 8,
        }
    }
}
