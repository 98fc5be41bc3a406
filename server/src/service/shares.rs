//! Shares of a restore: what a node answers about its own, and how it asks others about theirs.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tonic::Status;
use trefoil::model::NodeId;
use trefoil_proto::v1;
use uuid::Uuid;

use super::Control;
use crate::restore::share::Order;

/// How long a node may take to begin, to tell or to stop: no data is moved meanwhile.
const SHARE_TIMEOUT: Duration = Duration::from_secs(30);

impl Control {
    /// Asks a node, this one perhaps, about its share of a restore. The error is for people.
    pub async fn share(&self, node: NodeId, call: v1::RestoreCall) -> Result<v1::RestoreShare, String> {
        if node == self.shared().identity.node {
            return self.own_share(call).await;
        }
        let body = Bytes::from(call.encode_to_vec());
        let answer = self.rpc().call(node, v1::CallKind::Restore, body, SHARE_TIMEOUT).await;
        let body = answer.map_err(|error| error.to_string())?;
        v1::RestoreShare::decode(body).map_err(|error| error.to_string())
    }

    pub(super) async fn answer_share(&self, body: Bytes) -> Result<Bytes, Status> {
        let call = v1::RestoreCall::decode(body).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let share = self.own_share(call).await.map_err(Status::failed_precondition)?;
        Ok(Bytes::from(share.encode_to_vec()))
    }

    async fn own_share(&self, call: v1::RestoreCall) -> Result<v1::RestoreShare, String> {
        let restore = Uuid::from_slice(&call.restore).map_err(|error| error.to_string())?;
        let (shares, state) = (self.shares().clone(), self.state());
        let action = call.action();
        let answered = tokio::task::spawn_blocking(move || match action {
            v1::RestoreAction::Begin => {
                let order = call.order.ok_or("a restore without an order")?;
                shares.begin(restore, Order::read(order)?, &state)
            }
            v1::RestoreAction::Look => Ok(shares.look(restore)),
            v1::RestoreAction::End => shares.end(restore).map(|()| shares.look(restore)),
            v1::RestoreAction::Unspecified => Err("nothing is asked of a share of a restore".to_owned()),
        });
        answered.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}
