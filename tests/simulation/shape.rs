//! What a seed decides before anything happens: how many nodes, where, how fast, how unlucky.

use std::collections::BTreeMap;

use trefoil::model::NodeId;
use trefoil::ring::{Node, NodeState, Ring, Zone};

use super::random::Random;
use super::schema::{Schema, VNODE_BITS};

const REGIONS: [&str; 2] = ["ada", "bea"];

pub struct Shape {
    pub schema: Schema,
    pub ring: Ring,
    /// Region and zone of each node.
    pub regions: Vec<u16>,
    pub zones: Vec<u16>,
    pub latency_us: u64,
    /// The longest that a sync of a file takes.
    pub sync_us: u64,
    /// The longest between two flushes.
    pub flush_us: u64,
    /// The longest between two reports.
    pub report_us: u64,
    /// Of ten thousand messages so many come again when nobody expects them any more.
    pub strays: u64,
    pub clients: usize,
    /// How long a client rests between two requests, on average.
    pub rest_us: u64,
    /// How long nothing new goes wrong, on average; none: nothing ever does.
    pub calm_us: Option<u64>,
    /// How far clocks are apart.
    pub skew_us: i64,
}

impl Shape {
    pub fn draw(random: &mut Random) -> Shape {
        let regions = if random.one_in(8) { 2 } else { 1 };
        let nodes_in_zone = if regions == 1 && random.one_in(3) { 2 } else { 1 };
        let mut places = Vec::new();
        for region in 0..regions {
            for zone in 0..3 {
                places.extend(std::iter::repeat_n((region, region * 3 + zone), nodes_in_zone));
            }
        }
        let schema = Schema::new(REGIONS[0]);
        Shape {
            ring: ring(&places, &schema),
            schema,
            regions: places.iter().map(|(region, _)| *region).collect(),
            zones: places.iter().map(|(_, zone)| *zone).collect(),
            latency_us: *random.pick(&[100, 500, 2_000]),
            sync_us: *random.pick(&[200, 2_000, 20_000]),
            flush_us: *random.pick(&[20_000_000, 20_000_000, 20_000_000, 300_000_000]),
            report_us: *random.pick(&[1_000_000, 1_000_000, 20_000_000]),
            strays: *random.pick(&[0, 10, 50]),
            clients: 4,
            rest_us: *random.pick(&[150_000, 400_000, 800_000]),
            calm_us: (!random.one_in(20)).then(|| *random.pick(&[4_000_000, 10_000_000, 30_000_000])),
            skew_us: *random.pick(&[1_000, 50_000, 200_000]),
        }
    }

    pub fn nodes(&self) -> usize {
        self.regions.len()
    }

    /// Copies of each table's data.
    pub fn copies(&self) -> Vec<usize> {
        let first = trefoil::model::Vnode(0);
        self.schema.tables.iter().map(|table| self.ring.replicas_of(&table.keyspace, first).len()).collect()
    }
}

/// The number of a node by its place.
pub fn node_id(at: usize) -> NodeId {
    NodeId(at as u32 + 1)
}

/// The place of a node by its number.
pub fn place_of(node: NodeId) -> usize {
    node.0 as usize - 1
}

fn ring(places: &[(u16, u16)], schema: &Schema) -> Ring {
    let node = |(at, (region, zone)): (usize, &(u16, u16))| {
        let zone = Zone { region: REGIONS[usize::from(*region)].to_owned(), name: zone.to_string() };
        let id = node_id(at);
        let address = String::new();
        let node = Node { id, zone, state: NodeState::Serving, peer_address: address.clone(), client_address: address };
        (id, node)
    };
    let nodes: BTreeMap<NodeId, Node> = places.iter().enumerate().map(node).collect();
    assert_eq!(schema.bits.bits(), VNODE_BITS);
    Ring::at_birth(schema.bits, nodes).unwrap()
}
