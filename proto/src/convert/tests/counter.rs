//! What is added to counters becomes the next state of the own shard, and of no other.

use trefoil::model::{
    Cell, CellKind, Column, ColumnId, ColumnKind, Counter, KeyspaceId, NodeId, Order, Row, Shard, Slice, Table,
    TableId, TableOptions, Timestamp, Type,
};
use uuid::Uuid;

use crate::convert::counter::increment;
use crate::v1::value::Kind;
use crate::v1::{CounterAdd, IncrementRequest, Value};

fn table() -> Table {
    let column = |id, name: &str, ty, kind| Column { id: ColumnId(id), name: name.to_owned(), ty, kind };
    Table {
        id: TableId(Uuid::from_u128(1)),
        keyspace: KeyspaceId(1),
        name: "t".to_owned(),
        version: 1,
        columns: vec![
            column(1, "k", Type::Int, ColumnKind::PartitionKey),
            column(2, "c", Type::Int, ColumnKind::Clustering(Order::Ascending)),
            column(3, "s", Type::Counter, ColumnKind::Static),
            column(4, "v", Type::Counter, ColumnKind::Regular),
        ],
        options: TableOptions::default(),
    }
}

fn request(clustering: &[i64], adds: &[(&str, i64)]) -> IncrementRequest {
    let value = |number: i64| Value { kind: Some(Kind::Integer(number)) };
    IncrementRequest {
        partition: vec![value(1)],
        clustering: clustering.iter().map(|number| value(*number)).collect(),
        adds: adds.iter().map(|(column, add)| CounterAdd { column: (*column).to_owned(), add: *add }).collect(),
        ..Default::default()
    }
}

fn shard(node: u32, incarnation: u64, clock: u64, value: i64) -> Shard {
    Shard { node: NodeId(node), incarnation, clock, value }
}

fn row(column: u32, shards: Vec<Shard>) -> Row {
    let kind = CellKind::Counter(Counter::of(shards).unwrap());
    Row { cells: vec![(ColumnId(column), Cell { timestamp: Timestamp(9), kind })], ..Row::default() }
}

/// B029: only the shard of this run goes on; what this node added in another run stays another shard.
#[test]
fn b029_a_run_goes_on_in_its_own_shard_alone() {
    let owner = shard(1, 7, 0, 0);
    let asked = increment(request(&[5], &[("v", 4), ("s", -2)]), &table()).unwrap();
    let present = row(4, vec![shard(1, 6, 90, 900), shard(1, 7, 3, i64::MAX), shard(2, 7, 50, 5)]);
    let mutation = asked.mutation(owner, Timestamp(10), &Row::default(), &present);
    let expected = |column, shard| {
        let kind = CellKind::Counter(Counter::new(shard));
        Row { cells: vec![(ColumnId(column), Cell { timestamp: Timestamp(10), kind })], ..Row::default() }
    };
    assert_eq!(mutation.rows.len(), 1);
    assert_eq!(mutation.rows[0].1, expected(4, shard(1, 7, 4, i64::MIN + 3)), "sums wrap around");
    assert_eq!(mutation.static_row, Some(expected(3, shard(1, 7, 1, -2))), "a first addition opens the shard");
    assert!(asked.slice() != Slice::all());
}

#[test]
fn static_counters_need_no_row() {
    let asked = increment(request(&[], &[("s", 1)]), &table()).unwrap();
    let mutation = asked.mutation(shard(1, 7, 0, 0), Timestamp(10), &Row::default(), &Row::default());
    assert!(mutation.rows.is_empty() && mutation.static_row.is_some());
    let wrong = increment(request(&[], &[("v", 1)]), &table()).unwrap_err();
    assert!(wrong.to_string().contains("clustering key"), "{wrong}");
}
