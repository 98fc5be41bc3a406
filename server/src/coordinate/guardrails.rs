//! Guardrails: limits that keep one table, row or request from hurting everybody else. What is beyond a `max` is refused,
//! what is beyond a `warn` is done, and told: in the answer, in metrics, in the log of slow operations.
//!
//! ```text
//! write   value, row, keys     checked once the mutation is built, before it is sent to anybody
//! batch   mutations, bytes     before its parts are begun
//! read    ranges               before it is begun
//!         tombstones, rows     while the page is put together; a page with too many tombstones is an error, never less
//! flush   partitions           when they are written to a file, which alone knows their size: by the store
//! schema  tables, columns      before the change is proposed
//! ```

use trefoil::coordinator::{Assembler, ReadGuards};
use trefoil::metadata::ClusterState;
use trefoil::model::ddl::DdlStatement;
use trefoil::model::{Cell, CellKind, ColumnId, Mutation, PartitionKey, Row, Table, Value};
use trefoil_proto::convert::value;
use trefoil_proto::v1;
use trefoil_proto::v1::error_detail::Kind;

use super::Place;
use crate::metrics;

/// The limits, in bytes and numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guardrails {
    /// A value above this is told of.
    pub value_bytes_warn: u64,
    /// A larger value is refused.
    pub value_bytes_max: u64,
    /// A row of a mutation, or of an answer, above this is told of.
    pub row_bytes_warn: u64,
    /// A row of a mutation with more is refused.
    pub row_bytes_max: u64,
    /// A partition key or clustering key above this is told of.
    pub key_bytes_warn: u64,
    /// A larger partition in one file is told of.
    pub partition_bytes_warn: u64,
    /// A partition of more rows in one file is told of.
    pub partition_rows_warn: u64,
    /// A page that meets more tombstones is told of.
    pub tombstones_warn: u64,
    /// A page that meets more tombstones is refused.
    pub tombstones_max: u64,
    /// A read of more clustering ranges is refused.
    pub ranges_max: u64,
    /// A batch of more mutations is told of.
    pub batch_mutations_warn: u64,
    /// A batch of more mutations is refused.
    pub batch_mutations_max: u64,
    /// A larger batch is told of.
    pub batch_bytes_warn: u64,
    /// With so many tables in the cluster no more are made.
    pub tables_max: u64,
    /// With so many tables in a keyspace no more are made in it.
    pub tables_per_keyspace_max: u64,
    /// A table of more columns is not made.
    pub columns_max: u64,
}

/// What is limited, by the name of its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guardrail {
    /// A value.
    Value,
    /// A row.
    Row,
    /// A partition or clustering key.
    Key,
    /// Tombstones met by a page.
    Tombstones,
    /// Clustering ranges of a read.
    Ranges,
    /// A batch.
    Batch,
    /// Tables.
    Tables,
    /// Columns of a table.
    Columns,
}

impl Guardrail {
    /// All of them.
    pub const ALL: [Guardrail; 8] = [
        Guardrail::Value,
        Guardrail::Row,
        Guardrail::Key,
        Guardrail::Tombstones,
        Guardrail::Ranges,
        Guardrail::Batch,
        Guardrail::Tables,
        Guardrail::Columns,
    ];

    /// The word in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Guardrail::Value => "value",
            Guardrail::Row => "row",
            Guardrail::Key => "key",
            Guardrail::Tombstones => "tombstones",
            Guardrail::Ranges => "ranges",
            Guardrail::Batch => "batch",
            Guardrail::Tables => "tables",
            Guardrail::Columns => "columns",
        }
    }
}

/// What is told of one request.
#[derive(Debug, Default)]
struct Told(Vec<String>);

impl Told {
    fn warn(&mut self, guardrail: Guardrail, text: String) {
        metrics::guardrail_warning(guardrail);
        self.0.push(text);
    }
}

fn refuse(guardrail: Guardrail, reason: String) -> v1::InvalidDetail {
    metrics::guardrail_refusal(guardrail);
    v1::InvalidDetail::new(reason)
}

impl Guardrails {
    /// What a page is put together with.
    pub fn of_reads(&self) -> ReadGuards {
        ReadGuards { tombstones_max: self.tombstones_max, row_bytes_warn: self.row_bytes_warn }
    }

