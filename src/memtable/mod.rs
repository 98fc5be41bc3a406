//! What was written and is not yet in a file: one memtable per table takes writes, older ones wait to be flushed.
//!
//! Partitions are sharded by the top bits of their token, so that the shards one after the other are the ring's order.
//! Rows are copied into chunks that are dropped whole after the flush; a write never holds the message it came in.

use crate::Result;
use crate::codec::EncodedRow;
use crate::codec::mutation::MutationParts;
use crate::model::{Direction, PartitionKey, ScanRange, Slice, Stream};

/// One table's writes since some position of the log. Many readers, one writer at a time per shard.
pub struct Memtable {}

impl Default for Memtable {
    fn default() -> Self {
        Memtable::new()
    }
}

impl Memtable {
    /// An empty one.
    pub fn new() -> Memtable {
        Memtable {}
    }

    /// Applies a mutation, by the rule of `model::reconcile`; visible to readers as a whole.
    pub fn insert(&self, _mutation: &MutationParts) -> Result<()> {
        todo!()
    }

    /// Bytes held, overhead included.
    pub fn bytes(&self) -> u64 {
        todo!()
    }

    /// Whether nothing was ever inserted.
    pub fn is_empty(&self) -> bool {
        todo!()
    }

    /// The partition's header, and its rows and range changes within `slices`, in `direction`; nothing if it holds nothing
    /// of the partition. Rows are taken in batches: a mutation that arrives meanwhile may be seen in part by a long read,
    /// never in part within one row.
    pub fn partition(
        self: &std::sync::Arc<Self>,
        _key: &PartitionKey,
        _slices: &[Slice],
        _direction: Direction,
    ) -> Result<Option<Box<dyn Stream<EncodedRow> + Send>>> {
        todo!()
    }

    /// Every partition of the range, in order, each within `slices` in `direction`. Works in batches as
    /// [`Memtable::partition`] does.
    pub fn scan(
        self: &std::sync::Arc<Self>,
        _range: ScanRange,
        _slices: &[Slice],
        _direction: Direction,
    ) -> Box<dyn Stream<EncodedRow> + Send> {
        todo!()
    }
}
