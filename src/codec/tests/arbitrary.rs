//! Arbitrary data that holds the invariants of the model.

use bytes::Bytes;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use uuid::Uuid;

use crate::codec::EncodedRow;
use crate::model::reconcile::merge_rows;
use crate::model::time::{EXPIRY_MAX_S, TTL_MAX_S};
use crate::model::{
    Bound, Cell, CellKind, ClusteringKey, ColumnId, Complex, Counter, Deletion, Fragment, Liveness, LivenessKind,
    Mutation, NodeId, PartitionHeader, PartitionKey, RangeDeletion, Row, Shard, TableId, Timestamp,
};

/// Few values that collide, some at the edges, some anywhere.
pub fn timestamp() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        4 => (0..8i64).prop_map(|step| 1_700_000_000_000_000 + step),
        1 => Just(i64::MAX),
        1 => Just(Timestamp::MIN.0),
        1 => Timestamp::MIN.0..=i64::MAX,
    ]
    .prop_map(Timestamp)
}

fn seconds() -> impl Strategy<Value = i64> {
    prop_oneof![0..4i64, 0..=EXPIRY_MAX_S, Just(EXPIRY_MAX_S)]
}

fn ttl() -> impl Strategy<Value = u32> {
    prop_oneof![1..4u32, 1..=TTL_MAX_S, Just(TTL_MAX_S)]
}

fn value() -> impl Strategy<Value = Bytes> {
    prop_oneof![4 => vec(any::<u8>(), 0..6), 1 => vec(any::<u8>(), 100..300)].prop_map(Bytes::from)
}

pub fn deletion() -> impl Strategy<Value = Deletion> {
    (timestamp(), seconds()).prop_map(|(timestamp, ldt_s)| Deletion { timestamp, ldt_s })
}

/// What stands at a path of a complex column.
fn element() -> impl Strategy<Value = Cell> {
    let kind = prop_oneof![
        value().prop_map(CellKind::Live),
        (value(), ttl(), seconds()).prop_map(|(value, ttl_s, expiry_s)| CellKind::Expiring { value, ttl_s, expiry_s }),
        (ttl(), seconds()).prop_map(|(ttl_s, expiry_s)| CellKind::Expired { ttl_s, expiry_s }),
        seconds().prop_map(|ldt_s| CellKind::Tombstone { ldt_s }),
    ];
    (timestamp(), kind).prop_map(|(timestamp, kind)| Cell { timestamp, kind })
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..3u64, any::<u64>(), Just(u64::MAX)]
}

fn counter() -> impl Strategy<Value = Counter> {
    let node = prop_oneof![1..3u32, 1..=u32::MAX].prop_map(NodeId);
    let value = prop_oneof![-2..3i64, any::<i64>(), Just(i64::MIN)];
    let shard = (node, number(), number(), value).prop_map(|(node, incarnation, clock, value)| Shard {
        node,
        incarnation,
        clock,
        value,
    });
    vec(shard, 1..4).prop_map(|shards| Counter::of(shards).unwrap())
}

fn cell() -> impl Strategy<Value = Cell> {
    let counter =
        (timestamp(), counter()).prop_map(|(timestamp, counter)| Cell { timestamp, kind: CellKind::Counter(counter) });
    prop_oneof![4 => element(), 1 => counter]
}

fn column() -> impl Strategy<Value = ColumnId> {
    prop_oneof![6 => 0..8u32, 1 => any::<u32>(), 1 => Just(u32::MAX)].prop_map(ColumnId)
}

fn complex() -> impl Strategy<Value = Complex> {
    let path = prop_oneof![4 => vec(0..3u8, 0..3), 1 => vec(any::<u8>(), 100..300)].prop_map(Bytes::from);
    (option::weighted(0.4, deletion()), vec((path, element()), 0..5))
        .prop_filter_map("it says something", |(deletion, elements)| Complex::of(deletion, elements))
}

fn complex_columns(most: usize) -> impl Strategy<Value = Vec<(ColumnId, Complex)>> {
    btree_map(column(), complex(), 0..=most).prop_map(|columns| columns.into_iter().collect())
}