    /// Warnings of a write; an error if it is not to be done.
    pub(super) fn check_write(&self, mutation: &Mutation, table: &Table) -> Result<Vec<String>, v1::InvalidDetail> {
        let mut told = Told::default();
        self.check_key("partition key", mutation.key.bytes().len(), &mut told);
        for (key, row) in &mutation.rows {
            self.check_key("clustering key", key.bytes().len(), &mut told);
            self.check_row(row, table, &mut told)?;
        }
        if let Some(row) = &mutation.static_row {
            self.check_row(row, table, &mut told)?;
        }
        Ok(told.0)
    }

    fn check_key(&self, what: &str, bytes: usize, told: &mut Told) {
        if bytes as u64 > self.key_bytes_warn {
            let text = format!("a {what} of {bytes} bytes is above the {} of key_bytes_warn", self.key_bytes_warn);
            told.warn(Guardrail::Key, text);
        }
    }

    fn check_row(&self, row: &Row, table: &Table, told: &mut Told) -> Result<(), v1::InvalidDetail> {
        let mut row_bytes = 0;
        for (place, cell) in row.all_cells() {
            let bytes = value_bytes(cell);
            row_bytes += bytes + place.path.map_or(0, |path| path.len() as u64);
            if bytes > self.value_bytes_warn.min(self.value_bytes_max) {
                self.check_value(place.column, bytes, table, told)?;
            }
        }
        if row_bytes > self.row_bytes_max {
            let max = self.row_bytes_max;
            let reason = format!("a row of {row_bytes} bytes; at most {max} are possible (guardrails.row_kib_max)");
            return Err(refuse(Guardrail::Row, reason));
        }
        if row_bytes > self.row_bytes_warn {
            let text = format!("a row of {row_bytes} bytes is above the {} of row_kib_warn", self.row_bytes_warn);
            told.warn(Guardrail::Row, text);
        }
        Ok(())
    }

    fn check_value(
        &self,
        column: ColumnId,
        bytes: u64,
        table: &Table,
        told: &mut Told,
    ) -> Result<(), v1::InvalidDetail> {
        let name = table.column_by_id(column).map_or("", |column| &column.name);
        let (warn, max) = (self.value_bytes_warn, self.value_bytes_max);
        if bytes > max {
            let reason = format!("{bytes} bytes; at most {max} are possible (guardrails.value_kib_max)");
            return Err(refuse(Guardrail::Value, reason).column(name));
        }
        if bytes > warn {
            let text = format!("{name}: a value of {bytes} bytes is above the {warn} of value_kib_warn");
            told.warn(Guardrail::Value, text);
        }
        Ok(())
    }

    /// Warnings of a batch of so many bytes; an error if it is not to be begun.
    pub(super) fn check_batch(&self, mutations: usize, bytes: usize) -> Result<Vec<String>, v1::InvalidDetail> {
        let mut told = Told::default();
        let (mutations, bytes) = (mutations as u64, bytes as u64);
        if mutations > self.batch_mutations_max {
            let max = self.batch_mutations_max;
            let reason = format!(
                "a batch of {mutations} mutations; at most {max} are possible (guardrails.batch_mutations_max)"
            );
            return Err(refuse(Guardrail::Batch, reason));
        }
        if mutations > self.batch_mutations_warn {
            let warn = self.batch_mutations_warn;
            let text = format!("a batch of {mutations} mutations is above the {warn} of batch_mutations_warn");
            told.warn(Guardrail::Batch, text);
        }
        if bytes > self.batch_bytes_warn {
            let text = format!("a batch of {bytes} bytes is above the {} of batch_kib_warn", self.batch_bytes_warn);
            told.warn(Guardrail::Batch, text);
        }
        Ok(told.0)
    }

    /// Whether a read may ask for so many ranges.
    pub(super) fn check_ranges(&self, request: &v1::ReadRequest) -> Result<(), v1::InvalidDetail> {
        let ranges = match &request.target {
            Some(v1::read_request::Target::Slice(slice)) => slice.ranges.len(),
            Some(v1::read_request::Target::Scan(scan)) => scan.ranges.len(),
            Some(v1::read_request::Target::MultiGet(_)) | None => 0,
        };
        if ranges as u64 > self.ranges_max {
            let max = self.ranges_max;
            let reason = format!("a read of {ranges} ranges; at most {max} are possible (guardrails.ranges_max)");
            return Err(refuse(Guardrail::Ranges, reason));
        }
        Ok(())
    }

