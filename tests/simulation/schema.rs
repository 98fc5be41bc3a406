//! What the simulated cluster stores: few partitions of few rows, so that writers, deleters and readers meet.

use std::collections::BTreeMap;

use bytes::Bytes;
use trefoil::codec::EncodedRow;
use trefoil::model::{
    Bound, Cell, CellKind, ClusteringKey, ColumnId, CompactionOptions, Deletion, Durability, Fragment, Keyspace,
    KeyspaceId, Liveness, LivenessKind, Mutation, MutationBuilder, Order, PartitionKey, Row, Slice, Stamp, TableId,
    Timestamp, Type, VnodeBits,
};
use trefoil::store::TableSpec;
use uuid::Uuid;

use super::history::{Change, Kind};

pub const PARTITIONS: u8 = 12;
pub const ROWS: u8 = 6;
pub const VALUE: ColumnId = ColumnId(1);
/// How far behind its stamp a write's timestamp may lie.
pub const LATENESS_S: u32 = 3;
pub const VNODE_BITS: u8 = 2;

/// A table, by its place in this list.
pub struct Table {
    pub id: TableId,
    pub keyspace: Keyspace,
    pub durability: Durability,
}

pub struct Schema {
    pub tables: Vec<Table>,
    partitions: Vec<PartitionKey>,
    rows: Vec<ClusteringKey>,
    pub bits: VnodeBits,
}

impl Schema {
    /// Two tables that share a keyspace of full copies, one of each durability, and one with two copies.
    pub fn new(region: &str) -> Schema {
        let whole = Keyspace { id: KeyspaceId(1), name: "whole".to_owned(), replication: BTreeMap::new() };
        let replication = BTreeMap::from([(region.to_owned(), 2)]);
        let two = Keyspace { id: KeyspaceId(2), name: "two".to_owned(), replication };
        let table = |number: u128, keyspace: &Keyspace, durability| Table {
            id: TableId(Uuid::from_u128(number)),
            keyspace: keyspace.clone(),
            durability,
        };
        Schema {
            tables: vec![
                table(1, &whole, Durability::Commit),
                table(2, &whole, Durability::Periodic),
                table(3, &two, Durability::Commit),
            ],
            partitions: (0..PARTITIONS).map(|number| PartitionKey::from_bytes(vec![number].into())).collect(),
            rows: (0..ROWS).map(row_key).collect(),
            bits: VnodeBits::new(VNODE_BITS).unwrap(),
        }
    }

    pub fn specs(&self) -> Vec<TableSpec> {
        let spec = |table: &Table| TableSpec {
            id: table.id,
            keyspace: table.keyspace.id,
            durability: table.durability,
            lateness_s: LATENESS_S,
            compaction: CompactionOptions::default(),
            clustering: vec![(Type::Blob, Order::Ascending)],
            columns: vec![(VALUE, Type::Blob)],
            content: Default::default(),
            live: None,
            label: Default::default(),
        };
        self.tables.iter().map(spec).collect()
    }

    pub fn table_of(&self, id: TableId) -> Option<usize> {
        self.tables.iter().position(|table| table.id == id)
    }

    pub fn partition(&self, number: u8) -> &PartitionKey {
        &self.partitions[usize::from(number)]
    }

    pub fn row(&self, number: u8) -> &ClusteringKey {
        &self.rows[usize::from(number)]
    }

    pub fn slice(&self, row: u8) -> Slice {
        Slice::one(self.row(row))
    }

    /// A change as a node writes it that stamps it with `stamp`.
    pub fn mutation(&self, change: &Change, id: u64, stamp: Stamp) -> Mutation {
        let (timestamp, ldt_s) = (change.timestamp(stamp), stamp.seconds());
        let deletion = Deletion { timestamp: Timestamp(timestamp), ldt_s };
        let mut builder = MutationBuilder::new(self.tables[change.table].id, self.partition(change.partition).clone());
        match change.kind {
            Kind::Put { .. } | Kind::Update { .. } => {
                let row = put(change, id, stamp);
                builder.add_row(self.row(change.rows.start).clone(), row);
            }
            Kind::DeleteRow => {
                let row = Row { deletion: Some(deletion), ..Row::default() };
                builder.add_row(self.row(change.rows.start).clone(), row);
            }
            Kind::DeleteRange => {
                let (start, end) = self.bounds(change);
                builder.delete_range(start, end, deletion);
            }
            Kind::DeletePartition => builder.delete_partition(deletion),
        }
        builder.finish()
    }

    /// The number of a row.
    pub fn row_number(&self, key: &ClusteringKey) -> Option<u8> {
        (0..ROWS).find(|number| self.row(*number) == key)
    }

    /// Partition, row and write of every value that can be seen.
    pub fn shown(&self, fragments: &[Fragment<EncodedRow>], now_s: i64) -> Vec<(u8, u8, u64)> {
        let (mut shown, mut partition) = (Vec::new(), 0);
        for fragment in fragments {
            match fragment {
                Fragment::Partition(header) => partition = header.key.bytes()[0],
                Fragment::Row(key, row) => {
                    let write = row.decode().ok().and_then(|row| written_by(&row, now_s));
                    shown.extend(self.row_number(key).zip(write).map(|(row, write)| (partition, row, write)));
                }
                Fragment::Change(..) => {}
            }
        }
        shown
    }

    fn bounds(&self, change: &Change) -> (Bound, Bound) {
        (self.row(change.rows.start).before(), self.row(change.rows.end - 1).after())
    }
}

fn row_key(number: u8) -> ClusteringKey {
    ClusteringKey::encode(&[Bytes::from(vec![number])], &[(Type::Blob, Order::Ascending)]).unwrap()
}

/// The row that a write of a value leaves; its value says which write it was.
fn put(change: &Change, id: u64, stamp: Stamp) -> Row {
    let timestamp = Timestamp(change.timestamp(stamp));
    // Of different lengths, so that pages and blocks end anywhere.
    let mut value = id.to_be_bytes().to_vec();
    value.resize(8 + (id % 37) as usize, 7);
    let value = Bytes::from(value);
    let (cell, marker) = match change.expiry_s(stamp) {
        Some((ttl_s, expiry_s)) => {
            (CellKind::Expiring { value, ttl_s, expiry_s }, LivenessKind::Expiring { ttl_s, expiry_s })
        }
        None => (CellKind::Live(value), LivenessKind::Live),
    };
    let is_insert = matches!(change.kind, Kind::Put { .. });
    Row {
        marker: is_insert.then_some(Liveness { timestamp, kind: marker }),
        cells: vec![(VALUE, Cell { timestamp, kind: cell })],
        ..Row::default()
    }
}

/// The write that a visible row is of.
pub fn written_by(row: &Row, now_s: i64) -> Option<u64> {
    let value = row.cell(VALUE)?.value_at(now_s)?;
    value.first_chunk::<8>().map(|id| u64::from_be_bytes(*id))
}
