//! Tables under restore: made whole by one entry, with data that every node loads for itself, and open to nobody until another
//! entry says that all is there.
//!
//! ```text
//! begun     restore 16 | plan bytes | keyspaces varint | (name text | replication) ... | types varint | type ... | tables varint | table ...
//! table     keyspace text | table, as in a snapshot          its keyspace number is that of no keyspace
//! restored  restore 16
//! given up  restore 16
//! ```
//!
//! A table comes back with the columns it had, under the same numbers, since its data speaks of columns by number; its id is new, so
//! that nothing that is said of the old one concerns it.
//!
//! **Invariant:** a table is under one restore at most, and nobody reads, writes, changes or drops it while it is. So
//! whatever a node has loaded counts as if it had been there from the beginning: no mutation bears a name for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::apply::{Applied, Verdict, already, room_for_one};
use super::refusal::{Reason, Refusal};
use super::snapshot::{put_table, table};
use super::validate::{self, KEYSPACES_MAX, TABLES_MAX};
use super::{ClusterState, KnownTable, parts, types};
use crate::Result;
use crate::codec::varint::{Reader, put_bytes, put_varint};
use crate::model::usertype::resolved;
use crate::model::{Keyspace, KeyspaceId, Table, TableId, UserType};

/// The number that a table's keyspace has in an entry: the entry tells it by name.
const NO_KEYSPACE: KeyspaceId = KeyspaceId(0);

/// What a restore makes, and where its data comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreBegun {
    /// The restore, random.
    pub restore: Uuid,
    /// Where the data comes from, in a form that whoever loads it reads.
    pub plan: Bytes,
    /// Keyspaces that are made unless they are there: names, and copies by region.
    pub keyspaces: Vec<(String, BTreeMap<String, u32>)>,
    /// Types that are made unless they are there; their fields only name other types.
    pub types: Vec<UserType>,
    /// Tables.
    pub tables: Vec<RestoredTable>,
}

/// A table that comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredTable {
    /// The name of its keyspace.
    pub keyspace: String,
    /// The table, under its new id and name; its keyspace's number means nothing.
    pub table: Table,
    /// The number of its next column.
    pub next_column: u32,
}

/// A restore under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restore {
    /// Where the data comes from.
    pub plan: Bytes,
    /// The tables under it.
    pub tables: BTreeSet<TableId>,
    /// The keyspaces that it has made.
    pub keyspaces: BTreeSet<KeyspaceId>,
}

/// Appends kind and body of an entry that ends a restore.
pub(super) fn put_end(out: &mut Vec<u8>, kind: u8, restore: Uuid) {
    out.push(kind);
    out.extend_from_slice(restore.as_bytes());
}

/// Appends kind and body of an entry that begins a restore.
pub(super) fn put_begun(out: &mut Vec<u8>, begun: &RestoreBegun) {
    out.push(10);
    out.extend_from_slice(begun.restore.as_bytes());
    put_bytes(out, &begun.plan);
    put_varint(out, begun.keyspaces.len() as u64);
    for (name, replication) in &begun.keyspaces {
        parts::put_text(out, name);
        parts::put_replication(out, replication);
    }
    put_varint(out, begun.types.len() as u64);
    begun.types.iter().for_each(|definition| types::put_definition(out, definition));
    put_varint(out, begun.tables.len() as u64);
    for RestoredTable { keyspace, table, next_column } in &begun.tables {
        parts::put_text(out, keyspace);
        let table = Arc::new(Table { keyspace: NO_KEYSPACE, ..table.clone() });
        put_table(out, &KnownTable { table, next_column: *next_column });
    }
}

