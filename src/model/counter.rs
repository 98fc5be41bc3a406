//! The content of a counter cell: who added how much.
//!
//! A node adds to a counter in a *shard* of its own, which it opens anew each time it starts: what it had written before
//! may be lost with its disk, and must never be counted from again. A shard is overwritten as a whole, with a greater
//! clock, so that merging is commutative, associative and idempotent: for each shard the greater (clock, value) wins.
//!
//! ```text
//! node 1, run 7: clock 3, value 10          the value of the counter is 10 + 4 + 1: the sum of its shards,
//! node 2, run 1: clock 1, value  4          wrapping around at 64 bits
//! node 2, run 9: clock 1, value  1          a new run of node 2 never collides with the old one
//! ```

use super::name::NodeId;

/// What one run of one node has added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    /// Who added it.
    pub node: NodeId,
    /// In which of its runs; as in [`super::MutationName`].
    pub incarnation: u64,
    /// Rises with every change of the shard: the greater one is the later.
    pub clock: u64,
    /// The sum of what this run has added, negative if it subtracted.
    pub value: i64,
}

impl Shard {
    /// Whose it is: there is one shard of each owner.
    pub fn owner(&self) -> (NodeId, u64) {
        (self.node, self.incarnation)
    }
}

/// The shards of a counter: at least one, strictly ascending by owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Counter {
    shards: Vec<Shard>,
}

impl Counter {
    /// A counter that only one run of one node has added to.
    pub fn new(shard: Shard) -> Counter {
        Counter { shards: vec![shard] }
    }

    /// A counter of these shards, in any order; of several of one owner the later one counts. `None` if there is none.
    pub fn of(shards: Vec<Shard>) -> Option<Counter> {
        (!shards.is_empty()).then(|| Counter { shards: latest(shards) })
    }

    /// Its shards, ascending by owner.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// What it counts to: the sum of its shards. It wraps around at 64 bits, as adding does everywhere else: that is
    /// the only sum that does not depend on the order of the shards.
    pub fn value(&self) -> i64 {
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(shard.value))
    }

    /// Two versions of one counter become one: shard by shard the greater clock wins, at equal clocks the greater value.
    pub fn merge(mut self, other: Counter) -> Counter {
        self.shards.extend(other.shards);
        Counter { shards: latest(self.shards) }
    }
}

/// The latest shard of each owner, ascending.
fn latest(mut shards: Vec<Shard>) -> Vec<Shard> {
    // By owner, the latest of each first: that is the one which stays.
    shards.sort_unstable_by(|a, b| a.owner().cmp(&b.owner()).then_with(|| b.cmp(a)));
    shards.dedup_by_key(|shard| shard.owner());
    shards
}
