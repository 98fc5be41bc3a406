//! What was written and is not yet in a file: one memtable per table takes writes, older ones wait to be flushed.
//!
//! ```text
//! shard 0 .. 63   by the top bits of the token, so that the shards one after the other are the ring's order
//!   lock ─► partitions by hash ─► deletion, static row, range deletions (rare) · rows, sorted
//!           arena: chunks that hold keys and rows, dropped whole after the flush
//! ```
//!
//! A row is copied into the arena behind its key, and eight bytes say where; a write never holds the message it came in. What a deletion covers is dropped when
//! it arrives (see `partition.rs`), so that a memtable never yields a row that an enclosing deletion of its own covers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::Result;
use crate::codec::EncodedRow;
use crate::codec::mutation::view::MutationView;
use crate::model::{Deletion, Direction, Glance, PartitionKey, RangeDeletion, ScanRange, Slice, Stream, Token};
use arena::Arena;
use iter::{PartitionStream, ScanStream};
use partition::Partition;
use partitions::Partitions;

mod arena;
mod iter;
mod partition;
mod partitions;
mod rows;
#[cfg(test)]
mod tests;

/// The number of shards: few enough to walk, many enough that readers rarely meet the writer, and that a table of
/// partitions that grows, or is sorted, holds up the others of its shard for well below a millisecond.
const SHARDS: usize = 64;

/// One table's writes since some position of the log. Many readers, one writer at a time per shard.
#[derive(Debug)]
pub struct Memtable {
    shards: [RwLock<Shard>; SHARDS],
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    partitions: Partitions,
    arena: Arena,
}

impl Default for Memtable {
    fn default() -> Self {
        Memtable::new()
    }
}

impl Memtable {
    /// An empty one.
    pub fn new() -> Memtable {
        Memtable { shards: std::array::from_fn(|_| RwLock::default()), bytes: AtomicU64::new(0) }
    }

    /// Applies a mutation of a partition with this token, by the rule of `model::reconcile`; visible to readers as a whole.
    /// One that changes nothing leaves no trace (B106).
    pub fn insert(&self, token: Token, mutation: &MutationView<'_>) -> Result<()> {
        let ranges = mutation.ranges()?;
        if mutation.deletion.is_none() && mutation.static_row.is_none() && mutation.rows.is_empty() && ranges.is_empty()
        {
            return Ok(());
        }
        let mut shard = self.shards[shard_of(token)].write();
        let before = shard.arena.held();
        let outcome = shard.apply(token, mutation, &ranges);
        self.bytes.fetch_add(shard.arena.held() - before, Ordering::Relaxed);
        outcome
    }

    /// Bytes held, overhead included.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether nothing was ever inserted.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// How many partitions it holds something of.
    pub fn partitions(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().partitions.len() as u64).sum()
    }

    /// The partition's header, and its rows and range changes within `slices` (none: only the header), in `direction`;
    /// nothing if it holds nothing of the partition. Rows are taken in batches: a mutation that arrives meanwhile may be
    /// seen in part by a read that takes more than one, never in part within one row.
    pub fn partition(
        self: &Arc<Self>,
        key: &PartitionKey,
        slices: &[Slice],
        direction: Direction,
    ) -> Result<Option<Box<dyn Stream<EncodedRow> + Send>>> {
        let stream = PartitionStream::open(self.clone(), key, slices, direction);
        Ok(stream.map(|stream| Box::new(stream) as Box<dyn Stream<EncodedRow> + Send>))
    }

    /// The deletion of the partition as a whole.
    pub fn deletion(&self, key: &PartitionKey) -> Option<Deletion> {
        self.shards[shard_of(key.token())].read().partition(key)?.deletion()
    }

    /// What it holds of the partition within the slice, if that is one row at most: the shortest way to it.
    pub fn glance(&self, key: &PartitionKey, slice: &Slice) -> Glance<EncodedRow> {
        let shard = self.shards[shard_of(key.token())].read();
        shard.partition(key).map_or(Glance::Absent, |partition| partition.glance(slice, &shard.arena))
    }

    /// Every partition of the range, in order, each within `slices` in `direction`. Works in batches as
    /// [`Memtable::partition`] does.
    pub fn scan(
        self: &Arc<Self>,
        range: ScanRange,
        slices: &[Slice],
        direction: Direction,
    ) -> Box<dyn Stream<EncodedRow> + Send> {
        Box::new(ScanStream::new(self.clone(), range, slices, direction))
    }
}

impl Shard {
    fn apply(&mut self, token: Token, mutation: &MutationView<'_>, ranges: &[RangeDeletion]) -> Result<()> {
        let Shard { partitions, arena } = self;
        if let Some(partition) = partitions.get_mut(token, mutation.key, arena) {
            return partition.apply(mutation, ranges, arena);
        }
        let mut partition = Partition::default();
        partition.apply(mutation, ranges, arena)?;
        partitions.insert(token, mutation.key, partition, arena);
        Ok(())
    }

    fn partition(&self, key: &PartitionKey) -> Option<&Partition> {
        self.partitions.get(key.token(), key.bytes(), &self.arena)
    }
}

/// The shard of a token: its top bits, in the order of the ring.
fn shard_of(token: Token) -> usize {
    ((token.0 ^ i64::MIN) as u64 >> (u64::BITS - SHARDS.ilog2())) as usize
}

/// The first token of a shard; `None` behind the last one.
fn first_token(shard: usize) -> Option<Token> {
    let top = (shard as u64) << (u64::BITS - SHARDS.ilog2());
    (shard < SHARDS).then_some(Token(top as i64 ^ i64::MIN))
}
