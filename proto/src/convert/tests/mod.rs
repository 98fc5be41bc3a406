//! Laws of the conversions, and a table of what clients get wrong.

#![allow(clippy::unwrap_used, reason = "tests")]

mod collection;
mod counter;
mod mutation;
mod peer;
mod read;
mod schema;
mod value;

use trefoil::model::{Column, ColumnId, ColumnKind, KeyspaceId, Order, Table, TableId, TableOptions, Type};
use uuid::Uuid;

use crate::v1;
use crate::v1::value::Kind;

/// `t (p text, q int, c int, d text, s text static, v int, w blob, primary key ((p, q), c, d))`, d descending.
fn table() -> Table {
    let columns = [
        ("p", Type::Text, ColumnKind::PartitionKey),
        ("q", Type::Int, ColumnKind::PartitionKey),
        ("c", Type::Int, ColumnKind::Clustering(Order::Ascending)),
        ("d", Type::Text, ColumnKind::Clustering(Order::Descending)),
        ("s", Type::Text, ColumnKind::Static),
        ("v", Type::Int, ColumnKind::Regular),
        ("w", Type::Blob, ColumnKind::Regular),
    ];
    let column = |(at, (name, ty, kind)): (usize, (&str, Type, ColumnKind))| Column {
        id: ColumnId(at as u32 + 1),
        name: name.to_owned(),
        ty,
        kind,
    };
    Table {
        id: TableId(Uuid::from_u128(7)),
        keyspace: KeyspaceId(1),
        name: "t".to_owned(),
        version: 1,
        columns: columns.into_iter().enumerate().map(column).collect(),
        options: TableOptions::default(),
    }
}

fn int(value: i64) -> v1::Value {
    v1::Value { kind: Some(Kind::Integer(value)) }
}

fn text(value: &str) -> v1::Value {
    v1::Value { kind: Some(Kind::Text(value.to_owned())) }
}

fn partition() -> Vec<v1::Value> {
    vec![text("a"), int(1)]
}
