//! An entry finds the leader, from whatever node it starts.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use openraft::error::{CheckIsLeaderError, ClientWriteError, RaftError};
use tokio::time::{Instant, sleep, timeout};
use trefoil::Result;
use trefoil::codec::varint::{Reader, put_varint};
use trefoil::metadata::{Applied, Entry, Epoch, Refusal, Verdict};
use trefoil::model::NodeId;
use trefoil_proto::v1::CallKind;

use super::raft_log::RaftLog;
use super::types::Proposal;
use super::{ENTRY_BYTES_MAX, ProposeError, Proposed};
use crate::peer_rpc::CallError;

/// Between two rounds over the voters.
const ROUND_PAUSE: Duration = Duration::from_millis(50);
/// How long a voter may take to say whom it follows.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a leader may take to find out that it still leads.
const LEAD_CHECK: Duration = Duration::from_secs(2);

/// What one voter says to an entry.
///
/// `1`, generation varint, index varint, (`0` changed | `1` already so | `2`, refusal) | `2`, node varint (0: not known)
/// | `3`, text | `4`, text
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Done(Epoch, Verdict),
    NotLeader(Option<NodeId>),
    NotNow(String),
    Unknown(String),
}

impl Reply {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Reply::Done(epoch, verdict) => {
                out.push(1);
                put_varint(&mut out, u64::from(epoch.generation));
                put_varint(&mut out, epoch.index);
                match verdict {
                    Ok(Applied::Changed) => out.push(0),
                    Ok(Applied::AlreadySo) => out.push(1),
                    Err(refusal) => {
                        out.push(2);
                        out.extend_from_slice(&refusal.encode());
                    }
                }
            }
            Reply::NotLeader(leader) => {
                out.push(2);
                put_varint(&mut out, leader.map_or(0, |leader| u64::from(leader.0)));
            }
            Reply::NotNow(reason) => {
                out.push(3);
                out.extend_from_slice(reason.as_bytes());
            }
            Reply::Unknown(reason) => {
                out.push(4);
                out.extend_from_slice(reason.as_bytes());
            }
        }
        out.into()
    }

    pub(super) fn decode(bytes: Bytes) -> Result<Reply> {
        let mut reader = Reader::new("answer to a proposal", bytes);
        let text = |reader: &mut Reader| String::from_utf8_lossy(&reader.rest()).into_owned();
        let reply = match reader.u8()? {
            1 => {
                let epoch = Epoch { generation: reader.varint_u32()?, index: reader.varint()? };
                let verdict = match reader.u8()? {
                    0 => Ok(Applied::Changed),
                    1 => Ok(Applied::AlreadySo),
                    2 => Err(Refusal::decode(reader.rest())?),
                    other => return Err(reader.corrupt(format!("no verdict has number {other}")).into()),
                };
                Reply::Done(epoch, verdict)
            }
            2 => Reply::NotLeader(Some(NodeId(reader.varint_u32()?)).filter(|leader| leader.0 != 0)),
            3 => Reply::NotNow(text(&mut reader)),
            4 => Reply::Unknown(text(&mut reader)),
            other => return Err(reader.corrupt(format!("no answer has kind {other}")).into()),
        };
        reader.end()?;
        Ok(reply)
    }
}

