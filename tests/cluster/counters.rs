//! Counters: nothing is counted twice, and nothing that was acknowledged is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinSet;
use trefoil_client::{Client, Outcome};
use trefoil_proto::v1::Consistency::{self, All, Quorum};
use trefoil_proto::v1::error_detail::Kind as Detail;
use trefoil_proto::v1::value::Kind;
use trefoil_proto::v1::{CounterAdd, Error, IncrementRequest, Options, WriteResult};

use crate::cluster::Cluster;
use crate::door::{Door, answer, options, read_request, table, timed, value, write_request};
use crate::wait::until;

/// The table of these tests, in the place of `app.kv`.
const TABLE: &str = "CREATE TABLE app.kv (k bigint PRIMARY KEY, v counter)";

async fn start(nodes_per_zone: usize) -> Cluster {
    let cluster = Cluster::start(nodes_per_zone).await;
    cluster.door(1).apply("DROP TABLE app.kv").await.unwrap();
    cluster.door(2).apply(TABLE).await.unwrap();
    cluster
}

fn request(key: i64, add: i64, level: Consistency) -> IncrementRequest {
    IncrementRequest {
        options: options(level),
        table: table(),
        partition: vec![value(Kind::Integer(key))],
        clustering: Vec::new(),
        adds: vec![CounterAdd { column: "v".to_owned(), add }],
    }
}

async fn increment(door: &Door, request: IncrementRequest) -> Result<WriteResult, Error> {
    answer(door.data().increment_counters(timed(request)).await)
}

/// Adders through all nodes at once, each through a node of its own, replica or not: every addition counts once.
#[tokio::test(flavor = "multi_thread")]
async fn additions_through_all_nodes_count_once_each() {
    let cluster = start(2).await;
    let mut adders = JoinSet::new();
    for adder in 0..12i64 {
        let door = cluster.door(1 + (adder % 6) as u32);
        adders.spawn(async move {
            for round in 0..40 {
                for key in 0..3 {
                    increment(&door, request(key, adder - round % 3, Quorum)).await.unwrap();
                }
            }
        });
    }
    while let Some(done) = adders.join_next().await {
        done.unwrap();
    }
    let expected: i64 = (0..12).flat_map(|adder| (0..40).map(move |round| adder - round % 3)).sum();
    for id in cluster.ids() {
        for key in 0..3 {
            assert_eq!(cluster.door(id).read(key, Quorum).await.unwrap(), Some(expected), "key {key} by {id}");
        }
    }
}

/// What was acknowledged and what may have been done.
#[derive(Default)]
struct Counted {
    acknowledged: AtomicU64,
    unknown: AtomicU64,
}

/// B029: after a crash a node counted on in its old shard, with clocks that were used before, and additions vanished. Here
/// every run has a shard of its own. Nodes are killed in turns, and all at once, while clients add; the value is never less
/// than what was acknowledged, and never more than that and what nobody can know of (B011: nothing is sent twice).
#[tokio::test(flavor = "multi_thread")]
async fn b029_a_counter_survives_kills_of_every_node() {
    let mut cluster = start(1).await;
    let (stop, counted) = (Arc::new(AtomicBool::new(false)), Arc::new(Counted::default()));
    let mut adders = JoinSet::new();
    for adder in 0..9u32 {
        let (stop, counted) = (stop.clone(), counted.clone());
        let client = Client::builder(cluster.endpoints()).zone(["a", "b", "c"][adder as usize % 3]).consistency(Quorum);
        let client = client.connect().await.unwrap();
        adders.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                match client.increment("app.kv").key("k", 1).add("v", 1).send().await {
                    Ok(_) => counted.acknowledged.fetch_add(1, Ordering::Relaxed),
                    Err(error) if error.outcome() == Outcome::Unknown => {
                        counted.unknown.fetch_add(1, Ordering::Relaxed)
                    }
                    Err(_) => 0,
                };
            }
        });
    }
    let goes_on = async || {
        let goal = counted.acknowledged.load(Ordering::Relaxed) + 100;
        until("additions go on", async || {
            let count = counted.acknowledged.load(Ordering::Relaxed);
            if count < goal { Err(count) } else { Ok(()) }
        })
        .await;
    };
    for round in 0..2 {
        for id in cluster.ids() {
            goes_on().await;
            cluster.kill(id);
            if round == 1 {
                goes_on().await;
            }
            cluster.start_one(id).await;
        }
        goes_on().await;
        cluster.kill_all();
        cluster.start_all().await;
    }
    goes_on().await;
    stop.store(true, Ordering::Relaxed);
    while let Some(done) = adders.join_next().await {
        done.unwrap();
    }
    let acknowledged = counted.acknowledged.load(Ordering::Relaxed) as i64;
    let most = acknowledged + counted.unknown.load(Ordering::Relaxed) as i64;
    println!("{acknowledged} acknowledged, at most {most}");
    cluster.whole().await;
    let first = cluster.door(1).read(1, All).await.unwrap().unwrap();
    assert!((acknowledged..=most).contains(&first), "{first} is not in {acknowledged}..={most}");
    for id in cluster.ids() {
        for level in [Quorum, All] {
            assert_eq!(cluster.door(id).read(1, level).await.unwrap(), Some(first), "by {id}");
        }
    }
}

