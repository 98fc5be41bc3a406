//! One lane over a store in memory, with peers on the loopback that answer what a test tells them to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Status;
use tonic::transport::Server;
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::metadata::{Birth, ClusterState, Entry, Epoch, Member, apply, birth};
use trefoil::model::{
    ColumnDefinition, ColumnKind, CreateKeyspace, CreateTable, Direction, Identity, NodeId, ReadCommand, Slice, Stamp,
    TableId, TableOptions, Target, Timestamp, Type, VnodeBits,
};
use trefoil::received::namer::{HybridClock, Namer};
use trefoil::ring::Zone;
use trefoil::store::{Access, Store, StoreOptions, TableSpec};
use trefoil::vfs::memory::MemoryVfs;
use trefoil_proto::convert;
use trefoil_proto::v1;
use trefoil_proto::v1::peer_operation::Op;
use trefoil_proto::v1::peer_reply::Result as PeerResult;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op as Operation;
use uuid::Uuid;

use crate::clock;
use crate::coordinate::{Admission, Lane, LaneHandle, Limits, Naming, Reply, Shared};
use crate::peers::{Link, PeerEvents, PeerService, Peers, ReplyQueue, run_link};
use crate::replica::Replica;
use crate::replication::{HeardClocks, Replication};
use crate::runtime::LaneRuntime;

/// Longest wait for anything in a test.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The node whose lane is tested.
pub const OWN: NodeId = NodeId(1);

/// What a fake peer does with an operation: a reply, or silence.
type Script = dyn Fn(&Op) -> Option<PeerResult> + Send + Sync;

/// A peer that answers by a script.
pub struct FakePeer {
    node: NodeId,
    cluster: Uuid,
    script: Mutex<Box<Script>>,
    /// What it was asked, in order.
    pub asked: Mutex<Vec<v1::PeerOperation>>,
}

#[tonic::async_trait]
impl PeerEvents for FakePeer {
    fn operation(&self, _peer: NodeId, operation: v1::PeerOperation, replies: &ReplyQueue) {
        let result = operation.op.as_ref().and_then(|op| (self.script.lock())(op));
        let id = operation.id;
        self.asked.lock().push(operation);
        if let Some(result) = result {
            replies.send(v1::PeerReply { id, result: Some(result) });
        }
    }

    fn told(&self, _peer: NodeId, _epoch: Epoch) {}

    fn reported(&self, _peer: NodeId, _report: Bytes) {}

    async fn call(&self, _kind: v1::CallKind, _from: NodeId, _body: Bytes) -> Result<Bytes, Status> {
        Err(Status::unimplemented("a fake peer takes no questions"))
    }

    fn hello(&self) -> Result<v1::Hello, Status> {
        Ok(v1::Hello {
            protocol_min: 1,
            protocol_max: 1,
            cluster_id: Bytes::copy_from_slice(self.cluster.as_bytes()),
            node_id: self.node.0,
            ..v1::Hello::default()
        })
    }

    fn is_member(&self, _node: NodeId) -> bool {
        true
    }
}

/// A running fake peer; it can be killed.
pub struct Running {
    pub peer: Arc<FakePeer>,
    runtime: Option<LaneRuntime>,
}

impl Running {
    /// From now on it does this.
    pub fn does(&self, script: impl Fn(&Op) -> Option<PeerResult> + Send + Sync + 'static) {
        *self.peer.script.lock() = Box::new(script);
    }

    /// Its connections break and cannot be made again.
    pub fn dies(&mut self) {
        self.runtime.take();
    }
}

