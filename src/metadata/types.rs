//! CREATE, ALTER and DROP TYPE: their bytes in the log, and what they make of the types and of the tables made of them.
//!
//! ```text
//! create   keyspace text | name text | fields varint | (name text | type) ... | if not exists u8
//! alter    keyspace text | name text | renames varint | (old text | new text) ... | added varint | (name text | type) ...
//! ```
//!
//! In entries and snapshots a type only names others. In the state every type, and every column, knows the fields of all
//! that it is made of: a change of one type is carried on to whatever uses it, and raises the version of tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::apply::{Applied, Verdict, absent, already, no_keyspace, room_for_one};
use super::refusal::{Reason, Refusal};
use super::validate::{self, TYPES_MAX};
use super::{ClusterState, KnownTable, parts};
use crate::codec::types::{UserTypes as Said, put_fields, take_fields, take_type};
use crate::codec::varint::{Reader, put_varint};
use crate::model::usertype::resolved;
use crate::model::{
    AlterType, Column, ColumnKind, CreateType, DropType, Field, Table, TableId, Type, UserType, UserTypes,
};
use crate::{Error, Result};

type Refusable<T> = std::result::Result<T, Refusal>;

/// Appends the body of an entry that makes a type.
pub(super) fn put_create(out: &mut Vec<u8>, ask: &CreateType) {
    put_definition(out, &ask.definition);
    out.push(u8::from(ask.if_not_exists));
}

/// Reads what [`put_create`] wrote.
pub(super) fn create(reader: &mut Reader) -> Result<CreateType> {
    Ok(CreateType { definition: definition(reader)?, if_not_exists: parts::flag(reader)? })
}

/// Appends a type whose fields only name others.
pub(super) fn put_definition(out: &mut Vec<u8>, definition: &UserType) {
    parts::put_text(out, &definition.keyspace);
    parts::put_text(out, &definition.name);
    put_fields(out, &definition.fields, Said::Named);
}

/// Reads what [`put_definition`] wrote.
pub(super) fn definition(reader: &mut Reader) -> Result<UserType> {
    Ok(UserType { keyspace: reader.text()?, name: reader.text()?, fields: take_fields(reader, Said::Named)? })
}

/// Appends the body of an entry that changes a type.
pub(super) fn put_alter(out: &mut Vec<u8>, ask: &AlterType) {
    let AlterType { keyspace, name, rename, add } = ask;
    parts::put_text(out, keyspace);
    parts::put_text(out, name);
    put_varint(out, rename.len() as u64);
    for (old, new) in rename {
        parts::put_text(out, old);
        parts::put_text(out, new);
    }
    put_fields(out, add, Said::Named);
}

/// Reads what [`put_alter`] wrote.
pub(super) fn alter(reader: &mut Reader) -> Result<AlterType> {
    Ok(AlterType {
        keyspace: reader.text()?,
        name: reader.text()?,
        rename: parts::list(reader, |reader| Ok((reader.text()?, reader.text()?)))?,
        add: parts::list(reader, |reader| Ok(Field { name: reader.text()?, ty: take_type(reader, Said::Named)? }))?,
    })
}

impl ClusterState {
    pub(super) fn create_type(&mut self, ask: &CreateType) -> Verdict {
        let UserType { keyspace, name, .. } = &ask.definition;
        if !self.names.contains_key(keyspace) {
            return Err(no_keyspace(keyspace));
        }
        let subject = subject(keyspace, name);
        if self.types.contains_key(&(keyspace.clone(), name.clone())) {
            return already(ask.if_not_exists, subject);
        }
        room_for_one(self.types.len(), TYPES_MAX, "user-defined types", subject.clone())?;
        validate::user_type(&subject, &ask.definition)?;
        let definition = ask.definition.resolved(&self.types).map_err(|unknown| {
            Refusal::new(Reason::UnknownType, subject.as_str(), format!("one of its fields is made of it: {unknown}"))
        })?;
        possible(&subject, &definition)?;
        self.types.insert((keyspace.clone(), name.clone()), Arc::new(definition));
        Ok(Applied::Changed)
    }

    pub(super) fn alter_type(&mut self, ask: &AlterType) -> Verdict {
        let subject = subject(&ask.keyspace, &ask.name);
        let known = self.find_type(&ask.keyspace, &ask.name)?;
        let definition = altered(&known, ask, &subject)?;
        if definition.fields == known.fields {
            return Ok(Applied::AlreadySo);
        }
        if !ask.add.is_empty() {
            self.not_in_a_key(&known, &subject)?;
        }
        validate::user_type(&subject, &definition)?;
        let others = self.types.values().filter(|other| !is_same(other, &known)).map(|other| UserType::clone(other));
        let types = resolved(others.chain([definition]).collect()).map_err(|unknown| {
            let explanation =
                format!("a field would be of a type that is not there, or made of the type itself: {unknown}");
            Refusal::new(Reason::UnknownType, subject.as_str(), explanation)
        })?;
        types.values().try_for_each(|other| possible(&subject, other))?;
        let tables = self.tables_with(&types, &subject)?;
        self.tables.extend(tables);
        self.types = types;
        Ok(Applied::Changed)
    }

