//! Raft's messages to other voters, over [`PeerRpc`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{AnyError, EmptyNode, OptionalSend};
use trefoil::model::NodeId;
use trefoil_proto::v1::CallKind;

use super::types::{Snapshot, Types, Vote, VoterId};
use super::wire::{SnapshotMessage, Wire};
use crate::peer_rpc::{CallError, PeerRpc};

/// Makes a [`Voter`] for each target.
pub(super) struct Network(pub(super) Arc<dyn PeerRpc>);

/// The way to one voter.
pub(super) struct Voter {
    rpc: Arc<dyn PeerRpc>,
    target: NodeId,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Voter;

    async fn new_client(&mut self, target: VoterId, _node: &EmptyNode) -> Voter {
        Voter { rpc: Arc::clone(&self.0), target: target.into() }
    }
}

impl Voter {
    async fn ask<A: Wire>(&self, kind: CallKind, question: &impl Wire, timeout: Duration) -> Result<A, Unasked> {
        let answer = self.rpc.call(self.target, kind, question.encode(), timeout).await.map_err(Unasked::Call)?;
        A::decode(answer).map_err(Unasked::Garbled)
    }
}

/// Why there is no answer from a voter.
enum Unasked {
    Call(CallError),
    Garbled(trefoil::Error),
}

impl<E: std::error::Error> From<Unasked> for RPCError<VoterId, EmptyNode, E> {
    fn from(unasked: Unasked) -> Self {
        match unasked {
            Unasked::Call(error @ CallError::NotSent(_)) => RPCError::Unreachable(Unreachable::new(&error)),
            Unasked::Call(error) => RPCError::Network(NetworkError::new(&error)),
            Unasked::Garbled(error) => RPCError::Network(NetworkError::new(&error)),
        }
    }
}

type Failure = RPCError<VoterId, EmptyNode, RaftError<VoterId>>;

impl RaftNetwork<Types> for Voter {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<VoterId>, Failure> {
        Ok(self.ask(CallKind::RaftAppend, &rpc, option.hard_ttl()).await?)
    }

    async fn vote(&mut self, rpc: VoteRequest<VoterId>, option: RPCOption) -> Result<VoteResponse<VoterId>, Failure> {
        Ok(self.ask(CallKind::RaftVote, &rpc, option.hard_ttl()).await?)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<VoterId>, StreamingError<Types, Fatal<VoterId>>> {
        let message = SnapshotMessage { vote, snapshot };
        tokio::select! {
            closed = cancel => Err(closed.into()),
            answer = self.ask(CallKind::RaftSnapshot, &message, option.hard_ttl()) => match answer {
                Ok(answer) => Ok(answer),
                Err(Unasked::Call(error)) => Err(StreamingError::Network(NetworkError::new(&error))),
                Err(Unasked::Garbled(error)) => Err(StreamingError::Network(NetworkError::from(AnyError::new(&error)))),
            },
        }
    }
}
