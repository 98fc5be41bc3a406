//! The table of docs/consistency.md: which levels are served with how many replicas dead.

use tonic::Code;
use trefoil_proto::v1::error_detail::Kind;
use trefoil_proto::v1::{Consistency, Error, Outcome};

use crate::cluster::Cluster;
use crate::door::replicas;

/// A level, and how many of three replicas it needs.
const NEEDS: [(Consistency, u32); 8] = [
    (Consistency::One, 1),
    (Consistency::LocalOne, 1),
    (Consistency::Two, 2),
    (Consistency::Quorum, 2),
    (Consistency::LocalQuorum, 2),
    (Consistency::EachQuorum, 2),
    (Consistency::Three, 3),
    (Consistency::All, 3),
];

/// Replicas of one key are killed one after the other; a node that holds it, while one is left, and one that does not
/// are asked at every level.
#[tokio::test(flavor = "multi_thread")]
async fn levels_are_served_as_the_documents_say() {
    const KEY: i64 = 7;
    let mut cluster = Cluster::start(2).await;
    let holders = replicas(&cluster.door(1).ring().await.unwrap(), KEY);
    let stranger = cluster.ids().find(|id| !holders.contains(id)).unwrap();
    cluster.door(stranger).write(KEY, 0, Consistency::All).await.unwrap();
    let mut latest = 0;
    for dead in 0..=3 {
        if dead > 0 {
            cluster.kill(holders[dead - 1]);
            cluster.settled().await;
        }
        let alive = 3 - dead as u32;
        for coordinator in [stranger].into_iter().chain(holders.get(dead).copied()) {
            for (level, needed) in NEEDS {
                let context = format!("{level:?} by node {coordinator} with {dead} replicas dead");
                latest += 1;
                let written = cluster.door(coordinator).write(KEY, latest, level).await;
                check(written, alive, needed, &context);
                check(cluster.door(coordinator).read(KEY, level).await, alive, needed, &context);
            }
        }
    }
}

fn check<T: std::fmt::Debug>(result: Result<T, Error>, alive: u32, needed: u32, context: &str) {
    match result {
        Ok(_) => assert!(alive >= needed, "{context}: served"),
        Err(error) => {
            assert!(alive < needed, "{context}: {error:?}");
            assert_eq!(error.status_code(), Code::Unavailable, "{context}: {error:?}");
            assert_eq!(error.outcome(), Outcome::NotApplied, "{context}");
            let Some(Kind::Unavailable(detail)) = error.kind() else { panic!("{context}: {error:?}") };
            assert_eq!((detail.required, detail.alive), (needed, alive), "{context}");
        }
    }
}

/// The data path goes on without the quorum of the metadata log; what needs that log says so.
#[tokio::test(flavor = "multi_thread")]
async fn with_two_of_three_nodes_dead_one_serves_and_the_schema_stands() {
    let mut cluster = Cluster::start(1).await;
    cluster.door(1).write(1, 1, Consistency::All).await.unwrap();
    cluster.kill(1);
    cluster.kill(3);
    cluster.settled().await;
    let door = cluster.door(2);
    door.write(1, 2, Consistency::One).await.unwrap();
    assert_eq!(door.read(1, Consistency::One).await.unwrap(), Some(2));
    let refused = door.write(1, 3, Consistency::Quorum).await.unwrap_err();
    assert_eq!((refused.status_code(), refused.outcome()), (Code::Unavailable, Outcome::NotApplied));
    let refused = door.apply("CREATE TABLE app.late (k bigint PRIMARY KEY)").await.unwrap_err();
    assert_eq!(refused.status_code(), Code::Unavailable, "{refused:?}");
    let described = door.describe().await.unwrap();
    assert_eq!(described.tables.len(), 1, "the schema as it was");

    cluster.start_one(3).await;
    crate::wait::until("the schema can be changed by two of three", async || {
        let made = door.apply("CREATE TABLE IF NOT EXISTS app.later (k bigint PRIMARY KEY)").await;
        made.map_err(|error| error.message)
    })
    .await;
    assert_eq!(door.read(1, Consistency::Quorum).await.unwrap(), Some(2), "what ONE was told is not lost");
}
