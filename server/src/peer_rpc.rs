//! Single questions between nodes, as the metadata log and the birth of a cluster ask them.
//!
//! [`GrpcRpc`] asks over `trefoil.v1.Peer/Call`; tests have a net within their process.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tonic::{Code, Status};
use trefoil::metadata::ClusterState;
use trefoil::model::NodeId;
use trefoil_proto::v1::CallKind;

use crate::peers::{Caller, PeerClient};

/// The way to ask other nodes.
pub trait PeerRpc: Send + Sync + 'static {
    /// Says who this node is and which others there are: once it is known, before any [`PeerRpc::call`].
    fn identified(&self, me: NodeId, state: &ClusterState);

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

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let text = status.message().to_owned();
        match status.code() {
            Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented => CallError::Refused(text),
            _ if never_connected(&status) => CallError::NotSent(text),
            _ => CallError::Lost(text),
        }
    }
}

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

/// Asks over gRPC.
pub struct GrpcRpc {
    client: Arc<PeerClient>,
    identity: OnceLock<Identified>,
}

struct Identified {
    caller: Caller,
    addresses: BTreeMap<NodeId, String>,
}

impl GrpcRpc {
    /// Asks through `client`, as nobody until it is known who this node is.
    pub fn new(client: Arc<PeerClient>) -> GrpcRpc {
        GrpcRpc { client, identity: OnceLock::new() }
    }

    async fn ask(&self, address: &str, kind: CallKind, body: Bytes, timeout: Duration) -> Result<Bytes, CallError> {
        let nobody = Caller::default();
        let caller = self.identity.get().map_or(&nobody, |identified| &identified.caller);
        Ok(self.client.call(caller, address, kind, body, timeout).await?)
    }
}

impl PeerRpc for GrpcRpc {
    fn identified(&self, me: NodeId, state: &ClusterState) {
        let caller = Caller { cluster: Bytes::copy_from_slice(state.cluster().as_bytes()), node: me.0 };
        let addresses = state.ring().nodes().map(|node| (node.id, node.peer_address.clone())).collect();
        self.identity.get_or_init(|| Identified { caller, addresses });
    }

    fn call(
        &self,
        target: NodeId,
        kind: CallKind,
        body: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Bytes, CallError>> {
        async move {
            let address = self.identity.get().and_then(|identified| identified.addresses.get(&target));
            let address = address.ok_or_else(|| CallError::NotSent(format!("{target} has no known address")))?;
            self.ask(address, kind, body, timeout).await
        }
        .boxed()
    }

    fn call_address<'a>(
        &'a self,
        address: &'a str,
        kind: CallKind,
        body: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Bytes, CallError>> {
        self.ask(address, kind, body, timeout).boxed()
    }
}
