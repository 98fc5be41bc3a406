//! A cluster of one node that keeps everything in memory and fails when it is told to: enough for the command line.

#![allow(clippy::result_large_err, reason = "the messages of the wire are what a service answers with")]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};
use trefoil_proto::v1::change::Op as ChangeOp;
use trefoil_proto::v1::ddl::Op as DdlOp;
use trefoil_proto::v1::pipe_answer::Result as Answer;
use trefoil_proto::v1::pipe_operation::Op;
use trefoil_proto::v1::read_request::Target;
use trefoil_proto::v1::value::Kind;
use trefoil_proto::v1::{self, ColumnKind, InvalidDetail, Outcome, PipeAnswer, PipeRequest, PipeResponse};

/// Rows in a page.
const PAGE_ROWS: usize = 50;

/// What happens to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is done and answered.
    Done,
    /// It is not done, and may be tried again.
    Unavailable,
    /// It is done, but the connection ends before the answer.
    Lost,
}

/// What happens to the n-th operation.
pub type Fates = fn(u64) -> Fate;

/// Values by column, with their timestamps; `None` is null.
type Cells = BTreeMap<String, (i64, Option<v1::Value>)>;
type Key = (Vec<Bytes>, Vec<Bytes>);

#[derive(Default)]
struct State {
    keyspaces: Vec<v1::Keyspace>,
    tables: Vec<v1::Table>,
    /// By table. Static columns stand under an empty clustering key.
    rows: BTreeMap<String, BTreeMap<Key, Cells>>,
    types: Vec<v1::UserType>,
    snapshots: Vec<v1::NodeSnapshots>,
    /// What was done to single elements, which has no other effect here.
    elements: Vec<v1::CellWrite>,
}

#[derive(Clone)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    operations: Arc<AtomicU64>,
    fates: Fates,
    address: String,
}

impl Memory {
    /// What was done to single elements since the last call.
    pub fn take_elements(&self) -> Vec<v1::CellWrite> {
        std::mem::take(&mut self.state.lock().elements)
    }

