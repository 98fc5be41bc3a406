//! What a node sees to beside its own data: backups that are due, backups whose driver is gone, and what is left of those that
//! are over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tonic::Status;
use trefoil::backup::{Intent, Scope};
use trefoil::model::{KeyspaceId, NodeId, Stamp, TableId};
use trefoil::snapshot::Cause;
use trefoil_proto::convert::schema as convert;
use trefoil_proto::v1;
use trefoil_proto::v1::backup_call::Call;
use uuid::Uuid;

use super::driver::{drive, driven_every, uuid_bytes};
use super::part::Stage;
use super::{Archive, JobError, NewJob, PartProgress, Trouble, files, log};
use crate::clock;
use crate::coordinate::Shared;
use crate::peer_rpc::PeerRpc;

/// From one look at all jobs to the next, at most.
const LOOK_AT_JOBS: Duration = Duration::from_secs(30);

/// From one backup that is due to the next try, if it failed.
const DUE_AGAIN: Duration = Duration::from_secs(3_600);

/// What a node needs to see to backups.
pub struct Crew {
    pub(super) shared: Arc<Shared>,
    pub(super) rpc: Arc<dyn PeerRpc>,
    pub(super) archive: Arc<Archive>,
    driving: Mutex<BTreeSet<Uuid>>,
}

/// Begins everything that goes on until [`Archive::stop`].
pub fn run(crew: &Arc<Crew>) {
    let archive = &crew.archive;
    let store = crew.shared.replica.store();
    archive.start(files::run(archive.clone(), store.clone()));
    archive.start(log::run(archive.clone(), store.clone()));
    archive.start(keep(crew.clone()));
}

async fn keep(crew: Arc<Crew>) {
    let every = LOOK_AT_JOBS.min(crew.archive.settings.log_every);
    loop {
        match crew.look_at_jobs().await {
            Ok(()) => crew.archive.succeeded("a look at backups"),
            Err(error) => crew.archive.failed("a look at backups", error.to_string()),
        }
        tokio::time::sleep(every).await;
    }
}

impl Crew {
    /// The crew of a node.
    pub fn new(shared: Arc<Shared>, rpc: Arc<dyn PeerRpc>, archive: Arc<Archive>) -> Crew {
        Crew { shared, rpc, archive, driving: Mutex::default() }
    }

    /// The node's share of the archive.
    pub fn archive(&self) -> &Arc<Archive> {
        &self.archive
    }

    pub(super) fn own(&self) -> NodeId {
        self.archive.identity.node
    }

    /// Begins a backup, which this node sees to.
    pub async fn begin(self: &Arc<Self>, job: NewJob) -> Result<Intent, JobError> {
        let intent = self.archive.announce(job).await?;
        self.drive(intent.backup);
        Ok(intent)
    }

    /// Sees to a backup, unless it does already.
    fn drive(self: &Arc<Self>, backup: Uuid) {
        if !self.driving.lock().insert(backup) {
            return;
        }
        let crew = self.clone();
        self.archive.start(async move {
            drive(crew.clone(), backup).await;
            crew.driving.lock().remove(&backup);
        });
    }

    /// What this node answers to a question about its part.
    pub async fn answer(&self, call: v1::BackupCall) -> Result<v1::BackupPart, Status> {
        let backup = Uuid::from_slice(&call.backup).map_err(|_| Status::invalid_argument("the backup has no id"))?;
        let progress = match call.call {
            Some(Call::Make(make)) => {
                self.archive.want(Stamp(make.cut_us));
                Some(self.archive.part(&self.shared, backup, scope(&make)?))
            }
            Some(Call::Tell(_)) => self.archive.part_progress(backup),
            Some(Call::Drop(_)) => {
                let dropped = self.archive.drop_part(&self.shared, backup).await;
                dropped.map_err(|error| Status::unavailable(error.to_string()))?;
                None
            }
            None => return Err(Status::unimplemented("the question is empty or of a later build")),
        };
        Ok(self.told(progress))
    }

    fn told(&self, progress: Option<PartProgress>) -> v1::BackupPart {
        let stage = progress.as_ref().map_or(v1::BackupPartStage::Unspecified, |progress| match progress.stage {
            Stage::Working => v1::BackupPartStage::Working,
            Stage::Ready => v1::BackupPartStage::Ready,
            Stage::Failed => v1::BackupPartStage::Failed,
        });
        let PartProgress { trouble, files, files_done, bytes, bytes_done, .. } = progress.unwrap_or_default();
        let log_told_us = self.archive.end().map_or(0, |end| end.told.0);
        v1::BackupPart {
            node: self.own().0,
            stage: stage.into(),
            trouble,
            files,
            files_done,
            bytes,
            bytes_done,
            log_told_us,
        }
    }

