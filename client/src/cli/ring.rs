//! `trefoil ring`: which node owns how much.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use trefoil_proto::v1::Topology;

use super::error::Result;
use super::output::Align;
use super::status::{cluster_id, epoch_json, state_name};
use super::{Global, output};

/// Shows who owns what: each zone holds every vnode once.
pub async fn run(global: &Global) -> Result<()> {
    let topology = global.connect().await?.ring().await?;
    if global.json {
        return output::line(&as_json(&topology).to_string());
    }
    let columns = [
        ("region", Align::Left),
        ("zone", Align::Left),
        ("node", Align::Right),
        ("address", Align::Left),
        ("seen", Align::Left),
        ("vnodes", Align::Right),
        ("share of zone", Align::Right),
    ];
    output::line(&output::table(&columns, shares(&topology)))?;
    let keyspaces = topology.keyspaces.iter().map(|keyspace| {
        let copies = keyspace.replication.iter().map(|(region, copies)| format!("{copies} in {region}"));
        let copies = copies.collect::<Vec<_>>().join(", ");
        let copies = if copies.is_empty() { "one copy in every zone".to_owned() } else { copies };
        vec![keyspace.name.clone(), copies]
    });
    let keyspaces: Vec<_> = keyspaces.collect();
    if keyspaces.is_empty() {
        return Ok(());
    }
    output::line("")?;
    output::line(&output::table(&[("keyspace", Align::Left), ("copies", Align::Left)], keyspaces))
}

fn shares(topology: &Topology) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for zone in &topology.zones {
        let mut vnodes: BTreeMap<u32, usize> = BTreeMap::new();
        for owner in &zone.owners {
            *vnodes.entry(*owner).or_default() += 1;
        }
        for (id, count) in vnodes {
            let node = topology.nodes.iter().find(|node| node.id == id).cloned().unwrap_or_default();
            rows.push(vec![
                zone.region.clone(),
                zone.zone.clone(),
                id.to_string(),
                node.client_address.clone(),
                if node.alive { "alive" } else { "dead" }.to_owned(),
                count.to_string(),
                format!("{:.1} %", 100.0 * count as f64 / zone.owners.len().max(1) as f64),
            ]);
        }
    }
    rows
}

fn as_json(topology: &Topology) -> Json {
    let nodes = topology.nodes.iter().map(|node| {
        json!({
            "id": node.id,
            "region": node.region,
            "zone": node.zone,
            "client_address": node.client_address,
            "peer_address": node.peer_address,
            "state": state_name(node.state()),
            "alive": node.alive,
        })
    });
    let zones = topology.zones.iter();
    let zones = zones.map(|zone| json!({ "region": zone.region, "zone": zone.zone, "owners": zone.owners }));
    let keyspaces = topology.keyspaces.iter();
    let keyspaces = keyspaces.map(|keyspace| json!({ "name": keyspace.name, "replication": keyspace.replication }));
    json!({
        "epoch": epoch_json(topology.epoch.as_ref()),
        "cluster_id": cluster_id(&topology.cluster_id),
        "vnode_bits": topology.vnode_bits,
        "nodes": nodes.collect::<Vec<_>>(),
        "zones": zones.collect::<Vec<_>>(),
        "keyspaces": keyspaces.collect::<Vec<_>>(),
    })
}
