//! One replica's durable half, as small as it can be: a log, one file of data, a manifest, the ceiling of the clock.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt as _;
use rand::rngs::SmallRng;
use trefoil::model::{MutationName, NodeId, Stamp};
use trefoil::received::ReceivedSet;
use trefoil::received::told::Reconciled;

/// A mutation is what it does to one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mutation {
    /// Its place among all that were ever named.
    pub id: usize,
    pub name: MutationName,
    pub stamp: Stamp,
    pub key: u8,
    pub ts: i64,
    pub delete: bool,
}

/// What a key is: the mutation that wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub ts: i64,
    pub delete: bool,
    pub id: usize,
}

impl From<Mutation> for Version {
    fn from(mutation: Mutation) -> Version {
        Version { ts: mutation.ts, delete: mutation.delete, id: mutation.id }
    }
}

/// Keys, and beside them what only the oracle may look at: which mutations the data comes from.
#[derive(Debug, Clone, Default)]
pub struct Data {
    pub keys: BTreeMap<u8, Version>,
    pub history: BTreeMap<u8, BTreeSet<usize>>,
}

impl Data {
    pub fn insert(&mut self, key: u8, version: Option<Version>, history: &BTreeSet<usize>) {
        if let Some(version) = version {
            let there = self.keys.entry(key).or_insert(version);
            *there = version.max(*there);
        }
        self.history.entry(key).or_default().extend(history);
    }

    pub fn merge(&mut self, other: &Data) {
        other.history.iter().for_each(|(key, history)| self.insert(*key, other.keys.get(key).copied(), history));
    }

    pub fn has(&self, mutation: &Mutation) -> bool {
        self.history.get(&mutation.key).is_some_and(|history| history.contains(&mutation.id))
    }

    /// What a reader sees: deletions look like nothing.
    pub fn visible(&self) -> BTreeMap<u8, usize> {
        self.keys.iter().filter(|(_, version)| !version.delete).map(|(key, version)| (*key, version.id)).collect()
    }
}

/// What the log holds.
#[derive(Debug, Clone)]
pub enum Record {
    Named(Mutation),
    /// The merged state of a key, from another replica.
    Nameless(u8, Option<Version>, BTreeSet<usize>),
}

impl Record {
    pub fn apply(&self, data: &mut Data) {
        match self {
            Record::Named(mutation) => {
                data.insert(mutation.key, Some((*mutation).into()), &BTreeSet::from([mutation.id]));
            }
            Record::Nameless(key, version, history) => data.insert(*key, *version, history),
        }
    }

    pub fn touches(&self) -> u8 {
        match self {
            Record::Named(mutation) => mutation.key,
            Record::Nameless(key, ..) => *key,
        }
    }

    /// The lowest timestamp that applying it could bring.
    pub fn oldest(&self) -> i64 {
        match self {
            Record::Named(mutation) => mutation.ts,
            Record::Nameless(_, version, _) => version.map_or(i64::MAX, |version| version.ts),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Manifest {
    pub set: ReceivedSet,
    pub reconciled: Reconciled,
    pub purged: Stamp,
    /// The log is replayed from here.
    pub replay_from: usize,
    pub data: Data,
    /// Something was lost, and all is to be had from the others.
    pub withdrawn: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Disk {
    pub log: Vec<Record>,
    /// What a loss of power leaves of the log, at least.
    pub synced: usize,
    pub manifest: Manifest,
    pub ceiling: Stamp,
    /// The highest clock heard of each peer.
    pub heard: BTreeMap<NodeId, Stamp>,
}

impl Disk {
    /// What was not synced is gone, or some of it is.
    pub fn lose_power(&mut self, rng: &mut SmallRng) {
        let kept = rng.random_range(self.synced..=self.log.len());
        self.log.truncate(kept);
    }

    pub fn sync(&mut self, up_to: usize) {
        self.synced = self.synced.max(up_to);
    }

    /// Whether a loss of power now would leave the mutation.
    pub fn holds(&self, mutation: &Mutation) -> bool {
        let logged = |record: &Record| match record {
            Record::Named(named) => named.id == mutation.id,
            Record::Nameless(_, _, history) => history.contains(&mutation.id),
        };
        self.manifest.data.has(mutation) || self.log[self.manifest.replay_from..self.synced].iter().any(logged)
    }

    /// Whether the name is in the set that a loss of power now would leave.
    pub fn lists(&self, mutation: &Mutation) -> bool {
        let logged = |record: &Record| matches!(record, Record::Named(named) if named.id == mutation.id);
        self.manifest.set.contains(mutation.name) || self.log[self.manifest.replay_from..self.synced].iter().any(logged)
    }
}