/// B110: what cannot be met is refused before anything is done; and with one replica dead everything goes on.
#[tokio::test(flavor = "multi_thread")]
async fn b110_additions_without_a_quorum_are_refused_at_once_and_count_nothing() {
    let mut cluster = start(1).await;
    increment(&cluster.door(1), request(1, 5, All)).await.unwrap();
    cluster.kill(3);
    cluster.settled().await;
    for _ in 0..20 {
        increment(&cluster.door(1), request(1, 1, Quorum)).await.unwrap();
    }
    let refused = increment(&cluster.door(1), request(1, 100, All)).await.unwrap_err();
    assert_eq!((refused.status_code(), refused.outcome()), (tonic::Code::Unavailable, Outcome::NotApplied));
    assert_eq!(cluster.door(2).read(1, Quorum).await.unwrap(), Some(25));
}

/// A counter that was deleted stays deleted; and whatever counters do not have is refused by its name.
#[tokio::test(flavor = "multi_thread")]
async fn what_counters_do_not_have_is_refused_and_deleted_ones_stay_deleted() {
    let cluster = start(1).await;
    let door = cluster.door(2);
    let refused = async |request: IncrementRequest| increment(&door, request).await.unwrap_err().message;
    let with_timestamp = IncrementRequest {
        options: Some(Options { default_timestamp_us: Some(1), ..Options::default() }),
        ..request(1, 1, All)
    };
    assert!(refused(with_timestamp).await.contains("counters take no timestamp"));
    assert!(refused(IncrementRequest { adds: Vec::new(), ..request(1, 1, All) }).await.contains("nothing is added"));
    let named = |column: &str| CounterAdd { column: column.to_owned(), add: 1 };
    let adds = |adds: Vec<CounterAdd>| IncrementRequest { adds, ..request(1, 1, All) };
    assert!(refused(adds(vec![named("x")])).await.contains("there is no such column"));
    assert!(refused(adds(vec![named("k")])).await.contains("is not a counter"));
    assert!(refused(adds(vec![named("v"), named("v")])).await.contains("is named twice"));
    let inserted = door.mutate(write_request(1, 1, All)).await.unwrap_err();
    assert!(inserted.message.contains("rows of counters are not inserted"), "{inserted:?}");
    for (statement, words) in [
        ("ALTER TABLE app.kv ADD w int", "nothing else beside its key"),
        ("ALTER TABLE app.kv WITH default_time_to_live = 5", "no time to live"),
        ("CREATE TABLE app.t (k int PRIMARY KEY, a int, b counter)", "nothing else beside its key"),
    ] {
        let error = cluster.door(1).apply(statement).await.unwrap_err();
        assert!(matches!(error.kind(), Some(Detail::Invalid(_))) && error.message.contains(words), "{error:?}");
    }
    cluster.door(1).apply("ALTER TABLE app.kv ADD w counter").await.unwrap();
    increment(&door, request(1, 7, All)).await.unwrap();
    assert_eq!(door.read(1, All).await.unwrap(), Some(7));
    let client = Client::builder(cluster.endpoints()).consistency(All).connect().await.unwrap();
    client.delete("app.kv").key("k", 1).send().await.unwrap();
    assert_eq!(door.read_page(read_request(1, All)).await.unwrap().rows.len(), 0);
    increment(&door, request(1, 7, All)).await.unwrap();
    assert_eq!(door.read_page(read_request(1, All)).await.unwrap().rows.len(), 0, "deleted for good");
}
