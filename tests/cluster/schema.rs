//! Tables that change, are emptied, dropped and made anew, while nodes and clients come and go: nothing old comes back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinSet;
use trefoil_client::Client;
use trefoil_proto::v1::Consistency::{self, All, LocalQuorum, One, Quorum, Two};
use trefoil_proto::v1::error_detail::Kind;
use trefoil_proto::v1::{Outcome, TableRef};

use crate::cluster::{Cluster, SCHEMA};
use crate::door::{read_request, table, write_request};
use crate::wait::until;

const LEVELS: [Consistency; 5] = [One, Two, Quorum, LocalQuorum, All];

/// Writes so many rows at ALL.
async fn fill(cluster: &Cluster, keys: std::ops::Range<i64>) {
    for key in keys {
        cluster.door(1 + (key % 3) as u32).write(key, key + 1, All).await.unwrap();
    }
}

/// Every node answers these rows at every level.
async fn everybody_sees(cluster: &Cluster, expected: &[(i64, i64)]) {
    for id in cluster.ids() {
        for level in LEVELS {
            assert_eq!(cluster.door(id).scan(level).await.unwrap(), expected, "node {id} at {level:?}");
        }
    }
}

async fn client(cluster: &Cluster) -> Client {
    Client::builder(cluster.endpoints()).zone("a").consistency(Quorum).connect().await.unwrap()
}

/// A node that was down while a table was dropped and made anew under its old name has the old rows on its disk, and knows
/// the old table. It serves only once it knows the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_made_anew_begins_empty_on_a_node_that_was_away() {
    let mut cluster = Cluster::start(1).await;
    fill(&cluster, 0..30).await;
    for away in cluster.ids() {
        cluster.kill(away);
        cluster.settled().await;
        let other = 1 + away % 3;
        for statement in ["DROP TABLE app.kv", SCHEMA[1]] {
            cluster.door(other).apply(statement).await.unwrap();
        }
        cluster.door(other).write(1_000, 1, Quorum).await.unwrap();
        cluster.node_mut(away).start();
        cluster.node_mut(away).ready().await;
        let alone = cluster.door(away).scan(One).await.unwrap();
        assert!(alone.iter().all(|row| *row == (1_000, 1)), "node {away} shows {alone:?}");
        cluster.settled().await;
        cluster.whole().await;
        assert_eq!(cluster.door(away).scan(All).await.unwrap(), [(1_000, 1)]);
        everybody_sees(&cluster, &[(1_000, 1)]).await;
        fill(&cluster, 0..30).await;
    }
}

/// The same for a table that is emptied; and after all have been killed.
#[tokio::test(flavor = "multi_thread")]
async fn b032_an_emptied_table_stays_empty_whoever_was_away_and_whoever_is_killed() {
    let mut cluster = Cluster::start(1).await;
    fill(&cluster, 0..30).await;
    cluster.kill(2);
    cluster.settled().await;
    let emptied = cluster.door(3).apply("TRUNCATE app.kv").await.unwrap();
    assert!(emptied.applied && emptied.nodes_behind.is_empty(), "{emptied:?}");
    for id in [1, 3] {
        for level in [One, Two, Quorum] {
            assert_eq!(cluster.door(id).scan(level).await.unwrap(), [], "node {id} at {level:?}");
        }
    }
    cluster.door(1).apply("ALTER TABLE app.kv ADD w int").await.unwrap();
    cluster.door(1).write(7, 70, Quorum).await.unwrap();
    cluster.start_one(2).await;
    assert_eq!(cluster.door(2).scan(All).await.unwrap(), [(7, 70)], "reads at ALL mend what node 2 missed");
    everybody_sees(&cluster, &[(7, 70)]).await;
    for _ in 0..2 {
        cluster.kill_all();
        cluster.start_all().await;
        everybody_sees(&cluster, &[(7, 70)]).await;
    }
}

/// Writes that race with TRUNCATE land before it, and are gone, or after it, and are there: on all nodes alike. What was
/// acknowledged before it was asked for is gone, what was sent after it returned is there.
#[tokio::test(flavor = "multi_thread")]
async fn writes_that_race_with_a_truncation_land_before_it_or_after_it() {
    let cluster = Cluster::start(1).await;
    let client = client(&cluster).await;
    let (phase, written) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let (client, phase, written) = (client.clone(), phase.clone(), written.clone());
        writers.spawn(async move {
            let mut rows: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
            for key in (writer..).step_by(8) {
                let before = phase.load(Ordering::SeqCst);
                if before == 4 {
                    return rows;
                }
                client.insert("app.kv").key("k", key).value("v", key).send().await.unwrap();
                rows.insert(key, (before, phase.load(Ordering::SeqCst)));
                written.fetch_add(1, Ordering::SeqCst);
            }
            rows
        });
    }
    let more = async || {
        let goal = written.load(Ordering::SeqCst) + 200;
        until("the writers go on", async || {
            let count = written.load(Ordering::SeqCst);
            if count < goal { Err(count) } else { Ok(()) }
        })
        .await;
    };
    more().await;
    phase.store(1, Ordering::SeqCst);
    let emptied = cluster.door(2).apply("TRUNCATE app.kv").await.unwrap();
    assert!(emptied.nodes_behind.is_empty());
    phase.store(2, Ordering::SeqCst);
    more().await;
    phase.store(4, Ordering::SeqCst);
    let mut rows = BTreeMap::new();
    while let Some(of_writer) = writers.join_next().await {
        rows.extend(of_writer.unwrap());
    }
    let left: BTreeMap<i64, i64> = cluster.door(1).scan(All).await.unwrap().into_iter().collect();
    for (key, (before, after)) in &rows {
        match (before, after) {
            (0, 0) => assert!(!left.contains_key(key), "{key} was written before and is back"),
            (2.., _) => assert!(left.contains_key(key), "{key} was written afterwards and is gone"),
            _ => {}
        }
    }
    let left: Vec<(i64, i64)> = left.into_iter().collect();
    everybody_sees(&cluster, &left).await;
}

