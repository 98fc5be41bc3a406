//! The partitions of one shard: found by hash, sorted when somebody wants to see them in order.
//!
//! The walk down an ordered map misses the processor's caches at each level, for each write and each read; a hash
//! misses them once or twice. Scans and the flush pay for the order: the first of them behind a new partition sorts the
//! shard's tokens. Partitions are never removed, so that a list of tokens stays right, though not complete, for as long
//! as a scan uses it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::arena::{Arena, Place};
use super::partition::Partition;
use crate::model::{PartitionKey, Token};

/// What a partition takes beside the bytes of its key, in bytes: its place in the table, the room that a growing table
/// leaves unused, and its token in the sorted list.
const PARTITION_OVERHEAD_BYTES: usize = size_of::<(Token, Slot)>() * 3 / 2 + size_of::<Token>();

#[derive(Debug, Default)]
pub(super) struct Partitions {
    by_token: HashMap<Token, Slot, TokenHash>,
    /// Those whose token another key had first: none, unless somebody chose keys for it. In order, so that they do not
    /// make it slow.
    collided: BTreeMap<PartitionKey, Partition>,
    /// The tokens in order, once somebody wanted them; forgotten when another one comes.
    sorted: OnceLock<Arc<[Token]>>,
}

#[derive(Debug)]
struct Slot {
    key: Place,
    partition: Partition,
}

impl Partitions {
    pub(super) fn len(&self) -> usize {
        self.by_token.len() + self.collided.len()
    }

    pub(super) fn get(&self, token: Token, key: &[u8], arena: &Arena) -> Option<&Partition> {
        match self.by_token.get(&token)? {
            slot if arena.key(slot.key) == key => Some(&slot.partition),
            _ => self.collided.get(&owned(token, key)),
        }
    }

    pub(super) fn get_mut(&mut self, token: Token, key: &[u8], arena: &Arena) -> Option<&mut Partition> {
        match self.by_token.get_mut(&token)? {
            slot if arena.key(slot.key) == key => Some(&mut slot.partition),
            _ => self.collided.get_mut(&owned(token, key)),
        }
    }

    /// Adds a partition that is not there yet.
    pub(super) fn insert(&mut self, token: Token, key: &[u8], partition: Partition, arena: &mut Arena) {
        arena.account(PARTITION_OVERHEAD_BYTES);
        match self.by_token.entry(token) {
            Entry::Occupied(_) => {
                self.collided.insert(PartitionKey::with_token(token, arena.copy_alone(key)), partition);
            }
            Entry::Vacant(vacant) => {
                self.sorted.take();
                vacant.insert(Slot { key: arena.put_key(key), partition });
            }
        }
    }

    /// The tokens of which there are partitions, in order.
    pub(super) fn tokens(&self) -> Arc<[Token]> {
        let sort = || {
            let mut tokens: Vec<Token> = self.by_token.keys().copied().collect();
            tokens.sort_unstable();
            tokens.into()
        };
        self.sorted.get_or_init(sort).clone()
    }

    /// The first partition of the token, in the order of keys, behind `behind`.
    pub(super) fn of_token(
        &self,
        token: Token,
        behind: Option<&Bytes>,
        arena: &Arena,
    ) -> Option<(PartitionKey, &Partition)> {
        if behind.is_some() && self.collided.is_empty() {
            return None;
        }
        let is_behind = |key: &[u8]| behind.is_none_or(|behind| key > &behind[..]);
        let slot = self.by_token.get(&token).filter(|slot| is_behind(arena.key(slot.key)));
        let slot = slot.map(|slot| (arena.partition_key(token, slot.key), &slot.partition));
        if self.collided.is_empty() {
            return slot;
        }
        let collided = self.collided.range(PartitionKey::with_token(token, Bytes::new())..);
        let collided = collided.take_while(|(key, _)| key.token() == token);
        let collided = collided.map(|(key, partition)| (key.clone(), partition));
        collided.filter(|(key, _)| is_behind(key.bytes())).chain(slot).min_by(|(a, _), (b, _)| a.cmp(b))
    }
}

fn owned(token: Token, key: &[u8]) -> PartitionKey {
    PartitionKey::with_token(token, Bytes::copy_from_slice(key))
}

/// Spreads tokens over a table. A token is a hash already, but one that whoever chooses keys can compute, and its top
/// bits are those of the shard: it is mixed with what nobody outside knows.
#[derive(Debug, Clone)]
struct TokenHash {
    seed: u64,
}

impl Default for TokenHash {
    fn default() -> Self {
        TokenHash { seed: RandomState::new().hash_one(0) }
    }
}

impl BuildHasher for TokenHash {
    type Hasher = TokenHasher;

    fn build_hasher(&self) -> TokenHasher {
        TokenHasher(self.seed)
    }
}

struct TokenHasher(u64);

impl Hasher for TokenHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        /// Odd, its bits without a pattern: the golden ratio's.
        const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(self.0 ^ number) * FACTOR;
        self.0 = product as u64 ^ (product >> u64::BITS) as u64;
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
