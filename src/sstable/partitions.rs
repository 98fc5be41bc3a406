//! An eye on partitions that grow too large: told of when they are written to a file, since only then is their size known.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::{PartitionKey, TableId};

/// From which size on partitions are told of, and how many were.
#[derive(Debug)]
pub struct PartitionWatch {
    bytes_warn: AtomicU64,
    rows_warn: AtomicU64,
    large: AtomicU64,
}

/// The partition that is being written.
#[derive(Debug, Default)]
pub(super) struct Size {
    pub(super) bytes: u64,
    pub(super) rows: u64,
}

impl Default for PartitionWatch {
    fn default() -> PartitionWatch {
        let nothing = || AtomicU64::new(u64::MAX);
        PartitionWatch { bytes_warn: nothing(), rows_warn: nothing(), large: AtomicU64::new(0) }
    }
}

impl PartitionWatch {
    /// From now on partitions of more bytes (before compression) or more rows are told of.
    pub fn watch(&self, bytes_warn: u64, rows_warn: u64) {
        self.bytes_warn.store(bytes_warn, Ordering::Relaxed);
        self.rows_warn.store(rows_warn, Ordering::Relaxed);
    }

    /// How many were told of.
    pub fn large(&self) -> u64 {
        self.large.load(Ordering::Relaxed)
    }

    /// A partition was written whole.
    pub(super) fn written(&self, table: TableId, key: &PartitionKey, size: &Size) {
        let Size { bytes, rows } = *size;
        if bytes > self.bytes_warn.load(Ordering::Relaxed) || rows > self.rows_warn.load(Ordering::Relaxed) {
            self.large.fetch_add(1, Ordering::Relaxed);
            let partition = key.bytes().escape_ascii();
            tracing::warn!(%table, %partition, bytes, rows, "a large partition was written");
        }
    }
}
