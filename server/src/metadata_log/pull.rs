//! How nodes that do not vote follow: they fetch what they lack from any peer that has more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::mpsc;
use trefoil::codec::varint::{Reader, put_varint};
use trefoil::metadata::{ClusterState, Epoch};
use trefoil::model::NodeId;
use trefoil::{Error, Result};
use trefoil_proto::v1::CallKind;

use super::files::Position;
use super::held::{Held, News};
use crate::peer_rpc::PeerRpc;

/// How long a peer may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn question(after: Epoch) -> Bytes {
    let mut out = Vec::new();
    put_varint(&mut out, u64::from(after.generation));
    put_varint(&mut out, after.index);
    out.into()
}

pub(super) fn read_question(bytes: Bytes) -> Result<Epoch> {
    let mut reader = Reader::new("question for news", bytes);
    let after = Epoch { generation: reader.varint_u32()?, index: reader.varint()? };
    reader.end()?;
    Ok(after)
}

/// Fetches whenever a peer is said to have more, and from one peer after the other when nothing is heard.
pub(super) async fn follow(
    held: Arc<Held>,
    rpc: Arc<dyn PeerRpc>,
    interval: Duration,
    mut heard: mpsc::Receiver<(NodeId, Epoch)>,
) {
    let mut turn = 0;
    loop {
        let peer = match tokio::time::timeout(interval, heard.recv()).await {
            Ok(Some((_, epoch))) if epoch <= held.state().epoch() => continue,
            Ok(Some((peer, _))) => peer,
            Ok(None) => return,
            Err(_) => {
                turn += 1;
                match next_peer(&held, turn) {
                    Some(peer) => peer,
                    None => continue,
                }
            }
        };
        if let Err(reason) = fetch(&held, &*rpc, peer).await {
            tracing::debug!(%peer, reason, "no metadata fetched");
        }
    }
}

/// The latest epoch that any other member has, of those that answer within `patience`; the own one if none has a later.
pub(super) async fn furthest(held: &Held, rpc: &dyn PeerRpc, patience: Duration) -> (NodeId, Epoch) {
    let own = held.state();
    let question = question(own.epoch());
    let ask = |peer: NodeId| {
        let question = question.clone();
        async move { (peer, rpc.call(peer, CallKind::Metadata, question, patience).await) }
    };
    let peers = own.ring().nodes().map(|node| node.id).filter(|id| *id != held.me());
    let answers = join_all(peers.map(ask)).await;
    let epoch_of = |answer: Bytes| match News::decode(answer)? {
        News::Nothing => Ok(own.epoch()),
        News::Entries(entries) => {
            let last = entries.last().map_or(own.epoch().index, |(index, _)| *index);
            Ok(Epoch { index: last, ..own.epoch() })
        }
        News::State(bytes) => ClusterState::decode(bytes).map(|state| state.epoch()),
    };
    let told = answers.into_iter().filter_map(|(peer, answer)| {
        // Who does not answer, or not so that it is understood, is not waited for.
        let epoch: Result<Epoch> = epoch_of(answer.ok()?);
        Some((peer, epoch.ok()?))
    });
    told.max_by_key(|(_, epoch)| *epoch).unwrap_or((held.me(), own.epoch()))
}

fn next_peer(held: &Held, turn: usize) -> Option<NodeId> {
    let state = held.state();
    let peers: Vec<NodeId> = state.ring().nodes().map(|node| node.id).filter(|id| *id != held.me()).collect();
    peers.get(turn % peers.len().max(1)).copied()
}

async fn fetch(held: &Arc<Held>, rpc: &dyn PeerRpc, peer: NodeId) -> Result<(), String> {
    let question = question(held.state().epoch());
    let answer = rpc.call(peer, CallKind::Metadata, question, ANSWER_TIMEOUT).await.map_err(|e| e.to_string())?;
    let held = Arc::clone(held);
    let taken = tokio::task::spawn_blocking(move || take(&held, answer)).await;
    match taken {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            // Bytes that are not understood may come from a newer Trefoil: said loudly, and this node stays as it is.
            tracing::error!(%peer, %error, "metadata of a peer was not taken");
            Err(error.to_string())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn take(held: &Held, answer: Bytes) -> Result<()> {
    match News::decode(answer)? {
        News::Nothing => Ok(()),
        News::Entries(entries) => {
            let mut advance = held.advance();
            for (index, bytes) in entries {
                advance.apply(index, bytes)?;
            }
            if advance.is_empty() { Ok(()) } else { held.publish(advance, &Position::default()) }
        }
        News::State(bytes) => {
            let state = ClusterState::decode(bytes)?;
            let held_cluster = held.state().cluster();
            if state.cluster() != held_cluster {
                let reason = format!("it is that of {}, this node belongs to {held_cluster}", state.cluster());
                return Err(Error::invalid("state of a peer", reason));
            }
            held.replace(state, &Position::default())
        }
    }
}
