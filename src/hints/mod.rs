//! Hints: writes kept for a replica that missed them, in a log of its own for each such node.
//!
//! ```text
//!   append ─► <target>/00000000000000000007.hints ─► ...0008.hints      (log.rs: segments, bounds, what is acknowledged)
//!                        ▲ acknowledged             ▲ next
//!                        └── window: sent, waiting ─┘                   (delivery.rs: which next, how fast, when to give up)
//!                                       └─► route.rs: to the present owner of its vnode
//! ```
//!
//! A hint is the record as it was logged, unchanged: the same name, the same stamp. Delivering one twice does no harm, so
//! what is acknowledged is saved now and then and not each time.
//!
//! **Invariants:** a file goes only when every hint in it was acknowledged, is too old, or was dropped by an operator (B068) ·
//! what cannot be read is never delivered, and never a reason not to start: its segment is set aside and counted · memory is
//! bounded by the window (B119) · the window of time in which hints are written begins with the oldest one that is not
//! delivered, as it stands on the disk (B067).

pub mod delivery;
mod log;
mod progress;
pub mod route;
mod segment;
#[cfg(test)]
mod tests;

use bytes::Bytes;

use crate::model::{KeyspaceId, Vnode};

pub use log::{Appended, Bound, HintLog, Loaded, LogOptions, targets};

/// A place in the log of hints for one node: everything before it was appended earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// The number of the segment, rising; 0 is before all.
    pub segment: u64,
    /// Bytes from the beginning of the segment.
    pub offset: u64,
}

/// A write that a node has missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// When the hint was written, by the wall clock of the node that keeps it, in microseconds since 1970.
    pub written_at_us: i64,
    /// The keyspace of the record.
    pub keyspace: KeyspaceId,
    /// The vnode of its partition.
    pub vnode: Vnode,
    /// The record, as it was sent to the replicas.
    pub record: Bytes,
}

/// A hint in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Where it ends: what is acknowledged up to here includes it.
    pub end: Place,
    /// The hint.
    pub hint: Hint,
}

impl Place {
    /// What binds the frame that begins here to its place.
    fn salt(self) -> u64 {
        (self.segment << 32) ^ self.offset
    }
}
