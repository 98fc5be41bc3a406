//! A table of requests that can never be served: each is answered with an error that names the culprit, and the node
//! lives on.

use std::iter::repeat_n;

use bytes::Bytes;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_stream::StreamExt;
use tonic::Code;
use trefoil_proto::v1::change::Op;
use trefoil_proto::v1::read_request::Target;
use trefoil_proto::v1::schema_client::SchemaClient;
use trefoil_proto::v1::value::Kind;
use trefoil_proto::v1::{
    ApplyRequest, BatchRequest, CellWrite, Change, ClusteringRange, Consistency, Error, Key, MultiGet, MutateRequest,
    Mutation, Options, PipeOperation, PipeRequest, Projection, ReadRequest, RowRef, RowWrite, Slice, TableRef,
    TokenScan, Value, WholePartition, pipe_answer, pipe_operation,
};
use trefoil_proto::{MULTI_GET_KEYS_MAX, REQUEST_ID_BYTES_MAX, VALUE_BYTES_MAX};

use crate::cluster::Cluster;
use crate::door::{Door, answer, options, timed, value};
use crate::process::Settings;

const TABLE: &str =
    "CREATE TABLE app.t (p text, c int, s text static, v int, b blob, b2 blob, b3 blob, PRIMARY KEY (p, c))";

const HOUR_US: i64 = 3_600 * 1_000_000;

