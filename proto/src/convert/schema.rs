//! Keyspaces, tables and changes of the schema.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use bytes::Bytes;
use trefoil::model::ddl::{
    AlterTable, AlterType, ColumnDefinition, CreateKeyspace, CreateTable, CreateType, DdlStatement, DropKeyspace,
    DropTable, DropType, OptionChanges, TruncateTable,
};
use trefoil::model::types::UnknownType;
use trefoil::model::usertype::UserTypes;
use trefoil::model::{
    Column as ModelColumn, ColumnId, ColumnKind as ModelKind, CompactionOptions, Durability as ModelDurability,
    Keyspace as ModelKeyspace, KeyspaceId, Order, Table as ModelTable, TableId, TableOptions as ModelOptions,
};
use uuid::Uuid;

use super::{Result, types};
use crate::v1::ddl::Op;
use crate::v1::{self, Column, ColumnKind, Ddl, Durability, InvalidDetail, Keyspace, Table, TableOptions, TableRef};

/// The wire form of a keyspace.
pub fn keyspace(keyspace: &ModelKeyspace) -> Keyspace {
    Keyspace { name: keyspace.name.clone(), replication: keyspace.replication.clone(), id: keyspace.id.0 }
}

/// A keyspace from its wire form.
pub fn keyspace_to_model(keyspace: Keyspace) -> ModelKeyspace {
    ModelKeyspace { id: KeyspaceId(keyspace.id), name: keyspace.name, replication: keyspace.replication }
}

/// The wire form of a table.
pub fn table(keyspace: &str, table: &ModelTable) -> Table {
    Table {
        keyspace: keyspace.to_owned(),
        name: table.name.clone(),
        id: table_id(table.id),
        version: table.version,
        columns: table.columns.iter().map(column).collect(),
        options: Some(options(&table.options)),
        keyspace_id: table.keyspace.0,
    }
}

/// A table from its wire form, as a client receives it, with the user-defined types that came with it.
pub fn table_to_model(table: Table, known: &UserTypes) -> Result<ModelTable> {
    let place = |invalid: InvalidDetail| invalid.table(&table.keyspace, &table.name);
    let id = table_id_to_model(&table.id).map_err(place)?;
    let columns = table
        .columns
        .into_iter()
        .map(|column| {
            let id = ColumnId(column.id);
            let ColumnDefinition { name, ty, kind } = column_to_model(column, &table.keyspace)?;
            let unknown = |unknown: UnknownType| InvalidDetail::new(unknown.to_string()).column(&name);
            let ty = ty.resolved(known).map_err(unknown)?;
            Ok(ModelColumn { id, name, ty, kind })
        })
        .collect::<Result<_>>()
        .map_err(place)?;
    let options = options_to_model(table.options.unwrap_or_default()).map_err(place)?;
    let keyspace = KeyspaceId(table.keyspace_id);
    Ok(ModelTable { id, keyspace, name: table.name, version: table.version, columns, options })
}

/// The wire form of a table's id.
pub fn table_id(id: TableId) -> Bytes {
    Bytes::copy_from_slice(id.0.as_bytes())
}

/// A table's id from its wire form.
pub fn table_id_to_model(id: &[u8]) -> Result<TableId> {
    Uuid::from_slice(id)
        .map(TableId)
        .map_err(|_| InvalidDetail::new(format!("a table id of {} bytes; it has 16", id.len())))
}

/// Whether the caller's view of a table, as far as it says, is that of `table`.
pub fn fits(reference: &TableRef, table: &ModelTable) -> bool {
    (reference.id.is_empty() || reference.id.as_ref() == table.id.0.as_bytes())
        && (reference.version == 0 || reference.version == table.version)
}

/// The wire form of a column.
pub fn column(column: &ModelColumn) -> Column {
    let (kind, descending) = kind(column.kind);
    Column {
        name: column.name.clone(),
        r#type: Some(types::ty(&column.ty)),
        kind: kind.into(),
        descending,
        id: column.id.0,
    }
}

fn kind(kind: ModelKind) -> (ColumnKind, bool) {
    match kind {
        ModelKind::PartitionKey => (ColumnKind::PartitionKey, false),
        ModelKind::Clustering(order) => (ColumnKind::Clustering, order == Order::Descending),
        ModelKind::Static => (ColumnKind::Static, false),
        ModelKind::Regular => (ColumnKind::Regular, false),
    }
}

fn column_to_model(column: Column, keyspace: &str) -> Result<ColumnDefinition> {
    let fault = |reason: &str| InvalidDetail::new(reason).column(&column.name);
    let ty = column.r#type.clone().unwrap_or_default();
    let ty = types::ty_to_model(ty, keyspace).map_err(|invalid| invalid.column(&column.name))?;
    let kind = match column.kind() {
        ColumnKind::PartitionKey => ModelKind::PartitionKey,
        ColumnKind::Clustering if column.descending => ModelKind::Clustering(Order::Descending),
        ColumnKind::Clustering => ModelKind::Clustering(Order::Ascending),
        ColumnKind::Static => ModelKind::Static,
        ColumnKind::Regular => ModelKind::Regular,
        ColumnKind::Unspecified => return Err(fault("has no known kind")),
    };
    if column.descending && kind != ModelKind::Clustering(Order::Descending) {
        return Err(fault("is descending but not a clustering column"));
    }
    Ok(ColumnDefinition { name: column.name, ty, kind })
}

