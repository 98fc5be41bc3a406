//! Rows of answers, and their columns by name.

use std::sync::Arc;

use bytes::Bytes;
use trefoil::model::{Column, ColumnKind, Table, Type, Value};
use trefoil_proto::v1::value::Kind;
use trefoil_proto::v1::{self, InvalidDetail};

use crate::error::{Error, Result};
use crate::value::FromValue;

/// The columns of the rows of one read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    columns: Vec<(String, Type)>,
    partition: usize,
    clustering: usize,
}

impl Heading {
    /// All columns of `table`, those of the key first.
    pub fn of(table: &Table) -> Heading {
        let is_key = |column: &&Column| matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering(_));
        let (keys, others): (Vec<&Column>, Vec<&Column>) = table.columns.iter().partition(is_key);
        let columns = keys.into_iter().chain(others).map(|column| (column.name.clone(), column.ty.clone())).collect();
        Heading { columns, partition: table.partition_key().count(), clustering: table.clustering().count() }
    }

    /// Key columns of `table`, then those of `names` that are not; all of them if there are no names.
    pub(crate) fn new(table: &Table, names: Option<&[String]>) -> Result<Heading, InvalidDetail> {
        let mut heading = Heading::of(table);
        let Some(names) = names else { return Ok(heading) };
        heading.columns.truncate(heading.partition + heading.clustering);
        for name in names {
            let missing = || InvalidDetail::new("there is no such column").column(name);
            let column = table.column(name).ok_or_else(missing)?;
            if matches!(column.kind, ColumnKind::Static | ColumnKind::Regular) {
                heading.columns.push((column.name.clone(), column.ty.clone()));
            }
        }
        Ok(heading)
    }

    /// Names and types, in the order of [`Row::values`].
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Type)> {
        self.columns.iter().map(|(name, ty)| (name.as_str(), ty))
    }
}

/// Where a value comes from; answered where the read asked for metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellMetadata {
    /// Microseconds since 1970 that decide between versions.
    pub timestamp_us: i64,
    /// The time to live it was written with, in seconds, if it was.
    pub ttl_s: Option<u32>,
    /// When it will be gone, seconds since 1970, if it will.
    pub expires_at_s: Option<i64>,
}

/// An element of a list, set, map or user-defined type that is not frozen; answered where the read asked for elements.
#[derive(Debug, Clone, PartialEq)]
pub struct ElementMetadata {
    /// How writes name it: the key of a map, the element of a set, the name of a field, the id of an element of a list.
    pub path: Value,
    /// Where it comes from.
    pub cell: CellMetadata,
}

/// A row: key columns, then the others that were asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    heading: Arc<Heading>,
    wire: v1::Row,
}

/// What a row can be read as.
pub trait FromRow: Sized {
    /// From the columns of a row.
    fn from_row(row: &Row) -> Result<Self>;
}

impl FromRow for Row {
    fn from_row(row: &Row) -> Result<Self> {
        Ok(row.clone())
    }
}

impl Row {
    /// Checks that a row has the columns that were asked for, their values in raw form.
    pub fn new(heading: &Arc<Heading>, wire: v1::Row) -> Result<Row> {
        let cells = heading.columns.len() - heading.partition - heading.clustering;
        let clustering = if wire.static_only { 0 } else { heading.clustering };
        let found = (wire.partition.len(), wire.clustering.len(), wire.cells.len());
        if found != (heading.partition, clustering, cells) {
            let reason = format!("a row of {found:?} values instead of {:?}", (heading.partition, clustering, cells));
            return Err(Error::Column { column: String::new(), reason });
        }
        Ok(Row { heading: heading.clone(), wire })
    }

    /// What its columns are.
    pub fn heading(&self) -> &Heading {
        &self.heading
    }

    /// The row stands for the static columns of its partition alone: its clustering columns are null.
    pub fn is_static_only(&self) -> bool {
        self.wire.static_only
    }

