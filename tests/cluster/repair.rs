//! Reads that mend: what one read at a quorum has shown, every later one shows. No hints help them here.

use std::collections::BTreeSet;

use trefoil_proto::v1::Consistency::{All, One, Quorum};

use crate::cluster::Cluster;

/// A value reaches one of three replicas only. From the first quorum read that shows it on, all of them show it, and it
/// outlives the replica it came from.
#[tokio::test(flavor = "multi_thread")]
async fn quorum_reads_never_go_back_in_time() {
    let mut cluster = Cluster::start_taciturn().await;
    cluster.pause_hints().await;
    const KEYS: std::ops::Range<i64> = 0..20;
    for key in KEYS {
        cluster.door(1).write(key, 1, All).await.unwrap();
    }
    cluster.node(2).pause();
    cluster.node(3).pause();
    cluster.sees_alive(1, &BTreeSet::from([1])).await;
    for key in KEYS {
        cluster.door(1).write(key, 2, One).await.unwrap();
    }
    cluster.node(2).resume();
    cluster.node(3).resume();
    cluster.settled().await;

    let mut late = 0;
    for key in KEYS {
        let mut shown = 1;
        for reader in [2, 3, 2, 3, 1, 2, 3] {
            let now = cluster.door(reader).read(key, Quorum).await.unwrap().unwrap();
            assert!(now >= shown, "key {key}: node {reader} showed {now} after {shown}");
            late += usize::from(now == 1);
            shown = now;
        }
        assert_eq!(shown, 2, "node 1 holds the newest value and answers for itself");
    }
    cluster.kill(1);
    cluster.settled().await;
    for key in KEYS {
        for reader in [2, 3] {
            assert_eq!(cluster.door(reader).read(key, Quorum).await.unwrap(), Some(2), "key {key} by {reader}");
        }
    }
    // Whether 2 and 3 ask each other before node 1 is theirs to choose; either way the order above holds.
    println!("{late} reads showed the older value first");
}

/// A scan mends what it passes, like a read of one key.
#[tokio::test(flavor = "multi_thread")]
async fn a_scan_at_all_mends_a_replica_that_was_down() {
    let mut cluster = Cluster::start_taciturn().await;
    cluster.pause_hints().await;
    cluster.kill(3);
    cluster.settled().await;
    let rows: Vec<_> = (0..300).map(|key| (key, key + 1)).collect();
    for (key, value) in &rows {
        cluster.door(1).write(*key, *value, Quorum).await.unwrap();
    }
    cluster.start_one(3).await;
    assert_eq!(cluster.door(2).scan(All).await.unwrap(), rows);
    cluster.kill(1);
    cluster.kill(2);
    cluster.settled().await;
    assert_eq!(cluster.door(3).scan(One).await.unwrap(), rows, "node 3 has them all itself now");
}
