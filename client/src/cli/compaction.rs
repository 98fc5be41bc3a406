//! `trefoil compaction`: what it is doing on every node, and what the files cost.

use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use trefoil_proto::v1::{NodeCompaction, ScrubStatus, TableFiles};

use super::error::{Error, Result};
use super::output::{Align, bytes};
use super::table_name::TableName;
use super::{Global, output};

/// Shows what compaction is doing on every node, what waits for it, and what the files of each table cost.
#[derive(Debug, Args)]
pub struct Compaction {
    #[command(subcommand)]
    command: Option<CompactionCommand>,
}

#[derive(Debug, Subcommand)]
enum CompactionCommand {
    /// Make as few files of a table as there can be, on every node, in the background
    Run(Run),
}

#[derive(Debug, Args)]
struct Run {
    /// The table
    #[arg(value_name = "KS.TABLE")]
    table: TableName,
}

impl Compaction {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let client = global.connect().await?;
        match self.command {
            None => show(&client.compaction().await?, global),
            Some(CompactionCommand::Run(run)) => begun(&client.compact(&run.table.to_string()).await?, global),
        }
    }
}

fn begun(nodes: &[NodeCompaction], global: &Global) -> Result<()> {
    for node in nodes {
        let error = (!node.error.is_empty()).then_some(node.error.as_str());
        output::line(&match global.json {
            true => json!({ "node": node.node, "error": error }).to_string(),
            false => format!("node {}: {}", node.node, error.unwrap_or("begun")),
        })?;
    }
    outcome(nodes)
}

fn show(nodes: &[NodeCompaction], global: &Global) -> Result<()> {
    if global.json {
        nodes.iter().try_for_each(|node| output::line(&node_json(node).to_string()))?;
        return outcome(nodes);
    }
    for node in nodes {
        if !node.error.is_empty() {
            output::line(&format!("node {}: {}", node.node, node.error))?;
            continue;
        }
        let (files, size) = (node.backlog_files, bytes(node.backlog_bytes));
        output::line(&format!("node {}: {} running, backlog {files} files, {size}", node.node, node.running.len()))?;
        for running in &node.running {
            let percent = running.bytes_read.saturating_mul(100) / running.bytes.max(1);
            let (keyspace, table, files) = (&running.keyspace, &running.table, running.files);
            output::line(&format!("  {keyspace}.{table}: {files} files, {}, {percent} % read", bytes(running.bytes)))?;
        }
        node.scrub.iter().try_for_each(|scrub| output::line(&scrub_line(scrub)))?;
    }
    let columns = [
        ("node", Align::Right),
        ("table", Align::Left),
        ("files", Align::Right),
        ("size", Align::Right),
        ("waiting", Align::Right),
        ("aside", Align::Right),
        ("read amp", Align::Right),
        ("write amp", Align::Right),
        ("space amp", Align::Right),
    ];
    let rows: Vec<_> = nodes.iter().flat_map(|node| node.tables.iter().map(|table| cells(node.node, table))).collect();
    if !rows.is_empty() {
        output::line(&output::table(&columns, rows))?;
    }
    outcome(nodes)
}

fn scrub_line(scrub: &ScrubStatus) -> String {
    let ScrubStatus { files, damaged, waiting_files, .. } = scrub;
    let (read, waiting) = (bytes(scrub.bytes), bytes(scrub.waiting_bytes));
    format!("  scrub: {files} files read, {read}, {damaged} of them damaged; {waiting_files} files wait, {waiting}")
}

fn scrub_json(scrub: &ScrubStatus) -> Json {
    json!({
        "files": scrub.files,
        "bytes": scrub.bytes,
        "damaged": scrub.damaged,
        "waiting_files": scrub.waiting_files,
        "waiting_bytes": scrub.waiting_bytes,
    })
}

fn cells(node: u32, table: &TableFiles) -> Vec<String> {
    vec![
        node.to_string(),
        format!("{}.{}", table.keyspace, table.table),
        table.files.to_string(),
        bytes(table.bytes),
        table.waiting_files.to_string(),
        table.aside_files.to_string(),
        table.read_amplification.to_string(),
        format!("{:.1}", table.write_amplification),
        format!("{:.1}", table.space_amplification),
    ]
}

fn node_json(node: &NodeCompaction) -> Json {
    if !node.error.is_empty() {
        return json!({ "node": node.node, "error": node.error });
    }
    let running = node.running.iter().map(|running| {
        json!({
            "keyspace": running.keyspace,
            "table": running.table,
            "files": running.files,
            "bytes": running.bytes,
            "bytes_read": running.bytes_read,
        })
    });
    let tables = node.tables.iter().map(|table| {
        json!({
            "keyspace": table.keyspace,
            "table": table.table,
            "files": table.files,
            "bytes": table.bytes,
            "waiting_files": table.waiting_files,
            "waiting_bytes": table.waiting_bytes,
            "aside_files": table.aside_files,
            "read_amplification": table.read_amplification,
            "write_amplification": table.write_amplification,
            "space_amplification": table.space_amplification,
        })
    });
    json!({
        "node": node.node,
        "error": null,
        "backlog_bytes": node.backlog_bytes,
        "backlog_files": node.backlog_files,
        "running": running.collect::<Vec<_>>(),
        "tables": tables.collect::<Vec<_>>(),
        "scrub": node.scrub.as_ref().map(scrub_json),
    })
}

/// An error if a node has not answered.
fn outcome(nodes: &[NodeCompaction]) -> Result<()> {
    let failed = nodes.iter().filter(|node| !node.error.is_empty()).count();
    if failed > 0 { Err(Error::Nodes { failed, asked: nodes.len() }) } else { Ok(()) }
}