/// Reads what [`put_begun`] wrote.
pub(super) fn begun(reader: &mut Reader) -> Result<RestoreBegun> {
    Ok(RestoreBegun {
        restore: parts::uuid(reader)?,
        plan: reader.bytes()?,
        keyspaces: parts::list(reader, |reader| Ok((reader.text()?, parts::replication(reader)?)))?,
        types: parts::list(reader, types::definition)?,
        tables: parts::list(reader, |reader| {
            let keyspace = reader.text()?;
            let (_, KnownTable { table, next_column }) = table(reader)?;
            if table.keyspace != NO_KEYSPACE {
                return Err(reader.corrupt("a table says the number of its keyspace").into());
            }
            Ok(RestoredTable { keyspace, table: Arc::unwrap_or_clone(table), next_column })
        })?,
    })
}

/// Appends the restores of a state.
pub(super) fn put_restores(out: &mut Vec<u8>, restores: &BTreeMap<Uuid, Restore>) {
    put_varint(out, restores.len() as u64);
    for (id, Restore { plan, tables, keyspaces }) in restores {
        out.extend_from_slice(id.as_bytes());
        put_bytes(out, plan);
        put_varint(out, tables.len() as u64);
        tables.iter().for_each(|table| out.extend_from_slice(table.0.as_bytes()));
        put_varint(out, keyspaces.len() as u64);
        keyspaces.iter().for_each(|keyspace| put_varint(out, u64::from(keyspace.0)));
    }
}

/// Reads what [`put_restores`] wrote.
pub(super) fn restores(reader: &mut Reader) -> Result<BTreeMap<Uuid, Restore>> {
    parts::ascending(reader, |reader| {
        let id = parts::uuid(reader)?;
        let plan = reader.bytes()?;
        let tables = parts::ascending(reader, |reader| Ok((TableId(parts::uuid(reader)?), ())))?;
        let keyspaces = parts::ascending(reader, |reader| Ok((KeyspaceId(reader.varint_u32()?), ())))?;
        let (tables, keyspaces) = (tables.into_keys().collect(), keyspaces.into_keys().collect());
        Ok((id, Restore { plan, tables, keyspaces }))
    })
}

impl ClusterState {
    /// The restores that are under way.
    pub fn restores(&self) -> &BTreeMap<Uuid, Restore> {
        &self.restores
    }

    /// The restore that a table is under.
    pub fn restore_of(&self, table: TableId) -> Option<Uuid> {
        self.restores.iter().find(|(_, restore)| restore.tables.contains(&table)).map(|(id, _)| *id)
    }

    pub(super) fn begin_restore(&mut self, begun: &RestoreBegun) -> Verdict {
        if self.restores.contains_key(&begun.restore) {
            return already(true, format!("restore {}", begun.restore));
        }
        let mut next = self.clone();
        let mut restore = Restore { plan: begun.plan.clone(), tables: BTreeSet::new(), keyspaces: BTreeSet::new() };
        for (name, replication) in &begun.keyspaces {
            if !next.names.contains_key(name) {
                restore.keyspaces.insert(next.restore_keyspace(name, replication)?);
                next.index_names();
            }
        }
        next.restore_types(&begun.types)?;
        for table in &begun.tables {
            restore.tables.insert(next.restore_table(table)?);
            next.index_names();
        }
        next.restores.insert(begun.restore, restore);
        *self = next;
        Ok(Applied::Changed)
    }

    fn restore_keyspace(
        &mut self,
        name: &str,
        replication: &BTreeMap<String, u32>,
    ) -> std::result::Result<KeyspaceId, Refusal> {
        validate::keyspace_name(name)?;
        validate::replication(name, replication, &self.ring)?;
        room_for_one(self.keyspaces.len(), KEYSPACES_MAX, "keyspaces", format!("keyspace {name}"))?;
        let id = KeyspaceId(self.next_keyspace);
        self.next_keyspace += 1;
        let keyspace = Keyspace { id, name: name.to_owned(), replication: replication.clone() };
        self.keyspaces.insert(id, Arc::new(keyspace));
        Ok(id)
    }

