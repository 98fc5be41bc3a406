//! Snapshots on every node, and what is kept of a table that is dropped.

use tonic::Code;
use trefoil_proto::v1::Consistency::All;
use trefoil_proto::v1::cluster_client::ClusterClient;
use trefoil_proto::v1::{
    CreateSnapshotRequest, ListSnapshotsRequest, NodeSnapshots, RemoveSnapshotRequest, SnapshotCause, TableRef,
};

use crate::cluster::Cluster;
use crate::door::{Door, answer, table, timed};
use crate::wait::until;

async fn create(door: &Door, name: &str, table: Option<TableRef>) -> Vec<NodeSnapshots> {
    let request = CreateSnapshotRequest { name: name.to_owned(), table, ..CreateSnapshotRequest::default() };
    answer(ClusterClient::new(door.channel()).create_snapshot(timed(request)).await).unwrap().nodes
}

async fn list(door: &Door) -> Vec<NodeSnapshots> {
    answer(ClusterClient::new(door.channel()).list_snapshots(timed(ListSnapshotsRequest::default())).await)
        .unwrap()
        .nodes
}

async fn remove(door: &Door, name: &str) -> Vec<NodeSnapshots> {
    let request = RemoveSnapshotRequest { name: name.to_owned(), nodes: Vec::new() };
    answer(ClusterClient::new(door.channel()).remove_snapshot(timed(request)).await).unwrap().nodes
}

fn errors(nodes: &[NodeSnapshots]) -> Vec<(u32, &str)> {
    nodes.iter().filter(|node| !node.error.is_empty()).map(|node| (node.node, node.error.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_makes_lists_and_removes_and_a_dead_one_is_named() {
    let mut cluster = Cluster::start(1).await;
    cluster.door(1).write(1, 10, All).await.unwrap();
    let made = create(&cluster.door(2), "first", table()).await;
    assert!(errors(&made).is_empty(), "{made:?}");
    let times: Vec<i64> = made.iter().map(|node| node.snapshots[0].made_at_us).collect();
    assert!(made.len() == 3 && times.iter().all(|time| *time == times[0] && *time > 0), "{made:?}");
    // All of it was in memory.
    assert!(
        made.iter().all(|node| node.snapshots[0].files == 1 && node.snapshots[0].tables[0].name == "kv"),
        "{made:?}"
    );
    for id in cluster.ids() {
        let listed = list(&cluster.door(id)).await;
        assert!(listed.iter().all(|node| node.snapshots.len() == 1 && node.snapshots[0].name == "first"), "{listed:?}");
    }
    let again = create(&cluster.door(3), "first", None).await;
    assert_eq!(errors(&again).len(), 3, "{again:?}");
    let mut client = ClusterClient::new(cluster.door(1).channel());
    let nameless = client.create_snapshot(timed(CreateSnapshotRequest::default())).await.unwrap_err();
    assert_eq!(nameless.code(), Code::InvalidArgument);

    cluster.kill(3);
    cluster.sees_alive(1, &[1, 2].into()).await;
    let half = create(&cluster.door(1), "half", None).await;
    assert_eq!(errors(&half), [(3, "it is not seen alive")]);
    cluster.start_one(3).await;
    let removed = remove(&cluster.door(3), "half").await;
    assert_eq!(removed.iter().map(|node| node.snapshots.len()).collect::<Vec<_>>(), [1, 1, 0], "{removed:?}");
    remove(&cluster.door(1), "first").await;
    assert!(list(&cluster.door(2)).await.iter().all(|node| node.snapshots.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_table_is_kept_on_every_node_also_on_one_that_was_down() {
    let mut cluster = Cluster::start(1).await;
    cluster.door(1).write(1, 10, All).await.unwrap();
    cluster.kill(2);
    cluster.sees_alive(1, &[1, 3].into()).await;
    cluster.door(1).apply("DROP TABLE app.kv").await.unwrap();
    cluster.start_one(2).await;
    until("every node keeps the table", async || {
        let nodes = list(&cluster.door(3)).await;
        let is_kept = |node: &NodeSnapshots| {
            let kept = node.snapshots.first();
            kept.is_some_and(|kept| kept.cause() == SnapshotCause::BeforeDrop && kept.tables[0].name == "kv")
        };
        if nodes.iter().all(is_kept) { Ok(()) } else { Err(format!("{nodes:?}")) }
    })
    .await;
    for node in list(&cluster.door(1)).await {
        assert_eq!((node.snapshots.len(), node.only_bytes), (1, node.snapshots[0].bytes));
        assert!(node.snapshots[0].name.starts_with("dropped-app.kv-"), "{node:?}");
    }
}
