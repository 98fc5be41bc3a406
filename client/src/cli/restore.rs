//! `trefoil restore`: bring tables back from a backup.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Value as Json, json};
use trefoil::model::Stamp;
use trefoil_client::Client;
use trefoil_proto::v1::restore_request::{What, When};
use trefoil_proto::v1::{
    BackupPlace, NodeRestore, RestorePlan, RestoreProgress, RestoreRegion, RestoreRequest, RestoreShareState, TableRef,
};
use uuid::Uuid;

use super::error::{Error, Result};
use super::output::{Align, bytes};
use super::progress::Progress;
use super::table_name::TableName;
use super::{Global, moment, output};

/// From one look at a restore to the next.
const LOOK: Duration = Duration::from_millis(500);

/// Brings tables back from a backup. They are open once all nodes have loaded them.
#[derive(Debug, Subcommand)]
pub enum RestoreCommand {
    /// Show what a restore would do; nothing is made
    Plan(Asked),
    /// Restore, and wait until it is done
    Run(Run),
    /// Show how far restores are
    Status(Status),
    /// Give a restore up: what it has made goes
    Cancel(Cancel),
}

/// What is to be restored.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true), group = ArgGroup::new("when"))]
pub struct Asked {
    /// Everything, into a cluster without keyspaces
    #[arg(long, group = "what")]
    all: bool,
    /// One keyspace
    #[arg(long, group = "what", value_name = "KEYSPACE")]
    keyspace: Option<String>,
    /// One table
    #[arg(long, group = "what", value_name = "KEYSPACE.TABLE")]
    table: Option<TableName>,
    /// The name that the table gets, in the same keyspace; without it the one that it had
    #[arg(long = "as", requires = "table", value_name = "NAME")]
    table_as: Option<String>,
    /// As of this moment, inclusive, the whole millisecond unless it is finer: 2026-03-01T12:00:00.250Z, or microseconds since 1970
    #[arg(long, group = "when", value_name = "TIME", value_parser = parse_time)]
    at: Option<i64>,
    /// As of the last moment that the archived logs reach
    #[arg(long, group = "when")]
    latest: bool,
    /// Begin with this backup; without it the newest that fits. Without --at or --latest: as of its cut
    #[arg(long, value_name = "ID")]
    backup: Option<Uuid>,
    /// The cluster that was backed up, if it is another than this one
    #[arg(long, env = "TREFOIL_BACKUP_CLUSTER", value_name = "ID")]
    cluster: Option<Uuid>,
    /// A region that has another name here, and perhaps another number of copies; may be given more than once
    #[arg(long, value_name = "OLD=NEW[:COPIES]", value_parser = parse_region)]
    region: Vec<RestoreRegion>,
    /// Each node fetches at most so much
    #[arg(long, value_name = "MIB_PER_SECOND", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    #[command(flatten)]
    place: Place,
}

/// A bucket, where it is not the one that the cluster backs up to.
#[derive(Debug, Args)]
struct Place {
    /// The bucket, if it is another than the one that the cluster backs up to
    #[arg(long, env = "TREFOIL_BACKUP_BUCKET")]
    bucket: Option<String>,
    /// What all its keys begin with
    #[arg(long, requires = "bucket", env = "TREFOIL_BACKUP_PREFIX", default_value = "")]
    prefix: String,
    /// Where it is reached, if not at AWS
    #[arg(long, requires = "bucket", env = "TREFOIL_BACKUP_ENDPOINT", value_name = "URL", id = "s3_endpoint")]
    s3_endpoint: Option<String>,
    /// The region that its requests are signed for
    #[arg(long, requires = "bucket", env = "TREFOIL_BACKUP_REGION", default_value = "us-east-1", id = "s3_region")]
    s3_region: String,
    /// The bucket stands in the path, not in the host
    #[arg(long, requires = "bucket", env = "TREFOIL_BACKUP_PATH_STYLE")]
    path_style: bool,
}

/// What is to be restored, and whether anybody is asked.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    asked: Asked,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Begin, and do not wait
    #[arg(long)]
    no_wait: bool,
}

/// Which restore.
#[derive(Debug, Args)]
pub struct Status {
    /// The restore; without it all that are under way
    restore: Option<Uuid>,
}

/// Which restore.
#[derive(Debug, Args)]
pub struct Cancel {
    /// The restore
    restore: Uuid,
}

impl RestoreCommand {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        match self {
            RestoreCommand::Plan(asked) => {
                let plan = global.connect().await?.plan_restore(asked.request()).await?;
                if global.json { output::line(&plan_json(&plan).to_string()) } else { show_plan(&plan) }
            }
            RestoreCommand::Run(run) => run.run(global).await,
            RestoreCommand::Status(status) => {
                let restores = global.connect().await?.restores(status.restore).await?;
                show(&restores, global)
            }
            RestoreCommand::Cancel(cancel) => {
                global.connect().await?.cancel_restore(cancel.restore).await?;
                output::line(&if global.json {
                    json!({ "restore": cancel.restore.to_string(), "state": "given up" }).to_string()
                } else {
                    format!("restore {} is given up; what it had made goes", cancel.restore)
                })
            }
        }
    }
}

