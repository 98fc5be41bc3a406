//! A cluster that is backed up: each node a store, its files and its log in a bucket, by the rules and by nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use trefoil::backup::{Listed, ListedPart, Manifest, Part, Piece, PieceHead, Scope, StoredFile, layout};
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::commitlog::{Position, Since};
use trefoil::compaction::Unpaced;
use trefoil::metadata::{Birth, ClusterState, Entry, Epoch, Member, apply, birth};
use trefoil::model::{
    Cell, CellKind, ClusteringKey, ColumnDefinition, ColumnId, ColumnKind, CreateKeyspace, CreateTable, Deletion,
    Identity, Mutation, MutationName, NodeId, PartitionKey, Row, Stamp, TableId, TableOptions, Timestamp, Type,
    VnodeBits,
};
use trefoil::ring::Zone;
use trefoil::store::{SnapshotScope, Store, StoreOptions};
use trefoil::vfs::Vfs;
use trefoil::vfs::memory::MemoryVfs;
use trefoil_s3::{Below, Memory, ObjectStore};
use uuid::Uuid;

use super::target::rows_of;

pub const TABLE: TableId = TableId(Uuid::from_u128(0x71));
pub const BACKUP: Uuid = Uuid::from_u128(0xba);

/// A cluster as it is built.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub vnode_bits: u8,
    /// Region, name and number of nodes of each zone.
    pub zones: &'static [(&'static str, &'static str, u32)],
}

impl Shape {
    /// Its state with an empty keyspace `ks`.
    pub fn born(&self, cluster: Uuid) -> ClusterState {
        let members = self.zones.iter().flat_map(|(region, zone, nodes)| {
            (0..*nodes).map(move |number| Member {
                zone: Zone { region: (*region).into(), name: (*zone).into() },
                peer_address: format!("{region}-{zone}-{number}:1"),
                client_address: format!("{region}-{zone}-{number}:2"),
            })
        });
        let vnode_bits = VnodeBits::new(self.vnode_bits).unwrap();
        let state = birth(&Birth { cluster, name: "demo".into(), vnode_bits, members: members.collect() }).unwrap();
        let entry = CreateKeyspace { name: "ks".into(), replication: BTreeMap::new(), if_not_exists: false };
        changed(&state, &Entry::CreateKeyspace(entry))
    }
}

pub fn changed(state: &ClusterState, entry: &Entry) -> ClusterState {
    let epoch = Epoch { generation: 0, index: state.epoch().index + 1 };
    let (next, verdict) = apply(state, epoch, entry);
    verdict.unwrap();
    next
}

fn create_table() -> Entry {
    let column = |name: &str, ty, kind| ColumnDefinition { name: name.into(), ty, kind };
    let columns = vec![column("id", Type::Int, ColumnKind::PartitionKey), column("v", Type::Text, ColumnKind::Regular)];
    let (keyspace, name) = ("ks".into(), "t".into());
    let table = CreateTable { keyspace, name, columns, options: TableOptions::default(), if_not_exists: false };
    Entry::CreateTable { id: TABLE, table }
}

pub fn options() -> StoreOptions {
    StoreOptions {
        directory: "/node/store".into(),
        segment_bytes: 64 << 10,
        log_kept_bytes_max: 64 << 20,
        memtable_budget_bytes: 8 << 20,
        cache_bytes: 1 << 20,
        snapshots: Default::default(),
    }
}

/// What a store holds of a table, by the bytes of its partition keys.
pub type Rows = BTreeMap<Vec<u8>, String>;

struct Node {
    id: NodeId,
    store: Store,
    piece: u64,
    position: Position,
    told: Stamp,
}

/// The cluster that was, and its bucket.
pub struct Source {
    pub state: ClusterState,
    pub bucket: Arc<dyn ObjectStore>,
    below: Below,
    nodes: Vec<Node>,
    written: Vec<(Stamp, Mutation)>,
    cut: Stamp,
}