fn marker() -> impl Strategy<Value = Liveness> {
    let kind = prop_oneof![
        Just(LivenessKind::Live),
        (ttl(), seconds()).prop_map(|(ttl_s, expiry_s)| LivenessKind::Expiring { ttl_s, expiry_s }),
        (ttl(), seconds()).prop_map(|(ttl_s, expiry_s)| LivenessKind::Expired { ttl_s, expiry_s }),
    ];
    (timestamp(), kind).prop_map(|(timestamp, kind)| Liveness { timestamp, kind })
}

fn cells(least: usize) -> impl Strategy<Value = Vec<(ColumnId, Cell)>> {
    btree_map(column(), cell(), least..6).prop_map(|cells| cells.into_iter().collect())
}

pub fn row() -> impl Strategy<Value = Row> {
    (option::of(marker()), option::of(deletion()), cells(0), complex_columns(2))
        // Merging a row with nothing takes away what its own deletion covers.
        .prop_map(|(marker, deletion, cells, complex)| {
            merge_rows(Row { marker, deletion, cells, complex }, Row::default())
        })
        .prop_filter("the empty row has no encoding", |row| !row.is_empty())
}

pub fn static_row() -> impl Strategy<Value = Row> {
    (cells(1), complex_columns(1)).prop_map(|(cells, complex)| Row { cells, complex, ..Row::default() })
}

pub fn partition_key() -> impl Strategy<Value = PartitionKey> {
    vec(any::<u8>(), 1..40).prop_map(|bytes| PartitionKey::from_bytes(bytes.into()))
}

fn component() -> impl Strategy<Value = u8> {
    any::<u8>()
}

/// The key of one tinyint.
fn clustering_key_of(component: u8) -> ClusteringKey {
    ClusteringKey::from_bytes(Bytes::from(vec![0x40, component, 0x38])).unwrap()
}

pub fn clustering_key() -> impl Strategy<Value = ClusteringKey> {
    component().prop_map(clustering_key_of)
}

fn bound_of(component: u8, end: u8) -> Bound {
    Bound::from_bytes(Bytes::from(vec![0x40, component, end])).unwrap()
}

pub fn bound() -> impl Strategy<Value = Bound> {
    (component(), prop_oneof![Just(0x20), Just(0x60)]).prop_map(|(component, end)| bound_of(component, end))
}

fn ranges() -> impl Strategy<Value = Vec<RangeDeletion>> {
    (btree_set(bound(), 0..7), vec(deletion(), 7)).prop_map(|(bounds, deletions)| {
        let bounds: Vec<Bound> = bounds.into_iter().collect();
        let mut ranges: Vec<RangeDeletion> = Vec::new();
        // Every third gap is left out; a neighbour that touches and says the same would have been merged.
        for (at, pair) in bounds.windows(2).enumerate().filter(|(at, _)| at % 3 != 2) {
            let range = RangeDeletion { start: pair[0].clone(), end: pair[1].clone(), deletion: deletions[at] };
            if ranges.last().is_none_or(|before| before.end != range.start || before.deletion != range.deletion) {
                ranges.push(range);
            }
        }
        ranges
    })
}

pub fn mutation() -> impl Strategy<Value = Mutation> {
    (
        any::<[u8; 16]>(),
        partition_key(),
        option::of(deletion()),
        option::of(static_row()),
        btree_map(clustering_key(), row(), 0..4),
        ranges(),
    )
        .prop_map(|(table, key, deletion, static_row, rows, ranges)| Mutation {
            table: TableId(Uuid::from_bytes(table)),
            key,
            deletion,
            static_row,
            rows: rows.into_iter().collect(),
            ranges,
        })
}

pub fn fragment() -> impl Strategy<Value = Fragment<EncodedRow>> {
    prop_oneof![
        (partition_key(), option::of(deletion()), option::of(static_row())).prop_map(|(key, deletion, row)| {
            Fragment::Partition(PartitionHeader { key, deletion, static_row: row.as_ref().map(EncodedRow::encode) })
        }),
        (clustering_key(), row()).prop_map(|(key, row)| Fragment::Row(key, EncodedRow::encode(&row))),
        (bound(), option::of(deletion())).prop_map(|(bound, deletion)| Fragment::Change(bound, deletion)),
    ]
}
