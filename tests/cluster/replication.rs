//! Replicas know what they have: deletions go everywhere and nothing comes back, holes are filled, and equal replicas have
//! nothing to say.

use trefoil_proto::v1::Consistency::{All, One, Quorum};
use trefoil_proto::v1::change::Op;
use trefoil_proto::v1::cluster_client::ClusterClient;
use trefoil_proto::v1::{Change, CompactRequest, CompactionRequest, FlushRequest, MutateRequest, WholePartition};

use crate::cluster::Cluster;
use crate::door::{Door, answer, options, table, timed, write_request};
use crate::process::{Settings, get};
use crate::verify::verify;
use crate::wait::until;

/// Seconds instead of minutes.
fn fast() -> Settings {
    Settings {
        replication: "report_ms = 100\nclosed_behind_s = 3\npurge_after_s = 1\n".to_owned(),
        // Whoever is away for longer than a moment gets nothing by hints.
        hints: "kept_s = 1\n".to_owned(),
        ..Settings::default()
    }
}

/// A number of `/metrics`, without labels.
pub async fn metric(cluster: &Cluster, node: u32, name: &str) -> f64 {
    let text = get(cluster.node(node).place.http, "/metrics").await.unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("trefoil_{name} ")).map(str::to_owned));
    line.and_then(|number| number.parse().ok()).unwrap_or(f64::NAN)
}

async fn metrics(cluster: &Cluster, name: &str) -> Vec<f64> {
    let mut all = Vec::new();
    for node in cluster.running() {
        all.push(metric(cluster, node, name).await);
    }
    all
}

pub fn delete_request(key: i64) -> MutateRequest {
    let mut request = write_request(key, 0, Quorum);
    request.options = options(Quorum);
    let delete = Change { op: Some(Op::DeletePartition(WholePartition::default())), ..Change::default() };
    request.mutation.as_mut().unwrap().changes = vec![delete];
    request
}

/// Flushes everything and makes one file of it.
async fn flush_and_compact(door: &Door) {
    let mut client = ClusterClient::new(door.channel());
    // A node that is away is named in the answers.
    let _ = client.flush(timed(FlushRequest::default())).await;
    let _ = client.compact(timed(CompactRequest { table: table(), nodes: Vec::new() })).await;
}

/// Bytes of the table's files on each node that answers.
async fn file_bytes(door: &Door) -> Vec<u64> {
    let told =
        answer(ClusterClient::new(door.channel()).compaction(timed(CompactionRequest::default())).await).unwrap();
    let whole = told.nodes.iter().filter(|node| node.error.is_empty());
    whole.map(|node| node.tables.iter().filter(|of| of.table == "kv").map(|of| of.bytes).sum()).collect()
}

/// Ten rows that are deleted again, all in files.
async fn write_and_delete(cluster: &Cluster) {
    let door = cluster.door(1);
    for key in 0..10 {
        door.write(key, key, Quorum).await.unwrap();
    }
    for key in 0..10 {
        door.mutate(delete_request(key)).await.unwrap();
    }
    answer(ClusterClient::new(door.channel()).flush(timed(FlushRequest::default())).await).unwrap();
}

/// Compacts again and again until no node has a file of the table left.
pub async fn all_gone(door: &Door) {
    until("no deletion is left anywhere", async || {
        flush_and_compact(door).await;
        match file_bytes(door).await {
            bytes if bytes.len() == 3 && bytes.iter().all(|bytes| *bytes == 0) => Ok(()),
            bytes => Err(format!("{bytes:?} bytes are left")),
        }
    })
    .await;
}

/// Compacts again and again until all replicas hold so many partitions, deletions counted, and as many as each other.
pub async fn until_gone(cluster: &Cluster, partitions: u64) {
    let door = cluster.door(1);
    until("a deletion is purged everywhere", async || {
        flush_and_compact(&door).await;
        let bytes = file_bytes(&door).await;
        let (last, ..) = verify(cluster, 1).await;
        if last.partitions == partitions { Ok(()) } else { Err(format!("{last:?}, {bytes:?}")) }
    })
    .await;
}

/// A cluster with a table whose deletions may go at once when they may go at all.
pub async fn start() -> Cluster {
    start_with(fast()).await
}

async fn start_with(settings: Settings) -> Cluster {
    let mut cluster = Cluster::prepare(1, settings);
    cluster.start_all().await;
    let door = cluster.door(1);
    door.apply("CREATE KEYSPACE app").await.unwrap();
    door.apply("CREATE TABLE app.kv (k bigint PRIMARY KEY, v bigint) WITH lateness = 0").await.unwrap();
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_go_from_every_replica_once_all_have_them() {
    let cluster = start().await;
    write_and_delete(&cluster).await;
    all_gone(&cluster.door(1)).await;
    for node in cluster.ids() {
        assert_eq!(cluster.door(node).scan(All).await.unwrap(), [], "node {node}");
    }
}

/// One replica has purged its deletions, the others have not: what they hold is the same all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_is_gone_from_one_replica_is_no_difference() {
    let cluster = start().await;
    write_and_delete(&cluster).await;
    let door = cluster.door(1);
    until("node 1 has purged", async || {
        let asked = CompactRequest { table: table(), nodes: vec![1] };
        answer(ClusterClient::new(door.channel()).compact(timed(asked)).await).map_err(|error| error.message)?;
        match file_bytes(&door).await[0] {
            0 => Ok(()),
            bytes => Err(format!("{bytes} bytes are left")),
        }
    })
    .await;
    until("all are equal", async || match verify(&cluster, 2).await {
        (last, ..) if last.differing_partitions + u64::from(last.vnodes_not_compared) == 0 => Ok(()),
        (last, differing, _) => Err(format!("{last:?} {differing:?}")),
    })
    .await;
}

