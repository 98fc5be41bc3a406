//! Ranges against a model that looks at every place on its own.

#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::model::reconcile::tests::any_deletion;
use crate::model::{ClusteringKey, Timestamp};

/// Rows 0..ROWS of one tinyint clustering column.
pub(crate) const ROWS: u8 = 10;

pub(crate) fn key(row: u8) -> ClusteringKey {
    ClusteringKey::from_bytes(Bytes::from(vec![0x40, 0x80 + row, 0x38])).unwrap()
}

fn before(row: u8) -> Bound {
    Bound::from_bytes(Bytes::from(vec![0x40, 0x80 + row, 0x20])).unwrap()
}

fn after(row: u8) -> Bound {
    Bound::from_bytes(Bytes::from(vec![0x40, 0x80 + row, 0x60])).unwrap()
}

fn slice(start: Bound, end: Bound) -> Slice {
    Slice { start, end }
}

fn at(timestamp: i64) -> Deletion {
    Deletion { timestamp: Timestamp(timestamp), ldt_s: 100 }
}

fn of(added: &[(Bound, Bound, Deletion)]) -> Ranges {
    let mut ranges = Ranges::new();
    for (start, end, deletion) in added {
        ranges.add(start.clone(), end.clone(), *deletion);
    }
    ranges
}

/// Bounds on both sides of each row, and the two ends.
pub(crate) fn any_bound() -> impl Strategy<Value = Bound> {
    prop_oneof![
        4 => (0..ROWS).prop_map(before),
        4 => (0..ROWS).prop_map(after),
        1 => Just(Bound::bottom()),
        1 => Just(Bound::top()),
    ]
}

/// Any two bounds, empty and inverted ranges among them.
pub(crate) fn any_ranges() -> impl Strategy<Value = Vec<(Bound, Bound, Deletion)>> {
    proptest::collection::vec((any_bound(), any_bound(), any_deletion()), 0..7)
}

fn naive(added: &[(Bound, Bound, Deletion)], row: u8) -> Option<Deletion> {
    let place = key(row);
    let covering = added.iter().filter(|(start, end, _)| start.bytes() < place.bytes() && place.bytes() < end.bytes());
    covering.map(|(_, _, deletion)| *deletion).max()
}

/// What a reader of the changes finds in force at each row, in ascending order of rows.
fn walk(changes: &[(Bound, Option<Deletion>)], direction: Direction) -> Vec<Option<Deletion>> {
    let in_force_at = |row: u8| {
        let place = key(row);
        let passed = changes.iter().take_while(|(bound, _)| match direction {
            Direction::Forward => bound.bytes() < place.bytes(),
            Direction::Reverse => bound.bytes() > place.bytes(),
        });
        passed.last().and_then(|(_, deletion)| *deletion)
    };
    (0..ROWS).map(in_force_at).collect()
}

fn check_changes(changes: &[(Bound, Option<Deletion>)], direction: Direction) {
    let mut in_force = None;
    for pair in changes.windows(2) {
        let ascending = pair[0].0 < pair[1].0;
        assert!(pair[0].0 != pair[1].0 && ascending == (direction == Direction::Forward), "{changes:?}");
    }
    for (_, deletion) in changes {
        assert_ne!(in_force, *deletion, "a change that changes nothing: {changes:?}");
        in_force = *deletion;
    }
    assert_eq!(in_force, None, "left open: {changes:?}");
}

proptest! {
    #[test]
    fn every_place_has_the_strongest_deletion(added in any_ranges(), start in any_bound(), end in any_bound()) {
        let ranges = of(&added);
        let expected: Vec<_> = (0..ROWS).map(|row| naive(&added, row)).collect();
        let found: Vec<_> = (0..ROWS).map(|row| ranges.in_force_at(key(row).bytes())).collect();
        prop_assert_eq!(&found, &expected);

        let clip = slice(start, end);
        let inside = |row: u8| clip.start.bytes() < key(row).bytes() && key(row).bytes() < clip.end.bytes();
        let clipped: Vec<_> = (0..ROWS).map(|row| naive(&added, row).filter(|_| inside(row))).collect();
        for direction in [Direction::Forward, Direction::Reverse] {
            let changes: Vec<_> = ranges.changes(&clip, direction).collect();
            check_changes(&changes, direction);
            prop_assert!(changes.iter().all(|(bound, _)| clip.start <= *bound && *bound <= clip.end));
            prop_assert_eq!(walk(&changes, direction), clipped.clone());
        }
    }

    #[test]
    fn the_listed_ranges_are_normalised_and_say_the_same(added in any_ranges()) {
        let ranges = of(&added);
        let listed: Vec<_> = ranges.deletions().collect();
        for pair in listed.windows(2) {
            prop_assert!(pair[0].end < pair[1].start || (pair[0].end == pair[1].start && pair[0].deletion != pair[1].deletion));
        }
        prop_assert!(listed.iter().all(|range| range.start < range.end));
        let again: Vec<_> = listed.into_iter().map(|range| (range.start, range.end, range.deletion)).collect();
        prop_assert_eq!(of(&again), ranges);
    }

    #[test]
    fn the_order_of_adding_does_not_matter(added in any_ranges()) {
        let mut reversed = added.clone();
        reversed.reverse();
        reversed.extend(added.clone());
        prop_assert_eq!(of(&added), of(&reversed));
    }
}

/// An old range was split where a newer one started, and the newer one was lost.
#[test]
fn b101_a_newer_range_survives_where_an_older_one_is_split() {
    let ranges = of(&[(before(1), after(7), at(0)), (before(1), before(4), at(1)), (before(4), after(7), at(2))]);
    let changes: Vec<_> = ranges.changes(&Slice::all(), Direction::Forward).collect();
    assert_eq!(changes, [(before(1), Some(at(1))), (before(4), Some(at(2))), (after(7), None)]);
}

/// Two ranges that touch, and a read that ends exactly between them: the second was opened and never closed.
#[test]
fn b103_a_slice_that_ends_where_two_ranges_touch_opens_only_the_first() {
    let ranges = of(&[(before(1), before(5), at(1)), (before(5), after(9), at(2))]);
    let changes = |start, end, direction| ranges.changes(&slice(start, end), direction).collect::<Vec<_>>();
    assert_eq!(
        changes(before(1), before(5), Direction::Forward),
        [(before(1), Some(at(1))), (before(5), None)],
        "[1, 5)"
    );
    assert_eq!(
        changes(after(0), after(5), Direction::Forward),
        [(before(1), Some(at(1))), (before(5), Some(at(2))), (after(5), None)],
        "(0, 5]"
    );
    assert_eq!(
        changes(before(5), after(5), Direction::Reverse),
        [(after(5), Some(at(2))), (before(5), None)],
        "[5, 5] reversed"
    );
}

/// Deleting an empty range stored a broken deletion that a later read stumbled over.
#[test]
fn b104_an_empty_range_deletes_nothing() {
    let mut ranges = Ranges::new();
    for (start, end) in [(before(1), before(1)), (after(1), after(1)), (after(1), before(1)), (after(3), before(2))] {
        ranges.add(start, end, at(1));
        assert!(ranges.is_empty());
    }
    ranges.add(before(0), before(2), at(2));
    assert_eq!(ranges.len(), 2);
    assert_eq!(ranges.changes(&slice(after(1), before(1)), Direction::Forward).count(), 0);
}
