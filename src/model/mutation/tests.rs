//! Mutations: the order in which they are built does not matter, and what is built holds the invariants.

#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::model::ranges::tests::{ROWS, any_ranges, key};
use crate::model::reconcile::tests::{any_deletion, any_row, any_static_row};

#[derive(Debug, Clone)]
enum Operation {
    Row(u8, Row),
    Static(Row),
    Ranges(Vec<(Bound, Bound, Deletion)>),
    Partition(Deletion),
}

fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (0..ROWS, any_row()).prop_map(|(number, row)| Operation::Row(number, row)),
        2 => any_static_row().prop_map(Operation::Static),
        1 => any_ranges().prop_map(Operation::Ranges),
        1 => any_deletion().prop_map(Operation::Partition),
    ]
}

fn build<'a>(operations: impl Iterator<Item = &'a Operation>) -> Mutation {
    let table = TableId(uuid::Uuid::nil());
    let mut builder = MutationBuilder::new(table, PartitionKey::from_bytes(Bytes::from_static(b"p")));
    for operation in operations.cloned() {
        match operation {
            Operation::Row(number, row) => builder.add_row(key(number), row),
            Operation::Static(row) => builder.add_static(row),
            Operation::Partition(deletion) => builder.delete_partition(deletion),
            Operation::Ranges(ranges) => {
                ranges.into_iter().for_each(|(start, end, deletion)| builder.delete_range(start, end, deletion));
            }
        }
    }
    builder.finish()
}

proptest! {
    #[test]
    fn the_order_of_operations_does_not_matter(operations in proptest::collection::vec(any_operation(), 0..8)) {
        let mutation = build(operations.iter());
        prop_assert_eq!(&build(operations.iter().rev()), &mutation);
        prop_assert_eq!(&build(operations.iter().chain(&operations)), &mutation);
    }

    #[test]
    fn the_invariants_hold(operations in proptest::collection::vec(any_operation(), 0..8)) {
        let mutation = build(operations.iter());
        prop_assert!(mutation.rows.is_sorted_by(|(a, _), (b, _)| a < b));
        prop_assert!(mutation.rows.iter().all(|(_, row)| !row.is_empty()));
        prop_assert!(mutation.static_row.is_none_or(|row| !row.is_empty()));
        prop_assert!(mutation.ranges.iter().all(|range| range.start < range.end));
        for pair in mutation.ranges.windows(2) {
            let touch = pair[0].end == pair[1].start && pair[0].deletion != pair[1].deletion;
            prop_assert!(touch || pair[0].end < pair[1].start);
        }
        for (key, row) in &mutation.rows {
            let covers = |range: &&RangeDeletion| range.start.bytes() < key.bytes() && key.bytes() < range.end.bytes();
            let covering = mutation.ranges.iter().find(covers).map(|range| range.deletion).max(mutation.deletion);
            let left = covering.map_or(Some(row.clone()), |covering| shadow_row(row.clone(), covering));
            prop_assert_eq!(left.as_ref(), Some(row));
        }
    }
}

#[test]
fn operations_without_effect_leave_an_empty_mutation() {
    let empty = [Operation::Row(1, Row::default()), Operation::Static(Row::default()), Operation::Ranges(Vec::new())];
    assert!(build(empty.iter()).is_empty());
}