/// Nothing goes while a replica is away, since it may hold what was deleted; once it is back and has everything, all goes.
#[tokio::test(flavor = "multi_thread")]
async fn while_a_replica_is_away_nothing_is_purged_and_nothing_comes_back() {
    let mut cluster = start().await;
    let door = cluster.door(1);
    for key in 0..10 {
        door.write(key, key, All).await.unwrap();
    }
    cluster.kill(3);
    cluster.sees_alive(1, &[1, 2].into()).await;
    for key in 0..10 {
        door.mutate(delete_request(key)).await.unwrap();
    }
    // Long enough for the others to purge, had they been allowed to: what they know stands still.
    until("what is reconciled is old", async || match metric(&cluster, 1, "replication_lag_seconds").await {
        lag if lag > 12.0 => Ok(()),
        lag => Err(format!("{lag} s")),
    })
    .await;
    flush_and_compact(&door).await;
    let bytes = file_bytes(&door).await;
    assert!(bytes.len() == 2 && bytes.iter().all(|bytes| *bytes > 0), "{bytes:?}");
    cluster.start_one(3).await;
    // From the logs of the others: nobody asks for these rows.
    until("node 3 lacks nothing", async || match metric(&cluster, 3, "replication_records_fetched_total").await {
        fetched if fetched >= 10.0 => Ok(()),
        fetched => Err(format!("{fetched} records were fetched")),
    })
    .await;
    all_gone(&door).await;
    for node in cluster.ids() {
        assert_eq!(cluster.door(node).scan(One).await.unwrap(), [], "node {node}");
    }
}

/// The logs of the others are gone too: whole vnodes are compared, row by row, and what was deleted meanwhile stays deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_was_away_longer_than_every_log_is_made_whole() {
    let settings = fast();
    let storage = settings.storage.clone() + "log_kept_mib = 0\n";
    let mut cluster = start_with(Settings { storage, ..settings }).await;
    let door = cluster.door(1);
    for key in 0..10 {
        door.write(key, key, All).await.unwrap();
    }
    cluster.kill(3);
    cluster.sees_alive(1, &[1, 2].into()).await;
    for key in 0..20 {
        match key {
            0..5 => drop(door.mutate(delete_request(key)).await.unwrap()),
            _ => drop(door.write(key, 100 + key, Quorum).await.unwrap()),
        }
    }
    until("hints have expired", async || match metric(&cluster, 1, "replication_lag_seconds").await {
        lag if lag > 12.0 => Ok(()),
        lag => Err(format!("{lag} s")),
    })
    .await;
    // No log has anything any more: each is closed and begun anew.
    for node in [1, 2] {
        cluster.door(node).flush(node).await;
        cluster.kill(node);
    }
    cluster.start_all().await;
    let right: Vec<(i64, i64)> = (5..20).map(|key| (key, 100 + key)).collect();
    until("node 3 has what the others have", async || match cluster.door(3).scan(One).await {
        Ok(rows) if rows == right && metric(&cluster, 3, "replication_holes").await == 0.0 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(metric(&cluster, 3, "replication_vnodes_compared_total").await > 0.0);
    until("deletions may go again", async || match metric(&cluster, 1, "replication_lag_seconds").await {
        lag if lag < 10.0 => Ok(()),
        lag => Err(format!("{lag} s")),
    })
    .await;
}

/// One small message for each peer and second, and no data is read.
#[tokio::test(flavor = "multi_thread")]
async fn equal_replicas_have_nothing_to_say() {
    let cluster = start().await;
    for key in 0..100 {
        cluster.door(1).write(key, key, All).await.unwrap();
    }
    let told = until("nothing new is told", async || {
        let before = metrics(&cluster, "replication_vnodes_told_total").await;
        let reports = metric(&cluster, 1, "replication_reports_total").await;
        until("reports go on", async || match metric(&cluster, 1, "replication_reports_total").await {
            now if now > reports + 20.0 => Ok(()),
            now => Err(format!("{now}")),
        })
        .await;
        let after = metrics(&cluster, "replication_vnodes_told_total").await;
        if before == after { Ok(after) } else { Err(format!("{before:?} then {after:?}")) }
    })
    .await;
    let (reports, bytes) = (
        metrics(&cluster, "replication_reports_total").await,
        metrics(&cluster, "replication_report_bytes_total").await,
    );
    until("reports go on", async || match metrics(&cluster, "replication_reports_total").await {
        now if now.iter().zip(&reports).all(|(now, before)| *now > before + 20.0) => Ok(()),
        now => Err(format!("{now:?}")),
    })
    .await;
    let (more, more_bytes) = (
        metrics(&cluster, "replication_reports_total").await,
        metrics(&cluster, "replication_report_bytes_total").await,
    );
    for node in 0..3 {
        let size = (more_bytes[node] - bytes[node]) / (more[node] - reports[node]);
        assert!(size < 60.0, "{size} bytes for each report of node {}", node + 1);
    }
    assert_eq!(metrics(&cluster, "replication_vnodes_told_total").await, told);
    assert_eq!(metrics(&cluster, "replication_compared_bytes_total").await, [0.0; 3]);
    assert_eq!(metrics(&cluster, "replication_records_fetched_total").await, [0.0; 3]);
}
