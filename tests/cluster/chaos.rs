//! Everything at once: nodes are killed, stopped, cut off and out of disk, one zone at a time and several faults behind each
//! other, while an application writes, deletes and reads.
//!
//! ```text
//! TREFOIL_CHAOS_FAULTS=1000 TREFOIL_CHAOS_SEED=7 cargo test -p trefoil-server --test cluster chaos -- --nocapture
//! TREFOIL_CHAOS_KILLS=1000 TREFOIL_CHAOS_SEED=7 cargo test -p trefoil-server --test cluster kills_one_behind -- --nocapture
//! ```
//!
//! Each key belongs to one writer, which numbers what it does to it: the number is the value, and rises with the
//! timestamp. So of two answers it is known which one is older, a deletion included.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;
use trefoil_proto::v1::Consistency::{One, Quorum};
use trefoil_proto::v1::change::Op;
use trefoil_proto::v1::{Change, MutateRequest, WholePartition};

use crate::cluster::Cluster;
use crate::door::{Door, table, write_request};
use crate::process::Settings;
use crate::proxy::Proxies;
use crate::verify::become_equal;
use crate::wait::until;

/// Faults, and the seed of their choice, unless the variables above say otherwise.
const FAULTS: u64 = 40;
const KILLS: u64 = 50;
const SEED: u64 = 1;

const WRITERS: i64 = 8;
const KEYS_PER_WRITER: i64 = 12;

/// One operation in so many deletes its key.
const DELETES_ONE_IN: i64 = 4;

/// The disk of node 3.
const DISK_BYTES: u64 = 160 << 20;

/// What became of the operations on one key.
#[derive(Debug, Clone, Copy, Default)]
pub struct Done {
    /// The last one that was acknowledged.
    acknowledged: i64,
    /// The last one that was begun.
    begun: i64,
}

impl Done {
    /// Whether an answer is possible: of the last operation that was acknowledged, or of one behind it.
    fn allows(self, found: Option<i64>) -> bool {
        let shows = |number: i64| if is_deletion(number) { found.is_none() } else { found == Some(number) };
        (self.acknowledged == 0 && found.is_none()) || (self.acknowledged.max(1)..=self.begun).any(shows)
    }
}

fn is_deletion(number: i64) -> bool {
    number % DELETES_ONE_IN == 0
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Stop,
    CutOff,
    CutOneWay,
    DiskFull,
    SlowDisk,
}

/// What was found to be possible on this machine.
#[derive(Debug, Clone, Copy)]
struct Disks {
    /// Node 3 has a disk that can be filled.
    small: bool,
    /// All have disks that can be made slow.
    slow: bool,
}

