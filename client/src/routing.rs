//! Whom to ask: the topology as the cluster told it last, and the order in which nodes are tried.

use std::collections::BTreeMap;

use bytes::Bytes;
use trefoil::model::{Keyspace, KeyspaceId, NodeId, Token, VnodeBits};
use trefoil::ring::{Node, NodeState, Ring, Zone};
use trefoil_proto::v1;

/// How many nodes a plan holds at least, if there are so many: a request whose replicas are out of reach goes to others,
/// which pass it on.
const PLAN_MIN: usize = 3;

/// Nodes and owners, immutable; a change makes a new one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Topology {
    /// Generation and index of the metadata it was made from.
    pub(crate) epoch: (u32, u64),
    /// The cluster's id.
    pub(crate) cluster: Bytes,
    ring: Ring,
    keyspaces: BTreeMap<String, Keyspace>,
    /// Nodes that the cluster takes for dead.
    dead: Vec<NodeId>,
    /// The region of the node that told it, if it said which it is.
    pub(crate) told_in: Option<String>,
}

/// How far away a coordinator may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// In the client's region: what is local to the coordinator must be local to the client, or a level like
    /// LOCAL_QUORUM would mean another region's replicas from one request to the next.
    Region,
    /// Anywhere, the client's region first.
    Anywhere,
}

/// Where the client is, as far as it says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Home {
    /// Nodes of this region are nearer than others.
    pub(crate) region: Option<String>,
    /// Nodes of this zone (of the region, if it is said) are the nearest.
    pub(crate) zone: Option<String>,
}

impl Home {
    /// 0 in the own zone, 1 in the own region, 2 elsewhere.
    fn distance(&self, zone: &Zone) -> u8 {
        let same_region = self.region.as_ref().is_none_or(|region| *region == zone.region);
        match &self.zone {
            Some(name) if same_region && *name == zone.name => 0,
            _ if same_region => 1,
            _ => 2,
        }
    }
}

impl Topology {
    /// The topology of a message, or what is wrong with it.
    pub(crate) fn new(message: v1::Topology) -> Result<Topology, String> {
        let bits = u8::try_from(message.vnode_bits).ok().and_then(VnodeBits::new).ok_or("too many vnodes")?;
        let nodes = message.nodes.iter().map(node).collect::<Option<Vec<_>>>().ok_or("a node of unknown state")?;
        let nodes = nodes.into_iter().map(|node| (node.id, node)).collect();
        let owners = message.zones.into_iter().map(|zone| {
            let owners = zone.owners.into_iter().map(NodeId).collect();
            (Zone { region: zone.region, name: zone.zone }, owners)
        });
        // Placement numbers are for requests between nodes.
        let placements = vec![0; bits.count() as usize];
        let ring = Ring::new(bits, nodes, owners.collect(), placements).map_err(|error| error.to_string())?;
        let keyspaces = message.keyspaces.into_iter().map(|keyspace| {
            // The number is of no use to placement.
            let model = Keyspace { id: KeyspaceId(0), name: keyspace.name, replication: keyspace.replication };
            (model.name.clone(), model)
        });
        let epoch = message.epoch.unwrap_or_default();
        let told_in = ring.node(NodeId(message.answered_by)).map(|node| node.zone.region.clone());
        Ok(Topology {
            epoch: (epoch.generation, epoch.index),
            cluster: message.cluster_id,
            ring,
            keyspaces: keyspaces.collect(),
            told_in,
            dead: message.nodes.iter().filter(|node| !node.alive).map(|node| NodeId(node.id)).collect(),
        })
    }

