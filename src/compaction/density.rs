//! Levels by density, and in each level the files that overlap.
//!
//! The *density* of a file is its length divided by the share of the ring that it spans: what it would take if it went on
//! alike over the whole ring. Cutting a file does not change it, merging files that overlap adds theirs up, as far as they
//! do not hold the same rows. So it says how much data has come together here, whatever size files are cut to: a level.
//!
//! ```text
//! level       0              1                 2
//! density     up to          up to             up to            flush = size of a flush, f = the level's fan
//!             flush·√f₀      flush·√f₀·f₁      ·f₂ ...           (limits lie midway between what merging f files gives)
//! ```
//!
//! Of a level, files that overlap belong together, and those that overlap these (so that what is written does not overlap
//! the rest of the level). A set is merged once `threshold` of its files lie on one token: `T<n>` waits for n, for `L<n>`
//! and `N` two are enough. With T4 each row is written about once per level, and a read meets up to three files of each;
//! with L10 a read meets one, and each row is written about five times per level. This is the idea of Cassandra's unified
//! strategy; that files are cut at aligned vnodes makes the sets of upper levels small, so that several go on at once.

use std::collections::BTreeMap;

use crate::model::{Token, VnodeBits};

use super::{Action, Choice, FileFacts, INPUTS_MAX, Terms};

/// No level above this: 64-bit lengths end below.
const LEVELS: usize = 64;

/// A flush is taken to be no smaller than this: tiny ones are all alike.
const FLUSH_LEAST_BYTES: u64 = 64 << 10;

/// What the files, as if they were one, would take if they went on alike over the whole ring.
pub fn density<'a>(files: impl IntoIterator<Item = &'a FileFacts>, bits: VnodeBits) -> f64 {
    let (mut bytes, mut first, mut last) = (0.0, u32::MAX, 0);
    for file in files {
        bytes += file.bytes as f64;
        first = first.min(file.vnodes.0.0);
        last = last.max(file.vnodes.1.0);
    }
    let spanned = last.saturating_sub(first).saturating_add(1);
    bytes * f64::from(bits.count()) / f64::from(spanned)
}

/// How many of the files hold one token, at most.
pub fn overlap<'a>(files: impl IntoIterator<Item = &'a FileFacts>) -> usize {
    crowd(files).0
}

/// The same, and the first token at which it is so.
fn crowd<'a>(files: impl IntoIterator<Item = &'a FileFacts>) -> (usize, Token) {
    // A file that ends where another begins overlaps it: beginnings come first.
    let mut ends: Vec<(Token, bool)> =
        files.into_iter().flat_map(|file| [(file.tokens.0, false), (file.tokens.1, true)]).collect();
    ends.sort();
    let mut present = 0usize;
    let mut most = (0, Token(i64::MIN));
    for (token, is_end) in ends {
        present = if is_end { present.saturating_sub(1) } else { present + 1 };
        if present > most.0 {
            most = (present, token);
        }
    }
    most
}

/// What is to be merged of these files. `threshold_most`: of however many files the options want to wait for, this many are
/// enough.
pub(super) fn choose(files: &[&FileFacts], terms: &Terms<'_>, threshold_most: usize) -> Vec<Choice> {
    let mut levels: Vec<Vec<&FileFacts>> = vec![Vec::new(); LEVELS];
    for file in files {
        levels[level(terms, density([*file], terms.bits))].push(file);
    }
    let mut choices = Vec::new();
    for (number, level) in levels.into_iter().enumerate() {
        let threshold = terms.options.scaling(number).threshold().min(threshold_most);
        for set in overlapping(level) {
            if overlap(set.iter().copied()) >= threshold {
                choices.push(Choice::new(Action::Merge, &at_once(set)));
            }
        }
    }
    choices
}

/// The level of a density.
fn level(terms: &Terms<'_>, density: f64) -> usize {
    let options = terms.options;
    let mut limit = terms.flush_bytes.max(FLUSH_LEAST_BYTES) as f64 * f64::from(options.scaling(0).fan()).sqrt();
    for level in 1..LEVELS {
        if density < limit {
            return level - 1;
        }
        limit *= f64::from(options.scaling(level).fan());
    }
    LEVELS - 1
}

/// Sets of files, such that files of different sets do not overlap and no set can be taken apart.
fn overlapping(mut files: Vec<&FileFacts>) -> Vec<Vec<&FileFacts>> {
    files.sort_by_key(|file| (file.tokens, file.id));
    let mut sets: Vec<(Vec<&FileFacts>, Token)> = Vec::new();
    for file in files {
        match sets.last_mut() {
            Some((set, end)) if file.tokens.0 <= *end => {
                set.push(file);
                *end = file.tokens.1.max(*end);
            }
            _ => sets.push((vec![file], file.tokens.1)),
        }
    }
    sets.into_iter().map(|(set, _)| set).collect()
}

/// As many of the set as may be merged at once. Where there are too many: those at its most crowded token, the oldest of
/// them first so that none waits for ever, then what overlaps these. After each such merge less overlaps than before.
fn at_once(set: Vec<&FileFacts>) -> Vec<&FileFacts> {
    if set.len() <= INPUTS_MAX {
        return set;
    }
    let (_, token) = crowd(set.iter().copied());
    let holds = |file: &&FileFacts| (file.tokens.0..=file.tokens.1).contains(&token);
    let (mut chosen, others): (Vec<&FileFacts>, Vec<&FileFacts>) = set.into_iter().partition(holds);
    chosen.sort_by_key(|file| (file.last_stamp, file.id));
    chosen.truncate(INPUTS_MAX);
    let begin = chosen.iter().map(|file| file.tokens.0).min().unwrap_or(token);
    let end = chosen.iter().map(|file| file.tokens.1).max().unwrap_or(token);
    let overlapping = others.into_iter().filter(|file| file.tokens.0 <= end && begin <= file.tokens.1);
    let room = INPUTS_MAX - chosen.len();
    chosen.extend(overlapping.take(room));
    chosen
}

/// What the files would about take if nothing stood in two of them: of those that overlap, the densest.
pub fn settled_bytes<'a>(files: impl IntoIterator<Item = &'a FileFacts>, bits: VnodeBits) -> u64 {
    let mut files: Vec<&FileFacts> = files.into_iter().collect();
    files.sort_by(|a, b| density([*b], bits).total_cmp(&density([*a], bits)).then(a.id.cmp(&b.id)));
    // Those that are counted do not overlap: of these only the last one that begins before a file ends can reach into it.
    let mut counted: BTreeMap<Token, Token> = BTreeMap::new();
    let mut bytes = 0;
    for file in files {
        let (begin, end) = file.tokens;
        let before = counted.range(..=end).next_back();
        if before.is_none_or(|(_, reaches)| *reaches < begin) {
            counted.insert(begin, end);
            bytes += file.bytes;
        }
    }
    bytes
}
