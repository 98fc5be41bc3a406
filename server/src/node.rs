//! A node: what is started in which order, and stopped in the reverse one. Nothing clever.
//!
//! ```text
//!   listeners ─► lanes with the peer port open for single questions ─► who am I (birth, metadata log)
//!     ─► store (replays its log) ─► greeting: is it all there? ─► clock and names ─► replica threads ─► lanes coordinate, links go out
//!     ─► metadata caught up ─► client port ─► serving
//! ```
//!
//! **Invariants:** no mutation is named before the start stamp of this run is below a ceiling on disk · the client port
//! opens last, and only with a store that has been recovered whole (B122) and the latest
//! metadata that can be had · the store knows a table before a request can name it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use prost::Message;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::service::Routes;
use trefoil::commitlog::Position;
use trefoil::metadata::{ClusterState, Epoch, encode_table};
use trefoil::model::{Identity, Instant, NodeId, Stamp};
use trefoil::snapshot::TableLabel;
use trefoil::store::{Content, Store, StoreOptions, TableSpec};
use trefoil::vfs::Vfs;
use trefoil_proto::v1;
use trefoil_proto::v1::CallKind as K;

use crate::backup::{self, Archive, BackupSettings, Crew};
use crate::birth::{self, BirthConfig, BirthError, Desk, InitialMember};
use crate::ceiling::{CeilingFile, keep_raised};
use crate::clock;
use crate::config::{Config, MemberConfig};
use crate::coordinate::{Admission, CounterTurns, Guardrails, Lane, LanePostman, Limits, Shared};
use crate::hints::{Ground, HintSettings, Hints};
use crate::metadata_log::{MetadataLog, RaftLog, Timing};
use crate::peers::{PeerEvents, PeerService, Peers, ReplyQueue};
use crate::replica::{CompactionSettings, Completion, Completions, Replica, ScrubSettings};
use crate::replication::{self, HeardClocks, Peering, Replication, ReplicationSettings, greeting};
use crate::restore;
use crate::restore::share::{self, OfS3, Shares};
use crate::runtime::{LaneRuntime, accept};
use crate::service;
use beginning::{Before, Begun};
use tasks::{Follower, run_lane, watch_peers};

pub use address_book::AddressBook;

/// How long a clean stop waits for what is under way.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1_024;

/// How often deadlines are looked at.
const SWEEP: Duration = Duration::from_millis(10);

/// Everything a node is started with, checked.
pub struct NodeSettings {
    /// Where the metadata log and the clock's ceiling are; the store's directory lies within.
    pub data_directory: PathBuf,
    /// Where peers connect, `host:port`.
    pub peer_address: String,
    /// Where clients connect, `host:port`.
    pub client_address: String,
    /// Who this node is to be.
    pub birth: BirthConfig,
    /// Files and memory.
    pub store: StoreOptions,
    /// How its files are compacted.
    pub compaction: CompactionSettings,
    /// How its files are looked after.
    pub scrub: ScrubSettings,
    /// How replicas keep each other informed.
    pub replication: ReplicationSettings,
    /// What one request may ask.
    pub limits: Limits,
    /// What requests are held against.
    pub guardrails: Guardrails,
    /// What is kept for nodes that miss writes.
    pub hints: HintSettings,
    /// Where backups go; none: there are none.
    pub backup: Option<BackupSettings>,
    /// What is taken on at once.
    pub admission: Arc<Admission>,
    /// Runtimes of the data path; at least 1.
    pub lanes: usize,
}

