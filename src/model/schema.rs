//! Keyspaces, tables and columns: what the metadata log agrees on.

use std::collections::BTreeMap;
use std::fmt;

use uuid::Uuid;

use super::compaction::CompactionOptions;
use super::types::Type;

/// A keyspace's number, given by the metadata log and never reused: a name may come back, its number does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceId(pub u32);

/// A table's identity. Dropping and making a table again gives a new one, so that nothing old can come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub Uuid);

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A column's number within its table, never reused. Order of ids is the order of cells in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub u32);

/// The columns that a table has, to tell what was written to them from what was written to dropped ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveColumns {
    /// Ascending.
    ids: Vec<ColumnId>,
}

impl LiveColumns {
    /// Those of `table`.
    pub fn of(table: &Table) -> LiveColumns {
        table.columns.iter().map(|column| column.id).collect()
    }

    /// Whether the table has this column.
    pub fn contains(&self, id: ColumnId) -> bool {
        // Ids begin at 1 and have no gap unless a column was dropped.
        let place = (id.0 as usize).checked_sub(1);
        place.and_then(|place| self.ids.get(place)) == Some(&id) || self.ids.binary_search(&id).is_ok()
    }
}

impl FromIterator<ColumnId> for LiveColumns {
    fn from_iter<I: IntoIterator<Item = ColumnId>>(ids: I) -> LiveColumns {
        let mut ids: Vec<ColumnId> = ids.into_iter().collect();
        ids.sort_unstable();
        LiveColumns { ids }
    }
}

/// A set of tables that are replicated alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyspace {
    /// Its number.
    pub id: KeyspaceId,
    /// 1..=48 characters of `[A-Za-z0-9_]`.
    pub name: String,
    /// Copies per region, each at most the number of that region's zones; empty: one copy per zone in every region.
    pub replication: BTreeMap<String, u32>,
}

/// One table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its identity.
    pub id: TableId,
    /// The keyspace it lives in.
    pub keyspace: KeyspaceId,
    /// 1..=192 characters of `[A-Za-z0-9_]`.
    pub name: String,
    /// 1 when made, one more with each change.
    pub version: u64,
    /// Partition key by position, then clustering by position, then static and regular columns as declared.
    pub columns: Vec<Column>,
    /// Everything that `WITH` says.
    pub options: TableOptions,
}

/// One column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its number.
    pub id: ColumnId,
    /// 1..=192 characters; case is kept, CQL folds it unless quoted.
    pub name: String,
    /// What its values are.
    pub ty: Type,
    /// What it is for.
    pub kind: ColumnKind,
}

/// What a column is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// Part of the partition key; columns of this kind stand in `Table::columns` in key order.
    PartitionKey,
    /// Part of the clustering key; columns of this kind stand in `Table::columns` in key order.
    Clustering(Order),
    /// One value per partition.
    Static,
    /// One value per row.
    Regular,
}

/// The order of a clustering column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Small values first.
    Ascending,
    /// Large values first.
    Descending,
}

/// When a write to the table is acknowledged by a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// After the fsync that covers it.
    #[default]
    Commit,
    /// After it was written to the log; fsync follows within 10 s, so a power loss can take the last 10 s of one node.
    Periodic,
}

/// What `WITH` says about a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableOptions {
    /// Time to live of writes that name none, in seconds; 0: none.
    pub default_ttl_s: u32,
    /// How far behind its stamp a write's timestamp may lie, in seconds. Fixed when the table is made.
    pub lateness_s: u32,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// For people.
    pub comment: String,
    /// How its files are compacted.
    pub compaction: CompactionOptions,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            default_ttl_s: 0,
            lateness_s: 3_600,
            durability: Durability::Commit,
            comment: String::new(),
            compaction: CompactionOptions::default(),
        }
    }
}

impl Table {
    /// The partition key columns, in key order.
    pub fn partition_key(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.kind == ColumnKind::PartitionKey)
    }

    /// The clustering columns with their order, in key order.
    pub fn clustering(&self) -> impl Iterator<Item = (&Column, Order)> {
        self.columns.iter().filter_map(|column| match column.kind {
            ColumnKind::Clustering(order) => Some((column, order)),
            _ => None,
        })
    }

    /// The column called `name`.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The column with this number.
    pub fn column_by_id(&self, id: ColumnId) -> Option<&Column> {
        self.columns.iter().find(|column| column.id == id)
    }

    /// Types and orders of the clustering columns: what [`super::ClusteringKey`] and [`super::Bound`] are encoded by.
    pub fn clustering_types(&self) -> Vec<(Type, Order)> {
        self.clustering().map(|(column, order)| (column.ty.clone(), order)).collect()
    }

    /// Types of the partition key columns: what [`super::PartitionKey`] is encoded by.
    pub fn partition_types(&self) -> Vec<Type> {
        self.partition_key().map(|column| column.ty.clone()).collect()
    }
}
