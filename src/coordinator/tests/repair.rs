//! Merges of differing answers against replicas that were told everything.

use bytes::Bytes;
use proptest::prelude::*;

use super::cluster::whole_table;
use super::replica::{Replica, encoded, keys};
use crate::codec::entry::put_entry;
use crate::codec::mutation::{decode_mutation, encode_mutation};
use crate::coordinator::read_repair::{decode, merge};
use crate::model::naive::{any_direction, any_mutation, any_slices, deletion, partition_key, row_key, rows, value};
use crate::model::{
    Direction, Fragment, Mutation, Page, PageEnd, PagePosition, PartitionHeader, PartitionKey, ReadCommand, Row,
    RowPosition, Target, TokenRange,
};

const KEYS: i32 = 6;

/// Mutations, and who was told each.
fn any_history(partitions: u8) -> impl Strategy<Value = Vec<(Mutation, u8)>> {
    proptest::collection::vec((any_mutation(partitions, KEYS), 1..8u8), 0..12)
}

fn replicas(history: &[(Mutation, u8)]) -> [Replica; 3] {
    std::array::from_fn(|at| {
        let mut replica = Replica::default();
        history.iter().filter(|(_, told)| told >> at & 1 == 1).for_each(|(mutation, _)| replica.apply(mutation));
        replica
    })
}

