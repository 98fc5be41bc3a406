//! `trefoil backup`: backups of the cluster to the bucket that its settings name, and what is read and done straight there.

#[cfg(feature = "backup")]
mod bucket;
#[cfg(feature = "backup")]
mod export;
mod job;
#[cfg(feature = "backup")]
mod list;
#[cfg(feature = "backup")]
mod tend;

use clap::{Args, Subcommand};
use trefoil_client::SnapshotOf;
use uuid::Uuid;

use super::Global;
use super::error::Result;
use super::table_name::TableName;

/// Makes backups of the cluster, and sees to those under way.
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Begin a backup: every node uploads what the bucket lacks
    Create(Create),
    /// Show backups under way and those that ended lately
    Status(Status),
    /// Let a backup wait
    Pause(Named),
    /// Let it go on
    Resume(Named),
    /// Give a backup up
    Cancel(Named),
    /// Show the complete backups in the bucket
    #[cfg(feature = "backup")]
    List(list::List),
    /// Show what a backup holds
    #[cfg(feature = "backup")]
    Show(list::Show),
    /// Look whether a backup is whole
    #[cfg(feature = "backup")]
    Verify(tend::VerifyBackup),
    /// Remove what no kept backup needs
    #[cfg(feature = "backup")]
    Prune(tend::PruneBackups),
    /// Copy all backups to a second bucket
    #[cfg(feature = "backup")]
    Mirror(tend::Mirror),
    /// Print the rows of a table as of a time
    #[cfg(feature = "backup")]
    Export(export::ExportBackup),
    /// Print the row of a key as of a time
    #[cfg(feature = "backup")]
    Get(export::GetBackup),
}

/// Begins a backup.
#[derive(Debug, Args)]
pub struct Create {
    /// What to call it
    #[arg(long, default_value = "")]
    name: String,
    /// What it is kept for; `trefoil backup prune` can keep by tag
    #[arg(long, default_value = "")]
    tag: String,
    /// Only the tables of this keyspace
    #[arg(long, value_name = "KS", conflicts_with = "table")]
    keyspace: Option<String>,
    /// Only this table
    #[arg(long, value_name = "KS.TABLE")]
    table: Option<TableName>,
    /// Answer only once it is complete, and fail if it fails
    #[arg(long)]
    wait: bool,
}

/// Shows backups.
#[derive(Debug, Args)]
pub struct Status {
    /// Only the one with this id
    backup: Option<Uuid>,
}

/// Names a backup.
#[derive(Debug, Args)]
pub struct Named {
    /// Its id
    backup: Uuid,
}

impl BackupCommand {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        match self {
            BackupCommand::Create(create) => create.run(global).await,
            BackupCommand::Status(Status { backup }) => {
                let jobs = global.connect().await?.backup_status(backup).await?;
                job::show(&jobs, global)
            }
            BackupCommand::Pause(Named { backup }) => {
                job::show(&[global.connect().await?.pause_backup(backup).await?], global)
            }
            BackupCommand::Resume(Named { backup }) => {
                job::show(&[global.connect().await?.resume_backup(backup).await?], global)
            }
            BackupCommand::Cancel(Named { backup }) => {
                job::show(&[global.connect().await?.cancel_backup(backup).await?], global)
            }
            #[cfg(feature = "backup")]
            BackupCommand::List(list) => list.run(global).await,
            #[cfg(feature = "backup")]
            BackupCommand::Show(show) => show.run(global).await,
            #[cfg(feature = "backup")]
            BackupCommand::Verify(verify) => verify.run(global).await,
            #[cfg(feature = "backup")]
            BackupCommand::Prune(prune) => prune.run(global).await,
            #[cfg(feature = "backup")]
            BackupCommand::Mirror(mirror) => mirror.run(global).await,
            #[cfg(feature = "backup")]
            BackupCommand::Export(export) => export.run(global).await,
            #[cfg(feature = "backup")]
            BackupCommand::Get(get) => get.run(global).await,
        }
    }
}

impl Create {
    async fn run(self, global: &Global) -> Result<()> {
        let table = self.table.map(|table| table.to_string());
        let of = match (&self.keyspace, &table) {
            (Some(keyspace), _) => SnapshotOf::Keyspace(keyspace),
            (None, Some(table)) => SnapshotOf::Table(table),
            (None, None) => SnapshotOf::All,
        };
        let client = global.connect().await?;
        let begun = client.create_backup(&self.name, &self.tag, of).await?;
        if self.wait { job::wait(&client, &begun, global).await } else { job::show(&[begun], global) }
    }
}
