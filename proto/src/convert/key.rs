//! Keys and ranges of rows: lists of values and the core's ordered bytes, by the columns of a table.

use bytes::Bytes;
use trefoil::model::{Bound, ClusteringKey, Column, Order, PartitionKey, Slice, Table, Type};

use super::{Result, value};
use crate::v1::{ClusteringRange, InvalidDetail, Value};

/// The partition key of one value per column.
pub fn partition_key(
    values: impl IntoIterator<Item = Value, IntoIter: ExactSizeIterator>,
    table: &Table,
) -> Result<PartitionKey> {
    let values = values.into_iter();
    if values.len() != table.partition_key().count() {
        return Err(wrong_count("partition key", values.len(), &table.partition_key().collect::<Vec<_>>()));
    }
    let components = components(values, table.partition_key())?;
    PartitionKey::encode(&components, &table.partition_types()).map_err(|error| InvalidDetail::from_core(&error))
}

/// How the clustering columns of one table are encoded: made once per request, not per row.
#[derive(Debug)]
pub struct Clustering<'a> {
    columns: Vec<&'a Column>,
    types: Vec<(Type, Order)>,
}

impl<'a> Clustering<'a> {
    /// That of `table`.
    pub fn new(table: &'a Table) -> Clustering<'a> {
        Clustering { columns: table.clustering().map(|(column, _)| column).collect(), types: table.clustering_types() }
    }

    /// Whether the table has no clustering columns, hence one row per partition.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The clustering key of one value per column.
    pub fn key(&self, values: Vec<Value>) -> Result<ClusteringKey> {
        if values.len() != self.columns.len() {
            return Err(wrong_count("clustering key", values.len(), &self.columns));
        }
        let components = components(values.into_iter(), self.columns.iter().copied())?;
        ClusteringKey::encode(&components, &self.types).map_err(|error| InvalidDetail::from_core(&error))
    }

    /// All rows that begin with `values`: one row, if there is one for each column.
    pub fn prefix(&self, values: Vec<Value>) -> Result<Slice> {
        let prefix = self.components(values)?;
        Ok(Slice { start: self.before(&prefix)?, end: self.after(&prefix)? })
    }

    /// The rows of a range; `start >= end` if there can be none.
    pub fn range(&self, range: ClusteringRange) -> Result<Slice> {
        if (range.from_exclusive && range.from.is_empty()) || (range.to_exclusive && range.to.is_empty()) {
            return Err(InvalidDetail::new("the range has an exclusive end without values"));
        }
        let from = self.components(range.from)?;
        let to = self.components(range.to)?;
        Ok(Slice {
            start: if range.from_exclusive { self.after(&from)? } else { self.before(&from)? },
            end: if range.to_exclusive { self.before(&to)? } else { self.after(&to)? },
        })
    }

    /// The values of an encoded key.
    pub fn decode(&self, key: &ClusteringKey) -> trefoil::Result<Vec<Bytes>> {
        key.decode(&self.types)
    }

    /// The clustering columns in key order.
    pub fn columns(&self) -> &[&'a Column] {
        &self.columns
    }

    fn components(&self, values: Vec<Value>) -> Result<Vec<Bytes>> {
        if values.len() > self.columns.len() {
            return Err(wrong_count("clustering key", values.len(), &self.columns));
        }
        components(values.into_iter(), self.columns.iter().copied())
    }

    fn before(&self, prefix: &[Bytes]) -> Result<Bound> {
        Bound::before(prefix, &self.types).map_err(|error| InvalidDetail::from_core(&error))
    }

    fn after(&self, prefix: &[Bytes]) -> Result<Bound> {
        Bound::after(prefix, &self.types).map_err(|error| InvalidDetail::from_core(&error))
    }
}

/// Sorts slices and joins those that overlap or touch; drops those that are empty.
pub fn disjoint(mut slices: Vec<Slice>) -> Vec<Slice> {
    slices.retain(|slice| !slice.is_empty());
    slices.sort_by(|a, b| a.start.cmp(&b.start));
    let mut joined: Vec<Slice> = Vec::with_capacity(slices.len());
    for slice in slices {
        match joined.last_mut() {
            Some(last) if slice.start <= last.end => last.end = slice.end.max(last.end.clone()),
            _ => joined.push(slice),
        }
    }
    joined
}

/// The bytes of the first columns of a key.
fn components<'a>(
    values: impl Iterator<Item = Value>,
    columns: impl Iterator<Item = &'a Column>,
) -> Result<Vec<Bytes>> {
    let encode = |(value, column): (Value, &Column)| match value::to_bytes(value, &column.ty) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(InvalidDetail::new("null in a key").column(&column.name)),
        Err(invalid) => Err(invalid.column(&column.name)),
    };
    values.zip(columns).map(encode).collect()
}

fn wrong_count(what: &str, found: usize, columns: &[&Column]) -> InvalidDetail {
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    InvalidDetail::new(format!("{found} values for the {what} ({})", names.join(", ")))
}
