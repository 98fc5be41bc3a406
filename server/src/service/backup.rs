//! The service `Backup`: jobs, and what the bucket holds.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tonic::{Request, Response, Status};
use trefoil::backup::{IndexEntry, Intent, Phase, Scope};
use trefoil::metadata::ClusterState;
use trefoil_proto::v1;
use trefoil_proto::v1::backup_server::Backup;
use uuid::Uuid;

use super::Control;
use crate::backup::{Crew, JobError, NewJob};
use crate::restore::place;

/// Longest name and tag, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The service.
pub(super) struct BackupService {
    control: Arc<Control>,
}

impl BackupService {
    pub(super) fn new(control: Arc<Control>) -> BackupService {
        BackupService { control }
    }

    async fn change(
        &self,
        backup: &Bytes,
        change: impl Fn(&mut Intent) -> bool,
    ) -> Result<Response<v1::BackupJob>, Status> {
        let crew = self.control.backups()?;
        let changed = crew.archive().change(id(backup)?, change).await.map_err(refused)?;
        Ok(Response::new(job(&changed, &self.control.state())))
    }
}

#[tonic::async_trait]
impl Backup for BackupService {
    async fn create_backup(
        &self,
        request: Request<v1::CreateBackupRequest>,
    ) -> Result<Response<v1::BackupJob>, Status> {
        let crew = self.control.backups()?;
        let v1::CreateBackupRequest { name, tag, keyspace, table } = request.into_inner();
        for (what, text) in [("name", &name), ("tag", &tag)] {
            if text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
                let reason =
                    format!("the {what} of a backup has at most {NAME_BYTES_MAX} bytes, and no control characters");
                return Err(v1::Error::invalid(v1::InvalidDetail::new(reason)).into_status());
            }
        }
        let state = self.control.state();
        let scope = scope_named(&state, &keyspace, table.as_ref())?;
        let intent = crew.begin(NewJob { name, tag, scope }).await.map_err(refused)?;
        Ok(Response::new(job(&intent, &state)))
    }

    async fn backup_status(
        &self,
        request: Request<v1::BackupStatusRequest>,
    ) -> Result<Response<v1::BackupStatusResponse>, Status> {
        let crew = self.control.backups()?;
        let named = request.into_inner().backup;
        let named = if named.is_empty() { None } else { Some(id(&named)?) };
        let mut intents = crew.archive().intents().await.map_err(refused)?;
        intents.retain(|intent| named.is_none_or(|named| intent.backup == named));
        if let Some(named) = named.filter(|_| intents.is_empty()) {
            return Err(refused(JobError::Unknown(named)));
        }
        let state = self.control.state();
        let mut jobs = Vec::new();
        for intent in &intents {
            let parts = if intent.phase.is_over() { Vec::new() } else { crew.tell_parts(intent.backup).await };
            jobs.push(v1::BackupJob { parts, ..job(intent, &state) });
        }
        Ok(Response::new(v1::BackupStatusResponse { jobs }))
    }

    async fn pause_backup(&self, request: Request<v1::PauseBackupRequest>) -> Result<Response<v1::BackupJob>, Status> {
        self.change(&request.into_inner().backup, turned(Phase::Paused)).await
    }

    async fn resume_backup(
        &self,
        request: Request<v1::ResumeBackupRequest>,
    ) -> Result<Response<v1::BackupJob>, Status> {
        self.change(&request.into_inner().backup, turned(Phase::Running)).await
    }

    async fn cancel_backup(
        &self,
        request: Request<v1::CancelBackupRequest>,
    ) -> Result<Response<v1::BackupJob>, Status> {
        let cancel = |intent: &mut Intent| {
            (intent.phase, intent.reason) = (Phase::Cancelled, "somebody gave it up".to_owned());
            true
        };
        self.change(&request.into_inner().backup, cancel).await
    }

    async fn list_backups(
        &self,
        _request: Request<v1::ListBackupsRequest>,
    ) -> Result<Response<v1::ListBackupsResponse>, Status> {
        let index = self.control.backups()?.archive().index().await.map_err(refused)?;
        let state = self.control.state();
        let backups = index.entries.iter().map(|entry| complete(entry, &state)).collect();
        Ok(Response::new(v1::ListBackupsResponse { backups }))
    }

    async fn get_backup_location(
        &self,
        _request: Request<v1::GetBackupLocationRequest>,
    ) -> Result<Response<v1::BackupLocation>, Status> {
        let crew = self.control.backups()?;
        let settings = crew.archive().settings();
        let location = crew.archive().location();
        let location = location.ok_or_else(|| Status::unavailable("the bucket is inside this process"))?;
        Ok(Response::new(v1::BackupLocation {
            place: Some(place(location)),
            cluster_id: Bytes::copy_from_slice(self.control.state().cluster().as_bytes()),
            keep_days: settings.keep_days,
            keep_count: settings.keep_count,
            give_up_s: settings.give_up.as_secs(),
        }))
    }
}

