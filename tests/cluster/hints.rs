//! Hints: a node that was away gets what it has missed, without any read or repair; and what the bounds leave out is counted.
//!
//! What a node holds itself is read through its own port at ONE. Replicas tell each other so seldom here that nothing is found
//! and filled by that.

use trefoil_client::Client;
use trefoil_proto::v1::Consistency::{self, One, Quorum};
use trefoil_proto::v1::change::Op;
use trefoil_proto::v1::value::Kind;
use trefoil_proto::v1::{
    CellWrite, Change, CounterAdd, HintsAction, IncrementRequest, MutateRequest, RowWrite, TargetHints,
};

use crate::cluster::{Cluster, SCHEMA};
use crate::door::{answer, options, table, timed, value, write_request};
use crate::process::{Settings, get};
use crate::wait::until;

/// With hints alone to fill what a node misses.
fn alone(settings: Settings) -> Settings {
    Settings { replication: "report_ms = 60000\n".to_owned(), ..settings }
}

async fn start(settings: Settings) -> Cluster {
    Cluster::start_with(1, alone(settings)).await
}

/// The hints that node `keeper` keeps for node `target`, once something was done about them.
async fn hints(cluster: &Cluster, action: HintsAction, keeper: u32, target: u32) -> Result<TargetHints, String> {
    let client = Client::builder([cluster.node(keeper).place.client.to_string()]).connect().await;
    let client = client.map_err(|error| error.to_string())?;
    let nodes = client.hints(action, &[keeper], target).await.map_err(|error| error.to_string())?;
    let [node] = nodes.as_slice() else { return Err(format!("{nodes:?}")) };
    if !node.error.is_empty() {
        return Err(node.error.clone());
    }
    Ok(node.targets.iter().find(|hints| hints.target == target).copied().unwrap_or_default())
}

/// Waits until the hints of `keeper` for `target` are as they should be.
async fn hints_are(
    cluster: &Cluster,
    (keeper, target): (u32, u32),
    what: &str,
    is_so: impl Fn(&TargetHints) -> bool,
) -> TargetHints {
    until(&format!("hints of {keeper} for {target}: {what}"), async || {
        let told = hints(cluster, HintsAction::Unspecified, keeper, target).await?;
        if is_so(&told) { Ok(told) } else { Err(format!("{told:?}")) }
    })
    .await
}

/// Writes rows `(key, key + 1)` in turns through these nodes.
async fn fill(cluster: &Cluster, through: &[u32], keys: std::ops::Range<i64>, level: Consistency) {
    for key in keys {
        let door = cluster.door(through[key as usize % through.len()]);
        door.write(key, key + 1, level).await.unwrap();
    }
}

fn rows(keys: std::ops::Range<i64>) -> Vec<(i64, i64)> {
    keys.map(|key| (key, key + 1)).collect()
}

