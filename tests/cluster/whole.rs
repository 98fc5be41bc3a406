//! Whole nodes in this process, with gRPC, Raft, threads and timers as they are, on disks of memory that lose their power
//! and over links that are bad as a seed says.
//!
//! ```text
//!   node a ──dials──► gate of b ──► node b        a gate holds back, delays and breaks what passes it
//!
//! TREFOIL_WHOLE_SEEDS=40 cargo test -p trefoil-server --test cluster whole_nodes -- --nocapture
//! ```
//!
//! A seed says what goes wrong, in which order and for how long; threads and the clock are the machine's. See
//! docs/decisions for why these nodes are not run under a simulated runtime.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use trefoil::vfs::Vfs;
use trefoil::vfs::memory::MemoryVfs;
use trefoil_proto::v1::Consistency::All;
use trefoil_server::config::Config;
use trefoil_server::node::{Node, NodeSettings};

use crate::chaos::{Load, are_equal_and_right, from_environment};
use crate::cluster::ZONES;
use crate::door::{Door, table};
use crate::process::{Place, Settings, settings_text};
use crate::verify::become_equal;
use crate::wait::until;

/// Seeds, and the first of them, unless the variables `TREFOIL_WHOLE_SEEDS` and `TREFOIL_WHOLE_FIRST` say otherwise.
const SEEDS: u64 = 2;
const FIRST: u64 = 1;

/// What goes wrong under one seed.
const FAULTS: usize = 10;

/// Nodes take smaller segments than the settings allow, since these are memory.
const SEGMENT_BYTES: u64 = 8 << 20;

/// How what passes a gate fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Weather {
    /// What comes to the node is held back.
    forth_cut: bool,
    /// What the node answers is held back.
    back_cut: bool,
    /// Each piece is late by up to so much, each connection by itself: so they overtake each other.
    late_ms: u64,
    /// Connections from before its last change are broken.
    storms: u32,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Forth,
    Back,
}

impl Weather {
    fn is_cut(self, way: Way) -> bool {
        match way {
            Way::Forth => self.forth_cut,
            Way::Back => self.back_cut,
        }
    }
}

/// What stands before one node: all others reach it there.
struct Gate {
    weather: watch::Sender<Weather>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Gate {
    async fn before(node: SocketAddr, seed: u64) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (weather, address) = (watch::channel(Weather::default()).0, listener.local_addr().unwrap());
        let task = tokio::spawn(accept(listener, node, weather.subscribe(), seed));
        Gate { weather, address, task }
    }

