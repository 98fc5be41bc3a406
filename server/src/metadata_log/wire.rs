//! Bytes of what Raft writes and sends: the same in the files of `metadata/` and in messages between voters.
//!
//! ```text
//!  log id      term varint | node varint | index varint          optional things: 0, or 1 and the thing
//!  vote        term varint | node varint | committed u8
//!  membership  configs: list of lists of node | nodes: list of node
//!  entry       log id | 0                       written by a new leader
//!              log id | 1 | bytes               a metadata entry
//!              log id | 2 | membership
//! ```

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{CommittedLeaderId, EmptyNode, EntryPayload};
use trefoil::Result;
use trefoil::codec::varint::{Reader, put_bytes, put_varint};

use super::types::{
    Entry, LogId, Membership, Proposal, Snapshot, SnapshotMeta, StoredMembership, Types, Vote, VoterId,
};

/// Something with one encoding.
pub(super) trait Wire: Sized {
    /// Its name in messages about bytes that are not one.
    const WHAT: &'static str;

    fn put(&self, out: &mut Vec<u8>);
    fn read(reader: &mut Reader) -> Result<Self>;

    fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        self.put(&mut out);
        out.into()
    }

    fn decode(bytes: Bytes) -> Result<Self> {
        let mut reader = Reader::new(Self::WHAT, bytes);
        let value = Self::read(&mut reader)?;
        reader.end()?;
        Ok(value)
    }
}

pub(super) fn read_flag(reader: &mut Reader) -> Result<bool> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(reader.corrupt(format!("0 or 1 expected, {other} found")).into()),
    }
}

fn read_list<T>(reader: &mut Reader, mut read: impl FnMut(&mut Reader) -> Result<T>) -> Result<Vec<T>> {
    let count = reader.varint()?;
    if count > reader.remaining() as u64 {
        return Err(reader.corrupt(format!("{count} things in {} bytes", reader.remaining())).into());
    }
    (0..count).map(|_| read(reader)).collect()
}

impl<T: Wire> Wire for Option<T> {
    const WHAT: &'static str = T::WHAT;

    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        self.iter().for_each(|value| value.put(out));
    }

    fn read(reader: &mut Reader) -> Result<Self> {
        Ok(if read_flag(reader)? { Some(T::read(reader)?) } else { None })
    }
}

impl<T: Wire> Wire for Vec<T> {
    const WHAT: &'static str = T::WHAT;

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        self.iter().for_each(|value| value.put(out));
    }

    fn read(reader: &mut Reader) -> Result<Self> {
        read_list(reader, T::read)
    }
}

impl Wire for LogId {
    const WHAT: &'static str = "raft log id";

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.leader_id.term);
        put_varint(out, u64::from(self.leader_id.node_id.0));
        put_varint(out, self.index);
    }

    fn read(reader: &mut Reader) -> Result<Self> {
        let leader = CommittedLeaderId::new(reader.varint()?, read_id(reader)?);
        Ok(LogId::new(leader, reader.varint()?))
    }
}

impl Wire for Vote {
    const WHAT: &'static str = "raft vote";

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.leader_id.term);
        put_varint(out, u64::from(self.leader_id.node_id.0));
        out.push(u8::from(self.committed));
    }

    fn read(reader: &mut Reader) -> Result<Self> {
        let mut vote = Vote::new(reader.varint()?, read_id(reader)?);
        vote.committed = read_flag(reader)?;
        Ok(vote)
    }
}

fn read_id(reader: &mut Reader) -> Result<VoterId> {
    Ok(VoterId(reader.varint_u32()?))
}

fn put_ids<'a>(out: &mut Vec<u8>, ids: impl ExactSizeIterator<Item = &'a VoterId>) {
    put_varint(out, ids.len() as u64);
    ids.for_each(|id| put_varint(out, u64::from(id.0)));
}

impl Wire for Membership {
    const WHAT: &'static str = "raft membership";

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.get_joint_config().len() as u64);
        self.get_joint_config().iter().for_each(|config| put_ids(out, config.iter()));
        let nodes: Vec<VoterId> = self.nodes().map(|(id, _)| *id).collect();
        put_ids(out, nodes.iter());
    }

    fn read(reader: &mut Reader) -> Result<Self> {
        let configs: Vec<BTreeSet<VoterId>> =
            read_list(reader, |reader| Ok(read_list(reader, read_id)?.into_iter().collect()))?;
        let nodes: Vec<VoterId> = read_list(reader, read_id)?;
        let nodes: BTreeMap<VoterId, EmptyNode> = nodes.into_iter().map(|id| (id, EmptyNode {})).collect();
        if let Some(stranger) = configs.iter().flatten().find(|id| !nodes.contains_key(id)) {
            return Err(reader.corrupt(format!("voter {stranger} is not among the nodes")).into());
        }
        Ok(Membership::new(configs, nodes))
    }
}

impl Wire for StoredMembership {
    const WHAT: &'static str = "raft membership";

    fn put(&self, out: &mut Vec<u8>) {
        self.log_id().put(out);
        self.membership().put(out);
    }

