//! A node whose disk is full: it refuses writes and says why, reads go on, the others serve quorums, and once there is
//! room everything goes on without a restart.

use trefoil_proto::v1::Consistency::{All, One, Quorum};
use trefoil_proto::v1::change::Op;
use trefoil_proto::v1::cluster_client::ClusterClient;
use trefoil_proto::v1::value::Kind;
use trefoil_proto::v1::{
    CellWrite, Change, Consistency, Error, MutateRequest, Mutation, NodeReport, RowWrite, StatusRequest, TableRef,
    WriteResult,
};

use crate::cluster::Cluster;
use crate::door::{answer, options, timed, value};
use crate::process::{Settings, get};
use crate::wait::until;

/// Room for the two segments that a node keeps, and for a little data.
const DISK_BYTES: u64 = 160 << 20;

const KEYS: i64 = 30;
const BLOB_BYTES: usize = 256 << 10;

/// With memtables so small that they want to be written long before a segment is full.
fn settings() -> Settings {
    Settings { storage: "segment_mib = 48\nmemtable_mib = 8\ncache_mib = 8\n".to_owned(), ..Settings::default() }
}

async fn write_blob(cluster: &Cluster, by: u32, key: i64, level: Consistency) -> Result<WriteResult, Error> {
    let cells = vec![CellWrite::set("b", value(Kind::Blob(vec![7; BLOB_BYTES].into())))];
    let insert = Op::Insert(RowWrite { clustering: Vec::new(), cells });
    let changes = vec![Change { op: Some(insert), ..Change::default() }];
    let table = TableRef { keyspace: "app".to_owned(), name: "big".to_owned(), ..TableRef::default() };
    let mutation = Mutation { table: Some(table), partition: vec![value(Kind::Integer(key))], changes };
    let request = MutateRequest { options: options(level), mutation: Some(mutation) };
    cluster.door(by).mutate(request).await
}

async fn report(cluster: &Cluster, asked: u32, id: u32) -> NodeReport {
    let status = ClusterClient::new(cluster.door(asked).channel()).status(timed(StatusRequest {})).await;
    let nodes = answer(status).unwrap().nodes;
    let node = nodes.into_iter().find(|node| node.node.as_ref().is_some_and(|node| node.id == id));
    node.and_then(|node| node.report).unwrap()
}

/// Writes blobs until the node with the full disk takes no more, and as many again.
async fn overflow(cluster: &Cluster) -> i64 {
    let mut written = 0;
    let refused = loop {
        if let Err(error) = write_blob(cluster, 1, written, All).await {
            break error;
        }
        assert!(written < 1_000, "the disk takes everything");
        written += 1;
    };
    assert!(refused.message.contains("n2: disk full"), "{refused:?}");
    for key in written..2 * written {
        write_blob(cluster, 1, key, Quorum).await.unwrap();
    }
    2 * written
}

/// It refuses what it is to coordinate, and what it is to hold; nothing of it is told to be done.
async fn refuses_writes_and_says_why(cluster: &Cluster) {
    until("node 2 names nothing any more", async || match cluster.door(2).write(KEYS, KEYS, One).await {
        Err(error) if error.message.contains("clock") && error.message.contains("No space left") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let error = write_blob(cluster, 3, 0, All).await.unwrap_err();
    assert!(error.message.contains("n2: disk full"), "{error:?}");
    assert!(report(cluster, 3, 2).await.storage_failure.contains("No space left"));
    let health = get(cluster.node(2).place.http, "/healthz").await.unwrap();
    assert!(health.starts_with("HTTP/1.1 200") && health.contains("No space left"), "{health}");
    let metrics = get(cluster.node(2).place.http, "/metrics").await.unwrap();
    assert!(metrics.contains("trefoil_storage_failed 1"), "{metrics}");
}

async fn reads_everything(cluster: &Cluster) {
    cluster.whole().await;
    for key in 0..KEYS {
        for by in cluster.ids() {
            assert_eq!(cluster.door(by).read(key, One).await.unwrap(), Some(key), "key {key} by {by}");
            assert_eq!(cluster.door(by).read(key, All).await.unwrap(), Some(key), "key {key} by {by}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_keeps_reads_and_heals_without_a_restart() {
    let mut cluster = Cluster::prepare(1, settings());
    if let Err(reason) = cluster.node_mut(2).use_small_disk(DISK_BYTES) {
        println!("skipped: nothing can be mounted here: {reason}");
        return;
    }
    cluster.begin().await;
    cluster.door(1).apply("CREATE TABLE app.big (k bigint PRIMARY KEY, b blob)").await.unwrap();
    for key in 0..KEYS {
        cluster.door(1).write(key, key, All).await.unwrap();
    }
    cluster.door(1).flush(2).await;

    // A file that is being filled goes when it cannot be, and leaves room.
    until("node 2 has a segment to spare", async || {
        let log = cluster.node(2).disk().seen().join("store/log");
        let mut names = std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().file_name());
        if names.any(|name| name.to_string_lossy().ends_with(".spare")) { Ok(()) } else { Err("none") }
    })
    .await;
    cluster.node(2).disk().fill();
    let blobs = overflow(&cluster).await;
    refuses_writes_and_says_why(&cluster).await;
    reads_everything(&cluster).await;
    // A voter of the metadata log that cannot write stops nobody else's changes.
    let behind = cluster.door(1).apply("CREATE TABLE app.later (k bigint PRIMARY KEY, v bigint)").await.unwrap();
    assert_eq!(behind.nodes_behind, [2], "{behind:?}");

    cluster.node(2).disk().make_room();
    until("node 2 takes writes again", async || write_blob(&cluster, 2, 0, All).await.map_err(|e| e.message)).await;
    until("node 2 says that all is well", async || match report(&cluster, 1, 2).await.storage_failure {
        failure if failure.is_empty() => Ok(()),
        failure => Err(failure),
    })
    .await;
    until("node 2 follows the metadata again", async || {
        let tables = cluster.door(2).describe().await.map_err(|error| error.message)?.tables;
        if tables.iter().any(|table| table.name == "later") { Ok(()) } else { Err("no such table".to_owned()) }
    })
    .await;
    for key in 0..blobs {
        write_blob(&cluster, 2, key, All).await.unwrap();
    }
    reads_everything(&cluster).await;
    cluster.kill(2);
    cluster.start_one(2).await;
    reads_everything(&cluster).await;
}
