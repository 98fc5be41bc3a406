//! What a replica says of one slice: the names it has, and up to which run of each origin nothing is left to be said.
//!
//! ```text
//!  floors   n1 below 1702      every earlier run of n1: each of its names is in every replica, or void for ever
//!  set      n1 1702: 1──412   n2 1690: 1──87 90──95
//! ```
//!
//! A node that starts often would list its runs for ever. Once all mutations of a run lie below what is reconciled, the
//! replicas forget it; but they do so one after the other, and a set without the run must not look like one that misses
//! it. So what is forgotten is said, by one number for each origin: the *floor*.
//!
//! **Invariant:** a set lists no run below its own floors, so two replicas that have the same have equal values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::ReceivedSet;
use crate::Result;
use crate::codec::varint::{Reader, put_varint, put_zigzag};
use crate::model::{MutationName, NodeId, Stamp};

/// Bytes of one floor.
const FLOOR_BYTES: usize = 12;

/// Per origin, the incarnation before which every run is settled: each of its names is in all replicas or void.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Floors(BTreeMap<NodeId, u64>);

impl Floors {
    /// The floor of an origin; 0 if none of its runs is settled.
    pub fn of(&self, origin: NodeId) -> u64 {
        self.0.get(&origin).copied().unwrap_or(0)
    }

    /// Raises the floor of an origin. A lower one than before changes nothing.
    pub fn raise(&mut self, origin: NodeId, below: u64) {
        if below > self.of(origin) {
            self.0.insert(origin, below);
        }
    }

    /// Raises every floor to that of `other`.
    pub fn join(&mut self, other: &Floors) {
        other.0.iter().for_each(|(origin, below)| self.raise(*origin, *below));
    }

    /// Whether no floor of `other` is higher.
    pub fn covers(&self, other: &Floors) -> bool {
        other.0.iter().all(|(origin, below)| self.of(*origin) >= *below)
    }

    /// Lets a set go of the runs that are settled.
    pub fn settle(&self, set: &mut ReceivedSet) {
        self.0.iter().for_each(|(origin, below)| {
            set.forget(*origin, *below);
        });
    }

    /// Whether no run of anybody is settled.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the encoding (docs/formats.md, "told").
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        for (origin, below) in &self.0 {
            out.extend_from_slice(&origin.0.to_le_bytes());
            out.extend_from_slice(&below.to_le_bytes());
        }
    }

    /// Reads what [`Floors::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<Floors> {
        let mut floors = BTreeMap::new();
        let mut previous = None;
        for _ in 0..reader.count(FLOOR_BYTES)? {
            let (origin, below) = (NodeId(reader.u32()?), reader.u64()?);
            if previous >= Some(origin) || below == 0 {
                return Err(reader.corrupt("floors do not ascend by origin, or one of them is 0").into());
            }
            previous = Some(origin);
            floors.insert(origin, below);
        }
        Ok(Floors(floors))
    }
}

/// What a replica has of one slice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    floors: Floors,
    set: ReceivedSet,
}

impl Told {
    /// This set, without the runs that are settled.
    pub fn new(mut set: ReceivedSet, floors: Floors) -> Told {
        floors.settle(&mut set);
        Told { floors, set }
    }

    /// The names that are listed.
    pub fn set(&self) -> &ReceivedSet {
        &self.set
    }

    /// What is settled and therefore not listed.
    pub fn floors(&self) -> &Floors {
        &self.floors
    }

    /// Whether the name is listed. A settled one is not, whether it was received once or is void.
    pub fn lists(&self, name: MutationName) -> bool {
        self.set.contains(name)
    }

    /// Whether everything that `other` has is here: listed, or settled.
    pub fn covers(&self, other: &Told) -> bool {
        self.floors.covers(&other.floors) && self.set.covers(&other.above(&self.floors))
    }

    /// What `other` has and is neither listed nor settled here.
    pub fn lacks(&self, other: &Told) -> ReceivedSet {
        other.above(&self.floors).difference(&self.set)
    }

    /// Adds all that `other` has.
    pub fn join(&mut self, other: &Told) {
        self.floors.join(&other.floors);
        self.set.union(&other.set);
        *self = Told::new(std::mem::take(&mut self.set), std::mem::take(&mut self.floors));
    }

    /// The names that are listed and not settled by these floors.
    pub fn above(&self, floors: &Floors) -> Cow<'_, ReceivedSet> {
        if self.floors.covers(floors) {
            return Cow::Borrowed(&self.set);
        }
        let mut set = self.set.clone();
        floors.settle(&mut set);
        Cow::Owned(set)
    }

    /// Appends the encoding (docs/formats.md, "told").
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.floors.encode(out);
        self.set.encode(out);
    }

    /// Reads what [`Told::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<Told> {
        let (floors, set) = (Floors::decode(reader)?, ReceivedSet::decode(reader)?);
        if set.runs().any(|(origin, incarnation, _)| incarnation < floors.of(origin)) {
            return Err(reader.corrupt("a run is listed that is settled").into());
        }
        Ok(Told { floors, set })
    }
}

/// What is known to be in all replicas of a slice, as the manifest keeps it beside the set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reconciled {
    /// Every mutation stamped here or before is in all replicas, or void.
    pub through: Stamp,
    /// The runs that are wholly below it, and that the set need not list any more.
    pub floors: Floors,
}

impl Reconciled {
    /// Appends the encoding (docs/formats.md, "told").
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_zigzag(out, self.through.0);
        self.floors.encode(out);
    }

    /// Reads what [`Reconciled::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<Reconciled> {
        Ok(Reconciled { through: Stamp(reader.zigzag()?), floors: Floors::decode(reader)? })
    }
}
