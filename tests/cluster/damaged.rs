//! A node with a file that is damaged or missing: it starts, says so, answers nothing without it, and the others serve.

use std::path::{Path, PathBuf};

use trefoil_proto::v1::Consistency::{All, One, Quorum};
use trefoil_proto::v1::cluster_client::ClusterClient;
use trefoil_proto::v1::{CompactionRequest, FlushRequest, QuarantinedFile, StatusRequest};

use crate::cluster::Cluster;
use crate::door::{answer, timed};
use crate::process::{Settings, get};
use crate::verify::verify;
use crate::wait::until;

const KEYS: i64 = 30;

/// What happens to a file.
type Damage = fn(&Path);

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[60] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn remove(path: &Path) {
    std::fs::remove_file(path).unwrap();
}

fn file_of(cluster: &Cluster, id: u32) -> PathBuf {
    let data = cluster.node(id).data_directory().join("store/data");
    let mut files = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    files.next().unwrap()
}

async fn quarantined(cluster: &Cluster, asked: u32, id: u32) -> Vec<QuarantinedFile> {
    let status = ClusterClient::new(cluster.door(asked).channel()).status(timed(StatusRequest {})).await;
    let nodes = answer(status).unwrap().nodes;
    let node = nodes.into_iter().find(|node| node.node.as_ref().is_some_and(|node| node.id == id));
    node.and_then(|node| node.report).unwrap().quarantined
}