impl Asked {
    fn request(&self) -> RestoreRequest {
        let what = match (&self.keyspace, &self.table) {
            (Some(keyspace), _) => What::Keyspace(keyspace.clone()),
            (None, Some(table)) => {
                let (keyspace, name) = (table.keyspace.clone(), table.table.clone());
                What::Table(TableRef { keyspace, name, ..TableRef::default() })
            }
            (None, None) => What::All(true),
        };
        let when = match (self.at, self.latest) {
            (Some(at), _) => When::AtUs(at),
            (None, true) => When::Latest(true),
            (None, false) => When::Cut(true),
        };
        let id = |id: Option<Uuid>| id.map(|id| id.as_bytes().to_vec().into()).unwrap_or_default();
        RestoreRequest {
            place: self.place.told(),
            cluster: id(self.cluster),
            backup: id(self.backup),
            when: Some(when),
            what: Some(what),
            table_as: self.table_as.clone().unwrap_or_default(),
            regions: self.region.clone(),
            bytes_per_s: u64::from(self.rate.unwrap_or(0)) << 20,
        }
    }
}

impl Place {
    fn told(&self) -> Option<BackupPlace> {
        Some(BackupPlace {
            bucket: self.bucket.clone()?,
            prefix: self.prefix.clone(),
            endpoint: self.s3_endpoint.clone().unwrap_or_default(),
            region: self.s3_region.clone(),
            path_style: self.path_style,
        })
    }
}

impl Run {
    async fn run(self, global: &Global) -> Result<()> {
        let client = global.connect().await?;
        if !self.yes {
            let plan = client.plan_restore(self.asked.request()).await?;
            show_plan(&plan)?;
            confirm()?;
        }
        let began = client.run_restore(self.asked.request()).await?;
        let restore = Uuid::from_slice(&began.restore).unwrap_or_default();
        if self.no_wait {
            return output::line(&if global.json {
                json!({ "restore": restore.to_string(), "state": "running" }).to_string()
            } else {
                format!("restore {restore} has begun; `trefoil restore status {restore}` says how far it is")
            });
        }
        let tables = began.plan.map(|plan| plan.tables.len()).unwrap_or(0);
        wait(&client, restore).await?;
        output::line(&if global.json {
            json!({ "restore": restore.to_string(), "state": "done", "tables": tables }).to_string()
        } else {
            format!("restore {restore} is done; tables that are open: {tables}")
        })
    }
}

/// Until it is not under way any more.
async fn wait(client: &Client, restore: Uuid) -> Result<()> {
    let progress = Progress::steps();
    let mut told = String::new();
    loop {
        match client.restores(Some(restore)).await {
            Ok(restores) => match restores.first() {
                Some(found) => {
                    let (done, all) = steps(found);
                    progress.steps_done(done, all);
                    let stopped = found.nodes.iter().filter_map(stopped).collect::<Vec<_>>().join("\n");
                    if !stopped.is_empty() && stopped != told {
                        progress.note(&stopped);
                        told = stopped;
                    }
                }
                None => break,
            },
            // A node that restarts is no reason to stop looking.
            Err(error) => progress.note(&format!("the cluster does not say how far it is: {error}")),
        }
        tokio::time::sleep(LOOK).await;
    }
    progress.clear();
    Ok(())
}

fn confirm() -> Result<()> {
    if !io::stdin().is_terminal() {
        return Err(Error::Usage("nobody can be asked here; look at `trefoil restore plan`, then add --yes"));
    }
    let mut stderr = io::stderr();
    let asked = write!(stderr, "Restore? [y/N] ").and_then(|()| stderr.flush());
    asked.map_err(|source| Error::io("write to", "the standard error", source))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|source| Error::io("read from", "the standard input", source))?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(Error::Usage("nothing was done")) }
}

fn show_plan(plan: &RestorePlan) -> Result<()> {
    output::line(&format!("backup     {}, cut at {}", id(&plan.backup), moment::shown(Stamp(plan.cut_us))))?;
    output::line(&format!("as of      {}", moment::shown(Stamp(plan.at_us))))?;
    output::line(&format!("cluster    {}", id(&plan.cluster)))?;
    let made = if plan.keyspaces.is_empty() { "none".to_owned() } else { plan.keyspaces.join(", ") };
    output::line(&format!("keyspaces  to be made: {made}"))?;
    for absent in &plan.absent {
        output::line(&format!("absent     {absent}"))?;
    }
    let columns = [("table", Align::Left), ("becomes", Align::Left), ("files", Align::Right), ("size", Align::Right)];
    let rows = plan.tables.iter().map(|table| {
        vec![
            format!("{}.{}", table.keyspace, table.name),
            format!("{}.{}", table.keyspace, table.name_here),
            table.files.to_string(),
            bytes(table.bytes),
        ]
    });
    output::line(&output::table(&columns, rows.collect()))?;
    output::line(&format!(
        "{} nodes fetch about {} in {} requests, from {} objects; one copy suffices for {} of {} vnodes; about {} s",
        plan.nodes,
        bytes(plan.fetched_bytes),
        plan.requests,
        plan.objects,
        plan.vnodes_by_one_copy,
        plan.vnodes,
        plan.estimated_s
    ))?;
    output::line("nothing that is there is overwritten")
}