/// The node under test, in zone a of three, and its two peers.
pub struct Site {
    pub lane: Arc<Lane>,
    pub peers: Vec<Running>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Site {
    pub async fn new() -> Site {
        let cluster = Uuid::from_u128(7);
        let (mut addresses, mut peers) = (vec!["127.0.0.1:1".to_owned()], Vec::new());
        for node in [NodeId(2), NodeId(3)] {
            let (address, running) = fake_peer(node, cluster);
            addresses.push(address);
            peers.push(running);
        }
        let state = state(cluster, &addresses);
        let (completions, mut done) = mpsc::unbounded_channel();
        let lane = Lane::new(0, Arc::new(shared(state, completions)));
        let mut tasks = Vec::new();
        for (running, address) in peers.iter().zip(&addresses[1..]) {
            let link = Arc::new(Link::new(running.peer.node, address.clone()));
            lane.add_link(link.clone());
            let events = Arc::new(LaneHandle(lane.clone()));
            tasks.push(tokio::spawn(run_link(link, lane.shared().peers.clone(), events)));
        }
        let (completing, sweeping) = (lane.clone(), lane.clone());
        tasks.push(tokio::spawn(async move {
            while let Some(completions) = done.recv().await {
                completing.complete(completions);
            }
        }));
        tasks.push(tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(10));
            loop {
                ticks.tick().await;
                sweeping.sweep();
            }
        }));
        eventually(|| lane.shared().peers.alive().len() == 3).await;
        Site { lane, peers, tasks }
    }

    /// Begins one operation.
    pub fn begin(&self, operation: Operation, timeout: Duration) -> oneshot::Receiver<Answer> {
        let (sender, receiver) = oneshot::channel();
        self.lane.begin(operation, Some(timeout), Reply::Unary(sender));
        receiver
    }

    /// Runs one operation to its answer.
    pub async fn ask(&self, operation: Operation, timeout: Duration) -> Answer {
        answer(self.begin(operation, timeout)).await
    }

    /// What a replica answers that holds `value` in row `row` of `all.t`, written at `timestamp`. It is read from a store
    /// of its own.
    pub fn page(&self, row: i64, timestamp: i64, value: &str) -> v1::ReplicaPage {
        let state = self.lane.shared().cluster.load_full();
        let table = state.table_named("all", "t").unwrap();
        let key = convert::key::partition_key(key(row), table).unwrap();
        let stamp = Stamp(1);
        let default_timestamp = Some(Timestamp(timestamp));
        let context = convert::mutation::WriteContext { table, stamp, default_timestamp, request_id: b"" };
        let mutation = convert::mutation::mutation(&context, key.clone(), mutation("all", row, value).changes).unwrap();
        let kind = RecordKind::Nameless { composer: NodeId(2), known_through: Stamp(0) };
        let record = CheckedRecord::encode(kind, table.keyspace, stamp, &mutation);
        let store = store(&state);
        let mut ends = Vec::new();
        store.append(std::slice::from_ref(&record), &mut ends).unwrap();
        store.sync().unwrap();
        store.insert(&record, ends[0]).unwrap();
        let command = ReadCommand {
            table: table.id,
            target: Target::Partition(key),
            slices: vec![Slice::all()],
            direction: Direction::Forward,
            after: None,
            now_s: 0,
            limit_rows: 10,
            limit_bytes: 1 << 20,
        };
        let (page, cost) = store.read_with_cost(&command, Access::CachedOnly).unwrap();
        convert::peer::replica_page(page, &cost)
    }

    /// The metadata as they will be after an entry.
    pub fn after(&self, entry: &Entry) -> ClusterState {
        changed(&self.lane.shared().cluster.load(), entry)
    }

    /// The node's metadata change by an entry; the store follows.
    pub fn apply(&self, entry: &Entry) {
        let next = self.after(entry);
        self.lane.shared().replica.store().set_tables(&specs(&next)).unwrap();
        self.lane.shared().cluster.store(Arc::new(next));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
        // An error says that the test has stopped it.
        let _ = self.lane.shared().replica.stop();
    }
}

/// What an operation is answered.
pub async fn answer(receiver: oneshot::Receiver<Answer>) -> Answer {
    tokio::time::timeout(PATIENCE, receiver).await.expect("an answer in time").expect("an answer")
}

/// Yields to the other tasks until this is so.
pub async fn eventually(is_so: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    waited.await.expect("it became so in time");
}

/// On a thread of its own, so that it can die with everything it has.
fn fake_peer(node: NodeId, cluster: Uuid) -> (String, Running) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let peer = Arc::new(FakePeer { node, cluster, script: Mutex::new(Box::new(|_| None)), asked: Mutex::default() });
    let (stop, stopped) = watch::channel(false);
    let service = v1::peer_server::PeerServer::new(PeerService::new(peer.clone(), stopped));
    let runtime = LaneRuntime::start(node.0 as usize).unwrap();
    runtime.handle().spawn(async move {
        let incoming = TcpListenerStream::new(TcpListener::from_std(listener).unwrap());
        // Runs until the peer dies.
        let _ = Server::builder().add_service(service).serve_with_incoming(incoming).await;
        drop(stop);
    });
    (address, Running { peer, runtime: Some(runtime) })
}

fn identity(state: &ClusterState) -> Identity {
    Identity { cluster: state.cluster(), node: OWN, vnode_bits: state.ring().vnode_bits() }
}

fn store(state: &ClusterState) -> Store {
    let options = StoreOptions {
        directory: "/store".into(),
        segment_bytes: 8 << 20,
        log_kept_bytes_max: 0,
        memtable_budget_bytes: 8 << 20,
        cache_bytes: 1 << 20,
        snapshots: Default::default(),
    };
    Store::open(Arc::new(MemoryVfs::new()), options, identity(state), &specs(state)).unwrap()
}

