//! What a record that comes is held against: promises that this node has made to the other replicas.
//!
//! One comparison for nearly every record, since promises lie a minute behind the clock. It is made twice: when a record
//! arrives, so that its sender soon knows, and when it is logged, where it decides: the store is told what is about to be logged,
//! and answers what was promised until then (`Store::begin_append`).

use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::coordinator::FailureReason;
use trefoil::model::{ReadCommand, Stamp};
use trefoil::store::Store;

use super::{Outbox, Outcome, WriteJob};

/// What to do with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Log it.
    Apply,
    /// It is here already, and may be too old to be applied again: acknowledge it.
    Received,
    /// It is too old to be taken.
    TooLate,
    /// Nothing of its vnode is taken at present.
    NotWhole,
}

/// Who knows what was promised.
pub trait Arrivals: Send + Sync + 'static {
    /// Named records that are stamped behind this are to be logged.
    fn published(&self) -> Stamp;

    /// What to do with a record that is stamped at or before, or that has no name.
    fn judge(&self, record: &CheckedRecord) -> Judgement;

    /// Whether records of this kind are taken at present: those with a name are not where this replica is being rebuilt.
    fn takes(&self, record: &CheckedRecord) -> bool;

    /// Whether a read is not answered at present: something is missing that this node had told or others held when it started.
    fn withholds(&self, command: &ReadCommand) -> bool;
}

/// Why a write or a read is refused meanwhile.
pub const NOT_WHOLE: &str = "this replica is not whole: it gets from the others what it lacks";

/// Why a record is refused, for its coordinator and for people.
pub const TOO_LATE: &str =
    "the record is older than what this node has promised to take, and no replica has told of it";

/// The stamp of a named record; none for data without a name.
fn named_stamp(record: &CheckedRecord) -> Option<Stamp> {
    matches!(record.kind(), RecordKind::Named(_)).then(|| record.stamp())
}

/// What to do with a record now.
pub fn judge(arrivals: &dyn Arrivals, record: &CheckedRecord) -> Judgement {
    if !arrivals.takes(record) {
        return Judgement::NotWhole;
    }
    match named_stamp(record) {
        Some(stamp) if stamp > arrivals.published() => Judgement::Apply,
        _ => arrivals.judge(record),
    }
}

/// Takes those out of a group that is about to be logged that are not to be, and tells whoever asked.
pub(super) fn take_out(jobs: &mut Vec<WriteJob>, store: &Store, arrivals: &dyn Arrivals, outbox: &mut Outbox) {
    if jobs.is_empty() {
        return;
    }
    let (mut lowest, mut nameless) = (Stamp(i64::MAX), false);
    for job in jobs.iter() {
        match named_stamp(&job.record) {
            Some(stamp) => lowest = lowest.min(stamp),
            None => nameless = true,
        }
    }
    let promised = store.begin_append(lowest);
    if !nameless && lowest > promised {
        return;
    }
    jobs.retain(|job| {
        if named_stamp(&job.record).is_some_and(|stamp| stamp > promised) {
            return true;
        }
        let outcome = match arrivals.judge(&job.record) {
            Judgement::Apply => return true,
            Judgement::Received => Outcome::Written,
            Judgement::TooLate => Outcome::Failed(FailureReason::TooLate, TOO_LATE.to_owned()),
            Judgement::NotWhole => Outcome::Failed(FailureReason::Storage, NOT_WHOLE.to_owned()),
        };
        outbox.push(job.ticket, outcome);
        false
    });
    if jobs.is_empty() {
        store.cancel_append();
    }
}
