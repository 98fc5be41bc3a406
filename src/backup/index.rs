//! All complete backups, so that listing them is one request. It says nothing that the manifests do not say.
//!
//! ```text
//! head   entries varint | (backup 16 | name | tag | scope | began at i64 | cut i64 | bytes varint | objects varint | absent varint) ...
//! ```

use bytes::Bytes;
use uuid::Uuid;

use super::layout;
use super::manifest::{Manifest, Scope};
use super::object::{Kind, damaged, open_bare, seal};
use crate::Result;
use crate::codec::varint::{put_bytes, put_varint};
use crate::model::Stamp;

const ENTRY_LEAST_BYTES: usize = 38;

/// All complete backups, the oldest cut first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The cluster.
    pub cluster: Uuid,
    /// The backups.
    pub entries: Vec<IndexEntry>,
}

/// A backup, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// The backup.
    pub backup: Uuid,
    /// What people call it.
    pub name: String,
    /// What it is kept for.
    pub tag: String,
    /// What it is of.
    pub scope: Scope,
    /// When it was begun.
    pub began_at: Stamp,
    /// Everything stamped at or before is in it.
    pub cut: Stamp,
    /// Bytes of all that it lists.
    pub bytes: u64,
    /// Objects that it lists.
    pub objects: u64,
    /// Nodes that did not take part.
    pub absent: u64,
}

impl IndexEntry {
    /// What the index says of a backup.
    pub fn of(manifest: &Manifest) -> IndexEntry {
        IndexEntry {
            backup: manifest.backup,
            name: manifest.name.clone(),
            tag: manifest.tag.clone(),
            scope: manifest.scope,
            began_at: manifest.began_at,
            cut: manifest.cut,
            bytes: manifest.bytes(),
            objects: manifest.objects(),
            absent: manifest.absent.len() as u64,
        }
    }
}

impl Index {
    /// Adds a backup, in its place; again is fine.
    pub fn add(&mut self, entry: IndexEntry) {
        self.entries.retain(|known| known.backup != entry.backup);
        self.entries.push(entry);
        self.entries.sort_by_key(|entry| (entry.cut, entry.backup));
    }

    /// The object.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        put_varint(&mut out, self.entries.len() as u64);
        for entry in &self.entries {
            out.extend(entry.backup.as_bytes());
            put_bytes(&mut out, entry.name.as_bytes());
            put_bytes(&mut out, entry.tag.as_bytes());
            entry.scope.put(&mut out);
            out.extend(entry.began_at.0.to_le_bytes());
            out.extend(entry.cut.0.to_le_bytes());
            put_varint(&mut out, entry.bytes);
            put_varint(&mut out, entry.objects);
            put_varint(&mut out, entry.absent);
        }
        seal(Kind::Index, self.cluster, &out, &[])
    }

    /// Reads what [`Index::encode`] wrote.
    pub fn decode(bytes: &Bytes) -> Result<Index> {
        let (cluster, mut reader) = open_bare(Kind::Index, layout::INDEX, bytes)?;
        let reader = &mut reader;
        let mut entries = Vec::new();
        for _ in 0..reader.count(ENTRY_LEAST_BYTES)? {
            entries.push(IndexEntry {
                backup: Uuid::from_bytes(reader.array()?),
                name: reader.text()?,
                tag: reader.text()?,
                scope: Scope::read(reader)?,
                began_at: Stamp(reader.i64()?),
                cut: Stamp(reader.i64()?),
                bytes: reader.varint()?,
                objects: reader.varint()?,
                absent: reader.varint()?,
            });
        }
        reader.end()?;
        if !entries.is_sorted_by(|one, next| (one.cut, one.backup) < (next.cut, next.backup)) {
            return Err(damaged(Kind::Index, layout::INDEX, "its backups are not in ascending order"));
        }
        Ok(Index { cluster, entries })
    }
}
