//! The bytes of a whole [`ClusterState`]: what a node keeps on disk and hands to peers that are far behind.
//!
//! ```text
//!  "TRFLMET1" | format version u8 | epoch | cluster | nodes | owners | placements | keyspaces | tables | dropped | started
//!             | versions 2, 3: types | version 3: restores
//! ```
//!
//! A state without restores under way is written in version 2, one without user-defined types beside in version 1.
//!
//! Fields are drawn in `docs/formats.md`. Lists that have a key ascend by it, so equal states have equal bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::restore::{put_restores, restores};
use super::{ClusterState, Epoch, KnownTable, parts, types};
use crate::codec::varint::{Reader, put_varint};
use crate::model::types::UnknownType;
use crate::model::usertype::resolved;
use crate::model::{Column, ColumnId, Keyspace, KeyspaceId, NodeId, Table, TableId, UserTypes};
use crate::ring::{Node, NodeState, Owners, Ring};
use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"TRFLMET1";
const FORMAT_VERSION: u8 = 1;
const FORMAT_VERSION_WITH_TYPES: u8 = 2;
const FORMAT_VERSION_WITH_RESTORES: u8 = 3;

impl ClusterState {
    /// The state's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let version = self.format_version();
        out.push(version);
        put_varint(&mut out, u64::from(self.epoch.generation));
        put_varint(&mut out, self.epoch.index);
        out.extend_from_slice(self.cluster.as_bytes());
        parts::put_text(&mut out, &self.name);
        put_varint(&mut out, u64::from(self.next_node));
        put_varint(&mut out, u64::from(self.next_keyspace));
        put_ring(&mut out, &self.ring);
        put_varint(&mut out, self.keyspaces.len() as u64);
        for (id, keyspace) in &self.keyspaces {
            put_varint(&mut out, u64::from(id.0));
            parts::put_text(&mut out, &keyspace.name);
            parts::put_replication(&mut out, &keyspace.replication);
        }
        put_varint(&mut out, self.tables.len() as u64);
        for known in self.tables.values() {
            put_table(&mut out, known);
        }
        put_varint(&mut out, self.dropped.len() as u64);
        for id in &self.dropped {
            out.extend_from_slice(id.0.as_bytes());
        }
        put_varint(&mut out, self.started.len() as u64);
        for node in &self.started {
            put_varint(&mut out, u64::from(node.0));
        }
        if version >= FORMAT_VERSION_WITH_TYPES {
            put_varint(&mut out, self.types.len() as u64);
            self.types.values().for_each(|definition| types::put_definition(&mut out, definition));
        }
        if version >= FORMAT_VERSION_WITH_RESTORES {
            put_restores(&mut out, &self.restores);
        }
        out
    }

    fn format_version(&self) -> u8 {
        match (self.restores.is_empty(), self.types.is_empty()) {
            (false, _) => FORMAT_VERSION_WITH_RESTORES,
            (true, false) => FORMAT_VERSION_WITH_TYPES,
            (true, true) => FORMAT_VERSION,
        }
    }

    /// What [`ClusterState::encode`] made, with its invariants checked.
    pub fn decode(bytes: Bytes) -> Result<ClusterState> {
        let mut reader = Reader::new("cluster state", bytes);
        if reader.take(MAGIC.len())?.as_ref() != MAGIC {
            return Err(reader.corrupt("it does not begin with TRFLMET1").into());
        }
        let version = reader.u8()?;
        if !(FORMAT_VERSION..=FORMAT_VERSION_WITH_RESTORES).contains(&version) {
            let reason = format!(
                "it has format version {version}, this build reads {FORMAT_VERSION} to {FORMAT_VERSION_WITH_RESTORES}"
            );
            return Err(reader.corrupt(reason).into());
        }
        let mut state = ClusterState {
            epoch: Epoch { generation: reader.varint_u32()?, index: reader.varint()? },
            cluster: parts::uuid(&mut reader)?,
            name: reader.text()?,
            next_node: reader.varint_u32()?,
            next_keyspace: reader.varint_u32()?,
            ring: Arc::new(ring(&mut reader)?),
            keyspaces: parts::ascending(&mut reader, keyspace)?,
            tables: parts::ascending(&mut reader, table)?,
            dropped: set(&mut reader, |reader| Ok(TableId(parts::uuid(reader)?)))?,
            started: set(&mut reader, |reader| Ok(NodeId(reader.varint_u32()?)))?,
            types: UserTypes::new(),
            restores: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        if version >= FORMAT_VERSION_WITH_TYPES {
            state.types = user_types(&mut reader)?;
        }
        if version >= FORMAT_VERSION_WITH_RESTORES {
            state.restores = restores(&mut reader)?;
        }
        if state.format_version() != version {
            return Err(reader.corrupt("its version is not that of what it holds").into());
        }
        reader.end()?;
        resolve_columns(&mut state).map_err(|unknown| Error::Corrupt(reader.corrupt(unknown.to_string())))?;
        state.index_names();
        state.check().map_err(|error| broken(&reader, &error))?;
        Ok(state)
    }
}

/// The definition of one table by itself, for whoever keeps its data apart from the cluster: `version u8 | table`, with no
/// next column.
pub fn encode_table(table: &Arc<Table>) -> Bytes {
    let mut out = vec![FORMAT_VERSION];
    put_table(&mut out, &KnownTable { table: table.clone(), next_column: 0 });
    out.into()
}