/// An application notices nothing of columns that come and go but that they do; a column that comes back is empty.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_altered_under_load() {
    let cluster = Cluster::start(1).await;
    let client = client(&cluster).await;
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut writers = JoinSet::new();
    for writer in 0..6 {
        let (client, stop, count) = (client.clone(), stop.clone(), count.clone());
        writers.spawn(async move {
            let mut key = writer;
            while !stop.load(Ordering::Relaxed) {
                client.insert("app.kv").key("k", key).value("v", key).send().await.unwrap();
                let row = client.select("app.kv").key("k", key).one().await.unwrap().unwrap();
                assert_eq!(row.get::<i64>("v").unwrap(), key);
                count.fetch_add(1, Ordering::Relaxed);
                key += 6;
            }
        });
    }
    let mut last = count.load(Ordering::Relaxed);
    for round in 0..6i64 {
        let door = cluster.door(1 + (round % 3) as u32);
        door.apply("ALTER TABLE app.kv ADD extra text").await.unwrap();
        client.update("app.kv").key("k", -1 - round).value("extra", "x").send().await.unwrap();
        let found = client.select("app.kv").key("k", -1 - round).one().await.unwrap().unwrap();
        assert_eq!(found.get::<String>("extra").unwrap(), "x");
        until("the load goes on", async || {
            let now = count.load(Ordering::Relaxed);
            if now < last + 30 { Err(now) } else { Ok(()) }
        })
        .await;
        last = count.load(Ordering::Relaxed);
        let again = door.apply("ALTER TABLE app.kv ADD extra text").await.unwrap_err();
        assert_eq!(again.status_code(), tonic::Code::InvalidArgument, "{again:?}");
        door.apply("ALTER TABLE app.kv DROP extra").await.unwrap();
        for level in LEVELS {
            for id in cluster.ids() {
                let row = cluster.door(id).read(-1 - round, level).await.unwrap();
                assert_eq!(row, None, "round {round}: only a dropped column is left of it");
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    cluster.door(2).apply("ALTER TABLE app.kv ADD extra text").await.unwrap();
    assert_eq!(client.select("app.kv").key("k", -1).one().await.unwrap().map(|_| ()), None, "the column begins empty");
}

/// Whoever says which table he has seen is told when it has changed, and nothing is done.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_view_of_a_table_is_answered_schema_mismatch() {
    let cluster = Cluster::start(1).await;
    cluster.door(1).write(1, 2, All).await.unwrap();
    let described = cluster.door(1).describe().await.unwrap();
    let seen = described.tables.iter().find(|table| table.name == "kv").unwrap().clone();
    let reference = |id: &[u8], version| Some(TableRef { id: id.to_vec().into(), version, ..table().unwrap() });
    cluster.door(2).apply("ALTER TABLE app.kv WITH comment = 'new'").await.unwrap();
    for id in cluster.ids() {
        let door = cluster.door(id);
        let mut write = write_request(1, 3, All);
        write.mutation.as_mut().unwrap().table = reference(&seen.id, seen.version);
        let mut read = read_request(1, All);
        read.table = reference(&seen.id, seen.version);
        for refused in [door.mutate(write.clone()).await.map(drop), door.read_page(read.clone()).await.map(drop)] {
            let error = refused.unwrap_err();
            assert_eq!(error.outcome(), Outcome::NotApplied);
            let Some(Kind::SchemaMismatch(detail)) = error.kind() else { panic!("{error:?}") };
            assert_eq!((detail.version, detail.table_id.as_ref()), (seen.version + 1, seen.id.as_ref()));
        }
        read.table = reference(&seen.id, 0);
        door.read_page(read).await.unwrap();
    }
    cluster.door(3).apply("TRUNCATE app.kv").await.unwrap();
    let mut read = read_request(1, One);
    read.table = reference(&seen.id, 0);
    let error = cluster.door(1).read_page(read).await.unwrap_err();
    assert!(matches!(error.kind(), Some(Kind::SchemaMismatch(_))), "{error:?}");
    let mut write = write_request(1, 3, All);
    write.mutation.as_mut().unwrap().changes[0] = {
        let mut change = write_request(1, 3, All).mutation.unwrap().changes.remove(0);
        if let Some(trefoil_proto::v1::change::Op::Insert(row)) = &mut change.op {
            row.cells[0].column = "gone".to_owned();
        }
        change
    };
    let error = cluster.door(1).mutate(write).await.unwrap_err();
    assert_eq!(error.status_code(), tonic::Code::InvalidArgument, "{error:?}");
}
