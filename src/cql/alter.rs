//! ALTER TABLE: one of ADD, DROP, RENAME and WITH; ALTER TYPE: ADD or RENAME.

use super::parser::Parser;
use super::table;
use super::types::{column_type, field};
use crate::Result;
use crate::model::{AlterTable, AlterType, ColumnDefinition, ColumnKind, OptionChanges, TableOptions};

/// What follows `ALTER TABLE`.
pub(super) fn alter_table(parser: &mut Parser) -> Result<AlterTable> {
    let if_exists = parser.if_exists()?;
    let (keyspace, name) = parser.table_name()?;
    let mut alter = AlterTable { keyspace, name, if_exists, ..AlterTable::default() };
    if parser.accept_word("add") {
        let keyspace = alter.keyspace.clone();
        alter.add = list(parser, |parser| added(parser, &keyspace))?;
    } else if parser.accept_word("drop") {
        alter.drop = list(parser, |parser| parser.name("the name of a column"))?;
    } else if parser.accept_word("rename") {
        alter.rename = renames(parser)?;
    } else if parser.accept_word("with") {
        alter.set = options(parser)?;
    } else {
        return Err(parser.unexpected("ADD, DROP, RENAME or WITH"));
    }
    Ok(alter)
}

/// What follows `ALTER TYPE`.
pub(super) fn alter_type(parser: &mut Parser) -> Result<AlterType> {
    let (keyspace, name) = parser.name_in_keyspace("the name of a type")?;
    let mut alter = AlterType { keyspace, name, ..AlterType::default() };
    if parser.accept_word("add") {
        let keyspace = alter.keyspace.clone();
        alter.add = list(parser, |parser| field(parser, &keyspace))?;
    } else if parser.accept_word("rename") {
        alter.rename = renames(parser)?;
    } else {
        return Err(parser.unexpected("ADD or RENAME (fields are never dropped)"));
    }
    Ok(alter)
}

/// `a, b, c` or `(a, b, c)`
fn list<T>(parser: &mut Parser, mut element: impl FnMut(&mut Parser) -> Result<T>) -> Result<Vec<T>> {
    let enclosed = parser.accept_symbol('(');
    let mut elements = vec![element(parser)?];
    while parser.accept_symbol(',') {
        elements.push(element(parser)?);
    }
    if enclosed && !parser.accept_symbol(')') {
        return Err(parser.unexpected("',' or ')'"));
    }
    Ok(elements)
}

/// `name type [STATIC]`
fn added(parser: &mut Parser, keyspace: &str) -> Result<ColumnDefinition> {
    let name = parser.name("the name of a column")?;
    let ty = column_type(parser, keyspace)?;
    let kind = if parser.accept_word("static") { ColumnKind::Static } else { ColumnKind::Regular };
    Ok(ColumnDefinition { name, ty, kind })
}

/// `a TO b AND c TO d`
fn renames(parser: &mut Parser) -> Result<Vec<(String, String)>> {
    let mut renames = Vec::new();
    loop {
        let old = parser.name("the name of a column")?;
        parser.expect_word("to")?;
        renames.push((old, parser.name("the new name of the column")?));
        if !parser.accept_word("and") {
            return Ok(renames);
        }
    }
}

/// `option = value AND ...`
fn options(parser: &mut Parser) -> Result<OptionChanges> {
    let mut set = OptionChanges::default();
    let mut options = TableOptions::default();
    let mut given: Vec<String> = Vec::new();
    loop {
        let place = parser.place();
        let option = parser.name("the name of an option")?;
        if given.contains(&option) {
            return Err(place.error(format!("the option {option} is given twice")));
        }
        if option == "lateness" || option == "clustering" {
            return Err(place.error(format!("found the option {option}, which is fixed when the table is made")));
        }
        table::set_option(parser, &mut options, &option, place)?;
        match option.as_str() {
            "comment" => set.comment = Some(std::mem::take(&mut options.comment)),
            "default_time_to_live" => set.default_ttl_s = Some(options.default_ttl_s),
            "durability" => set.durability = Some(options.durability),
            _ => set.compaction = Some(std::mem::take(&mut options.compaction)),
        }
        given.push(option);
        if !parser.accept_word("and") {
            return Ok(set);
        }
    }
}
