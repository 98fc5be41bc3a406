//! The words of the model in those of the engine, and back.

use std::collections::BTreeMap;

use bytes::Bytes;
use trefoil::model::{
    self, Bound, Cell, CellKind, ClusteringKey, ColumnId, Complex, Counter, Deletion, Liveness, LivenessKind, Mutation,
    MutationBuilder, NodeId, Order, PartitionKey, Row, Slice, TableId, Timestamp, Type,
};

use super::naive::{
    Content, Death, Edge, Lifetime, Part, Place, Range, RowSeen, Seen, Shard, Side, Value, WORDS, Write,
};

pub const CLUSTERING: [(Type, Order); 2] = [(Type::Int, Order::Ascending), (Type::Text, Order::Descending)];

pub fn partition_key(number: u8) -> PartitionKey {
    PartitionKey::from_bytes(Bytes::from(format!("partition {number}")))
}

fn components(a: Option<i32>, b: Option<usize>) -> Vec<Bytes> {
    let a = a.map(|a| Bytes::copy_from_slice(&a.to_be_bytes()));
    a.into_iter().chain(b.map(|b| Bytes::from_static(WORDS[b].as_bytes()))).collect()
}

pub fn row_key(place: Place) -> ClusteringKey {
    ClusteringKey::encode(&components(Some(place.a), Some(place.b)), &CLUSTERING).unwrap()
}

pub fn place(key: &ClusteringKey) -> Place {
    let components = key.decode(&CLUSTERING).unwrap();
    let a = i32::from_be_bytes(components[0][..].try_into().unwrap());
    let b = WORDS.iter().position(|word| word.as_bytes() == components[1]).expect("a word that was written");
    Place { a, b }
}

fn bound(edge: Edge) -> Bound {
    let prefix = components(edge.a, edge.b);
    match edge.side {
        Side::Before => Bound::before(&prefix, &CLUSTERING).unwrap(),
        Side::After => Bound::after(&prefix, &CLUSTERING).unwrap(),
    }
}

pub fn slice(range: Range) -> Slice {
    Slice { start: bound(range.from), end: bound(range.to) }
}

pub fn mutation(table: TableId, write: &Write) -> Mutation {
    let mut builder = MutationBuilder::new(table, partition_key(write.partition));
    for part in write.parts.iter().cloned() {
        match part {
            Part::Cell(at, column, timestamp, content) => {
                let cell = Cell { timestamp: Timestamp(timestamp), kind: cell_kind(content) };
                let row = Row { cells: vec![(ColumnId(column), cell)], ..Row::default() };
                match at {
                    Some(place) => builder.add_row(row_key(place), row),
                    None => builder.add_static(row),
                }
            }
            Part::Element(at, column, path, timestamp, content) => {
                let cell = Cell { timestamp: Timestamp(timestamp), kind: cell_kind(content) };
                add_complex(&mut builder, at, column, Complex::of(None, [(Bytes::copy_from_slice(&[path]), cell)]));
            }
            Part::DeleteColumn(at, column, death) => {
                add_complex(&mut builder, at, column, Some(Complex::deleted(deletion(death))));
            }
            Part::Count(place, column, timestamp, Shard { node, incarnation, clock, value }) => {
                let shard = model::counter::Shard { node: NodeId(node), incarnation, clock, value };
                let cell = Cell { timestamp: Timestamp(timestamp), kind: CellKind::Counter(Counter::new(shard)) };
                builder.add_row(row_key(place), Row { cells: vec![(ColumnId(column), cell)], ..Row::default() });
            }
            Part::Marker(place, timestamp, lifetime) => {
                let kind = match lifetime {
                    Some(Lifetime { ttl_s, expiry_s }) => LivenessKind::Expiring { ttl_s, expiry_s },
                    None => LivenessKind::Live,
                };
                let marker = Some(Liveness { timestamp: Timestamp(timestamp), kind });
                builder.add_row(row_key(place), Row { marker, ..Row::default() });
            }
            Part::DeleteRow(place, death) => {
                builder.add_row(row_key(place), Row { deletion: Some(deletion(death)), ..Row::default() });
            }
            Part::DeleteRange(range, death) => {
                builder.delete_range(bound(range.from), bound(range.to), deletion(death))
            }
            Part::DeletePartition(death) => builder.delete_partition(deletion(death)),
        }
    }
    builder.finish()
}

