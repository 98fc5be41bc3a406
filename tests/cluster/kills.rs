//! kill -9 under load. (It keeps the system's page cache: what a loss of power may take is tested on the memory vfs.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinSet;
use trefoil_client::Client;
use trefoil_proto::v1::Consistency::{All, One, Quorum};

use crate::cluster::Cluster;
use crate::wait::until;

/// How many times all nodes are killed, unless `TREFOIL_SOAK_ROUNDS` says otherwise.
const ROUNDS: u64 = 50;

/// Writers of the load between two kills, dealt out to the nodes.
const WRITERS: i64 = 12;

/// Acknowledged writes after which all nodes are killed.
const ACKNOWLEDGED_PER_ROUND: u64 = 150;

/// Writers each own some keys and overwrite them with rising values at QUORUM until their node dies. Afterwards every key
/// has the last value that was acknowledged, or a later one that was under way.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_kills_of_all_nodes() {
    let rounds = std::env::var("TREFOIL_SOAK_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut cluster = Cluster::start(1).await;
    // For each key the last value acknowledged, and the last one sent.
    let mut written: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for round in 0..rounds {
        let begun = std::time::Instant::now();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let node = 1 + (writer % 3) as u32;
            let first = written.get(&writer).map_or(1, |(_, sent)| sent + 1);
            writers.spawn(write_until_refused(cluster.door(node), writer, first, round as i64, acknowledged.clone()));
        }
        until("enough writes are acknowledged", async || {
            let count = acknowledged.load(Ordering::Relaxed);
            if count < ACKNOWLEDGED_PER_ROUND { Err(count) } else { Ok(()) }
        })
        .await;
        cluster.kill_all();
        while let Some(kept) = writers.join_next().await {
            for (key, (last, sent)) in kept.unwrap() {
                let known = written.entry(key).or_default();
                *known = (last.max(known.0), sent.max(known.1));
            }
        }
        cluster.start_all().await;
        let reader = cluster.door(1 + (round % 3) as u32);
        let found: BTreeMap<i64, i64> = reader.scan(Quorum).await.unwrap().into_iter().collect();
        for (key, (last, sent)) in &written {
            let value = found.get(key).copied().unwrap_or(0);
            assert!((*last..=*sent).contains(&value), "round {round}, key {key}: {value}, not in {last}..={sent}");
        }
        println!("round {round}: {} keys, {:?}", written.len(), begun.elapsed());
    }
}

/// Key `writer` gets rising values, and every other write is of a key of its own. Ends with the first error: for each key
/// the last value acknowledged and the last one sent.
async fn write_until_refused(
    door: crate::door::Door,
    writer: i64,
    first: i64,
    round: i64,
    acknowledged: Arc<AtomicU64>,
) -> BTreeMap<i64, (i64, i64)> {
    let mut kept = BTreeMap::new();
    for value in first.. {
        let key = if value % 2 == 0 { writer } else { (round + 1) * 1_000_000 + writer * 10_000 + value % 10_000 };
        let known = kept.entry(key).or_insert((0, 0));
        known.1 = value;
        if door.write(key, value, Quorum).await.is_err() {
            break;
        }
        known.0 = value;
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    kept
}

/// An application that uses the client library notices nothing when one node after the other dies and comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_under_load_shows_to_nobody() {
    let mut cluster = Cluster::start(1).await;
    let load = Load::start(&cluster).await;
    for id in cluster.ids() {
        load.goes_on().await;
        cluster.kill(id);
        load.goes_on().await;
        cluster.start_one(id).await;
    }
    load.goes_on().await;
    let expected = load.end().await;
    assert_eq!(cluster.door(2).scan(All).await.unwrap(), expected, "reads at ALL find all and mend what a node missed");
    cluster.kill(1);
    cluster.kill(2);
    cluster.settled().await;
    assert_eq!(cluster.door(3).scan(One).await.unwrap(), expected, "node 3 has them itself");
}

/// The same with nodes that fall silent with all their connections open, as on a machine that swaps or a network that
/// drops everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_hangs_under_load_shows_to_nobody() {
    let cluster = Cluster::start(1).await;
    let load = Load::start(&cluster).await;
    for id in cluster.ids() {
        load.goes_on().await;
        cluster.node(id).pause();
        load.goes_on().await;
        let others: BTreeSet<u32> = cluster.ids().filter(|other| *other != id).collect();
        for other in &others {
            cluster.sees_alive(*other, &others).await;
        }
        load.goes_on().await;
        cluster.node(id).resume();
        cluster.settled().await;
    }
    load.goes_on().await;
    let expected = load.end().await;
    assert_eq!(cluster.door(2).scan(All).await.unwrap(), expected);
}

/// Writers of an application: each inserts one key after the other at QUORUM and reads some of them back. Their first
/// error ends them.
struct Load {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    writers: JoinSet<Result<i64, String>>,
}

impl Load {
    const WRITERS: i64 = 16;

    async fn start(cluster: &Cluster) -> Load {
        let client = Client::builder(cluster.endpoints()).zone("a").consistency(Quorum).connect().await.unwrap();
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut writers = JoinSet::new();
        for writer in 0..Load::WRITERS {
            writers.spawn(insert_until(client.clone(), writer, stop.clone(), count.clone()));
        }
        Load { stop, count, writers }
    }

    /// Waits for two hundred more writes.
    async fn goes_on(&self) {
        let goal = self.count.load(Ordering::Relaxed) + 200;
        until("the load goes on", async || {
            let count = self.count.load(Ordering::Relaxed);
            if count < goal { Err(format!("{count} of {goal}")) } else { Ok(()) }
        })
        .await;
    }

    /// Ends the writers: all rows they have written, by key.
    async fn end(self) -> Vec<(i64, i64)> {
        self.stop.store(true, Ordering::Relaxed);
        let mut rows = Vec::new();
        for end in self.writers.join_all().await {
            let end = end.unwrap();
            rows.extend((end % Load::WRITERS..end).step_by(Load::WRITERS as usize).map(|key| (key, key + 1)));
        }
        rows.sort_unstable();
        rows
    }
}

/// Answers the first key that was not written.
async fn insert_until(client: Client, first: i64, stop: Arc<AtomicBool>, count: Arc<AtomicU64>) -> Result<i64, String> {
    let mut key = first;
    while !stop.load(Ordering::Relaxed) {
        let sent = client.insert("app.kv").key("k", key).value("v", key + 1).send().await;
        sent.map_err(|error| format!("key {key}: {error:?}"))?;
        if key % 5 == 0 {
            let row = client.select("app.kv").key("k", key).one().await;
            let row = row.map_err(|error| format!("read of key {key}: {error:?}"))?;
            let found = row.map(|row| row.get::<i64>("v").unwrap());
            assert_eq!(found, Some(key + 1), "the own write of key {key}");
        }
        count.fetch_add(1, Ordering::Relaxed);
        key += Load::WRITERS;
    }
    Ok(key)
}
