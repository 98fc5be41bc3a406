//! The manifest of a snapshot: one frame, written whole.
//!
//! ```text
//! SNAPSHOT   magic "TRFLSNP1" | version u32 | frame, salt 0, of:
//!   id 16 | name | made at i64 | cause u8 | cluster 16 | node u32 | vnode bits u8 | position
//!   | tables varint | table ... | files varint | file ... | sets varint | set ...
//! table      id 16 | keyspace varint | keyspace name | name | version varint | definition | columns
//! file       as in the store's manifest
//! set        keyspace varint | vnode varint | received set
//! ```

use std::path::{Path, PathBuf};

use bytes::Bytes;
use uuid::Uuid;

use super::{Cause, Snapshot, TableInfo, TableLabel, check_name};
use crate::codec::frame::{Framed, put_frame, read_frame};
use crate::codec::varint::{Reader, put_bytes, put_varint};
use crate::commitlog::Position;
use crate::model::{Identity, KeyspaceId, NodeId, TableId, Vnode, VnodeBits};
use crate::received::{ReceivedSet, ReceivedSets};
use crate::sstable::{SstableMeta, put_columns, read_columns};
use crate::vfs::Vfs;
use crate::{Corrupt, Error, Result};

const MAGIC: &[u8; 8] = b"TRFLSNP1";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 12;

/// More than any manifest grows to; a longer file is something else.
const FILE_MAX_BYTES: u64 = 1 << 30;

/// Fewest bytes of a table, a file and a set: no count is believed that the bytes cannot hold.
const TABLE_LEAST_BYTES: usize = 22;
const FILE_LEAST_BYTES: usize = 81;
const SET_LEAST_BYTES: usize = 3;

/// Where the manifest of a snapshot is, in its directory.
pub fn path(directory: &Path) -> PathBuf {
    directory.join("SNAPSHOT")
}