fn add_complex(builder: &mut MutationBuilder, at: Option<Place>, column: u32, complex: Option<Complex>) {
    let complex = complex.into_iter().map(|complex| (ColumnId(column), complex)).collect();
    let row = Row { complex, ..Row::default() };
    match at {
        Some(place) => builder.add_row(row_key(place), row),
        None => builder.add_static(row),
    }
}

fn cell_kind(content: Content) -> CellKind {
    match content {
        Content::Null { ldt_s } => CellKind::Tombstone { ldt_s },
        Content::Value(value, None) => CellKind::Live(value.0.into()),
        Content::Value(value, Some(Lifetime { ttl_s, expiry_s })) => {
            CellKind::Expiring { value: value.0.into(), ttl_s, expiry_s }
        }
    }
}

fn deletion(death: Death) -> Deletion {
    Deletion { timestamp: Timestamp(death.timestamp), ldt_s: death.ldt_s }
}

pub fn death(deletion: Deletion) -> Death {
    Death { timestamp: deletion.timestamp.0, ldt_s: deletion.ldt_s }
}

/// A row as the model would see it at `now_s`.
pub fn row_seen(row: &Row, now_s: i64) -> RowSeen {
    let cells = row.cells.iter().map(|(column, cell)| (column.0, cell_seen(cell, now_s)));
    let column_deaths = row.complex.iter().filter_map(|(column, complex)| Some((column.0, death(complex.deletion?))));
    let elements = row.complex.iter().flat_map(|(column, complex)| {
        complex.cells.iter().map(|(path, cell)| ((column.0, path[0]), cell_seen(cell, now_s)))
    });
    RowSeen {
        marker: row.marker.map(|marker| cell_seen(&as_cell(marker), now_s)),
        deletion: row.deletion.map(death),
        cells: cells.collect::<BTreeMap<_, _>>(),
        column_deaths: column_deaths.collect(),
        elements: elements.collect(),
    }
}

fn as_cell(marker: Liveness) -> Cell {
    let kind = match marker.kind {
        LivenessKind::Live => CellKind::Live(Bytes::new()),
        LivenessKind::Expiring { ttl_s, expiry_s } => CellKind::Expiring { value: Bytes::new(), ttl_s, expiry_s },
        LivenessKind::Expired { ttl_s, expiry_s } => CellKind::Expired { ttl_s, expiry_s },
    };
    Cell { timestamp: marker.timestamp, kind }
}

fn cell_seen(cell: &Cell, now_s: i64) -> Seen {
    let timestamp = cell.timestamp.0;
    match &cell.kind {
        CellKind::Live(value) => Seen::Value(timestamp, Value(value.to_vec()), None),
        CellKind::Tombstone { ldt_s } => Seen::Null(timestamp, *ldt_s),
        CellKind::Expiring { value, ttl_s, expiry_s } if now_s < *expiry_s => {
            Seen::Value(timestamp, Value(value.to_vec()), Some(Lifetime { ttl_s: *ttl_s, expiry_s: *expiry_s }))
        }
        CellKind::Expiring { ttl_s, expiry_s, .. } | CellKind::Expired { ttl_s, expiry_s } => {
            Seen::Expired(timestamp, Lifetime { ttl_s: *ttl_s, expiry_s: *expiry_s })
        }
        CellKind::Counter(counter) => {
            let shard = |shard: &model::counter::Shard| Shard {
                node: shard.node.0,
                incarnation: shard.incarnation,
                clock: shard.clock,
                value: shard.value,
            };
            Seen::Count(timestamp, counter.shards().iter().map(shard).collect())
        }
    }
}
