//! The service `Restore`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use prost::Message;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tonic::{Code, Request, Response, Status};
use trefoil::metadata::Entry;
use trefoil::model::NodeId;
use trefoil_proto::v1;
use trefoil_proto::v1::restore_server::Restore;
use trefoil_s3::{Limits, ObjectStore, S3};
use uuid::Uuid;

use super::{Control, schema};
use crate::restore::{Plan, call, failed, id, invalid, location, place, plan};

/// How long the metadata log may take to decide.
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the nodes seen alive may take to apply what was decided.
const APPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The service.
pub(super) struct RestoreService {
    control: Arc<Control>,
}

impl RestoreService {
    pub(super) fn new(control: Arc<Control>) -> RestoreService {
        RestoreService { control }
    }

    async fn plan(&self, request: v1::RestoreRequest) -> Result<Plan, v1::Error> {
        let own = || self.control.crew().and_then(|crew| crew.archive().location()).map(place);
        let place = request.place.clone().or_else(own).ok_or_else(|| {
            invalid("this cluster has no [backup] settings: name the bucket that it is to be restored from")
        })?;
        let bucket: Arc<dyn ObjectStore> =
            Arc::new(S3::connect(location(&place), Limits::default()).await.map_err(failed)?);
        // States of the cluster are decoded, and thousands of names compared: not on a thread that serves.
        let (state, runtime) = (self.control.state(), Handle::current());
        let planned = spawn_blocking(move || runtime.block_on(plan(bucket, place, request, state))).await;
        planned.unwrap_or_else(|error| Err(v1::Error::new(Code::Internal, error.to_string(), v1::Outcome::NotApplied)))
    }

    async fn progress(&self, restore: Uuid) -> Option<v1::RestoreProgress> {
        let state = self.control.state();
        let known = state.restores().get(&restore)?;
        let nodes: Vec<NodeId> = state.ring().nodes().map(|node| node.id).collect();
        let look = |node: &NodeId| self.control.share(*node, call(restore, v1::RestoreAction::Look, None));
        let shares = join_all(nodes.iter().map(look)).await;
        let shares = nodes.iter().zip(shares).map(|(node, share)| match share {
            Ok(share) => v1::NodeRestore { node: node.0, share: Some(share), error: String::new() },
            Err(error) => v1::NodeRestore { node: node.0, share: None, error },
        });
        let tables = known.tables.iter().filter_map(|id| {
            let table = state.table(*id)?;
            Some(format!("{}.{}", state.keyspace(table.keyspace)?.name, table.name))
        });
        let record = v1::RestoreRecord::decode(known.plan.clone()).unwrap_or_default();
        Some(v1::RestoreProgress {
            restore: Bytes::copy_from_slice(restore.as_bytes()),
            tables: tables.collect(),
            nodes: shares.collect(),
            began_us: record.began_us,
        })
    }
}

#[tonic::async_trait]
impl Restore for RestoreService {
    async fn plan_restore(&self, request: Request<v1::RestoreRequest>) -> Result<Response<v1::RestorePlan>, Status> {
        let planned = self.plan(request.into_inner()).await.map_err(v1::Error::into_status)?;
        Ok(Response::new(planned.told))
    }

    async fn run_restore(&self, request: Request<v1::RestoreRequest>) -> Result<Response<v1::RestoreBegan>, Status> {
        let planned = self.plan(request.into_inner()).await.map_err(v1::Error::into_status)?;
        let restore = planned.begun.restore;
        let proposed = self.control.log().propose(Entry::RestoreBegun(planned.begun), PROPOSE_TIMEOUT).await;
        let proposed = proposed.map_err(|error| schema::refused(error, &self.control.log().state()).into_status())?;
        // Whoever does not know of it yet is told by the driver later.
        self.control.applied_everywhere(proposed.epoch, APPLY_TIMEOUT).await;
        let restore = Bytes::copy_from_slice(restore.as_bytes());
        Ok(Response::new(v1::RestoreBegan { restore, plan: Some(planned.told) }))
    }

    async fn restore_status(
        &self,
        request: Request<v1::RestoreStatusRequest>,
    ) -> Result<Response<v1::RestoreStatusResponse>, Status> {
        let asked = request.into_inner().restore;
        let wanted: Vec<Uuid> = if asked.is_empty() {
            self.control.state().restores().keys().copied().collect()
        } else {
            vec![id("restore", &asked).map_err(v1::Error::into_status)?]
        };
        let state = self.control.state();
        if wanted.iter().any(|restore| !state.restores().contains_key(restore)) {
            // Whoever hears that it is over finds its tables open on every node.
            self.control.applied_everywhere(state.epoch(), APPLY_TIMEOUT).await;
        }
        let found = join_all(wanted.into_iter().map(|restore| self.progress(restore))).await;
        Ok(Response::new(v1::RestoreStatusResponse { restores: found.into_iter().flatten().collect() }))
    }

    async fn cancel_restore(
        &self,
        request: Request<v1::CancelRestoreRequest>,
    ) -> Result<Response<v1::CancelRestoreResponse>, Status> {
        let restore = id("restore", &request.into_inner().restore).map_err(v1::Error::into_status)?;
        if !self.control.state().restores().contains_key(&restore) {
            let text = "there is no such restore under way";
            return Err(v1::Error::not_found(v1::InvalidDetail::new(text)).into_status());
        }
        let proposed = self.control.log().propose(Entry::RestoreGivenUp(restore), PROPOSE_TIMEOUT).await;
        let proposed = proposed.map_err(|error| schema::refused(error, &self.control.log().state()).into_status())?;
        self.control.applied_everywhere(proposed.epoch, APPLY_TIMEOUT).await;
        Ok(Response::new(v1::CancelRestoreResponse {}))
    }
}
