//! One entry makes one state into the next, or is refused.
//!
//! Whether an entry fits can only be known when its turn has come, so refused entries stand in the log too: they move the
//! epoch on and change nothing else. Nothing here may depend on anything but the arguments: every node applies the same
//! entries, some of them long after the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::entry::{Birth, Entry, Member};
use super::refusal::{Reason, Refusal};
use super::validate::{KEYSPACES_MAX, TABLES_MAX};
use super::{ClusterState, Epoch, KnownTable, validate};
use crate::model::{
    Column, ColumnDefinition, ColumnId, CreateKeyspace, CreateTable, DropKeyspace, DropTable, Keyspace, KeyspaceId,
    NodeId, Table, TableId, TruncateTable, UserTypes, Vnode,
};
use crate::ring::{Node, NodeState, Ring};

/// What an entry did that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Applied {
    /// It changed the state.
    Changed,
    /// What it asks for was so already (IF EXISTS, IF NOT EXISTS).
    AlreadySo,
}

/// How it went with an entry.
pub type Verdict = Result<Applied, Refusal>;

/// The first state of a cluster, before any entry.
pub fn birth(birth: &Birth) -> Result<ClusterState, Refusal> {
    validate::birth(birth)?;
    let member = |(at, member): (usize, &Member)| {
        let id = NodeId(at as u32 + 1);
        let Member { zone, peer_address, client_address } = member.clone();
        (id, Node { id, zone, state: NodeState::Serving, peer_address, client_address })
    };
    let nodes: BTreeMap<NodeId, Node> = birth.members.iter().enumerate().map(member).collect();
    let next_node = nodes.len() as u32 + 1;
    let ring = Ring::at_birth(birth.vnode_bits, nodes)
        .map_err(|error| Refusal::new(Reason::BadMembers, format!("cluster {}", birth.name), error.to_string()))?;
    Ok(ClusterState {
        epoch: Epoch::default(),
        cluster: birth.cluster,
        name: birth.name.clone(),
        ring: Arc::new(ring),
        keyspaces: BTreeMap::new(),
        tables: BTreeMap::new(),
        types: UserTypes::new(),
        dropped: BTreeSet::new(),
        restores: BTreeMap::new(),
        started: BTreeSet::new(),
        next_keyspace: 1,
        next_node,
        names: BTreeMap::new(),
    })
}

/// The state after `entry`, which stands in the log at `epoch`, and how it went with it.
pub fn apply(state: &ClusterState, epoch: Epoch, entry: &Entry) -> (ClusterState, Verdict) {
    let mut next = ClusterState { epoch, ..state.clone() };
    let verdict = match entry {
        Entry::CreateKeyspace(ask) => next.create_keyspace(ask),
        Entry::DropKeyspace(ask) => next.drop_keyspace(ask),
        Entry::CreateTable { id, table } => next.create_table(*id, table),
        Entry::DropTable(ask) => next.drop_table(ask),
        Entry::AlterTable(ask) => next.alter_table(ask),
        Entry::TruncateTable { id, table } => next.truncate_table(*id, table),
        Entry::CreateType(ask) => next.create_type(ask),
        Entry::AlterType(ask) => next.alter_type(ask),
        Entry::DropType(ask) => next.drop_type(ask),
        Entry::RestoreBegun(begun) => next.begin_restore(begun),
        Entry::Restored(restore) => next.end_restore(*restore),
        Entry::RestoreGivenUp(restore) => next.give_up_restore(*restore),
        Entry::NodeStarted(node) => next.node_started(*node),
        Entry::Withdrawn { node, vnodes } => next.withdrawn(*node, vnodes),
    };
    if verdict == Ok(Applied::Changed) {
        next.index_names();
    }
    (next, verdict)
}

/// Each step changes nothing unless it answers [`Applied::Changed`].
impl ClusterState {
    fn create_keyspace(&mut self, ask: &CreateKeyspace) -> Verdict {
        validate::keyspace_name(&ask.name)?;
        if self.names.contains_key(&ask.name) {
            return already(ask.if_not_exists, format!("keyspace {}", ask.name));
        }
        validate::replication(&ask.name, &ask.replication, &self.ring)?;
        room_for_one(self.keyspaces.len(), KEYSPACES_MAX, "keyspaces", format!("keyspace {}", ask.name))?;
        let id = KeyspaceId(self.next_keyspace);
        self.next_keyspace += 1;
        let keyspace = Keyspace { id, name: ask.name.clone(), replication: ask.replication.clone() };
        self.keyspaces.insert(id, Arc::new(keyspace));
        Ok(Applied::Changed)
    }

    fn drop_keyspace(&mut self, ask: &DropKeyspace) -> Verdict {
        let Some(names) = self.names.get(&ask.name) else {
            return absent(ask.if_exists, no_keyspace(&ask.name));
        };
        names.tables.values().try_for_each(|table| self.not_under_restore(*table))?;
        self.keyspaces.remove(&names.id);
        for id in names.tables.values() {
            self.tables.remove(id);
            self.dropped.insert(*id);
        }
        self.types.retain(|(keyspace, _), _| *keyspace != ask.name);
        Ok(Applied::Changed)
    }

