//! Where pages end, what they count, and how they go on.

use super::faults::in_every_form;
use super::{Node, joined, read_partition, scan, shape};
use crate::Error;
use crate::model::naive::{delete_rows, deletion, partition_key, row_key, rows, rows_between, static_value, value};
use crate::model::{
    Cell, CellKind, ColumnId, Direction, Fragment, Mutation, PageEnd, PagePosition, RangeDeletion, ReadCommand, Row,
    RowPosition, Slice, Timestamp,
};
use crate::store::Access;

fn with_static(number: u8, of_rows: impl IntoIterator<Item = (i32, Row)>) -> Mutation {
    Mutation { static_row: Some(static_value("s", 1)), ..rows(number, of_rows) }
}

fn one_row(row: i32) -> [(i32, Row); 1] {
    [(row, value("v", 1))]
}

/// Partitions in the order of the ring, each in words.
fn in_order(mut partitions: Vec<(u8, &str)>) -> String {
    partitions.sort_by_key(|(number, _)| partition_key(*number));
    partitions.into_iter().map(|(_, words)| words).collect::<Vec<_>>().join(" ")
}

/// B007: a flag of one page survived into the next, which began with a deleted row, and the query ended early.
#[test]
fn b007_no_row_is_missing_whatever_the_page_size() {
    let mutations = [
        rows(1, (0..10).map(|row| (row, value("v", 1)))),
        rows(1, [(3, Row { deletion: Some(deletion(2)), ..Row::default() })]),
    ];
    in_every_form(&mutations, |node| {
        for limit_rows in [1, 2, 3, 4, 5, 9, 10] {
            for (direction, expected) in
                [(Direction::Forward, "p1 0 1 2 -3 4 5 6 7 8 9"), (Direction::Reverse, "p1 9 8 7 6 5 4 -3 2 1 0")]
            {
                let command = ReadCommand { limit_rows, direction, ..scan() };
                assert_eq!(shape(&node.read(command)), expected);
                let command = ReadCommand { limit_rows, ..read_partition(1, Vec::new(), direction) };
                assert_eq!(shape(&node.read(command)), expected);
            }
        }
    });
}

/// B016: partitions that hold only static data were skipped, counted twice or repeated when a page ended on them.
#[test]
fn b016_partitions_of_static_values_alone_come_once() {
    let mutations = [with_static(1, []), with_static(2, [(1, value("v", 1)), (2, value("v", 1))]), with_static(3, [])];
    let expected = in_order(vec![(1, "p1*"), (2, "p2* 1 2"), (3, "p3*")]);
    in_every_form(&mutations, |node| {
        for limit_rows in 1..5 {
            let pages = node.pages(ReadCommand { limit_rows, ..scan() });
            assert_eq!(shape(&joined(pages.clone())), expected);
            // Four rows in all: two, and the static values of two partitions without any.
            assert_eq!(pages.len(), 4usize.div_ceil(limit_rows as usize) + usize::from(4 % limit_rows == 0));
        }
        // A page that goes on inside a partition does not count its static values again.
        let beyond = Slice { start: row_key(100).before(), end: row_key(101).before() };
        let pages = node.pages(ReadCommand { limit_rows: 1, ..read_partition(2, vec![beyond], Direction::Forward) });
        assert_eq!(pages.iter().map(|page| shape(page)).collect::<Vec<_>>(), ["p2*"]);
    });
}

/// B050: position and limit were taken from a row that was not live, or from the partition before: a limit counted a
/// deleted partition, and a page lost a live row.
#[test]
fn b050_what_is_deleted_or_expired_counts_for_nothing() {
    let expired = |timestamp| {
        let kind = CellKind::Expiring { value: bytes::Bytes::new(), ttl_s: 1, expiry_s: 100 };
        let cell = Cell { timestamp: Timestamp(timestamp), kind };
        Row { cells: vec![(ColumnId(1), cell)], ..Row::default() }
    };
    let mut mutations: Vec<_> = (1..=5).map(|number| with_static(number, one_row(1))).collect();
    mutations.push(Mutation { deletion: Some(deletion(2)), ..rows(2, []) });
    mutations.push(rows(3, [(2, expired(1)), (3, expired(1))]));
    let words = vec![(1, "p1* 1"), (2, "p2D@2"), (3, "p3* 1 -2 -3"), (4, "p4* 1"), (5, "p5* 1")];
    let expected = in_order(words);
    in_every_form(&mutations, |node| {
        for limit_rows in 1..6 {
            let pages = node.pages(ReadCommand { limit_rows, ..scan() });
            for page in &pages {
                let visible = |one: &&Fragment<Row>| matches!(one, Fragment::Row(_, row) if row.is_visible_at(100));
                let visible = page.iter().filter(visible).count();
                let is_last = std::ptr::eq(page, &pages[pages.len() - 1]);
                assert!(
                    visible == limit_rows as usize || is_last,
                    "{visible} of {limit_rows} rows before the last page"
                );
            }
            assert_eq!(shape(&joined(pages)), expected);
        }
    });
}

