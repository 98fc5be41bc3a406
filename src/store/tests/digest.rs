//! Digests of partitions: equal data has equal ones, however it lies in files; anything else shows.

use proptest::prelude::*;

use super::{Node, scan};
use crate::compaction::Unpaced;
use crate::model::naive::{TABLE, any_mutation, delete_rows, partition_key, rows, value};
use crate::model::{
    CellKind, Fragment, LivenessKind, Mutation, PartitionKey, ReadCommand, Row, Target, Timestamp, TokenRange,
};
use crate::store::digest::{DigestPage, DigestRange, PartitionDigest, Summary, compare};

const PARTITIONS: u8 = 4;
const KEYS: i32 = 6;
const NOW_S: i64 = 100;

fn range(after: Option<PartitionKey>, purged_before: Option<Timestamp>) -> DigestRange {
    DigestRange { table: TABLE, tokens: TokenRange::default(), after, now_s: NOW_S, purged_before }
}

/// All of them, taken `limit` at a time.
fn digests(node: &Node, limit: usize, purged_before: Option<Timestamp>) -> Vec<PartitionDigest> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = node.store.partition_digests(&range(after, purged_before), limit).unwrap();
        assert!(page.partitions.len() <= limit);
        all.extend(page.partitions);
        if !page.has_more {
            return all;
        }
        after = all.last().map(|partition: &PartitionDigest| partition.key.clone());
    }
}

fn summary(partitions: &[PartitionDigest]) -> Summary {
    let mut summary = Summary::default();
    partitions.iter().for_each(|partition| summary.add(partition));
    summary
}

/// What a partition holds, as reads answer it, but for the values of what has expired.
fn content(node: &Node, key: &PartitionKey) -> Vec<Fragment<Row>> {
    let mut fragments = node.read(ReadCommand { target: Target::Partition(key.clone()), now_s: NOW_S, ..scan() });
    for fragment in &mut fragments {
        match fragment {
            Fragment::Partition(header) => header.static_row.iter_mut().for_each(forget_expired),
            Fragment::Row(_, row) => forget_expired(row),
            Fragment::Change(..) => {}
        }
    }
    fragments
}

fn forget_expired(row: &mut Row) {
    if let Some(marker) = &mut row.marker
        && let LivenessKind::Expiring { ttl_s, expiry_s } = marker.kind
        && expiry_s <= NOW_S
    {
        marker.kind = LivenessKind::Expired { ttl_s, expiry_s };
    }
    let elements = row.complex.iter_mut().flat_map(|(_, complex)| complex.cells.iter_mut().map(|(_, cell)| cell));
    for cell in row.cells.iter_mut().map(|(_, cell)| cell).chain(elements) {
        if let CellKind::Expiring { ttl_s, expiry_s, .. } = cell.kind
            && expiry_s <= NOW_S
        {
            cell.kind = CellKind::Expired { ttl_s, expiry_s };
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Then {
    Nothing,
    Flush,
    Compact,
}

fn any_then() -> impl Strategy<Value = Then> {
    prop_oneof![3 => Just(Then::Nothing), 2 => Just(Then::Flush), 1 => Just(Then::Compact)]
}

fn apply(mutations: &[Mutation], thens: &[Then]) -> Node {
    let mut node = Node::new();
    for (at, mutation) in mutations.iter().enumerate() {
        node.write(mutation);
        match thens[at % thens.len()] {
            Then::Nothing => {}
            Then::Flush => node.flush(),
            // Some at a time at which less has expired: the digest is what makes them alike.
            Then::Compact => node.store.compact_table(TABLE, NOW_S.min(at as i64 * 10), &Unpaced).unwrap(),
        }
    }
    node
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn digests_are_equal_where_the_data_is_and_only_there(
        (mutations, shuffled) in proptest::collection::vec(any_mutation(PARTITIONS, KEYS), 1..25)
            .prop_flat_map(|mutations| (Just(mutations.clone()), Just(mutations).prop_shuffle())),
        thens in proptest::collection::vec(any_then(), 1..7),
        others in proptest::collection::vec(any_then(), 1..7),
        limit in 1usize..4,
        missing in any::<prop::sample::Index>(),
    ) {
        let (one, other) = (apply(&mutations, &thens), apply(&shuffled, &others));
        let ours = digests(&one, limit, None);
        prop_assert_eq!(&ours, &digests(&other, 100, None));
        prop_assert_eq!(summary(&ours).digest(), summary(&digests(&other, 2, None)).digest());
        prop_assert!(ours.windows(2).all(|pair| pair[0].key < pair[1].key));

        let mut fewer = mutations.clone();
        fewer.remove(missing.index(fewer.len()));
        let lacking = apply(&fewer, &others);
        let theirs = digests(&lacking, limit, None);
        for number in 0..PARTITIONS {
            let key = partition_key(number);
            let digest = |all: &[PartitionDigest]| all.iter().find(|one| one.key == key).map(|one| one.digest);
            let is_equal = content(&one, &key) == content(&lacking, &key);
            prop_assert_eq!(digest(&ours) == digest(&theirs), is_equal, "partition {}", number);
        }
    }
}

#[test]
fn pages_are_compared_up_to_where_each_reaches() {
    let partition =
        |number: u8, digest: u8| PartitionDigest { key: partition_key(number), rows: 1, digest: [digest; 16] };
    let page = |mut partitions: Vec<PartitionDigest>, has_more| {
        partitions.sort_by(|one, other| one.key.cmp(&other.key));
        DigestPage { partitions, has_more }
    };
    // In the order of the ring they are 0, 3, 1, 2.
    let (long, short) = (
        page((0..4).map(|number| partition(number, 1)).collect(), false),
        page(vec![partition(0, 1), partition(3, 2)], true),
    );
    let found = compare(&[long.clone(), short.clone(), long.clone()]);
    assert_eq!((found.partitions, found.next), (2, Some(partition_key(3))));
    let held: Vec<_> = found
        .differing
        .iter()
        .map(|one| (one.key.clone(), one.held.iter().map(|held| held.as_ref().map(|held| held.digest[0])).collect()))
        .collect();
    assert_eq!(held, [(partition_key(3), vec![Some(1), Some(2), Some(1)])]);
    let found = compare(&[page(vec![], false), page(vec![partition(1, 1)], false)]);
    assert_eq!((found.partitions, found.differing.len(), found.next), (1, 1, None));
    assert_eq!(found.differing[0].held, [None, Some(partition(1, 1))]);
    assert_eq!(compare(&[long.clone(), long]).differing, []);
}

#[test]
fn deletions_below_the_bound_do_not_count_and_live_data_always_does() {
    let build = |node: &mut Node, deleted_at: Option<i64>| {
        node.write(&rows(1, [(1, value("v", 50))]));
        deleted_at.into_iter().for_each(|at| node.write(&delete_rows(1, 2, 3, at)));
    };
    let (mut with, mut without) = (Node::new(), Node::new());
    build(&mut with, Some(40));
    build(&mut without, None);
    let differs = |bound| {
        let bound = Some(Timestamp(bound));
        digests(&with, 10, bound) != digests(&without, 10, bound)
    };
    assert!(differs(40), "a deletion at the bound counts");
    assert!(!differs(41), "one below it does not");
    let (full, empty) = (digests(&with, 10, Some(Timestamp(1_000))), digests(&Node::new(), 10, Some(Timestamp(1_000))));
    assert_ne!(full, empty, "live data counts below any bound");
}
