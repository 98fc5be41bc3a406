//! `trefoil status`: the nodes as one of them sees them.

use serde_json::{Value as Json, json};
use trefoil_proto::v1::{ArchiveStanding, Epoch, NodeState, NodeStatus, PeerView, QuarantinedFile, StatusResponse};

use super::error::Result;
use super::output::{Align, bytes};
use super::{Global, output, replication};

/// What to show.
#[derive(Debug, clap::Args)]
pub struct Status {
    /// How the replicas of each keyspace stand, in the place of what the nodes are doing.
    #[arg(long)]
    replication: bool,
}

impl Status {
    /// Shows the nodes and what they are doing, or how their replicas stand.
    pub async fn run(self, global: &Global) -> Result<()> {
        let status = global.connect().await?.status().await?;
        if global.json {
            return output::line(&as_json(&status).to_string());
        }
        if self.replication {
            replication::show(&status.nodes)?
        } else {
            show(&status)?
        }
        status.nodes.iter().flat_map(troubles).try_for_each(|line| output::line(&line))
    }
}

fn show(status: &StatusResponse) -> Result<()> {
    output::line(&format!(
        "cluster {} ({}), epoch {}, metadata led by {}, told by node {}\n",
        status.cluster_name,
        cluster_id(&status.cluster_id),
        epoch(status.epoch.as_ref()),
        if status.metadata_leader == 0 { "nobody".to_owned() } else { format!("node {}", status.metadata_leader) },
        status.answered_by,
    ))?;
    let columns = [
        ("node", Align::Right),
        ("zone", Align::Left),
        ("address", Align::Left),
        ("seen", Align::Left),
        ("state", Align::Left),
        ("version", Align::Left),
        ("up", Align::Right),
        ("epoch", Align::Right),
        ("vnodes", Align::Right),
        ("log", Align::Right),
        ("memtables", Align::Right),
        ("sstables", Align::Right),
        ("size", Align::Right),
        ("snapshots", Align::Right),
        ("hints", Align::Right),
        ("in flight", Align::Right),
    ];
    output::line(&output::table(&columns, status.nodes.iter().map(cells).collect()))
}

fn cells(status: &NodeStatus) -> Vec<String> {
    let node = status.node.clone().unwrap_or_default();
    let mut cells = vec![
        node.id.to_string(),
        format!("{}/{}", node.region, node.zone),
        node.client_address.clone(),
        if node.alive { "alive" } else { "dead" }.to_owned(),
        state_name(node.state()).to_owned(),
    ];
    let vnodes = status.vnodes.to_string();
    let Some(report) = &status.report else {
        cells.extend(["no answer".to_owned(), "-".to_owned(), "-".to_owned(), vnodes]);
        cells.extend(std::iter::repeat_n("-".to_owned(), 7));
        return cells;
    };
    cells.extend([
        report.version.clone(),
        indicatif::HumanDuration(std::time::Duration::from_secs(report.uptime_s)).to_string(),
        epoch(report.epoch.as_ref()),
        vnodes,
        bytes(report.log_bytes),
        bytes(report.memtable_bytes),
        report.sstables.to_string(),
        bytes(report.sstable_bytes),
        bytes(report.snapshot_only_bytes),
        bytes(report.hint_bytes),
        report.requests_in_flight.to_string(),
    ]);
    cells
}

/// What somebody should look at.
fn troubles(status: &NodeStatus) -> Vec<String> {
    let id = status.node.as_ref().map_or(0, |node| node.id);
    let Some(report) = &status.report else { return Vec::new() };
    let mut lines = Vec::new();
    if !report.log_failure.is_empty() {
        lines.push(format!("node {id}: the commit log takes no more writes since {}", report.log_failure));
    }
    if !report.storage_failure.is_empty() {
        lines.push(format!(
            "node {id}: files cannot be written, writes are refused meanwhile: {}",
            report.storage_failure
        ));
    }
    if report.hints_paused {
        lines.push(format!("node {id}: delivery of hints is paused; `trefoil hints resume` ends that"));
    }
    if report.hints_refused > 0 {
        let refused = report.hints_refused;
        lines.push(format!("node {id}: {refused} writes that others have missed became no hints; see `trefoil hints`"));
    }
    if let Some(off_us) = report.clock_off_us {
        let (ms, direction) = (off_us.abs() / 1_000, if off_us > 0 { "ahead of" } else { "behind" });
        lines.push(format!("node {id}: its clock is {ms} ms {direction} the others'; it coordinates no writes"));
    }
    lines.extend(report.peers.iter().filter(|peer| peer.state != "alive").map(|peer| {
        let PeerView { node, state, reason, for_ms, .. } = peer;
        format!("node {id}: node {node} is {state} for {}: {reason}", duration(*for_ms))
    }));
    lines.extend(report.archive.iter().flat_map(|archive| archive_troubles(id, archive)));
    lines.extend(replication::troubles(id, report));
    lines.extend(report.quarantined.iter().map(|file| {
        let runs = file.vnodes.iter().map(|run| match run.last - run.first {
            0 => run.first.to_string(),
            _ => format!("{}-{}", run.first, run.last),
        });
        let vnodes = runs.collect::<Vec<_>>().join(", ");
        let QuarantinedFile { path, keyspace, table, reason, .. } = file;
        format!(
            "node {id}: {path} of {keyspace}.{table} is quarantined, vnodes {vnodes} cannot be read there: {reason}"
        )
    }));
    lines
}

