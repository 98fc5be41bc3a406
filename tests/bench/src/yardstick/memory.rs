//! A plain memtable: ordered maps of owned bytes behind a lock for each, the first bytes of the key choosing the map.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use trefoil::codec::mutation::MutationParts;

const SHARDS: usize = 16;

type Shard = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// Rows by token, partition and clustering key in one string of bytes.
#[derive(Default)]
pub struct PlainMemtable {
    shards: [RwLock<Shard>; SHARDS],
}

impl PlainMemtable {
    /// Copies the rows of a mutation in; whoever comes last is right.
    pub fn insert(&self, mutation: &MutationParts) {
        for (key, row) in &mutation.rows {
            let key = whole_key(mutation.key.token().0, mutation.key.bytes(), key.bytes());
            let mut shard = self.shards[shard_of(&key)].write().unwrap_or_else(PoisonError::into_inner);
            shard.insert(key.into(), row.bytes()[..].into());
        }
    }

    /// A copy of a row.
    pub fn get(&self, key: &[u8]) -> Option<Bytes> {
        let shard = self.shards[shard_of(key)].read().unwrap_or_else(PoisonError::into_inner);
        shard.get(key).map(|row| Bytes::copy_from_slice(row))
    }
}

/// The key under which a row is held.
pub fn whole_key(token: i64, partition: &[u8], clustering: &[u8]) -> Vec<u8> {
    let ordered = (token ^ i64::MIN) as u64;
    [&ordered.to_be_bytes(), partition, clustering].concat()
}

fn shard_of(key: &[u8]) -> usize {
    usize::from(key[0]) * SHARDS / 256
}