/// A cluster of one node has nobody to get a file's rows from.
async fn alone() -> Cluster {
    let mut cluster = Cluster::prepare_in(&["z1"], Settings::default());
    cluster.begin().await;
    for key in 0..KEYS {
        cluster.door(1).write(key, key, All).await.unwrap();
    }
    cluster.door(1).flush(1).await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_or_missing_file_costs_no_answer_and_its_rows_come_from_the_others() {
    let mut cluster = Cluster::start(1).await;
    for key in 0..KEYS {
        cluster.door(1).write(key, key, All).await.unwrap();
    }
    answer(ClusterClient::new(cluster.door(1).channel()).flush(timed(FlushRequest::default())).await).unwrap();
    for (round, damage) in [flip as Damage, remove].into_iter().enumerate() {
        let path = file_of(&cluster, 2);
        cluster.kill(2);
        damage(&path);
        cluster.start_one(2).await;
        for key in 0..KEYS {
            for by in cluster.ids() {
                for level in [One, Quorum] {
                    let read = cluster.door(by).read(key, level).await;
                    assert_eq!(read.unwrap(), Some(key), "key {key} by {by} at {level:?}");
                }
            }
        }
        assert_eq!(cluster.door(2).scan(Quorum).await.unwrap().len() as i64, KEYS);
        until("the rows are back on node 2", async || match cluster.door(1).scan(All).await {
            Ok(rows) if rows.len() as i64 == KEYS => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        assert!(quarantined(&cluster, 1, 2).await.is_empty());
        assert!(!path.exists(), "the file is gone from among those in use");
        let metrics = get(cluster.node(2).place.http, "/metrics").await.unwrap();
        assert!(metrics.contains("trefoil_replication_vnodes_withdrawn 0"), "{metrics}");
        assert!(!metrics.contains("trefoil_replication_vnodes_rebuilt_total 0"), "{metrics}");
        // What the node had beside the damaged file is kept for people.
        let kept =
            answer(ClusterClient::new(cluster.door(2).channel()).list_snapshots(timed(Default::default())).await);
        let kept: Vec<_> = kept.unwrap().nodes.into_iter().flat_map(|node| node.snapshots).collect();
        let own = kept.iter().filter(|snapshot| snapshot.name.starts_with("withdrawn-app.kv-")).count();
        assert_eq!(own, round + 1, "{kept:?}");
        // Taken part in as before: a replica more is not needed.
        cluster.kill(1);
        cluster.sees_alive(2, &[2, 3].into()).await;
        cluster.door(2).write(0, 0, Quorum).await.unwrap();
        assert_eq!(cluster.door(3).scan(Quorum).await.unwrap().len() as i64, KEYS);
        cluster.start_one(1).await;
        cluster.door(2).flush(2).await;
    }
    let (last, differing, _) = verify(&cluster, 3).await;
    assert_eq!((last.differing_partitions, differing.len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_other_replicas_a_file_stays_out_of_use_until_it_is_put_back() {
    let mut cluster = alone().await;
    let path = file_of(&cluster, 1);
    let whole = std::fs::read(&path).unwrap();
    cluster.kill(1);
    flip(&path);
    cluster.start_one(1).await;
    cluster.door(1).read(0, One).await.expect_err("its only copy is damaged");
    cluster.door(1).write(0, 0, All).await.unwrap();
    let told = quarantined(&cluster, 1, 1).await;
    assert_eq!((told.len(), told[0].table.as_str()), (1, "kv"), "{told:?}");
    assert!(told[0].path.ends_with(path.file_name().unwrap().to_str().unwrap()), "{told:?}");
    let health = get(cluster.node(1).place.http, "/healthz").await.unwrap();
    assert!(
        health.starts_with("HTTP/1.1 200") && health.contains("warning: ") && health.contains("app.kv"),
        "{health}"
    );
    let metrics = get(cluster.node(1).place.http, "/metrics").await.unwrap();
    assert!(metrics.contains("trefoil_sstables_quarantined 1"), "{metrics}");
    cluster.kill(1);
    std::fs::write(&path, &whole).unwrap();
    cluster.start_one(1).await;
    assert!(quarantined(&cluster, 1, 1).await.is_empty());
    for key in 0..KEYS {
        assert_eq!(cluster.door(1).read(key, All).await.unwrap(), Some(key));
    }
}

/// Without a copy of the file and without other replicas, by hand, as docs/operations.md says: the table emptied, the rows in.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_emptied_that_has_lost_a_file() {
    let mut cluster = alone().await;
    let path = file_of(&cluster, 1);
    cluster.kill(1);
    remove(&path);
    cluster.start_one(1).await;
    cluster.door(1).apply("TRUNCATE app.kv").await.unwrap();
    until("the file is forgotten", async || match quarantined(&cluster, 1, 1).await {
        told if told.is_empty() => Ok(()),
        told => Err(format!("{told:?}")),
    })
    .await;
    for key in 0..KEYS {
        cluster.door(1).write(key, key, All).await.unwrap();
        assert_eq!(cluster.door(1).read(key, All).await.unwrap(), Some(key));
    }
}

/// Nobody reads: the node finds it by itself.
#[tokio::test(flavor = "multi_thread")]
async fn damage_is_found_before_a_read_meets_it() {
    // Each file has a turn in every day, and a node begins with the turns of the day before.
    let settings = Settings { scrub: "every_days = 1\n".to_owned(), ..Settings::default() };
    let mut cluster = Cluster::start_with(1, settings).await;
    for key in 0..KEYS {
        cluster.door(1).write(key, key, All).await.unwrap();
    }
    answer(ClusterClient::new(cluster.door(1).channel()).flush(timed(FlushRequest::default())).await).unwrap();
    let path = file_of(&cluster, 2);
    cluster.kill(2);
    flip(&path);
    cluster.start_one(2).await;
    until("its vnodes are rebuilt", async || {
        let metrics = get(cluster.node(2).place.http, "/metrics").await.unwrap();
        match metrics.contains("trefoil_replication_vnodes_rebuilt_total 0") {
            true => Err("they are not"),
            false => Ok(()),
        }
    })
    .await;
    until("the others have read theirs", async || {
        let asked = ClusterClient::new(cluster.door(3).channel()).compaction(timed(CompactionRequest::default())).await;
        let scrubs: Vec<_> = answer(asked).unwrap().nodes.into_iter().filter_map(|node| node.scrub).collect();
        let damaged: Vec<u64> = scrubs.iter().map(|scrub| scrub.damaged).collect();
        let is_done = scrubs.iter().all(|scrub| scrub.files >= 1 && scrub.waiting_files == 0);
        if is_done && damaged == [0, 1, 0] { Ok(()) } else { Err(format!("{scrubs:?}")) }
    })
    .await;
    let metrics = get(cluster.node(2).place.http, "/metrics").await.unwrap();
    assert!(metrics.contains("trefoil_scrub_damaged_total 1"), "{metrics}");
    for key in 0..KEYS {
        assert_eq!(cluster.door(2).read(key, One).await.unwrap(), Some(key));
    }
}
