//! What was asked of a store, and how many of the requests that failed may be tried again.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::attempt::Ask;
use crate::{Class, Error};

/// As requests are called.
const CALLS: [&str; 5] = ["GET", "HEAD", "PUT", "LIST", "DELETE"];

/// Requests of one kind, since the door was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// Attempts.
    pub requests: u64,
    /// Those of them that failed. That there is no such object, or another one, is no failure.
    pub failures: u64,
    /// Those of them that came after one that had failed.
    pub retries: u64,
    /// Bytes of objects that were moved: by PUT there, by GET back.
    pub bytes: u64,
}

/// All requests of a door.
#[derive(Debug, Default)]
pub struct Traffic {
    counts: [Counts; CALLS.len()],
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    failures: AtomicU64,
    retries: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    /// Each kind of request, and how many there were.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, Asked)> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CALLS.into_iter().zip(&self.counts).map(move |(call, Counts { requests, failures, retries, bytes })| {
            let (requests, failures) = (read(requests), read(failures));
            (call, Asked { requests, failures, retries: read(retries), bytes: read(bytes) })
        })
    }

    /// Takes note of an attempt, the first of its request or another one.
    pub(super) fn note(&self, ask: Ask<'_>, attempt: u32, failed: Option<&Error>) {
        let Some(counts) = CALLS.iter().position(|call| *call == ask.call).map(|at| &self.counts[at]) else { return };
        let add = |count: &AtomicU64, number: u64| {
            count.fetch_add(number, Ordering::Relaxed);
        };
        add(&counts.requests, 1);
        add(&counts.retries, u64::from(attempt > 0));
        match failed.map(|error| error.class) {
            None => add(&counts.bytes, ask.bytes),
            Some(Class::NotFound | Class::Conflict) => {}
            Some(Class::Retry | Class::Denied | Class::Damaged | Class::Invalid) => add(&counts.failures, 1),
        }
    }
}

/// So many retries may follow each other at once.
const BURST: f64 = 20.0;

/// So many retries each request earns.
const PER_REQUEST: f64 = 0.2;

/// Retries that are left to all requests of a door together: a store that is in trouble is not asked several times as much
/// for it.
pub(super) struct Budget(Mutex<f64>);

impl Budget {
    pub(super) fn full() -> Budget {
        Budget(Mutex::new(BURST))
    }

    /// A request is made for the first time.
    pub(super) fn earn(&self) {
        let mut left = self.0.lock();
        *left = (*left + PER_REQUEST).min(BURST);
    }

    /// Whether one more may be tried again; then it counts.
    pub(super) fn spend(&self) -> bool {
        let mut left = self.0.lock();
        let may = *left >= 1.0;
        *left -= f64::from(u8::from(may));
        may
    }
}