    fn change(&self, change: impl FnOnce(&mut Weather)) {
        self.weather.send_modify(change);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, node: SocketAddr, weather: watch::Receiver<Weather>, seed: u64) {
    for number in 0.. {
        let Ok((near, _)) = listener.accept().await else { continue };
        let rng = StdRng::seed_from_u64(seed ^ number);
        tokio::spawn(pass(near, node, weather.clone(), rng));
    }
}

async fn pass(near: TcpStream, node: SocketAddr, mut weather: watch::Receiver<Weather>, mut rng: StdRng) {
    let storms = weather.borrow().storms;
    // A node that refuses does so to whoever dialled, too.
    let Ok(far) = TcpStream::connect(node).await else { return };
    if near.set_nodelay(true).and_then(|()| far.set_nodelay(true)).is_err() {
        return;
    }
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let back = carry(far_in, near_out, Way::Back, weather.clone(), StdRng::seed_from_u64(rng.random()));
    let forth = carry(near_in, far_out, Way::Forth, weather.clone(), rng);
    tokio::select! {
        () = forth => {}
        () = back => {}
        // An error says that the gate is gone.
        _ = weather.wait_for(|weather| weather.storms != storms) => {}
    }
}

/// Carries what comes in until one side ends; nothing while it is cut.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Way,
    mut weather: watch::Receiver<Weather>,
    mut rng: StdRng,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(length) = from.read(&mut buffer).await else { return };
        let Ok(late_ms) = weather.wait_for(|weather| !weather.is_cut(way)).await.map(|weather| weather.late_ms) else {
            return;
        };
        if late_ms > 0 {
            sleep(Duration::from_millis(rng.random_range(0..=late_ms))).await;
        }
        if length == 0 || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// Three nodes, numbered from 1, each in a zone of its own.
struct Machines {
    places: Vec<Place>,
    /// Where each listens to the others; they are told of its gate.
    own: Vec<SocketAddr>,
    gates: Vec<Gate>,
    disks: Vec<Arc<MemoryVfs>>,
    nodes: Vec<Option<Node>>,
    settings: Settings,
}

impl Machines {
    /// Starts them, and makes `app.kv` with these options.
    async fn start(seed: u64, options: &str) -> Machines {
        let settings = Settings {
            vnodes: 16,
            replication: "report_ms = 200\nclosed_behind_s = 5\npurge_after_s = 3\n".to_owned(),
            ..Settings::default()
        };
        let mut places: Vec<Place> = ZONES.iter().map(|zone| Place::new(*zone)).collect();
        let own: Vec<SocketAddr> = places.iter().map(|place| place.peer).collect();
        let gates = join_all(own.iter().map(|own| Gate::before(*own, seed))).await;
        for (place, gate) in places.iter_mut().zip(&gates) {
            place.peer = gate.address;
        }
        let disk = |_: &Place| {
            let disk = MemoryVfs::new();
            disk.create_dir(Path::new("/data")).unwrap();
            Arc::new(disk)
        };
        let disks = places.iter().map(disk).collect();
        let mut machines = Machines { places, own, gates, disks, nodes: Vec::new(), settings };
        machines.nodes = join_all((1..=3).map(|id| machines.node(id))).await.into_iter().map(Some).collect();
        machines.settled().await;
        machines.door(1).apply("CREATE KEYSPACE app").await.unwrap();
        machines
            .door(1)
            .apply(&format!("CREATE TABLE app.kv (k bigint PRIMARY KEY, v bigint) {options}"))
            .await
            .unwrap();
        machines
    }

    async fn node(&self, id: usize) -> Node {
        let text = settings_text(&self.places[id - 1], &self.places, &self.settings);
        let mut settings = NodeSettings::new(&Config::parse(&text, Path::new("/")).unwrap());
        settings.store.segment_bytes = SEGMENT_BYTES;
        settings.peer_address = self.own[id - 1].to_string();
        Node::start(settings, self.disks[id - 1].clone()).await.unwrap()
    }

    fn doors(&self) -> Vec<Door> {
        (1..=3).map(|id| self.door(id)).collect()
    }

    fn door(&self, id: usize) -> Door {
        Door::new(self.places[id - 1].client)
    }

    /// Nothing it does from now on reaches the disk, and of what it did, only what was synced must be there; the rest is
    /// kept, lost or torn, as `seed` decides.
    async fn lose_power(&mut self, id: usize, seed: u64) {
        let (disk, node) = (self.disks[id - 1].clone(), self.nodes[id - 1].take().unwrap());
        disk.power_off_at(disk.operations() + 1);
        // That it cannot write what it holds is what is wanted.
        let _ = node.stop().await;
        disk.crash(seed);
    }

    async fn boot(&mut self, id: usize) {
        let node = self.node(id).await;
        self.nodes[id - 1] = Some(node);
    }

    /// Waits until all see each other.
    async fn settled(&self) {
        for door in self.doors() {
            until("all nodes see each other", async || {
                let topology = door.ring().await.map_err(|error| error.message)?;
                let alive: BTreeSet<u32> =
                    topology.nodes.iter().filter(|node| node.alive).map(|node| node.id).collect();
                if alive.len() == 3 { Ok(()) } else { Err(format!("only {alive:?}")) }
            })
            .await;
        }
    }

