//! ALTER TABLE: its bytes in the log, and what it makes of a table.
//!
//! ```text
//! body     keyspace text | name text | expected version varint (0: any) | renames varint | (old text | new text) ...
//!          | drops varint | text ... | columns varint | column ... | set u8 | [default ttl] [durability] [comment]
//!          [compaction]
//!          | if exists u8
//! set      01 default ttl varint (s)   02 durability u8 (1 commit, 2 periodic)   04 comment text   08 compaction
//! ```

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use super::apply::{Applied, Verdict, absent, with_types};
use super::refusal::{Reason, Refusal};
use super::{ClusterState, KnownTable, entry, parts, validate};
use crate::Result;
use crate::codec::varint::{Reader, put_varint};
use crate::model::{
    AlterTable, Column, ColumnDefinition, ColumnId, ColumnKind, Durability, OptionChanges, Table, UserTypes,
};

const DEFAULT_TTL: u8 = 0x01;
const DURABILITY: u8 = 0x02;
const COMMENT: u8 = 0x04;
const COMPACTION: u8 = 0x08;

/// Appends the body of the entry.
pub(super) fn put(out: &mut Vec<u8>, ask: &AlterTable) {
    let AlterTable { keyspace, name, expected_version, rename, drop, add, set, if_exists } = ask;
    parts::put_text(out, keyspace);
    parts::put_text(out, name);
    put_varint(out, expected_version.map_or(0, NonZeroU64::get));
    put_varint(out, rename.len() as u64);
    for (old, new) in rename {
        parts::put_text(out, old);
        parts::put_text(out, new);
    }
    put_varint(out, drop.len() as u64);
    drop.iter().for_each(|name| parts::put_text(out, name));
    entry::put_columns(out, add);
    put_option_changes(out, set);
    out.push(u8::from(*if_exists));
}

/// Reads what [`put`] wrote.
pub(super) fn read(reader: &mut Reader) -> Result<AlterTable> {
    Ok(AlterTable {
        keyspace: reader.text()?,
        name: reader.text()?,
        expected_version: NonZeroU64::new(reader.varint()?),
        rename: parts::list(reader, |reader| Ok((reader.text()?, reader.text()?)))?,
        drop: parts::list(reader, Reader::text)?,
        add: entry::columns(reader)?,
        set: option_changes(reader)?,
        if_exists: parts::flag(reader)?,
    })
}

fn put_option_changes(out: &mut Vec<u8>, set: &OptionChanges) {
    let OptionChanges { default_ttl_s, durability, comment, compaction } = set;
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    out.push(
        flag(default_ttl_s.is_some(), DEFAULT_TTL)
            | flag(durability.is_some(), DURABILITY)
            | flag(comment.is_some(), COMMENT)
            | flag(compaction.is_some(), COMPACTION),
    );
    if let Some(ttl_s) = default_ttl_s {
        put_varint(out, u64::from(*ttl_s));
    }
    if let Some(durability) = durability {
        out.push(match durability {
            Durability::Commit => 1,
            Durability::Periodic => 2,
        });
    }
    if let Some(comment) = comment {
        parts::put_text(out, comment);
    }
    if let Some(compaction) = compaction {
        parts::put_compaction(out, compaction);
    }
}

fn option_changes(reader: &mut Reader) -> Result<OptionChanges> {
    let flags = reader.u8()?;
    if flags & !(DEFAULT_TTL | DURABILITY | COMMENT | COMPACTION) != 0 {
        return Err(reader.corrupt(format!("it sets options that this build does not know ({flags:02x})")).into());
    }
    let default_ttl_s = if flags & DEFAULT_TTL != 0 { Some(reader.varint_u32()?) } else { None };
    let durability = if flags & DURABILITY != 0 { Some(durability(reader)?) } else { None };
    let comment = if flags & COMMENT != 0 { Some(reader.text()?) } else { None };
    let compaction = if flags & COMPACTION != 0 { Some(parts::compaction(reader)?) } else { None };
    Ok(OptionChanges { default_ttl_s, durability, comment, compaction })
}

fn durability(reader: &mut Reader) -> Result<Durability> {
    match reader.u8()? {
        1 => Ok(Durability::Commit),
        2 => Ok(Durability::Periodic),
        other => Err(reader.corrupt(format!("no durability has number {other}")).into()),
    }
}

