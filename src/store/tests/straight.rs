//! Reads of several rows of which sources hold nothing but rows (`straight.rs`, `weave.rs`).

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::model::naive::{any_direction, partition_key};
use crate::model::{Cell, CellKind, ClusteringKey, Liveness, LivenessKind, Order, Timestamp};

/// Keys that differ in their first bytes, or not before the ninth, or in length alone.
const WORDS: [&str; 12] =
    ["", "a", "ab", "abcde", "abcdef", "abcdefg", "abcdefgh", "abcdefgh\0", "abcdefghi", "abcdefghij", "b", "\u{7ff}"];

fn key(word: usize) -> ClusteringKey {
    ClusteringKey::encode(&[Bytes::from_static(WORDS[word].as_bytes())], &[(Type::Text, Order::Ascending)]).unwrap()
}

fn row(timestamp: i64) -> Row {
    let timestamp = Timestamp(timestamp);
    let value = vec![timestamp.0 as u8; 3_000 * (timestamp.0 as usize % 3)];
    let cell = Cell { timestamp, kind: CellKind::Live(value.into()) };
    let marker = Some(Liveness { timestamp, kind: LivenessKind::Live });
    Row { marker, cells: vec![(ColumnId(1), cell)], ..Row::default() }
}

proptest! {
    #[test]
    fn rows_of_many_files_come_in_order_and_each_once(
        sources in vec(vec(0..WORDS.len(), 1..20), 1..6),
        is_last_flushed: bool,
        direction in any_direction(),
        limit_rows in prop_oneof![1u32..5, Just(1_000)],
        limit_bytes in prop_oneof![Just(1u32), 1u32..3_000, Just(1 << 20)],
    ) {
        let mut tables = vec![spec(TABLE)];
        tables[0].clustering = vec![(Type::Text, Order::Ascending)];
        let mut node = Node::opened(Arc::new(MemoryVfs::new()), tables, identity());
        let mut expected = BTreeMap::new();
        let mut timestamp = 0;
        for (at, words) in sources.iter().enumerate() {
            for word in words {
                timestamp += 1;
                let mut mutation = Mutation::new(TABLE, partition_key(0));
                mutation.rows.push((key(*word), row(timestamp)));
                node.write(&mutation);
                expected.insert(key(*word), row(timestamp));
            }
            if is_last_flushed || at + 1 < sources.len() {
                node.flush();
            }
        }
        let target = Target::Partition(partition_key(0));
        let read = ReadCommand { target, direction, limit_rows, limit_bytes, slices: vec![Slice::all()], ..scan() };
        let pages = node.pages(read);
        for page in &pages {
            prop_assert!(page.iter().filter(|fragment| matches!(fragment, Fragment::Row(..))).count() <= limit_rows as usize);
        }
        let found = joined(pages).into_iter().filter_map(|fragment| match fragment {
            Fragment::Row(key, row) => Some((key, row)),
            _ => None,
        });
        let mut expected: Vec<_> = expected.into_iter().collect();
        if direction == Direction::Reverse {
            expected.reverse();
        }
        prop_assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
