//! Tokens and the slices of the ring.
//!
//! A token is Cassandra's Murmur3 hash of a partition key: x64-128, first half, with *sign-extended* tail bytes, which
//! the common Murmur3 libraries do not do (source: Cassandra's `MurmurHash`, and the vectors in the tests).

use std::fmt;

/// A position on the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Tokens after `after` up to and including `up_to`; an absent side is unbounded. Never wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TokenRange {
    /// Exclusive.
    pub after: Option<Token>,
    /// Inclusive.
    pub up_to: Option<Token>,
}

impl TokenRange {
    /// The whole ring.
    pub const ALL: TokenRange = TokenRange { after: None, up_to: None };

    /// Whether `token` lies in the range.
    pub fn contains(&self, token: Token) -> bool {
        self.after.is_none_or(|after| token > after) && self.up_to.is_none_or(|up_to| token <= up_to)
    }
}

/// The number of vnodes of a cluster as a power of two, fixed when the cluster is made: 0..=[`VnodeBits::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VnodeBits(u8);

/// One of the equal slices of the ring: the top bits of `token ^ i64::MIN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vnode(pub u32);

impl VnodeBits {
    /// At most 65,536 vnodes.
    pub const MAX: u8 = 16;
    /// What a cluster gets unless it says otherwise: 1,024 vnodes.
    pub const DEFAULT: VnodeBits = VnodeBits(10);

    /// `bits` as a number of vnodes, if it is within [`VnodeBits::MAX`].
    pub fn new(bits: u8) -> Option<VnodeBits> {
        (bits <= VnodeBits::MAX).then_some(VnodeBits(bits))
    }

    /// The exponent.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The number of vnodes.
    pub fn count(self) -> u32 {
        1 << self.0
    }

    /// The vnode that holds `token`.
    pub fn vnode(self, token: Token) -> Vnode {
        let unsigned = (token.0 ^ i64::MIN) as u64;
        Vnode(unsigned.checked_shr(64 - u32::from(self.0)).unwrap_or(0) as u32)
    }

    /// The tokens of `vnode`, as (after, up_to].
    pub fn range(self, vnode: Vnode) -> TokenRange {
        let width = 64 - u32::from(self.0);
        let first = |number: u32| ((u64::from(number)).checked_shl(width).unwrap_or(0) as i64) ^ i64::MIN;
        TokenRange {
            after: (vnode.0 > 0).then(|| Token(first(vnode.0) - 1)),
            up_to: (vnode.0 + 1 < self.count()).then(|| Token(first(vnode.0 + 1) - 1)),
        }
    }
}

impl Token {
    /// The token of a serialised partition key.
    pub fn of(key: &[u8]) -> Token {
        match murmur3(key).0 as i64 {
            // Cassandra keeps the smallest number for "before the ring"; no key hashes to it.
            i64::MIN => Token(i64::MAX),
            hash => Token(hash),
        }
    }
}

/// A hash of any bytes that no two different ones share by accident. Nodes compare it: it must never change.
pub fn fingerprint(bytes: &[u8]) -> u128 {
    let (low, high) = murmur3(bytes);
    u128::from(high) << 64 | u128::from(low)
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// Both halves of Murmur3 x64-128 with seed 0 and tail bytes taken as signed.
fn murmur3(key: &[u8]) -> (u64, u64) {
    let (mut h1, mut h2) = (0u64, 0u64);
    let (blocks, tail) = key.as_chunks::<16>();
    for block in blocks {
        let block = u128::from_le_bytes(*block);
        h1 ^= scramble_low(block as u64);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= scramble_high((block >> 64) as u64);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let (low, high) = tail.split_at(tail.len().min(8));
    h1 ^= scramble_low(signed_word(low));
    h2 ^= scramble_high(signed_word(high));

    h1 ^= key.len() as u64;
    h2 ^= key.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    let (h1, h2) = (avalanche(h1), avalanche(h2));
    let h1 = h1.wrapping_add(h2);
    (h1, h2.wrapping_add(h1))
}

/// Up to eight bytes as a little-endian word, each one sign-extended before it is mixed in: this is where Cassandra
/// differs from the published function.
fn signed_word(bytes: &[u8]) -> u64 {
    bytes.iter().enumerate().fold(0, |word, (at, &byte)| word ^ ((i64::from(byte as i8) as u64) << (8 * at)))
}

fn scramble_low(word: u64) -> u64 {
    word.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn scramble_high(word: u64) -> u64 {
    word.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn avalanche(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests;
