//! Changes of the schema, as they are asked for: parsed from words or received in a request, not yet checked against
//! what exists. The metadata log turns them into [`super::Keyspace`]s and [`super::Table`]s, or refuses them.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::compaction::CompactionOptions;
use super::schema::{ColumnKind, Durability, TableOptions};
use super::types::Type;
use super::usertype::{Field, UserType};

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
    /// ALTER TABLE
    AlterTable(AlterTable),
    /// TRUNCATE
    TruncateTable(TruncateTable),
    /// CREATE TYPE
    CreateType(CreateType),
    /// ALTER TYPE
    AlterType(AlterType),
    /// DROP TYPE
    DropType(DropType),
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

/// Changes a table: first columns are renamed, then dropped, then added, then options set; all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlterTable {
    /// The keyspace's name.
    pub keyspace: String,
    /// The table's name.
    pub name: String,
    /// The version of the table that the change is meant for; `None`: whatever it is.
    pub expected_version: Option<NonZeroU64>,
    /// Columns of the primary key that get another name: old and new.
    pub rename: Vec<(String, String)>,
    /// Static and regular columns that go, with all that was ever written to them. A column of the same name that is added
    /// afterwards, or by the same change, is another column and begins empty.
    pub drop: Vec<String>,
    /// Static and regular columns that come, behind those there are.
    pub add: Vec<ColumnDefinition>,
    /// Options that are set anew.
    pub set: OptionChanges,
    /// Whether it is as good if there is no such table.
    pub if_exists: bool,
}

/// Options of a table that are set anew; what is `None` stays. `lateness` is fixed when the table is made: what was
/// reconciled or purged by it cannot be taken back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OptionChanges {
    /// See [`TableOptions::default_ttl_s`]; what was written before keeps its own.
    pub default_ttl_s: Option<u32>,
    /// See [`TableOptions::durability`].
    pub durability: Option<Durability>,
    /// See [`TableOptions::comment`].
    pub comment: Option<String>,
    /// See [`TableOptions::compaction`].
    pub compaction: Option<CompactionOptions>,
}

impl OptionChanges {
    /// The options after the change.
    pub fn apply_to(&self, options: &TableOptions) -> TableOptions {
        let OptionChanges { default_ttl_s, durability, comment, compaction } = self;
        TableOptions {
            default_ttl_s: default_ttl_s.unwrap_or(options.default_ttl_s),
            durability: durability.unwrap_or(options.durability),
            comment: comment.as_ref().unwrap_or(&options.comment).clone(),
            compaction: compaction.as_ref().unwrap_or(&options.compaction).clone(),
            lateness_s: options.lateness_s,
        }
    }
}

/// Empties a table: it keeps its name, columns and options, and gets a new identity, so that nothing that was written
/// before can come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TruncateTable {
    /// The keyspace's name.
    pub keyspace: String,
    /// The table's name.
    pub name: String,
}

/// Makes a user-defined type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateType {
    /// The type; its fields only name other user-defined types.
    pub definition: UserType,
    /// Whether an existing type of that name, of whatever fields, is as good.
    pub if_not_exists: bool,
}

/// Changes a user-defined type, and with it every table and type that uses it: first fields are renamed, then added.
/// A field is never taken away, since its place in stored values stays taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlterType {
    /// The keyspace's name.
    pub keyspace: String,
    /// The type's name.
    pub name: String,
    /// Fields that get another name: old and new.
    pub rename: Vec<(String, String)>,
    /// Fields that come, behind those there are; values that were written before have null there.
    pub add: Vec<Field>,
}

/// Drops a user-defined type that nothing uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropType {
    /// The keyspace's name.
    pub keyspace: String,
    /// The type's name.
    pub name: String,
    /// Whether it is as good if there is none.
    pub if_exists: bool,
}
