//! What a node does with requests: the thin shell around the state machines of [`trefoil::coordinator`].
//!
//! ```text
//!   service ──begin──► Lane ──► Op in a slab ──► own replica (completion)  ┐
//!                                            └─► Link to a peer (reply)    ├─► WriteOp / ReadOp ──► Reply
//!                                            deadlines, swept              ┘
//! ```
//!
//! A lane belongs to one runtime: a request lives and dies on the lane of its connection. There is no task, timer or
//! channel per operation; what is under way is an entry of the lane's slab, found again by the id that replies and
//! completions carry. Ids carry a generation, so that a late reply never meets another operation.
//!
//! **Invariants:** once a mutation was handed to any replica the operation owns it, whatever becomes of the caller (B073)
//! · every operation is answered once, by its deadline · an error after that point says UNKNOWN.

mod admission;
mod again;
mod counting;
mod early;
mod failure;
mod forward;
mod guardrails;
mod haste;
mod hinted;
mod naming;
mod ops;
mod pipe;
mod read;
mod request;
mod round;
mod served;
#[cfg(test)]
mod tests;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use trefoil::coordinator::{Distance, ReplicaMask, bit};
use trefoil::metadata::ClusterState;
use trefoil::model::{Identity, Keyspace, KeyspaceId, NodeId, ReadCommand, Stamp, Table, Target, Vnode};
use trefoil::ring::{RegionNumber, Replicas};
use trefoil_proto::v1;
use trefoil_proto::v1::pipe_operation::Op as Operation;

use crate::backup::Archive;
use crate::clock;
use crate::hints::Hints;
use crate::peers::{self, Link, LinkEvents, Peers};
use crate::replica::{Completion, Replica};
use crate::replication::Replication;

pub use admission::Admission;
pub use counting::CounterTurns;
pub use guardrails::{Guardrail, Guardrails};
pub use hinted::LanePostman;
pub use naming::{Naming, NoStamp};
pub use pipe::{AnswerQueue, Answers};
pub use request::{Kind, Reply};

use early::Early;
use haste::Haste;
use ops::Ops;
use request::Request;

/// Limits of what one request may ask, from the configuration.
#[derive(Debug, Clone)]
pub struct Limits {
    /// For requests that bring no deadline.
    pub timeout_default: Duration,
    /// No request takes longer, whatever it asks.
    pub timeout_max: Duration,
    /// Rows of a page that names no number.
    pub page_rows_default: u32,
    /// Bytes of a page that names no number, and the most one may ask.
    pub page_bytes_default: u32,
    /// Largest mutation of one partition, encoded.
    pub mutation_bytes_max: usize,
}

/// What all lanes of a node share.
pub struct Shared {
    /// Which node of which cluster.
    pub identity: Identity,
    /// The metadata that requests are served by: its tables are in the store.
    pub cluster: ArcSwap<ClusterState>,
    /// The other nodes.
    pub peers: Arc<Peers>,
    /// The node's own data.
    pub replica: Arc<Replica>,
    /// Names and stamps.
    pub naming: Naming,
    /// Who has what.
    pub replication: Arc<Replication>,
    /// What is in flight.
    pub admission: Arc<Admission>,
    /// What one request may ask.
    pub limits: Limits,
    /// What requests are held against.
    pub guardrails: Guardrails,
    /// What others have missed.
    pub hints: Arc<Hints>,
    /// Who adds to which counters.
    pub counters: CounterTurns,
    /// What goes to the backups; none: nothing does.
    pub archive: Option<Arc<Archive>>,
    /// The start stamp of this run.
    pub incarnation: u64,
}

/// One runtime's share of the coordination.
pub struct Lane {
    number: usize,
    shared: Arc<Shared>,
    ops: Mutex<Ops>,
    early: Mutex<Early>,
    links: RwLock<BTreeMap<NodeId, Arc<Link>>>,
    haste: Mutex<Haste>,
}