    pub(super) fn drop_type(&mut self, ask: &DropType) -> Verdict {
        let known = match self.find_type(&ask.keyspace, &ask.name) {
            Ok(known) => known,
            Err(refusal) => return absent(ask.if_exists, refusal),
        };
        let in_use = |user: String| {
            let explanation = format!("{user} is made of it; drop or change that first");
            Err(Refusal::new(Reason::InUse, subject(&ask.keyspace, &ask.name), explanation))
        };
        let others = self.types.values().filter(|other| !is_same(other, &known));
        for other in others {
            if let Some(field) = other.fields.iter().find(|field| holds(&field.ty, &known)) {
                return in_use(format!("field {} of type {}.{}", field.name, other.keyspace, other.name));
            }
        }
        for table in self.tables() {
            if let Some(column) = table.columns.iter().find(|column| holds(&column.ty, &known)) {
                return in_use(format!("column {} of table {}.{}", column.name, ask.keyspace, table.name));
            }
        }
        self.types.remove(&(known.keyspace.clone(), known.name.clone()));
        Ok(Applied::Changed)
    }

    fn find_type(&self, keyspace: &str, name: &str) -> Refusable<Arc<UserType>> {
        if !self.names.contains_key(keyspace) {
            return Err(no_keyspace(keyspace));
        }
        self.types.get(&(keyspace.to_owned(), name.to_owned())).cloned().ok_or_else(|| {
            Refusal::new(Reason::UnknownType, subject(keyspace, name), "there is no such user-defined type")
        })
    }

    /// Keys that were written with fewer fields would be other bytes than the same keys written with more.
    fn not_in_a_key(&self, known: &UserType, subject: &str) -> Refusable<()> {
        let is_key = |column: &&Column| matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering(_));
        for table in self.tables() {
            if let Some(column) = table.columns.iter().filter(is_key).find(|column| holds(&column.ty, known)) {
                let (table, column) = (&table.name, &column.name);
                let explanation = format!(
                    "no field can be added: column {column} of table {}.{table}, part of its primary key, is made of it",
                    known.keyspace
                );
                return Err(Refusal::new(Reason::InUse, subject, explanation));
            }
        }
        Ok(())
    }

    /// The tables that are other ones by these types.
    fn tables_with(&self, types: &UserTypes, subject: &str) -> Refusable<Vec<(TableId, KnownTable)>> {
        let mut changed = Vec::new();
        for (id, KnownTable { table, next_column }) in &self.tables {
            let mut columns = table.columns.clone();
            for column in &mut columns {
                // Whatever a column is made of is among the types still.
                column.ty = column.ty.resolved(types).map_err(|unknown| {
                    Refusal::new(Reason::UnknownType, subject, format!("column {}: {unknown}", column.name))
                })?;
                if let Some(why) = column.ty.refused() {
                    let explanation = format!("column {} of table {} could not be: {why}", column.name, table.name);
                    return Err(Refusal::new(Reason::BadType, subject, explanation));
                }
            }
            if columns != table.columns {
                let version = table.version.saturating_add(1);
                let table = Arc::new(Table { version, columns, ..Table::clone(table) });
                changed.push((*id, KnownTable { table, next_column: *next_column }));
            }
        }
        Ok(changed)
    }

    /// Every type lies in a keyspace, and types and columns know the fields of what they are made of.
    pub(super) fn check_types(&self) -> Result<()> {
        let broken = |reason: String| Err(Error::invalid("cluster state", reason));
        for ((keyspace, name), definition) in &self.types {
            if !self.names.contains_key(keyspace) {
                return broken(format!("type {name} lies in no keyspace"));
            }
            if (keyspace, name) != (&definition.keyspace, &definition.name) {
                return broken(format!("type {name} is kept under another name"));
            }
            if definition.resolved(&self.types).ok().as_ref() != Some(&**definition) {
                return broken(format!("type {name} does not know what it is made of"));
            }
        }
        for table in self.tables() {
            if let Some(column) =
                table.columns.iter().find(|column| column.ty.resolved(&self.types).ok().as_ref() != Some(&column.ty))
            {
                return broken(format!("column {} of table {} does not know its type", column.name, table.name));
            }
        }
        Ok(())
    }
}

fn subject(keyspace: &str, name: &str) -> String {
    format!("type {keyspace}.{name}")
}

fn is_same(one: &UserType, other: &UserType) -> bool {
    (&one.keyspace, &one.name) == (&other.keyspace, &other.name)
}

/// Whether `ty` is `known` or made of it.
fn holds(ty: &Type, known: &UserType) -> bool {
    ty.any(&mut |part| matches!(part, Type::User { definition, .. } if is_same(definition, known)))
}

/// Whether there can be values of the type: nothing inside of it that is not frozen, nothing too deep or too large.
fn possible(subject: &str, definition: &UserType) -> Refusable<()> {
    match (Type::User { definition: Arc::new(definition.clone()), frozen: true }).refused() {
        None => Ok(()),
        Some(why) => {
            let explanation = format!("type {}.{} could not be: {why}", definition.keyspace, definition.name);
            Err(Refusal::new(Reason::BadType, subject, explanation))
        }
    }
}

fn altered(known: &UserType, ask: &AlterType, subject: &str) -> Refusable<UserType> {
    let mut definition = known.clone();
    let mut renamed = BTreeSet::new();
    let mut new_names = BTreeMap::new();
    for (old, new) in &ask.rename {
        let Some(at) = known.position(old) else {
            return Err(Refusal::new(Reason::UnknownColumn, subject, format!("there is no field {old}")));
        };
        if !renamed.insert(old) {
            return Err(Refusal::new(Reason::DuplicateColumn, subject, format!("field {old} is renamed twice")));
        }
        new_names.insert(at, new);
    }
    for (at, new) in new_names {
        definition.fields[at].name.clone_from(new);
    }
    definition.fields.extend(ask.add.iter().cloned());
    Ok(definition)
}
