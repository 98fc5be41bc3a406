//! What the metadata log is a log of.
//!
//! ```text
//!  format version u8 = 1 | kind u8 | body
//!
//!  kind  1 create keyspace   2 drop keyspace   3 create table   4 drop table   5 alter table   6 truncate table
//!       7 create type   8 alter type   9 drop type   10 restore begun   11 restored   12 restore given up
//!       16 node started   32 withdrawn
//!  reserved: 13-15 further schema, 17-31 nodes and their states, 33-47 moves of vnodes, 48-63 settings, 64-79 roles,
//!            80 generation
//! ```
//!
//! An entry carries everything that its effect depends on, random ids included, so that applying it is a pure function.

use std::collections::BTreeMap;

use bytes::Bytes;
use uuid::Uuid;

use super::restore::{self, RestoreBegun};
use super::{alter, parts, types};
use crate::Result;
use crate::codec::varint::{Reader, put_varint};
use crate::model::{
    AlterTable, AlterType, ColumnDefinition, CreateKeyspace, CreateTable, CreateType, DropKeyspace, DropTable,
    DropType, NodeId, TableId, TruncateTable, Vnode, VnodeBits,
};
use crate::ring::Zone;

const FORMAT_VERSION: u8 = 1;

/// One entry of the metadata log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
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
    /// ALTER TABLE
    AlterTable(AlterTable),
    /// TRUNCATE
    TruncateTable {
        /// The id that the table has from then on, random, chosen by whoever proposes.
        id: TableId,
        /// The table.
        table: TruncateTable,
    },
    /// CREATE TYPE
    CreateType(CreateType),
    /// ALTER TYPE
    AlterType(AlterType),
    /// DROP TYPE
    DropType(DropType),
    /// Tables come back, and are open to nobody until they are restored.
    RestoreBegun(RestoreBegun),
    /// All nodes have loaded what a restore brings: its tables are as any other.
    Restored(Uuid),
    /// A restore will not be finished: what it has made goes.
    RestoreGivenUp(Uuid),
    /// A node has taken up its identity: from now on an empty directory that claims its address has lost data.
    NodeStarted(NodeId),
    /// A node has lost something of what it told of these vnodes. Their placements get the next number, so that
    /// whatever it told, acknowledged or promised before counts no more, wherever it still is on its way.
    Withdrawn {
        /// The node.
        node: NodeId,
        /// The vnodes, each with the number of its placement as the node knows it: where there is a higher one by now
        /// nothing it told counts already.
        vnodes: BTreeMap<Vnode, u64>,
    },
}

