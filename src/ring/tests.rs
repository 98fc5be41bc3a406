//! The law of placement on random clusters, and the choice of replicas.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::*;
use crate::model::KeyspaceId;

fn zone(name: &str) -> Zone {
    Zone { region: "eu".into(), name: name.into() }
}

fn node(id: u32, region: &str, zone: &str) -> Node {
    Node {
        id: NodeId(id),
        zone: Zone { region: region.into(), name: zone.into() },
        state: NodeState::Serving,
        peer_address: format!("10.0.0.{id}:9441"),
        client_address: format!("10.0.0.{id}:9440"),
    }
}

fn ring(bits: u8, nodes: &[Node]) -> Ring {
    let nodes = nodes.iter().map(|node| (node.id, node.clone())).collect();
    Ring::at_birth(VnodeBits::new(bits).unwrap(), nodes).unwrap()
}

fn keyspace(replication: &[(&str, u32)]) -> Keyspace {
    let replication = replication.iter().map(|&(region, copies)| (region.to_string(), copies)).collect();
    Keyspace { id: KeyspaceId(1), name: "ks".into(), replication }
}

fn counts(owners: &[NodeId]) -> BTreeMap<NodeId, usize> {
    let mut counts = BTreeMap::new();
    owners.iter().for_each(|&id| *counts.entry(id).or_default() += 1);
    counts
}

/// The fewest moves of any balanced assignment, by trying every choice of who gets one more.
fn fewest_moves(members: &[NodeId], before: &[NodeId]) -> usize {
    let kept: Vec<usize> = members.iter().map(|id| before.iter().filter(|owner| *owner == id).count()).collect();
    let (share, remainder) = (before.len() / members.len(), before.len() % members.len());
    (0u32..1 << members.len())
        .filter(|chosen| chosen.count_ones() as usize == remainder)
        .map(|chosen| {
            let stay = |at: usize| kept[at].min(share + (chosen as usize >> at & 1));
            before.len() - (0..members.len()).map(stay).sum::<usize>()
        })
        .min()
        .unwrap()
}

proptest! {
    #[test]
    fn assignment_is_balanced_minimal_and_deterministic(
        members in btree_set(1u32..12, 1..7),
        before in vec(1u32..12, 0..=64usize),
        bits in 0u8..=6,
    ) {
        let bits = VnodeBits::new(bits).unwrap();
        let vnodes = bits.count() as usize;
        let members: Vec<NodeId> = members.into_iter().map(NodeId).collect();
        let mut before: Vec<NodeId> = before.into_iter().map(NodeId).collect();
        before.resize(vnodes, NodeId(99));
        let by_zone = BTreeMap::from([(zone("a"), members.clone())]);
        let previous = Owners::from([(zone("a"), before.clone())]);
        let owners = assign(&by_zone, &previous, bits);
        let after = &owners[&zone("a")];
        prop_assert_eq!(after.len(), vnodes);
        let counts = counts(after);
        let of = |id: &NodeId| counts.get(id).copied().unwrap_or(0);
        prop_assert_eq!(members.iter().map(of).sum::<usize>(), vnodes, "every vnode has an owner that is a member");
        prop_assert!(members.iter().map(of).max().unwrap() - members.iter().map(of).min().unwrap() <= 1);
        let moves = after.iter().zip(&before).filter(|(after, before)| after != before).count();
        prop_assert_eq!(moves, fewest_moves(&members, &before));
        prop_assert_eq!(&assign(&by_zone, &previous, bits), &owners);
        prop_assert_eq!(assign(&by_zone, &owners, bits), owners, "a balanced zone is left alone");
    }

    #[test]
    fn replicas_lie_in_distinct_zones_and_regions_keep_their_copies(
        zones in vec((0u8..3, 0u8..4), 1..12),
        copies in vec(0u32..6, 3),
        bits in 0u8..=8,
        token in any::<i64>(),
    ) {
        let nodes: Vec<Node> = zones
            .iter()
            .enumerate()
            .map(|(at, (region, zone))| node(at as u32 + 1, &format!("r{region}"), &format!("z{zone}")))
            .collect();
        let ring = ring(bits, &nodes);
        let asked: Vec<(String, u32)> = copies.iter().enumerate().map(|(at, n)| (format!("r{at}"), *n)).collect();
        let asked: Vec<(&str, u32)> = asked.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        for keyspace in [keyspace(&[]), keyspace(&asked)] {
            let replicas = ring.replicas(&keyspace, Token(token));
            let zones: BTreeSet<&Zone> = replicas.nodes.iter().map(|at| &ring.node(at.node).unwrap().zone).collect();
            prop_assert_eq!(zones.len(), replicas.len());
            for (number, name) in ring.region_names().enumerate() {
                let full = ring.zones_in(name);
                let want = keyspace.replication.get(name).map_or(
                    if keyspace.replication.is_empty() { full } else { 0 },
                    |&asked| asked.min(full),
                );
                prop_assert_eq!(replicas.count_in(RegionNumber(number as u16)), want as usize);
            }
            for replica in &replicas.nodes {
                prop_assert_eq!(ring.region_of(replica.node), Some(replica.region));
                prop_assert!(ring.is_replica(&keyspace, replicas.vnode, replica.node));
            }
        }
    }
}

