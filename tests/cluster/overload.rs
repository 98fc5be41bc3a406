//! More than a node admits, callers that go away, and scans that outlive nodes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tonic::Code;
use trefoil_client::Client;
use trefoil_proto::v1::change::Op;
use trefoil_proto::v1::error_detail::Kind as Detail;
use trefoil_proto::v1::value::Kind;
use trefoil_proto::v1::{CellWrite, Change, Consistency, MutateRequest, Mutation, Outcome, RowWrite, TableRef};

use crate::cluster::Cluster;
use crate::door::{options, value, write_request};
use crate::process::{Settings, get};
use crate::wait::until;

/// Requests under way on a node, as its metrics tell.
async fn in_flight(cluster: &Cluster, node: u32) -> u64 {
    let metrics = get(cluster.node(node).place.http, "/metrics").await.unwrap();
    let line = metrics.lines().find_map(|line| line.strip_prefix("trefoil_requests_in_flight "));
    line.unwrap().trim().parse().unwrap()
}

/// Waits until so many are.
async fn until_in_flight(cluster: &Cluster, node: u32, count: u64) {
    until(&format!("{count} requests are under way"), async || match in_flight(cluster, node).await {
        found if found == count => Ok(()),
        found => Err(found),
    })
    .await;
}

/// B052: when full, the server stopped reading its socket; clients saw silence, took the node for dead and went elsewhere
/// with the same load. Here whatever is beyond the limit is answered at once, with a delay, and health is still told.
#[tokio::test(flavor = "multi_thread")]
async fn b052_what_is_too_much_is_refused_at_once() {
    let settings = Settings { limits: "requests_in_flight = 16\n".to_owned(), ..Settings::default() };
    let cluster = Cluster::start_with(1, settings).await;
    let door = cluster.door(1);
    // Writes at ALL wait for the others until these are taken for dead.
    cluster.node(2).pause();
    cluster.node(3).pause();
    let mut waiting = JoinSet::new();
    for key in 0..16 {
        let door = door.clone();
        waiting.spawn(async move { door.write(key, key, Consistency::All).await });
    }
    until_in_flight(&cluster, 1, 16).await;
    let begun = Instant::now();
    let refusals = join_all((100..400).map(|key| {
        let door = door.clone();
        async move { door.write(key, key, Consistency::All).await }
    }));
    for refused in refusals.await {
        let refused = refused.unwrap_err();
        assert_eq!((refused.status_code(), refused.outcome()), (Code::ResourceExhausted, Outcome::NotApplied));
        let Some(Detail::Overloaded(detail)) = refused.kind() else { panic!("{refused:?}") };
        assert!(detail.stage == "requests" && detail.retry_after_ms > 0, "{detail:?}");
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "300 refusals took {took:?}");
    assert!(get(cluster.node(1).place.http, "/healthz").await.unwrap().starts_with("HTTP/1.1 200"));

    cluster.node(2).resume();
    cluster.node(3).resume();
    for written in waiting.join_all().await {
        // Whether the others came back in time for it or not: an answer, and an honest one.
        assert!(written.map_or_else(|error| error.outcome() == Outcome::Unknown, |_| true));
    }
    cluster.settled().await;
    until_in_flight(&cluster, 1, 0).await;
    for key in 100..400 {
        assert_eq!(door.read(key, Consistency::All).await.unwrap(), None, "key {key} was refused");
    }
    door.write(1, 2, Consistency::All).await.unwrap();
}

/// The bytes of requests in flight have a limit of their own.
#[tokio::test(flavor = "multi_thread")]
async fn large_requests_are_limited_by_their_bytes() {
    let settings = Settings { limits: "request_mib_in_flight = 20\n".to_owned(), ..Settings::default() };
    let cluster = Cluster::start_with(1, settings).await;
    let door = cluster.door(1);
    door.apply("CREATE TABLE app.blobs (k bigint PRIMARY KEY, b blob)").await.unwrap();
    let large = |key: i64| {
        let mut request = write_request(key, 0, Consistency::All);
        let mutation = request.mutation.as_mut().unwrap();
        mutation.table.as_mut().unwrap().name = "blobs".to_owned();
        let cells = vec![CellWrite::set("b", value(Kind::Blob(vec![1; 7 << 20].into())))];
        mutation.changes[0].op = Some(Op::Insert(RowWrite { clustering: Vec::new(), cells }));
        request
    };
    cluster.node(2).pause();
    cluster.node(3).pause();
    let mut waiting = JoinSet::new();
    for key in 0..2 {
        let (door, request) = (door.clone(), large(key));
        waiting.spawn(async move { door.mutate(request).await });
    }
    until_in_flight(&cluster, 1, 2).await;
    let refused = door.mutate(large(2)).await.unwrap_err();
    let Some(Detail::Overloaded(detail)) = refused.kind() else { panic!("{refused:?}") };
    assert_eq!((detail.stage.as_str(), refused.outcome()), ("bytes", Outcome::NotApplied));
    door.write(1, 1, Consistency::One).await.unwrap();
    cluster.node(2).resume();
    cluster.node(3).resume();
    waiting.join_all().await;
    cluster.settled().await;
    door.mutate(large(3)).await.unwrap();
}

