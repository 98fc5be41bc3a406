//! Errors on the wire: [`Error`] inside answers, [`Status`] of unary calls, and the same content in both.
//!
//! A status carries `google.rpc.Status` in its details, so that clients of any language find the [`ErrorDetail`] with
//! the tools they have.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use prost_types::Any;
use tonic::{Code, Status};

use crate::v1::error_detail::Kind;
use crate::v1::{
    Error, ErrorDetail, InvalidDetail, Outcome, OverloadedDetail, SchemaMismatchDetail, TimeoutDetail,
    UnavailableDetail,
};

const DETAIL_URL: &str = "type.googleapis.com/trefoil.v1.ErrorDetail";
const RETRY_URL: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// `google.rpc.Status`, as every gRPC library expects it in `grpc-status-details-bin`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

impl Error {
    /// An error without a detail.
    pub fn new(code: Code, message: impl Into<String>, outcome: Outcome) -> Error {
        let detail = ErrorDetail { outcome: outcome.into(), kind: None };
        Error { code: code as u32, message: message.into(), detail: Some(detail) }
    }

    /// An error with a detail.
    pub fn with(code: Code, message: impl Into<String>, outcome: Outcome, kind: Kind) -> Error {
        let detail = ErrorDetail { outcome: outcome.into(), kind: Some(kind) };
        Error { code: code as u32, message: message.into(), detail: Some(detail) }
    }

    /// A request that can never be accepted.
    pub fn invalid(invalid: InvalidDetail) -> Error {
        Error::with(Code::InvalidArgument, invalid.to_string(), Outcome::NotApplied, Kind::Invalid(invalid))
    }

    /// A request for a keyspace or table that does not exist.
    pub fn not_found(invalid: InvalidDetail) -> Error {
        Error::with(Code::NotFound, invalid.to_string(), Outcome::NotApplied, Kind::Invalid(invalid))
    }

    /// Refused before anything was done.
    pub fn overloaded(stage: &str, retry_after: Duration) -> Error {
        let retry_after_ms = u32::try_from(retry_after.as_millis()).unwrap_or(u32::MAX);
        let detail = OverloadedDetail { retry_after_ms, stage: stage.to_owned() };
        let message = format!("too much to do ({stage}); come again in {retry_after_ms} ms");
        Error::with(Code::ResourceExhausted, message, Outcome::NotApplied, Kind::Overloaded(detail))
    }

    /// Too few replicas are alive; none was asked.
    pub fn unavailable(detail: UnavailableDetail) -> Error {
        let UnavailableDetail { required, alive, .. } = detail;
        let level = detail.consistency().as_str_name();
        let message = format!("{level} needs {required} replicas, {alive} are alive");
        Error::with(Code::Unavailable, message, Outcome::NotApplied, Kind::Unavailable(detail))
    }

    /// Too few replicas answered in time; `outcome` is that of a write, [`Outcome::NotApplied`] for a read.
    pub fn timeout(detail: TimeoutDetail, outcome: Outcome) -> Error {
        let TimeoutDetail { required, received, .. } = detail;
        let level = detail.consistency().as_str_name();
        let message = format!("{level} needs {required} answers, {received} came in time");
        Error::with(Code::DeadlineExceeded, message, outcome, Kind::Timeout(detail))
    }

    /// The table is not the one the caller has seen.
    pub fn schema_mismatch(detail: SchemaMismatchDetail) -> Error {
        let message = format!("the table has changed; its version is {}", detail.version);
        Error::with(Code::FailedPrecondition, message, Outcome::NotApplied, Kind::SchemaMismatch(detail))
    }

    /// The error of a status; what it does not say stays unsaid.
    pub fn from_status(status: &Status) -> Error {
        let detail = RpcStatus::decode(status.details()).ok().and_then(|rpc| {
            let any = rpc.details.into_iter().find(|any| any.type_url == DETAIL_URL)?;
            ErrorDetail::decode(any.value.as_slice()).ok()
        });
        Error { code: status.code() as u32, message: status.message().to_owned(), detail }
    }

    /// The status of an error.
    pub fn into_status(self) -> Status {
        let code = Code::from_i32(i32::try_from(self.code).unwrap_or(Code::Unknown as i32));
        let mut details = Vec::with_capacity(2);
        if let Some(detail) = &self.detail {
            details.push(Any { type_url: DETAIL_URL.to_owned(), value: detail.encode_to_vec() });
            if let Some(Kind::Overloaded(overloaded)) = &detail.kind {
                let delay = Duration::from_millis(overloaded.retry_after_ms.into());
                // Less than 50 days: never out of the range of the wire's duration.
                let info = RetryInfo { retry_delay: delay.try_into().ok() };
                details.push(Any { type_url: RETRY_URL.to_owned(), value: info.encode_to_vec() });
            }
        }
        let rpc = RpcStatus { code: code as i32, message: self.message.clone(), details };
        Status::with_details(code, self.message, Bytes::from(rpc.encode_to_vec()))
    }

    /// What became of the write; what is not said is unknown.
    pub fn outcome(&self) -> Outcome {
        match self.detail.as_ref().map(ErrorDetail::outcome) {
            Some(Outcome::NotApplied) => Outcome::NotApplied,
            _ => Outcome::Unknown,
        }
    }

    /// The gRPC code.
    pub fn status_code(&self) -> Code {
        Code::from_i32(i32::try_from(self.code).unwrap_or(Code::Unknown as i32))
    }

    /// The detail, if there is one.
    pub fn kind(&self) -> Option<&Kind> {
        self.detail.as_ref().and_then(|detail| detail.kind.as_ref())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::v1::Consistency;

    #[test]
    fn an_error_survives_as_a_status() {
        let errors = [
            Error::new(Code::Internal, "m", Outcome::Unknown),
            Error::invalid(InvalidDetail::new("no such column").column("c").table("k", "t").op(3)),
            Error::overloaded("bytes", Duration::from_millis(1_250)),
            Error::unavailable(UnavailableDetail { consistency: Consistency::Quorum.into(), required: 2, alive: 1 }),
            Error::schema_mismatch(SchemaMismatchDetail { version: 7, ..Default::default() }),
        ];
        for error in errors {
            assert_eq!(Error::from_status(&error.clone().into_status()), error);
        }
    }

    /// The bytes that any gRPC library looks for: google.rpc.Status with ErrorDetail and RetryInfo.
    #[test]
    fn overload_tells_when_to_come_again() {
        let status = Error::overloaded("requests", Duration::from_millis(1_500)).into_status();
        let rpc = RpcStatus::decode(status.details()).unwrap();
        assert_eq!(rpc.code, Code::ResourceExhausted as i32);
        assert_eq!(rpc.details[1].type_url, "type.googleapis.com/google.rpc.RetryInfo");
        let retry = RetryInfo::decode(rpc.details[1].value.as_slice()).unwrap();
        assert_eq!(retry.retry_delay, Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }));
    }

    #[test]
    fn what_is_not_said_of_a_write_is_unknown() {
        assert_eq!(Error::from_status(&Status::unavailable("connection lost")).outcome(), Outcome::Unknown);
        assert_eq!(Error::default().outcome(), Outcome::Unknown);
        let garbage = Status::with_details(Code::Aborted, "m", Bytes::from_static(b"\xff\xff"));
        assert_eq!(Error::from_status(&garbage).outcome(), Outcome::Unknown);
    }
}
