//! What services answer that needs no other node.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use trefoil::metadata::{Birth, ClusterState, Entry, Epoch, Member, apply, birth};
use trefoil::model::{NodeId, VnodeBits};
use trefoil::ring::Zone;
use trefoil_proto::v1;
use uuid::Uuid;

use super::{cluster, reflection, schema};

fn state() -> ClusterState {
    let member = |number: u16| Member {
        zone: Zone { region: "r".to_owned(), name: format!("z{number}") },
        peer_address: format!("127.0.0.1:{}", 9_001 + 10 * number),
        client_address: format!("127.0.0.1:{}", 9_000 + 10 * number),
    };
    let birth = birth(&Birth {
        cluster: Uuid::from_bytes([7; 16]),
        name: "c".to_owned(),
        vnode_bits: VnodeBits::new(2).unwrap(),
        members: (0..3).map(member).collect(),
    });
    let statements = "CREATE KEYSPACE b; CREATE KEYSPACE a; CREATE TABLE b.t (k int PRIMARY KEY); \
                      CREATE TABLE b.s (k int PRIMARY KEY);";
    let mut state = birth.unwrap();
    for (index, statement) in trefoil::cql::parse(statements).unwrap().into_iter().enumerate() {
        let epoch = Epoch { generation: 0, index: 2 + index as u64 };
        let entry: Entry = schema::entry(statement);
        let (next, verdict) = apply(&state, epoch, &entry);
        verdict.unwrap();
        state = next;
    }
    state
}

#[test]
fn the_topology_says_who_owns_what_and_who_is_alive() {
    let topology = cluster::topology(&state(), &BTreeSet::from([NodeId(1), NodeId(3)]), NodeId(3));
    assert_eq!(topology.epoch, Some(v1::Epoch { generation: 0, index: 5 }));
    assert_eq!((topology.vnode_bits, topology.answered_by), (2, 3));
    let nodes: Vec<_> = topology.nodes.iter().map(|node| (node.id, node.zone.as_str(), node.alive)).collect();
    assert_eq!(nodes, [(1, "z0", true), (2, "z1", false), (3, "z2", true)]);
    assert_eq!(topology.nodes[1].client_address, "127.0.0.1:9010");
    let owners: Vec<_> = topology.zones.iter().map(|zone| zone.owners.as_slice()).collect();
    assert_eq!(owners, [[1; 4], [2; 4], [3; 4]]);
    let keyspaces: Vec<_> = topology.keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect();
    assert_eq!(keyspaces, ["a", "b"]);
}

#[test]
fn what_is_described_is_what_was_asked_for() {
    let state = state();
    let describe = |keyspace: &str, table: &str| {
        let request = v1::DescribeRequest { keyspace: keyspace.to_owned(), table: table.to_owned() };
        let described = schema::describe(&state, &request);
        described.map_err(|error| error.message).map(|found| {
            let keyspaces: Vec<_> = found.keyspaces.into_iter().map(|keyspace| keyspace.name).collect();
            let tables: Vec<_> = found.tables.into_iter().map(|table| table.name).collect();
            (keyspaces.join(" "), tables.join(" "))
        })
    };
    let ok = |keyspaces: &str, tables: &str| Ok((keyspaces.to_owned(), tables.to_owned()));
    assert_eq!(describe("", ""), ok("a b", "s t"));
    assert_eq!(describe("a", ""), ok("a", ""));
    assert_eq!(describe("b", "t"), ok("b", "t"));
    assert_eq!(describe("x", ""), Err("x: there is no such keyspace".to_owned()));
    assert_eq!(describe("b", "x"), Err("b.x: there is no such table".to_owned()));
    assert_eq!(describe("", "t"), Err("a table is named without its keyspace".to_owned()));
}

#[test]
fn reflection_can_read_the_descriptors() {
    assert!(reflection().build_v1().is_ok());
    assert!(reflection().build_v1alpha().is_ok());
}
