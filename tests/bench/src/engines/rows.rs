//! The rows that every engine gets: keys that look random, values of words, the same in every run.

use std::sync::LazyLock;

use bytes::Bytes;
use trefoil::Result;
use trefoil::model::Mutation;

use super::Read;
use crate::data::{self, ROWS_PER_PARTITION, mixed};

/// Bytes of a value; with its key a row is about 200 bytes where it is stored.
pub const VALUE_BYTES: usize = 180;

/// A key of the engines that know keys and values only: a partition's place, and the row's within it.
pub type Key = [u8; 12];

/// Bytes of a row as everybody must store it: key and value.
pub const ROW_BYTES: u64 = (VALUE_BYTES + size_of::<Key>()) as u64;

const TEXT_BYTES: usize = 4 << 20;
const WORDS: u64 = 4096;

/// A version of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Which row.
    pub number: u64,
    /// Counts up with every write of the run.
    pub version: u64,
}

impl Row {
    /// The key of the row.
    pub fn key(self) -> Key {
        key(self.number)
    }

    /// Its value: a piece of a text of which lz4 leaves about half.
    pub fn value(self) -> &'static [u8] {
        let at = mixed(self.number ^ (self.version << 40)) as usize % (TEXT_BYTES - VALUE_BYTES);
        &TEXT[at..at + VALUE_BYTES]
    }

    /// The write of the row.
    pub fn mutation(self) -> Result<Mutation> {
        data::mutation_of(self.number, self.version, Bytes::from_static(self.value()))
    }
}

/// The key of row `number`: partitions lie at random, their rows together, as on a ring.
pub fn key(number: u64) -> Key {
    let mut key = Key::default();
    key[..8].copy_from_slice(&mixed(number / ROWS_PER_PARTITION).to_be_bytes());
    key[8..].copy_from_slice(&((number % ROWS_PER_PARTITION) as u32).to_be_bytes());
    key
}

/// A prepared read of an engine of keys and values.
#[derive(Debug, Clone, Copy)]
pub enum Wanted {
    /// The value of a key.
    One(Key),
    /// What lies between the first and the last key, both included.
    Range(Key, Key),
}

impl Wanted {
    /// The keys of a read.
    pub fn of(read: Read) -> Wanted {
        match read {
            Read::Row(number) | Read::Absent(number) => Wanted::One(key(number)),
            Read::Partition(number) => {
                let first = number - number % ROWS_PER_PARTITION;
                Wanted::Range(key(first), key(first + ROWS_PER_PARTITION - 1))
            }
        }
    }
}

/// Words, the frequent ones short: what lz4 halves.
static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut text = Vec::with_capacity(TEXT_BYTES + 16);
    for position in 0.. {
        let word = Ranks { count: WORDS }.at(position);
        let letters = mixed(word ^ 0x7711);
        let length = 2 + (word + 2).ilog2() as usize / 2 + letters as usize % 4;
        text.extend((0..length).map(|letter| b'a' + ((letters >> (5 * letter)) % 26) as u8));
        text.push(b' ');
        if text.len() >= TEXT_BYTES {
            break;
        }
    }
    text.truncate(TEXT_BYTES);
    text
});

/// Ranks below `count` by Zipf's law with exponent 1: each about as often as its rank is small.
#[derive(Debug, Clone, Copy)]
pub struct Ranks {
    /// How many there are.
    pub count: u64,
}

impl Ranks {
    /// The rank that draw number `draw` gives.
    pub fn at(self, draw: u64) -> u64 {
        let uniform = (mixed(draw) >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = ((self.count as f64 + 1.0).ln() * uniform).exp() as u64;
        rank.clamp(1, self.count) - 1
    }
}

/// How rows are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    /// Each as often as any other.
    Uniform,
    /// Some rows much more often than others; which ones has nothing to do with where they lie.
    Zipf,
    /// One after the other of these, by turns.
    Mixed,
}

impl Draw {
    /// The row that draw number `draw` of a phase takes, of `rows`.
    pub fn row(self, phase: u64, draw: u64, rows: u64) -> u64 {
        let number = mixed(draw ^ (phase << 48));
        match self {
            Draw::Uniform => number % rows,
            Draw::Zipf => mixed(Ranks { count: rows }.at(draw ^ (phase << 48)) ^ 0x5eed) % rows,
            Draw::Mixed if draw.is_multiple_of(2) => Draw::Uniform.row(phase, draw, rows),
            Draw::Mixed => Draw::Zipf.row(phase, draw, rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Draw, Ranks, Row, VALUE_BYTES, key};

    #[test]
    fn the_first_ranks_are_drawn_most() {
        let draws = (0..100_000).map(|draw| Ranks { count: 1000 }.at(draw)).collect::<Vec<_>>();
        let of = |rank| draws.iter().filter(|drawn| **drawn == rank).count();
        assert!(draws.iter().all(|rank| *rank < 1000));
        assert!(of(0) > of(1) && of(1) > of(9) && of(9) > of(99), "{} {} {} {}", of(0), of(1), of(9), of(99));
    }

    #[test]
    fn rows_of_a_partition_lie_together_and_versions_differ() {
        assert_eq!(key(100)[..8], key(199)[..8]);
        assert!(key(100) < key(101));
        assert_ne!(key(99)[..8], key(100)[..8]);
        let (old, new) = (Row { number: 7, version: 1 }, Row { number: 7, version: 2 });
        assert_eq!((old.value().len(), new.value().len()), (VALUE_BYTES, VALUE_BYTES));
        assert_ne!(old.value(), new.value());
    }

    #[test]
    fn draws_stay_below_the_number_of_rows() {
        for draw in [Draw::Uniform, Draw::Zipf, Draw::Mixed] {
            assert!((0..10_000).all(|at| draw.row(3, at, 1000) < 1000));
        }
    }
}
