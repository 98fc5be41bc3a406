//! The smallest things that are written: cells, row markers and deletions.

use bytes::Bytes;

use super::counter::Counter;
use super::time::Timestamp;

/// One version of one column of one row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cell {
    /// Decides between versions.
    pub timestamp: Timestamp,
    /// A value, or the evidence that there is none.
    pub kind: CellKind,
}

/// What a [`Cell`] says.
///
/// Expired data becomes [`CellKind::Expired`], not a tombstone, so that the outcome of a merge cannot depend on
/// whether a replica has compacted yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CellKind {
    /// A value (CQL wire bytes, may be empty) that stays until it is overwritten or deleted.
    Live(Bytes),
    /// A value that is dead from `expiry_s` on.
    Expiring {
        /// CQL wire bytes.
        value: Bytes,
        /// The time to live that was asked for, in seconds, 1..=[`super::time::TTL_MAX_S`].
        ttl_s: u32,
        /// Seconds since 1970: live iff `now_s < expiry_s`.
        expiry_s: i64,
    },
    /// What is left of an expiring value once its expiry has passed: the value bytes are gone.
    Expired {
        /// As in `Expiring`.
        ttl_s: u32,
        /// As in `Expiring`.
        expiry_s: i64,
    },
    /// The column was deleted, or null was written.
    Tombstone {
        /// Local deletion time: seconds since 1970 of the stamp of the mutation that deleted.
        ldt_s: i64,
    },
    /// What has been added to a counter. The timestamp is the greatest of all who added; it decides nothing: any deletion
    /// and any tombstone win over a counter, whatever their timestamp.
    Counter(Counter),
}

impl Cell {
    /// The stored value at `now_s`, if there is one then. A counter stores none: see [`Cell::bytes_at`].
    pub fn value_at(&self, now_s: i64) -> Option<&Bytes> {
        match &self.kind {
            CellKind::Live(value) => Some(value),
            CellKind::Expiring { value, expiry_s, .. } if now_s < *expiry_s => Some(value),
            _ => None,
        }
    }

    /// The value at `now_s` as CQL wire bytes, if there is one then; of a counter its sum, eight bytes.
    pub fn bytes_at(&self, now_s: i64) -> Option<Bytes> {
        match &self.kind {
            CellKind::Counter(counter) => Some(Bytes::copy_from_slice(&counter.value().to_be_bytes())),
            _ => self.value_at(now_s).cloned(),
        }
    }

    /// Whether there is a value at `now_s`.
    pub fn is_live_at(&self, now_s: i64) -> bool {
        matches!(self.kind, CellKind::Counter(_)) || self.value_at(now_s).is_some()
    }
}

/// The row marker: what an INSERT leaves so that the row exists without any cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Liveness {
    /// Decides between versions.
    pub timestamp: Timestamp,
    /// Live, expiring or expired; a marker is only ever deleted by a [`Deletion`].
    pub kind: LivenessKind,
}

/// What a [`Liveness`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LivenessKind {
    /// The row exists until it is deleted.
    Live,
    /// The row exists, as far as the marker goes, while `now_s < expiry_s`.
    Expiring {
        /// As in [`CellKind::Expiring`].
        ttl_s: u32,
        /// As in [`CellKind::Expiring`].
        expiry_s: i64,
    },
    /// The expiry has passed.
    Expired {
        /// As in [`CellKind::Expiring`].
        ttl_s: u32,
        /// As in [`CellKind::Expiring`].
        expiry_s: i64,
    },
}

impl Liveness {
    /// Whether the marker keeps its row alive at `now_s`.
    pub fn is_live_at(&self, now_s: i64) -> bool {
        match self.kind {
            LivenessKind::Live => true,
            LivenessKind::Expiring { expiry_s, .. } => now_s < expiry_s,
            LivenessKind::Expired { .. } => false,
        }
    }
}

/// The deletion of a partition, a range of rows, a row or a complex column: it covers everything inside with
/// `timestamp <= self.timestamp`, and counters at any timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deletion {
    /// Everything inside that is not strictly later is deleted.
    pub timestamp: Timestamp,
    /// Local deletion time, seconds since 1970; breaks ties between deletions.
    pub ldt_s: i64,
}

impl Deletion {
    /// Whether something written at `timestamp` is deleted by this: at equal timestamps the deletion wins.
    pub fn covers(&self, timestamp: Timestamp) -> bool {
        timestamp <= self.timestamp
    }

    /// Whether this cell is deleted by this: a counter always is.
    pub fn covers_cell(&self, cell: &Cell) -> bool {
        matches!(cell.kind, CellKind::Counter(_)) || self.covers(cell.timestamp)
    }
}
