//! `trefoil hints`: writes that nodes keep for others that have missed them.

use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use trefoil_proto::v1::{HintsAction, NodeHints, TargetHints};

use super::error::{Error, Result};
use super::output::{Align, bytes};
use super::{Global, output};

/// Shows the writes that nodes keep for others that have missed them, or does something about them.
#[derive(Debug, Args)]
pub struct Hints {
    #[command(subcommand)]
    command: Option<HintsCommand>,
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum HintsCommand {
    /// Show them
    List,
    /// Deliver none until told to resume, or the node starts again; new ones are kept
    Pause,
    /// Deliver again
    Resume,
    /// Forget them: what the nodes have missed stays missing there until reads or a repair find it
    Drop,
}

#[derive(Debug, Args)]
struct Which {
    /// Only those that this node keeps; may be given more than once
    #[arg(long, global = true, value_name = "ID")]
    node: Vec<u32>,
    /// Only those for this node
    #[arg(long, global = true, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    target: Option<u32>,
}

impl Hints {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let command = self.command.unwrap_or(HintsCommand::List);
        let action = match command {
            HintsCommand::List => HintsAction::Unspecified,
            HintsCommand::Pause => HintsAction::Pause,
            HintsCommand::Resume => HintsAction::Resume,
            HintsCommand::Drop => HintsAction::Drop,
        };
        let client = global.connect().await?;
        let nodes = client.hints(action, &self.which.node, self.which.target.unwrap_or(0)).await?;
        if global.json {
            nodes.iter().try_for_each(|node| output::line(&node_json(node).to_string()))?;
        } else if matches!(command, HintsCommand::Drop) {
            nodes.iter().flat_map(dropped).try_for_each(|line| output::line(&line))?;
        } else {
            show(&nodes)?;
        }
        let failed = nodes.iter().filter(|node| !node.error.is_empty()).count();
        if failed > 0 { Err(Error::Nodes { failed, asked: nodes.len() }) } else { Ok(()) }
    }
}

fn show(nodes: &[NodeHints]) -> Result<()> {
    for node in nodes {
        match (node.error.as_str(), node.targets.is_empty(), node.refused_queue) {
            ("", true, 0) => output::line(&format!("node {}: no hints", node.node))?,
            ("", _, 0) => {}
            ("", _, refused) => output::line(&format!(
                "node {}: {refused} writes became no hints since too many waited at once",
                node.node
            ))?,
            (error, ..) => output::line(&format!("node {}: {error}", node.node))?,
        }
    }
    let columns = [
        ("node", Align::Right),
        ("for", Align::Right),
        ("pending", Align::Right),
        ("oldest", Align::Right),
        ("delivery", Align::Left),
        ("written", Align::Right),
        ("delivered", Align::Right),
        ("expired", Align::Right),
        ("too late", Align::Right),
        ("refused", Align::Right),
        ("damaged", Align::Right),
    ];
    let rows: Vec<_> = nodes.iter().flat_map(|node| node.targets.iter().map(|hints| cells(node.node, hints))).collect();
    if rows.is_empty() { Ok(()) } else { output::line(&output::table(&columns, rows)) }
}

fn cells(node: u32, hints: &TargetHints) -> Vec<String> {
    vec![
        node.to_string(),
        hints.target.to_string(),
        bytes(hints.pending_bytes),
        if hints.pending_bytes == 0 { "-".to_owned() } else { format!("{} s", hints.oldest_s) },
        delivery(hints).to_owned(),
        hints.written.to_string(),
        hints.delivered.to_string(),
        hints.expired.to_string(),
        (hints.too_late + hints.unacceptable).to_string(),
        refused(hints).to_string(),
        hints.damaged_files.to_string(),
    ]
}

fn delivery(hints: &TargetHints) -> &'static str {
    match (hints.paused, hints.reachable, hints.pending_bytes) {
        (true, ..) => "paused",
        (false, _, 0) => "done",
        (false, true, _) => "running",
        (false, false, _) => "waiting for the node",
    }
}

fn refused(hints: &TargetHints) -> u64 {
    hints.refused_bytes + hints.refused_age + hints.refused_disk
}

fn dropped(node: &NodeHints) -> Vec<String> {
    let id = node.node;
    if !node.error.is_empty() {
        return vec![format!("node {id}: {}", node.error)];
    }
    if node.targets.is_empty() {
        return vec![format!("node {id}: no hints")];
    }
    let line = |hints: &TargetHints| {
        let (target, size) = (hints.target, bytes(hints.dropped_bytes));
        match hints.dropped_bytes {
            0 => format!("node {id}: no hints for node {target}"),
            _ => format!(
                "node {id}: dropped {size} of hints for node {target}, which goes on missing what was in them until reads or \
                 a repair find it"
            ),
        }
    };
    node.targets.iter().map(line).collect()
}

fn node_json(node: &NodeHints) -> Json {
    if !node.error.is_empty() {
        return json!({ "node": node.node, "error": node.error });
    }
    let targets = node.targets.iter().map(|hints| {
        json!({
            "target": hints.target,
            "pending_bytes": hints.pending_bytes,
            "oldest_s": hints.oldest_s,
            "paused": hints.paused,
            "reachable": hints.reachable,
            "written": hints.written,
            "delivered": hints.delivered,
            "expired": hints.expired,
            "too_late": hints.too_late,
            "unacceptable": hints.unacceptable,
            "refused_bytes": hints.refused_bytes,
            "refused_age": hints.refused_age,
            "refused_disk": hints.refused_disk,
            "damaged_files": hints.damaged_files,
            "dropped_bytes": hints.dropped_bytes,
        })
    });
    json!({
        "node": node.node,
        "error": null,
        "refused_queue": node.refused_queue,
        "targets": targets.collect::<Vec<_>>(),
    })
}