const WIDE: &str =
    "CREATE TABLE app.wide (p bigint, c bigint, s bigint static, v bigint, w bigint, PRIMARY KEY (p, c))";

/// B073: a caller that goes away between two steps left a write half done. Here callers go away at every stage, and
/// each mutation of a static column and two rows is seen whole or not at all, on every replica.
#[tokio::test(flavor = "multi_thread")]
async fn b073_a_caller_that_goes_away_tears_no_mutation() {
    const KEYS: i64 = 300;
    let cluster = Cluster::start(1).await;
    cluster.door(1).apply(WIDE).await.unwrap();
    let mut given_up = 0;
    for key in 0..KEYS {
        // A channel of its own: dropping it drops the connection too.
        let door = cluster.door(1 + (key % 3) as u32);
        let patience = Duration::from_micros(key.unsigned_abs() * 20);
        given_up += usize::from(tokio::time::timeout(patience, door.mutate(wide(key))).await.is_err());
    }
    assert!(given_up > 10, "only {given_up} callers went away");
    let client = Client::builder(cluster.endpoints()).connect().await.unwrap();
    let mut whole = 0;
    for key in 0..KEYS {
        let rows = client.select("app.wide").key("p", key).consistency(Consistency::All).all().await.unwrap();
        assert!(rows.is_empty() || rows.len() == 2, "key {key}: {} of 2 rows", rows.len());
        whole += usize::from(!rows.is_empty());
        for row in &rows {
            for column in ["s", "v", "w"] {
                assert_eq!(row.get::<Option<i64>>(column).unwrap(), Some(key), "key {key}, {column}");
            }
        }
    }
    assert!(whole as i64 + given_up as i64 >= KEYS, "an acknowledged write is missing");
    until_in_flight(&cluster, 1, 0).await;
}

fn wide(key: i64) -> MutateRequest {
    let cell = |column: &str| CellWrite::set(column, value(Kind::Integer(key)));
    let row = |clustering: i64| RowWrite {
        clustering: vec![value(Kind::Integer(clustering))],
        cells: ["s", "v", "w"].map(cell).to_vec(),
    };
    let changes = [1, 2].map(|clustering| Change { op: Some(Op::Insert(row(clustering))), ..Change::default() });
    let table = Some(TableRef { keyspace: "app".to_owned(), name: "wide".to_owned(), ..TableRef::default() });
    let partition = vec![value(Kind::Integer(key))];
    let mutation = Mutation { table, partition, changes: changes.to_vec() };
    MutateRequest { options: options(Consistency::Quorum), mutation: Some(mutation) }
}

/// B074: a long scan kept one plan for all its pages: a node that had failed once was never asked again, and the scan
/// died with the last of them. Here every node is away once while a scan of many pages goes on.
#[tokio::test(flavor = "multi_thread")]
async fn b074_a_scan_outlives_every_node_once() {
    const ROWS: i64 = 1_200;
    let mut cluster = Cluster::start(1).await;
    let client = Client::builder(cluster.endpoints()).consistency(Consistency::Quorum).connect().await.unwrap();
    for from in (0..ROWS).step_by(100) {
        let writes = (from..from + 100).map(|key| client.insert("app.kv").key("k", key).value("v", key).send());
        for written in join_all(writes).await {
            written.unwrap();
        }
    }
    let mut rows = client.select("app.kv").page_rows(10).stream();
    let mut seen = BTreeSet::new();
    let mut down = None;
    while let Some(row) = rows.try_next().await.unwrap() {
        let key: i64 = row.get("k").unwrap();
        assert!(seen.insert(key), "key {key} came twice");
        if seen.len() % 200 != 100 {
            continue;
        }
        if let Some(id) = down.take() {
            cluster.start_one(id).await;
        }
        let id = 1 + (seen.len() / 200 % 3) as u32;
        cluster.kill(id);
        down = Some(id);
    }
    assert_eq!(seen.len() as i64, ROWS);
}
