//! What can go wrong for a caller, with what it says about a write.

use std::time::Duration;

use tonic::Code;
use trefoil_proto::v1::error_detail::Kind;
use trefoil_proto::v1::{self, InvalidDetail, Outcome};

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No node could be reached in time. Nothing was sent.
    #[error("no node of [{tried}] could be reached: {reason}")]
    Unreachable {
        /// The addresses that were tried.
        tried: String,
        /// What happened last.
        reason: String,
    },

    /// The request can never be accepted, as this client could see by itself. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidDetail),

    /// The cluster answered with an error, and trying again was of no use, not safe, or over the budget.
    #[error("{} ({attempts} attempts)", error.message)]
    Refused {
        /// The last answer.
        error: Box<v1::Error>,
        /// What became of a write, all attempts considered.
        outcome: Outcome,
        /// How many times it was sent.
        attempts: u32,
    },

    /// There was no answer: not in time, or the connection was lost and the request must not be sent again.
    #[error("no answer within {waited:?} and {attempts} attempts: {reason}")]
    NoAnswer {
        /// What became of a write, all attempts considered.
        outcome: Outcome,
        /// Time since the request began.
        waited: Duration,
        /// How many times it was sent.
        attempts: u32,
        /// What happened last.
        reason: String,
    },

    /// A column of an answer is not what the caller takes it for.
    #[error("column {column}: {reason}")]
    Column {
        /// The column.
        column: String,
        /// What it is instead.
        reason: String,
    },
}

impl Error {
    /// For writes: whether anything may have happened. [`Outcome::Unknown`] unless it is certain that nothing did.
    pub fn outcome(&self) -> Outcome {
        match self {
            Error::Unreachable { .. } | Error::Invalid(_) | Error::Column { .. } => Outcome::NotApplied,
            Error::Refused { outcome, .. } | Error::NoAnswer { outcome, .. } => *outcome,
        }
    }

    /// The gRPC code that stands for the error.
    pub fn code(&self) -> Code {
        match self {
            Error::Unreachable { .. } => Code::Unavailable,
            Error::Invalid(_) | Error::Column { .. } => Code::InvalidArgument,
            Error::Refused { error, .. } => error.status_code(),
            Error::NoAnswer { .. } => Code::DeadlineExceeded,
        }
    }

    /// What the cluster said of the error, if it is the cluster's and there is more to say than the code does.
    pub fn detail(&self) -> Option<&Kind> {
        match self {
            Error::Refused { error, .. } => error.kind(),
            _ => None,
        }
    }

    /// The error of a call that is not repeated.
    pub(crate) fn from_status(status: &tonic::Status) -> Error {
        let error = v1::Error::from_status(status);
        Error::Refused { outcome: error.outcome(), error: Box::new(error), attempts: 1 }
    }

    /// The same error of a request that may have had an effect in an earlier attempt.
    pub(crate) fn doubtful(self) -> Error {
        let outcome = Outcome::Unknown;
        match self {
            Error::Refused { error, attempts, .. } => Error::Refused { error, outcome, attempts },
            Error::NoAnswer { waited, attempts, reason, .. } => Error::NoAnswer { outcome, waited, attempts, reason },
            Error::Unreachable { reason, .. } => {
                Error::NoAnswer { outcome, waited: Duration::ZERO, attempts: 1, reason }
            }
            other => other,
        }
    }

    /// Whether the caller's view of the schema is out of date: the table is gone, or is another one.
    pub(crate) fn is_schema_out_of_date(&self) -> bool {
        matches!(self.detail(), Some(Kind::SchemaMismatch(_))) || self.code() == Code::NotFound
    }
}
