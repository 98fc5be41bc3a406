//! A memtable against the naive model, and its counting of bytes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::Memtable;
use super::arena::Arena;
use super::rows::Rows;
use crate::codec::EncodedRow;
use crate::codec::mutation::encode_mutation;
use crate::codec::mutation::view::MutationView;
use crate::model::naive::{
    Naive, any_direction, any_mutation, any_slices, delete_rows, deletion, partition_key, row_key, rows, rows_between,
    static_value, value,
};
use crate::model::{
    Direction, Fragment, Glance, Mutation, PartitionHeader, PartitionKey, Row, ScanRange, Slice, Stream, Token,
    TokenRange,
};

fn insert(table: &Memtable, mutation: &Mutation) {
    let mut bytes = Vec::new();
    encode_mutation(mutation, &mut bytes);
    table.insert(mutation.key.token(), &MutationView::new(&bytes).unwrap()).unwrap();
}

fn table(mutations: &[Mutation]) -> Arc<Memtable> {
    let table = Arc::new(Memtable::new());
    mutations.iter().for_each(|mutation| insert(&table, mutation));
    table
}

fn decoded(fragment: Fragment<EncodedRow>) -> Fragment<Row> {
    match fragment {
        Fragment::Partition(PartitionHeader { key, deletion, static_row }) => {
            let static_row = static_row.map(|row| row.decode().unwrap());
            Fragment::Partition(PartitionHeader { key, deletion, static_row })
        }
        Fragment::Row(key, row) => Fragment::Row(key, row.decode().unwrap()),
        Fragment::Change(bound, deletion) => Fragment::Change(bound, deletion),
    }
}

/// All of a stream, without headers that say nothing: a merge drops those.
fn drained(mut stream: impl Stream<EncodedRow>) -> Vec<Fragment<Row>> {
    let mut all: Vec<Fragment<Row>> = Vec::new();
    let says_nothing = |fragment: &Fragment<Row>| matches!(fragment, Fragment::Partition(header) if header.deletion.is_none() && header.static_row.is_none());
    while let Some(fragment) = stream.next().unwrap() {
        if matches!(fragment, Fragment::Partition(_)) && all.last().is_some_and(says_nothing) {
            all.pop();
        }
        all.push(decoded(fragment));
    }
    if all.last().is_some_and(says_nothing) {
        all.pop();
    }
    all
}

fn read(table: &Arc<Memtable>, number: u8, slices: &[Slice], direction: Direction) -> Vec<Fragment<Row>> {
    table.partition(&partition_key(number), slices, direction).unwrap().map(drained).unwrap_or_default()
}

fn shape(fragments: &[Fragment<Row>]) -> String {
    let one = |fragment: &Fragment<Row>| match fragment {
        Fragment::Partition(_) => "P".to_string(),
        Fragment::Row(key, _) => {
            let number = (0..200).find(|number| row_key(*number) == *key).unwrap();
            format!("{number}")
        }
        Fragment::Change(_, Some(deletion)) => format!("@{}", deletion.timestamp.0),
        Fragment::Change(_, None) => "/".to_string(),
    };
    fragments.iter().map(one).collect::<Vec<_>>().join(" ")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_memtable_yields_what_the_naive_model_says(
        mutations in proptest::collection::vec(any_mutation(3, 12), 1..30),
        slices in any_slices(12),
        direction in any_direction(),
    ) {
        let table = table(&mutations);
        let mut naive = Naive::default();
        mutations.iter().for_each(|mutation| naive.apply(mutation));
        let joined = Slice::joined(&slices);
        for number in 0..3 {
            prop_assert_eq!(
                read(&table, number, &slices, direction),
                naive.partition(&partition_key(number), &joined, direction)
            );
        }
        let scanned = drained(table.scan(ScanRange::default(), &slices, direction));
        prop_assert_eq!(scanned, naive.scan(&joined, direction));
    }

    #[test]
    fn wide_partitions_are_read_across_batches(
        mutations in proptest::collection::vec(any_mutation(2, 150), 50..100),
        slices in any_slices(150),
        direction in any_direction(),
    ) {
        // Newer than every deletion, so that they fill several batches.
        let lasting = (0..150).map(|key| (key, value("lasting", 30)));
        let mutations: Vec<_> = mutations.into_iter().chain([rows(1, lasting)]).collect();
        let table = table(&mutations);
        let mut naive = Naive::default();
        mutations.iter().for_each(|mutation| naive.apply(mutation));
        let joined = Slice::joined(&slices);
        prop_assert_eq!(read(&table, 1, &slices, direction), naive.partition(&partition_key(1), &joined, direction));
        let scanned = drained(table.scan(ScanRange::default(), &slices, direction));
        prop_assert_eq!(scanned, naive.scan(&joined, direction));
    }
}