fn options(options: &ModelOptions) -> TableOptions {
    TableOptions {
        default_ttl_s: options.default_ttl_s,
        lateness_s: Some(options.lateness_s),
        comment: options.comment.clone(),
        durability: durability_to_proto(options.durability).into(),
        compaction: options.compaction.to_map(),
    }
}

fn durability_to_proto(durability: ModelDurability) -> Durability {
    match durability {
        ModelDurability::Commit => Durability::Commit,
        ModelDurability::Periodic => Durability::Periodic,
    }
}

/// `None`: not said.
fn durability_to_model(durability: i32) -> Result<Option<ModelDurability>> {
    match Durability::try_from(durability) {
        Ok(Durability::Unspecified) => Ok(None),
        Ok(Durability::Commit) => Ok(Some(ModelDurability::Commit)),
        Ok(Durability::Periodic) => Ok(Some(ModelDurability::Periodic)),
        Err(_) => Err(InvalidDetail::new(format!("durability {durability} is not known"))),
    }
}

fn compaction_to_model(words: &BTreeMap<String, String>) -> Result<CompactionOptions> {
    CompactionOptions::from_map(words).map_err(|error| InvalidDetail::new(format!("of its compaction, {error}")))
}

fn options_to_model(options: TableOptions) -> Result<ModelOptions> {
    let defaults = ModelOptions::default();
    let durability = durability_to_model(options.durability)?.unwrap_or(defaults.durability);
    let compaction = compaction_to_model(&options.compaction)?;
    Ok(ModelOptions {
        default_ttl_s: options.default_ttl_s,
        lateness_s: options.lateness_s.unwrap_or(defaults.lateness_s),
        durability,
        comment: options.comment,
        compaction,
    })
}

/// The wire form of a change of the schema.
pub fn ddl(statement: &DdlStatement) -> Ddl {
    let op = match statement {
        DdlStatement::CreateKeyspace(create) => Op::CreateKeyspace(v1::CreateKeyspace {
            keyspace: Some(Keyspace { name: create.name.clone(), replication: create.replication.clone(), id: 0 }),
            if_not_exists: create.if_not_exists,
        }),
        DdlStatement::DropKeyspace(drop) => {
            Op::DropKeyspace(v1::DropKeyspace { name: drop.name.clone(), if_exists: drop.if_exists })
        }
        DdlStatement::CreateTable(create) => Op::CreateTable(v1::CreateTable {
            table: Some(Table {
                keyspace: create.keyspace.clone(),
                name: create.name.clone(),
                columns: create.columns.iter().map(column_definition).collect(),
                options: Some(options(&create.options)),
                ..Table::default()
            }),
            if_not_exists: create.if_not_exists,
        }),
        DdlStatement::DropTable(drop) => Op::DropTable(v1::DropTable {
            keyspace: drop.keyspace.clone(),
            name: drop.name.clone(),
            if_exists: drop.if_exists,
        }),
        DdlStatement::AlterTable(alter) => Op::AlterTable(alter_table(alter)),
        DdlStatement::CreateType(create) => Op::CreateType(v1::CreateType {
            r#type: Some(types::user_type(&create.definition)),
            if_not_exists: create.if_not_exists,
        }),
        DdlStatement::AlterType(alter) => Op::AlterType(v1::AlterType {
            keyspace: alter.keyspace.clone(),
            name: alter.name.clone(),
            add: types::fields(&alter.add),
            rename: renames(&alter.rename),
        }),
        DdlStatement::DropType(drop) => Op::DropType(v1::DropType {
            keyspace: drop.keyspace.clone(),
            name: drop.name.clone(),
            if_exists: drop.if_exists,
        }),
        DdlStatement::TruncateTable(truncate) => {
            Op::TruncateTable(v1::TruncateTable { keyspace: truncate.keyspace.clone(), name: truncate.name.clone() })
        }
    };
    Ddl { op: Some(op) }
}

fn alter_table(alter: &AlterTable) -> v1::AlterTable {
    let AlterTable { keyspace, name, expected_version, rename, drop, add, set, if_exists } = alter;
    v1::AlterTable {
        keyspace: keyspace.clone(),
        name: name.clone(),
        expected_version: expected_version.map_or(0, NonZeroU64::get),
        add: add.iter().map(column_definition).collect(),
        drop: drop.clone(),
        rename: renames(rename),
        set_options: Some(option_changes(set)),
        if_exists: *if_exists,
    }
}

fn renames(pairs: &[(String, String)]) -> Vec<v1::RenameColumn> {
    pairs.iter().map(|(from, to)| v1::RenameColumn { from: from.clone(), to: to.clone() }).collect()
}

fn renames_to_model(renames: Vec<v1::RenameColumn>) -> Vec<(String, String)> {
    renames.into_iter().map(|rename| (rename.from, rename.to)).collect()
}

