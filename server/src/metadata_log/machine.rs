//! Raft's state machine: the cluster state, durable whenever Raft is told that an entry was applied.
//!
//! Since `state` on disk is as new as what was applied, a snapshot is composed from memory whenever one is asked for, and
//! has no file of its own.

use std::sync::Arc;

use bytes::Bytes;
use openraft::storage::RaftStateMachine;
use openraft::{AnyError, EntryPayload, ErrorSubject, ErrorVerb, OptionalSend, RaftSnapshotBuilder, StorageIOError};
use trefoil::metadata::ClusterState;

use super::files::Position;
use super::held::Held;
use super::log_store::blocking;
use super::types::{Answer, Entry, LogId, Proposal, Snapshot, SnapshotMeta, StorageError, StoredMembership, Types};

pub(super) struct Machine {
    held: Arc<Held>,
    position: Position,
}

impl Machine {
    pub(super) fn new(held: Arc<Held>, position: Position) -> Machine {
        Machine { held, position }
    }
}

/// A snapshot at a position.
pub(super) struct Builder {
    held: Arc<Held>,
    position: Position,
}

impl Builder {
    fn build(&self) -> Snapshot {
        let meta = SnapshotMeta {
            last_log_id: self.position.applied,
            last_membership: self.position.membership.clone(),
            snapshot_id: self.position.applied.map_or(0, |applied| applied.index).to_string(),
        };
        Snapshot { meta, snapshot: Box::new(self.held.state().encode().into()) }
    }
}

impl RaftSnapshotBuilder<Types> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        Ok(self.build())
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        Ok((self.position.applied, self.position.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Answer>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut advance = self.held.advance();
        let mut position = self.position.clone();
        let mut answers = Vec::new();
        for Entry { log_id, payload } in entries {
            position.applied = Some(log_id);
            let verdict = match payload {
                EntryPayload::Blank => None,
                EntryPayload::Membership(membership) => {
                    position.membership = StoredMembership::new(Some(log_id), membership);
                    None
                }
                EntryPayload::Normal(Proposal(bytes)) => advance
                    .apply(log_id.index, bytes)
                    .map_err(|error| StorageIOError::apply(log_id, AnyError::new(&error)))?,
            };
            answers.push(Answer(verdict));
        }
        let (held, at) = (Arc::clone(&self.held), position.clone());
        blocking(ErrorSubject::StateMachine, ErrorVerb::Write, move || held.publish(advance, &at)).await?;
        self.position = position;
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder { held: Arc::clone(&self.held), position: self.position.clone() }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Bytes>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Box<Bytes>) -> Result<(), StorageError> {
        let position = Position { applied: meta.last_log_id, membership: meta.last_membership.clone() };
        let (held, at) = (Arc::clone(&self.held), position.clone());
        let subject = ErrorSubject::Snapshot(Some(meta.signature()));
        blocking(subject, ErrorVerb::Write, move || held.replace(ClusterState::decode(*snapshot)?, &at)).await?;
        self.position = position;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        if self.position.applied.is_none() {
            return Ok(None);
        }
        Ok(Some(self.get_snapshot_builder().await.build()))
    }
}
