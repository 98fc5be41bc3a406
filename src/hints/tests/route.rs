//! Where hints go when the ring has changed meanwhile.

use std::collections::BTreeMap;

use crate::hints::route::destination;
use crate::model::{Keyspace, KeyspaceId, NodeId, Vnode, VnodeBits};
use crate::ring::{Node, NodeState, Ring, Zone};

const VNODE: Vnode = Vnode(3);
const KEEPER: NodeId = NodeId(1);

fn node(id: u32, zone: &str, state: NodeState) -> Node {
    Node {
        id: NodeId(id),
        zone: Zone { region: "eu".to_owned(), name: zone.to_owned() },
        state,
        peer_address: format!("10.0.0.{id}:9441"),
        client_address: format!("10.0.0.{id}:9440"),
    }
}

/// A ring whose zones are owned by these nodes; others are there and own nothing.
fn ring(nodes: &[Node], owners: &[(&str, u32)]) -> Ring {
    let bits = VnodeBits::new(2).unwrap();
    let nodes: BTreeMap<_, _> = nodes.iter().map(|node| (node.id, node.clone())).collect();
    let zone = |name: &str| Zone { region: "eu".to_owned(), name: name.to_owned() };
    let owners = owners.iter().map(|(name, owner)| (zone(name), vec![NodeId(*owner); 4])).collect();
    Ring::new(bits, nodes, owners, vec![2; 4]).unwrap()
}

fn keyspace(copies: Option<u32>) -> Keyspace {
    let replication = copies.map(|copies| ("eu".to_owned(), copies)).into_iter().collect();
    Keyspace { id: KeyspaceId(1), name: "ks".to_owned(), replication }
}

#[test]
fn a_hint_goes_to_whoever_owns_the_vnode_now() {
    let serving =
        [node(1, "a", NodeState::Serving), node(2, "b", NodeState::Serving), node(3, "c", NodeState::Serving)];
    let before = ring(&serving, &[("a", 1), ("b", 2), ("c", 3)]);
    let all = keyspace(None);
    assert_eq!(destination(&before, Some(&all), VNODE, NodeId(2), KEEPER), NodeId(2));
    let mut replaced = serving.to_vec();
    replaced[1].state = NodeState::Gone;
    replaced.push(node(4, "b", NodeState::Serving));
    let after = ring(&replaced, &[("a", 1), ("b", 4), ("c", 3)]);
    assert_eq!(destination(&after, Some(&all), VNODE, NodeId(2), KEEPER), NodeId(4), "replaced in its zone");
    // Vnode 3 with two copies lies in the zones (3 + 0) mod 3 and (3 + 1) mod 3: a and b.
    let two = keyspace(Some(2));
    assert_eq!(destination(&after, Some(&two), VNODE, NodeId(3), KEEPER), NodeId(1), "its zone has no copy any more");
    assert_eq!(destination(&after, Some(&two), VNODE, NodeId(3), NodeId(3)), NodeId(1));
    assert_eq!(destination(&after, Some(&all), VNODE, NodeId(9), KEEPER), KEEPER, "a node that nobody knows");
    assert_eq!(destination(&after, None, VNODE, NodeId(2), KEEPER), NodeId(2), "the keyspace was dropped");
    assert_eq!(destination(&after, Some(&all), Vnode(99), NodeId(2), KEEPER), NodeId(2));
}
