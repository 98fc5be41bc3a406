//! Requests to one chosen node, sent once: what the node itself says, without routing or retries.

use std::net::SocketAddr;
use std::time::Duration;

use tonic::Request;
use tonic::transport::{Channel, Endpoint};
use trefoil::cql;
use trefoil::model::{PartitionKey, Type, VnodeBits};
use trefoil_proto::MESSAGE_BYTES_MAX;
use trefoil_proto::convert::schema::ddl;
use trefoil_proto::v1::change::Op;
use trefoil_proto::v1::cluster_client::ClusterClient;
use trefoil_proto::v1::data_client::DataClient;
use trefoil_proto::v1::read_request::Target;
use trefoil_proto::v1::schema_client::SchemaClient;
use trefoil_proto::v1::value::Kind;
use trefoil_proto::v1::{
    ApplyRequest, ApplyResponse, CellWrite, Change, Consistency, DescribeRequest, DescribeResponse, Error,
    FlushRequest, MutateRequest, Mutation, Options, ReadPage, ReadRequest, RingRequest, RowWrite, Slice, TableRef,
    TokenScan, Topology, Value, WriteResult,
};

/// How long a request may take: longer than anything here should, so that an answer is the node's and not the clock's.
const DEADLINE: Duration = Duration::from_secs(15);

/// The way to one node.
#[derive(Debug, Clone)]
pub struct Door {
    channel: Channel,
}

impl Door {
    /// Connects with the first request, and again whenever the connection was lost.
    pub fn new(address: SocketAddr) -> Door {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Door { channel: endpoint.connect_timeout(Duration::from_secs(5)).connect_lazy() }
    }

    pub fn data(&self) -> DataClient<Channel> {
        DataClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(usize::MAX)
    }

    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Applies one statement.
    pub async fn apply(&self, statement: &str) -> Result<ApplyResponse, Error> {
        let statements = cql::parse(statement).unwrap();
        let [statement] = statements.as_slice() else { panic!("one statement at a time") };
        let request = ApplyRequest { ddl: Some(ddl(statement)) };
        answer(SchemaClient::new(self.channel()).apply(timed(request)).await)
    }

    pub async fn describe(&self) -> Result<DescribeResponse, Error> {
        answer(SchemaClient::new(self.channel()).describe(timed(DescribeRequest::default())).await)
    }

    /// Writes the node's memtables to files.
    pub async fn flush(&self, node: u32) {
        let request = FlushRequest { nodes: vec![node], ..FlushRequest::default() };
        answer(ClusterClient::new(self.channel()).flush(timed(request)).await).unwrap();
    }

    pub async fn ring(&self) -> Result<Topology, Error> {
        answer(ClusterClient::new(self.channel()).ring(timed(RingRequest {})).await)
    }

    /// Writes a row of `app.kv`.
    pub async fn write(&self, key: i64, value: i64, level: Consistency) -> Result<WriteResult, Error> {
        self.mutate(write_request(key, value, level)).await
    }

    pub async fn mutate(&self, request: MutateRequest) -> Result<WriteResult, Error> {
        answer(self.data().mutate(timed(request)).await)
    }

    /// Reads a row of `app.kv`.
    pub async fn read(&self, key: i64, level: Consistency) -> Result<Option<i64>, Error> {
        let page = self.read_page(read_request(key, level)).await?;
        assert!(page.rows.len() <= 1 && page.paging_state.is_empty(), "one key is one row: {page:?}");
        Ok(page.rows.first().map(value_of))
    }

    pub async fn read_page(&self, request: ReadRequest) -> Result<ReadPage, Error> {
        answer(self.data().read(timed(request)).await)
    }

    /// All rows of `app.kv`, sorted by key.
    pub async fn scan(&self, level: Consistency) -> Result<Vec<(i64, i64)>, Error> {
        let target = Some(Target::Scan(TokenScan::default()));
        let mut request = ReadRequest { target, ..read_request(0, level) };
        let mut rows = Vec::new();
        loop {
            let page = self.read_page(request.clone()).await?;
            rows.extend(page.rows.iter().map(|row| (integer(&row.partition[0]), value_of(row))));
            if page.paging_state.is_empty() {
                rows.sort_unstable();
                return Ok(rows);
            }
            request.paging_state = page.paging_state;
        }
    }
}

/// The table `app.kv`.
pub fn table() -> Option<TableRef> {
    Some(TableRef { keyspace: "app".to_owned(), name: "kv".to_owned(), ..TableRef::default() })
}

pub fn options(level: Consistency) -> Option<Options> {
    Some(Options { consistency: level.into(), ..Options::default() })
}

pub fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

/// A write of a row of `app.kv`.
pub fn write_request(key: i64, new: i64, level: Consistency) -> MutateRequest {
    let cells = vec![CellWrite::set("v", value(Kind::Integer(new)))];
    let insert = Op::Insert(RowWrite { clustering: Vec::new(), cells });
    let changes = vec![Change { op: Some(insert), ..Change::default() }];
    let mutation = Mutation { table: table(), partition: vec![value(Kind::Integer(key))], changes };
    MutateRequest { options: options(level), mutation: Some(mutation) }
}

/// A read of a row of `app.kv`.
pub fn read_request(key: i64, level: Consistency) -> ReadRequest {
    let slice = Slice { partition: vec![value(Kind::Integer(key))], ranges: Vec::new() };
    ReadRequest {
        options: options(level),
        table: table(),
        target: Some(Target::Slice(slice)),
        ..ReadRequest::default()
    }
}

/// The nodes that hold a row of `app.kv`, one per zone.
pub fn replicas(topology: &Topology, key: i64) -> Vec<u32> {
    let bits = VnodeBits::new(topology.vnode_bits as u8).unwrap();
    let bytes = trefoil::model::Value::Integer(key).encode(&Type::BigInt).unwrap();
    let vnode = bits.vnode(PartitionKey::encode(&[bytes], &[Type::BigInt]).unwrap().token());
    topology.zones.iter().map(|zone| zone.owners[vnode.0 as usize]).collect()
}

/// The column `v`.
fn value_of(row: &trefoil_proto::v1::Row) -> i64 {
    integer(row.cells[0].value.as_ref().unwrap())
}

fn integer(value: &Value) -> i64 {
    match value.kind {
        Some(Kind::Integer(value)) => value,
        ref other => panic!("an integer was asked for: {other:?}"),
    }
}

/// With the deadline of this file.
pub fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// The answer, or the error that the status holds.
pub fn answer<T>(result: Result<tonic::Response<T>, tonic::Status>) -> Result<T, Error> {
    result.map(tonic::Response::into_inner).map_err(|status| Error::from_status(&status))
}