    /// Serves until the runtime ends.
    pub async fn start(fates: Fates) -> Memory {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let memory = Memory { state: Arc::default(), operations: Arc::default(), fates, address };
        let server = Server::builder()
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20)
            .add_service(v1::data_server::DataServer::new(memory.clone()))
            .add_service(v1::cluster_server::ClusterServer::new(memory.clone()))
            .add_service(v1::schema_server::SchemaServer::new(memory.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        memory
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    async fn serve(self, mut requests: Streaming<PipeRequest>, answers: mpsc::Sender<Result<PipeResponse, Status>>) {
        while let Ok(Some(request)) = requests.message().await {
            let mut response = PipeResponse::default();
            for operation in request.operations {
                let id = operation.id;
                let result = match (self.fates)(self.operations.fetch_add(1, Ordering::Relaxed)) {
                    Fate::Unavailable => {
                        Answer::Error(v1::Error::new(Code::Unavailable, "not now", Outcome::NotApplied))
                    }
                    fate => {
                        let result = self.state.lock().operate(operation.op.unwrap());
                        if fate == Fate::Lost {
                            return;
                        }
                        result
                    }
                };
                response.answers.push(PipeAnswer { id, result: Some(result) });
            }
            if answers.send(Ok(response)).await.is_err() {
                return;
            }
        }
    }

    fn topology(&self) -> v1::Topology {
        let state = self.state.lock();
        let replication = |keyspace: &v1::Keyspace| v1::KeyspaceReplication {
            name: keyspace.name.clone(),
            replication: keyspace.replication.clone(),
        };
        v1::Topology {
            epoch: Some(v1::Epoch { generation: 0, index: 1 }),
            cluster_id: vec![1; 16].into(),
            vnode_bits: 2,
            nodes: vec![self.node()],
            zones: vec![v1::ZoneOwners { region: "local".to_owned(), zone: "a".to_owned(), owners: vec![1; 4] }],
            keyspaces: state.keyspaces.iter().map(replication).collect(),
            answered_by: 1,
        }
    }

    fn node(&self) -> v1::Node {
        v1::Node {
            id: 1,
            region: "local".to_owned(),
            zone: "a".to_owned(),
            client_address: self.address.clone(),
            peer_address: "127.0.0.1:1".to_owned(),
            state: v1::NodeState::Serving.into(),
            alive: true,
        }
    }
}

fn raw(values: &[v1::Value]) -> Vec<Bytes> {
    let bytes = |value: &v1::Value| match &value.kind {
        Some(Kind::Raw(bytes)) => bytes.clone(),
        other => panic!("the client sends raw values, not {other:?}"),
    };
    values.iter().map(bytes).collect()
}

fn values(bytes: &[Bytes]) -> Vec<v1::Value> {
    bytes.iter().map(|bytes| v1::Value { kind: Some(Kind::Raw(bytes.clone())) }).collect()
}

impl State {
    fn operate(&mut self, op: Op) -> Answer {
        match op {
            Op::Mutate(request) => {
                let options = request.options.unwrap_or_default();
                match self.mutate(request.mutation.unwrap(), options.default_timestamp_us.unwrap_or(0)) {
                    Ok(result) => Answer::Write(result),
                    Err(error) => Answer::Error(error),
                }
            }
            Op::Increment(_) => {
                Answer::Error(v1::Error::new(Code::Unimplemented, "there are no counters here", Outcome::NotApplied))
            }
            Op::Batch(request) => {
                let timestamp = request.options.unwrap_or_default().default_timestamp_us.unwrap_or(0);
                let item = |mutation| match self.mutate(mutation, timestamp) {
                    Ok(result) => v1::BatchItem { result: Some(v1::batch_item::Result::Write(result)) },
                    Err(error) => v1::BatchItem { result: Some(v1::batch_item::Result::Error(error)) },
                };
                Answer::Batch(v1::BatchResult {
                    items: request.mutations.into_iter().map(item).collect(),
                    warnings: Vec::new(),
                })
            }
            Op::Read(request) => Answer::Page(self.read(request)),
        }
    }

    fn table(&self, reference: &v1::TableRef) -> v1::Table {
        let is = |table: &&v1::Table| table.keyspace == reference.keyspace && table.name == reference.name;
        self.tables.iter().find(is).cloned().expect("the client asks for known tables")
    }

    fn mutate(&mut self, mutation: v1::Mutation, default_us: i64) -> Result<v1::WriteResult, v1::Error> {
        let reference = mutation.table.unwrap();
        let table = self.table(&reference);
        let partition = raw(&mutation.partition);
        let rows = self.rows.entry(format!("{}.{}", reference.keyspace, reference.name)).or_default();
        for change in mutation.changes {
            let timestamp = change.timestamp_us.unwrap_or(default_us);
            match change.op.unwrap() {
                ChangeOp::Insert(mut write) | ChangeOp::Update(mut write) => {
                    self.elements.extend(write.cells.extract_if(.., |cell| cell.value().is_none()));
                    write_row(rows, &table, &partition, write, timestamp)?;
                }
                ChangeOp::DeleteRow(row) => drop(rows.remove(&(partition.clone(), raw(&row.clustering)))),
                ChangeOp::DeleteRange(range) => {
                    let prefix = raw(&range.from);
                    rows.retain(|(of, clustering), _| *of != partition || !clustering.starts_with(&prefix));
                }
                ChangeOp::DeletePartition(_) => rows.retain(|(of, _), _| *of != partition),
            }
        }
        Ok(v1::WriteResult { stamp: default_us, timestamp_us: default_us, warnings: Vec::new() })
    }

    fn read(&self, request: v1::ReadRequest) -> v1::ReadPage {
        let reference = request.table.unwrap();
        let table = self.table(&reference);
        let empty = BTreeMap::new();
        let rows = self.rows.get(&format!("{}.{}", reference.keyspace, reference.name)).unwrap_or(&empty);
        let has_clustering = table.columns.iter().any(|column| column.kind() == ColumnKind::Clustering);
        let named = request.projection.unwrap_or_default().columns;
        let is_cell = |column: &&v1::Column| matches!(column.kind(), ColumnKind::Static | ColumnKind::Regular);
        let all = table.columns.iter().filter(is_cell).map(|column| column.name.clone());
        let columns: Vec<String> = if named.is_empty() {
            all.collect()
        } else {
            let all: Vec<String> = all.collect();
            named.into_iter().filter(|name| all.contains(name)).collect()
        };
        let skip = request.paging_state.as_ref().try_into().map_or(0, usize::from_be_bytes);
        let wanted = |(partition, clustering): &Key| match request.target.as_ref().unwrap() {
            Target::Slice(slice) => {
                let prefix = slice.ranges.first().map(|range| raw(&range.from)).unwrap_or_default();
                *partition == raw(&slice.partition) && clustering.starts_with(&prefix)
            }
            _ => true,
        };
        let has_rows = |partition: &Vec<Bytes>| {
            let after = Bound::Excluded((partition.clone(), Vec::new()));
            rows.range((after, Bound::Unbounded)).next().is_some_and(|((next, _), _)| next == partition)
        };
        let visible = rows.iter().filter(|(key, _)| wanted(key)).filter_map(|(key, cells)| {
            let static_only = has_clustering && key.1.is_empty();
            if static_only && has_rows(&key.0) {
                return None;
            }
            let statics = rows.get(&(key.0.clone(), Vec::new()));
            let value = |name: &String| {
                let stored = cells.get(name).or_else(|| statics.and_then(|cells| cells.get(name)));
                v1::Cell { value: stored.and_then(|(_, value)| value.clone()), ..Default::default() }
            };
            let cells = columns.iter().map(value).collect();
            Some(v1::Row { partition: values(&key.0), clustering: values(&key.1), cells, static_only })
        });
        let limit = if request.limit == 0 { usize::MAX } else { request.limit as usize };
        let mut rest = visible.take(limit).skip(skip);
        let rows: Vec<v1::Row> = rest.by_ref().take(PAGE_ROWS).collect();
        let more = rest.next().is_some();
        let paging_state = if more { Bytes::copy_from_slice(&(skip + rows.len()).to_be_bytes()) } else { Bytes::new() };
        v1::ReadPage { rows, paging_state, ..Default::default() }
    }

    fn apply(&mut self, ddl: DdlOp) -> Result<bool, v1::Error> {
        let exists =
            |name: &str| v1::Error::new(Code::AlreadyExists, format!("{name} exists already"), Outcome::NotApplied);
        match ddl {
            DdlOp::CreateKeyspace(create) => {
                let keyspace = create.keyspace.unwrap();
                if self.keyspaces.iter().any(|other| other.name == keyspace.name) {
                    return if create.if_not_exists { Ok(false) } else { Err(exists(&keyspace.name)) };
                }
                self.keyspaces.push(keyspace);
            }
            DdlOp::CreateTable(create) => {
                let mut table = create.table.unwrap();
                let same = |other: &v1::Table| other.keyspace == table.keyspace && other.name == table.name;
                if self.tables.iter().any(same) {
                    return if create.if_not_exists { Ok(false) } else { Err(exists(&table.name)) };
                }
                table.id = vec![self.tables.len() as u8; 16].into();
                table.version = 1;
                for (at, column) in table.columns.iter_mut().enumerate() {
                    column.id = at as u32;
                }
                self.tables.push(table);
            }
            DdlOp::DropTable(drop) => self.tables.retain(|table| table.name != drop.name),
            DdlOp::DropKeyspace(drop) => self.keyspaces.retain(|keyspace| keyspace.name != drop.name),
            DdlOp::AlterTable(alter) => {
                for table in self.tables.iter_mut().filter(|table| table.name == alter.name) {
                    table.version += 1;
                }
            }
            DdlOp::TruncateTable(_) => self.rows.clear(),
            DdlOp::CreateType(create) => self.types.push(create.r#type.unwrap()),
            DdlOp::AlterType(_) => {}
            DdlOp::DropType(drop) => self.types.retain(|definition| definition.name != drop.name),
        }
        Ok(true)
    }
}

/// Writes the cells of a row; a value that holds "refuse me" is refused.
fn write_row(
    rows: &mut BTreeMap<Key, Cells>,
    table: &v1::Table,
    partition: &[Bytes],
    write: v1::RowWrite,
    timestamp: i64,
) -> Result<(), v1::Error> {
    let clustering = raw(&write.clustering);
    let refused = v1::Value { kind: Some(Kind::Raw(Bytes::from_static(b"refuse me"))) };
    if let Some(cell) = write.cells.iter().find(|cell| cell.value() == Some(&refused)) {
        return Err(v1::Error::invalid(InvalidDetail::new("is refused").column(&cell.column)));
    }
    rows.entry((partition.to_vec(), clustering.clone())).or_default();
    for cell in write.cells {
        let value = cell.value().cloned().filter(|value| !matches!(value.kind, Some(Kind::Null(_))));
        let column = table.columns.iter().find(|column| column.name == cell.column).unwrap();
        let key = if column.kind() == ColumnKind::Static { Vec::new() } else { clustering.clone() };
        let cells = rows.entry((partition.to_vec(), key)).or_default();
        let newest = cells.get(&cell.column).map_or(i64::MIN, |(timestamp, _)| *timestamp);
        if timestamp >= newest {
            cells.insert(cell.column, (timestamp, value));
        }
    }
    Ok(())
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl v1::data_server::Data for Memory {
    type PipeStream = Answers<PipeResponse>;
    type ReadStreamStream = Answers<v1::ReadPage>;

    async fn pipe(&self, request: Request<Streaming<PipeRequest>>) -> Result<Response<Self::PipeStream>, Status> {
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(self.clone().serve(request.into_inner(), sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn read(&self, _: Request<v1::ReadRequest>) -> Result<Response<v1::ReadPage>, Status> {
        Err(Status::unimplemented("the client uses the pipe"))
    }

    async fn read_stream(&self, _: Request<v1::ReadRequest>) -> Result<Response<Self::ReadStreamStream>, Status> {
        Err(Status::unimplemented("the client uses the pipe"))
    }

    async fn mutate(&self, _: Request<v1::MutateRequest>) -> Result<Response<v1::WriteResult>, Status> {
        Err(Status::unimplemented("the client uses the pipe"))
    }

    async fn increment_counters(&self, _: Request<v1::IncrementRequest>) -> Result<Response<v1::WriteResult>, Status> {
        Err(Status::unimplemented("there are no counters here"))
    }

    async fn batch(&self, _: Request<v1::BatchRequest>) -> Result<Response<v1::BatchResult>, Status> {
        Err(Status::unimplemented("the client uses the pipe"))
    }
}

#[tonic::async_trait]
impl v1::cluster_server::Cluster for Memory {
    type WatchStream = Answers<v1::Topology>;
    type VerifyStream = Answers<v1::VerifyProgress>;

    async fn verify(&self, request: Request<v1::VerifyRequest>) -> Result<Response<Self::VerifyStream>, Status> {
        let table = request.into_inner().table.unwrap_or_default().name;
        let (first, done) = (
            v1::VerifyProgress { vnodes_done: 1, vnodes: 2, partitions: 3, ..Default::default() },
            v1::VerifyProgress { vnodes_done: 2, vnodes: 2, partitions: 7, ..Default::default() },
        );
        let last = match table.as_str() {
            "kv" => v1::VerifyProgress {
                differing_partitions: 2,
                differing: vec![v1::DifferingPartition {
                    key: vec![v1::Value { kind: Some(Kind::Integer(5)) }],
                    held: vec![
                        v1::PartitionHeld { node: 1, digest: vec![1; 16].into(), rows: 2 },
                        v1::PartitionHeld { node: 2, digest: vec![1; 16].into(), rows: 2 },
                        v1::PartitionHeld { node: 3, ..Default::default() },
                    ],
                }],
                ..done
            },
            "flights" => v1::VerifyProgress {
                vnodes_not_compared: 1,
                not_compared: vec![v1::NotCompared { node: 3, reason: "it is not seen alive".to_owned() }],
                ..done
            },
            _ => done,
        };
        Ok(Response::new(Box::pin(stream::iter([Ok(first), Ok(last)]))))
    }

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let first = stream::iter([Ok(self.topology())]);
        Ok(Response::new(Box::pin(futures_util::StreamExt::chain(first, stream::pending()))))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::StatusResponse>, Status> {
        let quarantined = v1::QuarantinedFile {
            path: "/data/x.sst".to_owned(),
            keyspace: "demo".to_owned(),
            table: "flights".to_owned(),
            vnodes: vec![v1::VnodeRun { first: 0, last: 1 }, v1::VnodeRun { first: 3, last: 3 }],
            reason: "it is missing".to_owned(),
        };
        let report = v1::NodeReport {
            version: "0.1.0".to_owned(),
            sstable_bytes: 2_048,
            quarantined: vec![quarantined],
            ..Default::default()
        };
        Ok(Response::new(v1::StatusResponse {
            cluster_id: vec![1; 16].into(),
            cluster_name: "memory".to_owned(),
            answered_by: 1,
            epoch: Some(v1::Epoch { generation: 0, index: 1 }),
            metadata_leader: 1,
            nodes: vec![
                v1::NodeStatus { node: Some(self.node()), report: Some(report), vnodes: 4 },
                v1::NodeStatus { node: Some(v1::Node { id: 2, ..self.node() }), report: None, vnodes: 0 },
            ],
        }))
    }

    async fn ring(&self, _: Request<v1::RingRequest>) -> Result<Response<v1::Topology>, Status> {
        Ok(Response::new(self.topology()))
    }

    async fn flush(&self, request: Request<v1::FlushRequest>) -> Result<Response<v1::FlushResponse>, Status> {
        let error = if request.get_ref().table.is_some() { "the disk is full" } else { "" };
        let nodes = vec![v1::NodeFlush { node: 1, error: error.to_owned() }];
        Ok(Response::new(v1::FlushResponse { nodes }))
    }

    async fn compaction(&self, _: Request<v1::CompactionRequest>) -> Result<Response<v1::CompactionResponse>, Status> {
        let name = || ("demo".to_owned(), "flights".to_owned());
        let (keyspace, table) = name();
        let running = vec![v1::RunningCompaction { keyspace, table, files: 4, bytes: 4_096, bytes_read: 1_024 }];
        let (keyspace, table) = name();
        let files = v1::TableFiles {
            keyspace,
            table,
            files: 9,
            bytes: 8_192,
            read_amplification: 3,
            write_amplification: 2.5,
            space_amplification: 1.25,
            ..Default::default()
        };
        let whole = v1::NodeCompaction {
            node: 1,
            running,
            tables: vec![files],
            backlog_bytes: 3_072,
            backlog_files: 4,
            ..Default::default()
        };
        let dead = v1::NodeCompaction { node: 2, error: "it is not seen alive".to_owned(), ..Default::default() };
        Ok(Response::new(v1::CompactionResponse { nodes: vec![whole, dead] }))
    }

    async fn hints(&self, request: Request<v1::HintsRequest>) -> Result<Response<v1::HintsResponse>, Status> {
        let asked = request.into_inner();
        let (pending_bytes, dropped_bytes) = match asked.action() {
            v1::HintsAction::Drop => (0, 4_096),
            _ => (4_096, 0),
        };
        let hints = v1::TargetHints {
            target: 3,
            pending_bytes,
            dropped_bytes,
            oldest_s: 70,
            paused: asked.action() == v1::HintsAction::Pause,
            written: 12,
            delivered: 5,
            refused_age: 2,
            refused_bytes: 1,
            ..Default::default()
        };
        let keeps = v1::NodeHints { node: 1, targets: vec![hints], ..Default::default() };
        let silent = v1::NodeHints { node: 2, error: "it is not seen alive".to_owned(), ..Default::default() };
        let nodes =
            [keeps, silent].into_iter().filter(|node| asked.nodes.is_empty() || asked.nodes.contains(&node.node));
        Ok(Response::new(v1::HintsResponse { nodes: nodes.collect() }))
    }

    async fn compact(&self, request: Request<v1::CompactRequest>) -> Result<Response<v1::CompactionResponse>, Status> {
        assert_eq!(request.into_inner().table.unwrap().name, "flights");
        let node = v1::NodeCompaction { node: 1, ..Default::default() };
        Ok(Response::new(v1::CompactionResponse { nodes: vec![node] }))
    }

    async fn create_snapshot(
        &self,
        request: Request<v1::CreateSnapshotRequest>,
    ) -> Result<Response<v1::SnapshotsResponse>, Status> {
        let v1::CreateSnapshotRequest { name, table, keyspace, .. } = request.into_inner();
        let table = table.unwrap_or_default();
        let table = v1::SnapshotTable { keyspace: table.keyspace + &keyspace, name: table.name, ..Default::default() };
        let cause = v1::SnapshotCause::Operator.into();
        let snapshot = v1::Snapshot {
            id: vec![7; 16].into(),
            name: name.clone(),
            made_at_us: 1_767_225_600_000_000,
            cause,
            tables: vec![table],
            files: 3,
            bytes: 2_048,
            damage: String::new(),
        };
        let one = v1::NodeSnapshots { node: 1, snapshots: vec![snapshot.clone()], ..Default::default() };
        let error = if name == "half" { "it is not seen alive".to_owned() } else { String::new() };
        let snapshots = if error.is_empty() { vec![snapshot] } else { Vec::new() };
        let nodes = vec![one, v1::NodeSnapshots { node: 2, error, snapshots, only_bytes: 0 }];
        self.state.lock().snapshots = nodes.clone();
        Ok(Response::new(v1::SnapshotsResponse { nodes }))
    }

    async fn list_snapshots(
        &self,
        _: Request<v1::ListSnapshotsRequest>,
    ) -> Result<Response<v1::SnapshotsResponse>, Status> {
        Ok(Response::new(v1::SnapshotsResponse { nodes: self.state.lock().snapshots.clone() }))
    }

    async fn remove_snapshot(
        &self,
        request: Request<v1::RemoveSnapshotRequest>,
    ) -> Result<Response<v1::SnapshotsResponse>, Status> {
        let name = request.into_inner().name;
        let mut state = self.state.lock();
        let nodes = state.snapshots.iter_mut().map(|node| v1::NodeSnapshots {
            node: node.node,
            snapshots: node.snapshots.extract_if(.., |snapshot| snapshot.name == name).collect(),
            ..Default::default()
        });
        Ok(Response::new(v1::SnapshotsResponse { nodes: nodes.collect() }))
    }
}

#[tonic::async_trait]
impl v1::schema_server::Schema for Memory {
    async fn apply(&self, request: Request<v1::ApplyRequest>) -> Result<Response<v1::ApplyResponse>, Status> {
        let op = request.into_inner().ddl.and_then(|ddl| ddl.op).unwrap();
        let applied = self.state.lock().apply(op).map_err(v1::Error::into_status)?;
        Ok(Response::new(v1::ApplyResponse { applied, ..Default::default() }))
    }

    async fn describe(&self, request: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeResponse>, Status> {
        let wanted = request.into_inner();
        let state = self.state.lock();
        let tables = state.tables.iter().filter(|table| {
            (wanted.keyspace.is_empty() || table.keyspace == wanted.keyspace)
                && (wanted.table.is_empty() || table.name == wanted.table)
        });
        let (tables, keyspaces) = (tables.cloned().collect(), state.keyspaces.clone());
        let types = state.types.clone();
        Ok(Response::new(v1::DescribeResponse { keyspaces, tables, types, ..Default::default() }))
    }
}