/// A request, the code of its answer, and what the message must name.
type Case = (Asked, Code, &'static str);

#[derive(Clone)]
enum Asked {
    Write(MutateRequest),
    Batch(BatchRequest),
    Read(ReadRequest),
}

impl Asked {
    async fn of(self, door: &Door) -> Result<(), Error> {
        match self {
            Asked::Write(request) => door.mutate(request).await.map(drop),
            Asked::Batch(request) => answer(door.data().batch(timed(request)).await).map(drop),
            Asked::Read(request) => door.read_page(request).await.map(drop),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_request_is_answered_with_what_is_wrong_in_it() {
    let settings = Settings { limits: "request_mib_in_flight = 64\n".to_owned(), ..Settings::default() };
    let cluster = Cluster::start_with(1, settings).await;
    let door = cluster.door(2);
    door.apply(TABLE).await.unwrap();
    let cases: Vec<Case> =
        bad_mutations().into_iter().chain(bad_changes()).chain(bad_batches()).chain(bad_reads()).collect();
    let mut faults = Vec::new();
    for (asked, code, names) in cases {
        match asked.of(&door).await {
            Err(error) if error.status_code() == code && error.message.contains(names) => {}
            other => faults.push(format!("expected {code:?} with {names:?}: {other:?}")),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    lives_on(&door).await;
}

async fn lives_on(door: &Door) {
    door.mutate(good()).await.unwrap();
    let page = door.read_page(slice(vec![text("p")])).await.unwrap();
    assert_eq!(page.rows.len(), 1, "the rows of bad requests were not written: {page:?}");
}

fn bad_mutations() -> Vec<Case> {
    let with = |change: fn(&mut Mutation)| {
        let mut request = good();
        change(request.mutation.as_mut().unwrap());
        Asked::Write(request)
    };
    let optioned = |options: Options| Asked::Write(MutateRequest { options: Some(options), ..good() });
    let level = |consistency: i32| optioned(Options { consistency, ..Options::default() });
    let table = |keyspace: &str, name: &str| {
        Some(TableRef { keyspace: keyspace.to_owned(), name: name.to_owned(), ..TableRef::default() })
    };
    let mut unknown_keyspace = good();
    unknown_keyspace.mutation.as_mut().unwrap().table = table("nope", "t");
    let mut unknown_table = good();
    unknown_table.mutation.as_mut().unwrap().table = table("app", "gone");
    let mut other_table = good();
    other_table.mutation.as_mut().unwrap().table =
        Some(TableRef { id: Bytes::from_static(&[7; 16]), ..table("app", "t").unwrap() });
    vec![
        (Asked::Write(MutateRequest { mutation: None, ..good() }), Code::InvalidArgument, "no mutation"),
        (with(|mutation| mutation.table = None), Code::InvalidArgument, "names no table"),
        (Asked::Write(unknown_keyspace), Code::NotFound, "nope"),
        (Asked::Write(unknown_table), Code::NotFound, "app.gone"),
        (Asked::Write(other_table), Code::FailedPrecondition, "the table has changed"),
        (with(|mutation| mutation.partition.clear()), Code::InvalidArgument, "for the partition key (p)"),
        (with(|mutation| mutation.partition.push(text("q"))), Code::InvalidArgument, "for the partition key (p)"),
        (with(|mutation| mutation.partition = vec![integer(1)]), Code::InvalidArgument, "p: is of type text"),
        (with(|mutation| mutation.partition = vec![null()]), Code::InvalidArgument, "p: "),
        (with(|mutation| mutation.partition = vec![Value::default()]), Code::InvalidArgument, "p: the value is empty"),
        (with(|mutation| mutation.partition = vec![text(&"x".repeat(70_000))]), Code::InvalidArgument, "70000"),
        (with(|mutation| mutation.changes.clear()), Code::InvalidArgument, "changes nothing"),
        (level(99), Code::InvalidArgument, "consistency 99"),
        (level(10), Code::InvalidArgument, "consistency 10"),
        (
            optioned(Options { request_id: vec![1; REQUEST_ID_BYTES_MAX + 1].into(), ..Options::default() }),
            Code::InvalidArgument,
            "request_id",
        ),
        (
            optioned(Options { default_timestamp_us: Some(1), ..Options::default() }),
            Code::InvalidArgument,
            "#0: timestamp 1 µs is more than the table's lateness of 3600 s behind",
        ),
    ]
}

fn bad_changes() -> Vec<Case> {
    let with = |change: Change| Asked::Write(mutate(vec![insert(0, "v", integer(1)), change]));
    let cell = |column: &str, value: Value| with(insert(1, column, value));
    let at = |offset_us: i64| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as i64;
        with(Change { timestamp_us: Some(now + offset_us), ..insert(1, "v", integer(1)) })
    };
    let twice =
        RowWrite { clustering: vec![integer(1)], cells: vec![cell_of("v", integer(1)), cell_of("v", integer(2))] };
    let range = ClusteringRange { from: vec![integer(9)], to: vec![integer(3)], ..ClusteringRange::default() };
    let of = |op: Op| Change { op: Some(op), ..Change::default() };
    let large = || value(Kind::Blob(vec![7; 6 << 20].into()));
    let one_row = ["b", "b2", "b3"].map(|column| insert(1, column, large()));
    let three = [1, 2, 3].map(|row| insert(row, "b", large()));
    vec![
        (with(Change::default()), Code::InvalidArgument, "#1: the change has no operation"),
        (cell("w", integer(1)), Code::InvalidArgument, "app.t: #1: w: there is no such column"),
        (cell("p", text("x")), Code::InvalidArgument, "#1: p: is part of the key"),
        (cell("v", text("x")), Code::InvalidArgument, "#1: v: is of type int, the value is in the form `text`"),
        (cell("v", integer(1 << 40)), Code::InvalidArgument, "#1: v: "),
        (cell("v", Value::default()), Code::InvalidArgument, "#1: v: the value is empty"),
        (cell("v", value(Kind::Raw(Bytes::from_static(b"123")))), Code::InvalidArgument, "#1: v: "),
        (cell("s", value(Kind::Raw(Bytes::from_static(&[0xff])))), Code::InvalidArgument, "#1: s: "),
        (
            cell("b", value(Kind::Blob(vec![0; VALUE_BYTES_MAX + 1].into()))),
            Code::InvalidArgument,
            "#1: b: 8388609 bytes",
        ),
        (with(of(Op::Insert(twice))), Code::InvalidArgument, "#1: v: is written twice"),
        (with(of(Op::Insert(RowWrite::default()))), Code::InvalidArgument, "#1: "),
        (with(of(Op::Update(row(1)))), Code::InvalidArgument, "#1: the update names no column"),
        (with(of(Op::DeleteRow(RowRef::default()))), Code::InvalidArgument, "#1: "),
        (with(of(Op::DeleteRange(range))), Code::InvalidArgument, "#1: the range ends before it begins"),
        (
            with(Change { ttl_s: Some(630_720_001), ..insert(1, "v", integer(1)) }),
            Code::InvalidArgument,
            "#1: a time to live of 630720001 s",
        ),
        (
            with(Change { ttl_s: Some(1), ..of(Op::DeletePartition(WholePartition {})) }),
            Code::InvalidArgument,
            "#1: a deletion has no time to live",
        ),
        (at(73 * HOUR_US), Code::InvalidArgument, "more than three days ahead of the clock"),
        (at(-2 * HOUR_US), Code::InvalidArgument, "lateness of 3600 s behind the clock"),
        (
            with(Change { timestamp_us: Some(i64::MIN), ..insert(1, "v", integer(1)) }),
            Code::InvalidArgument,
            "reserved",
        ),
        (
            Asked::Write(mutate(one_row.to_vec())),
            Code::InvalidArgument,
            "app.t: a row of 18874368 bytes; at most 16777216",
        ),
        (Asked::Write(mutate(three.to_vec())), Code::InvalidArgument, "app.t: the mutation takes 188"),
        (Asked::Write(mutate([&three[..], &three[..1]].concat())), Code::OutOfRange, "20971520"),
    ]
}

fn bad_batches() -> Vec<Case> {
    let batch = |mutations: Vec<Mutation>| BatchRequest { mutations, ..BatchRequest::default() };
    vec![(Asked::Batch(batch(Vec::new())), Code::InvalidArgument, "no mutations")]
}

fn bad_reads() -> Vec<Case> {
    let read = |target: Target| ReadRequest { target: Some(target), ..slice(vec![text("p")]) };
    let projected = |columns: &[&str]| {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        Asked::Read(ReadRequest {
            projection: Some(Projection { columns, ..Projection::default() }),
            ..slice(vec![text("p")])
        })
    };
    let key = || Key { partition: vec![text("p")], clustering: Vec::new() };
    let get = |keys: Vec<Key>| Asked::Read(read(Target::MultiGet(MultiGet { keys })));
    let paged = |state: &[u8]| {
        Asked::Read(ReadRequest { paging_state: Bytes::copy_from_slice(state), ..slice(vec![text("p")]) })
    };
    let too_long = ClusteringRange { from: vec![integer(1), integer(2)], ..ClusteringRange::default() };
    let ranged = Slice { partition: vec![text("p")], ranges: vec![ClusteringRange::default(), too_long] };
    let exclusive = ClusteringRange { from_exclusive: true, ..ClusteringRange::default() };
    let scan = TokenScan { ranges: vec![exclusive], ..TokenScan::default() };
    vec![
        (Asked::Read(ReadRequest { target: None, ..slice(vec![text("p")]) }), Code::InvalidArgument, "no target"),
        (Asked::Read(ReadRequest { table: None, ..slice(vec![text("p")]) }), Code::InvalidArgument, "names no table"),
        (Asked::Read(slice(Vec::new())), Code::InvalidArgument, "for the partition key (p)"),
        (Asked::Read(slice(vec![value(Kind::Boolean(true))])), Code::InvalidArgument, "p: is of type text"),
        (Asked::Read(read(Target::Slice(ranged))), Code::InvalidArgument, "#1: "),
        (Asked::Read(read(Target::Scan(scan))), Code::InvalidArgument, "#0: the range has an exclusive end"),
        (projected(&["w"]), Code::InvalidArgument, "w: there is no such column"),
        (projected(&["v", "v"]), Code::InvalidArgument, "v: is named twice"),
        (get(Vec::new()), Code::InvalidArgument, "0 keys"),
        (get(repeat_n(key(), MULTI_GET_KEYS_MAX + 1).collect()), Code::InvalidArgument, "1001 keys"),
        (get(vec![key(), Key::default()]), Code::InvalidArgument, "#1: 0 values for the partition key"),
        (paged(b"x"), Code::InvalidArgument, "paging"),
        (paged(&[0xff; 300]), Code::InvalidArgument, "paging"),
    ]
}

/// A page's state belongs to the read it came from.
#[tokio::test(flavor = "multi_thread")]
async fn a_paging_state_of_another_read_is_refused() {
    let cluster = Cluster::start(1).await;
    let door = cluster.door(1);
    door.apply(TABLE).await.unwrap();
    door.mutate(mutate((0..10).map(|c| insert(c, "v", integer(1))).collect())).await.unwrap();
    let first = door.read_page(ReadRequest { page_rows: 4, ..slice(vec![text("p")]) }).await.unwrap();
    assert_eq!(first.rows.len(), 4);
    let next =
        |request: ReadRequest| ReadRequest { paging_state: first.paging_state.clone(), page_rows: 100, ..request };
    let rest = cluster.door(2).read_page(next(slice(vec![text("p")]))).await.unwrap();
    assert_eq!((rest.rows.len(), rest.paging_state.is_empty()), (6, true), "another node goes on with it");
    let others = [slice(vec![text("q")]), ReadRequest { reversed: true, ..slice(vec![text("p")]) }];
    for other in others {
        let refused = door.read_page(next(other)).await.unwrap_err();
        assert_eq!(refused.status_code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message.contains("paging"), "{refused:?}");
    }
    for at in 0..first.paging_state.len() {
        let mut state = first.paging_state.to_vec();
        state[at] ^= 0x40;
        let refused = door.read_page(ReadRequest { paging_state: state.into(), ..slice(vec![text("p")]) }).await;
        assert_eq!(refused.unwrap_err().status_code(), Code::InvalidArgument, "byte {at} turned");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_changes_of_the_schema_say_why() {
    let cluster = Cluster::start(1).await;
    let door = cluster.door(3);
    let cases = [
        ("CREATE KEYSPACE app", Code::AlreadyExists, "app"),
        ("CREATE TABLE app.kv (k int PRIMARY KEY)", Code::AlreadyExists, "app.kv"),
        ("CREATE TABLE none.t (k int PRIMARY KEY)", Code::NotFound, "none"),
        ("DROP KEYSPACE none", Code::NotFound, "none"),
        ("DROP TABLE app.none", Code::NotFound, "app.none"),
        ("CREATE KEYSPACE four WITH replication = {'local': 4}", Code::InvalidArgument, "local"),
        ("CREATE KEYSPACE moon WITH replication = {'moon': 1}", Code::InvalidArgument, "moon"),
    ];
    for (statement, code, names) in cases {
        let error = door.apply(statement).await.expect_err(statement);
        assert_eq!(error.status_code(), code, "{statement}: {error:?}");
        assert!(error.message.contains(names), "{statement}: {error:?}");
    }
    let nothing = answer(SchemaClient::new(door.channel()).apply(timed(ApplyRequest { ddl: None })).await).unwrap_err();
    assert_eq!(nothing.status_code(), Code::InvalidArgument, "{nothing:?}");
    assert_eq!(door.describe().await.unwrap().tables.len(), 1);
}

/// In a Pipe an error is the answer to its operation; the others and the stream go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_operation_of_a_pipe_leaves_the_others_alone() {
    let cluster = Cluster::start(1).await;
    let door = cluster.door(1);
    door.apply(TABLE).await.unwrap();
    let operation = |id: u64, op| PipeOperation { id, timeout_ms: 5_000, op };
    let bad = MutateRequest { mutation: None, ..good() };
    let first = PipeRequest {
        operations: vec![
            operation(1, Some(pipe_operation::Op::Mutate(bad))),
            operation(2, None),
            operation(3, Some(pipe_operation::Op::Mutate(good()))),
        ],
    };
    let second = PipeRequest { operations: vec![operation(1, Some(pipe_operation::Op::Read(slice(vec![text("p")]))))] };
    let (send, requests) = tokio::sync::mpsc::channel(4);
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut answers = door.data().pipe(requests).await.unwrap().into_inner();
    send.send(first).await.unwrap();
    let mut codes = std::collections::BTreeMap::new();
    while codes.len() < 3 {
        for answer in answers.next().await.unwrap().unwrap().answers {
            let code = match answer.result.unwrap() {
                pipe_answer::Result::Error(error) => error.status_code(),
                _ => Code::Ok,
            };
            codes.insert(answer.id, code);
        }
    }
    assert_eq!(
        codes.into_iter().collect::<Vec<_>>(),
        [(1, Code::InvalidArgument), (2, Code::InvalidArgument), (3, Code::Ok)]
    );
    send.send(second).await.unwrap();
    let page = answers.next().await.unwrap().unwrap().answers.remove(0);
    assert!(matches!(page.result, Some(pipe_answer::Result::Page(ref page)) if page.rows.len() == 1), "{page:?}");
    drop(send);
    assert!(answers.next().await.is_none(), "the stream ends when all is answered and the client sends no more");
}

/// Whatever is not gRPC ends the connection it came on and nothing else; bytes that are no message end their call.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_the_client_port_hurts_nobody_else() {
    let cluster = Cluster::start(1).await;
    let door = cluster.door(1);
    door.apply(TABLE).await.unwrap();
    let garbage: Vec<u8> = (0..4_096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for start in [0, 1, 17] {
        let mut stream = tokio::net::TcpStream::connect(cluster.node(1).place.client).await.unwrap();
        // The node may hang up before it has read all.
        let _ = stream.write_all(&garbage[start..]).await;
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(crate::wait::PATIENCE, stream.read_to_end(&mut rest)).await;
        ended.expect("the node hangs up").ok();
    }
    let mut grpc = tonic::client::Grpc::new(door.channel());
    grpc.ready().await.unwrap();
    let path = tonic::codegen::http::uri::PathAndQuery::from_static("/trefoil.v1.Data/Mutate");
    // The tag says 100 bytes, and there are none.
    let torn = Torn { bytes: Bytes::from_static(&[0x0a, 100]) };
    let codec = tonic_prost::ProstCodec::<Torn, Torn>::default();
    let refused = grpc.unary(tonic::Request::new(torn), path, codec).await.unwrap_err();
    assert!(matches!(refused.code(), Code::Internal | Code::InvalidArgument), "{refused:?}");
    lives_on(&door).await;
}

/// A message that is sent as the bytes it is.
#[derive(Debug, Clone, Default, PartialEq)]
struct Torn {
    bytes: Bytes,
}

impl Message for Torn {
    fn encode_raw(&self, buf: &mut impl bytes::BufMut) {
        buf.put_slice(&self.bytes);
    }

    fn merge_field(
        &mut self,
        _tag: u32,
        _wire_type: prost::encoding::WireType,
        _buf: &mut impl bytes::Buf,
        _context: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.bytes.len()
    }

    fn clear(&mut self) {}
}

/// A mutation of partition `p` that is served.
fn good() -> MutateRequest {
    mutate(vec![insert(1, "v", integer(1))])
}

fn mutate(changes: Vec<Change>) -> MutateRequest {
    let table = Some(TableRef { keyspace: "app".to_owned(), name: "t".to_owned(), ..TableRef::default() });
    let mutation = Mutation { table, partition: vec![text("p")], changes };
    MutateRequest { options: options(Consistency::Quorum), mutation: Some(mutation) }
}

fn insert(clustering: i64, column: &str, value: Value) -> Change {
    let write = RowWrite { cells: vec![cell_of(column, value)], ..row(clustering) };
    Change { op: Some(Op::Insert(write)), ..Change::default() }
}

fn row(clustering: i64) -> RowWrite {
    RowWrite { clustering: vec![integer(clustering)], cells: Vec::new() }
}

fn cell_of(column: &str, value: Value) -> CellWrite {
    CellWrite::set(column, value)
}

fn slice(partition: Vec<Value>) -> ReadRequest {
    let target = Some(Target::Slice(Slice { partition, ranges: Vec::new() }));
    let table = Some(TableRef { keyspace: "app".to_owned(), name: "t".to_owned(), ..TableRef::default() });
    ReadRequest { options: options(Consistency::Quorum), table, target, ..ReadRequest::default() }
}

fn text(text: &str) -> Value {
    value(Kind::Text(text.to_owned()))
}

fn integer(integer: i64) -> Value {
    value(Kind::Integer(integer))
}

fn null() -> Value {
    trefoil_proto::convert::value::null()
}