    /// What every node that is seen alive tells of its part of a backup.
    pub async fn tell_parts(&self, backup: Uuid) -> Vec<v1::BackupPart> {
        let call = v1::BackupCall { backup: uuid_bytes(backup), call: Some(Call::Tell(v1::TellPart {})) };
        let alive: Vec<NodeId> = self.shared.peers.alive().iter().copied().collect();
        let told = futures_util::future::join_all(alive.iter().map(|node| self.ask(*node, &call))).await;
        told.into_iter().flatten().collect()
    }

    async fn look_at_jobs(self: &Arc<Self>) -> Result<(), JobError> {
        let index = self.archive.index().await?;
        let intents = self.archive.intents().await?;
        for intent in intents.iter().filter(|intent| !intent.phase.is_over()) {
            if self.is_to_be_driven_here(intent) && self.take_over(intent).await? {
                self.drive(intent.backup);
            }
        }
        self.clear_away().await?;
        let newest = index.entries.iter().filter(|entry| entry.scope == Scope::All).map(|entry| entry.began_at).max();
        if self.is_first() && self.is_due(newest, &intents) {
            tracing::info!("a backup is due");
            let job = NewJob { name: String::new(), tag: "scheduled".to_owned(), scope: Scope::All };
            self.begin(job).await?;
        }
        Ok(())
    }

    /// Whether this is the node that sees to what nobody else does.
    fn is_first(&self) -> bool {
        self.shared.peers.alive().first() == Some(&self.own())
    }

    fn is_to_be_driven_here(&self, intent: &Intent) -> bool {
        if intent.driver == self.own() {
            return !self.driving.lock().contains(&intent.backup);
        }
        let silent_us = clock::wall_us().saturating_sub(intent.driven_at.0);
        let is_silent = silent_us > driven_every(&self.archive.settings).as_micros() as i64 * 2;
        is_silent && self.is_first() && !self.shared.peers.alive().contains(&intent.driver)
    }

    /// Becomes the driver, unless somebody else has become it meanwhile.
    async fn take_over(&self, intent: &Intent) -> Result<bool, JobError> {
        let own = self.own();
        let changed = self.archive.change(intent.backup, |found| {
            let is_as_before = found.driver == intent.driver && found.driven_at == intent.driven_at;
            if is_as_before {
                (found.driver, found.driven_at) = (own, Stamp(clock::wall_us()));
            }
            is_as_before
        });
        match changed.await {
            Ok(found) => {
                tracing::info!(backup = %intent.backup, before = intent.driver.0, "this node sees to a backup from now on");
                Ok(found.driver == own)
            }
            Err(JobError::Over(..) | JobError::Unknown(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn is_due(&self, newest: Option<Stamp>, intents: &[Intent]) -> bool {
        let Some(every) = self.archive.settings.every else { return false };
        let now_us = clock::wall_us();
        let within = |at: Stamp, time: Duration| now_us.saturating_sub(at.0) < time.as_micros() as i64;
        let is_under_way = |intent: &&Intent| {
            intent.scope == Scope::All && (!intent.phase.is_over() || within(intent.began_at, every.min(DUE_AGAIN)))
        };
        !newest.is_some_and(|at| within(at, every)) && !intents.iter().any(|intent| is_under_way(&intent))
    }

    /// Snapshots of backups that are over go, if this node was not told.
    async fn clear_away(&self) -> Result<(), JobError> {
        let list = self.shared.replica.store().snapshots();
        for snapshot in list.whole.values().filter(|snapshot| snapshot.cause == Cause::Backup) {
            let Some(backup) = snapshot.name.strip_prefix("backup-").and_then(|id| Uuid::parse_str(id).ok()) else {
                continue;
            };
            // Asked anew: it may have been begun a moment ago.
            if self.archive.intent(backup).await?.is_some_and(|(intent, _)| !intent.phase.is_over()) {
                continue;
            }
            if let Err(error) = self.archive.drop_part(&self.shared, backup).await {
                tracing::warn!(%error, %backup, "the snapshot of a backup that is over is still there");
            }
        }
        Ok(())
    }
}

fn scope(make: &v1::MakePart) -> Result<Scope, Status> {
    match (make.keyspace, make.table.is_empty()) {
        (Some(keyspace), _) => Ok(Scope::Keyspace(KeyspaceId(keyspace))),
        (None, true) => Ok(Scope::All),
        (None, false) => {
            let id: Result<TableId, _> = convert::table_id_to_model(&make.table);
            Ok(Scope::Table(id.map_err(|invalid| v1::Error::invalid(invalid).into_status())?))
        }
    }
}

impl From<JobError> for Trouble {
    fn from(error: JobError) -> Trouble {
        Trouble::Intent(error.to_string())
    }
}
