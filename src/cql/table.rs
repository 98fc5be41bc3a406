//! CREATE TABLE: columns, primary key, options.

use std::collections::BTreeMap;

use super::lexer::{Kind, Place};
use super::parser::Parser;
use super::types::column_type;
use crate::model::{ColumnDefinition, ColumnKind, CompactionOptions, CreateTable, Durability, Order, TableOptions};
use crate::{Error, Result};

/// What follows `CREATE TABLE`.
pub(super) fn create_table(parser: &mut Parser) -> Result<CreateTable> {
    let if_not_exists = parser.if_not_exists()?;
    let (keyspace, name) = parser.table_name()?;
    let mut body = Body::default();
    parser.expect_symbol('(')?;
    loop {
        body.element(parser, &keyspace)?;
        if parser.accept_symbol(')') {
            break;
        }
        if !parser.accept_symbol(',') {
            return Err(parser.unexpected("',' or ')'"));
        }
    }
    if body.key.is_none() {
        return Err(parser.place().error(format!("the table {name} has no PRIMARY KEY")));
    }
    let (options, orders) = with(parser)?;
    let columns = body.columns(orders)?;
    Ok(CreateTable { keyspace, name, columns, options, if_not_exists })
}

/// A name and where it stands.
struct Named {
    name: String,
    place: Place,
}

/// What CLUSTERING ORDER BY says.
type Orders = Vec<(Named, Order)>;

/// What stands between the parentheses.
#[derive(Default)]
struct Body {
    /// As declared; key columns are regular until the key is known.
    columns: Vec<ColumnDefinition>,
    key: Option<Key>,
}

struct Key {
    partition: Vec<Named>,
    clustering: Vec<Named>,
}

impl Body {
    /// One column, or the primary key.
    fn element(&mut self, parser: &mut Parser, keyspace: &str) -> Result<()> {
        let place = parser.place();
        if parser.accept_word("primary") {
            parser.expect_word("key")?;
            let key = primary_key(parser)?;
            return self.set_key(key, place);
        }
        let name = parser.name("the name of a column or PRIMARY KEY")?;
        if self.columns.iter().any(|column| column.name == name) {
            return Err(place.error(format!("the column {name} is declared twice")));
        }
        let ty = column_type(parser, keyspace)?;
        let kind = if parser.accept_word("static") { ColumnKind::Static } else { ColumnKind::Regular };
        let key_place = parser.place();
        if parser.accept_word("primary") {
            parser.expect_word("key")?;
            let partition = vec![Named { name: name.clone(), place }];
            self.set_key(Key { partition, clustering: Vec::new() }, key_place)?;
        }
        self.columns.push(ColumnDefinition { name, ty, kind });
        Ok(())
    }

    fn set_key(&mut self, key: Key, place: Place) -> Result<()> {
        if self.key.replace(key).is_some() {
            return Err(place.error("the PRIMARY KEY is given twice"));
        }
        Ok(())
    }

    /// The columns in the order that [`CreateTable`] asks for.
    fn columns(mut self, orders: Option<Orders>) -> Result<Vec<ColumnDefinition>> {
        let Some(key) = self.key.take() else { return Ok(self.columns) };
        let orders = orders_of(&key.clustering, orders)?;
        let mut columns = Vec::with_capacity(self.columns.len());
        for named in key.partition {
            columns.push(self.take(named, ColumnKind::PartitionKey)?);
        }
        for (named, order) in key.clustering.into_iter().zip(orders) {
            columns.push(self.take(named, ColumnKind::Clustering(order))?);
        }
        columns.append(&mut self.columns);
        Ok(columns)
    }

    /// Takes a column into the key.
    fn take(&mut self, Named { name, place }: Named, kind: ColumnKind) -> Result<ColumnDefinition> {
        let Some(at) = self.columns.iter().position(|column| column.name == name) else {
            return Err(place.error(format!("the key column {name} is not declared, or stands in the key twice")));
        };
        let column = self.columns.remove(at);
        if column.kind == ColumnKind::Static {
            return Err(place.error(format!("the key column {name} cannot be STATIC")));
        }
        Ok(ColumnDefinition { kind, ..column })
    }
}

/// The order of each clustering column; ascending unless CLUSTERING ORDER says otherwise, which then must name them all.
fn orders_of(clustering: &[Named], orders: Option<Orders>) -> Result<Vec<Order>> {
    let Some(orders) = orders else { return Ok(vec![Order::Ascending; clustering.len()]) };
    let expected = || clustering.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
    for (at, (named, _)) in orders.iter().enumerate() {
        if clustering.get(at).is_none_or(|column| column.name != named.name) {
            let place = named.place;
            return Err(place.error(format!(
                "found {} in CLUSTERING ORDER BY, expected the clustering columns in the order of the key: ({})",
                named.name,
                expected()
            )));
        }
    }
    match orders.last() {
        Some((last, _)) if orders.len() < clustering.len() => {
            Err(last.place.error(format!("CLUSTERING ORDER BY ends too early, expected ({})", expected())))
        }
        _ => Ok(orders.into_iter().map(|(_, order)| order).collect()),
    }
}

