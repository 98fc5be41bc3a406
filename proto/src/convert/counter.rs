//! Additions to counters: what a client asks for becomes a place and cells, once it is known what was added before.

use trefoil::model::mutation::MutationBuilder;
use trefoil::model::{
    Cell, CellKind, ClusteringKey, ColumnId, ColumnKind, Counter, Mutation, PartitionKey, Row, Shard, Slice, Table,
    TableId, Timestamp, Type,
};

use super::Result;
use super::key::{Clustering, partition_key};
use crate::v1::{IncrementRequest, InvalidDetail};

/// Additions to counters of one row, or to static ones of a partition.
#[derive(Debug, Clone)]
pub struct Increment {
    /// The table.
    pub table: TableId,
    /// The partition.
    pub key: PartitionKey,
    /// The row; `None`: only static counters.
    pub clustering: Option<ClusteringKey>,
    of_row: Vec<(ColumnId, i64)>,
    of_static: Vec<(ColumnId, i64)>,
}

/// What a request adds to counters of `table`.
pub fn increment(request: IncrementRequest, table: &Table) -> Result<Increment> {
    let IncrementRequest { options, partition, clustering, adds, .. } = request;
    if options.is_some_and(|options| options.default_timestamp_us.is_some()) {
        return Err(InvalidDetail::new("counters take no timestamp: what is added counts whenever it comes"));
    }
    if adds.is_empty() {
        return Err(InvalidDetail::new("nothing is added"));
    }
    let (mut of_row, mut of_static) = (Vec::new(), Vec::new());
    for add in adds {
        let fault = |reason: &str| InvalidDetail::new(reason).column(&add.column);
        let column = table.column(&add.column).ok_or_else(|| fault("there is no such column"))?;
        let list = match column.kind {
            _ if column.ty != Type::Counter => return Err(fault("is not a counter")),
            ColumnKind::Static => &mut of_static,
            _ => &mut of_row,
        };
        if list.iter().any(|(id, _)| *id == column.id) {
            return Err(fault("is named twice"));
        }
        list.push((column.id, add.add));
    }
    of_row.sort_unstable();
    of_static.sort_unstable();
    let columns = Clustering::new(table);
    let only_static = of_row.is_empty() && clustering.is_empty() && !columns.is_empty();
    let clustering = if only_static { None } else { Some(columns.key(clustering)?) };
    let key = partition_key(partition, table)?;
    Ok(Increment { table: table.id, key, clustering, of_row, of_static })
}

impl Increment {
    /// The rows that hold the counters, and beside them the static ones.
    pub fn slice(&self) -> Slice {
        match &self.clustering {
            Some(key) => Slice { start: key.before(), end: key.after() },
            None => Slice::all(),
        }
    }

    /// The write that adds, given the static row and the row as the own replica has them, by a shard that begins as
    /// `owner`: what this run has added before, and now, under the next clock.
    pub fn mutation(&self, owner: Shard, timestamp: Timestamp, static_row: &Row, row: &Row) -> Mutation {
        let cells = |adds: &[(ColumnId, i64)], present: &Row| {
            let cell = |&(column, add): &(ColumnId, i64)| {
                let shard = next(present.cell(column), owner, add);
                (column, Cell { timestamp, kind: CellKind::Counter(Counter::new(shard)) })
            };
            Row { cells: adds.iter().map(cell).collect(), ..Row::default() }
        };
        let mut builder = MutationBuilder::new(self.table, self.key.clone());
        if !self.of_static.is_empty() {
            builder.add_static(cells(&self.of_static, static_row));
        }
        if let Some(key) = &self.clustering
            && !self.of_row.is_empty()
        {
            builder.add_row(key.clone(), cells(&self.of_row, row));
        }
        builder.finish()
    }
}

/// The own shard with `add` added to it.
fn next(present: Option<&Cell>, owner: Shard, add: i64) -> Shard {
    let own = match present.map(|cell| &cell.kind) {
        Some(CellKind::Counter(counter)) => counter.shards().iter().find(|shard| shard.owner() == owner.owner()),
        _ => None,
    };
    let Shard { clock, value, .. } = *own.unwrap_or(&owner);
    Shard { clock: clock + 1, value: value.wrapping_add(add), ..owner }
}
