//! What may be asked of the schema and of a new cluster, whatever exists already.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::Birth;
use super::refusal::{Reason, Refusal};
use crate::model::usertype::FIELDS_MAX;
use crate::model::{ColumnDefinition, ColumnKind, CreateTable, TableOptions, Type, UserType, time::TTL_MAX_S};
use crate::ring::Ring;

/// Most keyspaces of a cluster.
pub const KEYSPACES_MAX: usize = 1_000;
/// Most tables of a cluster.
pub const TABLES_MAX: usize = 5_000;
/// Most user-defined types of a cluster.
pub(super) const TYPES_MAX: usize = 1_000;
/// Most columns of a table.
pub const COLUMNS_MAX: usize = 1_000;
/// Longest name of a table or a column, in characters.
pub const NAME_MAX_CHARS: usize = 192;
/// Longest name of a keyspace, in characters.
const KEYSPACE_NAME_MAX_CHARS: usize = 48;
/// Longest name of a cluster, a region or a zone, in characters.
const PLACE_NAME_MAX_CHARS: usize = 64;
/// Longest `host:port`, in bytes.
const ADDRESS_MAX_BYTES: usize = 300;
/// Most nodes of a new cluster.
const MEMBERS_MAX: usize = 1_000;
/// Longest comment of a table, in bytes.
const COMMENT_MAX_BYTES: usize = 4_096;

/// What a name may be made of.
struct Alphabet {
    allows: fn(char) -> bool,
    words: &'static str,
}

const IDENTIFIER: Alphabet =
    Alphabet { allows: |c| c.is_ascii_alphanumeric() || c == '_', words: "letters, digits and underscores" };
const PLACE: Alphabet = Alphabet {
    allows: |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'),
    words: "letters, digits, underscores, hyphens and dots",
};
const ANYTHING: Alphabet =
    Alphabet { allows: |c| !c.is_control(), words: "characters that are not control characters" };

fn name(kind: &str, name: &str, max: usize, alphabet: &Alphabet) -> Result<(), Refusal> {
    let chars = name.chars().count();
    if (1..=max).contains(&chars) && name.chars().all(alphabet.allows) {
        return Ok(());
    }
    let shown: String = name.chars().take(max).flat_map(char::escape_debug).collect();
    let explanation = format!("the name of a {kind} is 1 to {max} {}; this one has {chars} characters", alphabet.words);
    Err(Refusal::new(Reason::BadName, format!("{kind} \"{shown}\""), explanation))
}

pub(super) fn keyspace_name(text: &str) -> Result<(), Refusal> {
    name("keyspace", text, KEYSPACE_NAME_MAX_CHARS, &IDENTIFIER)
}

/// Each region that is named must exist and have a zone for every copy.
pub(super) fn replication(keyspace: &str, copies: &BTreeMap<String, u32>, ring: &Ring) -> Result<(), Refusal> {
    let subject = format!("keyspace {keyspace}");
    for (region, &copies) in copies {
        let zones = ring.zones_in(region);
        if zones == 0 {
            let known: Vec<&str> = ring.region_names().collect();
            let explanation = format!("there is no region \"{region}\"; this cluster has {}", known.join(", "));
            return Err(Refusal::new(Reason::UnknownRegion, subject, explanation));
        }
        if copies == 0 || copies > zones {
            let explanation = format!(
                "{copies} copies in region {region}: one to {zones} are possible, since two copies never share a zone; \
                 leave the region out for none"
            );
            return Err(Refusal::new(Reason::BadCopies, subject, explanation));
        }
    }
    Ok(())
}

pub(super) fn table_name(text: &str) -> Result<(), Refusal> {
    name("table", text, NAME_MAX_CHARS, &IDENTIFIER)
}

pub(super) fn table(table: &CreateTable) -> Result<(), Refusal> {
    table_name(&table.name)?;
    let subject = format!("table {}.{}", table.keyspace, table.name);
    columns(&subject, &table.columns)?;
    options_of(&subject, &table.columns, &table.options)
}

/// Whether tables with these columns can have these options.
pub(super) fn options_of(subject: &str, columns: &[ColumnDefinition], own: &TableOptions) -> Result<(), Refusal> {
    options(subject.to_owned(), own)?;
    match columns.iter().find(|column| column.ty == Type::Counter && own.default_ttl_s > 0) {
        Some(counter) => {
            let explanation = format!("column {} is a counter, and counters have no time to live", counter.name);
            Err(Refusal::new(Reason::BadOption, subject, explanation))
        }
        None => Ok(()),
    }
}

/// Types are dropped with their keyspace, so nothing elsewhere may be made of them.
pub(super) fn own_types(subject: &str, keyspace: &str, ty: &Type) -> Result<(), Refusal> {
    let mut foreign = None;
    ty.any(&mut |part| match part {
        Type::User { definition, .. } if definition.keyspace != keyspace => {
            foreign = Some(definition.name.clone());
            true
        }
        _ => false,
    });
    foreign.map_or(Ok(()), |name| {
        let explanation = format!("type {name} lies in another keyspace; only types of its own can be used");
        Err(Refusal::new(Reason::UnknownType, subject, explanation))
    })
}

/// Whether these names and fields make a type; what the fields are is looked at elsewhere.
pub(super) fn user_type(subject: &str, definition: &UserType) -> Result<(), Refusal> {
    name("type", &definition.name, NAME_MAX_CHARS, &IDENTIFIER)?;
    let fields = definition.fields.len();
    if !(1..=FIELDS_MAX).contains(&fields) {
        let explanation = format!("it has {fields} fields, 1 to {FIELDS_MAX} are possible");
        return Err(Refusal::new(Reason::TooMany, subject, explanation));
    }
    let mut names = BTreeSet::new();
    for field in &definition.fields {
        name("field", &field.name, NAME_MAX_CHARS, &ANYTHING)?;
        if !names.insert(&field.name) {
            let explanation = format!("field {} is defined twice", field.name);
            return Err(Refusal::new(Reason::DuplicateColumn, subject, explanation));
        }
        own_types(subject, &definition.keyspace, &field.ty)?;
    }
    Ok(())
}

