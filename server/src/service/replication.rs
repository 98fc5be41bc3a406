//! What replicas ask each other about what they have.

use bytes::Bytes;
use prost::Message;
use tonic::Status;
use trefoil_proto::v1;
use trefoil_proto::v1::replication_call::Call;

use super::Control;

impl Control {
    /// Answers another node, which has sent a [`v1::ReplicationCall`].
    pub(super) async fn answer_replication(&self, body: Bytes) -> Result<Bytes, Status> {
        let call = v1::ReplicationCall::decode(body).map_err(|error| Status::invalid_argument(error.to_string()))?;
        match call.call {
            Some(Call::Fetch(fetch)) => {
                let found = self.shared().replication.found(fetch).await;
                let found = found.map_err(|error| Status::unavailable(error.to_string()))?;
                Ok(found.encode_to_vec().into())
            }
            None => Err(Status::unimplemented("the question is empty or of a later build")),
        }
    }
}
