//! The rows that are written and read everywhere here: small, in random order of keys, the same in every run.

use bytes::Bytes;
use trefoil::Result;
use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::model::{
    Cell, CellKind, ClusteringKey, ColumnId, KeyspaceId, Liveness, LivenessKind, Mutation, NodeId, Order, PartitionKey,
    Row, Stamp, TableId, Timestamp, Type, VnodeBits,
};
use trefoil::received::namer::Namer;
use uuid::Uuid;

/// Bytes of the one value of a row, and of the payload of an echo.
pub const VALUE_BYTES: usize = 100;

/// Rows of a partition in the tables of the engine, so that a scan of 100 is one partition.
pub const ROWS_PER_PARTITION: u64 = 100;

/// The keyspace of the engine's tables.
pub const KEYSPACE: KeyspaceId = KeyspaceId(1);

/// The value column.
pub const VALUE: ColumnId = ColumnId(3);

/// Microseconds since 1970 of the first row: a date in 2027.
const FIRST_STAMP: i64 = 1_800_000_000_000_000;

/// The table of the engine: `k bigint, c int, v blob, PRIMARY KEY (k, c)`.
pub fn table() -> TableId {
    TableId(Uuid::from_u128(0x7ef0_11be_0000_4000_8000_0000_0000_0001))
}

/// Numbers that look random, by counting: `mixed(0), mixed(1), ...` never repeat.
pub fn mixed(number: u64) -> u64 {
    let mut x = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A value of [`VALUE_BYTES`] random bytes: compression finds nothing in it.
pub fn value(number: u64) -> Bytes {
    let words = (0..VALUE_BYTES.div_ceil(8) as u64).flat_map(|word| mixed(number ^ (word << 56)).to_le_bytes());
    words.take(VALUE_BYTES).collect()
}

/// The partition of row `number`.
pub fn partition(number: u64) -> Result<PartitionKey> {
    let key = Bytes::copy_from_slice(&(number / ROWS_PER_PARTITION).to_be_bytes());
    PartitionKey::encode(&[key], &[Type::BigInt])
}

/// The place of row `number` in its partition.
pub fn clustering(number: u64) -> Result<ClusteringKey> {
    let key = Bytes::copy_from_slice(&((number % ROWS_PER_PARTITION) as u32).to_be_bytes());
    ClusteringKey::encode(&[key], &[(Type::Int, Order::Ascending)])
}

/// The write of row `number`.
pub fn mutation(number: u64) -> Result<Mutation> {
    mutation_of(number, number, value(number))
}

/// A write of row `number`, the later the larger its version.
pub fn mutation_of(number: u64, version: u64, value: Bytes) -> Result<Mutation> {
    let timestamp = Timestamp(FIRST_STAMP + version as i64);
    let cell = Cell { timestamp, kind: CellKind::Live(value) };
    let marker = Some(Liveness { timestamp, kind: LivenessKind::Live });
    let row = Row { marker, cells: vec![(VALUE, cell)], ..Row::default() };
    let mut mutation = Mutation::new(table(), partition(number)?);
    mutation.rows.push((clustering(number)?, row));
    Ok(mutation)
}

/// Gives records their names and stamps, as a node does: those of each vnode count up by themselves.
pub struct Names {
    namer: Namer,
    stamp: i64,
}

impl Names {
    /// Those of a run that begins behind the last stamp that a store has seen.
    pub fn behind(last: Stamp) -> Result<Names> {
        let start = Stamp(last.0.max(FIRST_STAMP) + 1);
        Ok(Names { namer: Namer::new(NodeId(1), start)?, stamp: start.0 })
    }

    /// The record that is logged for a mutation.
    pub fn record(&mut self, mutation: &Mutation) -> CheckedRecord {
        self.stamp += 1;
        let name = self.namer.name(KEYSPACE, VnodeBits::DEFAULT.vnode(mutation.key.token()));
        CheckedRecord::encode(RecordKind::Named(name), KEYSPACE, Stamp(self.stamp), mutation)
    }
}

/// Records of the rows `0..count` in random order.
pub fn records(count: u64) -> Result<Vec<CheckedRecord>> {
    let mut names = Names::behind(Stamp(0))?;
    shuffled(count).into_iter().map(|row| Ok(names.record(&mutation(row)?))).collect()
}

/// The numbers `0..count` in random order.
pub fn shuffled(count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    numbers.sort_by_key(|number| mixed(*number));
    numbers
}