/// Whether these columns make a table.
pub(super) fn columns(subject: &str, columns: &[ColumnDefinition]) -> Result<(), Refusal> {
    if columns.len() > COLUMNS_MAX {
        let explanation = format!("it has {} columns, at most {COLUMNS_MAX} are possible", columns.len());
        return Err(Refusal::new(Reason::TooMany, subject, explanation));
    }
    let mut names = BTreeSet::new();
    for column in columns {
        name("column", &column.name, NAME_MAX_CHARS, &ANYTHING)?;
        if !names.insert(&column.name) {
            let explanation = format!("column {} is defined twice", column.name);
            return Err(Refusal::new(Reason::DuplicateColumn, subject, explanation));
        }
        column_type(subject, column)?;
    }
    counters(subject, columns)?;
    key(subject, columns)
}

/// Beside its key a table has counters only, or none: counters are written by adding to them, all others by setting them.
fn counters(subject: &str, columns: &[ColumnDefinition]) -> Result<(), Refusal> {
    let others = || columns.iter().filter(|column| matches!(column.kind, ColumnKind::Static | ColumnKind::Regular));
    let counter = others().find(|column| column.ty == Type::Counter);
    let other = others().find(|column| column.ty != Type::Counter);
    match (counter, other) {
        (Some(counter), Some(other)) => {
            let explanation = format!(
                "column {} is a counter and column {} is none: a table with counters has nothing else beside its key",
                counter.name, other.name
            );
            Err(Refusal::new(Reason::BadType, subject, explanation))
        }
        _ => Ok(()),
    }
}

/// Whether there can be such a type, and a column of it.
fn column_type(subject: &str, column: &ColumnDefinition) -> Result<(), Refusal> {
    let ColumnDefinition { name, ty, kind } = column;
    if let Some(why) = ty.refused() {
        let explanation = format!("column {name} cannot be of type {ty}: {why}");
        return Err(Refusal::new(Reason::BadType, subject, explanation));
    }
    let in_key = matches!(kind, ColumnKind::PartitionKey | ColumnKind::Clustering(_));
    if let Some(why) = ty.refused_in_key().filter(|_| in_key) {
        let explanation = format!("column {name} of type {ty} cannot be in a key: {why}");
        return Err(Refusal::new(Reason::KeyType, subject, explanation));
    }
    Ok(())
}

/// Partition key first, then clustering, then the rest; a static column needs clustering columns.
fn key(subject: &str, columns: &[ColumnDefinition]) -> Result<(), Refusal> {
    let rank = |column: &ColumnDefinition| match column.kind {
        ColumnKind::PartitionKey => 0,
        ColumnKind::Clustering(_) => 1,
        ColumnKind::Static | ColumnKind::Regular => 2,
    };
    let refuse = |explanation: String| Err(Refusal::new(Reason::BadKey, subject, explanation));
    if !columns.iter().any(|column| column.kind == ColumnKind::PartitionKey) {
        return refuse("it has no partition key; name its columns in PRIMARY KEY ((...), ...)".into());
    }
    if !columns.is_sorted_by_key(rank) {
        return refuse("its columns are not in the order: partition key, clustering, others".into());
    }
    let static_column = columns.iter().find(|column| column.kind == ColumnKind::Static);
    let clustered = columns.iter().any(|column| matches!(column.kind, ColumnKind::Clustering(_)));
    match static_column {
        Some(column) if !clustered => {
            refuse(format!("column {} is static, which means nothing without clustering columns", column.name))
        }
        _ => Ok(()),
    }
}

fn options(subject: String, options: &TableOptions) -> Result<(), Refusal> {
    if options.default_ttl_s > TTL_MAX_S {
        let explanation =
            format!("default_time_to_live is {} s, at most {TTL_MAX_S} s are possible", options.default_ttl_s);
        return Err(Refusal::new(Reason::BadOption, subject, explanation));
    }
    if options.comment.len() > COMMENT_MAX_BYTES {
        let explanation =
            format!("its comment has {} bytes, at most {COMMENT_MAX_BYTES} are possible", options.comment.len());
        return Err(Refusal::new(Reason::BadOption, subject, explanation));
    }
    Ok(())
}

pub(super) fn birth(birth: &Birth) -> Result<(), Refusal> {
    name("cluster", &birth.name, PLACE_NAME_MAX_CHARS, &PLACE)?;
    let bad = |subject: &str, explanation: &str| Err(Refusal::new(Reason::BadMembers, subject, explanation));
    if birth.members.is_empty() || birth.members.len() > MEMBERS_MAX {
        let explanation = format!("it begins with 1 to {MEMBERS_MAX} members, not with {}", birth.members.len());
        return bad(&format!("cluster {}", birth.name), &explanation);
    }
    let mut addresses = BTreeSet::new();
    for member in &birth.members {
        name("region", &member.zone.region, PLACE_NAME_MAX_CHARS, &PLACE)?;
        name("zone", &member.zone.name, PLACE_NAME_MAX_CHARS, &PLACE)?;
        for address in [&member.peer_address, &member.client_address] {
            if address.is_empty() || address.len() > ADDRESS_MAX_BYTES {
                return bad(&format!("member {}", member.peer_address), "an address is 1 to 300 bytes long");
            }
            if !addresses.insert(address) {
                return bad(&format!("member {}", member.peer_address), &format!("address {address} is listed twice"));
            }
        }
    }
    Ok(())
}
