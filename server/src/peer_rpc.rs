//! Single questions between nodes, as the metadata log and the birth of a cluster ask them.
//!
//! The peer layer implements [`PeerRpc`] over `trefoil.v1.Peer/Call`; tests implement it over channels.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
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
