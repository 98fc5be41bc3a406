//! How a node finds out who it is.
//!
//! ```text
//!  directory holds a state ──────────────────────────────► that is who it is, if the configuration agrees
//!  empty: ask every initial member, again and again
//!     one has a state that lists this address ───────────► take number and state from it
//!     all are empty, all list the same members, and
//!        this node is the first of them ─────────────────► decide: new cluster id, members numbered in order
//!        another is the first ───────────────────────────► ask again, it will decide
//!     one lists other members, or refuses ───────────────► stop, saying why
//!  then: say in the log that this node has started, and wait until that is decided
//! ```
//!
//! Only the first member ever decides, and only its durable state counts: crash it before, and all are empty as if nothing
//! had been; crash it after, and the others wait for it, or take the state from each other. A node that has once started
//! never gets its number again for an empty directory, because it would vote twice and lack what it acknowledged.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use trefoil::codec::varint::{Reader, put_bytes, put_varint};
use trefoil::metadata::{Birth, ClusterState, Entry, Epoch, Member, Refusal};
use trefoil::model::{NodeId, VnodeBits};
use trefoil::ring::{Node, Zone};
use trefoil::vfs::Vfs;
use trefoil::{Error, Result};
use trefoil_proto::v1::CallKind;
use uuid::Uuid;

use crate::metadata_log::{Files, MetadataLog, ProposeError, RaftLog, Timing};
use crate::peer_rpc::{CallError, PeerRpc};

#[cfg(test)]
mod tests;

const FORMAT_VERSION: u8 = 1;
/// How long a member may take to say who it is.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one attempt to say that this node has started may take.
const STARTED_TIMEOUT: Duration = Duration::from_secs(5);
/// Rounds between two lines in the log about who is missing.
const ROUNDS_BETWEEN_REPORTS: u64 = 20;

/// What the configuration says about this node and its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BirthConfig {
    /// The cluster's name.
    pub cluster: String,
    /// The number of vnodes, if the cluster is not born yet.
    pub vnode_bits: VnodeBits,
    /// `host:port` by which other nodes reach this one, as listed.
    pub peer_address: String,
    /// `host:port` by which clients reach this one.
    pub client_address: String,
    /// Where this node stands.
    pub zone: Zone,
    /// All nodes of the cluster at its birth, the same list in the same order on each.
    pub initial_members: Vec<InitialMember>,
}

/// A line of `cluster.initial_members`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialMember {
    /// `host:port` by which other nodes reach it.
    pub address: String,
    /// Where it stands.
    pub zone: Zone,
}

/// Why a node does not start. None of it heals by waiting.
#[derive(Debug, thiserror::Error)]
pub enum BirthError {
    /// This node is not on its own list.
    #[error(
        "{address} in {zone} is not an initial member of cluster {cluster}; adding nodes is not available yet. Check \
         cluster.initial_members: {found}"
    )]
    NotListed {
        /// This node's address.
        address: String,
        /// This node's zone.
        zone: Zone,
        /// The cluster.
        cluster: String,
        /// What the list says instead.
        found: String,
    },
    /// Another member was given another list.
    #[error("{address} was configured differently: {difference}. Every initial member needs the same list")]
    Different {
        /// Who.
        address: String,
        /// What differs first.
        difference: String,
    },
    /// A node of the cluster does not let this one in.
    #[error("{address} refuses this node: {reason}")]
    Turned {
        /// Who.
        address: String,
        /// Why.
        reason: String,
    },
    /// The members contradict each other.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The directory is not to be used.
    #[error(transparent)]
    Core(#[from] Error),
}

/// Answers other nodes about birth and metadata, from before this node knows who it is until it stops.
pub struct Desk {
    config: BirthConfig,
    /// Set once the directory has been found empty: until then this node says nothing about itself.
    empty: OnceLock<()>,
    /// The first member that asked with another list, and how it differs.
    different: OnceLock<(String, String)>,
    log: OnceLock<Arc<RaftLog>>,
}