impl Source {
    /// A cluster with some history, backed up in the middle of it.
    pub async fn new(shape: Shape, seed: u64) -> Source {
        let cluster = Uuid::from_u128(0xc0);
        let state = changed(&shape.born(cluster), &create_table());
        let bucket: Arc<dyn ObjectStore> = Arc::new(Memory::default());
        let below = Below::new(bucket.clone(), &layout::cluster_prefix(cluster));
        let nodes = state.ring().nodes().map(|node| {
            let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
            let identity = Identity { cluster, node: node.id, vnode_bits: state.ring().vnode_bits() };
            let store = Store::open(vfs, options(), identity, &crate::node::table_specs(&state)).unwrap();
            let position = store.log_first();
            store.set_archived(Some(position)).unwrap();
            Node { id: node.id, store, piece: 0, position, told: Stamp(0) }
        });
        let nodes = nodes.collect();
        let mut source = Source { state, bucket, below, nodes, written: Vec::new(), cut: Stamp(0) };
        let mut random = StdRng::seed_from_u64(seed);
        source.live(&mut random, 150).await;
        source.back_up().await;
        source.live(&mut random, 80).await;
        source.archive().await;
        source
    }

    /// The cut, a moment between it and the end, and the end.
    pub fn times(&self) -> [Stamp; 3] {
        let end = self.written.last().unwrap().0;
        [self.cut, Stamp((self.cut.0 + end.0) / 2), end]
    }

    /// What was written up to a time.
    pub fn rows(&self, at: Stamp) -> Rows {
        let identity = Identity { cluster: Uuid::from_u128(1), node: NodeId(1), vnode_bits: VnodeBits::DEFAULT };
        let specs = crate::node::table_specs(&self.state);
        let store = Store::open(Arc::new(MemoryVfs::new()), options(), identity, &specs).unwrap();
        let keyspace = self.state.table(TABLE).unwrap().keyspace;
        for (number, (stamp, mutation)) in self.written.iter().enumerate().filter(|(_, (stamp, _))| *stamp <= at) {
            let name = MutationName { origin: NodeId(1), incarnation: 1, sequence: number as u64 + 1 };
            apply_to(&store, &CheckedRecord::encode(RecordKind::Named(name), keyspace, *stamp, mutation));
        }
        rows_of(&store, TABLE)
    }

    /// Writes that reach a quorum of their replicas or more, in some order, flushes, compactions, and pieces of logs.
    async fn live(&mut self, random: &mut StdRng, steps: usize) {
        for _ in 0..steps {
            match random.random_range(0..12) {
                0 => self.any(random).store.flush(None).unwrap(),
                1 => self.any(random).store.compact_table(TABLE, 0, &Unpaced).unwrap(),
                2 => self.archive().await,
                _ => self.write(random),
            }
        }
    }

    fn any(&self, random: &mut StdRng) -> &Node {
        &self.nodes[random.random_range(0..self.nodes.len())]
    }

    fn write(&mut self, random: &mut StdRng) {
        let stamp = Stamp(self.written.last().map_or(1_000, |(stamp, _)| stamp.0) + random.random_range(1..50));
        let mutation = any_mutation(random, stamp);
        let table = self.state.table(TABLE).unwrap();
        let keyspace = self.state.keyspace(table.keyspace).unwrap();
        let replicas = self.state.ring().replicas(keyspace, mutation.key.token()).nodes;
        let origin = replicas[random.random_range(0..replicas.len())].node;
        let name = MutationName { origin, incarnation: 1, sequence: self.written.len() as u64 + 1 };
        let record = CheckedRecord::encode(RecordKind::Named(name), keyspace.id, stamp, &mutation);
        let missed = random.random_range(0..2 * replicas.len());
        for (at, replica) in replicas.iter().enumerate() {
            if at != missed || replica.node == origin {
                let node = self.nodes.iter().find(|node| node.id == replica.node).unwrap();
                apply_to(&node.store, &record);
            }
        }
        self.written.push((stamp, mutation));
    }

