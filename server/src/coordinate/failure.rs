//! What went wrong, as the answer that says so.

use std::time::Duration;

use trefoil::coordinator::{Consistency, FailureReason, ReadError, Unavailable, WriteError};
use trefoil::model::NodeId;
use trefoil_proto::REQUEST_ID_BYTES_MAX;
use trefoil_proto::v1;
use trefoil_proto::v1::error_detail::Kind;
use uuid::Uuid;

use super::naming::NoStamp;

/// How long a read that found all replicas busy should stay away.
const REPLICAS_RETRY: Duration = Duration::from_millis(50);

/// The level of a request, if its options are in order.
pub(super) fn level(options: &v1::Options) -> Result<Consistency, v1::Error> {
    let id_bytes = options.request_id.len();
    if id_bytes > REQUEST_ID_BYTES_MAX {
        let reason = format!("request_id has {id_bytes} bytes, at most {REQUEST_ID_BYTES_MAX} are possible");
        return Err(v1::Error::invalid(v1::InvalidDetail::new(reason)));
    }
    match v1::Consistency::try_from(options.consistency) {
        Ok(v1::Consistency::Unspecified | v1::Consistency::LocalQuorum) => Ok(Consistency::LocalQuorum),
        Ok(v1::Consistency::One) => Ok(Consistency::One),
        Ok(v1::Consistency::Two) => Ok(Consistency::Two),
        Ok(v1::Consistency::Three) => Ok(Consistency::Three),
        Ok(v1::Consistency::Quorum) => Ok(Consistency::Quorum),
        Ok(v1::Consistency::All) => Ok(Consistency::All),
        Ok(v1::Consistency::EachQuorum) => Ok(Consistency::EachQuorum),
        Ok(v1::Consistency::LocalOne) => Ok(Consistency::LocalOne),
        Err(_) => {
            let reason = format!("consistency {} is not a level", options.consistency);
            Err(v1::Error::invalid(v1::InvalidDetail::new(reason)))
        }
    }
}

fn level_to_proto(level: Consistency) -> i32 {
    let level = match level {
        Consistency::One => v1::Consistency::One,
        Consistency::Two => v1::Consistency::Two,
        Consistency::Three => v1::Consistency::Three,
        Consistency::Quorum => v1::Consistency::Quorum,
        Consistency::All => v1::Consistency::All,
        Consistency::LocalOne => v1::Consistency::LocalOne,
        Consistency::LocalQuorum => v1::Consistency::LocalQuorum,
        Consistency::EachQuorum => v1::Consistency::EachQuorum,
    };
    level.into()
}

/// Too few replicas are alive.
pub(super) fn unavailable(level: Consistency, unavailable: Unavailable) -> v1::Error {
    v1::Error::unavailable(v1::UnavailableDetail {
        consistency: level_to_proto(level),
        required: unavailable.required,
        alive: unavailable.alive,
    })
}

/// A write that was begun and is not acknowledged.
pub(super) fn write(level: Consistency, error: WriteError, name: impl Fn(usize) -> NodeId) -> v1::Error {
    match error {
        WriteError::Timeout { required, received } => timeout(level, required, received, v1::Outcome::Unknown),
        WriteError::Failed { required, received, reasons } => {
            replica_failure(level, required, received, &reasons, name, v1::Outcome::Unknown)
        }
    }
}

/// A read without an answer.
pub(super) fn read(level: Consistency, error: ReadError, name: impl Fn(usize) -> NodeId) -> v1::Error {
    match error {
        ReadError::Timeout { required, received, .. } => timeout(level, required, received, v1::Outcome::NotApplied),
        // A read has no effect, so that nothing was done whoever was asked: the queues for the disk are full.
        ReadError::Failed { reasons, .. } if reasons.iter().all(|(_, reason)| *reason == FailureReason::Overloaded) => {
            v1::Error::overloaded("replicas", REPLICAS_RETRY)
        }
        ReadError::Failed { required, received, reasons } => {
            replica_failure(level, required, received, &reasons, name, v1::Outcome::NotApplied)
        }
    }
}

fn timeout(level: Consistency, required: u32, received: u32, outcome: v1::Outcome) -> v1::Error {
    v1::Error::timeout(v1::TimeoutDetail { consistency: level_to_proto(level), required, received }, outcome)
}

