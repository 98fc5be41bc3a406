//! Answers: merged rows of the core become rows of a page, by projection.

use trefoil::model::collection::put_together;
use trefoil::model::{
    Cell as ModelCell, CellKind, ClusteringKey, ColumnKind, Complex, PartitionKey, Row as ModelRow, Table, Type,
};

use super::key::Clustering;
use super::read::{Headings, Metadata, ProjectionParts};
use super::{schema, value};
use crate::v1::{Cell, Column, Row, Value};

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
        if self.parts.metadata == Metadata::With {
            let live = complex.cells.iter().filter(|(_, cell)| cell.is_live_at(self.now_s));
            answer.timestamp_us = live.map(|(_, cell)| cell.timestamp.0).max();
        }
        Ok(answer)
    }

    fn cell(&self, cell: &ModelCell, ty: &Type) -> Cell {
        let Some(bytes) = cell.bytes_at(self.now_s) else { return Cell::default() };
        let mut answer = Cell { value: Some(value::from_bytes(bytes, ty, self.parts.form)), ..Cell::default() };
        if self.parts.metadata == Metadata::With {
            answer.timestamp_us = Some(cell.timestamp.0);
            if let CellKind::Expiring { ttl_s, expiry_s, .. } = cell.kind {
                answer.ttl_s = Some(ttl_s);
                answer.expires_at_s = Some(expiry_s);
            }
        }
        answer
    }
}
