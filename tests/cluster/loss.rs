//! A node that has less than it told: its data directory was set back. It notices, and is rebuilt from the others.

use std::path::Path;

use trefoil_proto::v1::Consistency::{All, One, Quorum};

use crate::replication::{all_gone, delete_request, metric, start, until_gone};
use crate::verify::verify;
use crate::wait::until;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// An older image of a data directory is put back: rows whose deletion the others have purged by now are in it, and nobody
/// tells of them any more. Without the greeting they would be answered, and spread.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_was_set_back_brings_nothing_deleted_back() {
    let mut cluster = start().await;
    let door = cluster.door(1);
    for key in 0..20 {
        door.write(key, key, All).await.unwrap();
    }
    cluster.door(2).flush(2).await;
    cluster.kill(2);
    let directory = cluster.node(2).data_directory();
    let image = tempfile::tempdir().unwrap();
    copy(&directory, image.path());
    cluster.start_one(2).await;
    for key in 0..20 {
        door.mutate(delete_request(key)).await.unwrap();
    }
    all_gone(&door).await;
    for key in 20..30 {
        door.write(key, key, All).await.unwrap();
    }
    let left: Vec<(i64, i64)> = (20..30).map(|key| (key, key)).collect();
    cluster.kill(2);
    std::fs::remove_dir_all(&directory).unwrap();
    copy(image.path(), &directory);
    cluster.start_one(2).await;
    until("node 2 answers what the others do", async || match cluster.door(2).scan(All).await {
        Ok(rows) => {
            assert_eq!(rows, left, "a deleted row is back, or one is lost");
            Ok(())
        }
        Err(error) => Err(error.message),
    })
    .await;
    for node in cluster.ids() {
        for level in [One, Quorum] {
            assert_eq!(cluster.door(node).scan(level).await.unwrap(), left, "node {node} at {level:?}");
        }
    }
    assert!(metric(&cluster, 2, "replication_vnodes_rebuilt_total").await > 0.0);
    assert!(cluster.node(2).log().contains("holds less than this node has told"));
    let (last, differing, _) = verify(&cluster, 1).await;
    assert_eq!((last.partitions, last.differing_partitions, differing.len()), (10, 0, 0));
    // It goes on from there: what all have is known again, and purged.
    cluster.door(2).mutate(delete_request(20)).await.unwrap();
    until_gone(&cluster, 9).await;
}