/// What befalls the rows of a wide partition: so many are put, in ascending, descending or mixed order, or a range is shadowed.
#[derive(Debug, Clone)]
enum Step {
    Put { from: i32, count: i32, order: i32, timestamp: i64 },
    Shadow { from: i32, to: i32, timestamp: i64 },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..2_000, 0..800, prop_oneof![Just(1), Just(-1), Just(367)], 1..9i64)
            .prop_map(|(from, count, order, timestamp)| Step::Put { from, count, order, timestamp }),
        1 => (0..2_000, 0..2_000, 1..9i64).prop_map(|(from, to, timestamp)| Step::Shadow { from, to, timestamp }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_of_a_wide_partition_are_a_sorted_map(
        steps in proptest::collection::vec(any_step(), 1..12),
        (from, to) in (0..2_000, 0..2_000),
        direction in any_direction(),
    ) {
        let (mut rows, mut arena, mut map) = (Rows::default(), Arena::default(), BTreeMap::new());
        for step in steps {
            match step {
                Step::Put { from, count, order, timestamp } => {
                    for at in 0..count {
                        let key = from + (at * order).rem_euclid(count);
                        let row = EncodedRow::encode(&value("v", timestamp));
                        rows.put(row_key(key).bytes(), row.bytes(), &mut arena).unwrap();
                        let held = map.entry(key).or_insert(timestamp);
                        *held = timestamp.max(*held);
                    }
                }
                Step::Shadow { from, to, timestamp } => {
                    rows.shadow(&rows_between(from, to), deletion(timestamp), &mut arena).unwrap();
                    map.retain(|key, held| !(from..=to).contains(key) || *held > timestamp);
                }
            }
        }
        for slice in [Slice::all(), rows_between(from, to)] {
            let found = rows.within(&slice, direction, &arena).map(|place| arena.row(place));
            let found: Vec<_> = found.map(|(key, row)| (key, row.decode().unwrap())).collect();
            let within = map.iter().map(|(key, timestamp)| (row_key(*key), value("v", *timestamp)));
            let mut expected: Vec<_> = within.filter(|(key, _)| slice.start < key.after() && key.before() < slice.end).collect();
            if direction == Direction::Reverse {
                expected.reverse();
            }
            prop_assert!(found == expected, "{} found, {} expected", found.len(), expected.len());
        }
    }
}

#[test]
fn older_rows_that_arrive_after_a_deletion_do_not_show() {
    let table = table(&[
        Mutation { deletion: Some(deletion(5)), ..rows(1, []) },
        rows(1, [(1, value("old", 5)), (2, value("new", 6))]),
        Mutation { static_row: Some(static_value("old", 4)), ..rows(1, []) },
        delete_rows(1, 2, 3, 8),
        rows(1, [(3, value("old", 7)), (4, value("new", 7))]),
    ]);
    assert_eq!(shape(&read(&table, 1, &[Slice::all()], Direction::Forward)), "P @8 / 4");
}

#[test]
fn a_range_under_the_partition_deletion_goes_with_it() {
    let table = table(&[
        delete_rows(1, 2, 3, 8),
        delete_rows(1, 6, 7, 11),
        Mutation { deletion: Some(deletion(9)), ..rows(1, []) },
        delete_rows(1, 4, 5, 9),
    ]);
    assert_eq!(shape(&read(&table, 1, &[Slice::all()], Direction::Reverse)), "P @11 /");
}

/// B031: a read of several slices gave the range tombstone again for each, out of order. Each slice has its clip of it.
#[test]
fn b031_a_range_deletion_is_clipped_to_each_slice() {
    let table = table(&[delete_rows(1, 1, 10, 1), rows(1, (1..=4).map(|key| (key, value("v", 2))))]);
    let slices = [rows_between(1, 2), rows_between(3, 4)];
    assert_eq!(shape(&read(&table, 1, &slices, Direction::Forward)), "P @1 1 2 / @1 3 4 /");
    let apart = [rows_between(1, 1), rows_between(4, 4)];
    assert_eq!(shape(&read(&table, 1, &apart, Direction::Reverse)), "P @1 4 / @1 1 /");
}