fn replica_failure(
    level: Consistency,
    required: u32,
    received: u32,
    reasons: &[(usize, FailureReason)],
    name: impl Fn(usize) -> NodeId,
    outcome: v1::Outcome,
) -> v1::Error {
    // Replicas that came to it too late are replicas that did not answer in time.
    if reasons.iter().all(|(_, reason)| *reason == FailureReason::Expired) {
        return timeout(level, required, received, outcome);
    }
    // A row that grew over several writes; whoever asks again gets the same.
    if reasons.iter().any(|(_, reason)| *reason == FailureReason::TooLarge) {
        let text = "one row is larger than a message; delete or overwrite what is large in it";
        return v1::Error::new(tonic::Code::OutOfRange, text, outcome);
    }
    let failures: Vec<v1::ReplicaFailure> = reasons
        .iter()
        .map(|(replica, reason)| v1::ReplicaFailure { node: name(*replica).0, reason: reason.name().to_owned() })
        .collect();
    let who: Vec<String> = failures.iter().map(|failure| format!("n{}: {}", failure.node, failure.reason)).collect();
    let message = format!("{level} needs {required} replicas, {received} answered; {}", who.join(", "));
    let detail = v1::ReplicaFailureDetail { consistency: level_to_proto(level), required, received, failures };
    v1::Error::with(tonic::Code::Aborted, message, outcome, Kind::ReplicaFailure(detail))
}

/// The table is being loaded: nobody reads or writes it before all of it is there.
pub(super) fn under_restore(table: &v1::TableRef, restore: Uuid) -> v1::Error {
    let text = format!(
        "table {}.{} is being restored; `trefoil restore status {restore}` says how far it has come",
        table.keyspace, table.name
    );
    v1::Error::new(tonic::Code::FailedPrecondition, text, v1::Outcome::NotApplied)
}

/// The deadline had passed when the request came.
pub(super) fn no_time() -> v1::Error {
    let text = "the deadline had passed before the request was begun";
    v1::Error::new(tonic::Code::DeadlineExceeded, text, v1::Outcome::NotApplied)
}

/// No stamp can be given now.
pub(super) fn no_stamp(no_stamp: &NoStamp) -> v1::Error {
    match no_stamp {
        NoStamp::Ceiling => v1::Error::overloaded("clock", Duration::from_millis(20)),
        NoStamp::Stuck(reason) => {
            let message = format!("this node coordinates no writes until it can write its clock to the disk: {reason}");
            v1::Error::new(tonic::Code::Unavailable, message, v1::Outcome::NotApplied)
        }
        NoStamp::Behind(micros) => {
            let message = format!(
                "this node's clock is {} ms behind what it has promised or seen; writes wait until it has caught up",
                micros / 1_000
            );
            v1::Error::new(tonic::Code::Unavailable, message, v1::Outcome::NotApplied)
        }
    }
}

/// What a failure between nodes is to the coordinator.
pub(super) fn reason_of(failure: &v1::PeerFailure) -> FailureReason {
    match failure.kind() {
        v1::PeerFailureKind::Overloaded => FailureReason::Overloaded,
        v1::PeerFailureKind::Unavailable | v1::PeerFailureKind::Corrupt | v1::PeerFailureKind::Unspecified => {
            FailureReason::Storage
        }
        v1::PeerFailureKind::DiskFull => FailureReason::DiskFull,
        v1::PeerFailureKind::Invalid => FailureReason::Malformed,
        v1::PeerFailureKind::Clock => FailureReason::Clock,
        v1::PeerFailureKind::Expired => FailureReason::Expired,
        v1::PeerFailureKind::TooLarge => FailureReason::TooLarge,
        v1::PeerFailureKind::TooLate => FailureReason::TooLate,
    }
}

/// A failure of the own replica as a peer is told.
pub(super) fn to_peer(reason: FailureReason, message: String) -> v1::PeerFailure {
    let kind = match reason {
        FailureReason::Overloaded => v1::PeerFailureKind::Overloaded,
        FailureReason::Storage | FailureReason::Disconnected | FailureReason::Stale => v1::PeerFailureKind::Unavailable,
        FailureReason::DiskFull => v1::PeerFailureKind::DiskFull,
        FailureReason::Malformed => v1::PeerFailureKind::Invalid,
        FailureReason::Clock => v1::PeerFailureKind::Clock,
        FailureReason::Expired => v1::PeerFailureKind::Expired,
        FailureReason::TooLarge => v1::PeerFailureKind::TooLarge,
        FailureReason::TooLate => v1::PeerFailureKind::TooLate,
    };
    v1::PeerFailure { kind: kind.into(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(reasons: &[FailureReason]) -> v1::Error {
        let reasons = reasons.iter().copied().enumerate().collect();
        read(Consistency::Quorum, ReadError::Failed { required: 2, received: 1, reasons }, |at| NodeId(at as u32))
    }

    #[test]
    fn a_read_that_only_finds_full_queues_may_come_again_and_is_told_when() {
        let busy = failed(&[FailureReason::Overloaded, FailureReason::Overloaded]);
        assert_eq!((busy.status_code(), busy.outcome()), (tonic::Code::ResourceExhausted, v1::Outcome::NotApplied));
        assert!(matches!(busy.kind(), Some(Kind::Overloaded(detail)) if detail.retry_after_ms > 0), "{busy:?}");
        let lost = failed(&[FailureReason::Overloaded, FailureReason::Disconnected]);
        assert_eq!(lost.status_code(), tonic::Code::Aborted);
    }
}