    fn mend(&self) {
        for gate in &self.gates {
            gate.change(|weather| *weather = Weather { storms: weather.storms, ..Weather::default() });
        }
    }

    async fn stop(self) {
        for node in self.nodes.into_iter().flatten() {
            node.stop().await.unwrap();
        }
    }

    /// One thing that goes wrong, until it is over.
    async fn strike(&mut self, rng: &mut StdRng) {
        let (id, lasts) = (rng.random_range(1..=3), Duration::from_millis(rng.random_range(100..2_500)));
        let fault = rng.random_range(0..6);
        println!("fault {fault} of node {id} for {lasts:?}");
        let gate = &self.gates[id - 1];
        match fault {
            0 => gate.change(|weather| weather.forth_cut = true),
            1 => gate.change(|weather| weather.back_cut = true),
            2 => gate.change(|weather| (weather.forth_cut, weather.back_cut) = (true, true)),
            3 => {
                let late_ms = rng.random_range(5..150);
                self.gates.iter().for_each(|gate| gate.change(|weather| weather.late_ms = late_ms));
            }
            4 => gate.change(|weather| weather.storms += 1),
            _ => {
                self.lose_power(id, rng.random()).await;
                sleep(lasts / 2).await;
                return self.boot(id).await;
            }
        }
        sleep(lasts).await;
        self.mend();
    }
}

/// Whatever goes wrong with links and disks, what was acknowledged is there, what was deleted is not, and in the end all
/// replicas hold the same by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn whole_nodes_lose_nothing_over_bad_links_and_losses_of_power() {
    let (first, seeds) =
        (from_environment("TREFOIL_WHOLE_FIRST", FIRST), from_environment("TREFOIL_WHOLE_SEEDS", SEEDS));
    for seed in first..first + seeds {
        println!("TREFOIL_WHOLE_FIRST={seed} TREFOIL_WHOLE_SEEDS=1");
        let mut rng = StdRng::seed_from_u64(seed);
        let mut machines = Machines::start(seed, "WITH lateness = 1").await;
        let load = Load::start(&machines.doors());
        for _ in 0..FAULTS {
            load.goes_on().await;
            machines.strike(&mut rng).await;
        }
        machines.settled().await;
        load.goes_on().await;
        println!("{} operations were acknowledged", load.acknowledged());
        are_equal_and_right(&machines.doors(), &load.end().await).await;
        machines.stop().await;
    }
}

/// A table in the mode `periodic` acknowledges before it syncs. What one node loses so with its power, the others know and
/// give it within a minute: nobody reads the table and nobody repairs it. Nothing else could fill it either: while the
/// node was away nothing was written, so there are no hints.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_loss_of_power_takes_of_a_periodic_table_is_known_and_filled() {
    const ROUNDS: i64 = 6;
    const ROWS: i64 = 100;
    let mut machines = Machines::start(0, "WITH durability = 'periodic'").await;
    let mut filled = 0;
    for round in 0..ROUNDS {
        for key in round * ROWS..(round + 1) * ROWS {
            machines.door(1).write(key, key, All).await.unwrap();
        }
        machines.lose_power(3, round as u64).await;
        machines.boot(3).await;
        machines.settled().await;
        // It gives up after a minute.
        become_equal(&machines.door(2), table()).await;
        let shared = machines.nodes[2].as_ref().unwrap().shared().clone();
        let fetched = shared.replication.counts().fetched.load(Ordering::Relaxed);
        println!("round {round}: {fetched} records were fetched");
        filled += fetched;
        until("nothing is known to be missing", async || {
            let holes: u64 = shared.replication.summaries().values().map(|summary| summary.holes).sum();
            if holes == 0 { Ok(()) } else { Err(holes) }
        })
        .await;
    }
    assert!(filled >= ROWS as u64 / 2, "{filled} records: no loss of power took anything");
    machines.stop().await;
}
