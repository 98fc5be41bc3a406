//! Columns and tables that are gone: nothing of them is answered, whatever still lies on the disk.

use uuid::Uuid;

use super::{Node, OTHER, spec};
use crate::model::naive::{TABLE, deletion, rows, static_value, value};
use crate::model::{Cell, CellKind, ColumnId, Complex, Fragment, LiveColumns, Mutation, Row, TableId, Timestamp};

/// A column that is dropped, beside those of [`crate::model::naive`].
const DROPPED: ColumnId = ColumnId(7);
/// The same, a complex one.
const DROPPED_MAP: ColumnId = ColumnId(8);

fn of_dropped(text: &str, timestamp: i64) -> Row {
    let kind = CellKind::Live(bytes::Bytes::copy_from_slice(text.as_bytes()));
    Row { cells: vec![(DROPPED, Cell { timestamp: Timestamp(timestamp), kind })], ..Row::default() }
}

fn with_both(timestamp: i64) -> Row {
    let mut row = value("v", timestamp);
    row.cells.extend(of_dropped("x", timestamp + 1).cells);
    row.complex = vec![(DROPPED_MAP, Complex { deletion: Some(deletion(timestamp + 2)), cells: Vec::new() })];
    row
}

fn drop_column(node: &mut Node) {
    for spec in &mut node.tables {
        spec.live =
            Some((0..20).map(ColumnId).filter(|id| ![DROPPED, DROPPED_MAP].contains(id)).collect::<LiveColumns>());
    }
    node.store.set_tables(&node.tables).unwrap();
}

/// How many names were received.
fn received(node: &Node) -> u64 {
    let names = node.names();
    names.runs().flat_map(|(_, _, intervals)| intervals).map(|interval| interval.last - interval.first + 1).sum()
}

/// B043: after a column was dropped, files that held only values of it were taken for damaged, or answered empty rows. Here
/// they say nothing: rows and static rows that are left with nothing are not there, and others are as if the column had
/// never been. So two replicas agree of which only one still has the values on its disk.
#[test]
fn b043_what_was_written_to_a_dropped_column_is_nowhere() {
    let (only, both) = (rows(1, [(1, of_dropped("x", 5))]), rows(2, [(1, with_both(5)), (2, of_dropped("x", 6))]));
    let static_only = Mutation { static_row: Some(of_dropped("x", 5)), ..rows(3, []) };
    let static_both = {
        let mut row = of_dropped("x", 9);
        row.cells.extend(static_value("s", 5).cells);
        Mutation { static_row: Some(row), ..rows(4, []) }
    };
    let never = [rows(2, [(1, value("v", 5))]), Mutation { static_row: Some(static_value("s", 5)), ..rows(4, []) }];
    let mut other = Node::new();
    other.write_all(&never);
    let expected = other.read(super::scan());
    let mut node = Node::new();
    node.write(&only);
    node.flush();
    node.write_all(&[both, static_only]);
    node.flush();
    node.write(&static_both);
    assert_eq!(node.scan(TABLE).matches('p').count(), 4, "the column is there yet");
    drop_column(&mut node);
    let check = |node: &Node| {
        assert_eq!(node.read(super::scan()), expected);
        for number in 1..=4 {
            let one = super::read_partition(number, Vec::new(), crate::model::Direction::Forward);
            let of = |fragments: Vec<Fragment<Row>>| super::shape(&fragments);
            assert_eq!(of(node.read(one.clone())), of(other.read(one)), "partition {number}");
        }
    };
    check(&node);
    node.flush();
    check(&node);
    let node = node.restart();
    check(&node);
    // What comes late for the column is received and has no effect.
    let mut node = node;
    node.write(&rows(2, [(1, of_dropped("late", 50)), (9, of_dropped("late", 50))]));
    check(&node);
    assert_eq!(received(&node), 5);
}

/// B032: the mark that a table was emptied was lost with a crash, and its rows came back from the log. Here the table has
/// another id from then on, whatever else of the schema changes afterwards.
#[test]
fn b032_nothing_of_a_truncated_table_comes_back_from_the_log() {
    let emptied = TableId(Uuid::from_u128(0x77));
    let mut node = Node::new();
    for number in 0..10 {
        node.write(&rows(number, [(1, value("old", 5))]));
        if number == 4 {
            node.flush();
        }
    }
    node.tables = vec![spec(emptied), spec(OTHER)];
    node.store.set_tables(&node.tables).unwrap();
    node.tables = vec![spec(emptied)];
    node.store.set_tables(&node.tables).unwrap();
    let new = Mutation { table: emptied, ..rows(3, [(2, value("new", 6))]) };
    node.write(&new);
    // One that was on its way when the table was emptied: before the new rows or after them it lands nowhere.
    node.write(&rows(3, [(7, value("racing", 9))]));
    for _ in 0..3 {
        assert_eq!(node.scan(emptied), "p3 2");
        node = node.checked();
    }
    assert_eq!(received(&node), 12, "names are received all the same");
}
