//! Limits that keep one table or request from hurting everybody else, and what a request is told of them.

use tonic::Code;
use trefoil_proto::VALUE_BYTES_MAX;
use trefoil_proto::v1::Consistency::{All, Quorum};
use trefoil_proto::v1::change::Op;
use trefoil_proto::v1::error_detail::Kind as Detail;
use trefoil_proto::v1::read_request::Target;
use trefoil_proto::v1::value::Kind;
use trefoil_proto::v1::{
    BatchRequest, CellWrite, Change, ClusteringRange, Consistency, MutateRequest, Mutation, Options, ReadRequest,
    RowRef, RowWrite, Slice, TableRef, Value,
};

use crate::cluster::Cluster;
use crate::door::{Door, answer, options, timed, value};
use crate::process::{Settings, get};

const TABLE: &str = "CREATE TABLE app.t (p text, c int, s text static, a blob, b blob, d blob, PRIMARY KEY (p, c))";

fn table() -> Option<TableRef> {
    Some(TableRef { keyspace: "app".to_owned(), name: "t".to_owned(), ..TableRef::default() })
}

fn text(text: &str) -> Value {
    value(Kind::Text(text.to_owned()))
}

fn integer(number: i32) -> Value {
    value(Kind::Integer(number.into()))
}

fn mutate(partition: &str, ops: Vec<Op>) -> MutateRequest {
    let changes = ops.into_iter().map(|op| Change { op: Some(op), ..Change::default() }).collect();
    let mutation = Mutation { table: table(), partition: vec![text(partition)], changes };
    MutateRequest { options: options(Quorum), mutation: Some(mutation) }
}

fn blob(row: i32, column: &str, bytes: usize) -> Op {
    let value = value(Kind::Blob((0..bytes).map(|at| (at * 31 + row as usize) as u8).collect()));
    Op::Insert(RowWrite { clustering: vec![integer(row)], cells: vec![CellWrite::set(column, value)] })
}

fn delete(row: i32) -> Op {
    Op::DeleteRow(RowRef { clustering: vec![integer(row)] })
}

fn slice(partition: &str, ranges: Vec<ClusteringRange>) -> ReadRequest {
    let target = Target::Slice(Slice { partition: vec![text(partition)], ranges });
    ReadRequest { options: options(Quorum), table: table(), target: Some(target), ..ReadRequest::default() }
}

fn at_level(request: ReadRequest, level: Consistency) -> ReadRequest {
    ReadRequest { options: options(level), ..request }
}

