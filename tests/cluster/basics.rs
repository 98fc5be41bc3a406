//! Writing, reading and changing the schema through every node, and coming back after all have been down.

use trefoil_proto::v1::Consistency::{All, One, Quorum};

use crate::cluster::Cluster;
use crate::door::replicas;
use crate::process::{Settings, get};
use crate::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn what_any_node_takes_every_node_reads() {
    let cluster = Cluster::start(2).await;
    let topology = cluster.door(1).ring().await.unwrap();
    let mut strangers = 0;
    for (key, writer) in (0..60).zip(cluster.ids().collect::<Vec<_>>().into_iter().cycle()) {
        cluster.door(writer).write(key, key * 10, Quorum).await.unwrap();
        strangers += usize::from(!replicas(&topology, key).contains(&writer));
        for reader in cluster.ids() {
            assert_eq!(cluster.door(reader).read(key, Quorum).await.unwrap(), Some(key * 10), "key {key} by {reader}");
        }
    }
    assert!(strangers >= 10, "only {strangers} keys were written through a node that does not hold them");
    let rows: Vec<_> = (0..60).map(|key| (key, key * 10)).collect();
    for reader in cluster.ids() {
        assert_eq!(cluster.door(reader).scan(Quorum).await.unwrap(), rows, "by {reader}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_change_is_seen_by_every_node_when_the_call_returns() {
    let cluster = Cluster::start(2).await;
    let has = async |id: u32, name: &str| {
        let described = cluster.door(id).describe().await.unwrap();
        described.tables.iter().any(|table| table.keyspace == "app" && table.name == name)
    };
    for by in cluster.ids() {
        let name = format!("t{by}");
        let made = cluster.door(by).apply(&format!("CREATE TABLE app.{name} (k bigint PRIMARY KEY)")).await.unwrap();
        assert!(made.applied && made.nodes_behind.is_empty(), "{made:?}");
        for id in cluster.ids() {
            assert!(has(id, &name).await, "{name}, made by {by}, at {id}");
        }
        let again = cluster.door(by).apply(&format!("CREATE TABLE app.{name} (k bigint PRIMARY KEY)")).await;
        assert_eq!(again.unwrap_err().status_code(), tonic::Code::AlreadyExists);
        cluster.door(by).apply(&format!("DROP TABLE app.{name}")).await.unwrap();
        for id in cluster.ids() {
            assert!(!has(id, &name).await, "{name}, dropped by {by}, at {id}");
        }
    }
}

/// Whoever comes first waits for the others only as long as the log of metadata needs them, and all have what they had.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_come_back_in_any_order() {
    let mut cluster = Cluster::start(1).await;
    for (round, order) in [[1, 2, 3], [3, 2, 1], [2, 3, 1]].into_iter().enumerate() {
        let key = round as i64;
        cluster.door(order[0]).write(key, key, All).await.unwrap();
        cluster.kill_all();
        // The first one serves when a second one is there to tell it that it has what it told, and needs no third.
        let [first, second, third] = order;
        cluster.node_mut(first).start();
        until_starting(&cluster, first).await;
        cluster.node_mut(second).start();
        for id in [first, second] {
            cluster.node_mut(id).ready().await;
        }
        cluster.node_mut(third).start();
        cluster.node_mut(third).ready().await;
        cluster.settled().await;
        for id in order {
            for key in 0..=key {
                assert_eq!(cluster.door(id).read(key, All).await.unwrap(), Some(key), "key {key} by {id}");
            }
        }
        let table = format!("CREATE TABLE app.round{round} (k bigint PRIMARY KEY)");
        cluster.door(order[2]).apply(&table).await.unwrap();
    }
}

/// Before its birth a cluster waits for all of its initial members, in whatever order they come.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_born_when_the_last_member_appears() {
    let mut cluster = Cluster::prepare(1, Settings::default());
    for id in [3, 1] {
        cluster.node_mut(id).start();
        until_starting(&cluster, id).await;
    }
    cluster.start_all().await;
    cluster.door(3).apply("CREATE KEYSPACE app").await.unwrap();
    cluster.door(2).apply("CREATE TABLE app.kv (k bigint PRIMARY KEY, v bigint)").await.unwrap();
    cluster.door(1).write(1, 2, All).await.unwrap();
    assert_eq!(cluster.door(3).read(1, One).await.unwrap(), Some(2));
}

/// B122: a node that was killed while it came into being opened its client port at the next start and served what it did
/// not have. Here the port is closed until the node knows who it is and has recovered whole, at every start.
#[tokio::test(flavor = "multi_thread")]
async fn b122_the_client_port_is_closed_until_the_node_serves() {
    let mut cluster = Cluster::prepare(1, Settings::default());
    let client = cluster.node(2).place.client;
    for _ in 0..2 {
        cluster.node_mut(2).start();
        until_starting(&cluster, 2).await;
        tokio::net::TcpStream::connect(client).await.expect_err("the client port is open");
        cluster.kill(2);
    }
    cluster.start_all().await;
    tokio::net::TcpStream::connect(client).await.unwrap();
}

/// Waits until a node says that it does not serve yet.
async fn until_starting(cluster: &Cluster, id: u32) {
    let http = cluster.node(id).place.http;
    until("it says that it is starting", async || match get(http, "/healthz").await {
        Ok(answer) if answer.starts_with("HTTP/1.1 503") && answer.contains("starting: other members") => Ok(()),
        Ok(answer) => Err(answer),
        Err(error) => Err(error.to_string()),
    })
    .await;
}
