//! `trefoil element`: single elements of columns that are not frozen, without reading or replacing the others.

use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use trefoil::model::{Column, ColumnKind, Type, Value};
use trefoil_client::{Client, ElementMetadata, Write, path_type};

use super::error::{Error, Result};
use super::row::{Fault, place_of};
use super::table_name::TableName;
use super::{Global, output, text};
use super::{json as rows, report::Report};

/// Writes, reads and deletes single elements of lists, sets, maps and user-defined types that are not frozen. An element
/// is named by the key of a map, the field of a user-defined type, the element of a set, or the id of an element of a list.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  trefoil element put demo.users '{\"id\": 1}' phones home '\"555-1234\"' --ttl 3600
  trefoil element append demo.users '{\"id\": 1}' visits '[\"2013-01-31\"]'
  trefoil element get demo.users '{\"id\": 1}' visits")]
pub enum ElementCommand {
    /// Print the elements of a column, one JSON object per line: name, value, timestamp, time to live
    Get(Get),
    /// Set what stands at the key of a map, in a field of a user-defined type, or at the id of an element of a list
    Put(Put),
    /// Delete one element
    Delete(Delete),
    /// Add elements: behind the others of a list, to a set, at their keys to a map
    Append(Several),
    /// Add elements before the others of a list
    Prepend(Several),
    /// Remove elements of a set, or what stands at keys of a map; an array
    Remove(Several),
}

/// Which column of which row.
#[derive(Debug, Args)]
pub struct Target {
    /// The table
    #[arg(value_name = "KS.TABLE")]
    table: TableName,
    /// The key of the row; the partition key alone for a static column
    #[arg(value_name = "JSON-KEY", value_parser = rows::object)]
    key: String,
    /// The column
    #[arg(value_name = "COLUMN")]
    column: String,
}

/// Reads elements.
#[derive(Debug, Args)]
pub struct Get {
    #[command(flatten)]
    target: Target,
    /// Only the one of this name, as `get` prints it without quotes
    #[arg(value_name = "ELEMENT", allow_negative_numbers = true)]
    element: Option<String>,
}

/// Sets an element.
#[derive(Debug, Args)]
pub struct Put {
    #[command(flatten)]
    target: Target,
    /// Its name, as `get` prints it without quotes
    #[arg(value_name = "ELEMENT", allow_negative_numbers = true)]
    element: String,
    /// Its value; null deletes it
    #[arg(value_name = "JSON", value_parser = parsed, allow_negative_numbers = true)]
    value: Json,
    /// It is gone after so many seconds; 0: never
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u32>,
}

/// Deletes an element.
#[derive(Debug, Args)]
pub struct Delete {
    #[command(flatten)]
    target: Target,
    /// Its name, as `get` prints it without quotes
    #[arg(value_name = "ELEMENT", allow_negative_numbers = true)]
    element: String,
}

/// Adds or removes several elements.
#[derive(Debug, Args)]
pub struct Several {
    #[command(flatten)]
    target: Target,
    /// The elements, as a value of the column is written; of `remove` always an array
    #[arg(value_name = "JSON", value_parser = parsed, allow_negative_numbers = true)]
    elements: Json,
    /// They are gone after so many seconds; 0: never
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u32>,
}

fn parsed(text: &str) -> std::result::Result<Json, String> {
    rows::parse(text)
}

impl ElementCommand {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let client = global.connect().await?;
        let (write, ttl) = match self {
            ElementCommand::Get(get) => return get.run(&client).await,
            ElementCommand::Put(put) => {
                let (write, column) = put.target.update(&client).await?;
                let value = read(&put.value, &element_type(&column, &put.element)?, &column)?;
                (write.set_element(&column.name, path(&put.element, &column)?, value), put.ttl)
            }
            ElementCommand::Delete(delete) => {
                let (write, column) = delete.target.update(&client).await?;
                (write.delete_element(&column.name, path(&delete.element, &column)?), None)
            }
            ElementCommand::Append(several) => {
                let (write, column, elements) = several.read(&client, Type::clone).await?;
                (write.append(&column.name, elements), several.ttl)
            }
            ElementCommand::Prepend(several) => {
                let (write, column, elements) = several.read(&client, Type::clone).await?;
                (write.prepend(&column.name, elements), several.ttl)
            }
            ElementCommand::Remove(several) => {
                let (write, column, elements) = several.read(&client, keys_type).await?;
                (write.remove(&column.name, elements), None)
            }
        };
        let write = ttl.into_iter().fold(write, Write::ttl_s);
        let result = write.send().await?;
        Report::default().warn(&result.warnings);
        if global.json {
            output::line(&json!({ "timestamp_us": result.timestamp_us }).to_string())?;
        }
        Ok(())
    }
}

