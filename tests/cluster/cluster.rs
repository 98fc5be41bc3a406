//! A cluster of child processes in a temporary directory. Node `i` is the i-th initial member, counted from 1, so that
//! numbers here are those that the cluster gives.

use std::collections::BTreeSet;
use std::process::ExitStatus;

use tempfile::TempDir;
use trefoil_client::Client;
use trefoil_proto::v1::HintsAction;

use crate::bucket::Bucket;
use crate::door::Door;
use crate::process::{Place, Process, Settings, get, settings_text};
use crate::wait::until;

/// The zones of every cluster here; all are in the region `local`.
pub const ZONES: [&str; 3] = ["a", "b", "c"];

/// The table that most tests use: `Door::write` and `Door::read` know its columns.
pub const SCHEMA: [&str; 2] = ["CREATE KEYSPACE app", "CREATE TABLE app.kv (k bigint PRIMARY KEY, v bigint)"];

/// Nodes that list each other. They end with the test.
pub struct Cluster {
    nodes: Vec<Process>,
    settings: Settings,
    /// Dropped after the nodes.
    _directory: TempDir,
}

impl Cluster {
    /// Starts a cluster with so many nodes in each of three zones, and [`SCHEMA`]. Returns when all nodes serve and see
    /// each other.
    pub async fn start(nodes_per_zone: usize) -> Cluster {
        Cluster::start_with(nodes_per_zone, Settings::default()).await
    }

    /// The same, with nodes that tell each other so seldom what they have that nothing is found and filled by that.
    pub async fn start_taciturn() -> Cluster {
        let replication = "report_ms = 60000\n".to_owned();
        Cluster::start_with(1, Settings { replication, ..Settings::default() }).await
    }

    /// The same with settings.
    pub async fn start_with(nodes_per_zone: usize, settings: Settings) -> Cluster {
        let mut cluster = Cluster::prepare(nodes_per_zone, settings);
        cluster.begin().await;
        cluster
    }

    /// Starts what was prepared, and makes [`SCHEMA`].
    pub async fn begin(&mut self) {
        self.start_all().await;
        for statement in SCHEMA {
            self.door(1).apply(statement).await.unwrap();
        }
    }

    /// Nodes with settings and directories, none of them started.
    pub fn prepare(nodes_per_zone: usize, settings: Settings) -> Cluster {
        let zones: Vec<&str> = ZONES.iter().cycle().take(ZONES.len() * nodes_per_zone).copied().collect();
        Cluster::prepare_in(&zones, settings)
    }

    /// The same, with a node in each of these zones; a zone that is named again has more of them.
    pub fn prepare_in(zones: &[&str], settings: Settings) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let places: Vec<Place> = zones.iter().map(|zone| Place::new(*zone)).collect();
        let node = |(at, place): (usize, &Place)| {
            let text = settings_text(place, &places, &settings);
            Process::new(directory.path().join(format!("node-{}", at + 1)), place.clone(), &text)
        };
        let mut nodes: Vec<Process> = places.iter().enumerate().map(node).collect();
        if !settings.backup.is_empty() {
            nodes.iter_mut().for_each(Bucket::give_credentials);
        }
        Cluster { nodes, settings, _directory: directory }
    }

    /// The numbers of all nodes.
    pub fn ids(&self) -> impl Iterator<Item = u32> + use<> {
        1..=self.nodes.len() as u32
    }

    /// The numbers of the nodes that run.
    pub fn running(&self) -> BTreeSet<u32> {
        self.ids().filter(|id| self.node(*id).is_running()).collect()
    }

    pub fn node(&self, id: u32) -> &Process {
        &self.nodes[id as usize - 1]
    }

    pub fn node_mut(&mut self, id: u32) -> &mut Process {
        &mut self.nodes[id as usize - 1]
    }

    /// Where all nodes are.
    pub fn places(&self) -> Vec<Place> {
        self.nodes.iter().map(|node| node.place.clone()).collect()
    }

    /// The settings that all nodes began with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where clients connect, as the client library takes it.
    pub fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.place.client.to_string()).collect()
    }

    /// Requests to this node and no other.
    pub fn door(&self, id: u32) -> Door {
        Door::new(self.node(id).place.client)
    }

    /// Starts all nodes that do not run; returns when all serve and see each other.
    pub async fn start_all(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| !node.is_running()) {
            node.start();
        }
        for node in &mut self.nodes {
            node.ready().await;
        }
        self.settled().await;
    }

    /// Starts one node; returns when it serves and all that run see each other.
    pub async fn start_one(&mut self, id: u32) {
        self.node_mut(id).start();
        self.node_mut(id).ready().await;
        self.settled().await;
    }

    /// Waits until every node that runs sees exactly those alive that run.
    pub async fn settled(&self) {
        let running = self.running();
        for id in &running {
            self.sees_alive(*id, &running).await;
        }
    }

    /// Waits until every node that runs has what the others held when it started, and reads all its vnodes.
    pub async fn whole(&self) {
        for id in self.running() {
            until(&format!("node {id} reads all its vnodes"), async || {
                let text = get(self.node(id).place.http, "/metrics").await.map_err(|error| error.to_string())?;
                let line = text.lines().find(|line| line.starts_with("trefoil_replication_vnodes_not_read "));
                match line {
                    Some("trefoil_replication_vnodes_not_read 0") => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            })
            .await;
        }
    }

    /// Waits until node `id` sees exactly these alive.
    pub async fn sees_alive(&self, id: u32, alive: &BTreeSet<u32>) {
        let door = self.door(id);
        until(&format!("node {id} sees {alive:?} alive"), async || {
            let topology = door.ring().await.map_err(|error| error.message)?;
            let seen: BTreeSet<u32> = topology.nodes.iter().filter(|node| node.alive).map(|node| node.id).collect();
            if seen == *alive { Ok(()) } else { Err(format!("it sees {seen:?}")) }
        })
        .await;
    }

    /// No hints are delivered by the nodes that run, so that reads alone mend what a node misses.
    pub async fn pause_hints(&self) {
        let client = Client::builder(self.endpoints()).connect().await.unwrap();
        let nodes = client.hints(HintsAction::Pause, &[], 0).await.unwrap();
        assert!(nodes.iter().all(|node| node.error.is_empty()), "{nodes:?}");
    }

    pub fn kill(&mut self, id: u32) {
        self.node_mut(id).kill();
    }

    /// kill -9 of all nodes, none of which outlives another by much.
    pub fn kill_all(&mut self) {
        for node in &mut self.nodes {
            node.kill();
        }
    }

    /// SIGTERM to one node.
    pub async fn terminate(&mut self, id: u32) -> ExitStatus {
        self.node_mut(id).terminate().await
    }
}
