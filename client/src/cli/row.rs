//! Rows and keys as people give them: what is said of each column, sorted into key and cells.

use std::fmt;

use trefoil::model::{Column, ColumnKind, Table, Value};

/// What is wrong with an input, and with which column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The column, if it is about one.
    pub column: Option<String>,
    /// Why, and what would be right.
    pub reason: String,
}

impl Fault {
    /// A fault of the whole input.
    pub fn new(reason: impl Into<String>) -> Fault {
        Fault { column: None, reason: reason.into() }
    }

    /// A fault of one column.
    pub fn of(column: &str, reason: impl Into<String>) -> Fault {
        Fault { column: Some(column.to_owned()), reason: reason.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.column {
            Some(column) => write!(f, "column {column}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for Fault {}

/// What an input says of a column.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Given {
    /// Nothing: the column stays as it is.
    #[default]
    Unset,
    /// That it is null.
    Null,
    /// A value, which is one of the column's type.
    Value(Value),
}

/// A row to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct RowInput {
    /// One value per column of the partition key.
    pub partition: Vec<Value>,
    /// One value per clustering column; none at all where only static columns are written.
    pub clustering: Vec<Value>,
    /// Other columns by their place in the table, with `None` for null.
    pub cells: Vec<(usize, Option<Value>)>,
}

/// The key of a row, or the beginning of one.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyInput {
    /// One value per column of the partition key.
    pub partition: Vec<Value>,
    /// Values of the first clustering columns.
    pub clustering: Vec<Value>,
}

/// Checks that a value is one of the column's type.
pub fn checked(value: Value, column: &Column) -> Result<Given, Fault> {
    // The text forms of all other types yield valid values only.
    let checked_already = !matches!(
        value,
        Value::Text(_)
            | Value::Uuid(_)
            | Value::Duration { .. }
            | Value::List(_)
            | Value::Set(_)
            | Value::Map(_)
            | Value::Tuple(_)
    );
    if !checked_already {
        value.encode(&column.ty).map_err(|error| Fault::of(&column.name, error.to_string()))?;
    }
    Ok(Given::Value(value))
}

impl RowInput {
    /// Sorts what was given for each column of the table, in its order.
    pub fn new(table: &Table, given: Vec<Given>) -> Result<RowInput, Fault> {
        let mut row = RowInput { partition: Vec::new(), clustering: Vec::new(), cells: Vec::new() };
        let mut missing: Option<&Column> = None;
        let mut regular: Option<&Column> = None;
        for (at, (column, given)) in table.columns.iter().zip(given).enumerate() {
            match (column.kind, given) {
                (ColumnKind::PartitionKey, Given::Value(value)) => row.partition.push(value),
                (ColumnKind::PartitionKey, _) => return Err(absent(column)),
                (ColumnKind::Clustering(_), Given::Value(value)) => row.clustering.push(value),
                (ColumnKind::Clustering(_), _) => missing = missing.or(Some(column)),
                (_, Given::Unset) => {}
                (kind, Given::Null) => {
                    // Rows that stand for static columns alone are printed with null in all others.
                    if kind == ColumnKind::Static || missing.is_none() {
                        row.cells.push((at, None));
                    }
                }
                (kind, Given::Value(value)) => {
                    if kind == ColumnKind::Regular {
                        regular = regular.or(Some(column));
                    }
                    row.cells.push((at, Some(value)));
                }
            }
        }
        match (missing, regular) {
            (Some(column), _) if !row.clustering.is_empty() => Err(absent(column)),
            (Some(column), Some(regular)) => Err(Fault::of(
                &column.name,
                format!(
                    "the clustering key is missing; without one only static columns can be set, not {}",
                    regular.name
                ),
            )),
            (Some(column), None) if row.cells.is_empty() => Err(absent(column)),
            _ => Ok(row),
        }
    }
}

impl KeyInput {
    /// Sorts what was given for each column of the table, in its order.
    pub fn new(table: &Table, given: Vec<Given>) -> Result<KeyInput, Fault> {
        let mut key = KeyInput { partition: Vec::new(), clustering: Vec::new() };
        let mut missing: Option<&Column> = None;
        for (column, given) in table.columns.iter().zip(given) {
            match (column.kind, given) {
                (ColumnKind::PartitionKey, Given::Value(value)) => key.partition.push(value),
                (ColumnKind::PartitionKey, _) => return Err(absent(column)),
                (ColumnKind::Clustering(_), Given::Value(value)) => match missing {
                    None => key.clustering.push(value),
                    Some(missing) => return Err(absent(missing)),
                },
                (ColumnKind::Clustering(_), Given::Null) => return Err(Fault::of(&column.name, "keys are never null")),
                (ColumnKind::Clustering(_), Given::Unset) => missing = missing.or(Some(column)),
                (_, Given::Unset) => {}
                _ => return Err(Fault::of(&column.name, "it is no part of the key; a key has key columns only")),
            }
        }
        Ok(key)
    }
}

fn absent(column: &Column) -> Fault {
    Fault::of(&column.name, "it is part of the key and must have a value")
}

/// The place of a column in the table, or an error that says what columns there are.
pub fn place_of(table: &Table, name: &str) -> Result<usize, Fault> {
    table.columns.iter().position(|column| column.name == name).ok_or_else(|| {
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        Fault::of(name, format!("there is no such column in {}; it has {}", table.name, names.join(", ")))
    })
}
