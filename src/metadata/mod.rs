//! What the cluster agrees on: who is in it, who owns what, which keyspaces and tables there are.
//!
//! ```text
//!  entry ──► apply(state, epoch, entry) ──► next state, verdict        pure: the same on every node, for ever
//!  (entry.rs: what is asked,   (apply.rs)     (snapshot.rs: its bytes)
//!   its bytes in the log)
//! ```
//!
//! The log itself, its votes and its files are the server's. Here an entry is bytes that somebody else has put in order,
//! and a [`ClusterState`] is what all entries up to an [`Epoch`] amount to: immutable, shared, replaced whole.
//!
//! Invariants, checked by [`ClusterState::check`] wherever a state comes from bytes: those of [`crate::ring::Ring`];
//! names are unique (keyspaces in the cluster, tables in their keyspace); every user-defined type lies in a keyspace, and
//! whatever is made of it knows its fields; every table lies in a keyspace and is not among
//! the dropped; every id is below the next one to be given.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use crate::model::{ColumnId, Keyspace, KeyspaceId, LiveColumns, NodeId, Table, TableId, UserType, UserTypes};
use crate::ring::Ring;
use crate::{Error, Result};

mod alter;
mod apply;
mod entry;
mod parts;
mod refusal;
mod restore;
mod snapshot;
#[cfg(test)]
mod tests;
mod types;
mod validate;

pub use apply::{Applied, Verdict, apply, birth};
pub use entry::{Birth, Entry, Member};
pub use refusal::{Reason, Refusal};
pub use restore::{Restore, RestoreBegun, RestoredTable};
pub use snapshot::{decode_table, encode_table};
pub use validate::{COLUMNS_MAX, KEYSPACES_MAX, NAME_MAX_CHARS, TABLES_MAX};

/// Which state of the cluster: that after the metadata entry `index` of a `generation` of the log.
///
/// The generation rises only when the log is recovered by force after its voters were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch {
    /// How often the log was recovered by force.
    pub generation: u32,
    /// The place in the log of the last entry that was applied.
    pub index: u64,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.generation, self.index)
    }
}

/// All that the metadata log has decided up to an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterState {
    epoch: Epoch,
    cluster: Uuid,
    name: String,
    ring: Arc<Ring>,
    keyspaces: BTreeMap<KeyspaceId, Arc<Keyspace>>,
    tables: BTreeMap<TableId, KnownTable>,
    /// With all fields of the types that their fields name; so are the types of columns.
    types: UserTypes,
    dropped: BTreeSet<TableId>,
    restores: BTreeMap<Uuid, Restore>,
    started: BTreeSet<NodeId>,
    next_keyspace: u32,
    next_node: u32,
    /// Derived from `keyspaces` and `tables`.
    names: BTreeMap<String, KeyspaceNames>,
}

/// A table, and what is to be remembered about it beside its present form.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KnownTable {
    table: Arc<Table>,
    /// The id of the next column, so that a dropped column's is never given again.
    next_column: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyspaceNames {
    id: KeyspaceId,
    tables: BTreeMap<String, TableId>,
}

impl ClusterState {
    /// The last entry that this state contains.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The cluster's id, given at its birth.
    pub fn cluster(&self) -> Uuid {
        self.cluster
    }

    /// The cluster's name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Nodes, zones and owners.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// All keyspaces, by ascending id.
    pub fn keyspaces(&self) -> impl Iterator<Item = &Arc<Keyspace>> {
        self.keyspaces.values()
    }

    /// One keyspace.
    pub fn keyspace(&self, id: KeyspaceId) -> Option<&Arc<Keyspace>> {
        self.keyspaces.get(&id)
    }

    /// The keyspace called `name`.
    pub fn keyspace_named(&self, name: &str) -> Option<&Arc<Keyspace>> {
        self.keyspace(self.names.get(name)?.id)
    }

