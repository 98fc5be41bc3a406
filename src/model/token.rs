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
    pub fn of(_key: &[u8]) -> Token {
        todo!()
    }
}
