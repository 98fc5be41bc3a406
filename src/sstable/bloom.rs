//! A filter that says "surely not here" or "perhaps here" of a hash.
//!
//! ```text
//! filter   line of 64 bytes ...        bit b of a line is bit b % 8 of its byte b / 8
//! hash     h = mix(hash)               line = high 32 bits of h, scaled to the number of lines
//!          g = mix(h)                  the seven bits: 9 bits of g each, lowest first
//! mix(x)   x ^= x >> 30, *= bf58476d1ce4e5b9, ^= x >> 27, *= 94d049bb133111eb, ^= x >> 31   (splitmix64)
//! ```
//!
//! All probes of a hash fall into one cache line: a lookup costs one miss of the processor's cache instead of seven,
//! for a few more false answers (about 1 % at ten bits a key). Tokens are hashes, but files hold slices of the ring, so that
//! their high bits are all alike; hence the mixing.
//!
//! How many keys come is known only when they have come. A builder makes room for as many as there may be and *folds* what
//! is too large: of a number of lines that is k times another, every k lines that follow each other become one, and since a
//! line is a scaled hash, that is the filter that the smaller number would have given.

use bytes::Bytes;

use crate::{Corrupt, Result};

const LINE_BYTES: usize = 64;
const LINE_BITS: u64 = 512;
const BITS_PER_KEY: u64 = 10;
const PROBES: u32 = 7;

/// Largest filter: about 1 GiB, ten bits for each of 850 million keys.
const LINES_MAX: u64 = (1 << 24) / LINES_MANY * LINES_MANY;

/// Filters that are being filled have a multiple of so many lines, few or many, for the sake of its divisors.
const LINES_FEW: u64 = 12;
const LINES_MANY: u64 = 840;

/// A filter that is being filled.
pub(super) struct BloomBuilder {
    bytes: Vec<u8>,
    added: u64,
}

impl BloomBuilder {
    /// An empty filter with room for `expected` keys, which should be no fewer than come: more may be added at the price of
    /// more false answers.
    pub(super) fn new(expected: u64) -> BloomBuilder {
        let lines = lines_for(expected);
        let step = if lines < 8 * LINES_MANY { LINES_FEW } else { LINES_MANY };
        let lines = lines.div_ceil(step).saturating_mul(step).min(LINES_MAX);
        BloomBuilder { bytes: vec![0; lines as usize * LINE_BYTES], added: 0 }
    }

    /// From now on [`Bloom::may_contain`] says yes to `hash`.
    pub(super) fn add(&mut self, hash: u64) {
        let (line, bits) = place(hash, self.bytes.len() / LINE_BYTES);
        let line = &mut self.bytes[line * LINE_BYTES..][..LINE_BYTES];
        probes(bits).for_each(|bit| line[bit / 8] |= 1 << (bit % 8));
        self.added += 1;
    }

    /// The section's bytes: as few lines as the keys that came need, or some more.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let lines = self.bytes.len() / LINE_BYTES;
        let needed = lines_for(self.added) as usize;
        let fold = (1..=lines / needed.max(1)).rev().find(|fold| lines.is_multiple_of(*fold)).unwrap_or(1);
        if fold > 1 {
            for line in 0..lines {
                let to = line / fold * LINE_BYTES;
                for byte in 0..LINE_BYTES {
                    let bits = self.bytes[line * LINE_BYTES + byte];
                    self.bytes[to + byte] = if line.is_multiple_of(fold) { bits } else { self.bytes[to + byte] | bits };
                }
            }
            self.bytes.truncate(lines / fold * LINE_BYTES);
            self.bytes.shrink_to_fit();
        }
        self.bytes
    }
}

fn lines_for(keys: u64) -> u64 {
    keys.saturating_mul(BITS_PER_KEY).div_ceil(LINE_BITS).clamp(1, LINES_MAX)
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

    /// `false`: this hash was not added. `true`: perhaps it was.
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let (line, bits) = place(hash, self.bytes.len() / LINE_BYTES);
        let line = &self.bytes[line * LINE_BYTES..][..LINE_BYTES];
        probes(bits).all(|bit| line[bit / 8] & (1 << (bit % 8)) != 0)
    }
}

fn place(hash: u64, lines: usize) -> (usize, u64) {
    let hash = mix(hash);
    let line = ((hash >> 32) * lines as u64) >> 32;
    (line as usize, mix(hash))
}

fn probes(bits: u64) -> impl Iterator<Item = usize> {
    (0..PROBES).map(move |probe| ((bits >> (9 * probe)) % LINE_BITS) as usize)
}

/// Spreads what differs in a few bits over all of them.
pub(super) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(hashes: impl Iterator<Item = u64>, expected: u64) -> Bloom {
        let mut builder = BloomBuilder::new(expected);
        hashes.for_each(|hash| builder.add(hash));
        Bloom::open(builder.finish().into()).expect("a built filter opens")
    }

    #[test]
    fn never_denies_what_was_added() {
        let hashes = || (0..10_000).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for expected in [0, 1, 9_000, 10_000, 31_000, 1_000_000] {
            let bloom = filter(hashes(), expected);
            assert!(hashes().all(|hash| bloom.may_contain(hash)), "made for {expected}");
        }
    }

    /// A file of one vnode holds tokens that differ in their low bits only.
    #[test]
    fn about_one_in_a_hundred_is_a_false_yes_even_in_a_narrow_slice_of_the_ring() {
        for step in [1, 1 << 20, 1 << 44] {
            let bloom = filter((0..10_000).map(|n| n * 2 * step), 10_000);
            let wrong = (0..10_000).filter(|n| bloom.may_contain((n * 2 + 1) * step)).count();
            assert!((20..200).contains(&wrong), "step {step}: {wrong} false answers of 10,000");
        }
    }

    #[test]
    fn a_filter_with_too_much_room_becomes_the_one_that_was_made_for_what_came() {
        let hashes = || (0..5_000).map(|n: u64| n * 3);
        for (expected, lines) in [(5_000, 108), (10_000, 102), (50_000, 123), (400_000, 100), (0, 12)] {
            let bloom = filter(hashes(), expected);
            assert_eq!(bloom.bytes.len() / LINE_BYTES, lines, "made for {expected}");
            let mut exact = BloomBuilder { bytes: vec![0; lines * LINE_BYTES], added: 0 };
            hashes().for_each(|hash| exact.add(hash));
            assert_eq!(bloom.bytes, exact.bytes, "made for {expected}");
        }
        assert_eq!(filter([7].into_iter(), 1_000_000).bytes.len(), LINE_BYTES);
    }

    #[test]
    fn refuses_a_section_that_is_not_whole_lines() {
        assert!(Bloom::open(Bytes::new()).is_err());
        assert!(Bloom::open(vec![0; 65].into()).is_err());
    }
}