/// A page that ends among rows that are not visible, or among deletions, may be given up before its partition is shown. The
/// last one is then the only one to tell that there are static values.
#[test]
fn static_values_are_told_again_behind_what_nobody_sees() {
    let gone = Row { deletion: Some(deletion(2)), ..Row::default() };
    in_every_form(&[with_static(1, [(1, gone.clone()), (2, gone)])], |node| {
        for target in [read_partition(1, Vec::new(), Direction::Forward).target, scan().target] {
            let pages: Vec<_> = node.pages(ReadCommand { target, limit_bytes: 1, ..scan() });
            let pages: Vec<_> = pages.iter().map(|page| shape(page)).collect();
            assert_eq!(pages[..3], ["p1* -1", "p1* -2", "p1*"], "{pages:?}");
        }
    });
    let to_the_end = RangeDeletion { start: row_key(1).before(), end: Slice::all().end, deletion: deletion(2) };
    let deleted = Mutation { ranges: vec![to_the_end], ..with_static(1, []) };
    in_every_form(&[deleted], |node| {
        let pages: Vec<_> = node.pages(ReadCommand { limit_bytes: 1, ..scan() });
        assert_eq!(pages.iter().map(|page| shape(page)).collect::<Vec<_>>(), ["p1* @2 /", "p1*", ""]);
    });
}

#[test]
fn a_page_that_ends_in_a_range_deletion_is_closed_and_the_next_opens_it_again() {
    let mut node = Node::new();
    node.write(&rows(1, (0..6).map(|row| (row, value("v", 9)))));
    node.write(&delete_rows(1, 1, 4, 5));
    for (direction, expected) in [
        (Direction::Forward, ["p1 0 @5 1 /", "p1 @5 2 3 /", "p1 @5 4 / 5", ""]),
        (Direction::Reverse, ["p1 5 @5 4 /", "p1 @5 3 2 /", "p1 @5 1 / 0", ""]),
    ] {
        let pages = node.pages(ReadCommand { limit_rows: 2, direction, ..scan() });
        assert_eq!(pages.iter().map(|page| shape(page)).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_run_of_tombstones_ends_pages_by_their_bytes() {
    let mut node = Node::new();
    for row in 0..50 {
        node.write(&delete_rows(1, row, row, i64::from(row)));
    }
    let command = ReadCommand { limit_bytes: 100, ..scan() };
    let pages = node.pages(command.clone());
    assert!(pages.len() > 10, "{} pages", pages.len());
    let whole = node.read(scan());
    assert_eq!(whole.len(), 101);
    assert_eq!(joined(pages), whole);
    let page = node.store.read(&command, Access::Disk).unwrap();
    assert!(matches!(page.end, PageEnd::At(PagePosition { row: RowPosition::At(_), .. })), "{:?}", page.end);
}

#[test]
fn a_read_of_one_row_is_complete_when_it_is_found() {
    let mut node = Node::new();
    node.write(&rows(1, (0..5).map(|row| (row, value("v", 1)))));
    for direction in [Direction::Forward, Direction::Reverse] {
        let command = ReadCommand { limit_rows: 1, ..read_partition(1, vec![rows_between(3, 3)], direction) };
        assert_eq!(node.store.read(&command, Access::Disk).unwrap().end, PageEnd::Complete);
    }
}

#[test]
fn a_position_goes_on_wherever_it_stands() {
    let mut node = Node::new();
    node.write(&with_static(1, (0..4).map(|row| (row, value("v", 1)))));
    let after = |row, direction| {
        let after = Some(PagePosition { partition: partition_key(1), row });
        shape(&node.read(ReadCommand { after, ..read_partition(1, Vec::new(), direction) }))
    };
    assert_eq!(after(RowPosition::Header, Direction::Forward), "p1* 0 1 2 3");
    assert_eq!(after(RowPosition::After(row_key(1)), Direction::Forward), "p1* 2 3");
    assert_eq!(after(RowPosition::After(row_key(1)), Direction::Reverse), "p1* 0");
    assert_eq!(after(RowPosition::At(row_key(1).before()), Direction::Forward), "p1* 1 2 3");
    assert_eq!(after(RowPosition::End, Direction::Forward), "");
    // A row that is gone meanwhile, or never was, is as good a place.
    assert_eq!(after(RowPosition::After(row_key(100)), Direction::Reverse), "p1* 3 2 1 0");
}

#[test]
fn a_position_in_another_partition_is_refused() {
    let node = Node::new();
    let after = Some(PagePosition { partition: partition_key(2), row: RowPosition::End });
    let command = ReadCommand { after, ..read_partition(1, Vec::new(), Direction::Forward) };
    assert!(matches!(node.store.read(&command, Access::Disk), Err(Error::Invalid { .. })));
}
