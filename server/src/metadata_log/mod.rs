//! The metadata log: one order of entries for the whole cluster, and the state they amount to on this node.
//!
//! ```text
//!  any node          leader                  voters                          every other node
//!  propose ─Propose─► client_write ─Append─► log (fsync), state (fsync)      heard(peer, epoch) ─Metadata─► entries
//!     ◄── verdict ──────┘ once a quorum has it                                 or a whole state, from any peer
//! ```
//!
//! Voters are one node per zone up to five; they keep a Raft log. Every node, voter or not, keeps the latest state it
//! knows on disk and serves from it without asking anyone.
//!
//! Invariants: a state is visible only once it is durable here; its epoch only rises; a voter answers for a vote or an
//! entry only once it is durable; nothing but [`MetadataLog::propose`] waits for a quorum.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use trefoil::metadata::{Applied, ClusterState, Entry, Epoch, Refusal};
use trefoil::model::NodeId;
use trefoil_proto::v1::CallKind;

use crate::peer_rpc::CallError;

mod files;
mod held;
mod log_store;
mod machine;
mod network;
mod propose;
mod pull;
mod raft_log;
#[cfg(test)]
mod tests;
mod types;
mod voters;
mod wire;

pub(crate) use files::Files;
pub use raft_log::RaftLog;
pub use voters::voters;

/// Largest entry, in bytes.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// The log as the rest of the node sees it. Raft is behind it and nowhere else.
pub trait MetadataLog: Send + Sync {
    /// This node's number.
    fn me(&self) -> NodeId;

    /// The node that leads the log, as far as this node knows.
    fn leader(&self) -> Option<NodeId>;

    /// The latest state that is durable here.
    fn state(&self) -> Arc<ClusterState>;

    /// The epoch of the state, and every change of it.
    fn watch(&self) -> watch::Receiver<Epoch>;

    /// Puts an entry into the log, from any node, and waits until a quorum of the voters has it and, if time allows, until
    /// this node has applied it.
    fn propose(&self, entry: Entry, deadline: Duration) -> BoxFuture<'_, Result<Proposed, ProposeError>>;

    /// Tells the log that `peer` has been heard to be at `epoch`: if that is later than the state here, it is fetched.
    fn heard(&self, peer: NodeId, epoch: Epoch);

    /// Answers a question of another node.
    fn handle(&self, kind: CallKind, body: Bytes) -> BoxFuture<'_, Result<Bytes, CallError>>;

    /// Stops taking part. The state stays readable.
    fn shutdown(&self) -> BoxFuture<'_, ()>;
}

/// An entry that stands in the log and was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposed {
    /// The state that contains it.
    pub epoch: Epoch,
    /// Whether it changed anything.
    pub applied: Applied,
}

/// Why an entry had no effect, or may have had none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// It stands in the log and was refused. It will never have an effect.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It is not in the log and will not be.
    #[error(
        "the metadata log has no quorum of its {voters} voters, nothing was changed after {waited_ms} ms: {findings}"
    )]
    Unavailable {
        /// How many voters there are.
        voters: usize,
        /// How long it was tried, in milliseconds.
        waited_ms: u64,
        /// What was found at each voter.
        findings: String,
    },
    /// It may come into the log, or be in it already. Look at the schema before trying again.
    #[error("the entry was handed to {leader}, which did not say how it went: {reason}; it may have had its effect")]
    Unknown {
        /// Who has it.
        leader: NodeId,
        /// What happened.
        reason: String,
    },
    /// It can never be in the log.
    #[error("the entry has {bytes} bytes, at most {max} are possible", max = ENTRY_BYTES_MAX)]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// Intervals of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between two messages of the leader to a voter.
    pub heartbeat: Duration,
    /// Shortest silence of the leader after which a voter stands for election.
    pub election_min: Duration,
    /// Longest such silence.
    pub election_max: Duration,
    /// Between two questions of a node that does not vote whether there is news, if it hears of none.
    pub pull: Duration,
    /// Between two rounds of asking the other members before birth.
    pub birth_retry: Duration,
}

impl Default for Timing {
    /// Generous: a zone may be a continent away, and an election that nobody needed costs more than a late one.
    fn default() -> Self {
        Timing {
            heartbeat: Duration::from_millis(250),
            election_min: Duration::from_millis(1_500),
            election_max: Duration::from_millis(3_000),
            pull: Duration::from_secs(5),
            birth_retry: Duration::from_millis(250),
        }
    }
}