pub fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn chaos_loses_nothing_and_brings_nothing_back() {
    let kinds = [
        Fault::Kill,
        Fault::Kill,
        Fault::Kill,
        Fault::Stop,
        Fault::CutOff,
        Fault::CutOneWay,
        Fault::DiskFull,
        Fault::SlowDisk,
    ];
    loses_nothing_and_brings_nothing_back("TREFOIL_CHAOS_FAULTS", FAULTS, &kinds).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_one_behind_the_other_lose_nothing_and_bring_nothing_back() {
    loses_nothing_and_brings_nothing_back("TREFOIL_CHAOS_KILLS", KILLS, &[Fault::Kill]).await;
}

/// Nothing that was acknowledged is lost and nothing that was deleted comes back, at any time; and once so many faults of
/// these kinds are over, all replicas hold the same by themselves.
async fn loses_nothing_and_brings_nothing_back(variable: &str, faults: u64, kinds: &[Fault]) {
    let (faults, seed) = (from_environment(variable, faults), from_environment("TREFOIL_CHAOS_SEED", SEED));
    println!("{variable}={faults} TREFOIL_CHAOS_SEED={seed}");
    let settings = Settings {
        replication: "report_ms = 200\nclosed_behind_s = 5\npurge_after_s = 3\n".to_owned(),
        ..Settings::default()
    };
    let mut cluster = Cluster::prepare(1, settings);
    let proxies = Proxies::between(&cluster.places()).await;
    for id in cluster.ids() {
        let (name, routes) = proxies.routes(id);
        cluster.node_mut(id).set_variable(&name, &routes);
    }
    let disks = prepare_disks(&mut cluster);
    cluster.start_all().await;
    cluster.door(1).apply("CREATE KEYSPACE app").await.unwrap();
    cluster.door(1).apply("CREATE TABLE app.kv (k bigint PRIMARY KEY, v bigint) WITH lateness = 1").await.unwrap();
    let load = Load::start(&doors(&cluster));
    let mut rng = StdRng::seed_from_u64(seed);
    for number in 0..faults {
        let (fault, node) = (kinds[rng.random_range(0..kinds.len())], rng.random_range(1..=3));
        let lasts = Duration::from_millis(rng.random_range(50..1_500));
        load.goes_on().await;
        strike(&mut cluster, &proxies, fault, node, lasts, disks).await;
        // Killed nodes are killed again while they are starting, now and then.
        sleep(Duration::from_millis(rng.random_range(0..450))).await;
        println!("{number}: {fault:?} of node {node} for {lasts:?}; {} acknowledged", load.acknowledged());
    }
    for id in cluster.ids() {
        cluster.node_mut(id).ready().await;
    }
    cluster.settled().await;
    load.goes_on().await;
    let written = load.end().await;
    are_equal_and_right(&doors(&cluster), &written).await;
}

fn doors(cluster: &Cluster) -> Vec<Door> {
    cluster.ids().map(|id| cluster.door(id)).collect()
}

/// Waits until all replicas hold the same by themselves, and looks at it through each node.
pub async fn are_equal_and_right(doors: &[Door], written: &BTreeMap<i64, Done>) {
    become_equal(&doors[0], table()).await;
    for (at, door) in doors.iter().enumerate() {
        for level in [Quorum, One] {
            let found: BTreeMap<i64, i64> = door.scan(level).await.unwrap().into_iter().collect();
            for (key, done) in written {
                let value = found.get(key).copied();
                assert!(done.allows(value), "key {key} by node {} at {level:?}: {value:?} after {done:?}", at + 1);
            }
        }
    }
}

fn prepare_disks(cluster: &mut Cluster) -> Disks {
    let said = |what: &str, done: Result<(), String>| match done {
        Ok(()) => true,
        Err(reason) => {
            println!("no disk is {what}: {reason}");
            false
        }
    };
    let small = said("filled", cluster.node_mut(3).use_small_disk(DISK_BYTES));
    let slow = cluster.ids().all(|id| said("slow", cluster.node_mut(id).use_slow_disk()));
    Disks { small, slow }
}

async fn strike(cluster: &mut Cluster, proxies: &Proxies, fault: Fault, node: u32, lasts: Duration, disks: Disks) {
    match fault {
        Fault::Kill => {
            cluster.kill(node);
            sleep(lasts / 3).await;
            cluster.node_mut(node).start();
        }
        Fault::Stop => {
            cluster.node(node).pause();
            sleep(lasts * 3).await;
            cluster.node(node).resume();
        }
        Fault::CutOff => {
            proxies.cut_off(&[node]);
            sleep(lasts * 3).await;
            proxies.mend();
        }
        Fault::CutOneWay => {
            proxies.cut(node, node % 3 + 1);
            sleep(lasts * 3).await;
            proxies.mend();
        }
        Fault::DiskFull if disks.small => {
            cluster.node(3).disk().fill();
            sleep(lasts).await;
            cluster.node(3).disk().make_room();
        }
        Fault::SlowDisk if disks.slow => {
            // From 2 ms, as a busy one, to 60 ms, as one that fails.
            cluster.node(node).slow_disk().takes(lasts / 25);
            sleep(lasts * 3).await;
            cluster.node(node).slow_disk().takes(Duration::ZERO);
        }
        Fault::DiskFull | Fault::SlowDisk => {}
    }
}

/// The application: each writer goes through its keys, asks the next node where one fails, and reads now and then.
pub struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    writers: JoinSet<BTreeMap<i64, Done>>,
}

impl Load {
    /// By these nodes.
    pub fn start(doors: &[Door]) -> Load {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(work(doors.to_vec(), writer, stop.clone(), acknowledged.clone()));
        }
        Load { stop, acknowledged, writers }
    }

    /// How many operations were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits for some more operations.
    pub async fn goes_on(&self) {
        let goal = self.acknowledged() + 50;
        until("the load goes on", async || match self.acknowledged() {
            count if count < goal => Err(format!("{count} of {goal}")),
            _ => Ok(()),
        })
        .await;
    }

    /// Ends the writers: what became of the operations on each key.
    pub async fn end(self) -> BTreeMap<i64, Done> {
        self.stop.store(true, Ordering::Relaxed);
        self.writers.join_all().await.into_iter().flatten().collect()
    }
}

async fn work(
    doors: Vec<Door>,
    writer: i64,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
) -> BTreeMap<i64, Done> {
    let mut keys: BTreeMap<i64, Done> = BTreeMap::new();
    let (mut node, mut timestamp) = (writer as usize, 0);
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = writer * KEYS_PER_WRITER + turn % KEYS_PER_WRITER;
        let done = keys.entry(key).or_default();
        done.begun += 1;
        // Its own, so that a late attempt at one operation never wins over the next one.
        timestamp = wall_us().max(timestamp + 1);
        let request = operation(key, done.begun, timestamp);
        if doors[node % doors.len()].mutate(request).await.is_ok() {
            done.acknowledged = done.begun;
            acknowledged.fetch_add(1, Ordering::Relaxed);
        } else {
            node += 1;
        }
        if turn % 3 == 0 {
            match doors[(node + turn as usize) % doors.len()].read(key, Quorum).await {
                Ok(found) => assert!(done.allows(found), "key {key}: {found:?} was read after {done:?}"),
                Err(_) => node += 1,
            }
        }
    }
    keys
}

fn operation(key: i64, number: i64, timestamp_us: i64) -> MutateRequest {
    let mut request = write_request(key, number, Quorum);
    if is_deletion(number) {
        let delete = Change { op: Some(Op::DeletePartition(WholePartition::default())), ..Change::default() };
        request.mutation.as_mut().unwrap().changes = vec![delete];
    }
    request.options.as_mut().unwrap().default_timestamp_us = Some(timestamp_us);
    request
}

fn wall_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64
}
