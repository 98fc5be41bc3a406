//! Changes of the schema, as they are asked for: parsed from words or received in a request, not yet checked against
//! what exists. The metadata log turns them into [`super::Keyspace`]s and [`super::Table`]s, or refuses them.

use std::collections::BTreeMap;

use super::schema::{ColumnKind, TableOptions};
use super::types::Type;

/// One change of the schema. Every name is complete: a table always says its keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DdlStatement {
    /// CREATE KEYSPACE
    CreateKeyspace(CreateKeyspace),
    /// DROP KEYSPACE
    DropKeyspace(DropKeyspace),
    /// CREATE TABLE
    CreateTable(CreateTable),
    /// DROP TABLE
    DropTable(DropTable),
}

/// Makes a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateKeyspace {
    /// Its name.
    pub name: String,
    /// Copies per region; empty: one copy per zone in every region. See [`super::Keyspace::replication`].
    pub replication: BTreeMap<String, u32>,
    /// Whether an existing keyspace of that name, of whatever shape, is as good.
    pub if_not_exists: bool,
}

/// Drops a keyspace with all of its tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropKeyspace {
    /// Its name.
    pub name: String,
    /// Whether it is as good if there is none.
    pub if_exists: bool,
}

/// Makes a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateTable {
    /// The keyspace's name.
    pub keyspace: String,
    /// The table's name.
    pub name: String,
    /// In the order of [`super::Table::columns`]: partition key by position, clustering by position, then the others as
    /// they were declared.
    pub columns: Vec<ColumnDefinition>,
    /// Everything that `WITH` says; what it leaves out has its default.
    pub options: TableOptions,
    /// Whether an existing table of that name, of whatever shape, is as good.
    pub if_not_exists: bool,
}

/// A column of a table that is to be made: a [`super::Column`] without its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnDefinition {
    /// Its name; case counts.
    pub name: String,
    /// What its values are.
    pub ty: Type,
    /// What it is for.
    pub kind: ColumnKind,
}

/// Drops a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropTable {
    /// The keyspace's name.
    pub keyspace: String,
    /// The table's name.
    pub name: String,
    /// Whether it is as good if there is none.
    pub if_exists: bool,
}