fn shared(state: ClusterState, completions: crate::replica::Completions) -> Shared {
    let store = Arc::new(store(&state));
    let heard = HeardClocks::open(Arc::new(MemoryVfs::new()), std::path::Path::new("/node")).unwrap();
    let replication =
        Replication::new(identity(&state), 1, Stamp(0), store.clone(), Arc::new(heard), Default::default());
    let replication = Arc::new(replication);
    let compaction = crate::config::CompactionConfig::default().of_threads();
    let scrub = crate::config::ScrubConfig::default().of_thread();
    let mut clock = HybridClock::new(Stamp(0), Stamp(0));
    clock.raised(Stamp(i64::MAX / 2));
    Shared {
        hints: Arc::new(crate::hints::Hints::new(crate::config::HintsConfig::default().bounds())),
        archive: None,
        counters: Default::default(),
        identity: identity(&state),
        cluster: ArcSwap::from_pointee(state),
        peers: Arc::new(Peers::new(OWN)),
        replica: Arc::new(Replica::start(store, vec![completions], compaction, scrub, replication.clone()).unwrap()),
        replication,
        naming: Naming::new(clock, Namer::new(OWN, Stamp(clock::wall_us())).unwrap()),
        admission: Arc::new(Admission::new(10_000, 64 << 20)),
        limits: Limits {
            timeout_default: Duration::from_secs(10),
            timeout_max: Duration::from_secs(60),
            page_rows_default: 5_000,
            page_bytes_default: 1 << 20,
            mutation_bytes_max: 1 << 20,
        },
        guardrails: crate::config::GuardrailsConfig::default().of_requests(),
        incarnation: 1,
    }
}

fn specs(state: &ClusterState) -> Vec<TableSpec> {
    crate::node::table_specs(state)
}

fn changed(state: &ClusterState, entry: &Entry) -> ClusterState {
    let epoch = Epoch { generation: 0, index: state.epoch().index + 1 };
    let (next, verdict) = apply(state, epoch, entry);
    verdict.unwrap();
    next
}

/// Keyspaces `all` and `two`, of three and two copies, each with a table `t`.
fn state(cluster: Uuid, addresses: &[String]) -> ClusterState {
    let member = |(address, zone): (&String, &str)| Member {
        zone: Zone { region: "eu".into(), name: zone.into() },
        peer_address: address.clone(),
        client_address: format!("client-{address}"),
    };
    let members = addresses.iter().zip(["a", "b", "c"]).map(member).collect();
    let seed = Birth { cluster, name: "demo".into(), vnode_bits: VnodeBits::new(4).unwrap(), members };
    let mut state = birth(&seed).unwrap();
    for (keyspace, copies) in [("all", 3), ("two", 2)] {
        let replication = BTreeMap::from([("eu".to_owned(), copies)]);
        let entry = CreateKeyspace { name: keyspace.into(), replication, if_not_exists: false };
        state = changed(&state, &Entry::CreateKeyspace(entry));
        state = changed(&state, &create_table(keyspace, "t"));
    }
    state
}

/// CREATE TABLE `keyspace.name` (id int PRIMARY KEY, value text).
pub fn create_table(keyspace: &str, name: &str) -> Entry {
    let column = |name: &str, ty, kind| ColumnDefinition { name: name.into(), ty, kind };
    Entry::CreateTable {
        id: TableId(Uuid::new_v4()),
        table: CreateTable {
            keyspace: keyspace.into(),
            name: name.into(),
            columns: vec![
                column("id", Type::Int, ColumnKind::PartitionKey),
                column("value", Type::Text, ColumnKind::Regular),
            ],
            options: TableOptions::default(),
            if_not_exists: false,
        },
    }
}

/// The table of requests.
pub fn table(keyspace: &str, name: &str) -> Option<v1::TableRef> {
    Some(v1::TableRef { keyspace: keyspace.into(), name: name.into(), ..v1::TableRef::default() })
}

/// A partition key.
pub fn key(id: i64) -> Vec<v1::Value> {
    vec![v1::Value { kind: Some(v1::value::Kind::Integer(id)) }]
}

/// `value` into row `id`.
pub fn mutation(keyspace: &str, id: i64, value: &str) -> v1::Mutation {
    let value = v1::Value { kind: Some(v1::value::Kind::Text(value.into())) };
    let cells = vec![v1::CellWrite::set("value", value)];
    let row = v1::RowWrite { clustering: Vec::new(), cells };
    let change = v1::Change { op: Some(v1::change::Op::Insert(row)), ..v1::Change::default() };
    v1::Mutation { table: table(keyspace, "t"), partition: key(id), changes: vec![change] }
}

/// A write at a level.
pub fn write(keyspace: &str, id: i64, level: v1::Consistency) -> Operation {
    Operation::Mutate(v1::MutateRequest { options: options(level), mutation: Some(mutation(keyspace, id, "v")) })
}

/// Options that name only a level.
pub fn options(level: v1::Consistency) -> Option<v1::Options> {
    Some(v1::Options { consistency: level.into(), ..v1::Options::default() })
}

/// Rows by their keys.
pub fn multi_get(keyspace: &str, ids: impl Iterator<Item = i64>, level: v1::Consistency) -> v1::ReadRequest {
    let keys = ids.map(|id| v1::Key { partition: key(id), clustering: Vec::new() }).collect();
    v1::ReadRequest {
        options: options(level),
        table: table(keyspace, "t"),
        target: Some(v1::read_request::Target::MultiGet(v1::MultiGet { keys })),
        ..v1::ReadRequest::default()
    }
}

/// The error of an answer, as its code and outcome.
pub fn error_of(answer: &Answer) -> (tonic::Code, v1::Outcome) {
    match answer {
        Answer::Error(error) => (error.status_code(), error.outcome()),
        other => panic!("an error was expected, not {other:?}"),
    }
}