/// A table with everything that routing a request to it needs.
struct Place {
    state: Arc<ClusterState>,
    keyspace: Arc<Keyspace>,
    table: Arc<Table>,
}

impl Shared {
    /// This node as it greets others.
    pub fn hello(&self) -> v1::Hello {
        v1::Hello {
            protocol_min: peers::PROTOCOL_MIN,
            protocol_max: peers::PROTOCOL_MAX,
            cluster_id: Bytes::copy_from_slice(self.identity.cluster.as_bytes()),
            node_id: self.identity.node.0,
            incarnation: self.incarnation,
            epoch: Some(peers::epoch_to_proto(self.cluster.load().epoch())),
            clock_us: clock::wall_us(),
        }
    }

    /// Why nothing can be written to the disk at present, if that is so. Healed without a restart.
    pub fn storage_failure(&self) -> Option<String> {
        self.replica.storage_failure().map(|error| error.to_string()).or_else(|| self.naming.obstacle())
    }

    fn alive_mask(&self, replicas: &Replicas) -> ReplicaMask {
        let alive = self.peers.alive();
        let live = replicas.nodes.iter().enumerate().filter(|(_, replica)| alive.contains(&replica.node));
        live.fold(0, |mask, (at, _)| mask | bit(at))
    }

    /// Whether this node names mutations of these replicas: one that is none of them does not, nor one whose clock is off.
    fn may_coordinate(&self, keyspace: KeyspaceId, replicas: &Replicas) -> bool {
        replicas.contains(self.identity.node)
            && self.peers.own_clock_off().is_none()
            && self.replication.is_whole((keyspace, replicas.vnode))
    }

    /// What all replicas of everything that a read asks for have had for a while.
    fn known_through(&self, command: &ReadCommand) -> Stamp {
        let state = self.cluster.load();
        let Some(table) = state.table(command.table) else { return Stamp::default() };
        let bits = state.ring().vnode_bits();
        let vnodes = match &command.target {
            Target::Partition(key) => bits.vnode(key.token()).0..=bits.vnode(key.token()).0,
            Target::Scan(tokens) => {
                let first = tokens.after.map_or(0, |after| bits.vnode(after).0);
                first..=tokens.up_to.map_or(bits.count() - 1, |up_to| bits.vnode(up_to).0)
            }
        };
        let through = |vnode: u32| self.replication.known_through((table.keyspace, Vnode(vnode)));
        vnodes.map(through).min().unwrap_or_default()
    }

    fn own_region(&self, state: &ClusterState) -> RegionNumber {
        // A node that is not in the ring holds nothing and is local to nothing.
        state.ring().region_of(self.identity.node).unwrap_or(RegionNumber(u16::MAX))
    }

    fn distances(&self, state: &ClusterState, replicas: &Replicas) -> Vec<Distance> {
        let own = state.ring().node(self.identity.node).map(|node| &node.zone);
        let distance = |id: NodeId| match (own, state.ring().node(id).map(|node| &node.zone)) {
            _ if id == self.identity.node => Distance::Own,
            (Some(own), Some(zone)) if own == zone => Distance::Zone,
            (Some(own), Some(zone)) if own.region == zone.region => Distance::Region,
            _ => Distance::Remote,
        };
        replicas.nodes.iter().map(|replica| distance(replica.node)).collect()
    }
}

impl Lane {
    /// A lane with nothing under way and no links yet.
    pub fn new(number: usize, shared: Arc<Shared>) -> Arc<Lane> {
        Arc::new(Lane {
            number,
            shared,
            ops: Mutex::default(),
            early: Mutex::default(),
            links: RwLock::default(),
            haste: Mutex::default(),
        })
    }

