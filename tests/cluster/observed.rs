//! What a node tells of itself.

use trefoil_proto::v1::Consistency::{All, Quorum};

use crate::cluster::Cluster;
use crate::door::write_request;
use crate::process::get;
use crate::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_counted_is_shown_with_what_it_means() {
    let mut cluster = Cluster::start(1).await;
    let door = cluster.door(1);
    for key in 0..3 {
        door.write(key, key, Quorum).await.unwrap();
    }
    let mut bad = write_request(1, 1, Quorum);
    bad.mutation = None;
    door.mutate(bad).await.unwrap_err();
    cluster.kill(3);
    cluster.settled().await;
    door.read(1, All).await.unwrap_err();
    let metrics = get(cluster.node(1).place.http, "/metrics").await.unwrap();
    for line in [
        "# HELP trefoil_requests_total Requests of clients that were answered, by kind and gRPC code",
        "trefoil_requests_total{kind=\"mutate\",outcome=\"OK\"} 3",
        "trefoil_requests_total{kind=\"mutate\",outcome=\"INVALID_ARGUMENT\"} 1",
        "trefoil_requests_total{kind=\"read\",outcome=\"UNAVAILABLE\"} 1",
        "trefoil_requests_total{kind=\"batch\",outcome=\"OK\"} 0",
        "trefoil_request_seconds_bucket{kind=\"mutate\",le=\"+Inf\"} 4",
        "trefoil_requests_in_flight 0",
        "trefoil_nodes_alive 2",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
}

/// An operation that takes long is in the log of its coordinator, with the name that its caller gave it.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_operation_is_logged_by_its_name() {
    let cluster = Cluster::start(1).await;
    cluster.node(2).pause();
    let mut request = write_request(1, 1, All);
    request.options.as_mut().unwrap().request_id = "order-4711".into();
    let door = cluster.door(1);
    let written = tokio::spawn(async move { door.mutate(request).await });
    cluster.sees_alive(1, &[1, 3].into()).await;
    cluster.node(2).resume();
    // Acknowledged or not: it took as long as it takes to see a node dead.
    drop(written.await.unwrap());
    until("the log names it", async || {
        let log = cluster.node(1).log();
        let line = log.lines().find(|line| line.contains("slow operation") && line.contains("order-4711"));
        line.map(str::to_owned).ok_or("it does not")
    })
    .await;
}
