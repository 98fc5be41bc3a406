//! Whether to try again: a pure decision, a budget and a delay.
//!
//! A request that may have had an effect is sent again only if doing it twice is the same as doing it once. Attempts
//! that were surely not begun cost the cluster nothing and are free; all others draw on a budget that grows with the
//! requests made, so that a cluster in trouble meets a tenth more load, not a multiple.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tonic::Code;
use trefoil_proto::v1;
use trefoil_proto::v1::Outcome;
use trefoil_proto::v1::error_detail::Kind;

/// Attempts of one request, at most.
pub(crate) const ATTEMPTS_MAX: u32 = 16;

/// The first delay before an attempt, before jitter.
const BACKOFF_MIN: Duration = Duration::from_millis(10);

/// The longest delay before an attempt, before jitter.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// How one attempt failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    /// It was never handed to the connection.
    NotSent(String),
    /// The connection ended between the request and its answer.
    Lost,
    /// There was no answer in time.
    NoAnswer,
    /// The node answered with an error.
    Refused(v1::Error),
}

impl Failure {
    /// What became of a write.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Failure::NotSent(_) => Outcome::NotApplied,
            Failure::Lost | Failure::NoAnswer => Outcome::Unknown,
            Failure::Refused(error) => error.outcome(),
        }
    }

    /// For people.
    pub(crate) fn reason(&self) -> String {
        match self {
            Failure::NotSent(reason) => reason.clone(),
            Failure::Lost => "the connection was lost".to_owned(),
            Failure::NoAnswer => "the node did not answer in time".to_owned(),
            Failure::Refused(error) => error.message.clone(),
        }
    }
}

/// Whether a request may be sent again after an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Repetition {
    /// Doing it twice is the same as doing it once. So are all reads, and all writes whose timestamp is fixed by the
    /// client.
    #[default]
    Safe,
    /// Never send it again unless it is certain that nothing was done.
    Unsafe,
}

/// What to do after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Try the next node at once, at no cost to the budget.
    NextNode,
    /// If the budget allows, try the next node after a growing delay, but not before `at_least`.
    Later {
        /// What the node asked for.
        at_least: Duration,
    },
    /// Tell the caller.
    GiveUp,
}

/// What to do after `failure`.
pub(crate) fn decide(failure: &Failure, repetition: Repetition) -> Decision {
    let later = Decision::Later { at_least: Duration::ZERO };
    let safe = repetition == Repetition::Safe || failure.outcome() == Outcome::NotApplied;
    match failure {
        Failure::NotSent(_) => Decision::NextNode,
        _ if !safe => Decision::GiveUp,
        Failure::Lost | Failure::NoAnswer => later,
        Failure::Refused(error) => match (error.status_code(), error.kind()) {
            (Code::ResourceExhausted, Some(Kind::Overloaded(detail))) => {
                Decision::Later { at_least: Duration::from_millis(detail.retry_after_ms.into()) }
            }
            (Code::Unavailable | Code::DeadlineExceeded | Code::Aborted | Code::ResourceExhausted, _) => later,
            _ => Decision::GiveUp,
        },
    }
}

/// The delay before attempt number `attempt` (the second is 1): anything up to twice the one before, by `jitter` in 0..=1.
pub(crate) fn backoff(attempt: u32, jitter: f64) -> Duration {
    let ceiling = BACKOFF_MIN.saturating_mul(1 << attempt.saturating_sub(1).min(10)).min(BACKOFF_MAX);
    ceiling.mul_f64(jitter.clamp(0.0, 1.0))
}

/// How many attempts beyond the first are still allowed. Every request adds a tenth of an attempt.
#[derive(Debug)]
pub(crate) struct Budget {
    /// In tenths of an attempt.
    tenths: AtomicI64,
    ceiling: i64,
}