/// How a cluster begins. Not an entry: whoever decides it hands the first state itself to the others.
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
            Entry::CreateKeyspace(CreateKeyspace { name, replication, if_not_exists }) => {
                out.push(1);
                parts::put_text(&mut out, name);
                parts::put_replication(&mut out, replication);
                out.push(u8::from(*if_not_exists));
            }
            Entry::DropKeyspace(DropKeyspace { name, if_exists }) => {
                out.push(2);
                parts::put_text(&mut out, name);
                out.push(u8::from(*if_exists));
            }
            Entry::CreateTable { id, table } => {
                out.push(3);
                out.extend_from_slice(id.0.as_bytes());
                put_table(&mut out, table);
            }
            Entry::DropTable(DropTable { keyspace, name, if_exists }) => {
                out.push(4);
                parts::put_text(&mut out, keyspace);
                parts::put_text(&mut out, name);
                out.push(u8::from(*if_exists));
            }
            Entry::AlterTable(ask) => {
                out.push(5);
                alter::put(&mut out, ask);
            }
            Entry::TruncateTable { id, table: TruncateTable { keyspace, name } } => {
                out.push(6);
                out.extend_from_slice(id.0.as_bytes());
                parts::put_text(&mut out, keyspace);
                parts::put_text(&mut out, name);
            }
            Entry::CreateType(ask) => {
                out.push(7);
                types::put_create(&mut out, ask);
            }
            Entry::AlterType(ask) => {
                out.push(8);
                types::put_alter(&mut out, ask);
            }
            Entry::DropType(DropType { keyspace, name, if_exists }) => {
                out.push(9);
                parts::put_text(&mut out, keyspace);
                parts::put_text(&mut out, name);
                out.push(u8::from(*if_exists));
            }
            Entry::RestoreBegun(begun) => restore::put_begun(&mut out, begun),
            Entry::Restored(restore) => restore::put_end(&mut out, 11, *restore),
            Entry::RestoreGivenUp(restore) => restore::put_end(&mut out, 12, *restore),
            Entry::NodeStarted(node) => {
                out.push(16);
                put_varint(&mut out, u64::from(node.0));
            }
            Entry::Withdrawn { node, vnodes } => {
                out.push(32);
                put_varint(&mut out, u64::from(node.0));
                put_varint(&mut out, vnodes.len() as u64);
                for (vnode, placement) in vnodes {
                    put_varint(&mut out, u64::from(vnode.0));
                    put_varint(&mut out, *placement);
                }
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
            1 => Entry::CreateKeyspace(CreateKeyspace {
                name: reader.text()?,
                replication: parts::replication(&mut reader)?,
                if_not_exists: parts::flag(&mut reader)?,
            }),
            2 => Entry::DropKeyspace(DropKeyspace { name: reader.text()?, if_exists: parts::flag(&mut reader)? }),
            3 => Entry::CreateTable { id: TableId(parts::uuid(&mut reader)?), table: table(&mut reader)? },
            4 => Entry::DropTable(DropTable {
                keyspace: reader.text()?,
                name: reader.text()?,
                if_exists: parts::flag(&mut reader)?,
            }),
            5 => Entry::AlterTable(alter::read(&mut reader)?),
            6 => Entry::TruncateTable {
                id: TableId(parts::uuid(&mut reader)?),
                table: TruncateTable { keyspace: reader.text()?, name: reader.text()? },
            },
            7 => Entry::CreateType(types::create(&mut reader)?),
            8 => Entry::AlterType(types::alter(&mut reader)?),
            9 => Entry::DropType(DropType {
                keyspace: reader.text()?,
                name: reader.text()?,
                if_exists: parts::flag(&mut reader)?,
            }),
            10 => Entry::RestoreBegun(restore::begun(&mut reader)?),
            11 => Entry::Restored(parts::uuid(&mut reader)?),
            12 => Entry::RestoreGivenUp(parts::uuid(&mut reader)?),
            16 => Entry::NodeStarted(NodeId(reader.varint_u32()?)),
            32 => Entry::Withdrawn { node: NodeId(reader.varint_u32()?), vnodes: placements(&mut reader)? },
            other => return Err(reader.corrupt(format!("no entry has kind {other}")).into()),
        };
        reader.end()?;
        Ok(entry)
    }
}

fn put_table(out: &mut Vec<u8>, table: &CreateTable) {
    parts::put_text(out, &table.keyspace);
    parts::put_text(out, &table.name);
    put_columns(out, &table.columns);
    parts::put_options(out, &table.options);
    out.push(u8::from(table.if_not_exists));
}

pub(super) fn put_columns(out: &mut Vec<u8>, columns: &[ColumnDefinition]) {
    put_varint(out, columns.len() as u64);
    for column in columns {
        parts::put_text(out, &column.name);
        parts::put_column_nature(out, &column.ty, column.kind);
    }
}

pub(super) fn columns(reader: &mut Reader) -> Result<Vec<ColumnDefinition>> {
    parts::list(reader, |reader| {
        let name = reader.text()?;
        let (ty, kind) = parts::column_nature(reader)?;
        Ok(ColumnDefinition { name, ty, kind })
    })
}

fn placements(reader: &mut Reader) -> Result<BTreeMap<Vnode, u64>> {
    parts::ascending(reader, |reader| Ok((Vnode(reader.varint_u32()?), reader.varint()?)))
}

fn table(reader: &mut Reader) -> Result<CreateTable> {
    Ok(CreateTable {
        keyspace: reader.text()?,
        name: reader.text()?,
        columns: columns(reader)?,
        options: parts::options(reader)?,
        if_not_exists: parts::flag(reader)?,
    })
}
