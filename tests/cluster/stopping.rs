//! SIGTERM: an orderly end.

use trefoil_proto::v1::Consistency::{All, Quorum};

use crate::cluster::Cluster;
use crate::process::{Settings, get};
use crate::wait::until;

/// The node finishes, writes its memtables to files and exits with 0; the data is there when it starts again.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_flushes_and_exits_with_0() {
    let mut cluster = Cluster::start(1).await;
    for key in 0..100 {
        cluster.door(1).write(key, key, All).await.unwrap();
    }
    for id in [2, 1, 3] {
        let status = cluster.terminate(id).await;
        assert_eq!(status.code(), Some(0), "node {id}: {status}");
        let files = files_with(cluster.node(id).data_directory(), ".sst");
        assert!(files > 0, "node {id} left no SSTable");
    }
    cluster.start_all().await;
    let rows: Vec<_> = (0..100).map(|key| (key, key)).collect();
    for id in cluster.ids() {
        assert_eq!(cluster.door(id).scan(All).await.unwrap(), rows, "by {id}");
    }
}

/// One node's orderly end is no failure for anybody: whoever asks the others is served throughout.
#[tokio::test(flavor = "multi_thread")]
async fn the_others_serve_while_one_stops() {
    let mut cluster = Cluster::start(1).await;
    let door = cluster.door(1);
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let load = tokio::spawn(async move {
        let mut key = 0;
        while stopped.try_recv().is_err() {
            door.write(key, key, Quorum).await.map_err(|error| format!("key {key}: {error:?}"))?;
            key += 1;
        }
        Ok::<i64, String>(key)
    });
    for id in [2, 3] {
        assert_eq!(cluster.terminate(id).await.code(), Some(0));
        cluster.start_one(id).await;
    }
    stop.send(()).unwrap();
    let written = load.await.unwrap().unwrap();
    assert!(written > 0);
    let metrics = get(cluster.node(1).place.http, "/metrics").await.unwrap();
    assert!(metrics.contains("trefoil_requests_total"), "{metrics}");
    assert_eq!(cluster.door(2).scan(All).await.unwrap().len() as i64, written);
}

/// A node that waits for members that never come is stopped as easily.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_a_node_that_does_not_serve_yet() {
    let mut cluster = Cluster::prepare(1, Settings::default());
    cluster.node_mut(1).start();
    let http = cluster.node(1).place.http;
    until("it has begun", async || get(http, "/healthz").await.map_err(|error| error.to_string())).await;
    assert_eq!(cluster.terminate(1).await.code(), Some(0));
}

/// Files anywhere below a directory whose names end so.
fn files_with(directory: std::path::PathBuf, suffix: &str) -> usize {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries
        .map(|entry| match entry.path() {
            path if path.is_dir() => files_with(path, suffix),
            path => usize::from(path.to_string_lossy().ends_with(suffix)),
        })
        .sum()
}