/// Waits until node `id` holds exactly these rows.
async fn holds(cluster: &Cluster, id: u32, expected: &[(i64, i64)]) {
    let door = cluster.door(id);
    until(&format!("node {id} holds {} rows", expected.len()), async || {
        let found = door.scan(One).await.map_err(|error| error.message)?;
        if found == expected { Ok(()) } else { Err(format!("it holds {}: {found:?}", found.len())) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_gets_what_it_missed() {
    let mut cluster = start(Settings::default()).await;
    fill(&cluster, &[1, 2, 3], 0..30, Quorum).await;
    cluster.kill(3);
    cluster.settled().await;
    fill(&cluster, &[1, 2], 30..300, Quorum).await;
    cluster.start_one(3).await;
    holds(&cluster, 3, &rows(0..300)).await;
    for keeper in [1, 2] {
        let done = hints_are(&cluster, (keeper, 3), "delivered", |hints| hints.pending_bytes == 0).await;
        assert!(done.delivered >= 135 && done.refused_bytes + done.refused_age + done.refused_disk == 0, "{done:?}");
    }
    let metrics = get(cluster.node(1).place.http, "/metrics").await.unwrap();
    assert!(metrics.contains("trefoil_hint_bytes 0"), "{metrics}");
}

/// A write at ONE is answered by the first replica; those that fall silent meanwhile are hinted when the deadline passes, and
/// those of which the connection breaks at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_in_the_midst_of_writes_gets_them() {
    let mut cluster = start(Settings::default()).await;
    let door = cluster.door(1);
    let writer = tokio::spawn(async move {
        for key in 0..400 {
            door.write(key, key + 1, One).await.unwrap();
        }
    });
    cluster.kill(2);
    cluster.node(3).pause();
    writer.await.unwrap();
    cluster.node(3).resume();
    cluster.start_one(2).await;
    for id in cluster.ids() {
        holds(&cluster, id, &rows(0..400)).await;
    }
}

/// Hints are on disk: neither the keeper nor the target has to live through it.
#[tokio::test(flavor = "multi_thread")]
async fn hints_survive_kills_of_both_sides() {
    let mut cluster = start(Settings::default()).await;
    cluster.kill(3);
    cluster.settled().await;
    fill(&cluster, &[1], 0..200, Quorum).await;
    hints_are(&cluster, (1, 3), "written", |hints| hints.written == 200).await;
    cluster.kill(1);
    cluster.kill(2);
    // Delivery may have begun when it is broken off.
    cluster.start_all().await;
    cluster.kill(3);
    cluster.kill(1);
    cluster.start_all().await;
    holds(&cluster, 3, &rows(0..200)).await;
    hints_are(&cluster, (1, 3), "delivered", |hints| hints.pending_bytes == 0).await;
}

/// The nodes of a cluster that has just been born may not be linked yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_just_born_is_whole() {
    let mut cluster = Cluster::prepare(1, alone(Settings::default()));
    for id in cluster.ids() {
        cluster.node_mut(id).start();
    }
    cluster.node_mut(1).ready().await;
    for statement in SCHEMA {
        until(statement, async || cluster.door(1).apply(statement).await.map_err(|error| error.message)).await;
    }
    fill(&cluster, &[1], 0..100, One).await;
    cluster.node_mut(2).ready().await;
    cluster.node_mut(3).ready().await;
    for id in cluster.ids() {
        holds(&cluster, id, &rows(0..100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_pauses_and_drops_hints() {
    let mut cluster = start(Settings::default()).await;
    cluster.kill(3);
    cluster.settled().await;
    fill(&cluster, &[1], 0..50, Quorum).await;
    hints_are(&cluster, (1, 3), "written", |hints| hints.written == 50).await;
    assert!(hints(&cluster, HintsAction::Pause, 1, 3).await.unwrap().paused);
    cluster.start_one(3).await;
    let paused = hints_are(&cluster, (1, 3), "reachable", |hints| hints.reachable).await;
    assert!(paused.paused && paused.delivered == 0 && paused.pending_bytes > 0, "{paused:?}");
    holds(&cluster, 3, &[]).await;
    hints(&cluster, HintsAction::Resume, 1, 3).await.unwrap();
    holds(&cluster, 3, &rows(0..50)).await;
    cluster.kill(3);
    cluster.settled().await;
    fill(&cluster, &[1], 50..60, Quorum).await;
    hints_are(&cluster, (1, 3), "written", |hints| hints.written == 60).await;
    let dropped = hints(&cluster, HintsAction::Drop, 1, 3).await.unwrap();
    assert!(dropped.dropped_bytes > 0 && dropped.pending_bytes == 0, "{dropped:?}");
    fill(&cluster, &[1], 60..61, Quorum).await;
    cluster.start_one(3).await;
    // The hole remains; what came after it is delivered.
    holds(&cluster, 3, &[rows(0..50), rows(60..61)].concat()).await;
}

/// Writes for a node that was away when a table was emptied came back after it. The table has a new id since then.
#[tokio::test(flavor = "multi_thread")]
async fn b064_hints_from_before_a_truncation_bring_nothing_back() {
    let mut cluster = start(Settings::default()).await;
    cluster.kill(3);
    cluster.settled().await;
    fill(&cluster, &[1], 0..50, Quorum).await;
    hints_are(&cluster, (1, 3), "written", |hints| hints.written == 50).await;
    assert!(cluster.door(1).apply("TRUNCATE app.kv").await.unwrap().applied);
    fill(&cluster, &[2], 100..110, Quorum).await;
    cluster.start_one(3).await;
    let done = hints_are(&cluster, (1, 3), "delivered", |hints| hints.pending_bytes == 0 && hints.reachable).await;
    assert_eq!(done.delivered, 50, "{done:?}");
    holds(&cluster, 3, &rows(100..110)).await;
    for id in cluster.ids() {
        assert_eq!(cluster.door(id).scan(Consistency::All).await.unwrap(), rows(100..110));
    }
}

/// A counter is hinted as the state of a shard: however often it comes, it counts once.
#[tokio::test(flavor = "multi_thread")]
async fn additions_are_hinted_and_count_once() {
    let mut cluster = start(Settings::default()).await;
    let door = cluster.door(1);
    door.apply("DROP TABLE app.kv").await.unwrap();
    door.apply("CREATE TABLE app.kv (k bigint PRIMARY KEY, v counter)").await.unwrap();
    cluster.kill(3);
    cluster.settled().await;
    for _ in 0..20 {
        let request = IncrementRequest {
            options: options(Quorum),
            table: table(),
            partition: vec![value(Kind::Integer(7))],
            clustering: Vec::new(),
            adds: vec![CounterAdd { column: "v".to_owned(), add: 2 }],
        };
        answer(door.data().increment_counters(timed(request)).await).unwrap();
    }
    cluster.start_one(3).await;
    holds(&cluster, 3, &[(7, 40)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_that_is_reached_is_told_of_and_leaves_a_hole() {
    let settings = Settings { hints: "mib_per_node = 1\n".to_owned(), ..Settings::default() };
    let mut cluster = start(settings).await;
    cluster.door(1).apply("CREATE TABLE app.large (k bigint PRIMARY KEY, v blob)").await.unwrap();
    cluster.kill(3);
    cluster.settled().await;
    for key in 0..40 {
        cluster.door(1).mutate(large(key, 50_000)).await.unwrap();
    }
    let full = hints_are(&cluster, (1, 3), "refused", |hints| hints.written + hints.refused_bytes == 40).await;
    assert!(full.written >= 15 && full.refused_bytes >= 15 && full.pending_bytes <= 1 << 20, "{full:?}");
    cluster.start_one(3).await;
    hints_are(&cluster, (1, 3), "delivered", |hints| hints.pending_bytes == 0).await;
    let metrics = get(cluster.node(1).place.http, "/metrics").await.unwrap();
    assert!(metrics.contains("trefoil_hints_refused_total{bound=\"bytes\"}"), "{metrics}");
}

fn large(key: i64, bytes: usize) -> MutateRequest {
    let mut request = write_request(key, 0, Quorum);
    let mutation = request.mutation.as_mut().unwrap();
    mutation.table.as_mut().unwrap().name = "large".to_owned();
    let cells = vec![CellWrite::set("v", value(Kind::Blob(vec![key as u8; bytes].into())))];
    let insert = Op::Insert(RowWrite { clustering: Vec::new(), cells });
    mutation.changes = vec![Change { op: Some(insert), ..Change::default() }];
    request
}

/// A test whether too much is in flight always said no for other nodes, and memory grew without bound. A replica that takes
/// nothing with its connections open makes nobody else grow here.
#[tokio::test(flavor = "multi_thread")]
async fn b119_a_node_that_hangs_costs_others_bounded_memory() {
    const ROUND: i64 = 1_200;
    let cluster = start(Settings::default()).await;
    cluster.door(1).apply("CREATE TABLE app.large (k bigint PRIMARY KEY, v blob)").await.unwrap();
    let write = async |keys: std::ops::Range<i64>| {
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let (door, keys) = (cluster.door(1), keys.clone());
            writers.spawn(async move {
                for key in keys.skip(writer).step_by(8) {
                    door.mutate(large(key, 100_000)).await.unwrap();
                }
            });
        }
        writers.join_all().await;
        cluster.node(1).memory_peak_kib()
    };
    let well = write(0..ROUND).await;
    cluster.node(3).pause();
    let mut peaks = Vec::new();
    for round in 1..=2 {
        peaks.push(write(round * ROUND..(round + 1) * ROUND).await);
    }
    cluster.node(3).resume();
    // What waits for the peer, in its queue and the stream, for the thread of the hints, and one window of them.
    let bound = well + ((32 + 20 + 32 + 4 + 40) << 10);
    assert!(peaks.iter().all(|peak| *peak < bound), "{peaks:?} KiB, {well} before, {bound} allowed");
    let done = hints_are(&cluster, (1, 3), "delivered", |hints| hints.written > 0 && hints.pending_bytes == 0).await;
    assert_eq!(done.refused_bytes + done.refused_age + done.refused_disk, 0, "{done:?}");
}