fn plan_json(plan: &RestorePlan) -> Json {
    let tables = plan.tables.iter().map(|table| {
        json!({
            "keyspace": table.keyspace, "table": table.name, "as": table.name_here,
            "files": table.files, "bytes": table.bytes,
        })
    });
    json!({
        "backup": id(&plan.backup), "cut_us": plan.cut_us, "at_us": plan.at_us, "cluster": id(&plan.cluster),
        "tables": tables.collect::<Vec<_>>(), "keyspaces": plan.keyspaces, "absent": plan.absent,
        "fetched_bytes": plan.fetched_bytes, "requests": plan.requests, "objects": plan.objects,
        "vnodes": plan.vnodes, "vnodes_by_one_copy": plan.vnodes_by_one_copy,
        "nodes": plan.nodes, "estimated_s": plan.estimated_s,
    })
}

fn show(restores: &[RestoreProgress], global: &Global) -> Result<()> {
    if global.json {
        return restores.iter().try_for_each(|restore| output::line(&progress_json(restore).to_string()));
    }
    if restores.is_empty() {
        return output::line("no restore is under way");
    }
    for restore in restores {
        let (done, all) = steps(restore);
        let began = moment::shown(Stamp(restore.began_us));
        output::line(&format!("restore {}, begun {began}, {done} of {all} steps", id(&restore.restore)))?;
        output::line(&format!("tables  {}", restore.tables.join(", ")))?;
        let columns = [
            ("node", Align::Right),
            ("state", Align::Left),
            ("steps", Align::Right),
            ("fetched", Align::Right),
            ("loaded", Align::Right),
            ("records", Align::Right),
        ];
        output::line(&output::table(&columns, restore.nodes.iter().map(cells).collect()))?;
        restore.nodes.iter().filter_map(stopped).try_for_each(|line| output::line(&line))?;
    }
    Ok(())
}

fn cells(node: &NodeRestore) -> Vec<String> {
    let share = node.share.clone().unwrap_or_default();
    vec![
        node.node.to_string(),
        state(node).to_owned(),
        format!("{}/{}", share.steps_done, share.steps),
        bytes(share.bytes_fetched),
        bytes(share.bytes_loaded),
        share.records.to_string(),
    ]
}

fn progress_json(restore: &RestoreProgress) -> Json {
    let nodes = restore.nodes.iter().map(|node| {
        let share = node.share.clone().unwrap_or_default();
        json!({
            "node": node.node, "state": state(node), "steps": share.steps, "steps_done": share.steps_done,
            "bytes_fetched": share.bytes_fetched, "requests": share.requests, "bytes_loaded": share.bytes_loaded,
            "records": share.records, "error": stopped(node),
        })
    });
    json!({
        "restore": id(&restore.restore), "tables": restore.tables, "began_us": restore.began_us,
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

fn steps(restore: &RestoreProgress) -> (u64, u64) {
    let shares = restore.nodes.iter().filter_map(|node| node.share.as_ref());
    shares.fold((0, 0), |(done, all), share| (done + share.steps_done, all + share.steps))
}

fn state(node: &NodeRestore) -> &'static str {
    match node.share.as_ref().map(|share| share.state()) {
        None => "silent",
        Some(RestoreShareState::Unspecified) => "waiting",
        Some(RestoreShareState::Running) => "loading",
        Some(RestoreShareState::Done) => "done",
        Some(RestoreShareState::Stopped) => "stopped",
    }
}

/// What keeps a node from going on.
fn stopped(node: &NodeRestore) -> Option<String> {
    let error = node.share.as_ref().map_or(&node.error, |share| &share.error);
    (!error.is_empty()).then(|| format!("node {}: {error}", node.node))
}

fn id(bytes: &[u8]) -> String {
    Uuid::from_slice(bytes).map_or_else(|_| "unknown".to_owned(), |id| id.to_string())
}

fn parse_time(text: &str) -> std::result::Result<i64, String> {
    if let Ok(us) = text.parse() {
        return Ok(us);
    }
    moment::time(text).map(|at| at.0)
}

fn parse_region(text: &str) -> std::result::Result<RestoreRegion, String> {
    let wrong = || "it is written OLD=NEW or OLD=NEW:COPIES".to_owned();
    let (old, new) = text.split_once('=').ok_or_else(wrong)?;
    let (new, copies) = match new.split_once(':') {
        Some((new, copies)) => (new, copies.parse().map_err(|_| wrong())?),
        None => (new, 0),
    };
    if old.is_empty() || new.is_empty() {
        return Err(wrong());
    }
    Ok(RestoreRegion { old: old.to_owned(), new: new.to_owned(), copies })
}