impl NodeSettings {
    /// The settings of a configuration.
    pub fn new(config: &Config) -> NodeSettings {
        let member =
            |member: &MemberConfig| InitialMember { address: member.address.to_string(), zone: member.zone.clone() };
        NodeSettings {
            data_directory: config.node.data_dir.clone(),
            peer_address: config.node.peer_address.to_string(),
            client_address: config.node.client_address.to_string(),
            birth: BirthConfig {
                cluster: config.cluster.name.clone(),
                vnode_bits: config.cluster.vnodes,
                peer_address: config.node.peer_address.to_string(),
                client_address: config.node.client_address.to_string(),
                zone: config.node.zone.clone(),
                initial_members: config.cluster.initial_members.iter().map(member).collect(),
            },
            store: config.store(),
            compaction: config.compaction.of_threads(),
            scrub: config.scrub.of_thread(),
            replication: config.replication.of_nodes(),
            limits: config.limits.of_requests(),
            guardrails: config.guardrails.of_requests(),
            hints: config.hints.bounds(),
            backup: config.backup_of_nodes(),
            admission: Arc::new(config.limits.admission()),
            lanes: config.node.runtimes,
        }
    }
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port could not be opened.
    #[error("cannot listen on {setting} = {address}: {source}")]
    Listen {
        /// The setting that names it.
        setting: &'static str,
        /// The address.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The node could not find out who it is.
    #[error(transparent)]
    Birth(#[from] BirthError),
    /// The data directory could not be opened.
    #[error(transparent)]
    Core(#[from] trefoil::Error),
    /// The way to the backups is not one.
    #[error("cannot go to the backups: {0}")]
    Backup(#[from] trefoil_s3::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// A running node.
pub struct Node {
    shared: Arc<Shared>,
    shares: Arc<Shares>,
    log: Arc<RaftLog>,
    lanes: Vec<Arc<Lane>>,
    runtimes: Vec<LaneRuntime>,
    stop_clients: watch::Sender<bool>,
    stop_peers: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

/// The part of a node that peers can reach from the first moment on.
struct Door {
    desk: Arc<Desk>,
    heard: OnceLock<Arc<HeardClocks>>,
    lanes: OnceLock<Vec<Arc<Lane>>>,
    control: OnceLock<Arc<service::Control>>,
}

impl Door {
    fn new(desk: Arc<Desk>) -> Door {
        Door { desk, heard: OnceLock::new(), lanes: OnceLock::new(), control: OnceLock::new() }
    }

    /// Who starts is told what there is to tell by now.
    fn answer_greeting(&self, from: NodeId) -> Result<Bytes, Status> {
        match (self.control.get(), self.heard.get()) {
            (Some(control), _) => Ok(control.answer_greeting(from)),
            (None, Some(heard)) => Ok(greeting::answer_while_starting(heard, from).encode_to_vec().into()),
            (None, None) => Err(Status::unavailable("this node is starting")),
        }
    }
}

/// The door as one lane's peer port sees it.
struct LaneDoor {
    lane: usize,
    door: Arc<Door>,
}

impl Node {
    /// Starts a node and returns once it serves. Before a cluster is born that can take as long as the other initial
    /// members need to appear.
    pub async fn start(settings: NodeSettings, vfs: Arc<dyn Vfs>) -> Result<Node, StartError> {
        let peer_listener = listen("node.peer_address", &settings.peer_address)?;
        let client_port = claim("node.client_address", &settings.client_address)?;
        let door = Arc::new(Door::new(Desk::new(settings.birth.clone())));
        let runtimes = start_runtimes(settings.lanes)?;
        let (stop_peers, stop_clients) = (watch::channel(false).0, watch::channel(false).0);
        let mut tasks = vec![serve_peers(peer_listener, &runtimes, &door, &stop_peers)];
        let rpc = Arc::new(AddressBook::new(door.desk.clone()));
        let log =
            birth::enter(&door.desk, vfs.clone(), &settings.data_directory, rpc.clone(), Timing::default()).await?;
        let heard = Arc::new(HeardClocks::open(vfs.clone(), &settings.data_directory)?);
        let _ = door.heard.set(heard.clone()); // Set once, here.
        let state = log.state();
        let identity = Identity { cluster: state.cluster(), node: log.me(), vnode_bits: state.ring().vnode_bits() };
        let store = open_store(vfs.clone(), &settings, identity, &state).await?;
        let ceiling = Arc::new(CeilingFile::new(vfs.clone(), &settings.data_directory));
        right_time::wait(&*rpc, state.ring(), identity.node).await;
        let before = Before { identity, store: &store, ceiling: &ceiling, heard };
        let Begun { naming, incarnation, replication } = before.begin(&*rpc, &state, &settings.replication).await?;
        let archive = open_archive(&settings, identity, &state, Stamp(incarnation as i64)).await?;
        // One for each lane, and one for what is found to be missing here.
        let (completions, mut receivers): (Vec<Completions>, Vec<_>) =
            (0..=settings.lanes).map(|_| mpsc::unbounded_channel()).unzip();
        let shared = Arc::new(Shared {
            identity,
            cluster: ArcSwap::new(state),
            peers: Arc::new(Peers::new(identity.node)),
            replica: start_replica(store, completions, &settings, &replication)?,
            replication,
            naming,
            admission: settings.admission.clone(),
            limits: settings.limits.clone(),
            guardrails: settings.guardrails.clone(),
            hints: Arc::new(Hints::new(settings.hints)),
            counters: CounterTurns::default(),
            archive,
            incarnation,
        });
        let lanes: Vec<Arc<Lane>> = (0..settings.lanes).map(|number| Lane::new(number, shared.clone())).collect();
        let peering = peering(&shared, &lanes, &rpc, &log, receivers.pop());
        for ((lane, runtime), receiver) in lanes.iter().zip(&runtimes).zip(receivers) {
            tasks.extend(run_lane(lane, runtime, receiver));
        }
        let shares = shares(&vfs, &settings, &shared);
        let postman = Arc::new(LanePostman::new(lanes.clone()));
        let directory = settings.data_directory.join("hints");
        shared.hints.start(Ground { vfs, directory, owner: identity, postman }).map_err(StartError::Thread)?;
        let crew = shared.archive.clone().map(|archive| Arc::new(Crew::new(shared.clone(), rpc.clone(), archive)));
        let control =
            service::Control::new(shared.clone(), log.clone(), rpc, shares.clone(), crew.clone(), peering.clone());
        let control = Arc::new(control);
        let _ = door.lanes.set(lanes.clone()); // Both are set once, here.
        let _ = door.control.set(control.clone());
        let mut node = Node { shared, shares, log, lanes, runtimes, stop_clients, stop_peers, tasks };
        node.keep_up(ceiling, peering);
        node.tasks.push(tokio::spawn(restore::run(control.clone())));
        node.catch_up().await;
        if let Some(crew) = crew {
            backup::run(&crew);
        }
        node.serve_clients(open(client_port, "node.client_address", &settings.client_address)?, &control);
        Ok(node)
    }

    /// What the node's parts share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The tasks that follow the metadata, the peers and the clock.
    fn keep_up(&mut self, ceiling: Arc<CeilingFile>, peering: Arc<Peering>) {
        let runtimes = self.runtimes.iter().map(|runtime| runtime.handle().clone()).collect();
        let follower = Follower::new(self.shared.clone(), self.log.clone(), self.lanes.clone(), runtimes);
        self.tasks.push(tokio::spawn(follower.run()));
        self.tasks.push(tokio::spawn(watch_peers(self.shared.clone(), self.log.clone())));
        self.tasks.push(tokio::spawn(keep_raised(ceiling, self.shared.clone())));
        self.tasks.push(tokio::spawn(replication::run(peering)));
    }

    fn serve_clients(&mut self, listener: TcpListener, control: &Arc<service::Control>) {
        let mut sockets = Vec::new();
        for (lane, runtime) in self.lanes.iter().zip(&self.runtimes) {
            let (sender, receiver) = mpsc::unbounded_channel();
            runtime.serve(
                service::client_routes(lane.clone(), control.clone()),
                receiver,
                self.stop_clients.subscribe(),
            );
            sockets.push(sender);
        }
        self.tasks.push(tokio::spawn(accept(listener, sockets)));
    }

    /// Stops taking requests, finishes what is under way, writes memtables to files and ends all threads.
    pub async fn stop(self) -> Result<(), trefoil::Error> {
        let patience = clock::after(STOP_PATIENCE);
        self.stop_clients.send_replace(true);
        self.shared.admission.close();
        until(patience, || self.shared.admission.requests() == 0).await;
        // Only now, since until now the others' answers were needed; their requests end with their replies.
        self.stop_peers.send_replace(true);
        until(patience, || self.lanes.iter().all(|lane| lane.serves_nobody())).await;
        for task in &self.tasks {
            task.abort();
        }
        if let Some(archive) = &self.shared.archive {
            archive.stop();
        }
        self.log.shutdown().await;
        // Whoever has not acknowledged by now may have to get it later.
        self.lanes.iter().for_each(|lane| lane.give_up_writes());
        let (replica, hints, shares) = (self.shared.replica.clone(), self.shared.hints.clone(), self.shares.clone());
        let stopped = tokio::task::spawn_blocking(move || {
            shares.stop();
            hints.stop();
            replica.stop()
        });
        let stopped = stopped.await;
        let runtimes = self.runtimes;
        // Dropping a runtime joins its thread.
        let dropped = tokio::task::spawn_blocking(move || drop(runtimes)).await;
        if let Err(error) = dropped {
            tracing::error!(%error, "a lane did not stop cleanly");
        }
        stopped.unwrap_or_else(|error| {
            tracing::error!(%error, "the replica did not stop cleanly");
            Ok(())
        })
    }
}

/// Waits until this is so, at most to the deadline.
async fn until(deadline: Instant, is_so: impl Fn() -> bool) {
    while !is_so() && clock::now() < deadline {
        tokio::time::sleep(SWEEP).await;
    }
}

fn listen(setting: &'static str, address: &str) -> Result<TcpListener, StartError> {
    open(claim(setting, address)?, setting, address)
}

/// Takes a port without opening it: a port that is taken is found at once, and nobody can connect before it is opened.
fn claim(setting: &'static str, address: &str) -> Result<TcpSocket, StartError> {
    let claim = || {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Connections of the run before may still be closing.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    claim().map_err(|source| StartError::Listen { setting, address: address.to_owned(), source })
}

fn open(port: TcpSocket, setting: &'static str, address: &str) -> Result<TcpListener, StartError> {
    port.listen(BACKLOG).map_err(|source| StartError::Listen { setting, address: address.to_owned(), source })
}

fn start_runtimes(lanes: usize) -> Result<Vec<LaneRuntime>, StartError> {
    (0..lanes).map(LaneRuntime::start).collect::<Result<_, _>>().map_err(StartError::Thread)
}

fn serve_peers(
    listener: TcpListener,
    runtimes: &[LaneRuntime],
    door: &Arc<Door>,
    stop: &watch::Sender<bool>,
) -> JoinHandle<()> {
    let mut sockets = Vec::new();
    for (lane, runtime) in runtimes.iter().enumerate() {
        let (sender, receiver) = mpsc::unbounded_channel();
        let events = Arc::new(LaneDoor { lane, door: door.clone() });
        let service = v1::peer_server::PeerServer::new(PeerService::new(events, stop.subscribe()))
            .max_decoding_message_size(trefoil_proto::MESSAGE_BYTES_MAX)
            .max_encoding_message_size(trefoil_proto::MESSAGE_BYTES_MAX);
        runtime.serve(Routes::new(service), receiver, stop.subscribe());
        sockets.push(sender);
    }
    tokio::spawn(accept(listener, sockets))
}

/// What replicas need to ask each other and to log what they get. `found`: where that completes, behind the lanes.
fn peering(
    shared: &Arc<Shared>,
    lanes: &[Arc<Lane>],
    rpc: &Arc<AddressBook>,
    log: &Arc<RaftLog>,
    found: Option<mpsc::UnboundedReceiver<Vec<Completion>>>,
) -> Arc<Peering> {
    // There is one more than lanes, so it is always there.
    let found = found.unwrap_or_else(|| mpsc::unbounded_channel().1);
    Arc::new(Peering {
        shared: shared.clone(),
        lane: lanes[0].clone(),
        rpc: rpc.clone(),
        log: log.clone(),
        found: tokio::sync::Mutex::new(found),
        found_lane: lanes.len(),
    })
}

/// What loads this node's shares of restores.
fn shares(vfs: &Arc<dyn Vfs>, settings: &NodeSettings, shared: &Shared) -> Arc<Shares> {
    Arc::new(Shares::new(share::Ground {
        vfs: vfs.clone(),
        directory: settings.data_directory.join("restore"),
        store: shared.replica.store().clone(),
        node: shared.identity.node,
        runtime: tokio::runtime::Handle::current(),
        buckets: Arc::new(OfS3),
    }))
}

/// The tables of a state, as the store needs to know them.
pub(crate) fn table_specs(state: &ClusterState) -> Vec<TableSpec> {
    state
        .tables()
        .map(|table| TableSpec {
            id: table.id,
            keyspace: table.keyspace,
            durability: table.options.durability,
            lateness_s: table.options.lateness_s,
            compaction: table.options.compaction.clone(),
            clustering: table.clustering_types(),
            columns: table.columns.iter().map(|column| (column.id, column.ty.clone())).collect(),
            content: if state.restore_of(table.id).is_some() { Content::Loading } else { Content::Whole },
            live: state.live_columns(table.id),
            label: TableLabel {
                keyspace: state.keyspace(table.keyspace).map(|keyspace| keyspace.name.clone()).unwrap_or_default(),
                table: table.name.clone(),
                version: table.version,
                definition: encode_table(table),
            },
        })
        .collect()
}

async fn open_store(
    vfs: Arc<dyn Vfs>,
    settings: &NodeSettings,
    identity: Identity,
    state: &ClusterState,
) -> Result<Arc<Store>, StartError> {
    let (options, specs) = (settings.store.clone(), table_specs(state));
    let opened = tokio::task::spawn_blocking(move || Store::open(vfs, options, identity, &specs)).await;
    match opened {
        Ok(store) => {
            let store = store?;
            let guardrails = &settings.guardrails;
            if settings.backup.is_some() {
                // Nothing of the log goes before the bucket has told what it has.
                store.set_archived(Some(Position::default()))?;
            }
            store.watch_partitions(guardrails.partition_bytes_warn, guardrails.partition_rows_warn);
            Ok(Arc::new(store))
        }
        Err(error) => Err(StartError::Thread(io::Error::other(error))),
    }
}

/// The archive, which is to tell of the present state first.
async fn open_archive(
    settings: &NodeSettings,
    identity: Identity,
    state: &ClusterState,
    started: Stamp,
) -> Result<Option<Arc<Archive>>, StartError> {
    let Some(settings) = settings.backup.clone() else { return Ok(None) };
    let archive = Archive::open(settings, identity).await?;
    archive.learned(state, started);
    Ok(Some(Arc::new(archive)))
}

fn start_replica(
    store: Arc<Store>,
    lanes: Vec<Completions>,
    settings: &NodeSettings,
    replication: &Arc<Replication>,
) -> Result<Arc<Replica>, StartError> {
    let (compaction, scrub) = (settings.compaction, settings.scrub);
    Replica::start(store, lanes, compaction, scrub, replication.clone()).map(Arc::new).map_err(StartError::Thread)
}

#[tonic::async_trait]
impl PeerEvents for LaneDoor {
    fn operation(&self, peer: NodeId, operation: v1::PeerOperation, replies: &ReplyQueue) {
        // A link is refused before the lanes stand, so there is always one here.
        if let Some(lane) = self.door.lanes.get().and_then(|lanes| lanes.get(self.lane)) {
            lane.serve(peer, operation, replies);
        }
    }

    fn told(&self, peer: NodeId, epoch: Epoch) {
        if let Some(lane) = self.door.lanes.get().and_then(|lanes| lanes.get(self.lane)) {
            lane.shared().peers.told(peer, epoch);
        }
    }

    fn reported(&self, peer: NodeId, report: Bytes) {
        if let Some(lane) = self.door.lanes.get().and_then(|lanes| lanes.get(self.lane)) {
            lane.shared().replication.on_report(peer, report);
        }
    }

    async fn call(&self, kind: v1::CallKind, from: NodeId, body: Bytes) -> Result<Bytes, Status> {
        if kind == K::Greet {
            return self.door.answer_greeting(from);
        }
        let is_own =
            matches!(kind, K::Report | K::Flush | K::Snapshot | K::Compaction | K::Hints | K::Digests | K::Replication)
                || matches!(kind, K::Restore | K::Backup);
        let own = if is_own { self.door.control.get() } else { None };
        match own {
            Some(control) => control.answer(kind, body).await,
            None => self.door.desk.handle(kind, body).await.map_err(Status::from),
        }
    }

    fn hello(&self) -> Result<v1::Hello, Status> {
        let lanes = self.door.lanes.get().ok_or_else(|| Status::unavailable("this node is starting"))?;
        Ok(lanes[self.lane].shared().hello())
    }

    fn is_member(&self, node: NodeId) -> bool {
        self.door.desk.log().is_some_and(|log| log.state().ring().node(node).is_some())
    }
}

mod address_book;
mod beginning;
mod catch_up;
mod right_time;
mod tasks;
#[cfg(test)]
mod tests;