/// What somebody should look at in the archive of a node.
fn archive_troubles(id: u32, archive: &ArchiveStanding) -> Vec<String> {
    let mut lines = Vec::new();
    let (rpo, most) = (archive.rpo_ms, archive.rpo_max_ms);
    if let Some(rpo) = rpo.filter(|rpo| *rpo > most) {
        let (rpo, most) = (duration(rpo), duration(most));
        lines.push(format!("node {id}: its log is archived up to {rpo} ago, which should be at most {most}"));
    }
    if archive.gaps > 0 {
        let gaps = archive.gaps;
        lines.push(format!(
            "node {id}: its archived log has {gaps} new gaps; make a backup, older times are not to be had"
        ));
    }
    lines.extend(archive.troubles.iter().map(|trouble| format!("node {id}: not in the backup bucket yet: {trouble}")));
    lines
}

fn archive_json(archive: &ArchiveStanding) -> Json {
    json!({
        "rpo_ms": archive.rpo_ms,
        "rpo_max_ms": archive.rpo_max_ms,
        "newest_backup_age_ms": archive.newest_age_ms,
        "files_waiting": archive.files_waiting,
        "gaps": archive.gaps,
        "troubles": archive.troubles,
    })
}

fn duration(ms: u64) -> String {
    if ms < 10_000 { format!("{ms} ms") } else { format!("{} s", ms / 1_000) }
}

fn peer_json(peer: &PeerView) -> Json {
    json!({
        "node": peer.node,
        "state": peer.state,
        "reason": (!peer.reason.is_empty()).then_some(&peer.reason),
        "for_ms": peer.for_ms,
        "phi": peer.phi,
        "round_trip_us": peer.round_trip_us,
        "clock_ahead_us": peer.clock_ahead_us,
    })
}

fn quarantined_json(file: &QuarantinedFile) -> Json {
    json!({
        "path": file.path,
        "keyspace": file.keyspace,
        "table": file.table,
        "vnodes": file.vnodes.iter().map(|run| [run.first, run.last]).collect::<Vec<_>>(),
        "reason": file.reason,
    })
}

fn as_json(status: &StatusResponse) -> Json {
    json!({
        "cluster_id": cluster_id(&status.cluster_id),
        "cluster_name": status.cluster_name,
        "answered_by": status.answered_by,
        "epoch": epoch_json(status.epoch.as_ref()),
        "metadata_leader": (status.metadata_leader != 0).then_some(status.metadata_leader),
        "nodes": status.nodes.iter().map(node_json).collect::<Vec<_>>(),
    })
}

fn node_json(status: &NodeStatus) -> Json {
    let node = status.node.clone().unwrap_or_default();
    let report = status.report.as_ref().map(|report| {
        json!({
            "version": report.version,
            "epoch": epoch_json(report.epoch.as_ref()),
            "uptime_s": report.uptime_s,
            "voter": report.voter,
            "log_bytes": report.log_bytes,
            "memtable_bytes": report.memtable_bytes,
            "memtables_frozen": report.memtables_frozen,
            "sstables": report.sstables,
            "sstable_bytes": report.sstable_bytes,
            "cache_bytes": report.cache_bytes,
            "requests_in_flight": report.requests_in_flight,
            "snapshots": report.snapshots,
            "snapshot_only_bytes": report.snapshot_only_bytes,
            "tables_leaving": report.tables_leaving,
            "quarantined": report.quarantined.iter().map(quarantined_json).collect::<Vec<_>>(),
            "hint_bytes": report.hint_bytes,
            "hint_oldest_s": report.hint_oldest_s,
            "hints_refused": report.hints_refused,
            "hints_paused": report.hints_paused,
            "peers": report.peers.iter().map(peer_json).collect::<Vec<_>>(),
            "clock_off_us": report.clock_off_us,
            "replication": replication::as_json(report),
            "archive": report.archive.as_ref().map(archive_json),
            "log_failure": (!report.log_failure.is_empty()).then_some(&report.log_failure),
            "storage_failure": (!report.storage_failure.is_empty()).then_some(&report.storage_failure),
        })
    });
    json!({
        "id": node.id,
        "region": node.region,
        "zone": node.zone,
        "client_address": node.client_address,
        "peer_address": node.peer_address,
        "state": state_name(node.state()),
        "alive": node.alive,
        "vnodes": status.vnodes,
        "report": report,
    })
}

/// The state of a node, in lower case.
pub fn state_name(state: NodeState) -> &'static str {
    match state {
        NodeState::Serving => "serving",
        NodeState::Unspecified => "unknown",
    }
}

/// A cluster's id as a UUID.
pub fn cluster_id(id: &[u8]) -> String {
    uuid::Uuid::from_slice(id).map_or_else(|_| "unknown".to_owned(), |id| id.to_string())
}

fn epoch(epoch: Option<&Epoch>) -> String {
    epoch.map_or_else(|| "-".to_owned(), |epoch| format!("{}.{}", epoch.generation, epoch.index))
}

/// An epoch for programs.
pub fn epoch_json(epoch: Option<&Epoch>) -> Json {
    epoch.map_or(Json::Null, |epoch| json!({ "generation": epoch.generation, "index": epoch.index }))
}
