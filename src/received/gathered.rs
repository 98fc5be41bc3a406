//! Names as they come, one record after the other.
//!
//! A replica meets every name three times: in the segment it logs, among what waits for an fsync, and in what it has. The
//! slices that they belong to come in no order, so they are found by hash; whoever passes them on gets them in order.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::ReceivedSet;
use crate::model::{KeyspaceId, MutationName, Vnode};

/// Sets that grow name by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gathered {
    /// None is empty.
    sets: HashMap<(KeyspaceId, Vnode), ReceivedSet, BuildHasherDefault<SliceHasher>>,
}

impl Gathered {
    /// Adds a name; whether it is new.
    pub fn add(&mut self, slice: (KeyspaceId, Vnode), name: MutationName) -> bool {
        self.sets.entry(slice).or_default().add(name)
    }

    /// Adds all names of a set that is not empty.
    pub fn add_all(&mut self, slice: (KeyspaceId, Vnode), names: ReceivedSet) {
        self.sets.entry(slice).and_modify(|ours| ours.union(&names)).or_insert(names);
    }

    /// Lets a slice's names go.
    pub fn remove(&mut self, slice: (KeyspaceId, Vnode)) {
        self.sets.remove(&slice);
    }

    /// Takes everything out, in no order.
    pub fn drain(&mut self) -> impl Iterator<Item = ((KeyspaceId, Vnode), ReceivedSet)> {
        self.sets.drain()
    }

    /// The slices that have names, in no order.
    pub fn slices(&self) -> impl Iterator<Item = &(KeyspaceId, Vnode)> {
        self.sets.keys()
    }

    /// Whether one of `names` is among those of the slice.
    pub fn meets(&self, slice: (KeyspaceId, Vnode), names: &ReceivedSet) -> bool {
        self.sets.get(&slice).is_some_and(|ours| names.meets(ours))
    }

    /// The sets by ascending keyspace and vnode.
    pub fn in_order(&self) -> Vec<(&(KeyspaceId, Vnode), &ReceivedSet)> {
        let mut sets: Vec<_> = self.sets.iter().collect();
        sets.sort_unstable_by_key(|(slice, _)| **slice);
        sets
    }
}

/// A multiplication for each number: they are the cluster's own, so nobody can choose them to collide.
#[derive(Debug, Clone, Default)]
struct SliceHasher(u64);

impl Hasher for SliceHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        // The golden ratio, as Knuth would have it.
        self.0 = (self.0.rotate_left(32) ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        // Tables look at the lowest bits and at the highest.
        self.0 ^ self.0 >> 32
    }
}