    /// All tables, by ascending id.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values().map(|known| &known.table)
    }

    /// The tables of a keyspace, by ascending name.
    pub fn tables_in(&self, keyspace: &Keyspace) -> impl Iterator<Item = &Arc<Table>> {
        let names = self.names.get(&keyspace.name).filter(|names| names.id == keyspace.id);
        names.into_iter().flat_map(|names| names.tables.values()).filter_map(|id| self.table(*id))
    }

    /// All user-defined types, by ascending keyspace and name.
    pub fn types(&self) -> impl Iterator<Item = &Arc<UserType>> {
        self.types.values()
    }

    /// One table.
    pub fn table(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.get(&id).map(|known| &known.table)
    }

    /// The table called `name` in the keyspace called `keyspace`.
    pub fn table_named(&self, keyspace: &str, name: &str) -> Option<&Arc<Table>> {
        self.table(*self.names.get(keyspace)?.tables.get(name)?)
    }

    /// The number of the next column of a table. Numbers below it that none of its columns bears are those of dropped ones:
    /// what arrives for them has no effect, whereas a column from this number on is one that this node has yet to hear of.
    pub fn next_column(&self, id: TableId) -> Option<ColumnId> {
        self.tables.get(&id).map(|known| ColumnId(known.next_column))
    }

    /// The columns of a table whose cells count; `None` if that is all there ever were.
    pub fn live_columns(&self, id: TableId) -> Option<LiveColumns> {
        let KnownTable { table, next_column } = self.tables.get(&id)?;
        let none_dropped = table.columns.len() as u64 + 1 == u64::from(*next_column);
        (!none_dropped).then(|| LiveColumns::of(table))
    }

    /// Whether a table of this id once was and is no more: what arrives for it is received without effect, whereas an
    /// id that is neither here nor dropped is one that this node has yet to hear of.
    pub fn is_dropped(&self, id: TableId) -> bool {
        self.dropped.contains(&id)
    }

    /// Whether `node` has ever started with a directory of its own. Its directory must never be empty again.
    pub fn has_started(&self, node: NodeId) -> bool {
        self.started.contains(&node)
    }

    /// The invariants at the head of this file; names what does not hold.
    pub fn check(&self) -> Result<()> {
        let broken = |reason: String| Err(Error::invalid("cluster state", reason));
        for keyspace in self.keyspaces.values() {
            if keyspace.id.0 >= self.next_keyspace {
                return broken(format!("keyspace {} has number {} too early", keyspace.name, keyspace.id.0));
            }
            if self.names.get(&keyspace.name).map(|names| names.id) != Some(keyspace.id) {
                return broken(format!("two keyspaces are called {}", keyspace.name));
            }
        }
        for KnownTable { table, next_column } in self.tables.values() {
            let Some(keyspace) = self.keyspace(table.keyspace) else {
                return broken(format!("table {} lies in no keyspace", table.name));
            };
            if self.table_named(&keyspace.name, &table.name).map(|named| named.id) != Some(table.id) {
                return broken(format!("two tables of keyspace {} are called {}", keyspace.name, table.name));
            }
            if self.dropped.contains(&table.id) {
                return broken(format!("table {} is dropped and is not", table.name));
            }
            let ids: BTreeSet<u32> = table.columns.iter().map(|column| column.id.0).collect();
            if ids.len() != table.columns.len() || ids.last().is_some_and(|last| last >= next_column) {
                return broken(format!("columns of table {} share a number or have it too early", table.name));
            }
        }
        if let Some(table) =
            self.restores.values().flat_map(|restore| &restore.tables).find(|id| self.table(**id).is_none())
        {
            return broken(format!("table {table} is under restore and not there"));
        }
        self.check_types()?;
        if let Some(node) = self.started.iter().find(|node| self.ring.node(**node).is_none()) {
            return broken(format!("{node} has started and does not exist"));
        }
        match self.ring.nodes().find(|node| node.id.0 == 0 || node.id.0 >= self.next_node) {
            Some(node) => broken(format!("node {} has its number too early", node.id)),
            None => Ok(()),
        }
    }

    /// Derives `names` anew.
    fn index_names(&mut self) {
        let mut names: BTreeMap<String, KeyspaceNames> = BTreeMap::new();
        for (&id, keyspace) in &self.keyspaces {
            names.insert(keyspace.name.clone(), KeyspaceNames { id, tables: BTreeMap::new() });
        }
        for (&id, KnownTable { table, .. }) in &self.tables {
            if let Some(keyspace) = self.keyspaces.get(&table.keyspace)
                && let Some(of) = names.get_mut(&keyspace.name)
            {
                of.tables.insert(table.name.clone(), id);
            }
        }
        self.names = names;
    }
}
