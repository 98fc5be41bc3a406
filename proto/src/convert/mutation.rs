//! Writes: the changes that a client asks for become one [`Mutation`] with final timestamps and expiries.
//!
//! The seconds of expiries and local deletion times are those of the mutation's stamp, never of a clock here, so that a
//! mutation is the same wherever it is built from the same request and stamp.

use bytes::Bytes;
use trefoil::model::list::ListPaths;
use trefoil::model::mutation::MutationBuilder;
use trefoil::model::time::{EXPIRY_MAX_S, TTL_MAX_S};
use trefoil::model::{
    Cell, CellKind, Column, ColumnId, ColumnKind, Deletion, Liveness, LivenessKind, Mutation, PartitionKey, Row, Stamp,
    Table, Timestamp, Type,
};

use super::collection::ComplexWrite;
use super::key::Clustering;
use super::{Result, value};
use crate::v1::cell_write::Op;
use crate::v1::change::Op as ChangeOp;
use crate::v1::{CellWrite, Change, ClusteringRange, InvalidDetail, RowWrite, Value};

/// How far ahead of the stamp a client's timestamp may lie: three days. Further ahead is a unit mixed up or a clock
/// gone wrong, and nothing could overwrite it for that long.
pub const TIMESTAMP_AHEAD_MAX_US: i64 = 3 * 24 * 3_600 * 1_000_000;

/// What the changes of one request have in common.
#[derive(Debug, Clone, Copy)]
pub struct WriteContext<'a> {
    /// The table.
    pub table: &'a Table,
    /// The stamp of the mutation.
    pub stamp: Stamp,
    /// The timestamp of changes that name none; `None`: the stamp.
    pub default_timestamp: Option<Timestamp>,
    /// What tells this request from others: elements that are added to lists get their places from it.
    pub request_id: &'a [u8],
}

impl WriteContext<'_> {
    /// The timestamp of changes that name none.
    pub fn timestamp(&self) -> Timestamp {
        self.default_timestamp.unwrap_or(self.stamp.timestamp())
    }
}

/// The mutation of `key` that makes these changes. Errors name the change by its index.
pub fn mutation(context: &WriteContext<'_>, key: PartitionKey, changes: Vec<Change>) -> Result<Mutation> {
    if changes.is_empty() {
        return Err(InvalidDetail::new("the mutation changes nothing"));
    }
    let mut writer = Writer {
        context,
        clustering: Clustering::new(context.table),
        builder: MutationBuilder::new(context.table.id, key),
        paths: ListPaths::new(context.request_id),
    };
    for (index, change) in changes.into_iter().enumerate() {
        writer.add(change).map_err(|invalid| invalid.op(index))?;
    }
    Ok(writer.builder.finish())
}

struct Writer<'a> {
    context: &'a WriteContext<'a>,
    clustering: Clustering<'a>,
    builder: MutationBuilder,
    paths: ListPaths,
}

/// When something is written and how long it stays.
#[derive(Clone, Copy)]
pub(super) struct Validity {
    pub timestamp: Timestamp,
    /// Time to live and expiry, in seconds.
    expiry: Option<(u32, i64)>,
    /// Seconds of the stamp.
    pub now_s: i64,
}

/// What one change writes to columns of one kind.
#[derive(Default)]
struct Columns {
    row: Row,
    /// Whether it names any; what it does to them may come to nothing.
    named: bool,
}

/// Whether a row write leaves a marker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marker {
    Insert,
    Update,
}