/// B103: where two range tombstones touch and the read ended at the border, the second was opened and never closed.
#[test]
fn b103_touching_range_deletions_stay_balanced() {
    let mut first = delete_rows(1, 1, 5, 1);
    first.ranges[0].end = row_key(5).before();
    let table = table(&[rows(1, (0..10).map(|key| (key, value("v", 0)))), first, delete_rows(1, 5, 9, 2)]);
    let up_to_5 = Slice { start: row_key(1).before(), end: row_key(5).before() };
    assert_eq!(shape(&read(&table, 1, &[up_to_5], Direction::Forward)), "P @1 /");
    let from_0_excluded = Slice { start: row_key(0).after(), end: row_key(5).after() };
    assert_eq!(shape(&read(&table, 1, std::slice::from_ref(&from_0_excluded), Direction::Forward)), "P @1 @2 /");
    assert_eq!(shape(&read(&table, 1, &[from_0_excluded], Direction::Reverse)), "P @2 @1 /");
    assert_eq!(shape(&read(&table, 1, &[rows_between(5, 5)], Direction::Forward)), "P @2 /");
    assert_eq!(shape(&read(&table, 1, &[Slice::all()], Direction::Forward)), "P 0 @1 @2 /");
}

/// B106: a deletion of no rows deleted the partition. A mutation that changes nothing leaves nothing.
#[test]
fn b106_a_mutation_of_nothing_leaves_no_trace() {
    let table = table(&[Mutation::new(crate::model::naive::TABLE, partition_key(1))]);
    assert!(table.is_empty());
    assert!(table.partition(&partition_key(1), &[Slice::all()], Direction::Forward).unwrap().is_none());
}

#[test]
fn no_slices_mean_no_rows() {
    let table = table(&[Mutation { static_row: Some(static_value("s", 1)), ..rows(1, [(1, value("v", 1))]) }]);
    assert_eq!(shape(&read(&table, 1, &[], Direction::Forward)), "P");
}

/// A range deletion arrives, or is withdrawn by a partition deletion, while a reader stands between two batches.
#[test]
fn a_stream_stays_balanced_while_the_partition_changes() {
    for direction in [Direction::Forward, Direction::Reverse] {
        for late in [delete_rows(1, 0, 199, 9), Mutation { deletion: Some(deletion(9)), ..rows(1, []) }] {
            let table = table(&[
                delete_rows(1, 50, 120, 3),
                rows(1, (0..200).map(|key| (key, value("v", if key % 2 == 0 { 5 } else { 20 })))),
            ]);
            let mut stream = table.partition(&partition_key(1), &[Slice::all()], direction).unwrap().unwrap();
            let mut seen = Vec::new();
            for _ in 0..64 {
                seen.push(decoded(stream.next().unwrap().unwrap()));
            }
            insert(&table, &late);
            seen.extend(drained(stream));
            let mut in_force = None;
            let mut last: Option<bytes::Bytes> = None;
            for fragment in &seen[1..] {
                let place = match fragment {
                    Fragment::Row(key, _) => key.bytes().clone(),
                    Fragment::Change(bound, deletion) => {
                        assert_ne!(in_force, *deletion, "{}", shape(&seen));
                        in_force = *deletion;
                        bound.bytes().clone()
                    }
                    Fragment::Partition(_) => panic!("a second header"),
                };
                assert!(last.is_none_or(|last| direction.order(last.cmp(&place)).is_lt()), "{}", shape(&seen));
                last = Some(place);
            }
            assert_eq!(in_force, None);
        }
    }
}

#[test]
fn a_scan_keeps_to_its_range() {
    let table = table(&(0..100).map(|number| rows(number, [(1, value("v", 1))])).collect::<Vec<_>>());
    let mut keys: Vec<_> = (0..100).map(partition_key).collect();
    keys.sort();
    let scan = |after: Option<usize>, tokens: TokenRange| {
        let after = after.map(|at| (keys[at].token(), keys[at].bytes().clone()));
        let mut stream = table.scan(ScanRange { after, tokens }, &[Slice::all()], Direction::Forward);
        let mut found = Vec::new();
        while let Some(fragment) = stream.next().unwrap() {
            if let Fragment::Partition(header) = fragment {
                found.push(header.key);
            }
        }
        found
    };
    assert_eq!(scan(None, TokenRange::ALL), keys);
    assert_eq!(scan(Some(40), TokenRange::ALL), keys[41..]);
    let tokens = TokenRange { after: Some(keys[10].token()), up_to: Some(keys[60].token()) };
    assert_eq!(scan(None, tokens), keys[11..=60]);
    assert_eq!(scan(Some(5), tokens), keys[11..=60]);
    assert_eq!(scan(Some(30), tokens), keys[31..=60]);
    assert!(scan(Some(99), TokenRange::ALL).is_empty());
    assert!(scan(None, TokenRange { after: Some(Token(i64::MAX)), up_to: None }).is_empty());
}

