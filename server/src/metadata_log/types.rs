//! What the Raft library is told about our log.

use std::fmt;

use bytes::Bytes;
use trefoil::metadata::Verdict;
use trefoil::model::NodeId;

openraft::declare_raft_types!(
    /// Opaque entries in, verdicts out; nodes are bare numbers, a snapshot is the bytes of a cluster state.
    pub Types:
        D = Proposal,
        R = Answer,
        NodeId = VoterId,
        Node = openraft::EmptyNode,
        Entry = openraft::Entry<Types>,
        SnapshotData = Bytes,
        AsyncRuntime = openraft::TokioRuntime,
);

/// A node's number in the form that Raft wants: with a default, which is no node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VoterId(pub u32);

impl From<NodeId> for VoterId {
    fn from(id: NodeId) -> Self {
        VoterId(id.0)
    }
}

impl From<VoterId> for NodeId {
    fn from(id: VoterId) -> Self {
        NodeId(id.0)
    }
}

impl fmt::Display for VoterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        NodeId::from(*self).fmt(f)
    }
}

/// An encoded metadata entry. The log does not look inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal(pub Bytes);

/// What applying an entry of the log came to; nothing for those that Raft writes for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer(pub Option<Verdict>);

pub(super) type LogId = openraft::LogId<VoterId>;
pub(super) type Vote = openraft::Vote<VoterId>;
pub(super) type Membership = openraft::Membership<VoterId, openraft::EmptyNode>;
pub(super) type StoredMembership = openraft::StoredMembership<VoterId, openraft::EmptyNode>;
pub(super) type SnapshotMeta = openraft::SnapshotMeta<VoterId, openraft::EmptyNode>;
pub(super) type Snapshot = openraft::Snapshot<Types>;
pub(super) type Entry = openraft::Entry<Types>;
pub(super) type StorageError = openraft::StorageError<VoterId>;
pub(super) type Raft = openraft::Raft<Types>;