impl Desk {
    /// A desk that does not know yet whether the directory is empty.
    pub fn new(config: BirthConfig) -> Arc<Desk> {
        Arc::new(Desk { config, empty: OnceLock::new(), different: OnceLock::new(), log: OnceLock::new() })
    }

    /// The log, from the moment on that this node knows who it is: before its peers know that it has started.
    pub fn log(&self) -> Option<&Arc<RaftLog>> {
        self.log.get()
    }

    /// Answers a question of another node.
    pub async fn handle(&self, kind: CallKind, body: Bytes) -> Result<Bytes, CallError> {
        match (self.log.get(), kind) {
            (Some(log), CallKind::Birth) => Ok(self.introduce(&log.state(), body)?.encode()),
            (Some(log), _) => log.handle(kind, body).await,
            (None, CallKind::Birth) if self.empty.get().is_some() => {
                let theirs = Hello::decode(body).map_err(|error| CallError::Refused(error.to_string()))?;
                if let Some(difference) = self.hello().difference(&theirs) {
                    self.different.get_or_init(|| (theirs.peer_address, difference));
                }
                Ok(Introduction::Empty(self.hello()).encode())
            }
            (None, _) => Err(CallError::Refused("this node is starting".into())),
        }
    }

    fn hello(&self) -> Hello {
        Hello {
            cluster: self.config.cluster.clone(),
            vnode_bits: self.config.vnode_bits.bits(),
            peer_address: self.config.peer_address.clone(),
            client_address: self.config.client_address.clone(),
            members: self.config.initial_members.clone(),
        }
    }

    /// The answer of a node that has a state to one that is empty.
    fn introduce(&self, state: &ClusterState, body: Bytes) -> Result<Introduction, CallError> {
        let hello = Hello::decode(body).map_err(|error| CallError::Refused(error.to_string()))?;
        let refuse = |reason: String| Ok(Introduction::Refused(reason));
        if hello.cluster != state.name() {
            return refuse(format!("it belongs to cluster {}, not to {}", state.name(), hello.cluster));
        }
        let Some(node) = state.ring().nodes().find(|node| node.peer_address == hello.peer_address) else {
            return refuse(format!(
                "{} is not an initial member of cluster {}; adding nodes is not available yet",
                hello.peer_address,
                state.name()
            ));
        };
        if let Some(difference) = first_difference(&members_of(state), &hello.members) {
            return refuse(format!("cluster.initial_members: {difference}"));
        }
        if state.has_started(node.id) {
            return refuse(format!(
                "{} at {} has been part of cluster {} before and its data directory is empty now; check data_dir, or \
                 restore it: replacing a lost node is not available yet",
                node.id,
                hello.peer_address,
                state.name()
            ));
        }
        Ok(Introduction::Born(Box::new(state.clone())))
    }
}

/// Finds out who this node is, waits for the birth of its cluster if need be, and opens the metadata log, which `desk`
/// serves from then on. Everything runs on the current runtime.
pub async fn enter(
    desk: &Desk,
    vfs: Arc<dyn Vfs>,
    data_directory: &std::path::Path,
    rpc: Arc<dyn PeerRpc>,
    timing: Timing,
) -> Result<Arc<RaftLog>, BirthError> {
    let files = Files::open(vfs, data_directory)?;
    let saved = match files.read_state()? {
        Some(saved) => saved,
        None => {
            check_listed(&desk.config)?;
            desk.empty.get_or_init(|| ());
            let (id, state) = be_born(desk, &*rpc, timing).await?;
            files.begin(id, &state)?;
            files.read_state()?.ok_or_else(|| Error::invalid("metadata/state", "it vanished after it was written"))?
        }
    };
    check_identity(&desk.config, saved.node, &saved.state)?;
    let is_newborn = saved.state.epoch() == Epoch::default();
    let log = RaftLog::open(files, saved, rpc, timing).await?;
    let log = Arc::clone(desk.log.get_or_init(|| log));
    let campaign = async {
        if is_newborn && is_first(&desk.config) {
            log.campaign(timing.birth_retry, timing.election_max).await;
        }
    };
    let (started, ()) = tokio::join!(say_started(&log), campaign);
    started?;
    Ok(log)
}