/// Reads the manifest in a snapshot's directory; `None` if there is none.
pub fn read(vfs: &dyn Vfs, directory: &Path) -> Result<Option<Snapshot>> {
    let path = path(directory);
    if !vfs.exists(&path)? {
        return Ok(None);
    }
    let file = vfs.open(&path)?;
    let len = file.len()?;
    if !(HEADER_BYTES as u64..FILE_MAX_BYTES).contains(&len) {
        return Err(Corrupt::new("snapshot", format!("{len} bytes is not its length")).at(&path, 0).into());
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(&mut bytes, 0)?;
    decode(&path, &Bytes::from(bytes)).map(Some).map_err(|error| error.in_file(&path, 0))
}

fn decode(path: &Path, bytes: &Bytes) -> Result<Snapshot> {
    let mut header = Reader::new("snapshot", bytes.slice(..HEADER_BYTES));
    if header.array::<8>()? != *MAGIC {
        return Err(header.corrupt("the magic does not stand at its beginning").into());
    }
    let found = header.u32()?;
    if found != VERSION {
        let what = "snapshot";
        return Err(Error::Version { what, file: path.to_owned(), found, oldest: VERSION, newest: VERSION });
    }
    let Framed::Whole(payload, taken) = read_frame(&bytes.slice(HEADER_BYTES..), 0) else {
        return Err(Corrupt::new("snapshot", "its checksum does not fit").into());
    };
    if HEADER_BYTES + taken != bytes.len() {
        return Err(Corrupt::new("snapshot", "there are bytes behind its end").into());
    }
    Snapshot::decode(payload)
}

/// The whole file.
pub(super) fn encode(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    put_frame(&mut bytes, 0, &snapshot.encode());
    bytes
}

impl Snapshot {
    fn encode(&self) -> Vec<u8> {
        let mut out = self.id.as_bytes().to_vec();
        put_bytes(&mut out, self.name.as_bytes());
        out.extend(self.made_at_us.to_le_bytes());
        out.push(self.cause.code());
        out.extend(self.owner.cluster.as_bytes());
        out.extend(self.owner.node.0.to_le_bytes());
        out.push(self.owner.vnode_bits.bits());
        self.position.put(&mut out);
        put_varint(&mut out, self.tables.len() as u64);
        self.tables.iter().for_each(|table| table.put(&mut out));
        put_varint(&mut out, self.files.len() as u64);
        self.files.iter().for_each(|file| file.put(&mut out));
        put_varint(&mut out, self.received.len() as u64);
        for ((keyspace, vnode), set) in &self.received {
            put_varint(&mut out, u64::from(keyspace.0));
            put_varint(&mut out, u64::from(vnode.0));
            set.encode(&mut out);
        }
        out
    }

    fn decode(payload: Bytes) -> Result<Snapshot> {
        let mut reader = Reader::new("snapshot", payload);
        let snapshot = Snapshot {
            id: Uuid::from_bytes(reader.array()?),
            name: reader.text()?,
            made_at_us: reader.i64()?,
            cause: read_cause(&mut reader)?,
            owner: read_owner(&mut reader)?,
            position: Position::read(&mut reader)?,
            tables: read_list(&mut reader, TABLE_LEAST_BYTES, TableInfo::read)?,
            files: read_list(&mut reader, FILE_LEAST_BYTES, SstableMeta::read)?,
            received: read_sets(&mut reader)?,
        };
        reader.end()?;
        snapshot.check(&reader)?;
        Ok(snapshot)
    }

    fn check(&self, reader: &Reader) -> Result<()> {
        let tables_ascend = self.tables.is_sorted_by(|one, next| one.id < next.id);
        let files_ascend = self.files.is_sorted_by(|one, next| one.id < next.id);
        let knows = |file: &SstableMeta| self.tables.binary_search_by_key(&file.table, |table| table.id).is_ok();
        if check_name(&self.name).is_err() {
            return Err(reader.corrupt("its name cannot be a name").into());
        }
        if !tables_ascend || !files_ascend {
            return Err(reader.corrupt("its tables or files are not in ascending order").into());
        }
        if !self.files.iter().all(knows) {
            return Err(reader.corrupt("it lists a file of a table that it does not list").into());
        }
        Ok(())
    }
}

impl TableInfo {
    /// Appends the table.
    pub fn put(&self, out: &mut Vec<u8>) {
        let TableLabel { keyspace, table, version, definition } = &self.label;
        out.extend(self.id.0.as_bytes());
        put_varint(out, u64::from(self.keyspace.0));
        put_bytes(out, keyspace.as_bytes());
        put_bytes(out, table.as_bytes());
        put_varint(out, *version);
        put_bytes(out, definition);
        put_columns(out, &self.columns);
    }

    /// Reads what [`TableInfo::put`] wrote.
    pub fn read(reader: &mut Reader) -> Result<TableInfo> {
        let id = TableId(Uuid::from_bytes(reader.array()?));
        let keyspace = KeyspaceId(reader.varint_u32()?);
        let label = TableLabel {
            keyspace: reader.text()?,
            table: reader.text()?,
            version: reader.varint()?,
            definition: reader.bytes()?,
        };
        Ok(TableInfo { id, keyspace, label, columns: read_columns(reader)? })
    }
}

fn read_cause(reader: &mut Reader) -> Result<Cause> {
    let code = reader.u8()?;
    let cause = Cause::ALL.into_iter().find(|cause| cause.code() == code);
    cause.ok_or_else(|| reader.corrupt(format!("no cause has number {code}")).into())
}

fn read_owner(reader: &mut Reader) -> Result<Identity> {
    let cluster = Uuid::from_bytes(reader.array()?);
    let node = NodeId(reader.u32()?);
    let bits = reader.u8()?;
    let vnode_bits = VnodeBits::new(bits).ok_or_else(|| reader.corrupt(format!("{bits} vnode bits are too many")))?;
    Ok(Identity { cluster, node, vnode_bits })
}

fn read_list<T>(
    reader: &mut Reader,
    least_bytes: usize,
    mut read: impl FnMut(&mut Reader) -> Result<T>,
) -> Result<Vec<T>> {
    (0..reader.count(least_bytes)?).map(|_| read(reader)).collect()
}

fn read_sets(reader: &mut Reader) -> Result<ReceivedSets> {
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
