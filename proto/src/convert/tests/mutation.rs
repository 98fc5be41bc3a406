//! Writes: what each change becomes, and a table of what is refused.

use trefoil::model::time::TTL_MAX_S;
use trefoil::model::{CellKind, ColumnId, Deletion, LivenessKind, Mutation, Stamp, Table, Timestamp};

use super::{int, partition, table, text};
use crate::VALUE_BYTES_MAX;
use crate::convert::mutation::{TIMESTAMP_AHEAD_MAX_US, WriteContext, mutation};
use crate::convert::{Result, key, value};
use crate::v1::change::Op;
use crate::v1::value::Kind;
use crate::v1::{CellWrite, Change, ClusteringRange, RowRef, RowWrite, Value, WholePartition};

const STAMP: Stamp = Stamp(1_700_000_000_000_123);
const NOW_S: i64 = 1_700_000_000;

fn cell(column: &str, value: Value) -> CellWrite {
    CellWrite::set(column, value)
}

fn write(cells: Vec<CellWrite>) -> RowWrite {
    RowWrite { clustering: vec![int(5), text("x")], cells }
}

fn change(op: Op) -> Change {
    Change { timestamp_us: None, ttl_s: None, op: Some(op) }
}

fn convert_in(table: &Table, changes: Vec<Change>) -> Result<Mutation> {
    let context = WriteContext { table, stamp: STAMP, default_timestamp: None, request_id: b"" };
    mutation(&context, key::partition_key(partition(), table)?, changes)
}

fn convert(changes: Vec<Change>) -> Result<Mutation> {
    convert_in(&table(), changes)
}

#[test]
fn an_insert_leaves_a_marker_and_an_update_does_not() {
    let cells = || write(vec![cell("v", int(9)), cell("w", value::null())]);
    let inserted = convert(vec![change(Op::Insert(cells()))]).unwrap();
    let updated = convert(vec![change(Op::Update(cells()))]).unwrap();
    let (inserted, updated) = (&inserted.rows[0].1, &updated.rows[0].1);
    assert_eq!(inserted.marker.unwrap().kind, LivenessKind::Live);
    assert_eq!(updated.marker, None);
    assert_eq!(inserted.cells, updated.cells);
    let v = inserted.cell(ColumnId(6)).unwrap();
    assert_eq!((v.timestamp, &v.kind), (STAMP.timestamp(), &CellKind::Live(vec![0, 0, 0, 9].into())));
    assert_eq!(inserted.cell(ColumnId(7)).unwrap().kind, CellKind::Tombstone { ldt_s: NOW_S });
}

#[test]
fn static_cells_go_to_the_static_row() {
    let alone = RowWrite { clustering: vec![], cells: vec![cell("s", text("y"))] };
    for op in [Op::Update(alone.clone()), Op::Insert(alone)] {
        let mutation = convert(vec![change(op)]).unwrap();
        assert_eq!(mutation.static_row.unwrap().cells.len(), 1);
        assert!(mutation.rows.is_empty());
    }
    let both = convert(vec![change(Op::Insert(write(vec![cell("v", int(1)), cell("s", text("y"))])))]).unwrap();
    assert_eq!(both.static_row.unwrap().cells[0].0, ColumnId(5));
    assert_eq!(both.rows[0].1.cells.len(), 1);
}

#[test]
fn time_to_live_is_counted_from_the_stamp() {
    let mut table = table();
    table.options.default_ttl_s = 100;
    let with = |ttl_s| {
        let change = Change { ttl_s, ..change(Op::Insert(write(vec![cell("v", int(9))]))) };
        convert_in(&table, vec![change]).unwrap().rows.remove(0).1
    };
    let own = with(Some(10));
    let expiring = LivenessKind::Expiring { ttl_s: 10, expiry_s: NOW_S + 10 };
    assert_eq!(own.marker.unwrap().kind, expiring);
    assert!(matches!(own.cells[0].1.kind, CellKind::Expiring { ttl_s: 10, expiry_s, .. } if expiry_s == NOW_S + 10));
    assert!(matches!(with(None).cells[0].1.kind, CellKind::Expiring { ttl_s: 100, .. }));
    assert!(matches!(with(Some(0)).cells[0].1.kind, CellKind::Live(_)), "0 overrides the table's default");
}

