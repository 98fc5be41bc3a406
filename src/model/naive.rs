//! The data model without any cleverness, for tests: everything that was ever said is kept and looked at again for each
//! answer. What a memtable, a file, a merge or a store yields is compared with this.

use std::collections::BTreeMap;

use proptest::prelude::*;
use uuid::Uuid;

use super::reconcile::{merge_deletions, merge_rows, shadow_row};
use super::{
    Bound, Cell, CellKind, ClusteringKey, ColumnId, Complex, Counter, Deletion, Direction, Fragment, Liveness,
    LivenessKind, Mutation, NodeId, Order, PartitionHeader, PartitionKey, RangeDeletion, Row, Shard, Slice, TableId,
    Timestamp, Type,
};
use bytes::Bytes;

/// All partitions of a table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Naive {
    partitions: BTreeMap<PartitionKey, Partition>,
}

#[derive(Debug, Clone, Default)]
struct Partition {
    deletion: Option<Deletion>,
    static_row: Option<Row>,
    rows: BTreeMap<ClusteringKey, Row>,
    ranges: Vec<RangeDeletion>,
}

impl Naive {
    pub(crate) fn apply(&mut self, mutation: &Mutation) {
        if mutation.is_empty() {
            return;
        }
        let partition = self.partitions.entry(mutation.key.clone()).or_default();
        partition.deletion = merge_deletions(partition.deletion, mutation.deletion);
        if let Some(row) = mutation.static_row.clone() {
            let row = partition.static_row.take().map_or(row.clone(), |held| merge_rows(held, row));
            partition.static_row = Some(row);
        }
        for (key, row) in mutation.rows.clone() {
            let row = partition.rows.remove(&key).map_or(row.clone(), |held| merge_rows(held, row));
            partition.rows.insert(key, row);
        }
        partition.ranges.extend(mutation.ranges.iter().cloned());
    }

    /// One partition within `slices`, as a merge yields it: nothing if nothing is left of it.
    pub(crate) fn partition(&self, key: &PartitionKey, slices: &[Slice], direction: Direction) -> Vec<Fragment<Row>> {
        let Some(partition) = self.partitions.get(key) else { return Vec::new() };
        let deletion = partition.deletion;
        let shadow = |row: Row| deletion.map_or(Some(row.clone()), |deletion| shadow_row(row, deletion));
        let static_row = partition.static_row.clone().and_then(shadow);
        let mut inside: Vec<_> = slices.iter().flat_map(|slice| partition.inside(slice)).collect();
        if direction == Direction::Reverse {
            inside = reversed(inside);
        }
        if deletion.is_none() && static_row.is_none() && inside.is_empty() {
            return Vec::new();
        }
        inside.insert(0, Fragment::Partition(PartitionHeader { key: key.clone(), deletion, static_row }));
        inside
    }

    /// Every partition within `slices`.
    pub(crate) fn scan(&self, slices: &[Slice], direction: Direction) -> Vec<Fragment<Row>> {
        self.partitions.keys().flat_map(|key| self.partition(key, slices, direction)).collect()
    }
}

impl Partition {
    /// What covers a place, given by the bytes of a key or of a bound (then: just above it).
    fn covering(&self, place: &[u8]) -> Option<Deletion> {
        let covers = |range: &&RangeDeletion| range.start.bytes() <= place && place < range.end.bytes();
        let most = self.ranges.iter().filter(covers).map(|range| range.deletion).max();
        most.filter(|most| !self.deletion.is_some_and(|deletion| deletion.covers(most.timestamp)))
    }

    fn inside(&self, slice: &Slice) -> Vec<Fragment<Row>> {
        let mut places: BTreeMap<&[u8], Option<Fragment<Row>>> = BTreeMap::new();
        let ends = self.ranges.iter().flat_map(|range| [&range.start, &range.end]);
        for bound in ends.filter(|bound| slice.start < **bound && **bound < slice.end).chain([&slice.start]) {
            places.insert(bound.bytes(), None);
        }
        for (key, row) in &self.rows {
            if slice.start.bytes() < key.bytes() && key.bytes() < slice.end.bytes() {
                let covering = merge_deletions(self.deletion, self.covering(key.bytes()));
                let row = covering.map_or(Some(row.clone()), |deletion| shadow_row(row.clone(), deletion));
                if let Some(row) = row {
                    places.insert(key.bytes(), Some(Fragment::Row(key.clone(), row)));
                }
            }
        }
        let mut in_force = None;
        let mut fragments = Vec::new();
        for (place, row) in places {
            match row {
                Some(row) => fragments.push(row),
                None => {
                    let covering = self.covering(place);
                    if covering != in_force {
                        let bound = Bound::from_bytes(Bytes::copy_from_slice(place)).expect("it was a bound");
                        fragments.push(Fragment::Change(bound, covering));
                    }
                    in_force = covering;
                }
            }
        }
        if in_force.is_some() {
            fragments.push(Fragment::Change(slice.end.clone(), None));
        }
        fragments
    }
}

