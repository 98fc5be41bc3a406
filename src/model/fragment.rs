//! Partitions as a stream of fragments: what every reader yields, every merge consumes, and every file and peer carries.
//!
//! ```text
//! forward   Partition(p1)  Row(r1)  Change(b1, Some d)  Row(r2)  Change(b2, None)  Row(r3)  Partition(p2) ...
//!                                   └── d covers everything between b1 and b2 ──┘
//! reverse   Partition(p1)  Row(r3)  Change(b2, Some d)  Row(r2)  Change(b1, None)  Row(r1)  Partition(p2) ...
//! ```
//!
//! Range deletions travel as *changes*: from this position on, in the direction of the stream, this deletion (or none)
//! is in force. A merge therefore keeps one deletion per source and never buffers a range, and a block of a file can
//! start anywhere by naming the deletion that is in force there.
//!
//! Invariants of every stream, held by whoever yields it and checked where bytes are decoded:
//! - partitions ascend by (token, key bytes) in both directions; only what is inside them is reversed;
//! - within a partition the positions of rows and changes strictly ascend (reverse: descend); a [`Bound`] never equals
//!   a [`ClusteringKey`];
//! - two changes in a row differ in their deletion, the first is `Some`, the last of a partition is `None`;
//! - when a stream is clipped (a slice, the end of a page) the deletion in force is opened and closed at the cut.

use std::cmp::Ordering;

use super::cell::Deletion;
use super::key::{Bound, ClusteringKey, PartitionKey};

/// The order of rows inside a partition as they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Direction {
    /// Ascending clustering bytes.
    #[default]
    Forward,
    /// Descending clustering bytes.
    Reverse,
}

impl Direction {
    /// An ascending order, seen in this direction.
    pub fn order(self, ascending: Ordering) -> Ordering {
        match self {
            Direction::Forward => ascending,
            Direction::Reverse => ascending.reverse(),
        }
    }
}

/// One element of a stream. `R` is a row: [`super::Row`], or its encoded form where nobody needs to look inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fragment<R> {
    /// A partition begins (and the one before has ended).
    Partition(PartitionHeader<R>),
    /// A row, already without what its own deletion covers.
    Row(ClusteringKey, R),
    /// From this position on, in the direction of the stream, this range deletion is in force.
    Change(Bound, Option<Deletion>),
}

/// What belongs to a partition as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionHeader<R> {
    /// Which partition.
    pub key: PartitionKey,
    /// Covers everything in it, the static row too.
    pub deletion: Option<Deletion>,
    /// The static row, if it holds anything.
    pub static_row: Option<R>,
}

impl<R> PartitionHeader<R> {
    /// Whether it says more than which partition begins.
    pub fn says_something(&self) -> bool {
        self.deletion.is_some() || self.static_row.is_some()
    }
}