/// `(a, b, c)` or `((a, b), c)`
fn primary_key(parser: &mut Parser) -> Result<Key> {
    parser.expect_symbol('(')?;
    let partition = if parser.accept_symbol('(') { names(parser)? } else { vec![named(parser)?] };
    let clustering = if parser.accept_symbol(',') {
        names(parser)?
    } else if parser.accept_symbol(')') {
        Vec::new()
    } else {
        return Err(parser.unexpected("',' or ')'"));
    };
    Ok(Key { partition, clustering })
}

fn named(parser: &mut Parser) -> Result<Named> {
    let place = parser.place();
    Ok(Named { name: parser.name("the name of a column")?, place })
}

/// Names up to and including the closing parenthesis.
fn names(parser: &mut Parser) -> Result<Vec<Named>> {
    let mut names = vec![named(parser)?];
    while !parser.accept_symbol(')') {
        if !parser.accept_symbol(',') {
            return Err(parser.unexpected("',' or ')'"));
        }
        names.push(named(parser)?);
    }
    Ok(names)
}

/// `WITH ... AND ...`: the options, and CLUSTERING ORDER if it is given.
fn with(parser: &mut Parser) -> Result<(TableOptions, Option<Orders>)> {
    let mut options = TableOptions::default();
    let mut orders = None;
    let mut given: Vec<String> = Vec::new();
    let mut more = parser.accept_word("with");
    while more {
        let place = parser.place();
        let option = parser.name("the name of an option or CLUSTERING ORDER BY")?;
        if given.contains(&option) {
            return Err(place.error(format!("the option {option} is given twice")));
        }
        if option == "clustering" {
            orders = Some(clustering_order(parser)?);
        } else {
            set_option(parser, &mut options, &option, place)?;
        }
        given.push(option);
        more = parser.accept_word("and");
    }
    Ok((options, orders))
}

pub(super) fn set_option(parser: &mut Parser, options: &mut TableOptions, option: &str, place: Place) -> Result<()> {
    if !["comment", "default_time_to_live", "lateness", "durability", "compaction"].contains(&option) {
        return Err(place.error(format!(
            "found the option {option}, expected comment, default_time_to_live, lateness, durability, compaction or \
             CLUSTERING ORDER BY"
        )));
    }
    parser.expect_symbol('=')?;
    match option {
        "comment" => options.comment = parser.text("a text in single quotes")?,
        "default_time_to_live" => options.default_ttl_s = parser.number("a number of seconds")?,
        "lateness" => options.lateness_s = parser.number("a number of seconds")?,
        "durability" => options.durability = durability(parser)?,
        _ => options.compaction = compaction(parser)?,
    }
    Ok(())
}

/// `{'option': 'value', ...}`; a number needs no quotes.
fn compaction(parser: &mut Parser) -> Result<CompactionOptions> {
    let begin = parser.place();
    let mut map = BTreeMap::new();
    parser.expect_symbol('{')?;
    while !parser.accept_symbol('}') {
        let place = parser.place();
        let option = parser.text("an option of compaction in single quotes")?;
        parser.expect_symbol(':')?;
        let value = match &parser.token().kind {
            Kind::Number(_) => parser.number("a number")?.to_string(),
            _ => parser.text("a number, or a text in single quotes")?,
        };
        if map.insert(option, value).is_some() {
            return Err(place.error("the option is given twice"));
        }
        if !parser.accept_symbol(',') && parser.token().kind != Kind::Symbol('}') {
            return Err(parser.unexpected("',' or '}'"));
        }
    }
    CompactionOptions::from_map(&map).map_err(|error| match error {
        Error::Invalid { subject, reason } => begin.error(format!("{subject}: {reason}")),
        other => other,
    })
}

fn durability(parser: &mut Parser) -> Result<Durability> {
    let durability = match &parser.token().kind {
        Kind::Text(text) if text == "commit" => Durability::Commit,
        Kind::Text(text) if text == "periodic" => Durability::Periodic,
        _ => return Err(parser.unexpected("'commit' or 'periodic'")),
    };
    parser.text("a text")?;
    Ok(durability)
}

/// What follows `CLUSTERING`.
fn clustering_order(parser: &mut Parser) -> Result<Orders> {
    parser.expect_word("order")?;
    parser.expect_word("by")?;
    parser.expect_symbol('(')?;
    let mut orders = Vec::new();
    loop {
        let column = named(parser)?;
        let descending = parser.accept_word("desc");
        if !descending {
            parser.accept_word("asc");
        }
        orders.push((column, if descending { Order::Descending } else { Order::Ascending }));
        if parser.accept_symbol(')') {
            return Ok(orders);
        }
        if !parser.accept_symbol(',') {
            return Err(parser.unexpected("ASC, DESC, ',' or ')'"));
        }
    }
}