impl Writer<'_> {
    fn add(&mut self, change: Change) -> Result<()> {
        let timestamp = self.timestamp(change.timestamp_us)?;
        let Some(op) = change.op else {
            return Err(InvalidDetail::new("the change has no operation"));
        };
        match op {
            ChangeOp::Insert(write) => self.write(write, self.validity(timestamp, change.ttl_s)?, Marker::Insert),
            ChangeOp::Update(write) => self.write(write, self.validity(timestamp, change.ttl_s)?, Marker::Update),
            _ if change.ttl_s.is_some() => Err(InvalidDetail::new("a deletion has no time to live")),
            ChangeOp::DeleteRow(row) => {
                let key = self.clustering.key(row.clustering)?;
                let deletion = Some(self.deletion(timestamp));
                self.builder.add_row(key, Row { deletion, ..Row::default() });
                Ok(())
            }
            ChangeOp::DeleteRange(range) => self.delete_range(range, timestamp),
            ChangeOp::DeletePartition(_) => {
                self.builder.delete_partition(self.deletion(timestamp));
                Ok(())
            }
        }
    }

    fn write(&mut self, write: RowWrite, validity: Validity, marker: Marker) -> Result<()> {
        let is_counter = |column: &&Column| column.ty == Type::Counter;
        if marker == Marker::Insert
            && let Some(counter) = self.context.table.columns.iter().find(is_counter)
        {
            let reason = "is a counter: rows of counters are not inserted, they begin with what is added to them";
            return Err(InvalidDetail::new(reason).column(&counter.name));
        }
        let (of_statics, of_row) = self.columns(write.cells, validity)?;
        let Columns { row: static_row, named: names_static } = of_statics;
        let Columns { mut row, named: names_regular } = of_row;
        self.builder.add_static(static_row);
        let static_only = names_static && write.clustering.is_empty() && !self.clustering.is_empty() && !names_regular;
        if static_only {
            return Ok(());
        }
        let key = self.clustering.key(write.clustering)?;
        row.marker = (marker == Marker::Insert).then(|| validity.marker());
        if row.marker.is_none() && !names_regular {
            return if names_static { Ok(()) } else { Err(InvalidDetail::new("the update names no column")) };
        }
        self.builder.add_row(key, row);
        Ok(())
    }

    /// What is written to static and to regular columns.
    fn columns(&mut self, writes: Vec<CellWrite>, validity: Validity) -> Result<(Columns, Columns)> {
        let (mut of_statics, mut of_row) = (Columns::default(), Columns::default());
        of_row.row.cells.reserve(writes.len());
        for CellWrite { column: name, op } in writes {
            let Some(column) = self.context.table.column(&name) else {
                return Err(InvalidDetail::new("there is no such column").column(&name));
            };
            let columns = match column.kind {
                ColumnKind::Static => &mut of_statics,
                ColumnKind::Regular => &mut of_row,
                ColumnKind::PartitionKey | ColumnKind::Clustering(_) => {
                    return Err(InvalidDetail::new("is part of the key, not a cell").column(&name));
                }
            };
            columns.named = true;
            let op = op.unwrap_or_else(|| Op::Value(Value::default()));
            if column.ty.is_complex() {
                let mut write = ComplexWrite { ty: &column.ty, validity, paths: &mut self.paths };
                let complex = write.written(op).map_err(|invalid| invalid.column(&name))?;
                columns.row.complex.extend(complex.map(|complex| (column.id, complex)));
            } else {
                let bytes = simple(op, &column.ty).map_err(|invalid| invalid.column(&name))?;
                columns.row.cells.push((column.id, validity.cell(bytes)));
            }
        }
        for Columns { row, .. } in [&mut of_statics, &mut of_row] {
            row.cells.sort_by_key(|(id, _)| *id);
            row.complex.sort_by_key(|(id, _)| *id);
            let twice = written_twice(&row.cells).or_else(|| written_twice(&row.complex));
            if let Some(id) = twice {
                let name = self.context.table.column_by_id(id).map_or("", |column| &column.name);
                return Err(InvalidDetail::new("is written twice by one change").column(name));
            }
        }
        Ok((of_statics, of_row))
    }

    fn delete_range(&mut self, range: ClusteringRange, timestamp: Timestamp) -> Result<()> {
        let slice = self.clustering.range(range)?;
        if slice.is_empty() {
            return Err(InvalidDetail::new("the range ends before it begins"));
        }
        let deletion = self.deletion(timestamp);
        self.builder.delete_range(slice.start, slice.end, deletion);
        Ok(())
    }

    fn deletion(&self, timestamp: Timestamp) -> Deletion {
        Deletion { timestamp, ldt_s: self.context.stamp.seconds() }
    }

    /// The timestamp of a change, within the bounds that a table and the clock set.
    fn timestamp(&self, own: Option<i64>) -> Result<Timestamp> {
        let timestamp = own.map_or(self.context.timestamp(), Timestamp);
        let stamp = self.context.stamp.0;
        let lateness_s = self.context.table.options.lateness_s;
        if timestamp < Timestamp::MIN {
            return Err(InvalidDetail::new(format!("timestamp {} µs is reserved", timestamp.0)));
        }
        if timestamp.0 > stamp.saturating_add(TIMESTAMP_AHEAD_MAX_US) {
            return Err(InvalidDetail::new(format!(
                "timestamp {} µs is more than three days ahead of the clock ({stamp} µs); is it in microseconds?",
                timestamp.0
            )));
        }
        if timestamp.0 < stamp.saturating_sub(i64::from(lateness_s) * 1_000_000) {
            return Err(InvalidDetail::new(format!(
                "timestamp {} µs is more than the table's lateness of {lateness_s} s behind the clock ({stamp} µs)",
                timestamp.0
            )));
        }
        Ok(timestamp)
    }

    fn validity(&self, timestamp: Timestamp, own_ttl_s: Option<u32>) -> Result<Validity> {
        let now_s = self.context.stamp.seconds();
        let ttl_s = own_ttl_s.unwrap_or(self.context.table.options.default_ttl_s);
        if ttl_s == 0 {
            return Ok(Validity { timestamp, expiry: None, now_s });
        }
        let expiry_s = now_s + i64::from(ttl_s);
        if ttl_s > TTL_MAX_S || expiry_s > EXPIRY_MAX_S {
            return Err(InvalidDetail::new(format!(
                "a time to live of {ttl_s} s; at most {TTL_MAX_S} s, and not beyond the year 2106, is possible"
            )));
        }
        Ok(Validity { timestamp, expiry: Some((ttl_s, expiry_s)), now_s })
    }
}

/// The new value of a column that is one cell.
fn simple(op: Op, ty: &Type) -> Result<Option<Bytes>> {
    match op {
        Op::Value(value) => match value::to_bytes(value, ty)? {
            Some(_) if *ty == Type::Counter => {
                Err(InvalidDetail::new("is a counter: it is added to (Data.IncrementCounters) or deleted, not set"))
            }
            bytes => Ok(bytes),
        },
        _ => {
            Err(InvalidDetail::new(format!("is of type {ty}, which has no elements of its own; it is set as a whole")))
        }
    }
}

fn written_twice<T>(columns: &[(ColumnId, T)]) -> Option<ColumnId> {
    columns.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| pair[0].0)
}

impl Validity {
    pub fn cell(self, value: Option<Bytes>) -> Cell {
        let kind = match (value, self.expiry) {
            (None, _) => CellKind::Tombstone { ldt_s: self.now_s },
            (Some(value), Some((ttl_s, expiry_s))) => CellKind::Expiring { value, ttl_s, expiry_s },
            (Some(value), None) => CellKind::Live(value),
        };
        Cell { timestamp: self.timestamp, kind }
    }

    fn marker(self) -> Liveness {
        let kind = match self.expiry {
            Some((ttl_s, expiry_s)) => LivenessKind::Expiring { ttl_s, expiry_s },
            None => LivenessKind::Live,
        };
        Liveness { timestamp: self.timestamp, kind }
    }
}
