//! Digests: equal where replicas have the same writes, whatever each has let go of; different in every other case.

use proptest::prelude::*;

use super::cluster::{Cluster, whole_table};
use super::replica::{PARTITIONS, Replica};
use crate::codec::EncodedRow;
use crate::codec::entry::{Entries, Trust, put_entry};
use crate::compaction::Purge;
use crate::coordinator::{Consistency, Unseen, digest};
use crate::model::naive::{any_mutation, deletion, partition_key, row_key, rows, value};
use crate::model::{
    Cell, CellKind, ColumnId, Fragment, Mutation, Page, PageEnd, PagePosition, Row, RowPosition, Stream, Target,
    Timestamp,
};

const KEYS: i32 = 6;
const NOW_S: i64 = 100;

/// The page as a replica has it that has compacted everything with this limit.
fn compacted(page: &Page, below: Option<Timestamp>) -> Page {
    let source = Entries::new(page.entries.clone(), Trust::Trusted);
    let mut purge = Purge::new(source, NOW_S, None, |_| Ok(below));
    let mut entries = Vec::new();
    while let Some(fragment) = purge.next().unwrap() {
        put_entry(&mut entries, &fragment);
    }
    Page { entries: entries.into(), end: page.end.clone() }
}

fn page_of(history: &[Mutation]) -> Page {
    let mut replica = Replica::default();
    history.iter().for_each(|mutation| replica.apply(mutation));
    replica.read(&whole_table())
}

fn any_history() -> impl Strategy<Value = Vec<Mutation>> {
    proptest::collection::vec(any_mutation(PARTITIONS, KEYS), 0..12)
}

fn any_below() -> impl Strategy<Value = Option<Timestamp>> {
    proptest::option::of((-2..12i64).prop_map(Timestamp))
}

proptest! {
    /// Compaction up to the bound, or to any below it, does not show; what is left after it up to the bound does.
    #[test]
    fn what_may_go_does_not_show(history in any_history(), below in any_below(), other in any_history()) {
        let page = page_of(&history);
        let unseen = Unseen { now_s: NOW_S, below };
        let own = digest(&page, unseen).unwrap();
        prop_assert_eq!(digest(&compacted(&page, below), unseen).unwrap(), own);
        prop_assert_eq!(digest(&compacted(&page, None), unseen).unwrap(), own);
        let other = page_of(&other);
        let are_equal = compacted(&page, below) == compacted(&other, below);
        prop_assert_eq!(digest(&other, unseen).unwrap() == own, are_equal);
    }
}

/// The entries end at the same row, and the answers reach differently far.
#[test]
fn where_a_page_ends_shows() {
    let unseen = Unseen { now_s: NOW_S, below: None };
    let page = page_of(&[rows(1, [(0, value("v", 1))])]);
    let at = |row| PageEnd::At(PagePosition { partition: partition_key(1), row });
    let ends = [
        PageEnd::Complete,
        at(RowPosition::After(row_key(0))),
        at(RowPosition::After(row_key(1))),
        at(RowPosition::End),
    ];
    let digests: Vec<_> = ends.into_iter().map(|end| digest(&Page { end, ..page.clone() }, unseen).unwrap()).collect();
    for (at, one) in digests.iter().enumerate() {
        assert!(!digests[..at].contains(one));
    }
}

/// Nodes of different builds compare digests: they must not change.
#[test]
fn digests_stay_as_they_are() {
    let hex =
        |digest: crate::coordinator::Digest| digest.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let unseen = Unseen { now_s: NOW_S, below: None };
    let nothing = Page { entries: bytes::Bytes::new(), end: PageEnd::Complete };
    let one = page_of(&[rows(1, [(0, value("v", 1))])]);
    let digests = [hex(digest(&nothing, unseen).unwrap()), hex(digest(&one, unseen).unwrap())];
    assert_eq!(digests, ["46328447a2022b04964f2f614c774125", "9a3c9ac4472f262c3aeee9002f099122"]);
}

/// B013: two rows that have their first column, lack the second and differ in the third.
#[test]
fn b013_rows_that_differ_behind_a_missing_cell_have_different_digests() {
    let cell = |column, text: &str| {
        let kind = CellKind::Live(bytes::Bytes::copy_from_slice(text.as_bytes()));
        (ColumnId(column), Cell { timestamp: Timestamp(1), kind })
    };
    let row = |third: &str| Row { cells: vec![cell(1, ""), cell(3, third)], ..Row::default() };
    let mut cluster = Cluster::of_regions(&[0, 0]);
    cluster.write(0b01, &rows(1, [(0, row("aaa"))]));
    cluster.write(0b10, &rows(1, [(0, row("bbb"))]));
    let command = || crate::model::ReadCommand { target: Target::Partition(partition_key(1)), ..whole_table() };
    let answer = cluster.execute(command(), Consistency::All).unwrap().unwrap();
    let found: Vec<EncodedRow> = answer
        .fragments
        .into_iter()
        .filter_map(|fragment| if let Fragment::Row(_, row) = fragment { Some(row) } else { None })
        .collect();
    assert_eq!(found, [EncodedRow::encode(&row("bbb"))]);
    assert!(cluster.holds_the_same_everywhere());
}

/// B017: all have the row and its deletion, one has compacted both away. Nothing differs, nothing is sent.
#[test]
fn b017_what_one_replica_has_purged_is_no_difference() {
    let deleted = Row { deletion: Some(deletion(2)), ..Row::default() };
    let mut cluster = Cluster::of_three();
    cluster.write(0b111, &rows(1, [(1, value("kept", 1))]));
    cluster.write(0b101, &rows(1, [(0, value("old", 1))]));
    cluster.write(0b101, &rows(1, [(0, deleted)]));
    cluster.below = Some(Timestamp(3));
    for _ in 0..2 {
        cluster.log.clear();
        let answer = cluster.execute(whole_table(), Consistency::All).unwrap().unwrap();
        assert!(!answer.repaired);
        assert_eq!(cluster.log, ["ask 0", "digest 1", "digest 2"]);
    }
    // Without the bound it is one, and the deletion is sent to where it is missing.
    cluster.below = None;
    assert!(cluster.execute(whole_table(), Consistency::All).unwrap().unwrap().repaired);
    assert!(cluster.holds_the_same_everywhere());
}