    /// All nodes with the addresses where clients reach them.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.ring.nodes().map(|node| (node.id, node.client_address.as_str()))
    }

    /// The nodes to try, best first: replicas of `token` by distance, then others. `usable` says which are connected;
    /// `turn` spreads requests over nodes that are equally good.
    pub(crate) fn plan(
        &self,
        home: &Home,
        reach: Reach,
        target: Option<(&str, Token)>,
        usable: impl Fn(NodeId) -> bool,
        turn: u64,
    ) -> Vec<NodeId> {
        let near = |id: NodeId| self.ring.node(id).is_some_and(|node| home.distance(&node.zone) < 2);
        let usable = |id| usable(id) && (reach == Reach::Anywhere || near(id));
        let replicas = target.and_then(|(keyspace, token)| {
            let keyspace = self.keyspaces.get(keyspace)?;
            Some(self.ring.replicas(keyspace, token).nodes)
        });
        let replicas = replicas.into_iter().flatten().map(|replica| replica.node);
        let mut plan = self.ranked(home, replicas, &usable, turn);
        if plan.len() < PLAN_MIN {
            let others = self.ring.nodes().map(|node| node.id).filter(|id| !plan.contains(id)).collect::<Vec<_>>();
            plan.extend(self.ranked(home, others.into_iter(), &usable, turn).into_iter().take(PLAN_MIN));
        }
        plan
    }

    fn ranked(
        &self,
        home: &Home,
        nodes: impl Iterator<Item = NodeId>,
        usable: &impl Fn(NodeId) -> bool,
        turn: u64,
    ) -> Vec<NodeId> {
        let rank = |id: NodeId| {
            let distance = self.ring.node(id).map_or(u8::MAX, |node| home.distance(&node.zone));
            (self.dead.contains(&id), distance)
        };
        let mut nodes: Vec<_> = nodes.filter(|id| usable(*id)).map(|id| (rank(id), id)).collect();
        if !nodes.is_empty() {
            let first = (turn % nodes.len() as u64) as usize;
            nodes.rotate_left(first);
        }
        nodes.sort_by_key(|(rank, _)| *rank);
        nodes.into_iter().map(|(_, id)| id).collect()
    }
}