impl ClusterState {
    /// Changes nothing unless it answers [`Applied::Changed`].
    pub(super) fn alter_table(&mut self, ask: &AlterTable) -> Verdict {
        let id = match self.find_table(&ask.keyspace, &ask.name) {
            Ok(id) => id,
            Err(refusal) => return absent(ask.if_exists, refusal),
        };
        self.not_under_restore(id)?;
        let Some(known) = self.tables.get_mut(&id) else { return Ok(Applied::AlreadySo) };
        let subject = format!("table {}.{}", ask.keyspace, ask.name);
        let altered = altered(known, ask, &self.types, &subject)?;
        if altered.table.columns == known.table.columns && altered.table.options == known.table.options {
            return Ok(Applied::AlreadySo);
        }
        *known = altered;
        Ok(Applied::Changed)
    }
}

fn altered(
    known: &KnownTable,
    ask: &AlterTable,
    types: &UserTypes,
    subject: &str,
) -> std::result::Result<KnownTable, Refusal> {
    let table = &known.table;
    if let Some(expected) = ask.expected_version
        && expected.get() != table.version
    {
        let explanation = format!("it has version {}, the change is meant for version {expected}", table.version);
        return Err(Refusal::new(Reason::OtherVersion, subject, explanation));
    }
    let mut change = Change { subject, columns: table.columns.clone(), next_column: known.next_column };
    change.rename(&ask.rename)?;
    ask.drop.iter().try_for_each(|name| change.drop(name))?;
    let add = with_types(subject, &ask.keyspace, &ask.add, types)?;
    add.iter().try_for_each(|column| change.add(column))?;
    let definition = |column: &Column| {
        let Column { name, ty, kind, .. } = column.clone();
        ColumnDefinition { name, ty, kind }
    };
    let definitions: Vec<_> = change.columns.iter().map(definition).collect();
    validate::columns(subject, &definitions)?;
    let options = ask.set.apply_to(&table.options);
    validate::options_of(subject, &definitions, &options)?;
    let Change { columns, next_column, .. } = change;
    let table = Table { version: table.version.saturating_add(1), columns, options, ..Table::clone(table) };
    Ok(KnownTable { table: Arc::new(table), next_column })
}

/// Columns on their way from one version of a table to the next.
struct Change<'a> {
    subject: &'a str,
    columns: Vec<Column>,
    next_column: u32,
}

impl Change<'_> {
    fn refuse<T>(&self, reason: Reason, explanation: String) -> std::result::Result<T, Refusal> {
        Err(Refusal::new(reason, self.subject, explanation))
    }

    fn position(&self, name: &str) -> std::result::Result<usize, Refusal> {
        match self.columns.iter().position(|column| column.name == name) {
            Some(at) => Ok(at),
            None => self.refuse(Reason::UnknownColumn, format!("there is no column {name}")),
        }
    }

    /// All at once, so that two columns may swap their names.
    fn rename(&mut self, renames: &[(String, String)]) -> std::result::Result<(), Refusal> {
        let mut new_names = BTreeMap::new();
        for (old, new) in renames {
            let at = self.position(old)?;
            if !is_key(self.columns[at].kind) {
                let explanation = format!("column {old} is not part of the primary key; only those can be renamed");
                return self.refuse(Reason::BadKey, explanation);
            }
            if new_names.insert(at, new).is_some() {
                return self.refuse(Reason::DuplicateColumn, format!("column {old} is renamed twice"));
            }
        }
        for (at, new) in new_names {
            self.columns[at].name.clone_from(new);
        }
        Ok(())
    }

    fn drop(&mut self, name: &str) -> std::result::Result<(), Refusal> {
        let at = self.position(name)?;
        if is_key(self.columns[at].kind) {
            return self
                .refuse(Reason::BadKey, format!("column {name} is part of the primary key and cannot be dropped"));
        }
        self.columns.remove(at);
        Ok(())
    }

    fn add(&mut self, column: &ColumnDefinition) -> std::result::Result<(), Refusal> {
        let ColumnDefinition { name, ty, kind } = column.clone();
        if is_key(kind) {
            return self.refuse(Reason::BadKey, format!("column {name} cannot be added to the primary key"));
        }
        let Some(next) = self.next_column.checked_add(1) else {
            return self.refuse(Reason::TooMany, "every number of a column has been given out".into());
        };
        self.columns.push(Column { id: ColumnId(self.next_column), name, ty, kind });
        self.next_column = next;
        Ok(())
    }
}

fn is_key(kind: ColumnKind) -> bool {
    match kind {
        ColumnKind::PartitionKey | ColumnKind::Clustering(_) => true,
        ColumnKind::Static | ColumnKind::Regular => false,
    }
}
