//! A piece of a node's log.
//!
//! ```text
//! head   node u32 | number u64 | from position | to position | told i64 | made at i64 | records varint | [lowest i64 | highest i64]
//!        | sets varint | set ... | states varint | (applied at i64 | state bytes) ...
//! body   (length varint, block) ...     each block: (end position | record bytes) ...     version 1: without ends
//! ```
//!
//! Pieces of a node are numbered without a gap, and each begins where the one before ends, unless something of the log
//! went before it was archived. Each record says where in the log it ends, so that what files hold already can be told from
//! what came after them by places alone.

use bytes::Bytes;
use uuid::Uuid;

use super::layout;
use super::object::{HeadRead, Kind, damaged, open, read_head, seal};
use super::part::{put_sets, read_sets};
use crate::Result;
use crate::codec::CheckedRecord;
use crate::codec::compress::{put_block, read_block};
use crate::codec::varint::{Reader, put_bytes, put_varint};
use crate::commitlog::{Logged, Position};
use crate::model::{NodeId, Stamp, VnodeBits};
use crate::received::ReceivedSets;
use crate::received::gathered::Gathered;

/// Records of one block, in bytes, unless a single one is larger.
const BLOCK_BYTES: usize = 256 << 10;
/// The first version in which records say where they end.
const WITH_ENDS: u32 = 2;
/// More than a block grows to: the largest record, and a block before it.
const BLOCK_BYTES_MAX: usize = 32 << 20;
const STATE_LEAST_BYTES: usize = 9;

/// What a piece is, without its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PieceHead {
    /// The cluster.
    pub cluster: Uuid,
    /// Whose log it is of.
    pub node: NodeId,
    /// Its number, from 1.
    pub number: u64,
    /// Where in the log it begins.
    pub from: Position,
    /// Where it ends.
    pub to: Position,
    /// Every record stamped at or before that the node will ever have is in this piece, in one before it, or in files that
    /// were there before it; except for what another replica lists already.
    pub told: Stamp,
    /// When it was made, by the node's clock.
    pub made_at: Stamp,
    /// How many records it has.
    pub records: u64,
    /// Their lowest and highest stamp.
    pub stamps: Option<(Stamp, Stamp)>,
    /// The names in it.
    pub names: ReceivedSets,
    /// States of the cluster that the node has come to know since the piece before.
    pub states: Vec<StateAt>,
}

/// A state of the cluster, and when a node came to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateAt {
    /// Everything that the node coordinates in this state is stamped later.
    pub applied_at: Stamp,
    /// The state.
    pub state: Bytes,
}

/// A whole piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// What it is.
    pub head: PieceHead,
    version: u32,
    body: Bytes,
}

impl PieceHead {
    /// Where it is.
    pub fn key(&self) -> String {
        layout::piece(self.node, self.number)
    }

