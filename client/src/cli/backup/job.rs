//! Backups under way, as they are shown and waited for.

use std::time::Duration;

use serde_json::{Value as Json, json};
use trefoil_client::Client;
use trefoil_proto::v1::{BackupJob, BackupPart, BackupPartStage, BackupPhase};
use uuid::Uuid;

use super::super::error::{Error, Result};
use super::super::output::{Align, bytes};
use super::super::{Global, output};

/// From one question to the next while a backup is waited for.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Shows them: a line for each, and one for each node of those under way.
pub(super) fn show(jobs: &[BackupJob], global: &Global) -> Result<()> {
    if global.json {
        return jobs.iter().try_for_each(|job| output::line(&as_json(job).to_string()));
    }
    let columns = [
        ("backup", Align::Left),
        ("begun", Align::Left),
        ("of", Align::Left),
        ("name", Align::Left),
        ("tag", Align::Left),
        ("phase", Align::Left),
        ("driver", Align::Right),
        ("why", Align::Left),
    ];
    output::line(&output::table(&columns, jobs.iter().map(cells).collect()))?;
    for part in jobs.iter().flat_map(|job| &job.parts) {
        output::line(&told(part))?;
    }
    Ok(())
}

/// Waits until it is over, and says each change of what it waits for. Failed or cancelled is an error.
pub(super) async fn wait(client: &Client, begun: &BackupJob, global: &Global) -> Result<()> {
    let backup = id(begun);
    let mut told = String::new();
    loop {
        let jobs = client.backup_status(Some(backup)).await?;
        let Some(job) = jobs.first() else { return Err(Error::Backup { backup, reason: "it is gone".to_owned() }) };
        match job.phase() {
            BackupPhase::Complete => return show(&jobs, global),
            BackupPhase::Failed | BackupPhase::Cancelled => {
                let reason = format!("it is {}: {}", phase(job), job.reason);
                return Err(Error::Backup { backup, reason });
            }
            _ if told != job.reason => {
                output::note(&format!("backup {backup} is {}, waiting: {}", phase(job), job.reason));
                told.clone_from(&job.reason);
            }
            _ => {}
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

fn id(job: &BackupJob) -> Uuid {
    Uuid::from_slice(&job.backup).unwrap_or_default()
}

fn phase(job: &BackupJob) -> &'static str {
    match job.phase() {
        BackupPhase::Unspecified => "unknown",
        BackupPhase::Running => "running",
        BackupPhase::Paused => "paused",
        BackupPhase::Cancelled => "cancelled",
        BackupPhase::Failed => "failed",
        BackupPhase::Complete => "complete",
    }
}

fn stage(part: &BackupPart) -> &'static str {
    match part.stage() {
        BackupPartStage::Unspecified => "none",
        BackupPartStage::Working => "working",
        BackupPartStage::Ready => "ready",
        BackupPartStage::Failed => "failed",
    }
}

fn cells(job: &BackupJob) -> Vec<String> {
    vec![
        id(job).to_string(),
        time(job.began_at_us),
        job.scope.clone(),
        job.name.clone(),
        job.tag.clone(),
        phase(job).to_owned(),
        job.driver.to_string(),
        job.reason.clone(),
    ]
}

fn told(part: &BackupPart) -> String {
    let trouble = if part.trouble.is_empty() { String::new() } else { format!(": {}", part.trouble) };
    format!(
        "node {}: part {}, {} of {} files, {} of {}{trouble}",
        part.node,
        stage(part),
        part.files_done,
        part.files,
        bytes(part.bytes_done),
        bytes(part.bytes),
    )
}

fn as_json(job: &BackupJob) -> Json {
    json!({
        "backup": id(job).to_string(),
        "name": job.name,
        "tag": job.tag,
        "scope": job.scope,
        "began_at_us": job.began_at_us,
        "driver": job.driver,
        "driven_at_us": job.driven_at_us,
        "cut_us": (job.cut_us != 0).then_some(job.cut_us),
        "phase": phase(job),
        "reason": (!job.reason.is_empty()).then_some(&job.reason),
        "parts": job.parts.iter().map(part_json).collect::<Vec<_>>(),
    })
}

fn part_json(part: &BackupPart) -> Json {
    json!({
        "node": part.node,
        "stage": stage(part),
        "trouble": (!part.trouble.is_empty()).then_some(&part.trouble),
        "files": part.files,
        "files_done": part.files_done,
        "bytes": part.bytes,
        "bytes_done": part.bytes_done,
        "log_told_us": (part.log_told_us != 0).then_some(part.log_told_us),
    })
}

/// To the second, in UTC.
fn time(us: i64) -> String {
    let second = us.div_euclid(1_000_000);
    jiff::Timestamp::from_second(second).map_or_else(|_| us.to_string(), |time| time.to_string())
}
