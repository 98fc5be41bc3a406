//! Compaction on every node: it follows the options of a table, tells of itself, and can be asked for.

use trefoil_proto::v1::Consistency::All;
use trefoil_proto::v1::cluster_client::ClusterClient;
use trefoil_proto::v1::{CompactRequest, CompactionRequest, FlushRequest, NodeCompaction};

use crate::cluster::Cluster;
use crate::door::{Door, answer, table, timed};
use crate::wait::until;

async fn compaction(door: &Door) -> Vec<NodeCompaction> {
    let request = timed(CompactionRequest::default());
    answer(ClusterClient::new(door.channel()).compaction(request).await).unwrap().nodes
}

/// Files of the table on each node that answers.
fn files(nodes: &[NodeCompaction]) -> Vec<u64> {
    nodes.iter().filter(|node| node.error.is_empty()).flat_map(|node| node.tables.iter().map(|of| of.files)).collect()
}

/// Waits until each node has one.
async fn one_file(door: &Door) {
    until("every node has one file", async || match files(&compaction(door).await) {
        one if one == [1, 1, 1] => Ok(()),
        more => Err(format!("{more:?} files")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_merged_by_themselves_and_on_demand_and_a_dead_node_is_named() {
    let mut cluster = Cluster::start(1).await;
    let mut client = ClusterClient::new(cluster.door(1).channel());
    for value in 1..=2 {
        cluster.door(1).write(1, value, All).await.unwrap();
        answer(client.flush(timed(FlushRequest::default())).await).unwrap();
    }
    let told = compaction(&cluster.door(2)).await;
    assert_eq!((told.len(), files(&told)), (3, vec![2, 2, 2]), "{told:?}");
    assert!(told.iter().all(|node| node.tables[0].table == "kv" && node.tables[0].read_amplification == 2), "{told:?}");

    // Two are not enough for the strategy; whoever asks gets one.
    answer(client.compact(timed(CompactRequest { table: table(), nodes: Vec::new() })).await).unwrap();
    one_file(&cluster.door(3)).await;

    // Four are.
    for value in 3..=5 {
        cluster.door(1).write(1, value, All).await.unwrap();
        answer(client.flush(timed(FlushRequest::default())).await).unwrap();
    }
    one_file(&cluster.door(3)).await;
    assert_eq!(cluster.door(2).read(1, All).await.unwrap(), Some(5));

    cluster.kill(3);
    cluster.sees_alive(1, &[1, 2].into()).await;
    let told = compaction(&cluster.door(1)).await;
    assert_eq!((files(&told), told[2].error.as_str()), (vec![1, 1], "it is not seen alive"));
}