/// A question to a voter: how long it may take, and the entry; without one it asks who leads.
pub(super) fn question(wait: Duration, entry: &Bytes) -> Bytes {
    let mut out = Vec::with_capacity(entry.len() + 4);
    put_varint(&mut out, u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    out.extend_from_slice(entry);
    out.into()
}

pub(super) fn read_question(bytes: Bytes) -> Result<(Duration, Bytes)> {
    let mut reader = Reader::new("proposal", bytes);
    let wait = Duration::from_millis(reader.varint()?.min(60_000));
    Ok((wait, reader.rest()))
}

impl RaftLog {
    pub(super) async fn propose_anywhere(&self, entry: &Entry, deadline: Duration) -> Result<Proposed, ProposeError> {
        let bytes = Bytes::from(entry.encode());
        if bytes.len() > ENTRY_BYTES_MAX {
            return Err(ProposeError::TooLarge { bytes: bytes.len() });
        }
        let began = Instant::now();
        let until = began + deadline;
        let mut findings = BTreeMap::new();
        loop {
            if let Some((leader, reply)) = self.round(&bytes, until, &mut findings).await {
                let (epoch, verdict) = match reply {
                    Reply::Done(epoch, verdict) => (epoch, verdict),
                    Reply::Unknown(reason) => return Err(ProposeError::Unknown { leader, reason }),
                    Reply::NotLeader(_) | Reply::NotNow(_) => continue,
                };
                self.catch_up(leader, epoch, until).await;
                return Ok(Proposed { epoch, applied: verdict? });
            }
            if Instant::now() + ROUND_PAUSE >= until {
                let findings: Vec<String> = findings.iter().map(|(id, finding)| format!("{id} {finding}")).collect();
                let waited_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                let findings = findings.join("; ");
                return Err(ProposeError::Unavailable { voters: self.voters().len(), waited_ms, findings });
            }
            sleep(ROUND_PAUSE).await;
        }
    }

    /// Finds the leader and hands it the entry. Answers nothing if the entry is surely in no log.
    async fn round(
        &self,
        entry: &Bytes,
        until: Instant,
        findings: &mut BTreeMap<NodeId, String>,
    ) -> Option<(NodeId, Reply)> {
        let leader = self.find_leader(findings).await?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        match self.ask(leader, entry, left).await {
            Ok(Reply::NotLeader(_)) => drop(findings.insert(leader, "does not lead any more".into())),
            Ok(Reply::NotNow(reason)) => drop(findings.insert(leader, reason)),
            Ok(settled) => return Some((leader, settled)),
            Err(CallError::Lost(reason)) => return Some((leader, Reply::Unknown(reason))),
            Err(error) => drop(findings.insert(leader, format!("is {error}"))),
        }
        None
    }

    /// Asks all voters at once whom they follow; one that is silent delays nothing if the others agree.
    async fn find_leader(&self, findings: &mut BTreeMap<NodeId, String>) -> Option<NodeId> {
        let probe = |voter: NodeId| async move { (voter, self.ask(voter, &Bytes::new(), PROBE_TIMEOUT).await) };
        let mut probes: FuturesUnordered<_> = self.voters().iter().map(|voter| probe(*voter)).collect();
        let mut named: BTreeMap<NodeId, usize> = BTreeMap::new();
        while let Some((voter, answer)) = probes.next().await {
            match answer {
                Ok(Reply::NotLeader(Some(leader))) => {
                    findings.insert(voter, format!("takes {leader} for the leader"));
                    let count = named.entry(leader).or_default();
                    *count += 1;
                    if *count > self.voters().len() / 2 {
                        return Some(leader);
                    }
                }
                Ok(_) => drop(findings.insert(voter, "knows no leader".into())),
                Err(error) => drop(findings.insert(voter, format!("is {error}"))),
            }
        }
        named.into_iter().max_by_key(|(_, count)| *count).map(|(leader, _)| leader)
    }

    async fn ask(&self, voter: NodeId, entry: &Bytes, wait: Duration) -> Result<Reply, CallError> {
        if voter == self.id() {
            return Ok(self.propose_here(entry.clone(), wait).await);
        }
        let answer = self.rpc().call(voter, CallKind::Propose, question(wait, entry), wait).await?;
        Reply::decode(answer).map_err(|error| CallError::Lost(error.to_string()))
    }

    /// Proposes as the leader, if this node is the leader and a quorum follows it. No entry: only says who leads.
    pub(super) async fn propose_here(&self, entry: Bytes, wait: Duration) -> Reply {
        let until = Instant::now() + wait;
        let Some(raft) = self.raft() else { return Reply::NotLeader(None) };
        let leader = raft.metrics().borrow().current_leader.map(NodeId::from);
        if leader != Some(self.id()) || entry.is_empty() {
            return Reply::NotLeader(leader);
        }
        match timeout(wait.min(LEAD_CHECK), raft.ensure_linearizable()).await {
            Ok(Ok(_)) => {}
            Ok(Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward)))) => {
                return Reply::NotLeader(forward.leader_id.map(NodeId::from));
            }
            Ok(Err(error)) => return Reply::NotNow(format!("leads without a quorum: {error}")),
            Err(_) => return Reply::NotNow("leads, and no quorum answers it".into()),
        }
        let left = until.saturating_duration_since(Instant::now());
        match timeout(left, raft.client_write(Proposal(entry))).await {
            Ok(Ok(written)) => match written.data.0 {
                Some(verdict) => {
                    Reply::Done(Epoch { index: written.log_id.index, ..self.held().state().epoch() }, verdict)
                }
                None => Reply::Unknown("the entry was applied before".into()),
            },
            // The entry may have been appended before leadership was lost, so this is no plain "not the leader".
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_)))) => {
                Reply::Unknown("leadership was lost meanwhile".into())
            }
            Ok(Err(error)) => Reply::Unknown(error.to_string()),
            Err(_) => Reply::Unknown("no quorum has confirmed it in time".into()),
        }
    }

    /// Waits until this node has applied `epoch`, within the time that is left.
    async fn catch_up(&self, leader: NodeId, epoch: Epoch, until: Instant) {
        self.hear(leader, epoch);
        let mut seen = self.held().watch();
        let reached = tokio::time::timeout_at(until, seen.wait_for(|seen| *seen >= epoch)).await.is_ok();
        if !reached {
            tracing::warn!(%epoch, "this node has not yet applied an entry that it proposed");
        }
    }
}