fn node(node: &v1::Node) -> Option<Node> {
    Some(Node {
        id: NodeId(node.id),
        zone: Zone { region: node.region.clone(), name: node.zone.clone() },
        state: u8::try_from(node.state).ok().and_then(NodeState::from_code)?,
        peer_address: node.peer_address.clone(),
        client_address: node.client_address.clone(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Two regions, `eu` with zones a, b, c of two nodes each (1, 2 · 3, 4 · 5, 6), `us` with zone a (7).
    /// Four vnodes: even ones belong to the first node of each zone, odd ones to the second.
    fn message() -> v1::Topology {
        let places = [("eu", "a"), ("eu", "a"), ("eu", "b"), ("eu", "b"), ("eu", "c"), ("eu", "c"), ("us", "a")];
        let node = |(at, (region, zone)): (usize, (&str, &str))| v1::Node {
            id: at as u32 + 1,
            region: region.to_owned(),
            zone: zone.to_owned(),
            client_address: format!("host{}:9440", at + 1),
            peer_address: String::new(),
            state: v1::NodeState::Serving.into(),
            alive: true,
        };
        let owners = |region: &str, zone: &str, owners: [u32; 4]| v1::ZoneOwners {
            region: region.to_owned(),
            zone: zone.to_owned(),
            owners: owners.to_vec(),
        };
        let keyspace = |name: &str, replication: &[(&str, u32)]| v1::KeyspaceReplication {
            name: name.to_owned(),
            replication: replication.iter().map(|(region, copies)| (region.to_string(), *copies)).collect(),
        };
        v1::Topology {
            epoch: Some(v1::Epoch { generation: 0, index: 9 }),
            cluster_id: vec![0; 16].into(),
            vnode_bits: 2,
            nodes: places.into_iter().enumerate().map(node).collect(),
            zones: vec![
                owners("eu", "a", [1, 2, 1, 2]),
                owners("eu", "b", [3, 4, 3, 4]),
                owners("eu", "c", [5, 6, 5, 6]),
                owners("us", "a", [7, 7, 7, 7]),
            ],
            keyspaces: vec![keyspace("everywhere", &[]), keyspace("one", &[("eu", 1)])],
            answered_by: 0,
        }
    }

    fn home(region: Option<&str>, zone: Option<&str>) -> Home {
        Home { region: region.map(str::to_owned), zone: zone.map(str::to_owned) }
    }

    /// Of vnode 0.
    const TOKEN: Token = Token(i64::MIN);

    fn plan(home: &Home, keyspace: &str, usable: &[u32], turn: u64) -> Vec<u32> {
        plan_within(Reach::Anywhere, home, keyspace, usable, turn)
    }

    fn plan_within(reach: Reach, home: &Home, keyspace: &str, usable: &[u32], turn: u64) -> Vec<u32> {
        let topology = Topology::new(message()).unwrap();
        let plan = topology.plan(home, reach, Some((keyspace, TOKEN)), |id| usable.contains(&id.0), turn);
        plan.into_iter().map(|id| id.0).collect()
    }

    const ALL: [u32; 7] = [1, 2, 3, 4, 5, 6, 7];

    #[test]
    fn the_replica_of_the_own_zone_is_asked_first_then_the_own_region() {
        let home = home(Some("eu"), Some("b"));
        for turn in 0..8 {
            let plan = plan(&home, "everywhere", &ALL, turn);
            assert_eq!(plan[0], 3);
            let mut near = plan[1..3].to_vec();
            near.sort_unstable();
            assert_eq!((near.as_slice(), plan[3]), ([1, 5].as_slice(), 7));
        }
    }

    #[test]
    fn without_a_zone_replicas_take_turns() {
        let firsts: Vec<u32> = (0..4).map(|turn| plan(&Home::default(), "everywhere", &ALL, turn)[0]).collect();
        assert_eq!(firsts, [1, 3, 5, 7]);
    }

    #[test]
    fn local_levels_stay_in_the_region_even_if_nobody_is_left_there() {
        let home = home(Some("us"), None);
        assert_eq!(plan_within(Reach::Region, &home, "everywhere", &ALL, 0), [7]);
        assert_eq!(plan_within(Reach::Region, &home, "one", &ALL, 0), [7], "it passes the request on");
        assert!(plan_within(Reach::Region, &home, "everywhere", &[1, 2, 3], 0).is_empty());
        assert_eq!(plan(&home, "everywhere", &[1, 2, 3], 0).len(), 3);
    }

    #[test]
    fn the_teller_says_which_region_is_home() {
        assert_eq!(Topology::new(message()).unwrap().told_in, None);
        let told = v1::Topology { answered_by: 7, ..message() };
        assert_eq!(Topology::new(told).unwrap().told_in.as_deref(), Some("us"));
    }

    #[test]
    fn other_nodes_follow_where_replicas_are_few_or_out_of_reach() {
        let home = home(Some("eu"), Some("a"));
        let alone = plan(&home, "one", &ALL, 0);
        assert_eq!((alone[0], alone[1], alone.len()), (1, 2, 4));
        assert_eq!(plan(&home, "everywhere", &[2, 4], 0), [2, 4]);
        assert_eq!(plan(&home, "unknown keyspace", &[7, 6], 0), [6, 7]);
        assert!(plan(&home, "everywhere", &[], 0).is_empty());
    }

    #[test]
    fn a_node_that_the_cluster_takes_for_dead_is_asked_last_among_its_like() {
        let mut message = message();
        message.nodes[0].alive = false;
        let topology = Topology::new(message).unwrap();
        let plan =
            topology.plan(&home(Some("eu"), Some("a")), Reach::Anywhere, Some(("everywhere", TOKEN)), |_| true, 0);
        assert_eq!(plan[3], NodeId(1));
    }

    #[test]
    fn a_topology_that_makes_no_sense_is_refused() {
        let faults: [fn(&mut v1::Topology); 4] = [
            |message| message.vnode_bits = 17,
            |message| message.nodes[0].state = 0,
            |message| message.zones[0].owners.truncate(3),
            |message| message.zones[0].owners[0] = 99,
        ];
        for fault in faults {
            let mut message = message();
            fault(&mut message);
            assert!(Topology::new(message).is_err());
        }
    }
}
