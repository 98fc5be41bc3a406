//! [`MetadataLog`] on Raft: the parts put together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use openraft::error::{InitializeError, RaftError};
use openraft::{Config, EmptyNode, SnapshotPolicy};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use trefoil::metadata::{ClusterState, Entry, Epoch};
use trefoil::model::NodeId;
use trefoil::{Error, Result};
use trefoil_proto::v1::CallKind;

use super::files::{Files, Saved};
use super::held::Held;
use super::log_store::LogStore;
use super::machine::Machine;
use super::network::Network;
use super::types::{Raft, VoterId};
use super::wire::{SnapshotMessage, Wire};
use super::{MetadataLog, ProposeError, Proposed, Timing, propose, pull, voters};
use crate::peer_rpc::{CallError, PeerRpc};

/// The node that decides the birth of a cluster: the first of the initial members.
const FOUNDER: NodeId = NodeId(1);
/// Entries after which Raft may forget those that the state contains.
const SNAPSHOT_EVERY_ENTRIES: u64 = 500;
/// Entries that a voter keeps for voters that are a little behind.
const KEPT_ENTRIES: u64 = 200;
/// Peers that are heard of while a fetch is under way.
const HEARD_MAX: usize = 8;

/// This node's part in the metadata log.
pub struct RaftLog {
    held: Arc<Held>,
    rpc: Arc<dyn PeerRpc>,
    voters: BTreeSet<NodeId>,
    part: Part,
}

/// What a node does for the log.
enum Part {
    Voter { raft: Raft, files: Files },
    Follower { heard: mpsc::Sender<(NodeId, Epoch)>, task: JoinHandle<()> },
}