async fn with_guardrails(guardrails: &str) -> (Cluster, Door) {
    let settings = Settings { guardrails: guardrails.to_owned(), ..Settings::default() };
    let cluster = Cluster::start_with(1, settings).await;
    let door = cluster.door(1);
    door.apply(TABLE).await.unwrap();
    (cluster, door)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_near_a_limit_is_told_and_what_is_beyond_it_refused() {
    let guardrails = "value_kib_warn = 2\nvalue_kib_max = 4\nrow_kib_warn = 3\nrow_kib_max = 6\nkey_bytes_warn = 100\n\
                      ranges_max = 2\nbatch_mutations_warn = 2\nbatch_mutations_max = 3\ncolumns_max = 7\n\
                      tables_max = 3\n";
    let (cluster, door) = with_guardrails(guardrails).await;
    let warnings = async |request| door.mutate(request).await.unwrap().warnings.join("; ");
    assert_eq!(warnings(mutate("p", vec![blob(1, "a", 2_048)])).await, "");
    assert_eq!(
        warnings(mutate("p", vec![blob(1, "a", 2_049)])).await,
        "a: a value of 2049 bytes is above the 2048 of value_kib_warn"
    );
    let row = warnings(mutate("p", vec![blob(1, "a", 2_000), blob(1, "b", 2_000)])).await;
    assert!(row.contains("a row of 4000 bytes is above the 3072 of row_kib_warn"), "{row}");
    let key = warnings(mutate(&"k".repeat(101), vec![blob(1, "a", 1)])).await;
    assert!(key.contains("a partition key of 101 bytes is above the 100 of key_bytes_warn"), "{key}");

    let refused = async |request| {
        let error = door.mutate(request).await.unwrap_err();
        assert_eq!(error.status_code(), Code::InvalidArgument, "{error:?}");
        error.message
    };
    let value = refused(mutate("p", vec![blob(2, "a", 4_097)])).await;
    assert!(value.contains("app.t: a: 4097 bytes; at most 4096 are possible (guardrails.value_kib_max)"), "{value}");
    let row = refused(mutate("p", vec![blob(2, "a", 3_000), blob(2, "b", 3_200)])).await;
    assert!(row.contains("a row of 6200 bytes; at most 6144"), "{row}");

    // A row that grew over several writes is told of when it is read.
    door.mutate(mutate("p", vec![blob(1, "b", 2_000), blob(1, "d", 2_000)])).await.unwrap();
    let page = door.read_page(slice("p", Vec::new())).await.unwrap();
    assert!(page.warnings[0].contains("app.t: a row of 60") && page.warnings[0].contains("p = \"p\""), "{page:?}");

    let ranges = vec![ClusteringRange { from: vec![integer(1)], ..ClusteringRange::default() }; 3];
    let error = door.read_page(slice("p", ranges)).await.unwrap_err();
    assert!(error.message.contains("a read of 3 ranges; at most 2"), "{error:?}");

    let batch = async |count: usize| {
        let mutations = (0..count).filter_map(|at| mutate(&format!("q{at}"), vec![blob(1, "a", 1)]).mutation).collect();
        answer(door.data().batch(timed(BatchRequest { options: options(Quorum), mutations })).await)
    };
    assert!(batch(2).await.unwrap().warnings.is_empty());
    assert!(batch(3).await.unwrap().warnings[0].contains("a batch of 3 mutations is above the 2"));
    assert!(batch(4).await.unwrap_err().message.contains("a batch of 4 mutations; at most 3"));

    let columns = door.apply("CREATE TABLE app.u (p int PRIMARY KEY, a int, b int, c int, d int, e int, f int, g int)");
    assert!(columns.await.unwrap_err().message.contains("app.u: a table of 8 columns; at most 7"));
    door.apply("CREATE TABLE app.u (p int PRIMARY KEY)").await.unwrap();
    let tables = door.apply("CREATE TABLE app.w (p int PRIMARY KEY)").await.unwrap_err();
    assert!(tables.message.contains("app.w: there are 3 tables; at most 3"), "{tables:?}");
    door.apply("CREATE TABLE IF NOT EXISTS app.u (p int PRIMARY KEY)").await.unwrap();

    let metrics = get(cluster.node(1).place.http, "/metrics").await.unwrap();
    for line in [
        "trefoil_guardrail_refusals_total{guardrail=\"value\"} 1",
        "trefoil_guardrail_refusals_total{guardrail=\"tables\"} 1",
        "trefoil_guardrail_warnings_total{guardrail=\"key\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

/// A read that would pass over too many tombstones is an error that names them, never an answer with less in it.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_tombstones_fail_a_read() {
    let (_cluster, door) = with_guardrails("tombstones_warn = 10\ntombstones_max = 20\n").await;
    for (partition, dead) in [("few", 10), ("some", 15), ("many", 30)] {
        door.mutate(mutate(partition, (0..dead).map(delete).collect())).await.unwrap();
        door.mutate(mutate(partition, vec![blob(1_000, "a", 1)])).await.unwrap();
    }
    let page = door.read_page(slice("few", Vec::new())).await.unwrap();
    assert_eq!((page.rows.len(), page.warnings.len()), (1, 0), "{page:?}");
    let page = door.read_page(slice("some", Vec::new())).await.unwrap();
    assert_eq!(page.rows.len(), 1);
    assert_eq!(page.warnings, ["app.t: the page met 15 tombstones, above the 10 of tombstones_warn"]);
    for level in [Consistency::One, Quorum, All] {
        let error = door.read_page(at_level(slice("many", Vec::new()), level)).await.unwrap_err();
        assert_eq!(error.status_code(), Code::FailedPrecondition, "{error:?}");
        let Some(Detail::Limit(limit)) = error.kind() else { panic!("{error:?}") };
        assert_eq!((limit.keyspace.as_str(), limit.table.as_str(), limit.limit), ("app", "t", 20));
        assert_eq!((limit.found, &limit.partition[..]), (21, &[text("many")][..]));
    }
    // What does not meet them is answered.
    let behind = ClusteringRange { from: vec![integer(500)], ..ClusteringRange::default() };
    assert_eq!(door.read_page(slice("many", vec![behind])).await.unwrap().rows.len(), 1);
}

/// Values up to the largest go the whole way, through nodes that are no replicas too; a row that has grown beyond what a
/// message holds is an error of its own, and hurts nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn large_values_go_the_whole_way() {
    let (cluster, door) = with_guardrails("").await;
    let large = VALUE_BYTES_MAX;
    let written = door.mutate(mutate("p", vec![blob(1, "a", large)])).await.unwrap();
    assert!(written.warnings[0].contains("a value of 8388608 bytes"), "{written:?}");
    let most = large - (1 << 10);
    door.mutate(mutate("p", vec![blob(2, "a", most), blob(2, "b", most)])).await.unwrap();
    for id in cluster.ids() {
        let mut request = ReadRequest { page_rows: 1, ..at_level(slice("p", Vec::new()), All) };
        let first = cluster.door(id).read_page(request.clone()).await.unwrap();
        assert!(
            matches!(&first.rows[0].cells[1].value, Some(Value { kind: Some(Kind::Blob(blob)) }) if blob.len() == large)
        );
        request.paging_state = first.paging_state;
        let second = cluster.door(id).read_page(request).await.unwrap();
        let lengths = second.rows[0].cells[1..3].iter().map(|cell| match &cell.value {
            Some(Value { kind: Some(Kind::Blob(blob)) }) => blob.len(),
            _ => 0,
        });
        assert_eq!(lengths.collect::<Vec<_>>(), [most, most]);
    }
    door.mutate(mutate("p", vec![blob(2, "d", most)])).await.unwrap();
    let behind = ClusteringRange { from: vec![integer(2)], ..ClusteringRange::default() };
    for level in [Quorum, All] {
        let error = door.read_page(at_level(slice("p", vec![behind.clone()]), level)).await.unwrap_err();
        assert_eq!(error.status_code(), Code::OutOfRange, "{level:?}: {error:?}");
    }
    door.mutate(mutate("p", vec![blob(2, "d", 1)])).await.unwrap();
    assert_eq!(door.read_page(slice("p", vec![behind])).await.unwrap().rows.len(), 1);
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_tells_its_cost_when_it_is_asked() {
    let (cluster, door) = with_guardrails("").await;
    let everywhere = |request| MutateRequest { options: options(All), ..request };
    let ten = (0..10).map(|row| blob(row, "a", 10)).collect();
    door.mutate(everywhere(mutate("p", ten))).await.unwrap();
    for id in cluster.ids() {
        cluster.door(id).flush(id).await;
    }
    door.mutate(everywhere(mutate("p", vec![delete(3), blob(4, "a", 3)]))).await.unwrap();
    let untold = door.read_page(slice("p", Vec::new())).await.unwrap();
    assert_eq!(untold.cost, None);
    let traced = Some(Options { trace: true, ..options(All).unwrap() });
    let page = door.read_page(ReadRequest { options: traced, ..slice("p", Vec::new()) }).await.unwrap();
    let cost = page.cost.unwrap();
    assert_eq!((cost.commands, cost.sstables_read, cost.tombstones), (1, 3, 1), "{cost:?}");
    assert_eq!((cost.rows, cost.blocks_cached + cost.blocks_read), (36, 3), "three replicas: {cost:?}");
}