impl Target {
    /// The beginning of a write of the row, and the column.
    async fn update(&self, client: &Client) -> Result<(Write, Column)> {
        let name = self.table.to_string();
        let view = client.table(&name).await?;
        let column = view.table.columns[place_of(&view.table, &self.column)?].clone();
        check(&column)?;
        let key = rows::read_key(&self.key, &view.table)?;
        let mut write = client.update(&name);
        for (column, value) in view.table.partition_key().zip(key.partition) {
            write = write.key(&column.name, value);
        }
        for ((column, _), value) in view.table.clustering().zip(key.clustering) {
            write = write.key(&column.name, value);
        }
        Ok((write, column))
    }
}

impl Several {
    /// The beginning of the write, the column, and the elements as a value of `ty` of the column's type.
    async fn read(&self, client: &Client, ty: fn(&Type) -> Type) -> Result<(Write, Column, Value)> {
        let (write, column) = self.target.update(client).await?;
        let elements = read(&self.elements, &ty(&column.ty), &column)?;
        let elements = elements.ok_or_else(|| Fault::of(&column.name, "null is no list of elements"))?;
        Ok((write, column, elements))
    }
}

impl Get {
    async fn run(self, client: &Client) -> Result<()> {
        let name = self.target.table.to_string();
        let view = client.table(&name).await?;
        let column = &view.table.columns[place_of(&view.table, &self.target.column)?];
        check(column)?;
        let wanted = self.element.map(|element| path(&element, column)).transpose()?;
        let key = rows::read_key(&self.target.key, &view.table)?;
        if column.kind == ColumnKind::Regular && key.clustering.len() < view.table.clustering().count() {
            return Err(Fault::of(&column.name, "it belongs to rows; the key must be that of one").into());
        }
        let mut select = client.select(&name).columns([&column.name]).with_elements().limit(1);
        for (column, value) in view.table.partition_key().zip(key.partition) {
            select = select.key(&column.name, value);
        }
        for ((column, _), value) in view.table.clustering().zip(key.clustering) {
            select = select.key(&column.name, value);
        }
        let Some(row) = select.one().await? else { return Ok(()) };
        let value = row.get::<Option<Value>>(&column.name)?;
        for line in lines(&row.elements(&column.name)?, value.as_ref(), &column.ty, wanted.as_ref()) {
            output::line(&line)?;
        }
        Ok(())
    }
}

/// A line for each element: its name, its value unless the name is all there is, and where it comes from.
fn lines(elements: &[ElementMetadata], value: Option<&Value>, ty: &Type, wanted: Option<&Value>) -> Vec<String> {
    let shown = |(at, element): (usize, &ElementMetadata)| {
        if wanted.is_some_and(|wanted| *wanted != element.path) {
            return None;
        }
        let mut line = String::from("{\"element\":");
        rows::print_value(&element.path, &path_type(ty), &mut line);
        if let Some((value, ty)) = value.and_then(|value| part(value, ty, at, &element.path)) {
            line.push_str(",\"value\":");
            rows::print_value(value, ty, &mut line);
        }
        let cell = &element.cell;
        let number = |number: Option<i64>| number.map_or_else(|| "null".to_owned(), |number| number.to_string());
        line.push_str(&format!(
            ",\"timestamp_us\":{},\"ttl_s\":{},\"expires_at_s\":{}}}",
            cell.timestamp_us,
            number(cell.ttl_s.map(i64::from)),
            number(cell.expires_at_s)
        ));
        Some(line)
    };
    elements.iter().enumerate().filter_map(shown).collect()
}

