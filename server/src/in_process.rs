//! Nodes of a test in one process: directories in memory, questions handed over by call, cut off at will.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::time::timeout;
use trefoil::metadata::{Entry, Epoch};
use trefoil::model::{CreateKeyspace, NodeId, VnodeBits};
use trefoil::ring::Zone;
use trefoil::vfs::Vfs;
use trefoil::vfs::memory::MemoryVfs;
use trefoil_proto::v1::CallKind;

use crate::birth::{BirthConfig, BirthError, Desk, InitialMember, enter};
use crate::metadata_log::{MetadataLog, RaftLog, Timing};
use crate::peer_rpc::{CallError, PeerRpc};

/// Longest wait for anything in a test.
pub const PATIENCE: Duration = Duration::from_secs(20);

const FAST: Timing = Timing {
    heartbeat: Duration::from_millis(40),
    election_min: Duration::from_millis(200),
    election_max: Duration::from_millis(400),
    pull: Duration::from_millis(50),
    birth_retry: Duration::from_millis(10),
};

/// Which desks stand where, and which addresses are cut off.
#[derive(Default)]
pub struct Net {
    desks: Mutex<BTreeMap<String, Arc<Desk>>>,
    cut: Mutex<BTreeSet<String>>,
}

/// The net as one node sees it. Node n of a test has the address `n<n>`.
struct Line {
    net: Arc<Net>,
    own: String,
}

impl PeerRpc for Line {
    fn call(
        &self,
        target: NodeId,
        kind: CallKind,
        body: Bytes,
        time: Duration,
    ) -> BoxFuture<'_, Result<Bytes, CallError>> {
        let address = target.to_string();
        async move { self.call_address(&address, kind, body, time).await }.boxed()
    }

    fn call_address<'a>(
        &'a self,
        address: &'a str,
        kind: CallKind,
        body: Bytes,
        time: Duration,
    ) -> BoxFuture<'a, Result<Bytes, CallError>> {
        async move {
            let cut = [self.own.as_str(), address].into_iter().find(|at| self.net.cut.lock().contains(*at));
            if let Some(at) = cut {
                return Err(CallError::NotSent(format!("{at} is cut off")));
            }
            let desk = self.net.desks.lock().get(address).cloned();
            let desk = desk.ok_or_else(|| CallError::NotSent("connection refused".into()))?;
            timeout(time, desk.handle(kind, body)).await.unwrap_or_else(|_| Err(CallError::Lost("time is up".into())))
        }
        .boxed()
    }
}

/// One node: its configuration and its directory outlive its runs.
pub struct Site {
    pub config: BirthConfig,
    pub vfs: MemoryVfs,
    net: Arc<Net>,
    log: Mutex<Option<Arc<RaftLog>>>,
}

impl Site {
    /// Runs the node until it knows who it is and has said so.
    pub async fn start(&self) -> Result<Arc<RaftLog>, BirthError> {
        let desk = Desk::new(self.config.clone());
        self.net.desks.lock().insert(self.config.peer_address.clone(), Arc::clone(&desk));
        let rpc = Arc::new(Line { net: Arc::clone(&self.net), own: self.config.peer_address.clone() });
        let entered = enter(&desk, Arc::new(self.vfs.clone()), Path::new("data"), rpc, FAST).await;
        match &entered {
            Ok(log) => *self.log.lock() = Some(Arc::clone(log)),
            Err(_) => drop(self.net.desks.lock().remove(&self.config.peer_address)),
        }
        entered
    }

    /// Stops the node and takes its power away.
    pub async fn crash(&self, seed: u64) {
        self.net.desks.lock().remove(&self.config.peer_address);
        let log = self.log.lock().take();
        if let Some(log) = log {
            log.shutdown().await;
        }
        self.vfs.crash(seed);
    }

    /// The same node on another net.
    pub fn on(self, net: &Arc<Net>) -> Site {
        Site { net: Arc::clone(net), ..self }
    }

    pub fn log(&self) -> Arc<RaftLog> {
        self.log.lock().clone().unwrap()
    }
}

/// Nodes n1, n2, ... in these zones.
pub struct Nodes {
    pub net: Arc<Net>,
    pub sites: Vec<Site>,
}

impl Nodes {
    pub fn new(zones: &[&str]) -> Nodes {
        let net = Arc::<Net>::default();
        let zone = |name: &str| Zone { region: "eu".into(), name: name.into() };
        let initial_members: Vec<InitialMember> = zones
            .iter()
            .zip(1..)
            .map(|(name, number)| InitialMember { address: format!("n{number}"), zone: zone(name) })
            .collect();
        let site = |member: &InitialMember| {
            let config = BirthConfig {
                cluster: "demo".into(),
                vnode_bits: VnodeBits::new(4).unwrap(),
                peer_address: member.address.clone(),
                client_address: format!("client-{}", member.address),
                zone: member.zone.clone(),
                initial_members: initial_members.clone(),
            };
            let vfs = MemoryVfs::new();
            vfs.create_dir(Path::new("data")).unwrap();
            vfs.sync_dir(Path::new("")).unwrap();
            Site { config, vfs, net: Arc::clone(&net), log: Mutex::default() }
        };
        let sites = initial_members.iter().map(site).collect();
        Nodes { net, sites }
    }

    /// Starts all nodes at once and waits for all.
    pub async fn start(&self) {
        let started = timeout(PATIENCE, join_all(self.sites.iter().map(Site::start))).await;
        started.expect("all nodes know who they are in time").into_iter().for_each(|log| drop(log.unwrap()));
    }

    pub async fn stop(&self) {
        join_all(self.sites.iter().zip(1..).map(|(site, seed)| site.crash(seed))).await;
    }

    pub fn cut(&self, at: usize) {
        self.net.cut.lock().insert(self.sites[at].config.peer_address.clone());
    }

    pub fn heal(&self) {
        self.net.cut.lock().clear();
    }

    /// Waits until all running nodes have reached `epoch`.
    pub async fn reach(&self, epoch: Epoch) {
        for site in self.sites.iter().filter(|site| site.log.lock().is_some()) {
            let mut seen = site.log().watch();
            let reached = timeout(PATIENCE, seen.wait_for(|seen| *seen >= epoch)).await;
            assert!(reached.is_ok(), "{} reaches {epoch}", site.config.peer_address);
        }
    }
}

/// CREATE KEYSPACE `name`.
pub fn keyspace(name: &str) -> Entry {
    Entry::CreateKeyspace(CreateKeyspace { name: name.into(), replication: BTreeMap::new(), if_not_exists: false })
}
