//! kill -9 under load. (It keeps the system's page cache: what a loss of power may take is tested on the memory vfs.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinSet;
use trefoil_client::Client;
use trefoil_proto::v1::Consistency::{All, One, Quorum};

use crate::cluster::Cluster;
use crate::door::Door;
use crate::wait::until;

/// How many times all nodes are killed, unless `TREFOIL_SOAK_ROUNDS` says otherwise.
const ROUNDS: u64 = 50;

/// Writers of the load between two kills, dealt out to the nodes.
const WRITERS: i64 = 12;

/// Acknowledged writes after which all nodes are killed.
const ACKNOWLEDGED_PER_ROUND: u64 = 150;

/// What became of the writes of one key, whose values rise.
#[derive(Debug, Clone, Copy, Default)]
struct Written {
    /// The last value that was acknowledged, and how many nodes had to have it.
    acknowledged: i64,
    copies: usize,
    /// The last value that was sent.
    sent: i64,
}

/// Writers each own some keys and overwrite them with rising values, at QUORUM and at ALL in turns, until their node dies.
/// Afterwards as many nodes as the level promised have each key's last acknowledged value, or a later one that was under
/// way.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_kills_of_all_nodes() {
    let rounds = std::env::var("TREFOIL_SOAK_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut cluster = Cluster::start(1).await;
    let mut written: BTreeMap<i64, Written> = BTreeMap::new();
    for round in 0..rounds {
        let begun = std::time::Instant::now();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let door = cluster.door(1 + (writer % 3) as u32);
            let first = written.get(&writer).map_or(1, |known| known.sent + 1);
            writers.spawn(write_until_refused(door, writer, first, round, acknowledged.clone()));
        }
        until("enough writes are acknowledged", async || {
            let count = acknowledged.load(Ordering::Relaxed);
            if count < ACKNOWLEDGED_PER_ROUND { Err(count) } else { Ok(()) }
        })
        .await;
        cluster.kill_all();
        while let Some(of_writer) = writers.join_next().await {
            for (key, new) in of_writer.unwrap() {
                let known = written.entry(key).or_default();
                known.sent = new.sent;
                if new.acknowledged > 0 {
                    *known = new;
                }
            }
        }
        cluster.start_all().await;
        check(&cluster, &written, round).await;
        println!("round {round}: {} keys, {:?}", written.len(), begun.elapsed());
    }
}

/// What each node has in its own files and log, and what they answer together.
async fn check(cluster: &Cluster, written: &BTreeMap<i64, Written>, round: u64) {
    let mut own = Vec::new();
    for id in cluster.ids() {
        own.push(cluster.door(id).scan(One).await.unwrap().into_iter().collect::<BTreeMap<i64, i64>>());
    }
    let reader = cluster.door(1 + (round % 3) as u32);
    let together: BTreeMap<i64, i64> = reader.scan(Quorum).await.unwrap().into_iter().collect();
    for (key, known) in written {
        let values: Vec<i64> = own.iter().map(|rows| rows.get(key).copied().unwrap_or(0)).collect();
        let holders = values.iter().filter(|value| **value >= known.acknowledged).count();
        assert!(holders >= known.copies, "round {round}, key {key}: the nodes have {values:?}; {known:?}");
        let value = together.get(key).copied().unwrap_or(0);
        let possible = known.acknowledged..=known.sent;
        assert!(possible.contains(&value), "round {round}, key {key}: {value} is read; {known:?}");
    }
}

/// Every other write is of the key `writer`, the rest are of keys of their own. Ends with the first error.
async fn write_until_refused(
    door: Door,
    writer: i64,
    first: i64,
    round: u64,
    acknowledged: Arc<AtomicU64>,
) -> BTreeMap<i64, Written> {
    let (level, copies) = if round.is_multiple_of(2) { (Quorum, 2) } else { (All, 3) };
    let mut kept: BTreeMap<i64, Written> = BTreeMap::new();
    for value in first.. {
        let own = (round as i64 + 1) * 1_000_000 + writer * 10_000 + value % 10_000;
        let key = if value % 2 == 0 { writer } else { own };
        let known = kept.entry(key).or_default();
        known.sent = value;
        if door.write(key, value, level).await.is_err() {
            break;
        }
        *known = Written { acknowledged: value, copies, sent: value };
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