    /// A column by its name. Null is an error unless `T` is an `Option`. A stored empty value of a type that has none reads
    /// as null; [`Row::bytes`] tells the two apart.
    pub fn get<T: FromValue>(&self, name: &str) -> Result<T> {
        let at = self.position(name)?;
        let fault = |reason| Error::Column { column: name.to_owned(), reason };
        match self.value_at(at)? {
            Some(value) => T::from_value(value).map_err(fault),
            None => T::from_null().map_err(fault),
        }
    }

    /// The stored bytes of a column; `None` if it is null.
    pub fn bytes(&self, name: &str) -> Result<Option<Bytes>> {
        Ok(self.bytes_at(self.position(name)?))
    }

    /// Where a static or regular column's value comes from; `None` if it is null, part of the key, or the read did not ask.
    pub fn metadata(&self, name: &str) -> Result<Option<CellMetadata>> {
        let keys = self.heading.partition + self.heading.clustering;
        let cell = self.position(name)?.checked_sub(keys).and_then(|at| self.wire.cells.get(at));
        Ok(cell.and_then(|cell| {
            let timestamp_us = cell.timestamp_us?;
            Some(CellMetadata { timestamp_us, ttl_s: cell.ttl_s, expires_at_s: cell.expires_at_s })
        }))
    }

    /// The elements of a column that is not frozen, in the order of its value; of a user-defined type the fields that are not
    /// null. None at all if it has no elements or the read did not ask.
    pub fn elements(&self, name: &str) -> Result<Vec<ElementMetadata>> {
        let keys = self.heading.partition + self.heading.clustering;
        let at = self.position(name)?;
        let Some(cell) = at.checked_sub(keys).and_then(|at| self.wire.cells.get(at)) else { return Ok(Vec::new()) };
        let ty = path_type(&self.heading.columns[at].1);
        let fault = |reason: String| Error::Column { column: name.to_owned(), reason };
        let element = |element: &v1::CellElement| {
            let Some(Kind::Raw(bytes)) = element.path.as_ref().and_then(|path| path.kind.as_ref()) else {
                return Err(fault("an element of the answer has no name".to_owned()));
            };
            let path = Value::decode(&ty, bytes).map_err(|error| fault(error.to_string()))?;
            let path = path.ok_or_else(|| fault("an element of the answer has an empty name".to_owned()))?;
            let v1::CellElement { timestamp_us, ttl_s, expires_at_s, .. } = *element;
            Ok(ElementMetadata { path, cell: CellMetadata { timestamp_us, ttl_s, expires_at_s } })
        };
        cell.elements.iter().map(element).collect()
    }

    /// All columns in the order of the heading; `None` is null.
    pub fn values(&self) -> Result<Vec<Option<Value>>> {
        (0..self.heading.columns.len()).map(|at| self.value_at(at)).collect()
    }

    /// The row as something else.
    pub fn into_typed<T: FromRow>(self) -> Result<T> {
        T::from_row(&self)
    }

    fn position(&self, name: &str) -> Result<usize> {
        let found = self.heading.columns.iter().position(|(column, _)| column == name);
        found.ok_or_else(|| Error::Column { column: name.to_owned(), reason: "the answer does not have it".to_owned() })
    }

    fn value_at(&self, at: usize) -> Result<Option<Value>> {
        let Some(bytes) = self.bytes_at(at) else { return Ok(None) };
        let (name, ty) = &self.heading.columns[at];
        Value::decode(ty, &bytes).map_err(|error| Error::Column { column: name.clone(), reason: error.to_string() })
    }

    fn bytes_at(&self, at: usize) -> Option<Bytes> {
        let (partition, keys) = (self.heading.partition, self.heading.partition + self.heading.clustering);
        let value = if at < partition {
            self.wire.partition.get(at)
        } else if at < keys {
            self.wire.clustering.get(at - partition)
        } else {
            self.wire.cells.get(at - keys).and_then(|cell| cell.value.as_ref())
        };
        // Values are asked for in their raw form only.
        match value?.kind.as_ref()? {
            Kind::Raw(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
}

/// The type of what names the elements of a column.
pub fn path_type(ty: &Type) -> Type {
    match ty {
        Type::Map { key: named, .. } | Type::Set { element: named, .. } => Type::clone(named),
        Type::List { .. } => Type::TimeUuid,
        _ => Type::Text,
    }
}
