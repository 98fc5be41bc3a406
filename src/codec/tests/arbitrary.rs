//! Arbitrary data that holds the invariants of the model.

use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use crate::model::reconcile::merge_rows;
use crate::model::time::{EXPIRY_MAX_S, TTL_MAX_S};
use crate::model::{Cell, CellKind, ColumnId, Deletion, Liveness, LivenessKind, Row, Timestamp};

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

fn cell() -> impl Strategy<Value = Cell> {
    let kind = prop_oneof![
        value().prop_map(CellKind::Live),
        (value(), ttl(), seconds()).prop_map(|(value, ttl_s, expiry_s)| CellKind::Expiring { value, ttl_s, expiry_s }),
        (ttl(), seconds()).prop_map(|(ttl_s, expiry_s)| CellKind::Expired { ttl_s, expiry_s }),
        seconds().prop_map(|ldt_s| CellKind::Tombstone { ldt_s }),
    ];
    (timestamp(), kind).prop_map(|(timestamp, kind)| Cell { timestamp, kind })
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
    let column = prop_oneof![6 => 0..8u32, 1 => any::<u32>(), 1 => Just(u32::MAX)].prop_map(ColumnId);
    btree_map(column, cell(), least..6).prop_map(|cells| cells.into_iter().collect())
}

pub fn row() -> impl Strategy<Value = Row> {
    (option::of(marker()), option::of(deletion()), cells(0))
        // Merging a row with nothing takes away what its own deletion covers.
        .prop_map(|(marker, deletion, cells)| merge_rows(Row { marker, deletion, cells }, Row::default()))
        .prop_filter("the empty row has no encoding", |row| !row.is_empty())
}
