//! Whether all replicas hold the same, asked of real nodes.

use std::collections::BTreeSet;

use trefoil_proto::v1::Consistency::{All, Quorum};
use trefoil_proto::v1::cluster_client::ClusterClient;
use trefoil_proto::v1::value::Kind;
use trefoil_proto::v1::{DifferingPartition, TableRef, VerifyProgress, VerifyRequest};

use crate::cluster::Cluster;
use crate::door::{Door, answer, table, timed};
use crate::wait::until;

/// What the comparison ends with, and all that it names.
pub type Compared = (VerifyProgress, Vec<DifferingPartition>, BTreeSet<u32>);

/// Compares all replicas of `app.kv`.
pub async fn verify(cluster: &Cluster, by: u32) -> Compared {
    compare(&cluster.door(by), table()).await
}

/// Compares all replicas of a table.
pub async fn compare(door: &Door, table: Option<TableRef>) -> Compared {
    let mut client = ClusterClient::new(door.channel());
    let asked = VerifyRequest { table, name_at_most: 0 };
    let mut messages = answer(client.verify(timed(asked)).await).unwrap();
    let (mut last, mut differing, mut silent) = (VerifyProgress::default(), Vec::new(), BTreeSet::new());
    while let Some(message) = messages.message().await.unwrap() {
        assert_eq!(message.vnodes_done, last.vnodes_done + 1);
        differing.extend(message.differing.clone());
        silent.extend(message.not_compared.iter().map(|one| one.node));
        last = message;
    }
    assert_eq!(last.vnodes_done, last.vnodes);
    (last, differing, silent)
}

/// Waits until they hold the same, by themselves.
pub async fn become_equal(door: &Door, table: Option<TableRef>) {
    until("all replicas hold the same", async || match compare(door, table.clone()).await {
        (last, ..) if last.differing_partitions + u64::from(last.vnodes_not_compared) == 0 => Ok(()),
        (last, differing, _) => Err(format!("{last:?}: {differing:?}")),
    })
    .await;
}

/// A replica that was down is told of, then what it lacks, and once reads have mended it all hold the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_names_what_a_replica_lacks() {
    let mut cluster = Cluster::start_taciturn().await;
    for key in 0..100 {
        cluster.door(1).write(key, 1, All).await.unwrap();
    }
    // Memtables on one node, files on another: it is what they hold that counts.
    cluster.door(2).flush(2).await;
    let (last, differing, silent) = verify(&cluster, 1).await;
    assert_eq!((last.partitions, last.differing_partitions, last.vnodes_not_compared), (100, 0, 0));
    assert!(differing.is_empty() && silent.is_empty());

    // What node 3 misses must not come to it by itself.
    cluster.pause_hints().await;
    cluster.kill(3);
    cluster.settled().await;
    for key in 90..110 {
        cluster.door(1).write(key, 2, Quorum).await.unwrap();
    }
    let (last, differing, silent) = verify(&cluster, 1).await;
    assert_eq!((last.partitions, last.differing_partitions, last.vnodes_not_compared), (110, 0, last.vnodes));
    assert!(differing.is_empty() && silent == BTreeSet::from([3]));

    cluster.start_one(3).await;
    cluster.settled().await;
    let (last, differing, _) = verify(&cluster, 2).await;
    // Hints may have brought some of it by now.
    assert_eq!((last.partitions, last.differing_partitions), (110, differing.len() as u64));
    for one in &differing {
        let Some(Kind::Integer(key)) = one.key[0].kind else { panic!("{one:?}") };
        assert!((90..110).contains(&key), "key {key} was written while all were there");
        let held = |node: u32| one.held.iter().find(|held| held.node == node).unwrap();
        assert_eq!(held(1), &trefoil_proto::v1::PartitionHeld { node: 1, ..held(2).clone() });
        assert_eq!(held(3).digest.is_empty(), key >= 100, "key {key}");
    }
    assert_eq!(cluster.door(1).scan(All).await.unwrap().len(), 110);
    let (last, ..) = verify(&cluster, 3).await;
    assert_eq!((last.partitions, last.differing_partitions, last.vnodes_not_compared), (110, 0, 0));
}