#[test]
fn bytes_grow_with_what_is_held_and_start_small() {
    let table = table(&[rows(1, [(1, value("v", 1))])]);
    let one = table.bytes();
    assert!((200..3_000).contains(&one), "{one} bytes for one small row");
    for key in 0..1_000 {
        insert(&table, &rows(2, [(key, value(&"x".repeat(100), 1))]));
    }
    let held = table.bytes() - one;
    assert!((120_000..180_000).contains(&held), "{held} bytes for 1,000 rows of 100 bytes");
}

#[test]
fn an_arena_shares_only_its_own_chunks() {
    let mut arena = Arena::default();
    let message = vec![7u8; 3_000];
    let keys: Vec<_> = (0..200).map(row_key).collect();
    let places: Vec<_> =
        keys.iter().enumerate().map(|(at, key)| arena.put_row(key.bytes(), &message[..at * 10])).collect();
    let large = arena.put_row(keys[0].bytes(), &vec![1u8; 1 << 20]);
    let behind = arena.put_key(b"partition");
    for (at, (key, place)) in keys.iter().zip(&places).enumerate() {
        let row = EncodedRow::trusted(bytes::Bytes::copy_from_slice(&message[..at * 10]));
        assert_eq!(arena.row(*place), (key.clone(), row));
        assert_eq!(arena.key(*place), key.bytes());
        assert_eq!(arena.row_bytes(*place), &message[..at * 10]);
    }
    assert_eq!(arena.row_bytes(large).len(), 1 << 20);
    assert_eq!(arena.partition_key(Token(3), behind), PartitionKey::with_token(Token(3), "partition".into()));
    let asked = (0..200).map(|at| at * 10).sum::<usize>() + (1 << 20);
    assert!(arena.held() as usize >= asked && (arena.held() as usize) < asked + (64 << 10), "{}", arena.held());
}

/// The first thing in an arena may be larger than a chunk.
#[test]
fn an_arena_begins_with_whatever_comes_first() {
    let mut arena = Arena::default();
    let large = arena.put_row(row_key(1).bytes(), &vec![1u8; 100_000]);
    let small = arena.put_row(row_key(2).bytes(), b"small");
    assert_eq!((arena.row_bytes(large).len(), arena.row_bytes(small)), (100_000, &b"small"[..]));
}

/// Keys that share a token, as only somebody makes them who chooses keys for it, are partitions like others.
#[test]
fn partitions_of_one_token_are_told_apart_and_scanned_in_order() {
    let keys: Vec<_> = [(5, "b"), (5, "d"), (5, "a"), (5, "c"), (7, "a"), (i64::MIN, "z"), (i64::MAX, "y")]
        .map(|(token, key)| PartitionKey::with_token(Token(token), key.into()))
        .into();
    let table = Arc::new(Memtable::new());
    for (number, key) in keys.iter().enumerate() {
        let many = (0..100).map(|row| (row, value(&format!("{number}"), 1)));
        let mutation = Mutation { key: key.clone(), ..rows(1, many) };
        insert(&table, &mutation);
        insert(&table, &mutation);
    }
    let mut sorted = keys.clone();
    sorted.sort();
    let scan = |after: Option<&PartitionKey>| {
        let after = after.map(|key| (key.token(), key.bytes().clone()));
        let range = ScanRange { after, tokens: TokenRange::ALL };
        let found = drained(table.scan(range, &[Slice::all()], Direction::Forward));
        let headers = found.iter().filter_map(|fragment| match fragment {
            Fragment::Partition(header) => Some(header.key.clone()),
            _ => None,
        });
        let headers: Vec<_> = headers.collect();
        assert_eq!(found.len(), headers.len() * 101);
        headers
    };
    assert_eq!(scan(None), sorted);
    for at in 0..sorted.len() {
        assert_eq!(scan(Some(&sorted[at])), sorted[at + 1..]);
    }
    assert_eq!(table.partitions(), 7);
    for (number, key) in keys.iter().enumerate() {
        let Glance::Lone(lone) = table.glance(key, &Slice::one(&row_key(3))) else { panic!("a row is missing") };
        assert_eq!(lone.row.unwrap().1.decode().unwrap(), value(&format!("{number}"), 1));
    }
    let absent = PartitionKey::with_token(Token(5), "e".into());
    assert_eq!(table.glance(&absent, &Slice::all()), Glance::Absent);
}

#[test]
fn shards_are_the_parts_of_the_ring_in_its_order() {
    for shard in 0..super::SHARDS {
        let first = super::first_token(shard).unwrap();
        assert_eq!(super::shard_of(first), shard);
        assert_eq!(first.0.checked_sub(1).map(|before| super::shard_of(Token(before))), shard.checked_sub(1));
    }
    assert_eq!(super::first_token(super::SHARDS), None);
}