impl Control {
    /// Whoever sees to backups.
    fn backups(&self) -> Result<&Arc<Crew>, Status> {
        self.crew().ok_or_else(|| Status::failed_precondition("this node has no section [backup] in its settings"))
    }

    /// Answers another node, which has sent a [`v1::BackupCall`].
    pub(super) async fn answer_backup(&self, body: Bytes) -> Result<Bytes, Status> {
        let call = v1::BackupCall::decode(body).map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(self.backups()?.answer(call).await?.encode_to_vec().into())
    }

    /// What a report says of the archive.
    pub(super) fn report_backup(&self, report: &mut v1::NodeReport) {
        let Some(archive) = self.crew().map(|crew| crew.archive()) else { return };
        let standing = archive.standing();
        report.archive = Some(v1::ArchiveStanding {
            rpo_ms: standing.rpo.map(|rpo| rpo.as_millis() as u64),
            rpo_max_ms: standing.rpo_max.as_millis() as u64,
            newest_age_ms: standing.newest_age.map(|age| age.as_millis() as u64),
            files_waiting: standing.files_waiting,
            troubles: standing.troubles,
            gaps: standing.gaps,
        });
    }
}

/// Has a backup that is not over wait or go on; whether it did not do so already.
fn turned(phase: Phase) -> impl Fn(&mut Intent) -> bool {
    move |intent| std::mem::replace(&mut intent.phase, phase) != phase
}

fn refused(error: JobError) -> Status {
    match error {
        JobError::Bucket(reason) => Status::unavailable(reason),
        JobError::Unknown(_) => v1::Error::not_found(v1::InvalidDetail::new(error.to_string())).into_status(),
        JobError::Over(..) => Status::failed_precondition(error.to_string()),
    }
}

fn id(bytes: &Bytes) -> Result<Uuid, Status> {
    let invalid = || v1::Error::invalid(v1::InvalidDetail::new("the id of a backup has 16 bytes")).into_status();
    Uuid::from_slice(bytes).map_err(|_| invalid())
}

fn scope_named(state: &ClusterState, keyspace: &str, table: Option<&v1::TableRef>) -> Result<Scope, Status> {
    let missing = |detail: v1::InvalidDetail| v1::Error::not_found(detail).into_status();
    match (keyspace, table) {
        ("", None) => Ok(Scope::All),
        (name, None) => match state.keyspace_named(name) {
            Some(keyspace) => Ok(Scope::Keyspace(keyspace.id)),
            None => Err(missing(v1::InvalidDetail::new(format!("there is no keyspace {name}")))),
        },
        ("", Some(v1::TableRef { keyspace, name, .. })) => match state.table_named(keyspace, name) {
            Some(table) => Ok(Scope::Table(table.id)),
            None => Err(missing(v1::InvalidDetail::new("there is no such table").table(keyspace, name))),
        },
        _ => Err(v1::Error::invalid(v1::InvalidDetail::new("a keyspace or a table, not both")).into_status()),
    }
}

/// As people call it, as far as it is still there.
fn scope(scope: Scope, state: &ClusterState) -> String {
    let keyspace_name = |id| state.keyspace(id).map(|keyspace| keyspace.name.clone());
    match scope {
        Scope::All => "everything".to_owned(),
        Scope::Keyspace(id) => format!("keyspace {}", keyspace_name(id).unwrap_or_else(|| id.0.to_string())),
        Scope::Table(id) => match state.tables().find(|table| table.id == id) {
            Some(table) => format!("table {}.{}", keyspace_name(table.keyspace).unwrap_or_default(), table.name),
            None => format!("table {}", id.0),
        },
    }
}

fn job(intent: &Intent, state: &ClusterState) -> v1::BackupJob {
    let phase = match intent.phase {
        Phase::Running => v1::BackupPhase::Running,
        Phase::Paused => v1::BackupPhase::Paused,
        Phase::Cancelled => v1::BackupPhase::Cancelled,
        Phase::Failed => v1::BackupPhase::Failed,
        Phase::Complete => v1::BackupPhase::Complete,
    };
    v1::BackupJob {
        backup: Bytes::copy_from_slice(intent.backup.as_bytes()),
        name: intent.name.clone(),
        tag: intent.tag.clone(),
        scope: scope(intent.scope, state),
        began_at_us: intent.began_at.0,
        driver: intent.driver.0,
        driven_at_us: intent.driven_at.0,
        cut_us: intent.cut.unwrap_or_default().0,
        phase: phase.into(),
        reason: intent.reason.clone(),
        parts: Vec::new(),
    }
}

fn complete(entry: &IndexEntry, state: &ClusterState) -> v1::CompleteBackup {
    v1::CompleteBackup {
        backup: Bytes::copy_from_slice(entry.backup.as_bytes()),
        name: entry.name.clone(),
        tag: entry.tag.clone(),
        scope: scope(entry.scope, state),
        began_at_us: entry.began_at.0,
        cut_us: entry.cut.0,
        bytes: entry.bytes,
        objects: entry.objects,
        absent: entry.absent,
    }
}
