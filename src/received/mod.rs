//! Which mutation names a replica has, per (keyspace, vnode): intervals of sequences by origin and incarnation.
//!
//! **Invariant:** a name enters a set only once its record is fsynced *and* inserted; only that is told to peers.

use std::collections::BTreeMap;

use crate::Result;
use crate::codec::varint::Reader;
use crate::model::{KeyspaceId, MutationName, NodeId, Vnode};

/// The names one replica has of one (keyspace, vnode).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReceivedSet {
    /// Per run of an origin: ascending, not touching intervals of sequences.
    runs: BTreeMap<(NodeId, u64), Vec<Interval>>,
}

/// Sequences `first..=last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// At least 1.
    pub first: u64,
    /// At least `first`.
    pub last: u64,
}

impl ReceivedSet {
    /// Adds a name; whether it is new.
    pub fn add(&mut self, _name: MutationName) -> bool {
        todo!()
    }

    /// Whether the set has the name.
    pub fn contains(&self, _name: MutationName) -> bool {
        todo!()
    }

    /// Adds all names of `other`.
    pub fn union(&mut self, _other: &ReceivedSet) {
        todo!()
    }

    /// What `self` has and `other` has not.
    pub fn difference(&self, _other: &ReceivedSet) -> ReceivedSet {
        todo!()
    }

    /// Whether it holds no name.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The intervals by origin and incarnation, ascending.
    pub fn runs(&self) -> impl Iterator<Item = (NodeId, u64, &[Interval])> {
        self.runs.iter().map(|((origin, incarnation), intervals)| (*origin, *incarnation, intervals.as_slice()))
    }

    /// Appends the encoding (docs/formats.md, "received set").
    pub fn encode(&self, _out: &mut Vec<u8>) {
        todo!()
    }

    /// Reads what [`ReceivedSet::encode`] wrote.
    pub fn decode(_reader: &mut Reader) -> Result<ReceivedSet> {
        todo!()
    }
}

/// All sets of a node.
pub type ReceivedSets = BTreeMap<(KeyspaceId, Vnode), ReceivedSet>;