    fn create_table(&mut self, id: TableId, ask: &CreateTable) -> Verdict {
        let names = self.names.get(&ask.keyspace).ok_or_else(|| no_keyspace(&ask.keyspace))?;
        let subject = format!("table {}.{}", ask.keyspace, ask.name);
        if names.tables.contains_key(&ask.name) {
            return already(ask.if_not_exists, subject);
        }
        let columns = with_types(&subject, &ask.keyspace, &ask.columns, &self.types)?;
        let ask = &CreateTable { columns, ..ask.clone() };
        validate::table(ask)?;
        self.never_used(id, &subject)?;
        room_for_one(self.tables.len(), TABLES_MAX, "tables", subject)?;
        let columns = ask.columns.iter().zip(1..).map(|(column, number)| Column {
            id: ColumnId(number),
            name: column.name.clone(),
            ty: column.ty.clone(),
            kind: column.kind,
        });
        let table = Table {
            id,
            keyspace: names.id,
            name: ask.name.clone(),
            version: 1,
            columns: columns.collect(),
            options: ask.options.clone(),
        };
        let next_column = table.columns.len() as u32 + 1;
        self.tables.insert(id, KnownTable { table: Arc::new(table), next_column });
        Ok(Applied::Changed)
    }

    fn drop_table(&mut self, ask: &DropTable) -> Verdict {
        let id = match self.find_table(&ask.keyspace, &ask.name) {
            Ok(id) => id,
            Err(refusal) => return absent(ask.if_exists, refusal),
        };
        self.not_under_restore(id)?;
        self.tables.remove(&id);
        self.dropped.insert(id);
        Ok(Applied::Changed)
    }

    /// The table goes on under another id. To everyone but those who ask for it by name the old one is dropped.
    fn truncate_table(&mut self, id: TableId, ask: &TruncateTable) -> Verdict {
        let old = self.find_table(&ask.keyspace, &ask.name)?;
        self.not_under_restore(old)?;
        self.never_used(id, &format!("table {}.{}", ask.keyspace, ask.name))?;
        if let Some(KnownTable { table, next_column }) = self.tables.remove(&old) {
            let table = Table { id, version: table.version.saturating_add(1), ..Table::clone(&table) };
            self.tables.insert(id, KnownTable { table: Arc::new(table), next_column });
            self.dropped.insert(old);
        }
        Ok(Applied::Changed)
    }

    /// The table of this name, or why there is none.
    pub(super) fn find_table(&self, keyspace: &str, name: &str) -> Result<TableId, Refusal> {
        let names = self.names.get(keyspace).ok_or_else(|| no_keyspace(keyspace))?;
        names.tables.get(name).copied().ok_or_else(|| {
            Refusal::new(Reason::UnknownTable, format!("table {keyspace}.{name}"), "there is no such table")
        })
    }

    /// A late copy of a request must not give an id a second time.
    pub(super) fn never_used(&self, id: TableId, subject: &str) -> Result<(), Refusal> {
        if self.tables.contains_key(&id) || self.dropped.contains(&id) {
            let explanation = format!("its id {id} was given to another table before");
            return Err(Refusal::new(Reason::Exists, subject, explanation));
        }
        Ok(())
    }

    fn node_started(&mut self, node: NodeId) -> Verdict {
        if self.ring.node(node).is_none() {
            return Err(Refusal::new(Reason::UnknownNode, format!("node {node}"), "there is no such node"));
        }
        Ok(if self.started.insert(node) { Applied::Changed } else { Applied::AlreadySo })
    }

    /// Only placements that are as the node knew them: a copy of the entry must not raise them a second time.
    fn withdrawn(&mut self, node: NodeId, vnodes: &BTreeMap<Vnode, u64>) -> Verdict {
        if self.ring.node(node).is_none() {
            return Err(Refusal::new(Reason::UnknownNode, format!("node {node}"), "there is no such node"));
        }
        let present = |(vnode, placement): (&Vnode, &u64)| {
            (self.ring.owns(node, *vnode) && self.ring.placement(*vnode) == *placement).then_some(*vnode)
        };
        let raised: Vec<Vnode> = vnodes.iter().filter_map(present).collect();
        if raised.is_empty() {
            return Ok(Applied::AlreadySo);
        }
        self.ring = Arc::new(self.ring.renumbered(raised));
        Ok(Applied::Changed)
    }
}

/// Columns as they are asked for, with the fields of the types that they name.
pub(super) fn with_types(
    subject: &str,
    keyspace: &str,
    columns: &[ColumnDefinition],
    known: &UserTypes,
) -> Result<Vec<ColumnDefinition>, Refusal> {
    let whole = |column: &ColumnDefinition| {
        validate::own_types(subject, keyspace, &column.ty)?;
        let ty = column.ty.resolved(known).map_err(|unknown| {
            let explanation = format!("column {} is of type {}: {unknown}", column.name, column.ty);
            Refusal::new(Reason::UnknownType, subject, explanation)
        })?;
        Ok(ColumnDefinition { ty, ..column.clone() })
    };
    columns.iter().map(whole).collect()
}

pub(super) fn already(if_not_exists: bool, subject: String) -> Verdict {
    if if_not_exists { Ok(Applied::AlreadySo) } else { Err(Refusal::new(Reason::Exists, subject, "it exists already")) }
}

pub(super) fn absent(if_exists: bool, refusal: Refusal) -> Verdict {
    if if_exists { Ok(Applied::AlreadySo) } else { Err(refusal) }
}

pub(super) fn no_keyspace(name: &str) -> Refusal {
    Refusal::new(Reason::UnknownKeyspace, format!("keyspace {name}"), "there is no such keyspace")
}

pub(super) fn room_for_one(count: usize, max: usize, things: &str, subject: String) -> Result<(), Refusal> {
    if count < max {
        return Ok(());
    }
    Err(Refusal::new(Reason::TooMany, subject, format!("the cluster has {count} {things}, the most that are possible")))
}
