//! Backups of the cluster: jobs, and where they go.

use bytes::Bytes;
use tonic::transport::Channel;
use trefoil_proto::v1::backup_client::BackupClient;
use trefoil_proto::v1::{
    BackupJob, BackupLocation, BackupStatusRequest, CancelBackupRequest, CompleteBackup, CreateBackupRequest,
    GetBackupLocationRequest, ListBackupsRequest, PauseBackupRequest, ResumeBackupRequest,
};
use uuid::Uuid;

use crate::admin::{SnapshotOf, request, table_ref};
use crate::client::Client;
use crate::error::{Error, Result};

impl Client {
    /// Begins a backup of `keyspace.table`, of a keyspace, or of everything. Answers at once: [`Client::backup_status`] tells when
    /// it is complete.
    pub async fn create_backup(&self, name: &str, tag: &str, of: SnapshotOf<'_>) -> Result<BackupJob> {
        let (keyspace, table) = match of {
            SnapshotOf::All => (String::new(), None),
            SnapshotOf::Keyspace(name) => (name.to_owned(), None),
            SnapshotOf::Table(name) => (String::new(), Some(table_ref(name))),
        };
        let asked = CreateBackupRequest { name: name.to_owned(), tag: tag.to_owned(), keyspace, table };
        answer(self.backups().await?.create_backup(request(asked)).await)
    }

    /// Backups under way and those that ended lately, or the one that is named.
    pub async fn backup_status(&self, backup: Option<Uuid>) -> Result<Vec<BackupJob>> {
        let asked = BackupStatusRequest { backup: backup.map(id).unwrap_or_default() };
        answer(self.backups().await?.backup_status(request(asked)).await).map(|status| status.jobs)
    }

    /// Lets a backup wait.
    pub async fn pause_backup(&self, backup: Uuid) -> Result<BackupJob> {
        answer(self.backups().await?.pause_backup(request(PauseBackupRequest { backup: id(backup) })).await)
    }

    /// Lets it go on.
    pub async fn resume_backup(&self, backup: Uuid) -> Result<BackupJob> {
        answer(self.backups().await?.resume_backup(request(ResumeBackupRequest { backup: id(backup) })).await)
    }

    /// Gives it up.
    pub async fn cancel_backup(&self, backup: Uuid) -> Result<BackupJob> {
        answer(self.backups().await?.cancel_backup(request(CancelBackupRequest { backup: id(backup) })).await)
    }

    /// All complete backups, the oldest first.
    pub async fn backups_complete(&self) -> Result<Vec<CompleteBackup>> {
        let listed = self.backups().await?.list_backups(request(ListBackupsRequest {})).await;
        answer(listed).map(|listed| listed.backups)
    }

    /// Where the bucket of the cluster is.
    pub async fn backup_location(&self) -> Result<BackupLocation> {
        answer(self.backups().await?.get_backup_location(request(GetBackupLocationRequest {})).await)
    }

    async fn backups(&self) -> Result<BackupClient<Channel>> {
        Ok(BackupClient::new(self.any_channel().await?).max_decoding_message_size(trefoil_proto::MESSAGE_BYTES_MAX))
    }
}

fn id(backup: Uuid) -> Bytes {
    Bytes::copy_from_slice(backup.as_bytes())
}

fn answer<T>(answered: Result<tonic::Response<T>, tonic::Status>) -> Result<T> {
    answered.map(tonic::Response::into_inner).map_err(|status| Error::from_status(&status))
}