fn check_listed(config: &BirthConfig) -> Result<(), BirthError> {
    let own = config.initial_members.iter().find(|member| member.address == config.peer_address);
    let found = match own {
        Some(member) if member.zone == config.zone => return Ok(()),
        Some(member) => format!("it is listed there in {}", member.zone),
        None => {
            let listed: Vec<&str> = config.initial_members.iter().map(|member| member.address.as_str()).collect();
            format!("it lists {}", listed.join(", "))
        }
    };
    let (address, zone, cluster) = (config.peer_address.clone(), config.zone.clone(), config.cluster.clone());
    Err(BirthError::NotListed { address, zone, cluster, found })
}

/// A directory belongs to one node at one place: what the configuration says must be what the log says.
fn check_identity(config: &BirthConfig, id: NodeId, state: &ClusterState) -> Result<(), Error> {
    let Some(Node { zone, peer_address, client_address, .. }) = state.ring().node(id) else {
        return Err(Error::invalid(format!("node {id}"), "the cluster does not know it"));
    };
    let known = [
        ("cluster", state.name().to_string(), config.cluster.clone()),
        ("zone", zone.to_string(), config.zone.to_string()),
        ("peer address", peer_address.clone(), config.peer_address.clone()),
        ("client address", client_address.clone(), config.client_address.clone()),
        (
            "cluster's number of vnodes",
            state.ring().vnode_bits().count().to_string(),
            config.vnode_bits.count().to_string(),
        ),
    ];
    for (what, logged, configured) in known {
        if logged != configured {
            let reason = format!(
                "its {what} is {logged} since birth, the configuration says {configured}; check data_dir and the \
                 configuration (changing it is not available yet)"
            );
            return Err(Error::invalid(format!("node {id} of cluster {}", state.name()), reason));
        }
    }
    match first_difference(&config.initial_members, &members_of(state)) {
        Some(difference) => {
            let reason = format!("{difference} (\"there\" is the cluster as it began)");
            Err(Error::invalid("cluster.initial_members", reason))
        }
        None => Ok(()),
    }
}

/// The list that a cluster began with: as long as no node can join, that of its nodes.
fn members_of(state: &ClusterState) -> Vec<InitialMember> {
    let member = |node: &Node| InitialMember { address: node.peer_address.clone(), zone: node.zone.clone() };
    state.ring().nodes().map(member).collect()
}

/// Where two lists of initial members part.
fn first_difference(here: &[InitialMember], there: &[InitialMember]) -> Option<String> {
    let shown = |member: Option<&InitialMember>| {
        member.map_or("missing".into(), |member| format!("{} in {}", member.address, member.zone))
    };
    (0..here.len().max(there.len())).find_map(|at| {
        let (here, there) = (here.get(at), there.get(at));
        let place = at + 1;
        (here != there).then(|| format!("initial member {place} is {} there, {} here", shown(there), shown(here)))
    })
}

