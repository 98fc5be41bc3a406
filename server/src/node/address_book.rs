//! Where the other nodes are.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use trefoil::model::NodeId;
use trefoil_proto::v1;

use crate::birth::Desk;
use crate::metadata_log::MetadataLog;
use crate::peer_rpc::{CallError, PeerRpc};
use crate::peers::{Caller, PeerClient};

/// Single questions by node number, with the addresses of the present members.
pub struct AddressBook {
    client: PeerClient,
    desk: Arc<Desk>,
}

impl AddressBook {
    pub(super) fn new(desk: Arc<Desk>) -> AddressBook {
        AddressBook { client: PeerClient::default(), desk }
    }

    fn caller(&self) -> Caller {
        let Some(log) = self.desk.log() else { return Caller::default() };
        Caller { cluster: Bytes::copy_from_slice(log.state().cluster().as_bytes()), node: log.me().0 }
    }

    fn address(&self, node: NodeId) -> Option<String> {
        self.desk.log()?.state().ring().node(node).map(|node| node.peer_address.clone())
    }
}

impl PeerRpc for AddressBook {
    fn call(
        &self,
        target: NodeId,
        kind: v1::CallKind,
        body: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Bytes, CallError>> {
        Box::pin(async move {
            let Some(address) = self.address(target) else {
                return Err(CallError::NotSent(format!("{target} has no address")));
            };
            self.call_address(&address, kind, body, timeout).await
        })
    }

    fn call_address<'a>(
        &'a self,
        address: &'a str,
        kind: v1::CallKind,
        body: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Bytes, CallError>> {
        Box::pin(async move { Ok(self.client.call(&self.caller(), address, kind, body, timeout).await?) })
    }
}