    /// Ships what is new in the logs.
    async fn archive(&mut self) {
        let cluster = self.state.cluster();
        let now = Stamp(self.written.last().map_or(0, |(stamp, _)| stamp.0));
        for node in &mut self.nodes {
            loop {
                let Since::Records(range) = node.store.log_since(node.position, 4_000).unwrap() else {
                    panic!("a gap")
                };
                let is_last = range.records.is_empty();
                if is_last && node.told == now {
                    break;
                }
                node.piece += 1;
                node.told = if is_last { now } else { node.told };
                let head = PieceHead {
                    cluster,
                    node: node.id,
                    number: node.piece,
                    from: range.from,
                    to: range.to,
                    told: node.told,
                    made_at: now,
                    records: 0,
                    stamps: None,
                    names: Default::default(),
                    states: Vec::new(),
                };
                let piece = Piece::new(head, &range.records, self.state.ring().vnode_bits());
                self.below.create(&piece.head.key(), piece.encode()).await.unwrap();
                node.position = range.to;
                node.store.set_archived(Some(range.to)).unwrap();
            }
        }
    }

    async fn back_up(&mut self) {
        let mut listed = Vec::new();
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let snapshot = node.store.create_backup_snapshot(BACKUP, SnapshotScope::All, 0).unwrap();
            for meta in &snapshot.files {
                let file = node.store.open_sealed(meta.id).unwrap().unwrap();
                let mut bytes = vec![0; meta.bytes as usize];
                file.read_at(&mut bytes, 0).unwrap();
                self.below.create(&layout::file(&meta.hash, None), bytes.into()).await.unwrap();
            }
            let part = Part {
                cluster: self.state.cluster(),
                backup: BACKUP,
                node: node.id,
                vnode_bits: self.state.ring().vnode_bits(),
                made_at: Stamp(0),
                position: snapshot.position,
                first_piece: node.piece + 1,
                highest: snapshot.last_stamp().unwrap_or(Stamp(0)),
                tables: snapshot.tables.clone(),
                files: snapshot.files.iter().map(|meta| StoredFile { meta: meta.clone(), suffix: None }).collect(),
                received: snapshot.received.clone(),
                state: self.state.encode().into(),
            };
            let bytes = part.encode();
            self.below.create(&part.key(), bytes.clone()).await.unwrap();
            let (files, file_bytes) = (part.files.len() as u64, part.bytes());
            listed.push(ListedPart { node: node.id, object: Listed::of(&bytes), files, file_bytes });
        }
        self.cut = Stamp(self.written.last().unwrap().0.0 + 1);
        let manifest = Manifest {
            cluster: self.state.cluster(),
            backup: BACKUP,
            name: String::new(),
            tag: String::new(),
            scope: Scope::All,
            began_at: Stamp(0),
            cut: self.cut,
            state: self.state.encode().into(),
            parts: listed,
            pieces: Vec::new(),
            absent: Vec::new(),
        };
        self.below.create(&manifest.key(), manifest.encode()).await.unwrap();
    }
}

fn apply_to(store: &Store, record: &CheckedRecord) {
    let mut ends = Vec::new();
    store.append(std::slice::from_ref(record), &mut ends).unwrap();
    store.sync().unwrap();
    store.insert(record, ends[0]).unwrap();
}

fn any_mutation(random: &mut StdRng, stamp: Stamp) -> Mutation {
    let key: i32 = random.random_range(0..40);
    let timestamp = Timestamp(stamp.0);
    let mut mutation = Mutation::new(TABLE, PartitionKey::from_bytes(Bytes::copy_from_slice(&key.to_be_bytes())));
    if random.random_range(0..6) == 0 {
        mutation.deletion = Some(Deletion { timestamp, ldt_s: 1 });
        return mutation;
    }
    let text = Bytes::from(format!("{}-{}", stamp.0, "x".repeat(random.random_range(0..400))));
    let kind = match random.random_range(0..8) {
        0 => CellKind::Tombstone { ldt_s: 1 },
        1 => CellKind::Expiring { expiry_s: 4_000_000_000, ttl_s: 100, value: text },
        _ => CellKind::Live(text),
    };
    let row = Row { cells: vec![(ColumnId(2), Cell { timestamp, kind })], ..Row::default() };
    mutation.rows = vec![(ClusteringKey::encode(&[], &[]).unwrap(), row)];
    mutation
}
