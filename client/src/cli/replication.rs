//! How replicas stand: what `trefoil status` says of them.

use serde_json::{Value as Json, json};
use trefoil_proto::v1::{KeyspaceReplicas, NodeReport, NodeStatus, VnodeReplication};

use super::error::Result;
use super::output::{self, Align};

/// What all replicas have is usually a minute old; from this age on somebody should look.
const LAG_WARN_MS: u64 = 600_000;

/// Shows every keyspace on every node that answered.
pub fn show(nodes: &[NodeStatus]) -> Result<()> {
    let columns = [
        ("node", Align::Right),
        ("keyspace", Align::Left),
        ("vnodes", Align::Right),
        ("behind", Align::Right),
        ("holes", Align::Right),
        ("not read", Align::Right),
        ("on all since", Align::Right),
        ("purged since", Align::Right),
        ("waits for", Align::Left),
        ("worst vnodes", Align::Left),
    ];
    let of_node = |status: &NodeStatus| {
        let id = status.node.as_ref().map_or(0, |node| node.id);
        let keyspaces = status.report.iter().flat_map(|report| &report.replication);
        keyspaces.map(move |keyspace| cells(id, keyspace)).collect::<Vec<_>>()
    };
    output::line(&output::table(&columns, nodes.iter().flat_map(of_node).collect()))
}

fn cells(node: u32, keyspace: &KeyspaceReplicas) -> Vec<String> {
    let worst = keyspace.worst.iter().filter(|vnode| vnode.holes > 0 || !vnode.waits_for.is_empty());
    let worst: Vec<String> = worst.map(|vnode| vnode.vnode.to_string()).collect();
    vec![
        node.to_string(),
        keyspace.keyspace.clone(),
        keyspace.vnodes.to_string(),
        keyspace.vnodes_behind.to_string(),
        keyspace.holes.to_string(),
        keyspace.vnodes_not_read.to_string(),
        age(keyspace.lag_ms),
        age(keyspace.purge_lag_ms),
        listed(&waits_for(keyspace)),
        if worst.is_empty() { "-".to_owned() } else { worst.join(" ") },
    ]
}

fn age(ms: Option<u64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{} s ago", ms / 1_000))
}

fn listed(nodes: &[u32]) -> String {
    let all: Vec<String> = nodes.iter().map(u32::to_string).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(" ") }
}

/// The replicas that have told nothing, or that lack something.
fn waits_for(keyspace: &KeyspaceReplicas) -> Vec<u32> {
    keyspace.others.iter().filter(|other| other.silent > 0 || other.lacks > 0).map(|other| other.node).collect()
}

/// What somebody should look at: nothing is purged while a replica is silent, however long.
pub fn troubles(node: u32, report: &NodeReport) -> impl Iterator<Item = String> {
    let lost = report.replication.iter().filter(|keyspace| keyspace.vnodes_withdrawn > 0).map(move |keyspace| {
        format!(
            "node {node}: {}: something of {} vnodes was lost there; they come anew from the other replicas and are not read there until then",
            keyspace.keyspace, keyspace.vnodes_withdrawn
        )
    });
    let is_late = |keyspace: &&KeyspaceReplicas| keyspace.lag_ms.is_some_and(|lag| lag > LAG_WARN_MS);
    let late = report.replication.iter().filter(is_late).map(move |keyspace| {
        let silent = keyspace.others.iter().filter(|other| {
            other.silent > 0 || other.lacks > 0 || other.report_age_ms.is_none_or(|age| age > LAG_WARN_MS)
        });
        let silent: Vec<u32> = silent.map(|other| other.node).collect();
        let minutes = keyspace.lag_ms.unwrap_or(0) / 60_000;
        let who = if silent.is_empty() { String::new() } else { format!("; it waits for node {}", listed(&silent)) };
        format!(
            "node {node}: {}: all replicas are known to be equal only up to {minutes} minutes ago, and no later deletion is purged{who}",
            keyspace.keyspace
        )
    });
    lost.chain(late)
}

/// The same for programs.
pub fn as_json(report: &NodeReport) -> Json {
    let keyspace = |keyspace: &KeyspaceReplicas| {
        let others = keyspace.others.iter().map(|other| {
            json!({
                "node": other.node,
                "vnodes": other.vnodes,
                "silent": other.silent,
                "lacks": other.lacks,
                "report_age_ms": other.report_age_ms,
            })
        });
        json!({
            "keyspace": keyspace.keyspace,
            "vnodes": keyspace.vnodes,
            "vnodes_behind": keyspace.vnodes_behind,
            "holes": keyspace.holes,
            "vnodes_withdrawn": keyspace.vnodes_withdrawn,
            "vnodes_not_read": keyspace.vnodes_not_read,
            "lag_ms": keyspace.lag_ms,
            "purge_lag_ms": keyspace.purge_lag_ms,
            "others": others.collect::<Vec<_>>(),
            "worst": keyspace.worst.iter().map(vnode_json).collect::<Vec<_>>(),
        })
    };
    report.replication.iter().map(keyspace).collect()
}

fn vnode_json(vnode: &VnodeReplication) -> Json {
    json!({ "vnode": vnode.vnode, "lag_ms": vnode.lag_ms, "holes": vnode.holes, "waits_for": vnode.waits_for })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use trefoil_proto::v1::ReplicaView;

    fn report(lag_ms: u64, silent: u64) -> NodeReport {
        let others = vec![
            ReplicaView { node: 2, vnodes: 4, report_age_ms: Some(900), ..ReplicaView::default() },
            ReplicaView { node: 3, vnodes: 4, silent, report_age_ms: Some(900), ..ReplicaView::default() },
        ];
        let keyspace = KeyspaceReplicas {
            keyspace: "app".to_owned(),
            lag_ms: Some(lag_ms),
            others,
            ..KeyspaceReplicas::default()
        };
        NodeReport { replication: vec![keyspace], ..NodeReport::default() }
    }

    #[test]
    fn a_silent_replica_is_named_once_it_holds_others_up_for_long() {
        assert_eq!(troubles(1, &report(70_000, 4)).count(), 0);
        let said: Vec<String> = troubles(1, &report(1_200_000, 4)).collect();
        assert_eq!(said.len(), 1);
        assert!(
            said[0].contains("app") && said[0].contains("20 minutes") && said[0].ends_with("waits for node 3"),
            "{said:?}"
        );
        let all: Vec<String> = troubles(1, &report(1_200_000, 0)).collect();
        assert!(all[0].ends_with("is purged"), "{all:?}");
    }
}