/// What [`encode_table`] made.
pub fn decode_table(bytes: Bytes) -> Result<Table> {
    let mut reader = Reader::new("table", bytes);
    let version = reader.u8()?;
    if version != FORMAT_VERSION {
        let reason = format!("it has format version {version}, this build reads {FORMAT_VERSION}");
        return Err(reader.corrupt(reason).into());
    }
    let (_, KnownTable { table, .. }) = table(&mut reader)?;
    reader.end()?;
    Ok(Arc::unwrap_or_clone(table))
}

/// An invariant that bytes break is a corruption, not somebody's wrong request.
fn broken(reader: &Reader, error: &Error) -> Error {
    reader.corrupt(error.to_string()).into()
}

fn put_ring(out: &mut Vec<u8>, ring: &Ring) {
    out.push(ring.vnode_bits().bits());
    put_varint(out, ring.nodes().count() as u64);
    for node in ring.nodes() {
        put_varint(out, u64::from(node.id.0));
        parts::put_zone(out, &node.zone);
        out.push(node.state.code());
        parts::put_text(out, &node.peer_address);
        parts::put_text(out, &node.client_address);
    }
    put_varint(out, ring.owners().len() as u64);
    for (zone, by_vnode) in ring.owners() {
        parts::put_zone(out, zone);
        by_vnode.iter().for_each(|id| put_varint(out, u64::from(id.0)));
    }
    ring.placements().iter().for_each(|number| put_varint(out, *number));
}

fn ring(reader: &mut Reader) -> Result<Ring> {
    let bits = parts::vnode_bits(reader)?;
    let nodes = parts::ascending(reader, node)?;
    let owners: Owners = parts::ascending(reader, |reader| {
        let zone = parts::zone(reader)?;
        let by_vnode: Result<Vec<NodeId>> = (0..bits.count()).map(|_| Ok(NodeId(reader.varint_u32()?))).collect();
        Ok((zone, by_vnode?))
    })?;
    let placements: Result<Vec<u64>> = (0..bits.count()).map(|_| reader.varint()).collect();
    Ring::new(bits, nodes, owners, placements?).map_err(|error| broken(reader, &error))
}

fn node(reader: &mut Reader) -> Result<(NodeId, Node)> {
    let id = NodeId(reader.varint_u32()?);
    let zone = parts::zone(reader)?;
    let code = reader.u8()?;
    let state =
        NodeState::from_code(code).ok_or_else(|| reader.corrupt(format!("no state of a node has number {code}")))?;
    Ok((id, Node { id, zone, state, peer_address: reader.text()?, client_address: reader.text()? }))
}

fn keyspace(reader: &mut Reader) -> Result<(KeyspaceId, Arc<Keyspace>)> {
    let id = KeyspaceId(reader.varint_u32()?);
    let keyspace = Keyspace { id, name: reader.text()?, replication: parts::replication(reader)? };
    Ok((id, Arc::new(keyspace)))
}

pub(super) fn put_table(out: &mut Vec<u8>, KnownTable { table, next_column }: &KnownTable) {
    out.extend_from_slice(table.id.0.as_bytes());
    put_varint(out, u64::from(table.keyspace.0));
    parts::put_text(out, &table.name);
    put_varint(out, table.version);
    put_varint(out, u64::from(*next_column));
    put_varint(out, table.columns.len() as u64);
    for column in &table.columns {
        put_varint(out, u64::from(column.id.0));
        parts::put_text(out, &column.name);
        parts::put_column_nature(out, &column.ty, column.kind);
    }
    parts::put_options(out, &table.options);
}

pub(super) fn table(reader: &mut Reader) -> Result<(TableId, KnownTable)> {
    let id = TableId(parts::uuid(reader)?);
    let keyspace = KeyspaceId(reader.varint_u32()?);
    let name = reader.text()?;
    let version = reader.varint()?;
    let next_column = reader.varint_u32()?;
    let columns = parts::list(reader, |reader| {
        let id = ColumnId(reader.varint_u32()?);
        let name = reader.text()?;
        let (ty, kind) = parts::column_nature(reader)?;
        Ok(Column { id, name, ty, kind })
    })?;
    let options = parts::options(reader)?;
    let table = Table { id, keyspace, name, version, columns, options };
    Ok((id, KnownTable { table: Arc::new(table), next_column }))
}

fn user_types(reader: &mut Reader) -> Result<UserTypes> {
    let named = parts::ascending(reader, |reader| {
        let definition = types::definition(reader)?;
        Ok(((definition.keyspace.clone(), definition.name.clone()), definition))
    })?;
    resolved(named.into_values().collect()).map_err(|unknown| reader.corrupt(unknown.to_string()).into())
}

/// Columns only name their types so far.
fn resolve_columns(state: &mut ClusterState) -> std::result::Result<(), UnknownType> {
    for known in state.tables.values_mut() {
        let mut table = Table::clone(&known.table);
        for column in &mut table.columns {
            column.ty = column.ty.resolved(&state.types)?;
        }
        known.table = Arc::new(table);
    }
    Ok(())
}

fn set<T: Ord + Clone>(reader: &mut Reader, mut read: impl FnMut(&mut Reader) -> Result<T>) -> Result<BTreeSet<T>> {
    Ok(parts::ascending(reader, |reader| Ok((read(reader)?, ())))?.into_keys().collect())
}
