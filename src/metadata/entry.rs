//! What the metadata log is a log of.
//!
//! ```text
//!  format version u8 = 1 | kind u8 | body
//!
//!  kind  1 birth   2 create keyspace   3 drop keyspace   4 create table   5 drop table
//!  reserved: 6-15 further schema, 16-31 nodes and their states, 32-47 moves of vnodes, 48-63 settings, 64-79 roles,
//!            80 generation
//! ```
//!
//! An entry carries everything that its effect depends on, random ids included, so that applying it is a pure function.

use bytes::Bytes;
use uuid::Uuid;

use super::parts;
use crate::Result;
use crate::codec::varint::{Reader, put_varint};
use crate::model::{ColumnDefinition, CreateKeyspace, CreateTable, DropKeyspace, DropTable, TableId, VnodeBits};
use crate::ring::Zone;

const FORMAT_VERSION: u8 = 1;

/// One entry of the metadata log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// The cluster begins. The first entry of every log, and never again.
    Birth(Birth),
    /// CREATE KEYSPACE
    CreateKeyspace(CreateKeyspace),
    /// DROP KEYSPACE, with its tables.
    DropKeyspace(DropKeyspace),
    /// CREATE TABLE
    CreateTable {
        /// The new table's id, random, chosen by whoever proposes.
        id: TableId,
        /// The table.
        table: CreateTable,
    },
    /// DROP TABLE
    DropTable(DropTable),
}

/// How a cluster begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Birth {
    /// Its id, random.
    pub cluster: Uuid,
    /// Its name, for people.
    pub name: String,
    /// Its number of vnodes, for ever.
    pub vnode_bits: VnodeBits,
    /// Its nodes. They get the ids 1, 2, ... in this order.
    pub members: Vec<Member>,
}

/// A node of a cluster that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Where it stands.
    pub zone: Zone,
    /// `host:port` where other nodes reach it.
    pub peer_address: String,
    /// `host:port` where clients reach it.
    pub client_address: String,
}

impl Entry {
    /// The entry's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT_VERSION];
        match self {
            Entry::Birth(birth) => put_birth(&mut out, birth),
            Entry::CreateKeyspace(CreateKeyspace { name, replication, if_not_exists }) => {
                out.push(2);
                parts::put_text(&mut out, name);
                parts::put_replication(&mut out, replication);
                out.push(u8::from(*if_not_exists));
            }
            Entry::DropKeyspace(DropKeyspace { name, if_exists }) => {
                out.push(3);
                parts::put_text(&mut out, name);
                out.push(u8::from(*if_exists));
            }
            Entry::CreateTable { id, table } => {
                out.push(4);
                out.extend_from_slice(id.0.as_bytes());
                put_table(&mut out, table);
            }
            Entry::DropTable(DropTable { keyspace, name, if_exists }) => {
                out.push(5);
                parts::put_text(&mut out, keyspace);
                parts::put_text(&mut out, name);
                out.push(u8::from(*if_exists));
            }
        }
        out
    }

    /// What [`Entry::encode`] made; nothing else is accepted.
    pub fn decode(bytes: Bytes) -> Result<Entry> {
        let mut reader = Reader::new("metadata entry", bytes);
        let version = reader.u8()?;
        if version != FORMAT_VERSION {
            let reason = format!("it has format version {version}, this build reads {FORMAT_VERSION}");
            return Err(reader.corrupt(reason).into());
        }
        let entry = match reader.u8()? {
            1 => Entry::Birth(birth(&mut reader)?),
            2 => Entry::CreateKeyspace(CreateKeyspace {
                name: reader.text()?,
                replication: parts::replication(&mut reader)?,
                if_not_exists: parts::flag(&mut reader)?,
            }),
            3 => Entry::DropKeyspace(DropKeyspace { name: reader.text()?, if_exists: parts::flag(&mut reader)? }),
            4 => Entry::CreateTable { id: TableId(parts::uuid(&mut reader)?), table: table(&mut reader)? },
            5 => Entry::DropTable(DropTable {
                keyspace: reader.text()?,
                name: reader.text()?,
                if_exists: parts::flag(&mut reader)?,
            }),
            other => return Err(reader.corrupt(format!("no entry has kind {other}")).into()),
        };
        reader.end()?;
        Ok(entry)
    }
}

fn put_birth(out: &mut Vec<u8>, birth: &Birth) {
    out.push(1);
    out.extend_from_slice(birth.cluster.as_bytes());
    parts::put_text(out, &birth.name);
    out.push(birth.vnode_bits.bits());
    put_varint(out, birth.members.len() as u64);
    for Member { zone, peer_address, client_address } in &birth.members {
        parts::put_zone(out, zone);
        parts::put_text(out, peer_address);
        parts::put_text(out, client_address);
    }
}

fn birth(reader: &mut Reader) -> Result<Birth> {
    Ok(Birth {
        cluster: parts::uuid(reader)?,
        name: reader.text()?,
        vnode_bits: parts::vnode_bits(reader)?,
        members: parts::list(reader, |reader| {
            Ok(Member { zone: parts::zone(reader)?, peer_address: reader.text()?, client_address: reader.text()? })
        })?,
    })
}

fn put_table(out: &mut Vec<u8>, table: &CreateTable) {
    parts::put_text(out, &table.keyspace);
    parts::put_text(out, &table.name);
    put_varint(out, table.columns.len() as u64);
    for column in &table.columns {
        parts::put_text(out, &column.name);
        parts::put_column_nature(out, column.ty, column.kind);
    }
    parts::put_options(out, &table.options);
    out.push(u8::from(table.if_not_exists));
}

fn table(reader: &mut Reader) -> Result<CreateTable> {
    Ok(CreateTable {
        keyspace: reader.text()?,
        name: reader.text()?,
        columns: parts::list(reader, |reader| {
            let name = reader.text()?;
            let (ty, kind) = parts::column_nature(reader)?;
            Ok(ColumnDefinition { name, ty, kind })
        })?,
        options: parts::options(reader)?,
        if_not_exists: parts::flag(reader)?,
    })
}