impl RaftLog {
    /// Stands for election until there is a leader, in the first term of a cluster: everybody waits for one, and nobody
    /// has heard of another. Waits longer from time to time, from `first` to `longest`.
    pub(crate) async fn campaign(&self, first: Duration, longest: Duration) {
        let Part::Voter { raft, .. } = &self.part else { return };
        let mut pause = first;
        while raft.metrics().borrow().current_leader.is_none() {
            // A refusal says that Raft has stopped: then nothing is left to be won.
            if raft.trigger().elect().await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Takes part as the directory says. Its tasks run on the current runtime.
    pub(crate) async fn open(
        files: Files,
        saved: Saved,
        rpc: Arc<dyn PeerRpc>,
        timing: Timing,
    ) -> Result<Arc<RaftLog>> {
        let voters = voters(saved.state.ring());
        let (held, position) = Held::new(files.clone(), saved);
        let part = if voters.contains(&held.me()) {
            let store = LogStore::open(files.clone())?;
            let machine = Machine::new(Arc::clone(&held), position);
            let config = Arc::new(raft_config(&held.state(), timing)?);
            let network = Network(Arc::clone(&rpc));
            let raft = Raft::new(held.me().into(), config, network, store, machine).await.map_err(not_started)?;
            if held.me() == FOUNDER {
                found(&raft, &voters).await?;
            }
            files.wait_for_room(true);
            Part::Voter { raft, files }
        } else {
            let (heard, news) = mpsc::channel(HEARD_MAX);
            let task = tokio::spawn(pull::follow(Arc::clone(&held), Arc::clone(&rpc), timing.pull, news));
            Part::Follower { heard, task }
        };
        Ok(Arc::new(RaftLog { held, rpc, voters, part }))
    }

    /// The latest epoch that any other member has, of those that answer within `patience`. If that is later than the state
    /// here, it is on its way.
    pub async fn furthest(&self, patience: Duration) -> Epoch {
        let (peer, epoch) = pull::furthest(&self.held, &*self.rpc, patience).await;
        self.hear(peer, epoch);
        epoch
    }

    pub(super) fn id(&self) -> NodeId {
        self.held.me()
    }

    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    pub(super) fn rpc(&self) -> &dyn PeerRpc {
        &*self.rpc
    }

    pub(super) fn voters(&self) -> &BTreeSet<NodeId> {
        &self.voters
    }

    pub(super) fn raft(&self) -> Option<&Raft> {
        match &self.part {
            Part::Voter { raft, .. } => Some(raft),
            Part::Follower { .. } => None,
        }
    }

    pub(super) fn hear(&self, peer: NodeId, epoch: Epoch) {
        if let Part::Follower { heard, .. } = &self.part
            && epoch > self.held.state().epoch()
        {
            // A full queue means that a fetch is under way, or about to be, which brings this news too.
            heard.try_send((peer, epoch)).ok();
        }
    }

    async fn answer(&self, kind: CallKind, body: Bytes) -> Result<Bytes, CallError> {
        let garbled = |error: Error| CallError::Refused(error.to_string());
        match kind {
            CallKind::Metadata => Ok(self.held.newer_than(pull::read_question(body).map_err(garbled)?).encode()),
            CallKind::Propose => {
                let (wait, entry) = propose::read_question(body).map_err(garbled)?;
                // What cannot be read must not get into the log: no node could apply it, now or ever.
                if !entry.is_empty() {
                    Entry::decode(entry.clone()).map_err(garbled)?;
                }
                Ok(self.propose_here(entry, wait).await.encode())
            }
            _ => self.answer_voter(kind, body).await,
        }
    }

    async fn answer_voter(&self, kind: CallKind, body: Bytes) -> Result<Bytes, CallError> {
        let garbled = |error: Error| CallError::Refused(error.to_string());
        let raft = self.raft().ok_or_else(|| CallError::Refused(format!("{} does not vote", self.id())))?;
        match kind {
            CallKind::RaftAppend => {
                let request = Wire::decode(body).map_err(garbled)?;
                Ok(raft.append_entries(request).await.map_err(refused)?.encode())
            }
            CallKind::RaftVote => {
                let request = Wire::decode(body).map_err(garbled)?;
                Ok(raft.vote(request).await.map_err(refused)?.encode())
            }
            CallKind::RaftSnapshot => {
                let SnapshotMessage { vote, snapshot } = Wire::decode(body).map_err(garbled)?;
                Ok(raft.install_full_snapshot(vote, snapshot).await.map_err(refused)?.encode())
            }
            _ => Err(CallError::Refused(format!("{} is not for the metadata log", kind.as_str_name()))),
        }
    }
}

fn refused(error: impl std::fmt::Display) -> CallError {
    CallError::Refused(error.to_string())
}

fn not_started(error: impl std::fmt::Display) -> Error {
    Error::invalid("metadata log", error.to_string())
}

/// Gives a new log its voters. Only ever done by the founder, so that no second log can begin beside the first.
async fn found(raft: &Raft, voters: &BTreeSet<NodeId>) -> Result<()> {
    let members: BTreeMap<VoterId, EmptyNode> = voters.iter().map(|id| (VoterId::from(*id), EmptyNode {})).collect();
    match raft.initialize(members).await {
        Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
        Err(error) => Err(not_started(error)),
    }
}

fn raft_config(state: &ClusterState, timing: Timing) -> Result<Config> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let config = Config {
        cluster_name: state.name().into(),
        heartbeat_interval: millis(timing.heartbeat),
        election_timeout_min: millis(timing.election_min),
        election_timeout_max: millis(timing.election_max),
        install_snapshot_timeout: 10_000,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_EVERY_ENTRIES),
        max_in_snapshot_log_to_keep: KEPT_ENTRIES,
        replication_lag_threshold: SNAPSHOT_EVERY_ENTRIES * 2,
        ..Config::default()
    };
    config.validate().map_err(not_started)
}

impl MetadataLog for RaftLog {
    fn me(&self) -> NodeId {
        self.id()
    }

    fn leader(&self) -> Option<NodeId> {
        match &self.part {
            Part::Voter { raft, .. } => raft.metrics().borrow().current_leader.map(NodeId::from),
            Part::Follower { .. } => None,
        }
    }

    fn state(&self) -> Arc<ClusterState> {
        self.held.state()
    }

    fn watch(&self) -> watch::Receiver<Epoch> {
        self.held.watch()
    }

    fn propose(&self, entry: Entry, deadline: Duration) -> BoxFuture<'_, Result<Proposed, ProposeError>> {
        async move { self.propose_anywhere(&entry, deadline).await }.boxed()
    }

    fn heard(&self, peer: NodeId, epoch: Epoch) {
        self.hear(peer, epoch);
    }

    fn handle(&self, kind: CallKind, body: Bytes) -> BoxFuture<'_, Result<Bytes, CallError>> {
        self.answer(kind, body).boxed()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        async move {
            match &self.part {
                Part::Voter { raft, files } => {
                    files.wait_for_room(false);
                    if let Err(error) = raft.shutdown().await {
                        tracing::warn!(%error, "the metadata log did not stop cleanly");
                    }
                }
                Part::Follower { task, .. } => task.abort(),
            }
        }
        .boxed()
    }
}
