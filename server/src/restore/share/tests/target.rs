//! A cluster that something is restored into: each node its store and its shares.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;
use trefoil::codec::entry::{Trust, read_entry};
use trefoil::codec::varint::Reader;
use trefoil::metadata::{ClusterState, Entry, RestoreBegun, RestoredTable};
use trefoil::model::{
    Direction, Fragment, Identity, NodeId, PageEnd, ReadCommand, Slice, Stamp, TableId, Target as ReadTarget,
    TokenRange,
};
use trefoil::store::{Access, Store, TableSpec};
use trefoil::vfs::memory::MemoryVfs;
use trefoil_proto::v1;
use trefoil_s3::{Location, ObjectStore};
use uuid::Uuid;

use super::source::{BACKUP, Rows, Shape, Source, TABLE, changed, options};
use super::{Ground, Order, PATIENCE, Shares, TheOne};

pub const RESTORE: Uuid = Uuid::from_u128(0x7e5);
const RESTORED: TableId = TableId(Uuid::from_u128(0x72));

pub struct Node {
    id: NodeId,
    pub vfs: MemoryVfs,
    pub store: Arc<Store>,
}

impl Node {
    pub fn shares(&self, bucket: Arc<dyn ObjectStore>) -> Shares {
        Shares::new(Ground {
            vfs: Arc::new(self.vfs.clone()),
            directory: "/node/restore".into(),
            store: self.store.clone(),
            node: self.id,
            runtime: Handle::current(),
            buckets: Arc::new(TheOne(bucket)),
        })
    }

    pub async fn begin(&self, shares: &Shares, order: Order, state: &ClusterState) -> Result<v1::RestoreShare, String> {
        shares.begin(RESTORE, order, state)
    }
}

/// The cluster.
pub struct Target {
    pub state: ClusterState,
    pub nodes: Vec<Node>,
    cluster: Uuid,
}

impl Target {
    /// One with the source's table under restore.
    pub fn new(source: &Source, shape: Shape) -> Target {
        let mut table = trefoil::model::Table::clone(source.state.table(TABLE).unwrap());
        table.id = RESTORED;
        let next_column = source.state.next_column(TABLE).unwrap().0;
        let begun = RestoreBegun {
            restore: RESTORE,
            plan: Bytes::new(),
            keyspaces: Vec::new(),
            types: Vec::new(),
            tables: vec![RestoredTable { keyspace: "ks".into(), table, next_column }],
        };
        let state = changed(&shape.born(Uuid::from_u128(0xdd)), &Entry::RestoreBegun(begun));
        Target::of(source, state)
    }

    fn of(source: &Source, state: ClusterState) -> Target {
        let nodes = state.ring().nodes().map(|node| {
            let vfs = MemoryVfs::new();
            let store = opened(&vfs, &state, node.id);
            Node { id: node.id, vfs, store }
        });
        Target { nodes: nodes.collect(), cluster: source.state.cluster(), state }
    }

    /// The same cluster once the restore is over.
    pub fn in_use(&self) -> Target {
        let state = changed(&self.state, &Entry::Restored(RESTORE));
        let nodes = self.nodes.iter().map(|node| {
            let vfs = MemoryVfs::new();
            let store = opened(&vfs, &state, node.id);
            Node { id: node.id, vfs, store }
        });
        Target { nodes: nodes.collect(), cluster: self.cluster, state }
    }

    pub fn order(&self, at: Stamp) -> Order {
        let location = Location {
            endpoint: None,
            region: "eu".into(),
            bucket: "backups".into(),
            prefix: String::new(),
            path_style: false,
        };
        let tables = vec![(TABLE, RESTORED)];
        Order { location, cluster: self.cluster, backup: BACKUP, through: at, tables, bytes_per_s: None }
    }