#[test]
fn deletions_carry_the_stamps_seconds() {
    let deletion = Deletion { timestamp: Timestamp(STAMP.0 - 7), ldt_s: NOW_S };
    let at = |op| Change { timestamp_us: Some(STAMP.0 - 7), ..change(op) };
    let range = ClusteringRange { from: vec![int(1)], to: vec![int(3)], from_exclusive: true, to_exclusive: false };
    let mutation =
        convert(vec![at(Op::DeleteRow(RowRef { clustering: vec![int(5), text("x")] })), at(Op::DeleteRange(range))])
            .unwrap();
    assert_eq!(mutation.rows[0].1.deletion, Some(deletion));
    assert_eq!(mutation.ranges[0].deletion, deletion);
    let whole = convert(vec![at(Op::DeletePartition(WholePartition {}))]).unwrap();
    assert_eq!(whole.deletion, Some(deletion));
}

/// G25: operations of one request on one cell at one timestamp are settled by the rule of merging.
#[test]
fn changes_of_one_cell_merge() {
    let set = |value| change(Op::Update(write(vec![cell("v", value)])));
    let mutation = convert(vec![set(int(2)), set(int(1))]).unwrap();
    assert_eq!(mutation.rows[0].1.cells[0].1.kind, CellKind::Live(vec![0, 0, 0, 2].into()));
    let mutation = convert(vec![set(int(1)), set(value::null())]).unwrap();
    assert_eq!(mutation.rows[0].1.cells[0].1.kind, CellKind::Tombstone { ldt_s: NOW_S });
}

#[test]
fn what_is_refused_names_the_culprit() {
    let update = |name: &str, value| change(Op::Update(write(vec![cell(name, value)])));
    let at = |timestamp_us| Change { timestamp_us: Some(timestamp_us), ..update("v", int(1)) };
    let ttl = |ttl_s| Change { ttl_s: Some(ttl_s), ..update("v", int(1)) };
    let row = |clustering| change(Op::DeleteRow(RowRef { clustering }));
    let range = |range| change(Op::DeleteRange(range));
    let large = Value { kind: Some(Kind::Blob(vec![0; VALUE_BYTES_MAX + 1].into())) };
    let lateness_us = 3_600 * 1_000_000;
    let cases = [
        (Change::default(), "#0: the change has no operation"),
        (update("x", int(1)), "#0: x: there is no such column"),
        (update("c", int(1)), "#0: c: is part of the key, not a cell"),
        (update("v", text("1")), "#0: v: is of type int, the value is in the form `text`"),
        (update("v", Value::default()), "#0: v: the value is empty"),
        (update("w", large), "#0: w: 8388609 bytes, at most 8388608"),
        (change(Op::Update(write(vec![]))), "#0: the update names no column"),
        (change(Op::Update(write(vec![cell("v", int(1)), cell("v", int(2))]))), "#0: v: is written twice"),
        (change(Op::Insert(RowWrite::default())), "#0: 0 values for the clustering key (c, d)"),
        (
            change(Op::Update(RowWrite { clustering: vec![], cells: vec![cell("s", text("")), cell("v", int(1))] })),
            "#0: 0 values for the clustering key",
        ),
        (row(vec![int(1)]), "#0: 1 values for the clustering key (c, d)"),
        (row(vec![int(1), value::null()]), "#0: d: null in a key"),
        (row(vec![text("1"), text("x")]), "#0: c: is of type int"),
        (row(vec![int(1), text(&"x".repeat(65_536))]), "Key length"),
        (range(ClusteringRange { from_exclusive: true, ..Default::default() }), "#0: the range has an exclusive end"),
        (range(ClusteringRange { from: vec![int(2)], to: vec![int(1)], ..Default::default() }), "#0: the range ends"),
        (range(ClusteringRange { from: vec![int(2), text(""), int(1)], ..Default::default() }), "#0: 3 values"),
        (Change { ttl_s: Some(1), ..row(vec![int(1), text("")]) }, "#0: a deletion has no time to live"),
        (ttl(TTL_MAX_S + 1), "#0: a time to live of 630720001 s"),
        (at(i64::MIN + 1), "is reserved"),
        (at(STAMP.0 + TIMESTAMP_AHEAD_MAX_US + 1), "more than three days ahead"),
        (at(STAMP.0 - lateness_us - 1), "more than the table's lateness of 3600 s behind"),
    ];
    for (change, reason) in cases {
        let refused = convert(vec![change]).unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused:?} does not say {reason:?}");
    }
    assert!(convert(vec![at(STAMP.0 + TIMESTAMP_AHEAD_MAX_US)]).is_ok());
    assert!(convert(vec![at(STAMP.0 - lateness_us)]).is_ok());
    assert!(convert(vec![]).unwrap_err().to_string().contains("changes nothing"));
    assert_eq!(convert(vec![update("v", int(1)), update("v", text(""))]).unwrap_err().op_index, Some(1));
}
