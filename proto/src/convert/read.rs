//! Reads: what a client asks for becomes a list of targets for the core, in the order of the answer.

use trefoil::model::{ColumnKind, Direction, Slice, Table, Target, Token, TokenRange};

use super::Result;
use super::key::{Clustering, disjoint, partition_key};
use crate::MULTI_GET_KEYS_MAX;
use crate::v1::read_request::Target as WireTarget;
use crate::v1::{ClusteringRange, InvalidDetail, Key, Projection, ReadRequest, ValueForm};

/// What a client asks for, checked against the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadParts {
    /// To be read one after the other; the answer has their rows in this order. None: the answer is empty.
    pub targets: Vec<ReadTarget>,
    /// The order of rows within each partition.
    pub direction: Direction,
    /// Rows in all pages together.
    pub limit: Option<u64>,
    /// Rows of one partition.
    pub per_partition_limit: Option<u32>,
    /// What is answered of each row.
    pub projection: ProjectionParts,
}

/// Partitions and the rows of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadTarget {
    /// Which partitions.
    pub target: Target,
    /// Which rows: ascending, not overlapping; never empty.
    pub slices: Vec<Slice>,
}

/// What is answered of each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectionParts {
    /// Places in [`Table::columns`] of static and regular columns, in the order of the answer.
    pub columns: Vec<usize>,
    /// Whether timestamp, time to live and expiry of cells are answered.
    pub metadata: Metadata,
    /// The form of values.
    pub form: ValueForm,
    /// Whether pages say what their columns are.
    pub headings: Headings,
}

/// Whether timestamp, time to live and expiry of cells are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metadata {
    /// Values only.
    Without,
    /// Values and where they come from.
    With,
    /// And where each element of them comes from.
    WithElements,
}

/// Whether pages say what their columns are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headings {
    /// The caller knows.
    Omitted,
    /// In every page.
    Included,
}

/// Checks a request against its table. Errors name ranges and keys by their index.
pub fn read(request: ReadRequest, table: &Table) -> Result<ReadParts> {
    let clustering = Clustering::new(table);
    let targets = match request.target {
        Some(WireTarget::Slice(slice)) => {
            let key = partition_key(slice.partition, table)?;
            with_slices(Target::Partition(key), slices(slice.ranges, &clustering)?)
        }
        Some(WireTarget::MultiGet(get)) => multi_get(get.keys, table, &clustering)?,
        Some(WireTarget::Scan(scan)) => {
            let tokens = TokenRange { after: scan.after_token.map(Token), up_to: scan.up_to_token.map(Token) };
            let possible = tokens.after.zip(tokens.up_to).is_none_or(|(after, up_to)| after < up_to);
            let slices = slices(scan.ranges, &clustering)?;
            if possible { with_slices(Target::Scan(tokens), slices) } else { Vec::new() }
        }
        None => return Err(InvalidDetail::new("the read has no target")),
    };
    Ok(ReadParts {
        targets,
        direction: if request.reversed { Direction::Reverse } else { Direction::Forward },
        limit: (request.limit > 0).then_some(request.limit),
        per_partition_limit: (request.per_partition_limit > 0).then_some(request.per_partition_limit),
        projection: projection(request.projection.unwrap_or_default(), table)?,
    })
}

fn with_slices(target: Target, slices: Vec<Slice>) -> Vec<ReadTarget> {
    if slices.is_empty() { Vec::new() } else { vec![ReadTarget { target, slices }] }
}

fn slices(ranges: Vec<ClusteringRange>, clustering: &Clustering<'_>) -> Result<Vec<Slice>> {
    if ranges.is_empty() {
        return Ok(vec![Slice::all()]);
    }
    let convert = |(index, range)| clustering.range(range).map_err(|invalid| invalid.op(index));
    Ok(disjoint(ranges.into_iter().enumerate().map(convert).collect::<Result<_>>()?))
}

fn multi_get(keys: Vec<Key>, table: &Table, clustering: &Clustering<'_>) -> Result<Vec<ReadTarget>> {
    if keys.is_empty() || keys.len() > MULTI_GET_KEYS_MAX {
        return Err(InvalidDetail::new(format!("{} keys; 1 to {MULTI_GET_KEYS_MAX} are possible", keys.len())));
    }
    let one = |key: Key| {
        let target = Target::Partition(partition_key(key.partition, table)?);
        Ok(ReadTarget { target, slices: vec![clustering.prefix(key.clustering)?] })
    };
    keys.into_iter()
        .enumerate()
        .map(|(index, key)| one(key).map_err(|invalid: InvalidDetail| invalid.op(index)))
        .collect()
}

/// Checks a projection against its table.
pub fn projection(projection: Projection, table: &Table) -> Result<ProjectionParts> {
    let is_cell = |at: &usize| matches!(table.columns[*at].kind, ColumnKind::Static | ColumnKind::Regular);
    let columns = if projection.columns.is_empty() {
        (0..table.columns.len()).filter(is_cell).collect()
    } else {
        let mut columns = Vec::with_capacity(projection.columns.len());
        for name in &projection.columns {
            let Some(at) = table.columns.iter().position(|column| column.name == *name) else {
                return Err(InvalidDetail::new("there is no such column").column(name));
            };
            if columns.contains(&at) {
                return Err(InvalidDetail::new("is named twice").column(name));
            }
            columns.push(at);
        }
        columns.retain(is_cell);
        columns
    };
    Ok(ProjectionParts {
        columns,
        metadata: match (projection.with_elements, projection.with_metadata) {
            (true, _) => Metadata::WithElements,
            (false, true) => Metadata::With,
            (false, false) => Metadata::Without,
        },
        form: projection.value_form(),
        headings: if projection.omit_columns { Headings::Omitted } else { Headings::Included },
    })
}