/// A limit that a page may run into, or none.
fn any_limit(most: u32) -> impl Strategy<Value = u32> {
    prop_oneof![1..most, Just(u32::MAX)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// The merge says what one replica that was told everything would say, as far as the shortest page reaches; and once
    /// each replica was told what it lacks, each says the same by itself.
    #[test]
    fn a_merge_is_the_union_and_its_differences_make_all_equal(
        history in any_history(3),
        slices in any_slices(KEYS),
        direction in any_direction(),
        limits in [(any_limit(5), any_limit(200)), (any_limit(5), any_limit(200)), (any_limit(5), any_limit(200))],
    ) {
        let mut replicas = replicas(&history);
        let mut union = Replica::default();
        history.iter().for_each(|(mutation, _)| union.apply(mutation));
        let command = ReadCommand { slices, direction, ..whole_table() };
        let pages: Vec<(usize, Page)> = (0..3)
            .map(|at| {
                let (limit_rows, limit_bytes) = limits[at];
                (at, replicas[at].read(&ReadCommand { limit_rows, limit_bytes, ..command.clone() }))
            })
            .collect();
        let merged = merge(&command, &pages).unwrap();
        for (_, page) in &pages {
            prop_assert!(merged.end.compare(&page.end, direction).is_le(), "further than a page reaches");
        }
        let whole = union.up_to(&command, &merged.end);
        let whole_encoded: Vec<_> = whole.iter().cloned().map(encoded).collect();
        prop_assert_eq!(&merged.fragments, &whole_encoded);
        for difference in &merged.differences {
            prop_assert!(!difference.mutations.is_empty());
            let already = replicas[difference.replica].up_to(&command, &merged.end) == whole;
            prop_assert!(!already, "replica {} lacks nothing", difference.replica);
            for mutation in &difference.mutations {
                let mut bytes = Vec::new();
                encode_mutation(mutation, &mut bytes);
                prop_assert!(decode_mutation(bytes.into()).is_ok(), "no replica takes {mutation:?}");
                replicas[difference.replica].apply(mutation);
            }
        }
        for (at, replica) in replicas.iter().enumerate() {
            prop_assert_eq!(replica.up_to(&command, &merged.end), whole.clone(), "replica {}", at);
        }
    }

    /// Bytes of a peer are refused or read, never believed blindly: no panic, and no order that a merge would trip over.
    #[test]
    fn any_bytes_are_read_or_refused(
        history in any_history(2),
        direction in any_direction(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let [replica, other, _] = replicas(&history);
        let command = ReadCommand { direction, ..whole_table() };
        let mut page = replica.read(&command);
        let mut entries = page.entries.to_vec();
        for (at, to) in flips {
            if !entries.is_empty() {
                let at = at.index(entries.len());
                entries[at] = to;
            }
        }
        page.entries = Bytes::from(entries);
        let readable = decode(&page, &command).is_ok();
        match merge(&command, &[(4, other.read(&command)), (9, page)]) {
            Ok(_) => prop_assert!(readable),
            Err(broken) => prop_assert_eq!((broken, readable), (9, false)),
        }
    }
}

fn page_of(fragments: &[Fragment<Row>]) -> Page {
    let mut entries = Vec::new();
    fragments.iter().for_each(|fragment| put_entry(&mut entries, &encoded(fragment.clone())));
    Page { entries: entries.into(), end: PageEnd::Complete }
}

#[test]
fn a_page_out_of_order_is_refused() {
    let header =
        |number| Fragment::Partition(PartitionHeader { key: partition_key(number), deletion: None, static_row: None });
    let row = |key| Fragment::Row(row_key(key), value("v", 1));
    let open = |key| Fragment::Change(row_key(key).before(), Some(deletion(1)));
    let close = |key| Fragment::Change(row_key(key).before(), None);
    let (first, second) = match partition_key(0) < partition_key(1) {
        true => (0, 1),
        false => (1, 0),
    };
    let fine = [header(first), row(0), open(1), row(1), close(2), header(second), row(0)];
    assert!(decode(&page_of(&fine), &whole_table()).is_ok());
    let broken: [&[Fragment<Row>]; 9] = [
        &[row(0)],
        &[header(second), header(first)],
        &[header(first), header(first)],
        &[header(first), row(1), row(0)],
        &[header(first), row(1), row(1)],
        &[header(first), open(0)],
        &[header(first), open(0), header(second)],
        &[header(first), close(0)],
        &[header(first), open(0), open(1), close(2)],
    ];
    for fragments in broken {
        assert!(decode(&page_of(fragments), &whole_table()).is_err(), "{fragments:?}");
    }
    let reversed = ReadCommand { direction: Direction::Reverse, ..whole_table() };
    assert!(decode(&page_of(&[header(first), row(0), row(1)]), &reversed).is_err());
}

#[test]
fn a_replica_that_has_everything_lacks_nothing() {
    let mut full = Replica::default();
    full.apply(&rows(0, [(0, value("a", 1)), (1, value("b", 1))]));
    let mut stale = Replica::default();
    stale.apply(&rows(0, [(0, value("a", 1))]));
    let pages = [(3, stale.read(&whole_table())), (5, full.read(&whole_table()))];
    let merged = merge(&whole_table(), &pages).unwrap();
    let [difference] = &merged.differences[..] else { panic!("{:?}", merged.differences) };
    assert_eq!((difference.replica, &difference.mutations[..]), (3, &[rows(0, [(1, value("b", 1))])][..]));
}

/// A replica that answers other partitions than were asked for, or ends where the page before ended, would spread what
/// nobody wrote, or send the read round in circles.
#[test]
fn a_page_of_another_command_is_refused() {
    let [first, second] = [0, 1].map(|at| keys(&Target::Scan(TokenRange::ALL))[at].clone());
    let at = |partition: &PartitionKey, row| PagePosition { partition: partition.clone(), row };
    let after = at(&first, RowPosition::After(row_key(3)));
    let scan = ReadCommand { after: Some(after.clone()), ..whole_table() };
    let one = ReadCommand { target: Target::Partition(second.clone()), ..whole_table() };
    let empty = |end| Page { entries: Bytes::new(), end: PageEnd::At(end) };
    let refused = |command: &ReadCommand, page: &Page| decode(page, command).is_err();
    assert!(refused(&scan, &empty(after)));
    assert!(refused(&scan, &empty(at(&first, RowPosition::Header))));
    assert!(!refused(&scan, &empty(at(&first, RowPosition::End))));
    assert!(!refused(&scan, &empty(at(&second, RowPosition::Header))));
    assert!(refused(
        &ReadCommand { after: Some(at(&second, RowPosition::Header)), ..scan },
        &empty(at(&first, RowPosition::End))
    ));
    assert!(refused(&one, &empty(at(&first, RowPosition::Header))));
    let header =
        |key: &PartitionKey| PartitionHeader { key: key.clone(), deletion: Some(deletion(1)), static_row: None };
    assert!(refused(&one, &page_of(&[Fragment::Partition(header(&first))])));
    assert!(!refused(&one, &page_of(&[Fragment::Partition(header(&second))])));
}
