//! A complete backup.
//!
//! ```text
//! head   backup 16 | name | tag | scope | began at i64 | cut i64 | state bytes
//!        | parts varint | (node u32 | bytes varint | hash 32 | files varint | file bytes varint) ...
//!        | pieces varint | (node u32 | number u64 | bytes varint | hash 32) ...
//!        | absent varint | (node u32 | why) ...
//! scope  00 all   01 keyspace u32   02 table 16
//! ```

use bytes::Bytes;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::layout;
use super::object::{Kind, damaged, open_bare, seal};
use crate::Result;
use crate::codec::varint::{Reader, put_bytes, put_varint};
use crate::model::{KeyspaceId, NodeId, Stamp, TableId};

const PART_LEAST_BYTES: usize = 39;
const PIECE_LEAST_BYTES: usize = 45;
const ABSENT_LEAST_BYTES: usize = 5;

/// What a backup is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// One keyspace.
    Keyspace(KeyspaceId),
    /// One table.
    Table(TableId),
}

impl Scope {
    pub(super) fn put(self, out: &mut Vec<u8>) {
        match self {
            Scope::All => out.push(0),
            Scope::Keyspace(id) => {
                out.push(1);
                out.extend(id.0.to_le_bytes());
            }
            Scope::Table(id) => {
                out.push(2);
                out.extend(id.0.as_bytes());
            }
        }
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Scope> {
        match reader.u8()? {
            0 => Ok(Scope::All),
            1 => Ok(Scope::Keyspace(KeyspaceId(reader.u32()?))),
            2 => Ok(Scope::Table(TableId(Uuid::from_bytes(reader.array()?)))),
            kind => Err(reader.corrupt(format!("no scope has number {kind}")).into()),
        }
    }
}

/// An object as a manifest lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256.
    pub hash: [u8; 32],
}

impl Listed {
    /// The object whose bytes these are.
    pub fn of(bytes: &[u8]) -> Listed {
        Listed { bytes: bytes.len() as u64, hash: Sha256::digest(bytes).into() }
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.bytes);
        out.extend(self.hash);
    }

    fn read(reader: &mut Reader) -> Result<Listed> {
        Ok(Listed { bytes: reader.varint()?, hash: reader.array()? })
    }
}

/// A part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPart {
    /// Whose it is.
    pub node: NodeId,
    /// The object.
    pub object: Listed,
    /// How many files it lists.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
}

/// A piece of a log that the cut needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPiece {
    /// Whose log it is of.
    pub node: NodeId,
    /// Its number.
    pub number: u64,
    /// The object.
    pub object: Listed,
}

/// A node of which there is nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// The node.
    pub node: NodeId,
    /// Why.
    pub reason: String,
}

/// A complete backup: with the files that its parts list it says what every mutation up to the cut amounts to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The cluster.
    pub cluster: Uuid,
    /// The backup.
    pub backup: Uuid,
    /// What people call it; may be empty.
    pub name: String,
    /// What it is kept for; may be empty.
    pub tag: String,
    /// What it is of.
    pub scope: Scope,
    /// When it was begun.
    pub began_at: Stamp,
    /// Everything stamped at or before is in it.
    pub cut: Stamp,
    /// The state of the cluster at the cut.
    pub state: Bytes,
    /// One for each node that took part, ascending.
    pub parts: Vec<ListedPart>,
    /// What of the logs is needed for the cut, ascending by node and number.
    pub pieces: Vec<ListedPiece>,
    /// Nodes that did not take part.
    pub absent: Vec<Absent>,
}

impl Manifest {
    /// Where it is.
    pub fn key(&self) -> String {
        layout::backup(self.backup)
    }

    /// The object.
    pub fn encode(&self) -> Bytes {
        let mut out = self.backup.as_bytes().to_vec();
        put_bytes(&mut out, self.name.as_bytes());
        put_bytes(&mut out, self.tag.as_bytes());
        self.scope.put(&mut out);
        out.extend(self.began_at.0.to_le_bytes());
        out.extend(self.cut.0.to_le_bytes());
        put_bytes(&mut out, &self.state);
        put_varint(&mut out, self.parts.len() as u64);
        for part in &self.parts {
            out.extend(part.node.0.to_le_bytes());
            part.object.put(&mut out);
            put_varint(&mut out, part.files);
            put_varint(&mut out, part.file_bytes);
        }
        put_varint(&mut out, self.pieces.len() as u64);
        for piece in &self.pieces {
            out.extend(piece.node.0.to_le_bytes());
            out.extend(piece.number.to_le_bytes());
            piece.object.put(&mut out);
        }
        put_varint(&mut out, self.absent.len() as u64);
        for Absent { node, reason } in &self.absent {
            out.extend(node.0.to_le_bytes());
            put_bytes(&mut out, reason.as_bytes());
        }
        seal(Kind::Manifest, self.cluster, &out, &[])
    }

    /// Reads what [`Manifest::encode`] wrote, from the object at `key`.
    pub fn decode(key: &str, bytes: &Bytes) -> Result<Manifest> {
        let (cluster, mut reader) = open_bare(Kind::Manifest, key, bytes)?;
        let reader = &mut reader;
        let manifest = Manifest {
            cluster,
            backup: Uuid::from_bytes(reader.array()?),
            name: reader.text()?,
            tag: reader.text()?,
            scope: Scope::read(reader)?,
            began_at: Stamp(reader.i64()?),
            cut: Stamp(reader.i64()?),
            state: reader.bytes()?,
            parts: (0..reader.count(PART_LEAST_BYTES)?).map(|_| read_part(reader)).collect::<Result<_>>()?,
            pieces: (0..reader.count(PIECE_LEAST_BYTES)?).map(|_| read_piece(reader)).collect::<Result<_>>()?,
            absent: (0..reader.count(ABSENT_LEAST_BYTES)?).map(|_| read_absent(reader)).collect::<Result<_>>()?,
        };
        reader.end()?;
        let parts_ascend = manifest.parts.is_sorted_by(|one, next| one.node < next.node);
        let place = |piece: &ListedPiece| (piece.node, piece.number);
        if key != manifest.key() {
            return Err(damaged(Kind::Manifest, key, "it is another backup than its key says"));
        }
        if !parts_ascend || !manifest.pieces.is_sorted_by(|one, next| place(one) < place(next)) {
            return Err(damaged(Kind::Manifest, key, "its parts or pieces are not in ascending order"));
        }
        Ok(manifest)
    }

    /// The bytes of all that it lists.
    pub fn bytes(&self) -> u64 {
        let parts = self.parts.iter().map(|part| part.object.bytes + part.file_bytes).sum::<u64>();
        parts + self.pieces.iter().map(|piece| piece.object.bytes).sum::<u64>()
    }

    /// How many objects it lists; files that several nodes have count for each.
    pub fn objects(&self) -> u64 {
        let parts = self.parts.iter().map(|part| 1 + part.files).sum::<u64>();
        parts + self.pieces.len() as u64
    }
}

fn read_part(reader: &mut Reader) -> Result<ListedPart> {
    let node = NodeId(reader.u32()?);
    let object = Listed::read(reader)?;
    Ok(ListedPart { node, object, files: reader.varint()?, file_bytes: reader.varint()? })
}

fn read_piece(reader: &mut Reader) -> Result<ListedPiece> {
    Ok(ListedPiece { node: NodeId(reader.u32()?), number: reader.u64()?, object: Listed::read(reader)? })
}

fn read_absent(reader: &mut Reader) -> Result<Absent> {
    Ok(Absent { node: NodeId(reader.u32()?), reason: reader.text()? })
}