/// Waits until this node has a number: decided by itself if it is the first member, else taken from another.
async fn be_born(desk: &Desk, rpc: &dyn PeerRpc, timing: Timing) -> Result<(NodeId, ClusterState), BirthError> {
    let mut round = 0;
    loop {
        let asked = ask_all(desk, rpc).await?;
        if let Some((address, difference)) = desk.different.get().cloned() {
            return Err(BirthError::Different { address, difference });
        }
        match asked {
            Round::Born(state) => return Ok((number_of(&desk.config, &state)?, *state)),
            Round::AllEmpty(hellos) if is_first(&desk.config) => {
                let state = decide(&desk.config, &hellos)?;
                tracing::info!(cluster = %state.cluster(), name = state.name(), "a cluster is born");
                return Ok((number_of(&desk.config, &state)?, state));
            }
            Round::AllEmpty(_) => {}
            Round::Waiting(missing) => {
                if round % ROUNDS_BETWEEN_REPORTS == 0 {
                    tracing::info!(missing = missing.join("; "), "waiting for all initial members to answer");
                }
            }
        }
        round += 1;
        tokio::time::sleep(timing.birth_retry).await;
    }
}

fn is_first(config: &BirthConfig) -> bool {
    config.initial_members.first().is_some_and(|first| first.address == config.peer_address)
}

/// What a round of questions to all other members came to.
enum Round {
    Born(Box<ClusterState>),
    AllEmpty(Vec<Hello>),
    Waiting(Vec<String>),
}

async fn ask_all(desk: &Desk, rpc: &dyn PeerRpc) -> Result<Round, BirthError> {
    let own = desk.hello();
    let question = own.encode();
    let others = own.members.iter().map(|member| member.address.as_str()).filter(|at| *at != own.peer_address);
    let asked = others.map(|address| {
        let call = rpc.call_address(address, CallKind::Birth, question.clone(), ANSWER_TIMEOUT);
        async move { (address, call.await) }
    });
    let mut hellos = vec![own.clone()];
    let mut missing = Vec::new();
    for (address, answer) in futures_util::future::join_all(asked).await {
        let introduction = match answer.map(Introduction::decode) {
            Ok(Ok(introduction)) => introduction,
            Ok(Err(garbled)) => {
                missing.push(format!("{address} gives an answer that is not understood: {garbled}"));
                continue;
            }
            Err(error) => {
                missing.push(format!("{address} {error}"));
                continue;
            }
        };
        match introduction {
            Introduction::Born(state) => return Ok(Round::Born(state)),
            Introduction::Refused(reason) => return Err(BirthError::Turned { address: address.into(), reason }),
            Introduction::Empty(hello) => match own.difference(&hello) {
                Some(difference) => return Err(BirthError::Different { address: address.into(), difference }),
                None => hellos.push(hello),
            },
        }
    }
    Ok(if missing.is_empty() { Round::AllEmpty(hellos) } else { Round::Waiting(missing) })
}

fn number_of(config: &BirthConfig, state: &ClusterState) -> Result<NodeId, Error> {
    let own = state.ring().nodes().find(|node| node.peer_address == config.peer_address);
    own.map(|node| node.id).ok_or_else(|| Error::invalid(&config.peer_address, "it is not a node of the cluster"))
}

/// The first state of a new cluster.
fn decide(config: &BirthConfig, hellos: &[Hello]) -> Result<ClusterState, Refusal> {
    let client_address = |address: &str| {
        let hello = hellos.iter().find(|hello| hello.peer_address == address);
        hello.map(|hello| hello.client_address.clone()).unwrap_or_default()
    };
    let members = config.initial_members.iter().map(|member| Member {
        zone: member.zone.clone(),
        peer_address: member.address.clone(),
        client_address: client_address(&member.address),
    });
    trefoil::metadata::birth(&Birth {
        cluster: Uuid::new_v4(),
        name: config.cluster.clone(),
        vnode_bits: config.vnode_bits,
        members: members.collect(),
    })
}

/// Has it written in the log that this node has started, before it does anything that it could be missed for.
async fn say_started(log: &RaftLog) -> Result<(), BirthError> {
    let mut seen = log.watch();
    while !log.state().has_started(log.me()) {
        match log.propose(Entry::NodeStarted(log.me()), STARTED_TIMEOUT).await {
            Ok(_) => {}
            Err(ProposeError::Refused(refusal)) => return Err(refusal.into()),
            Err(error) => tracing::info!(%error, "waiting for the metadata log"),
        }
        drop(tokio::time::timeout(STARTED_TIMEOUT, seen.wait_for(|_| log.state().has_started(log.me()))).await);
    }
    Ok(())
}