    /// What all lanes share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Begins an operation of a client; the answer goes to `reply`. Never blocks.
    pub fn begin(self: &Arc<Self>, operation: Operation, timeout: Option<Duration>, reply: Reply) {
        let limits = &self.shared.limits;
        let timeout = timeout.unwrap_or(limits.timeout_default).min(limits.timeout_max);
        let deadline = clock::after(timeout);
        if timeout.is_zero() {
            return Request::new(Kind::of(&operation), reply, deadline, Bytes::new(), None).fail(failure::no_time());
        }
        match operation {
            Operation::Mutate(request) => self.mutate(request, deadline, reply, 0),
            Operation::Batch(request) => self.batch(request, deadline, reply),
            Operation::Read(request) => self.read(request, deadline, reply),
            Operation::Increment(request) => self.increment(request, deadline, reply, 0),
        }
    }

    /// Takes in what became of work of the own replica.
    pub fn complete(self: &Arc<Self>, completions: Vec<Completion>) {
        for completion in completions {
            self.on_completion(completion);
        }
    }

    /// Answers what has passed its deadline, and takes up what waited for metadata; to be called a hundred times a second.
    pub fn sweep(self: &Arc<Self>) {
        self.serve_early();
        let due = self.ops.lock().due(clock::now());
        for id in due {
            self.expire(id);
        }
    }

    /// Whether no peer waits for something that the own replica was asked to do.
    pub fn serves_nobody(&self) -> bool {
        self.ops.lock().serves_nobody()
    }

    /// The members that this lane is linked to.
    pub fn linked(&self) -> BTreeSet<NodeId> {
        self.links.read().keys().copied().collect()
    }

    /// Adds a link.
    pub fn add_link(&self, link: Arc<Link>) {
        self.links.write().insert(link.node, link);
    }

    /// Tells all peers at once that this node is there, and its metadata epoch.
    pub fn ping_all(&self) {
        let epoch = Some(peers::epoch_to_proto(self.shared.cluster.load().epoch()));
        for link in self.links.read().values() {
            link.ping(epoch);
        }
    }

    /// Tells a peer what this node has; whether it is linked.
    pub fn report(&self, node: NodeId, report: Bytes) -> bool {
        self.link(node).is_some_and(|link| link.report(report))
    }

    fn link(&self, node: NodeId) -> Option<Arc<Link>> {
        self.links.read().get(&node).cloned()
    }

    /// The table that a request names.
    fn place(&self, reference: Option<&v1::TableRef>) -> Result<Place, v1::Error> {
        let Some(reference) = reference else {
            return Err(v1::Error::invalid(v1::InvalidDetail::new("the request names no table")));
        };
        let state = self.shared.cluster.load_full();
        let not_found = |what: &str| {
            let invalid = v1::InvalidDetail::new(what).table(&reference.keyspace, &reference.name);
            v1::Error::not_found(invalid)
        };
        let keyspace =
            state.keyspace_named(&reference.keyspace).ok_or_else(|| not_found("there is no such keyspace"))?;
        let table = state
            .table_named(&reference.keyspace, &reference.name)
            .ok_or_else(|| not_found("there is no such table"))?;
        if !trefoil_proto::convert::schema::fits(reference, table) {
            return Err(v1::Error::schema_mismatch(v1::SchemaMismatchDetail {
                table_id: trefoil_proto::convert::schema::table_id(table.id),
                version: table.version,
                epoch: Some(peers::epoch_to_proto(state.epoch())),
            }));
        }
        if let Some(restore) = state.restore_of(table.id) {
            return Err(failure::under_restore(reference, restore));
        }
        let (keyspace, table) = (keyspace.clone(), table.clone());
        Ok(Place { state, keyspace, table })
    }
}

impl LinkEvents for LaneHandle {
    fn replies(&self, peer: NodeId, replies: Vec<v1::PeerReply>) {
        for reply in replies {
            self.0.on_reply(peer, reply);
        }
    }

    fn lost(&self, peer: NodeId) {
        self.0.on_lost(peer);
    }

    fn hello(&self) -> v1::Hello {
        self.0.shared.hello()
    }
}

/// A lane as its links see it.
pub struct LaneHandle(pub Arc<Lane>);
