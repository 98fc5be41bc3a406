//! Schema to statements that read back as the same.

use super::lexer::is_plain_name;
use super::types::is_type_word;
use crate::model::{Column, ColumnKind, CompactionOptions, Durability, Keyspace, Order, Table, Type, UserType};

/// The statements that make `keyspace`, and `types` and `tables`, which live in it.
pub fn describe<'a>(
    keyspace: &Keyspace,
    types: impl IntoIterator<Item = &'a UserType>,
    tables: impl IntoIterator<Item = &'a Table>,
) -> String {
    let mut text = format!("CREATE KEYSPACE {}", name(&keyspace.name));
    if !keyspace.replication.is_empty() {
        let regions = keyspace.replication.iter().map(|(region, copies)| format!("{}: {copies}", quoted(region)));
        text += &format!(" WITH replication = {{{}}}", regions.collect::<Vec<_>>().join(", "));
    }
    text += ";\n";
    for definition in made_before_used(types.into_iter().collect()) {
        text += "\n";
        text += &describe_type(definition);
    }
    for table in tables {
        text += "\n";
        text += &describe_table(&keyspace.name, table);
    }
    text
}

/// The statements that make `table` in the keyspace of this name, and before it the user-defined types that it is made of.
pub fn describe_with_types(keyspace: &str, table: &Table) -> String {
    let mut types: Vec<UserType> = Vec::new();
    for column in &table.columns {
        column.ty.any(&mut |ty| {
            if let Type::User { definition, .. } = ty
                && !types.iter().any(|known| known.name == definition.name)
            {
                types.push(UserType::clone(definition));
            }
            false
        });
    }
    let types = made_before_used(types.iter().collect());
    let types = types.into_iter().map(|definition| describe_type(definition) + "\n");
    types.collect::<String>() + &describe_table(keyspace, table)
}

/// Types behind those that they are made of.
fn made_before_used(mut types: Vec<&UserType>) -> Vec<&UserType> {
    let mut ordered: Vec<&UserType> = Vec::with_capacity(types.len());
    while !types.is_empty() {
        let waiting: Vec<&str> = types.iter().map(|definition| definition.name.as_str()).collect();
        let is_waiting =
            |ty: &Type| matches!(ty, Type::User { definition, .. } if waiting.contains(&definition.name.as_str()));
        let waits =
            |definition: &&UserType| definition.fields.iter().any(|field| field.ty.any(&mut |ty| is_waiting(ty)));
        let (later, now): (Vec<&UserType>, Vec<&UserType>) = types.iter().copied().partition(waits);
        // Types that are made of themselves there are none; should there be, they are said all the same.
        types = if now.is_empty() { Vec::new() } else { later.clone() };
        ordered.extend(if now.is_empty() { later } else { now });
    }
    ordered
}

fn describe_type(definition: &UserType) -> String {
    let mut text = format!("CREATE TYPE {}.{} (\n", name(&definition.keyspace), name(&definition.name));
    let fields = definition.fields.iter().map(|field| format!("    {} {}", name(&field.name), type_words(&field.ty)));
    text += &fields.collect::<Vec<_>>().join(",\n");
    text += "\n);\n";
    text
}

/// The statement that makes `table` in the keyspace of this name.
fn describe_table(keyspace: &str, table: &Table) -> String {
    let mut text = format!("CREATE TABLE {}.{} (\n", name(keyspace), name(&table.name));
    for column in &table.columns {
        let suffix = if column.kind == ColumnKind::Static { " STATIC" } else { "" };
        text += &format!("    {} {}{suffix},\n", name(&column.name), type_words(&column.ty));
    }
    let partition = table.partition_key().map(|column| name(&column.name)).collect::<Vec<_>>().join(", ");
    let clustering: Vec<(&Column, Order)> = table.clustering().collect();
    text += &format!("    PRIMARY KEY (({partition})");
    for (column, _) in &clustering {
        text += &format!(", {}", name(&column.name));
    }
    text += ")\n)";
    let options = options_of(table, &clustering);
    for (at, option) in options.iter().enumerate() {
        text += &format!("{}{option}", if at == 0 { " WITH " } else { "\n    AND " });
    }
    text += ";\n";
    text
}

/// Lateness and durability are always said, since they matter and their defaults may change.
fn options_of(table: &Table, clustering: &[(&Column, Order)]) -> Vec<String> {
    let mut options = Vec::new();
    if clustering.iter().any(|(_, order)| *order == Order::Descending) {
        let orders = clustering.iter().map(|(column, order)| match order {
            Order::Ascending => format!("{} ASC", name(&column.name)),
            Order::Descending => format!("{} DESC", name(&column.name)),
        });
        options.push(format!("CLUSTERING ORDER BY ({})", orders.collect::<Vec<_>>().join(", ")));
    }
    if !table.options.comment.is_empty() {
        options.push(format!("comment = {}", quoted(&table.options.comment)));
    }
    if table.options.default_ttl_s > 0 {
        options.push(format!("default_time_to_live = {}", table.options.default_ttl_s));
    }
    options.push(format!("lateness = {}", table.options.lateness_s));
    let durability = match table.options.durability {
        Durability::Commit => "commit",
        Durability::Periodic => "periodic",
    };
    options.push(format!("durability = '{durability}'"));
    if table.options.compaction != CompactionOptions::default() {
        let words = table.options.compaction.to_map();
        let words = words.iter().map(|(option, value)| format!("{}: {}", quoted(option), quoted(value)));
        options.push(format!("compaction = {{{}}}", words.collect::<Vec<_>>().join(", ")));
    }
    options
}

/// A type as it must be written to be read as itself. Types of other keyspaces cannot be used, so names say none.
pub(super) fn type_words(ty: &Type) -> String {
    let words = match ty {
        Type::User { definition, .. } => type_name(&definition.name),
        Type::Vector { element, dimension } => format!("vector<{}, {dimension}>", type_words(element)),
        scalar if scalar.parts().is_empty() => scalar.word().to_owned(),
        composite => {
            let parts = composite.parts().into_iter().map(type_words).collect::<Vec<_>>().join(", ");
            format!("{}<{parts}>", composite.word())
        }
    };
    match ty {
        Type::List { frozen: true, .. }
        | Type::Set { frozen: true, .. }
        | Type::Map { frozen: true, .. }
        | Type::User { frozen: true, .. } => format!("frozen<{words}>"),
        _ => words,
    }
}

/// The name of a user-defined type: quoted also where it would be taken for a type of CQL.
fn type_name(text: &str) -> String {
    if is_type_word(text) { format!("\"{text}\"") } else { name(text) }
}

/// A name as it must be written to be read as itself.
fn name(name: &str) -> String {
    if is_plain_name(name) { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
