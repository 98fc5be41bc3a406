//! `trefoil backup verify`, `prune` and `mirror`: what is done to whole backups, in the bucket.

use clap::Args;
use serde_json::json;
use trefoil::backup::mark::Retention;
use trefoil_s3::Location;
use trefoil_s3::repository::{Prune, Pruned, Repository, Thoroughness};
use uuid::Uuid;

use super::super::error::{Error, Result};
use super::super::output::bytes;
use super::super::progress::Progress;
use super::super::{Global, output};
use super::bucket::{Bucket, connect, now};

const HOUR_US: i64 = 3_600 * 1_000_000;

/// Looks whether a backup is whole: every object there, of its length and hash, the logs without a gap, a quorum of each vnode.
#[derive(Debug, Args)]
pub struct VerifyBackup {
    /// Its id
    backup: Uuid,
    /// Ask only for the lengths of SSTables
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    bucket: Bucket,
}

/// Removes what no kept backup needs. Without --run it only says what would go. What goes is condemned first and removed by a
/// run that comes a day later or after: run it daily.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trefoil backup prune --keep-days 30 --keep-tag yearly
  trefoil backup prune --keep-days 30 --keep-tag yearly --run")]
pub struct PruneBackups {
    /// Keep backups whose cut is not older
    #[arg(long, value_name = "N")]
    keep_days: Option<u32>,
    /// Keep the newest ones
    #[arg(long, value_name = "N")]
    keep_count: Option<u32>,
    /// Keep those with this tag, as of their cuts; may be said more than once
    #[arg(long, value_name = "TAG")]
    keep_tag: Vec<String>,
    /// Nothing younger goes
    #[arg(long, value_name = "HOURS", default_value_t = 48, value_parser = clap::value_parser!(u32).range(25..))]
    grace_h: u32,
    /// Do it
    #[arg(long)]
    run: bool,
    #[command(flatten)]
    bucket: Bucket,
}

/// Copies all backups, and the logs behind them, to a second bucket; what is there already is not copied again.
#[derive(Debug, Args)]
pub struct Mirror {
    /// The second bucket
    #[arg(long, value_name = "BUCKET")]
    to: String,
    /// What all keys there begin with
    #[arg(long, default_value = "", hide_default_value = true, value_name = "PREFIX")]
    to_prefix: String,
    /// The way to its store, if it is not AWS itself
    #[arg(long, value_name = "URL")]
    to_endpoint: Option<String>,
    /// Its region
    #[arg(long, default_value = "us-east-1", value_name = "NAME")]
    to_region: String,
    /// It stands in the path, not in the host
    #[arg(long)]
    to_path_style: bool,
    #[command(flatten)]
    bucket: Bucket,
}

impl VerifyBackup {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let repository = self.bucket.open(global).await?;
        let how = if self.quick { Thoroughness::Lengths } else { Thoroughness::Bytes };
        let progress = Progress::objects();
        let found = repository.verify(self.backup, how, &|done, all| progress.objects_done(done, all)).await?;
        progress.clear();
        for (key, reason) in &found.faults {
            output::line(&if global.json {
                json!({ "object": key, "reason": reason }).to_string()
            } else {
                format!("{key}: {reason}")
            })?;
        }
        let text = format!("{} objects, {}: {} faults", found.objects, bytes(found.bytes), found.faults.len());
        let told = json!({ "objects": found.objects, "bytes": found.bytes, "faults": found.faults.len() });
        output::note(&if global.json { told.to_string() } else { text });
        if found.faults.is_empty() { Ok(()) } else { Err(Error::Faults(found.faults.len())) }
    }
}

impl PruneBackups {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let repository = self.bucket.open(global).await?;
        let retention = Retention { days: self.keep_days, count: self.keep_count, tags: self.keep_tag };
        let prune = Prune { id: Uuid::now_v7(), retention, grace_us: i64::from(self.grace_h) * HOUR_US };
        let found =
            if self.run { repository.prune(&prune, &now).await? } else { repository.look(&prune, now()).await? };
        tell(&found, self.run, global)
    }
}

/// Each backup that goes, then sums.
fn tell(found: &Pruned, run: bool, global: &Global) -> Result<()> {
    let sum =
        |seen: &[trefoil::backup::mark::Seen]| (seen.len() as u64, seen.iter().map(|seen| seen.bytes).sum::<u64>());
    let (unneeded, due) = (sum(&found.marks.unneeded), sum(&found.due));
    if global.json {
        let told = json!({
            "run": run,
            "backups": found.backups.iter().map(Uuid::to_string).collect::<Vec<_>>(),
            "needed": found.marks.needed,
            "young": found.marks.young,
            "unneeded": unneeded,
            "waiting": found.waiting,
            "due": due,
            "removed": found.removed,
            "unfinished_uploads": found.uploads.len(),
            "strangers": found.marks.strangers,
        });
        return output::line(&told.to_string());
    }
    found.backups.iter().try_for_each(|backup| output::line(&format!("backup {backup} goes")))?;
    let lines = [
        ("needed", found.marks.needed),
        ("too young to go", found.marks.young),
        ("unneeded", unneeded),
        ("condemned, and waiting", found.waiting),
        ("may be removed now", due),
        ("removed", found.removed),
    ];
    for (what, (objects, size)) in lines {
        output::line(&format!("{what}: {objects} objects, {}", bytes(size)))?;
    }
    output::line(&format!("unfinished uploads: {}", found.uploads.len()))?;
    found.marks.strangers.iter().try_for_each(|key| output::line(&format!("not ours, left alone: {key}")))?;
    if !run {
        output::note("nothing was done; --run does it");
    }
    Ok(())
}

impl Mirror {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let from = self.bucket.open(global).await?;
        let location = Location {
            endpoint: self.to_endpoint,
            region: self.to_region,
            bucket: self.to,
            prefix: self.to_prefix,
            path_style: self.to_path_style,
        };
        let to = Repository::new(connect(location).await?, from.cluster());
        let progress = Progress::objects();
        let done = from.mirror(&to, &|done, all| progress.objects_done(done, all)).await?;
        progress.clear();
        let (copied, there) = (done.copied, done.there);
        if global.json {
            return output::line(&json!({ "copied": copied, "there": there, "backups": done.backups }).to_string());
        }
        let text = format!("{} backups: {} objects copied, {}", done.backups, copied.0, bytes(copied.1));
        output::line(&format!("{text}; {} were there already, {}", there.0, bytes(there.1)))
    }
}
