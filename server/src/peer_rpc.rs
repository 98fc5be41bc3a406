//! Single questions between nodes, as the metadata log and the birth of a cluster ask them.
//!
//! The node asks over `trefoil.v1.Peer/Call`; tests have a net within their process.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tonic::{Code, Status};
use trefoil::model::NodeId;
use trefoil_proto::v1::CallKind;

/// The way to ask other nodes.
pub trait PeerRpc: Send + Sync + 'static {
    /// Asks a node of the cluster and waits for its answer, at most for `timeout`.
    fn call(
        &self,
        target: NodeId,
        kind: CallKind,
        body: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Bytes, CallError>>;

    /// Asks whoever answers at `host:port`: for the time before nodes have numbers.
    fn call_address<'a>(
        &'a self,
        address: &'a str,
        kind: CallKind,
        body: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Bytes, CallError>>;
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It was surely not handled: no connection, no address.
    #[error("not reached: {0}")]
    NotSent(String),
    /// It may have been handled: the connection broke or the time was up after it was sent.
    #[error("no answer: {0}")]
    Lost(String),
    /// The other side says that it did nothing, and why.
    #[error("refused: {0}")]
    Refused(String),
}

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        let text = error.to_string();
        match error {
            CallError::Refused(reason) => Status::failed_precondition(reason),
            CallError::NotSent(_) => Status::unavailable(text),
            CallError::Lost(_) => Status::unknown(text),
        }
    }
}

/// A status without a cause was sent by the other side; one with a cause was made here, of whatever broke.
impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let text = status.message().to_owned();
        match status.code() {
            Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented => CallError::Refused(text),
            Code::Unavailable if status.source().is_none() => CallError::Refused(text),
            _ if never_connected(&status) => CallError::NotSent(text),
            _ => CallError::Lost(text),
        }
    }
}

/// Only a failed attempt to connect proves that nothing was sent: a connection that broke may have carried the question.
fn never_connected(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{Caller, PeerClient};

    #[tokio::test]
    async fn only_what_never_left_is_not_sent() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let closed = listener.local_addr().expect("its address").to_string();
        drop(listener);
        let asked = PeerClient::default()
            .call(&Caller::default(), &closed, CallKind::Birth, Bytes::new(), Duration::from_secs(5))
            .await;
        let error = CallError::from(asked.expect_err("nobody listens"));
        assert!(matches!(error, CallError::NotSent(_)), "{error}");

        let refused = CallError::Refused("not now".into());
        assert_eq!(CallError::from(Status::from(refused.clone())), refused);
        assert!(matches!(CallError::from(Status::deadline_exceeded("late")), CallError::Lost(_)));
        let broken = Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
        assert!(matches!(CallError::from(broken), CallError::Lost(_)));
    }
}