    /// The head of the object at `key`, of which `bytes` are the first ones; or how many are needed.
    pub fn read(key: &str, bytes: &Bytes) -> Result<Result<PieceHead, u64>> {
        match read_head(Kind::Piece, key, bytes)? {
            HeadRead::Needs(bytes) => Ok(Err(bytes)),
            HeadRead::Whole(head) => PieceHead::decode(key, head.cluster, head.bytes).map(Ok),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = self.node.0.to_le_bytes().to_vec();
        out.extend(self.number.to_le_bytes());
        self.from.put(&mut out);
        self.to.put(&mut out);
        out.extend(self.told.0.to_le_bytes());
        out.extend(self.made_at.0.to_le_bytes());
        put_varint(&mut out, self.records);
        if let Some((lowest, highest)) = self.stamps {
            out.extend(lowest.0.to_le_bytes());
            out.extend(highest.0.to_le_bytes());
        }
        put_sets(&mut out, &self.names);
        put_varint(&mut out, self.states.len() as u64);
        for StateAt { applied_at, state } in &self.states {
            out.extend(applied_at.0.to_le_bytes());
            put_bytes(&mut out, state);
        }
        out
    }

    fn decode(key: &str, cluster: Uuid, head: Bytes) -> Result<PieceHead> {
        let mut reader = Reader::new(Kind::Piece.name(), head);
        let reader = &mut reader;
        let mut found = PieceHead {
            cluster,
            node: NodeId(reader.u32()?),
            number: reader.u64()?,
            from: Position::read(reader)?,
            to: Position::read(reader)?,
            told: Stamp(reader.i64()?),
            made_at: Stamp(reader.i64()?),
            records: reader.varint()?,
            stamps: None,
            names: ReceivedSets::new(),
            states: Vec::new(),
        };
        if found.records > 0 {
            found.stamps = Some((Stamp(reader.i64()?), Stamp(reader.i64()?)));
        }
        found.names = read_sets(reader)?;
        for _ in 0..reader.count(STATE_LEAST_BYTES)? {
            found.states.push(StateAt { applied_at: Stamp(reader.i64()?), state: reader.bytes()? });
        }
        reader.end()?;
        if key != found.key() {
            return Err(damaged(Kind::Piece, key, "it is another piece than its key says"));
        }
        if found.from > found.to || found.stamps.is_some_and(|(lowest, highest)| lowest > highest) {
            return Err(damaged(Kind::Piece, key, "it ends before it begins"));
        }
        Ok(found)
    }
}

impl Piece {
    /// A piece of these records: of `head` only node, number, places and times are looked at.
    pub fn new(head: PieceHead, records: &[Logged], vnode_bits: VnodeBits) -> Piece {
        let mut names = Gathered::default();
        let (mut body, mut block) = (Vec::new(), Vec::new());
        let flush = |block: &mut Vec<u8>, body: &mut Vec<u8>| {
            let mut packed = Vec::new();
            put_block(&mut packed, block);
            put_bytes(body, &packed);
            block.clear();
        };
        for Logged { end, record } in records {
            if let Some((slice, name)) = record.name(vnode_bits) {
                names.add(slice, name);
            }
            end.put(&mut block);
            put_bytes(&mut block, record.bytes());
            if block.len() >= BLOCK_BYTES {
                flush(&mut block, &mut body);
            }
        }
        if !block.is_empty() {
            flush(&mut block, &mut body);
        }
        let stamps = || records.iter().map(|logged| logged.record.stamp());
        let stamps = stamps().min().zip(stamps().max());
        let names = names.in_order().into_iter().map(|(slice, set)| (*slice, set.clone())).collect();
        Piece {
            head: PieceHead { records: records.len() as u64, stamps, names, ..head },
            version: WITH_ENDS,
            body: body.into(),
        }
    }

    /// The object.
    pub fn encode(&self) -> Bytes {
        seal(Kind::Piece, self.head.cluster, &self.head.encode(), &self.body)
    }

    /// Reads what [`Piece::encode`] wrote, from the object at `key`.
    pub fn decode(key: &str, bytes: &Bytes) -> Result<Piece> {
        let (head, body) = open(Kind::Piece, key, bytes)?;
        Ok(Piece { version: head.version, head: PieceHead::decode(key, head.cluster, head.bytes)?, body })
    }

    /// The bytes of its records, as they are stored.
    pub fn bytes(&self) -> u64 {
        self.body.len() as u64
    }

    /// Hands out its records, in the order of the log. Where those of an old piece end is not known: it is said to be where
    /// the piece does, which is not before.
    pub fn for_each(&self, mut take: impl FnMut(Logged) -> Result<()>) -> Result<()> {
        let key = self.head.key();
        let mut reader = Reader::new(Kind::Piece.name(), self.body.clone());
        let (mut count, mut last) = (0, self.head.from);
        let has_ends = self.version >= WITH_ENDS;
        while reader.remaining() > 0 {
            let block = read_block(reader.bytes()?, BLOCK_BYTES_MAX)?;
            let mut records = Reader::new(Kind::Piece.name(), block);
            while records.remaining() > 0 {
                count += 1;
                let end = if has_ends { Position::read(&mut records)? } else { self.head.to };
                if has_ends && (end <= last || end > self.head.to) {
                    return Err(damaged(
                        Kind::Piece,
                        &key,
                        "its records do not ascend from where it begins to where it ends",
                    ));
                }
                last = end;
                take(Logged { end, record: CheckedRecord::trusted(records.bytes()?)? })?;
            }
        }
        if count != self.head.records {
            return Err(damaged(Kind::Piece, &key, &format!("it has {count} records and says {}", self.head.records)));
        }
        Ok(())
    }
}