/// The value of the element at a place, and its type; of a set there is none beside the element.
fn part<'a>(value: &'a Value, ty: &'a Type, at: usize, path: &Value) -> Option<(&'a Value, &'a Type)> {
    match (value, ty) {
        (Value::List(values), Type::List { element, .. }) => Some((values.get(at)?, &**element)),
        (Value::Map(pairs), Type::Map { value, .. }) => Some((&pairs.get(at)?.1, &**value)),
        (Value::Tuple(values), Type::User { definition, .. }) => {
            let Value::Text(name) = path else { return None };
            let position = definition.position(name)?;
            Some((values.get(position)?.as_ref()?, &definition.fields.get(position)?.ty))
        }
        _ => None,
    }
}

/// Whether a column has elements that are written one by one.
fn check(column: &Column) -> Result<()> {
    match column.ty.is_complex() {
        true => Ok(()),
        false => {
            Err(Fault::of(&column.name, format!("a {} has no elements that are written one by one", column.ty)).into())
        }
    }
}

/// The value that a name of an element stands for.
fn path(name: &str, column: &Column) -> Result<Value> {
    let ty = path_type(&column.ty);
    let parsed =
        text::parse(name, &ty).map_err(|reason| Fault::of(&column.name, format!("no such element: {reason}")))?;
    Ok(parsed)
}

/// The type of the value of an element.
fn element_type(column: &Column, name: &str) -> Result<Type> {
    let fault = |reason: &str| Error::from(Fault::of(&column.name, reason));
    match &column.ty {
        Type::List { element, .. } => Ok(Type::clone(element)),
        Type::Map { value, .. } => Ok(Type::clone(value)),
        Type::User { definition, .. } => {
            let position = definition.position(name).ok_or_else(|| fault(&format!("there is no field {name}")))?;
            Ok(definition.fields[position].ty.clone())
        }
        _ => Err(fault("an element of a set has no value; `append` adds it")),
    }
}

/// The type of what `remove` takes.
fn keys_type(ty: &Type) -> Type {
    match ty {
        Type::Map { key, .. } => Type::Set { element: key.clone(), frozen: true },
        other => other.clone(),
    }
}

fn read(json: &Json, ty: &Type, column: &Column) -> Result<Option<Value>> {
    Ok(rows::read_value(json, ty).map_err(|reason| Fault::of(&column.name, reason))?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use trefoil_client::CellMetadata;

    use super::*;

    #[test]
    fn elements_are_printed_with_name_value_and_time() {
        let map = Type::Map { key: Arc::new(Type::Int), value: Arc::new(Type::Text), frozen: false };
        let value = Value::Map(vec![
            (Value::Integer(-1), Value::Text("a".into())),
            (Value::Integer(2), Value::Text("b".into())),
        ]);
        let element = |path: i64, ttl_s: Option<u32>| ElementMetadata {
            path: Value::Integer(path),
            cell: CellMetadata { timestamp_us: 7, ttl_s, expires_at_s: ttl_s.map(|_| 99) },
        };
        let elements = [element(-1, None), element(2, Some(60))];
        let first = r#"{"element":-1,"value":"a","timestamp_us":7,"ttl_s":null,"expires_at_s":null}"#;
        let second = r#"{"element":2,"value":"b","timestamp_us":7,"ttl_s":60,"expires_at_s":99}"#;
        assert_eq!(lines(&elements, Some(&value), &map, None), [first, second]);
        assert_eq!(lines(&elements, Some(&value), &map, Some(&Value::Integer(2))), [second]);
        let set = Type::Set { element: Arc::new(Type::Int), frozen: false };
        let lines = lines(&elements[..1], Some(&Value::Set(vec![Value::Integer(-1)])), &set, None);
        assert_eq!(lines, [r#"{"element":-1,"timestamp_us":7,"ttl_s":null,"expires_at_s":null}"#]);
    }
}