/// What is inside a partition, seen from the other end.
fn reversed(forward: Vec<Fragment<Row>>) -> Vec<Fragment<Row>> {
    let mut in_force = None;
    let mut turned: Vec<_> = forward
        .into_iter()
        .map(|fragment| match fragment {
            Fragment::Change(bound, deletion) => Fragment::Change(bound, std::mem::replace(&mut in_force, deletion)),
            other => other,
        })
        .collect();
    turned.reverse();
    turned
}

/// The table that the generated mutations are for.
pub(crate) const TABLE: TableId = TableId(Uuid::from_u128(7));

/// Partition `number`.
pub(crate) fn partition_key(number: u8) -> PartitionKey {
    PartitionKey::from_bytes(Bytes::copy_from_slice(&[b'p', number]))
}

/// The types of the generated clustering keys.
pub(crate) const CLUSTERING: [(Type, Order); 1] = [(Type::Int, Order::Ascending)];

fn int(number: i32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

/// Row `number`.
pub(crate) fn row_key(number: i32) -> ClusteringKey {
    ClusteringKey::encode(&[int(number)], &CLUSTERING).expect("an int is a clustering key")
}

/// The slice `[from, to]` of rows, both included.
pub(crate) fn rows_between(from: i32, to: i32) -> Slice {
    Slice { start: row_key(from).before(), end: row_key(to).after() }
}

/// A row with one value in column 1, and with the marker of an INSERT.
pub(crate) fn value(text: &str, timestamp: i64) -> Row {
    let timestamp = Timestamp(timestamp);
    let cell = Cell { timestamp, kind: CellKind::Live(Bytes::copy_from_slice(text.as_bytes())) };
    let marker = Some(Liveness { timestamp, kind: LivenessKind::Live });
    Row { marker, cells: vec![(ColumnId(1), cell)], ..Row::default() }
}

/// A static row with one value in column 9.
pub(crate) fn static_value(text: &str, timestamp: i64) -> Row {
    let kind = CellKind::Live(Bytes::copy_from_slice(text.as_bytes()));
    Row { cells: vec![(ColumnId(9), Cell { timestamp: Timestamp(timestamp), kind })], ..Row::default() }
}

/// A deletion whose local deletion time is its timestamp in seconds.
pub(crate) fn deletion(timestamp: i64) -> Deletion {
    Deletion { timestamp: Timestamp(timestamp), ldt_s: timestamp.div_euclid(1_000_000) }
}

/// A mutation of partition `number` that sets these rows.
pub(crate) fn rows(number: u8, rows: impl IntoIterator<Item = (i32, Row)>) -> Mutation {
    let rows = rows.into_iter().map(|(key, row)| (row_key(key), row)).collect();
    Mutation { rows, ..Mutation::new(TABLE, partition_key(number)) }
}

/// A mutation of partition `number` that deletes a range of rows, both ends included.
pub(crate) fn delete_rows(number: u8, from: i32, to: i32, timestamp: i64) -> Mutation {
    let Slice { start, end } = rows_between(from, to);
    let range = RangeDeletion { start, end, deletion: deletion(timestamp) };
    Mutation { ranges: vec![range], ..Mutation::new(TABLE, partition_key(number)) }
}

fn any_cell() -> impl Strategy<Value = Cell> {
    let value = proptest::collection::vec(any::<u8>(), 0..4).prop_map(Bytes::from);
    let kind = prop_oneof![
        4 => value.clone().prop_map(CellKind::Live),
        1 => (value, 1u32..5, 90i64..110).prop_map(|(value, ttl_s, expiry_s)| CellKind::Expiring { value, ttl_s, expiry_s }),
        1 => (90i64..110).prop_map(|ldt_s| CellKind::Tombstone { ldt_s }),
    ];
    (0i64..20, kind).prop_map(|(timestamp, kind)| Cell { timestamp: Timestamp(timestamp), kind })
}

fn any_deletion() -> impl Strategy<Value = Deletion> {
    (0i64..20, 90i64..110).prop_map(|(timestamp, ldt_s)| Deletion { timestamp: Timestamp(timestamp), ldt_s })
}

/// What has been added to a counter, or its deletion.
fn any_counter() -> impl Strategy<Value = Cell> {
    let shard = (1..3u32, 0..2u64, 1..4u64, -9..9i64).prop_map(|(node, incarnation, clock, value)| Shard {
        node: NodeId(node),
        incarnation,
        clock,
        value,
    });
    let shards = proptest::collection::vec(shard, 1..3).prop_filter_map("at least one", Counter::of);
    let kind = prop_oneof![
        5 => shards.prop_map(CellKind::Counter),
        1 => (90i64..110).prop_map(|ldt_s| CellKind::Tombstone { ldt_s }),
    ];
    (0i64..20, kind).prop_map(|(timestamp, kind)| Cell { timestamp: Timestamp(timestamp), kind })
}

/// Cells of these columns, and counters in the two columns behind them.
fn any_cells(columns: std::ops::Range<u32>) -> impl Strategy<Value = Vec<(ColumnId, Cell)>> {
    let counters = (columns.end..columns.end + 2).prop_map(ColumnId);
    let counters = proptest::collection::btree_map(counters, any_counter(), 0..2);
    let cells = proptest::collection::btree_map(columns.prop_map(ColumnId), any_cell(), 0..3);
    (cells, counters).prop_map(|(cells, counters)| cells.into_iter().chain(counters).collect())
}

/// Complex columns, of few elements each.
fn any_complex(columns: std::ops::Range<u32>) -> impl Strategy<Value = Vec<(ColumnId, Complex)>> {
    let path = proptest::collection::vec(0..3u8, 0..2).prop_map(Bytes::from);
    let elements = proptest::collection::vec((path, any_cell()), 0..4);
    let complex = (proptest::option::weighted(0.3, any_deletion()), elements);
    let complex = complex.prop_filter_map("it says something", |(deletion, elements)| Complex::of(deletion, elements));
    proptest::collection::btree_map(columns.prop_map(ColumnId), complex, 0..3)
        .prop_map(|columns| columns.into_iter().collect())
}

fn any_row() -> impl Strategy<Value = Row> {
    let marker = proptest::option::of(
        (0i64..20).prop_map(|timestamp| Liveness { timestamp: Timestamp(timestamp), kind: LivenessKind::Live }),
    );
    let parts = (marker, proptest::option::weighted(0.15, any_deletion()), any_cells(1..4), any_complex(20..23));
    parts.prop_filter_map("a row says something", |(marker, deletion, cells, complex)| {
        // Merging with the empty row drops what the row's own deletion covers.
        let row = merge_rows(Row { marker, deletion, cells, complex }, Row::default());
        (!row.is_empty()).then_some(row)
    })
}

/// Mutations of a few partitions that meet each other in rows, ranges and timestamps.
pub(crate) fn any_mutation(partitions: u8, keys: i32) -> impl Strategy<Value = Mutation> {
    let static_row =
        (any_cells(8..10), any_complex(30..32)).prop_filter_map("it says something", |(cells, complex)| {
            let row = Row { cells, complex, ..Row::default() };
            (!row.is_empty()).then_some(row)
        });
    let rows = proptest::collection::btree_map(0..keys, any_row(), 0..4);
    let range = proptest::option::weighted(0.3, (0..keys, 0..keys, any_deletion()));
    (
        0..partitions,
        proptest::option::weighted(0.05, any_deletion()),
        proptest::option::weighted(0.2, static_row),
        rows,
        range,
    )
        .prop_map(|(number, deletion, static_row, rows, range)| {
            let rows = rows.into_iter().map(|(key, row)| (row_key(key), row)).collect();
            let ranges = range.into_iter().map(|(a, b, deletion)| {
                let Slice { start, end } = rows_between(a.min(b), a.max(b));
                RangeDeletion { start, end, deletion }
            });
            Mutation {
                deletion,
                static_row,
                rows,
                ranges: ranges.collect(),
                ..Mutation::new(TABLE, partition_key(number))
            }
        })
}

/// The same for a table that does not count: without the columns that may hold counters.
pub(crate) fn any_mutation_without_counters(partitions: u8, keys: i32) -> impl Strategy<Value = Mutation> {
    any_mutation(partitions, keys).prop_map(|mut mutation| {
        let keep = |row: &mut Row| row.cells.retain(|(ColumnId(id), _)| !(4..6).contains(id) && !(10..12).contains(id));
        mutation.rows.iter_mut().for_each(|(_, row)| keep(row));
        mutation.static_row.iter_mut().for_each(keep);
        mutation.rows.retain(|(_, row)| !row.is_empty());
        mutation.static_row = mutation.static_row.filter(|row| !row.is_empty());
        mutation
    })
}

/// Slices as a read names them: ascending, not overlapping, perhaps touching.
pub(crate) fn any_slices(keys: i32) -> impl Strategy<Value = Vec<Slice>> {
    let ends = proptest::collection::btree_set((0..keys, any::<bool>()), 2..7);
    let some = ends.prop_map(|ends| {
        let bounds: Vec<_> = ends
            .into_iter()
            .map(|(key, after)| if after { row_key(key).after() } else { row_key(key).before() })
            .collect();
        bounds.windows(2).step_by(2).map(|pair| Slice { start: pair[0].clone(), end: pair[1].clone() }).collect()
    });
    prop_oneof![Just(vec![Slice::all()]), some]
}

/// Either direction.
pub(crate) fn any_direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Forward), Just(Direction::Reverse)]
}
