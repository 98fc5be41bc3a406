//! What one node holds for a backup.
//!
//! ```text
//! head   backup 16 | node u32 | vnode bits u8 | made at i64 | position | first piece u64 | highest stamp i64
//!        | tables varint | table ... | files varint | (file, suffix u32, 0: none) ... | sets varint | set ... | state bytes
//! ```

use bytes::Bytes;
use uuid::Uuid;

use super::layout;
use super::object::{Kind, damaged, open_bare, seal};
use crate::Result;
use crate::codec::varint::{Reader, put_bytes, put_varint};
use crate::commitlog::Position;
use crate::model::{KeyspaceId, NodeId, Stamp, Vnode, VnodeBits};
use crate::received::{ReceivedSet, ReceivedSets};
use crate::snapshot::TableInfo;
use crate::sstable::SstableMeta;

const TABLE_LEAST_BYTES: usize = 22;
const FILE_LEAST_BYTES: usize = 85;
const SET_LEAST_BYTES: usize = 3;

/// What one node holds for a backup: files, and where in its log what is not in them begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The cluster.
    pub cluster: Uuid,
    /// The backup.
    pub backup: Uuid,
    /// Whose part it is.
    pub node: NodeId,
    /// The number of the cluster's vnodes.
    pub vnode_bits: VnodeBits,
    /// When it was made, by the node's clock.
    pub made_at: Stamp,
    /// Every record of the node's log that ends here or before is in the files, as far as it concerns the tables.
    pub position: Position,
    /// The number of the first piece of the node's log that may hold what is not in the files.
    pub first_piece: u64,
    /// No record in the files is stamped later.
    pub highest: Stamp,
    /// The tables, ascending by id.
    pub tables: Vec<TableInfo>,
    /// The files, ascending by id.
    pub files: Vec<StoredFile>,
    /// What the node had received of the tables' keyspaces: all of it is in the files, as far as it concerns the tables.
    pub received: ReceivedSets,
    /// The state of the cluster as the node knew it.
    pub state: Bytes,
}

/// A file, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// The file.
    pub meta: SstableMeta,
    /// What its key ends with, if anything.
    pub suffix: Option<u32>,
}

impl StoredFile {
    /// Where it is.
    pub fn key(&self) -> String {
        layout::file(&self.meta.hash, self.suffix)
    }
}

impl Part {
    /// Where it is.
    pub fn key(&self) -> String {
        layout::part(self.backup, self.node)
    }

    /// The object.
    pub fn encode(&self) -> Bytes {
        let mut out = self.backup.as_bytes().to_vec();
        out.extend(self.node.0.to_le_bytes());
        out.push(self.vnode_bits.bits());
        out.extend(self.made_at.0.to_le_bytes());
        self.position.put(&mut out);
        out.extend(self.first_piece.to_le_bytes());
        out.extend(self.highest.0.to_le_bytes());
        put_varint(&mut out, self.tables.len() as u64);
        self.tables.iter().for_each(|table| table.put(&mut out));
        put_varint(&mut out, self.files.len() as u64);
        for file in &self.files {
            file.meta.put(&mut out);
            out.extend(file.suffix.unwrap_or(0).to_le_bytes());
        }
        put_sets(&mut out, &self.received);
        put_bytes(&mut out, &self.state);
        seal(Kind::Part, self.cluster, &out, &[])
    }

    /// Reads what [`Part::encode`] wrote, from the object at `key`.
    pub fn decode(key: &str, bytes: &Bytes) -> Result<Part> {
        let (cluster, mut reader) = open_bare(Kind::Part, key, bytes)?;
        let reader = &mut reader;
        let part = Part {
            cluster,
            backup: Uuid::from_bytes(reader.array()?),
            node: NodeId(reader.u32()?),
            vnode_bits: read_vnode_bits(reader)?,
            made_at: Stamp(reader.i64()?),
            position: Position::read(reader)?,
            first_piece: reader.u64()?,
            highest: Stamp(reader.i64()?),
            tables: (0..reader.count(TABLE_LEAST_BYTES)?).map(|_| TableInfo::read(reader)).collect::<Result<_>>()?,
            files: (0..reader.count(FILE_LEAST_BYTES)?).map(|_| read_file(reader)).collect::<Result<_>>()?,
            received: read_sets(reader)?,
            state: reader.bytes()?,
        };
        reader.end()?;
        part.check(key)?;
        Ok(part)
    }

    fn check(&self, key: &str) -> Result<()> {
        let refuse = |reason: &str| Err(damaged(Kind::Part, key, reason));
        let knows = |file: &StoredFile| self.tables.binary_search_by_key(&file.meta.table, |table| table.id).is_ok();
        if key != self.key() {
            return refuse("it is another part than its key says");
        }
        let tables_ascend = self.tables.is_sorted_by(|one, next| one.id < next.id);
        if !tables_ascend || !self.files.is_sorted_by(|one, next| one.meta.id < next.meta.id) {
            return refuse("its tables or files are not in ascending order");
        }
        if !self.files.iter().all(knows) {
            return refuse("it lists a file of a table that it does not list");
        }
        Ok(())
    }

    /// The bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.meta.bytes).sum()
    }
}

fn read_file(reader: &mut Reader) -> Result<StoredFile> {
    let meta = SstableMeta::read(reader)?;
    let suffix = Some(reader.u32()?).filter(|suffix| *suffix != 0);
    Ok(StoredFile { meta, suffix })
}

pub(super) fn read_vnode_bits(reader: &mut Reader) -> Result<VnodeBits> {
    let bits = reader.u8()?;
    VnodeBits::new(bits).ok_or_else(|| reader.corrupt(format!("{bits} vnode bits are too many")).into())
}

pub(super) fn put_sets(out: &mut Vec<u8>, sets: &ReceivedSets) {
    put_varint(out, sets.len() as u64);
    for ((keyspace, vnode), set) in sets {
        put_varint(out, u64::from(keyspace.0));
        put_varint(out, u64::from(vnode.0));
        set.encode(out);
    }
}

pub(super) fn read_sets(reader: &mut Reader) -> Result<ReceivedSets> {
    let mut sets = ReceivedSets::new();
    for _ in 0..reader.count(SET_LEAST_BYTES)? {
        let place = (KeyspaceId(reader.varint_u32()?), Vnode(reader.varint_u32()?));
        if sets.last_key_value().is_some_and(|(last, _)| *last >= place) {
            return Err(reader.corrupt("its received sets are not in ascending order").into());
        }
        sets.insert(place, ReceivedSet::decode(reader)?);
    }
    Ok(sets)
}