#[test]
fn a_new_cluster_spreads_pairs_of_nodes() {
    let nodes: Vec<Node> = (0..12).map(|at| node(at + 1, "eu", ["a", "b", "c"][at as usize % 3])).collect();
    let ring = ring(10, &nodes);
    let partners: BTreeSet<NodeId> = (0..1024)
        .map(|vnode| ring.replicas_of(&keyspace(&[]), Vnode(vnode)))
        .filter(|replicas| replicas.contains(NodeId(1)))
        .flat_map(|replicas| replicas.nodes.into_iter().map(|replica| replica.node))
        .collect();
    assert_eq!(partners.len(), 9, "node 1 shares vnodes with all four nodes of both other zones");
}

#[test]
fn fewer_copies_than_zones_rotate() {
    let ring = ring(2, &[node(1, "eu", "a"), node(2, "eu", "b"), node(3, "eu", "c")]);
    let two = keyspace(&[("eu", 2)]);
    let of = |vnode| ring.replicas_of(&two, Vnode(vnode)).nodes.iter().map(|at| at.node.0).collect::<Vec<_>>();
    assert_eq!([of(0), of(1), of(2), of(3)], [vec![1, 2], vec![2, 3], vec![3, 1], vec![1, 2]]);
    assert_eq!(ring.replicas_of(&two, Vnode(3)).placement, 1);
    assert!(ring.replicas_of(&two, Vnode(4)).is_empty(), "there is no such vnode");
}

#[test]
fn a_ring_that_breaks_an_invariant_is_refused() {
    let nodes = BTreeMap::from([(NodeId(1), node(1, "eu", "a")), (NodeId(2), node(2, "eu", "b"))]);
    let bits = VnodeBits::new(1).unwrap();
    let owners = |a: [u32; 2], b: [u32; 2]| {
        Owners::from([(zone("a"), a.map(NodeId).to_vec()), (zone("b"), b.map(NodeId).to_vec())])
    };
    let refused = |owners: Owners, placements: &[u64]| {
        Ring::new(bits, nodes.clone(), owners, placements.to_vec()).unwrap_err().to_string()
    };
    assert!(Ring::new(bits, nodes.clone(), owners([1, 1], [2, 2]), vec![1, 1]).is_ok());
    assert!(refused(owners([1, 2], [2, 2]), &[1, 1]).contains("n2 owns a vnode of zone eu/a"));
    assert!(refused(owners([1, 1], [2, 2]), &[1]).contains("1 placement numbers for 2 vnodes"));
    assert!(refused(Owners::from([(zone("a"), vec![NodeId(1); 2])]), &[1, 1]).contains("zone eu/b has nodes"));
    assert!(refused(Owners::from([(zone("a"), vec![NodeId(1)])]), &[1, 1]).contains("eu/b"));
}
