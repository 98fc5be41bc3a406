//! `trefoil snapshot`: snapshots on every node.

mod export;

use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use trefoil_client::SnapshotOf;
use trefoil_proto::v1::{NodeSnapshots, Snapshot, SnapshotCause};

use super::error::{Error, Result};
use super::output::{Align, bytes};
use super::table_name::TableName;
use super::{Global, output};

/// Makes, lists and removes snapshots on every node, and reads the files of one.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Make a snapshot on every node; what was acknowledged before is in it
    Create(Create),
    /// Show the snapshots of every node
    List,
    /// Remove a snapshot from every node that has it
    Remove(Remove),
    /// Print the rows of a table from the directories of snapshots, without a cluster
    Export(export::Export),
}

/// Makes a snapshot.
#[derive(Debug, Args)]
pub struct Create {
    /// What to call it: anything of 1 to 255 bytes without control characters
    name: String,
    /// Only the tables of this keyspace
    #[arg(long, value_name = "KS", conflicts_with = "table")]
    keyspace: Option<String>,
    /// Only this table
    #[arg(long, value_name = "KS.TABLE")]
    table: Option<TableName>,
}

/// Removes a snapshot.
#[derive(Debug, Args)]
pub struct Remove {
    /// Its name or id
    name: String,
}

impl SnapshotCommand {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        match self {
            SnapshotCommand::Create(create) => create.run(global).await,
            SnapshotCommand::List => list(global).await,
            SnapshotCommand::Remove(remove) => remove.run(global).await,
            SnapshotCommand::Export(export) => export.run(global),
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
        let nodes = global.connect().await?.create_snapshot(&self.name, of).await?;
        tell(&nodes, global, |snapshots| match snapshots {
            [made] => format!("{} files, {}, in snapshots/{}", made.files, bytes(made.bytes), id(&made.id)),
            _ => "made".to_owned(),
        })
    }
}

impl Remove {
    async fn run(self, global: &Global) -> Result<()> {
        let nodes = global.connect().await?.remove_snapshot(&self.name).await?;
        tell(&nodes, global, |removed| if removed.is_empty() { "had none" } else { "removed" }.to_owned())?;
        if nodes.iter().all(|node| node.snapshots.is_empty()) {
            return Err(Error::NoSnapshot { name: self.name });
        }
        Ok(())
    }
}

async fn list(global: &Global) -> Result<()> {
    let nodes = global.connect().await?.snapshots().await?;
    if global.json {
        return tell(&nodes, global, |_| String::new());
    }
    let columns = [
        ("node", Align::Right),
        ("name", Align::Left),
        ("made", Align::Left),
        ("cause", Align::Left),
        ("tables", Align::Left),
        ("files", Align::Right),
        ("size", Align::Right),
        ("id", Align::Left),
    ];
    let rows = nodes.iter().flat_map(|node| node.snapshots.iter().map(|snapshot| cells(node.node, snapshot)));
    output::line(&output::table(&columns, rows.collect()))?;
    for node in nodes.iter().filter(|node| node.error.is_empty()) {
        output::line(&format!("node {}: {} held by snapshots alone", node.node, bytes(node.only_bytes)))?;
    }
    let failed: Vec<NodeSnapshots> = nodes.iter().filter(|node| !node.error.is_empty()).cloned().collect();
    failed.iter().try_for_each(|node| output::line(&format!("node {}: {}", node.node, node.error)))?;
    outcome(&nodes)
}

/// A line for each node; `done` words what one has done.
fn tell(nodes: &[NodeSnapshots], global: &Global, done: impl Fn(&[Snapshot]) -> String) -> Result<()> {
    for node in nodes {
        output::line(&if global.json {
            node_json(node).to_string()
        } else if node.error.is_empty() {
            format!("node {}: {}", node.node, done(&node.snapshots))
        } else {
            format!("node {}: {}", node.node, node.error)
        })?;
    }
    outcome(nodes)
}

fn outcome(nodes: &[NodeSnapshots]) -> Result<()> {
    let failed = nodes.iter().filter(|node| !node.error.is_empty()).count();
    if failed > 0 { Err(Error::Nodes { failed, asked: nodes.len() }) } else { Ok(()) }
}

fn cells(node: u32, snapshot: &Snapshot) -> Vec<String> {
    if !snapshot.damage.is_empty() {
        let mut cells = vec![node.to_string(), snapshot.damage.clone()];
        cells.extend(["-"; 5].map(str::to_owned));
        cells.push(id(&snapshot.id));
        return cells;
    }
    let tables: Vec<String> =
        snapshot.tables.iter().map(|table| format!("{}.{}", table.keyspace, table.name)).collect();
    let shown = if tables.len() > 3 { format!("{} tables", tables.len()) } else { tables.join(" ") };
    vec![
        node.to_string(),
        snapshot.name.clone(),
        time(snapshot.made_at_us),
        cause(snapshot.cause()).to_owned(),
        shown,
        snapshot.files.to_string(),
        bytes(snapshot.bytes),
        id(&snapshot.id),
    ]
}

fn node_json(node: &NodeSnapshots) -> Json {
    json!({
        "node": node.node,
        "error": (!node.error.is_empty()).then_some(&node.error),
        "snapshots": node.snapshots.iter().map(snapshot_json).collect::<Vec<_>>(),
        "only_bytes": node.only_bytes,
    })
}

fn snapshot_json(snapshot: &Snapshot) -> Json {
    if !snapshot.damage.is_empty() {
        return json!({ "id": id(&snapshot.id), "damage": snapshot.damage });
    }
    let tables = snapshot.tables.iter().map(|table| {
        json!({ "id": id(&table.id), "keyspace": table.keyspace, "table": table.name, "version": table.version })
    });
    json!({
        "id": id(&snapshot.id),
        "name": snapshot.name,
        "made_at_us": snapshot.made_at_us,
        "cause": cause(snapshot.cause()),
        "tables": tables.collect::<Vec<_>>(),
        "files": snapshot.files,
        "bytes": snapshot.bytes,
    })
}

fn cause(cause: SnapshotCause) -> &'static str {
    match cause {
        SnapshotCause::Operator => "asked for",
        SnapshotCause::BeforeDrop => "dropped",
        SnapshotCause::BeforeTruncate => "truncated",
        SnapshotCause::Backup => "backup",
        SnapshotCause::BeforeRebuild => "before rebuild",
        SnapshotCause::Unspecified => "unknown",
    }
}

fn id(bytes: &[u8]) -> String {
    uuid::Uuid::from_slice(bytes).map_or_else(|_| "unknown".to_owned(), |id| id.to_string())
}

/// To the second, in UTC.
fn time(us: i64) -> String {
    let second = us.div_euclid(1_000_000);
    jiff::Timestamp::from_second(second).map_or_else(|_| us.to_string(), |time| time.to_string())
}