    /// Warnings of a page.
    pub(super) fn check_page(&self, page: &Assembler, place: &Place) -> Vec<String> {
        let mut told = Told::default();
        let tombstones = page.tombstones();
        if tombstones > self.tombstones_warn {
            let warn = self.tombstones_warn;
            let text = format!(
                "{}: the page met {tombstones} tombstones, above the {warn} of tombstones_warn",
                name_of(place)
            );
            told.warn(Guardrail::Tombstones, text);
        }
        if let Some(large) = page.large_row() {
            let (bytes, warn) = (large.bytes, self.row_bytes_warn);
            let partition = shown(&large.partition, &place.table);
            let text = format!(
                "{}: a row of {bytes} bytes in partition {partition} is above the {warn} of row_kib_warn",
                name_of(place)
            );
            told.warn(Guardrail::Row, text);
        }
        told.0
    }

    /// The error of a page that met too many tombstones.
    pub(super) fn too_many_tombstones(&self, partition: &PartitionKey, found: u64, place: &Place) -> v1::Error {
        metrics::guardrail_refusal(Guardrail::Tombstones);
        let limit = self.tombstones_max;
        let message = format!(
            "{}: the read met {found} tombstones in one page, the last of them in partition {}; at most {limit} are \
             possible (guardrails.tombstones_max). Read fewer rows at a time, or a narrower slice",
            name_of(place),
            shown(partition, &place.table),
        );
        let detail = v1::LimitDetail {
            guardrail: "tombstones_max".to_owned(),
            keyspace: place.keyspace.name.clone(),
            table: place.table.name.clone(),
            partition: values(partition, &place.table),
            found,
            limit,
        };
        v1::Error::with(tonic::Code::FailedPrecondition, message, v1::Outcome::NotApplied, Kind::Limit(detail))
    }

    /// Whether the schema may be changed so.
    pub fn check_schema(&self, statement: &DdlStatement, state: &ClusterState) -> Result<(), v1::InvalidDetail> {
        let DdlStatement::CreateTable(create) = statement else { return Ok(()) };
        let of_table = |detail: v1::InvalidDetail| detail.table(&create.keyspace, &create.name);
        let columns = create.columns.len() as u64;
        if columns > self.columns_max {
            let max = self.columns_max;
            let reason = format!("a table of {columns} columns; at most {max} are possible (guardrails.columns_max)");
            return Err(of_table(refuse(Guardrail::Columns, reason)));
        }
        let keyspace = state.keyspace_named(&create.keyspace);
        let exists = state.table_named(&create.keyspace, &create.name).is_some();
        let in_keyspace = keyspace.map_or(0, |keyspace| state.tables_in(keyspace).count() as u64);
        let all: u64 = state.keyspaces().map(|keyspace| state.tables_in(keyspace).count() as u64).sum();
        for (count, max, setting) in [
            (all, self.tables_max, "tables_max"),
            (in_keyspace, self.tables_per_keyspace_max, "tables_per_keyspace_max"),
        ] {
            if count >= max && !exists {
                let reason = format!("there are {count} tables; at most {max} are possible (guardrails.{setting})");
                return Err(of_table(refuse(Guardrail::Tables, reason)));
            }
        }
        Ok(())
    }
}

fn name_of(place: &Place) -> String {
    format!("{}.{}", place.keyspace.name, place.table.name)
}

fn value_bytes(cell: &Cell) -> u64 {
    match &cell.kind {
        CellKind::Live(value) | CellKind::Expiring { value, .. } => value.len() as u64,
        CellKind::Expired { .. } | CellKind::Tombstone { .. } | CellKind::Counter(_) => 0,
    }
}

/// The values of a partition key; none if its bytes do not fit the table.
fn values(partition: &PartitionKey, table: &Table) -> Vec<v1::Value> {
    let components = partition.decode(&table.partition_types()).unwrap_or_default();
    let form = v1::ValueForm::Typed;
    components
        .into_iter()
        .zip(table.partition_key())
        .map(|(bytes, column)| value::from_bytes(bytes, &column.ty, form))
        .collect()
}

/// A partition key for people.
fn shown(partition: &PartitionKey, table: &Table) -> String {
    let components = partition.decode(&table.partition_types()).unwrap_or_default();
    let one = |(bytes, column): (bytes::Bytes, &trefoil::model::Column)| match Value::decode(&column.ty, &bytes) {
        Ok(Some(Value::Text(text))) => format!("{} = {text:?}", column.name),
        Ok(Some(value)) => format!("{} = {value:?}", column.name),
        Ok(None) | Err(_) => format!("{} = {}", column.name, bytes.escape_ascii()),
    };
    let all: Vec<String> = components.into_iter().zip(table.partition_key()).map(one).collect();
    format!("({})", all.join(", "))
}