    /// Lets a node load its share; answers how that ended.
    pub async fn load(&self, node: usize, bucket: Arc<dyn ObjectStore>, at: Stamp) -> v1::RestoreShare {
        let shares = self.nodes[node].shares(bucket);
        let begun = self.nodes[node].begin(&shares, self.order(at), &self.state).await;
        if let Err(error) = begun {
            let mut told = v1::RestoreShare { error, retry: true, ..v1::RestoreShare::default() };
            told.set_state(v1::RestoreShareState::Stopped);
            return told;
        }
        let ended = tokio::time::timeout(PATIENCE, async {
            loop {
                let told = shares.look(RESTORE);
                if told.state() != v1::RestoreShareState::Running {
                    return told;
                }
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        });
        let told = ended.await.unwrap();
        tokio::task::spawn_blocking(move || shares.stop()).await.unwrap();
        told
    }

    /// Lets all nodes load theirs.
    pub async fn load_all(&self, bucket: Arc<dyn ObjectStore>, at: Stamp) {
        for node in 0..self.nodes.len() {
            let told = self.load(node, bucket.clone(), at).await;
            assert_eq!(told.state(), v1::RestoreShareState::Done, "{told:?}");
            assert_eq!(told.steps, told.steps_done);
        }
    }

    /// Stops a node's process and starts it again.
    pub fn restart(&mut self, node: usize) {
        let (vfs, id) = (self.nodes[node].vfs.clone(), self.nodes[node].id);
        self.nodes.remove(node);
        let store = opened(&vfs, &self.state, id);
        self.nodes.insert(node, Node { id, vfs, store });
    }

    /// Takes its power away in between.
    pub fn crash(&mut self, node: usize, seed: u64) {
        let (vfs, id) = (self.nodes[node].vfs.clone(), self.nodes[node].id);
        self.nodes.remove(node);
        vfs.crash(seed);
        let store = opened(&vfs, &self.state, id);
        self.nodes.insert(node, Node { id, vfs, store });
    }

    /// What all nodes together hold.
    pub fn rows(&self) -> Rows {
        self.nodes.iter().flat_map(|node| rows_of(&node.store, RESTORED)).collect()
    }

    /// What the nodes of each zone hold: one copy.
    pub fn copies(&self) -> Vec<Rows> {
        let mut copies: BTreeMap<_, Rows> = BTreeMap::new();
        for node in &self.nodes {
            let zone = self.state.ring().node(node.id).unwrap().zone.clone();
            let copy = copies.entry(zone).or_default();
            for (key, row) in rows_of(&node.store, RESTORED) {
                assert_eq!(copy.insert(key, row), None, "two nodes of a zone hold it");
            }
        }
        copies.into_values().collect()
    }
}

fn opened(vfs: &MemoryVfs, state: &ClusterState, node: NodeId) -> Arc<Store> {
    let identity = Identity { cluster: state.cluster(), node, vnode_bits: state.ring().vnode_bits() };
    let specs: Vec<TableSpec> = crate::node::table_specs(state);
    Arc::new(Store::open(Arc::new(vfs.clone()), options(), identity, &specs).unwrap())
}

/// What a store holds of a table, deletions included.
pub fn rows_of(store: &Store, table: TableId) -> Rows {
    let command = ReadCommand {
        table,
        target: ReadTarget::Scan(TokenRange::ALL),
        slices: vec![Slice::all()],
        direction: Direction::Forward,
        after: None,
        now_s: 0,
        limit_rows: u32::MAX,
        limit_bytes: u32::MAX,
    };
    let page = store.read(&command, Access::Disk).unwrap();
    assert_eq!(page.end, PageEnd::Complete);
    let mut reader = Reader::new("page", page.entries);
    let (mut rows, mut key) = (Rows::new(), Vec::new());
    while reader.remaining() > 0 {
        let fragment = read_entry(&mut reader, Trust::Checked).unwrap();
        if let Fragment::Partition(header) = &fragment {
            key = header.key.bytes().to_vec();
        }
        rows.entry(key.clone()).or_default().push_str(&format!("{fragment:?}"));
    }
    rows
}