/// What a node without a state says of itself.
///
/// `version u8 | cluster | vnode bits u8 | peer address | client address | count varint | (address, region, zone) ...`
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hello {
    cluster: String,
    vnode_bits: u8,
    peer_address: String,
    client_address: String,
    members: Vec<InitialMember>,
}

impl Hello {
    fn encode(&self) -> Bytes {
        let mut out = vec![FORMAT_VERSION];
        put_bytes(&mut out, self.cluster.as_bytes());
        out.push(self.vnode_bits);
        put_bytes(&mut out, self.peer_address.as_bytes());
        put_bytes(&mut out, self.client_address.as_bytes());
        put_varint(&mut out, self.members.len() as u64);
        for InitialMember { address, zone } in &self.members {
            put_bytes(&mut out, address.as_bytes());
            put_bytes(&mut out, zone.region.as_bytes());
            put_bytes(&mut out, zone.name.as_bytes());
        }
        out.into()
    }

    fn decode(bytes: Bytes) -> Result<Hello> {
        let mut reader = Reader::new("greeting of an empty node", bytes);
        let version = reader.u8()?;
        if version != FORMAT_VERSION {
            return Err(reader.corrupt(format!("version {version}, this build reads {FORMAT_VERSION}")).into());
        }
        let (cluster, vnode_bits) = (reader.text()?, reader.u8()?);
        let (peer_address, client_address) = (reader.text()?, reader.text()?);
        let count = reader.varint()?;
        if count > reader.remaining() as u64 {
            return Err(reader.corrupt(format!("{count} members in {} bytes", reader.remaining())).into());
        }
        let member = |reader: &mut Reader| {
            let address = reader.text()?;
            Ok(InitialMember { address, zone: Zone { region: reader.text()?, name: reader.text()? } })
        };
        let members: Result<_> = (0..count).map(|_| member(&mut reader)).collect();
        let hello = Hello { cluster, vnode_bits, peer_address, client_address, members: members? };
        reader.end()?;
        Ok(hello)
    }

    /// The first thing that `other` was told differently.
    fn difference(&self, other: &Hello) -> Option<String> {
        if self.cluster != other.cluster {
            return Some(format!("cluster.name is {} there, {} here", other.cluster, self.cluster));
        }
        if self.vnode_bits != other.vnode_bits {
            return Some(format!("it makes 2^{} vnodes, this node 2^{}", other.vnode_bits, self.vnode_bits));
        }
        first_difference(&self.members, &other.members)
    }
}

/// The answer to a [`Hello`]: `1`, hello | `2`, state | `3`, text
enum Introduction {
    Empty(Hello),
    Born(Box<ClusterState>),
    Refused(String),
}

impl Introduction {
    fn encode(&self) -> Bytes {
        let (kind, body) = match self {
            Introduction::Empty(hello) => (1, hello.encode()),
            Introduction::Born(state) => (2, state.encode().into()),
            Introduction::Refused(reason) => (3, Bytes::copy_from_slice(reason.as_bytes())),
        };
        [&[kind][..], &body].concat().into()
    }

    fn decode(bytes: Bytes) -> Result<Introduction> {
        let mut reader = Reader::new("answer of a member", bytes);
        Ok(match reader.u8()? {
            1 => Introduction::Empty(Hello::decode(reader.rest())?),
            2 => Introduction::Born(Box::new(ClusterState::decode(reader.rest())?)),
            3 => Introduction::Refused(String::from_utf8_lossy(&reader.rest()).into_owned()),
            other => return Err(reader.corrupt(format!("no answer has kind {other}")).into()),
        })
    }
}