    fn restore_types(&mut self, types: &[UserType]) -> std::result::Result<(), Refusal> {
        let mut all: Vec<UserType> = self.types.values().map(|known| UserType::clone(known)).collect();
        let known: BTreeSet<(String, String)> = self.types.keys().cloned().collect();
        let is_new = |ty: &&UserType| !known.contains(&(ty.keyspace.clone(), ty.name.clone()));
        all.extend(types.iter().filter(is_new).cloned());
        let all = resolved(all)
            .map_err(|unknown| Refusal::new(Reason::UnknownType, "types of the backup", unknown.to_string()))?;
        for ty in types {
            let subject = format!("type {}.{}", ty.keyspace, ty.name);
            if !self.names.contains_key(&ty.keyspace) {
                return Err(Refusal::new(Reason::UnknownKeyspace, subject, "its keyspace is not there"));
            }
            let key = (ty.keyspace.clone(), ty.name.clone());
            let is_the_same = |there: &Arc<UserType>| ty.resolved(&all).is_ok_and(|ty| ty.fields == there.fields);
            if self.types.get(&key).is_some_and(|there| !is_the_same(there)) {
                return Err(Refusal::new(Reason::Exists, subject, "there is one of this name with other fields"));
            }
        }
        self.types = all;
        Ok(())
    }

    fn restore_table(&mut self, restored: &RestoredTable) -> std::result::Result<TableId, Refusal> {
        let RestoredTable { keyspace, table, next_column } = restored;
        let subject = format!("table {keyspace}.{}", table.name);
        let Some(names) = self.names.get(keyspace) else {
            return Err(Refusal::new(Reason::UnknownKeyspace, subject, "its keyspace is not there"));
        };
        if names.tables.contains_key(&table.name) {
            let explanation = "it exists already; a table is restored under a name that is free";
            return Err(Refusal::new(Reason::Exists, subject, explanation));
        }
        validate::table_name(&table.name)?;
        self.never_used(table.id, &subject)?;
        room_for_one(self.tables.len(), TABLES_MAX, "tables", subject.clone())?;
        let mut table = Table { keyspace: names.id, ..table.clone() };
        for column in &mut table.columns {
            column.ty = column.ty.resolved(&self.types).map_err(|unknown| {
                let explanation = format!("column {} is of type {}: {unknown}", column.name, column.ty);
                Refusal::new(Reason::UnknownType, subject.as_str(), explanation)
            })?;
        }
        let highest = table.columns.iter().map(|column| column.id.0).max().unwrap_or(0);
        if *next_column <= highest {
            return Err(Refusal::new(Reason::DuplicateColumn, subject, "a column has its number too early"));
        }
        let id = table.id;
        self.tables.insert(id, KnownTable { table: Arc::new(table), next_column: *next_column });
        Ok(id)
    }

    pub(super) fn end_restore(&mut self, restore: Uuid) -> Verdict {
        match self.restores.remove(&restore) {
            Some(_) => Ok(Applied::Changed),
            None => Ok(Applied::AlreadySo),
        }
    }

    /// What the restore has made goes; a keyspace stays if it has other tables by now.
    pub(super) fn give_up_restore(&mut self, restore: Uuid) -> Verdict {
        let Some(Restore { tables, keyspaces, .. }) = self.restores.remove(&restore) else {
            return Ok(Applied::AlreadySo);
        };
        for id in tables {
            self.tables.remove(&id);
            self.dropped.insert(id);
        }
        for id in keyspaces {
            let is_used = self.tables.values().any(|known| known.table.keyspace == id);
            if !is_used && let Some(keyspace) = self.keyspaces.remove(&id) {
                self.types.retain(|(of, _), _| *of != keyspace.name);
            }
        }
        Ok(Applied::Changed)
    }

    /// Refuses to touch a table that is under restore.
    pub(super) fn not_under_restore(&self, table: TableId) -> std::result::Result<(), Refusal> {
        let Some(restore) = self.restore_of(table) else { return Ok(()) };
        let name = self.table(table).map_or_else(|| table.to_string(), |table| table.name.clone());
        let explanation = format!("restore {restore} is loading it; wait for it, or cancel it");
        Err(Refusal::new(Reason::InUse, format!("table {name}"), explanation))
    }
}
