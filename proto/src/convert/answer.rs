//! Answers: merged rows of the core become rows of a page, by projection.

use bytes::Bytes;
use trefoil::model::collection::put_together;
use trefoil::model::list::compare_list_paths;
use trefoil::model::value::compare;
use trefoil::model::{
    Cell as ModelCell, CellKind, ClusteringKey, ColumnKind, Complex, PartitionKey, Row as ModelRow, Table, Type,
};

use super::key::Clustering;
use super::read::{Headings, Metadata, ProjectionParts};
use super::{schema, value};
use crate::v1::{Cell, CellElement, Column, Row, Value, ValueForm};

/// Makes the rows of pages for one read.
#[derive(Debug)]
pub struct Projector<'a> {
    table: &'a Table,
    clustering: Clustering<'a>,
    parts: &'a ProjectionParts,
    now_s: i64,
}

impl<'a> Projector<'a> {
    /// For rows of `table` as they stand at `now_s`.
    pub fn new(table: &'a Table, parts: &'a ProjectionParts, now_s: i64) -> Projector<'a> {
        Projector { table, clustering: Clustering::new(table), parts, now_s }
    }

    /// What a page says of its columns.
    pub fn columns(&self) -> Vec<Column> {
        match self.parts.headings {
            Headings::Omitted => Vec::new(),
            Headings::Included => {
                self.parts.columns.iter().map(|&at| schema::column(&self.table.columns[at])).collect()
            }
        }
    }

    /// The values of a partition key; made once, for all rows of the partition.
    pub fn partition(&self, key: &PartitionKey) -> trefoil::Result<Vec<Value>> {
        let components = key.decode(&self.table.partition_types())?;
        let columns = self.table.partition_key();
        Ok(components
            .into_iter()
            .zip(columns)
            .map(|(bytes, column)| value::from_bytes(bytes, &column.ty, self.parts.form))
            .collect())
    }

    /// A row with the static columns of its partition.
    pub fn row(
        &self,
        partition: &[Value],
        key: &ClusteringKey,
        row: &ModelRow,
        static_row: Option<&ModelRow>,
    ) -> trefoil::Result<Row> {
        let components = self.clustering.decode(key)?;
        let clustering = components
            .into_iter()
            .zip(self.clustering.columns())
            .map(|(bytes, column)| value::from_bytes(bytes, &column.ty, self.parts.form))
            .collect();
        let cells = self.cells(Some(row), static_row)?;
        Ok(Row { partition: partition.to_vec(), clustering, cells, static_only: false })
    }

    /// A row that stands for the static columns of a partition alone.
    pub fn static_row(&self, partition: &[Value], static_row: &ModelRow) -> trefoil::Result<Row> {
        let cells = self.cells(None, Some(static_row))?;
        Ok(Row { partition: partition.to_vec(), clustering: Vec::new(), cells, static_only: true })
    }

    fn cells(&self, row: Option<&ModelRow>, static_row: Option<&ModelRow>) -> trefoil::Result<Vec<Cell>> {
        let cell = |&at: &usize| {
            let column = &self.table.columns[at];
            let source = if column.kind == ColumnKind::Static { static_row } else { row };
            let cell = source.and_then(|row| row.cell(column.id)).map(|cell| Ok(self.cell(cell, &column.ty)));
            let complex = source.and_then(|row| row.complex(column.id));
            let complex = complex.map(|complex| self.complex(complex, &column.ty));
            cell.or(complex).unwrap_or_else(|| Ok(Cell::default()))
        };
        self.parts.columns.iter().map(cell).collect()
    }

    /// A column of many cells, as one value.
    fn complex(&self, complex: &Complex, ty: &Type) -> trefoil::Result<Cell> {
        let Some(bytes) = put_together(ty, complex, self.now_s)? else { return Ok(Cell::default()) };
        let mut answer = Cell { value: Some(value::from_bytes(bytes, ty, self.parts.form)), ..Cell::default() };
        if self.parts.metadata != Metadata::Without {
            let live = complex.cells.iter().filter(|(_, cell)| cell.is_live_at(self.now_s));
            answer.timestamp_us = live.map(|(_, cell)| cell.timestamp.0).max();
        }
        if self.parts.metadata == Metadata::WithElements {
            answer.elements = self.elements(complex, ty);
        }
        Ok(answer)
    }

    /// The elements of a column of many cells, in the order of its value.
    fn elements(&self, complex: &Complex, ty: &Type) -> Vec<CellElement> {
        let live = complex.cells.iter().filter(|(_, cell)| cell.is_live_at(self.now_s));
        let mut live: Vec<&(Bytes, ModelCell)> = live.collect();
        live.sort_by(|(a, _), (b, _)| match ty {
            Type::List { .. } => compare_list_paths(a, b),
            Type::Map { key: named, .. } | Type::Set { element: named, .. } => compare(named, a, b),
            _ => a.cmp(b),
        });
        let element = |(path, cell): &(Bytes, ModelCell)| {
            let (ttl_s, expires_at_s) = expiry(cell).unzip();
            let path = Some(path_value(path, ty, self.parts.form)?);
            Some(CellElement { path, timestamp_us: cell.timestamp.0, ttl_s, expires_at_s })
        };
        live.into_iter().filter_map(element).collect()
    }

    fn cell(&self, cell: &ModelCell, ty: &Type) -> Cell {
        let Some(bytes) = cell.bytes_at(self.now_s) else { return Cell::default() };
        let mut answer = Cell { value: Some(value::from_bytes(bytes, ty, self.parts.form)), ..Cell::default() };
        if self.parts.metadata != Metadata::Without {
            answer.timestamp_us = Some(cell.timestamp.0);
            (answer.ttl_s, answer.expires_at_s) = expiry(cell).unzip();
        }
        answer
    }
}

/// Time to live and expiry, in seconds, of a cell that has them.
fn expiry(cell: &ModelCell) -> Option<(u32, i64)> {
    match cell.kind {
        CellKind::Expiring { ttl_s, expiry_s, .. } => Some((ttl_s, expiry_s)),
        _ => None,
    }
}

/// How a request names the element that lies at a path; `None` of a field that this node does not know yet.
fn path_value(path: &Bytes, ty: &Type, form: ValueForm) -> Option<Value> {
    match ty {
        Type::Map { key: named, .. } | Type::Set { element: named, .. } => {
            Some(value::from_bytes(path.clone(), named, form))
        }
        Type::List { .. } => Some(value::from_bytes(path.clone(), &Type::TimeUuid, form)),
        Type::User { definition, .. } => {
            let position = usize::from(u16::from_be_bytes(path.as_ref().try_into().ok()?));
            let name = definition.fields.get(position)?.name.clone();
            Some(value::from_bytes(Bytes::from(name), &Type::Text, form))
        }
        _ => None,
    }
}