impl Budget {
    /// A full budget of so many attempts. It should cover what one lost node had in flight.
    pub(crate) fn new(attempts: u32) -> Budget {
        let ceiling = i64::from(attempts) * 10;
        Budget { tenths: AtomicI64::new(ceiling), ceiling }
    }

    /// A request was made.
    pub(crate) fn deposit(&self) {
        if self.tenths.load(Ordering::Relaxed) < self.ceiling {
            self.tenths.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes one attempt, if there is one.
    pub(crate) fn withdraw(&self) -> bool {
        let take = |tenths: i64| (tenths >= 10).then_some(tenths - 10);
        self.tenths.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use trefoil_proto::v1::{InvalidDetail, SchemaMismatchDetail, TimeoutDetail, UnavailableDetail};

    use super::*;

    fn later(ms: u64) -> Decision {
        Decision::Later { at_least: Duration::from_millis(ms) }
    }

    /// B011: failures of writes were taken for "surely not executed" and sent again, with double effect. Only what is
    /// known not to have been done is sent again when doing it twice matters.
    #[test]
    fn b011_only_what_was_surely_not_done_is_sent_again() {
        let timeout = || Failure::Refused(v1::Error::timeout(TimeoutDetail::default(), Outcome::Unknown));
        let unavailable = || Failure::Refused(v1::Error::unavailable(UnavailableDetail::default()));
        let overloaded = || Failure::Refused(v1::Error::overloaded("bytes", Duration::from_millis(70)));
        let unsaid = || Failure::Refused(v1::Error { code: Code::Unavailable as u32, ..Default::default() });
        let aborted = || Failure::Refused(v1::Error::new(Code::Aborted, "", Outcome::Unknown));
        let cases = [
            (Failure::NotSent(String::new()), Decision::NextNode, Decision::NextNode),
            (Failure::Lost, later(0), Decision::GiveUp),
            (Failure::NoAnswer, later(0), Decision::GiveUp),
            (timeout(), later(0), Decision::GiveUp),
            (aborted(), later(0), Decision::GiveUp),
            (unsaid(), later(0), Decision::GiveUp),
            (unavailable(), later(0), later(0)),
            (overloaded(), later(70), later(70)),
        ];
        for (failure, safe, not_safe) in cases {
            assert_eq!(decide(&failure, Repetition::Safe), safe, "{failure:?}");
            assert_eq!(decide(&failure, Repetition::Unsafe), not_safe, "{failure:?}");
        }
    }

    #[test]
    fn what_can_never_succeed_is_not_tried_again() {
        let errors = [
            v1::Error::invalid(InvalidDetail::new("x")),
            v1::Error::not_found(InvalidDetail::new("x")),
            v1::Error::schema_mismatch(SchemaMismatchDetail::default()),
            v1::Error::new(Code::Internal, "x", Outcome::NotApplied),
            v1::Error::new(Code::DataLoss, "x", Outcome::Unknown),
        ];
        for error in errors {
            assert_eq!(decide(&Failure::Refused(error), Repetition::Safe), Decision::GiveUp);
        }
    }

    #[test]
    fn delays_double_up_to_a_ceiling() {
        let ceilings: Vec<_> = (1..10).map(|attempt| backoff(attempt, 1.0).as_millis()).collect();
        assert_eq!(ceilings, [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000]);
        assert_eq!(backoff(3, 0.0), Duration::ZERO);
        assert_eq!(backoff(u32::MAX, 0.5), BACKOFF_MAX / 2);
    }

    #[test]
    fn ten_requests_earn_one_attempt() {
        let budget = Budget::new(2);
        assert!(budget.withdraw() && budget.withdraw() && !budget.withdraw());
        (0..9).for_each(|_| budget.deposit());
        assert!(!budget.withdraw());
        budget.deposit();
        assert!(budget.withdraw() && !budget.withdraw());
        (0..1_000).for_each(|_| budget.deposit());
        assert!(budget.withdraw() && budget.withdraw() && !budget.withdraw(), "it never holds more than at first");
    }
}
