//! Restores of tables from backups.

use std::time::Duration;

use tonic::Request;
use tonic::transport::Channel;
use trefoil_proto::MESSAGE_BYTES_MAX;
use trefoil_proto::v1::restore_client::RestoreClient;
use trefoil_proto::v1::{
    CancelRestoreRequest, RestoreBegan, RestorePlan, RestoreProgress, RestoreRequest, RestoreStatusRequest,
};
use uuid::Uuid;

use crate::client::Client;
use crate::error::{Error, Result};

/// A plan looks at every object of a backup.
const PLAN_TIMEOUT: Duration = Duration::from_secs(600);

/// Everything else waits for all nodes at most.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

impl Client {
    /// What a restore would do; nothing is made.
    pub async fn plan_restore(&self, asked: RestoreRequest) -> Result<RestorePlan> {
        let response = self.restorer().await?.plan_restore(request(asked, PLAN_TIMEOUT)).await;
        response.map(tonic::Response::into_inner).map_err(|status| Error::from_status(&status))
    }

    /// Begins a restore. It goes on by itself; it is sent once only: after an unknown outcome look with [`Client::restores`].
    pub async fn run_restore(&self, asked: RestoreRequest) -> Result<RestoreBegan> {
        let response = self.restorer().await?.run_restore(request(asked, PLAN_TIMEOUT)).await;
        response.map(tonic::Response::into_inner).map_err(|status| Error::from_status(&status))
    }

    /// The restores that are under way, or the one that is named if it is.
    pub async fn restores(&self, restore: Option<Uuid>) -> Result<Vec<RestoreProgress>> {
        let restore = restore.map(|restore| restore.as_bytes().to_vec().into()).unwrap_or_default();
        let asked = RestoreStatusRequest { restore };
        let response = self.restorer().await?.restore_status(request(asked, CALL_TIMEOUT)).await;
        response.map(|response| response.into_inner().restores).map_err(|status| Error::from_status(&status))
    }

    /// Gives a restore up: what it has made goes.
    pub async fn cancel_restore(&self, restore: Uuid) -> Result<()> {
        let asked = CancelRestoreRequest { restore: restore.as_bytes().to_vec().into() };
        let response = self.restorer().await?.cancel_restore(request(asked, CALL_TIMEOUT)).await;
        response.map(drop).map_err(|status| Error::from_status(&status))
    }

    async fn restorer(&self) -> Result<RestoreClient<Channel>> {
        Ok(RestoreClient::new(self.any_channel().await?).max_decoding_message_size(MESSAGE_BYTES_MAX))
    }
}

fn request<T>(message: T, timeout: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(timeout);
    request
}