fn option_changes(set: &OptionChanges) -> v1::OptionChanges {
    let OptionChanges { default_ttl_s, durability, comment, compaction } = set;
    v1::OptionChanges {
        default_ttl_s: *default_ttl_s,
        comment: comment.clone(),
        durability: durability.map_or(Durability::Unspecified, durability_to_proto).into(),
        compaction: compaction.as_ref().map(|compaction| v1::CompactionWords { words: compaction.to_map() }),
    }
}

fn column_definition(definition: &ColumnDefinition) -> Column {
    let (kind, descending) = kind(definition.kind);
    Column {
        name: definition.name.clone(),
        r#type: Some(types::ty(&definition.ty)),
        kind: kind.into(),
        descending,
        id: 0,
    }
}

/// A change of the schema from its wire form; whether it can be made is for the metadata log to say.
pub fn ddl_to_model(ddl: Ddl) -> Result<DdlStatement> {
    match ddl.op {
        Some(Op::CreateKeyspace(create)) => {
            let keyspace = create.keyspace.ok_or_else(|| InvalidDetail::new("the keyspace is missing"))?;
            Ok(DdlStatement::CreateKeyspace(CreateKeyspace {
                name: keyspace.name,
                replication: keyspace.replication,
                if_not_exists: create.if_not_exists,
            }))
        }
        Some(Op::DropKeyspace(drop)) => {
            Ok(DdlStatement::DropKeyspace(DropKeyspace { name: drop.name, if_exists: drop.if_exists }))
        }
        Some(Op::CreateTable(create)) => create_table(create),
        Some(Op::DropTable(drop)) => Ok(DdlStatement::DropTable(DropTable {
            keyspace: drop.keyspace,
            name: drop.name,
            if_exists: drop.if_exists,
        })),
        Some(Op::AlterTable(alter)) => alter_table_to_model(alter),
        Some(Op::CreateType(create)) => {
            let definition = create.r#type.ok_or_else(|| InvalidDetail::new("the type is missing"))?;
            let definition = types::user_type_to_model(definition)?;
            Ok(DdlStatement::CreateType(CreateType { definition, if_not_exists: create.if_not_exists }))
        }
        Some(Op::AlterType(alter)) => {
            let add = types::fields_to_model(alter.add, &alter.keyspace, &alter.name)?;
            let (keyspace, name, rename) = (alter.keyspace, alter.name, renames_to_model(alter.rename));
            Ok(DdlStatement::AlterType(AlterType { keyspace, name, rename, add }))
        }
        Some(Op::DropType(drop)) => {
            Ok(DdlStatement::DropType(DropType { keyspace: drop.keyspace, name: drop.name, if_exists: drop.if_exists }))
        }
        Some(Op::TruncateTable(truncate)) => {
            Ok(DdlStatement::TruncateTable(TruncateTable { keyspace: truncate.keyspace, name: truncate.name }))
        }
        None => Err(InvalidDetail::new("the change of the schema is missing")),
    }
}

fn alter_table_to_model(alter: v1::AlterTable) -> Result<DdlStatement> {
    let place = |invalid: InvalidDetail| invalid.table(&alter.keyspace, &alter.name);
    let add = alter.add.into_iter().map(|column| column_to_model(column, &alter.keyspace));
    let add: Vec<_> = add.collect::<Result<_>>().map_err(place)?;
    let set = option_changes_to_model(alter.set_options.unwrap_or_default()).map_err(place)?;
    if add.is_empty() && alter.drop.is_empty() && alter.rename.is_empty() && set == OptionChanges::default() {
        return Err(place(InvalidDetail::new("the alteration changes nothing")));
    }
    Ok(DdlStatement::AlterTable(AlterTable {
        expected_version: NonZeroU64::new(alter.expected_version),
        rename: renames_to_model(alter.rename),
        drop: alter.drop,
        add,
        set,
        if_exists: alter.if_exists,
        keyspace: alter.keyspace,
        name: alter.name,
    }))
}

fn option_changes_to_model(set: v1::OptionChanges) -> Result<OptionChanges> {
    Ok(OptionChanges {
        default_ttl_s: set.default_ttl_s,
        durability: durability_to_model(set.durability)?,
        comment: set.comment,
        compaction: set.compaction.map(|compaction| compaction_to_model(&compaction.words)).transpose()?,
    })
}

fn create_table(create: v1::CreateTable) -> Result<DdlStatement> {
    let table = create.table.ok_or_else(|| InvalidDetail::new("the table is missing"))?;
    let place = |invalid: InvalidDetail| invalid.table(&table.keyspace, &table.name);
    let columns = table.columns.into_iter().map(|column| column_to_model(column, &table.keyspace));
    let columns = columns.collect::<Result<_>>().map_err(place)?;
    let options = options_to_model(table.options.unwrap_or_default()).map_err(place)?;
    Ok(DdlStatement::CreateTable(CreateTable {
        keyspace: table.keyspace,
        name: table.name,
        columns,
        options,
        if_not_exists: create.if_not_exists,
    }))
}
