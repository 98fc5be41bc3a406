//! What all own objects have in common.
//!
//! ```text
//! object   magic "TRFLBKP1" | version u32 | kind u8 | cluster 16 | length of the head u64 | head | sha256 of all before
//!          | body | sha256 of all before, if there is a body
//! ```
//!
//! The head can be read and trusted without the body. Each kind has a version of its own.

use std::path::PathBuf;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::codec::varint::Reader;
use crate::{Corrupt, Error, Result};

const MAGIC: &[u8; 8] = b"TRFLBKP1";
const VERSION_OLDEST: u32 = 1;
/// What stands before the head.
const PREFACE_BYTES: usize = 8 + 4 + 1 + 16 + 8;
const HASH_BYTES: usize = 32;
/// More than any head grows to.
const HEAD_BYTES_MAX: u64 = 1 << 31;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What one node holds for a backup.
    Part = 1,
    /// A piece of a node's log.
    Piece = 2,
    /// A complete backup.
    Manifest = 3,
    /// All complete backups.
    Index = 4,
    /// A backup under way.
    Intent = 5,
    /// What a run of prune is about to remove.
    Condemned = 6,
    /// Who prunes.
    Lease = 7,
}

impl Kind {
    /// The version that is written.
    fn version(self) -> u32 {
        match self {
            Kind::Piece => 2,
            Kind::Part | Kind::Manifest | Kind::Index | Kind::Intent | Kind::Condemned | Kind::Lease => 1,
        }
    }

    /// As messages call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Part => "part of a backup",
            Kind::Piece => "piece of a log",
            Kind::Manifest => "manifest of a backup",
            Kind::Index => "index of backups",
            Kind::Intent => "intent of a backup",
            Kind::Condemned => "list of condemned objects",
            Kind::Lease => "lease of prune",
        }
    }
}

/// An object's head, and the cluster it is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The cluster that has made it.
    pub cluster: Uuid,
    pub(super) version: u32,
    pub(super) bytes: Bytes,
    /// Where the body begins.
    body: usize,
}

/// What the first bytes of an object tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadRead {
    /// The head, whole.
    Whole(Head),
    /// So many bytes are needed.
    Needs(u64),
}

/// The bytes of an object.
pub(super) fn seal(kind: Kind, cluster: Uuid, head: &[u8], body: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(PREFACE_BYTES + head.len() + body.len() + 2 * HASH_BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&kind.version().to_le_bytes());
    out.push(kind as u8);
    out.extend_from_slice(cluster.as_bytes());
    out.extend_from_slice(&(head.len() as u64).to_le_bytes());
    out.extend_from_slice(head);
    let hash = Sha256::digest(&out);
    out.extend_from_slice(&hash);
    if !body.is_empty() {
        out.extend_from_slice(body);
        let hash = Sha256::digest(&out);
        out.extend_from_slice(&hash);
    }
    out.into()
}

/// The head of the object at `key`, of which `bytes` are the first ones.
pub(super) fn read_head(kind: Kind, key: &str, bytes: &Bytes) -> Result<HeadRead> {
    if bytes.len() < PREFACE_BYTES {
        return Ok(HeadRead::Needs(PREFACE_BYTES as u64));
    }
    let mut reader = Reader::new(kind.name(), bytes.slice(..PREFACE_BYTES));
    if reader.array::<8>()? != *MAGIC {
        return Err(damaged(kind, key, "it does not begin with TRFLBKP1"));
    }
    let version = reader.u32()?;
    if !(VERSION_OLDEST..=kind.version()).contains(&version) {
        let (file, newest) = (PathBuf::from(key), kind.version());
        return Err(Error::Version { what: kind.name(), file, found: version, oldest: VERSION_OLDEST, newest });
    }
    let found = reader.u8()?;
    if found != kind as u8 {
        return Err(damaged(kind, key, &format!("it is of kind {found}")));
    }
    let cluster = Uuid::from_bytes(reader.array()?);
    let length = reader.u64()?;
    if length > HEAD_BYTES_MAX {
        return Err(damaged(kind, key, &format!("{length} bytes are more than a head has")));
    }
    let end = PREFACE_BYTES + length as usize;
    if bytes.len() < end + HASH_BYTES {
        return Ok(HeadRead::Needs((end + HASH_BYTES) as u64));
    }
    if bytes[end..end + HASH_BYTES] != *Sha256::digest(&bytes[..end]) {
        return Err(damaged(kind, key, "the hash of its head does not fit"));
    }
    Ok(HeadRead::Whole(Head { cluster, version, bytes: bytes.slice(PREFACE_BYTES..end), body: end + HASH_BYTES }))
}

/// Head and body of the object at `key`, of which `bytes` are all.
pub(super) fn open(kind: Kind, key: &str, bytes: &Bytes) -> Result<(Head, Bytes)> {
    let HeadRead::Whole(head) = read_head(kind, key, bytes)? else {
        return Err(damaged(kind, key, &format!("{} bytes are not all of it", bytes.len())));
    };
    if bytes.len() == head.body {
        return Ok((head, Bytes::new()));
    }
    let Some(end) = bytes.len().checked_sub(HASH_BYTES).filter(|end| *end > head.body) else {
        return Err(damaged(kind, key, "its end is missing"));
    };
    if bytes[end..] != *Sha256::digest(&bytes[..end]) {
        return Err(damaged(kind, key, "its hash does not fit"));
    }
    let body = bytes.slice(head.body..end);
    Ok((head, body))
}

/// The head alone, of an object that has no body.
pub(super) fn open_bare(kind: Kind, key: &str, bytes: &Bytes) -> Result<(Uuid, Reader)> {
    let (head, body) = open(kind, key, bytes)?;
    if !body.is_empty() {
        return Err(damaged(kind, key, "there are bytes behind its end"));
    }
    Ok((head.cluster, Reader::new(kind.name(), head.bytes)))
}

/// A finding about the object at `key`.
pub(super) fn damaged(kind: Kind, key: &str, reason: &str) -> Error {
    Corrupt { file: Some(PathBuf::from(key)), ..Corrupt::new(kind.name(), reason) }.into()
}