    fn read(reader: &mut Reader) -> Result<Self> {
        let log_id = Option::read(reader)?;
        Ok(StoredMembership::new(log_id, Membership::read(reader)?))
    }
}

impl Wire for Entry {
    const WHAT: &'static str = "raft entry";

    fn put(&self, out: &mut Vec<u8>) {
        self.log_id.put(out);
        match &self.payload {
            EntryPayload::Blank => out.push(0),
            EntryPayload::Normal(Proposal(bytes)) => {
                out.push(1);
                put_bytes(out, bytes);
            }
            EntryPayload::Membership(membership) => {
                out.push(2);
                membership.put(out);
            }
        }
    }

    fn read(reader: &mut Reader) -> Result<Self> {
        let log_id = LogId::read(reader)?;
        let payload = match reader.u8()? {
            0 => EntryPayload::Blank,
            1 => EntryPayload::Normal(Proposal(reader.bytes()?)),
            2 => EntryPayload::Membership(Membership::read(reader)?),
            other => return Err(reader.corrupt(format!("no entry has kind {other}")).into()),
        };
        Ok(Entry { log_id, payload })
    }
}

impl Wire for AppendEntriesRequest<Types> {
    const WHAT: &'static str = "raft append";

    fn put(&self, out: &mut Vec<u8>) {
        self.vote.put(out);
        self.prev_log_id.put(out);
        self.entries.put(out);
        self.leader_commit.put(out);
    }

    fn read(reader: &mut Reader) -> Result<Self> {
        Ok(AppendEntriesRequest {
            vote: Vote::read(reader)?,
            prev_log_id: Option::read(reader)?,
            entries: Vec::read(reader)?,
            leader_commit: Option::read(reader)?,
        })
    }
}

impl Wire for AppendEntriesResponse<VoterId> {
    const WHAT: &'static str = "raft append answer";

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            AppendEntriesResponse::Success => out.push(0),
            AppendEntriesResponse::PartialSuccess(log_id) => {
                out.push(1);
                log_id.put(out);
            }
            AppendEntriesResponse::Conflict => out.push(2),
            AppendEntriesResponse::HigherVote(vote) => {
                out.push(3);
                vote.put(out);
            }
        }
    }

    fn read(reader: &mut Reader) -> Result<Self> {
        Ok(match reader.u8()? {
            0 => AppendEntriesResponse::Success,
            1 => AppendEntriesResponse::PartialSuccess(Option::read(reader)?),
            2 => AppendEntriesResponse::Conflict,
            3 => AppendEntriesResponse::HigherVote(Vote::read(reader)?),
            other => return Err(reader.corrupt(format!("no answer has kind {other}")).into()),
        })
    }
}

impl Wire for VoteRequest<VoterId> {
    const WHAT: &'static str = "raft vote request";

    fn put(&self, out: &mut Vec<u8>) {
        self.vote.put(out);
        self.last_log_id.put(out);
    }

    fn read(reader: &mut Reader) -> Result<Self> {
        Ok(VoteRequest { vote: Vote::read(reader)?, last_log_id: Option::read(reader)? })
    }
}

impl Wire for VoteResponse<VoterId> {
    const WHAT: &'static str = "raft vote answer";

    fn put(&self, out: &mut Vec<u8>) {
        self.vote.put(out);
        out.push(u8::from(self.vote_granted));
        self.last_log_id.put(out);
    }

    fn read(reader: &mut Reader) -> Result<Self> {
        Ok(VoteResponse {
            vote: Vote::read(reader)?,
            vote_granted: read_flag(reader)?,
            last_log_id: Option::read(reader)?,
        })
    }
}

impl Wire for SnapshotResponse<VoterId> {
    const WHAT: &'static str = "raft snapshot answer";

    fn put(&self, out: &mut Vec<u8>) {
        self.vote.put(out);
    }

    fn read(reader: &mut Reader) -> Result<Self> {
        Ok(SnapshotResponse::new(Vote::read(reader)?))
    }
}

/// A whole snapshot on its way from the leader.
pub(super) struct SnapshotMessage {
    pub(super) vote: Vote,
    pub(super) snapshot: Snapshot,
}

impl Wire for SnapshotMessage {
    const WHAT: &'static str = "raft snapshot";

    fn put(&self, out: &mut Vec<u8>) {
        let SnapshotMeta { last_log_id, last_membership, snapshot_id } = &self.snapshot.meta;
        self.vote.put(out);
        last_log_id.put(out);
        last_membership.put(out);
        put_bytes(out, snapshot_id.as_bytes());
        put_bytes(out, &self.snapshot.snapshot);
    }

    fn read(reader: &mut Reader) -> Result<Self> {
        let vote = Vote::read(reader)?;
        let meta = SnapshotMeta {
            last_log_id: Option::read(reader)?,
            last_membership: StoredMembership::read(reader)?,
            snapshot_id: reader.text()?,
        };
        Ok(SnapshotMessage { vote, snapshot: Snapshot { meta, snapshot: Box::new(reader.bytes()?) } })
    }
}
