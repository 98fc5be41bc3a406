//! A filter that says "surely not here" or "perhaps here" of a token.
//!
//! ```text
//! filter   line of 64 bytes ...        bit b of a line is bit b % 8 of its byte b / 8
//! hash     h = mix(token)              line = high 32 bits of h, scaled to the number of lines
//!          g = mix(h)                  the seven bits: 9 bits of g each, lowest first
//! mix(x)   x ^= x >> 30, *= bf58476d1ce4e5b9, ^= x >> 27, *= 94d049bb133111eb, ^= x >> 31   (splitmix64)
//! ```
//!
//! All probes of a token fall into one cache line: a lookup costs one miss of the processor's cache instead of seven,
//! for a few more false answers (about 1 % at ten bits a key). A token is a hash already, but files hold slices of the
//! ring, so that its high bits are all alike; hence the mixing.

use bytes::Bytes;

use crate::model::Token;
use crate::{Corrupt, Result};

const LINE_BYTES: usize = 64;
const LINE_BITS: u64 = 512;
const BITS_PER_KEY: u64 = 10;
const PROBES: u32 = 7;

/// Largest filter: 1 GiB, ten bits for each of 850 million partitions.
const LINES_MAX: u64 = 1 << 24;

/// A filter that is being filled.
pub(super) struct BloomBuilder {
    bytes: Vec<u8>,
}

impl BloomBuilder {
    /// An empty filter, sized for `expected` tokens; more may be added at the price of more false answers.
    pub(super) fn new(expected: u64) -> BloomBuilder {
        let lines = expected.saturating_mul(BITS_PER_KEY).div_ceil(LINE_BITS).clamp(1, LINES_MAX);
        BloomBuilder { bytes: vec![0; lines as usize * LINE_BYTES] }
    }

    /// From now on [`Bloom::may_contain`] says yes to `token`.
    pub(super) fn add(&mut self, token: Token) {
        let (line, bits) = place(token, self.bytes.len() / LINE_BYTES);
        for bit in probes(bits) {
            self.bytes[line * LINE_BYTES + bit / 8] |= 1 << (bit % 8);
        }
    }

    /// The section's bytes.
    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// A finished filter.
pub(super) struct Bloom {
    bytes: Bytes,
}

impl Bloom {
    /// Takes a section's bytes, whose checksum was verified.
    pub(super) fn open(bytes: Bytes) -> Result<Bloom> {
        if bytes.is_empty() || !bytes.len().is_multiple_of(LINE_BYTES) {
            let reason = format!("{} bytes are not whole lines of {LINE_BYTES}", bytes.len());
            return Err(Corrupt::new("bloom filter", reason).into());
        }
        Ok(Bloom { bytes })
    }

    /// `false`: no partition with this token was added. `true`: perhaps one was.
    pub(super) fn may_contain(&self, token: Token) -> bool {
        let (line, bits) = place(token, self.bytes.len() / LINE_BYTES);
        let line = &self.bytes[line * LINE_BYTES..][..LINE_BYTES];
        probes(bits).all(|bit| line[bit / 8] & (1 << (bit % 8)) != 0)
    }
}

fn place(token: Token, lines: usize) -> (usize, u64) {
    let hash = mix(token.0 as u64);
    let line = ((hash >> 32) * lines as u64) >> 32;
    (line as usize, mix(hash))
}

fn probes(bits: u64) -> impl Iterator<Item = usize> {
    (0..PROBES).map(move |probe| ((bits >> (9 * probe)) % LINE_BITS) as usize)
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(tokens: impl Iterator<Item = i64>, expected: u64) -> Bloom {
        let mut builder = BloomBuilder::new(expected);
        tokens.for_each(|token| builder.add(Token(token)));
        Bloom::open(builder.finish().into()).expect("a built filter opens")
    }

    #[test]
    fn never_denies_what_was_added() {
        let tokens = || (0..10_000).map(|n: i64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64));
        let bloom = filter(tokens(), 1);
        assert!(tokens().all(|token| bloom.may_contain(Token(token))));
    }

    /// A file of one vnode holds tokens that differ in their low bits only.
    #[test]
    fn about_one_in_a_hundred_is_a_false_yes_even_in_a_narrow_slice_of_the_ring() {
        for step in [1, 1 << 20, 1 << 44] {
            let bloom = filter((0..10_000).map(|n| n * 2 * step), 10_000);
            let wrong = (0..10_000).filter(|n| bloom.may_contain(Token((n * 2 + 1) * step))).count();
            assert!((20..200).contains(&wrong), "step {step}: {wrong} false answers of 10,000");
        }
    }

    #[test]
    fn refuses_a_section_that_is_not_whole_lines() {
        assert!(Bloom::open(Bytes::new()).is_err());
        assert!(Bloom::open(vec![0; 65].into()).is_err());
    }
}
