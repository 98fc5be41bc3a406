//! How a table's files are compacted, as `WITH compaction = {...}` says it.
//!
//! ```text
//! scaling           'T4' (default); one parameter per level, the last one for all further levels: 'T8, T4, N, L10'
//!                   T<n> tiered: waits for n overlapping files, writes each row least often
//!                   L<n> leveled: merges at once with what overlaps, levels grow n-fold, reads touch the fewest files
//!                   N    neither: the same as T2 and L2
//! target_size_mib   '256' (default); a compaction's output is cut, at a vnode's end, once a file is this large
//! window_s          absent (default), or seconds: files are kept apart by windows of time, for series that expire
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::{Error, Result};

/// Most parameters of `scaling`: a level more holds many times as much, so that nothing fills them.
pub const SCALING_LEVELS_MAX: usize = 16;

/// What a level may grow by, in `T<n>` and `L<n>`.
const FAN_LEAST: u8 = 3;
const FAN_MOST: u8 = 64;

/// Largest target, in MiB: 1 TiB.
const TARGET_MAX_MIB: u32 = 1 << 20;

const SCALING: &str = "scaling";
const TARGET_SIZE_MIB: &str = "target_size_mib";
const WINDOW_S: &str = "window_s";

/// What a level does with files that overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scaling {
    /// Merges once this many overlap, 3..=64; the next level is as many times as large.
    Tiered(u8),
    /// Merges two at once; the next level is twice as large.
    Neutral,
    /// Merges two at once; the next level is this many times as large, 3..=64.
    Leveled(u8),
}

impl Scaling {
    /// How many times as large the next level is.
    pub fn fan(self) -> u32 {
        match self {
            Scaling::Tiered(fan) | Scaling::Leveled(fan) => u32::from(fan),
            Scaling::Neutral => 2,
        }
    }

    /// How many files may not overlap.
    pub fn threshold(self) -> usize {
        match self {
            Scaling::Tiered(fan) => usize::from(fan),
            Scaling::Neutral | Scaling::Leveled(_) => 2,
        }
    }
}

impl fmt::Display for Scaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scaling::Tiered(fan) => write!(f, "T{fan}"),
            Scaling::Neutral => write!(f, "N"),
            Scaling::Leveled(fan) => write!(f, "L{fan}"),
        }
    }
}

impl FromStr for Scaling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Scaling> {
        let fan = |digits: &str| digits.parse().ok().filter(|fan| (FAN_LEAST..=FAN_MOST).contains(fan));
        let scaling = match text.split_at_checked(1) {
            Some(("N", "")) => Some(Scaling::Neutral),
            Some(("T", digits)) => fan(digits).map(Scaling::Tiered),
            Some(("L", digits)) => fan(digits).map(Scaling::Leveled),
            _ => None,
        };
        scaling.ok_or_else(|| no_scaling(text))
    }
}

fn no_scaling(text: &str) -> Error {
    let (least, most) = (FAN_LEAST, FAN_MOST);
    let reason = format!("'{text}' is no parameter of it; there are T{least} to T{most}, N, and L{least} to L{most}");
    Error::invalid(SCALING, reason)
}

/// How a table's files are compacted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CompactionOptions {
    /// By level, 1..=16 of them; the last one counts for all further levels.
    scaling: Vec<Scaling>,
    /// 1..=2^20.
    target_size_mib: u32,
    window_s: Option<NonZeroU32>,
}

impl Default for CompactionOptions {
    fn default() -> CompactionOptions {
        CompactionOptions { scaling: vec![Scaling::Tiered(4)], target_size_mib: 256, window_s: None }
    }
}

impl CompactionOptions {
    /// Options of these parts.
    ///
    /// # Errors
    /// [`Error::Invalid`] where one is outside its limits.
    pub fn new(scaling: Vec<Scaling>, target_size_mib: u32, window_s: Option<NonZeroU32>) -> Result<CompactionOptions> {
        if !(1..=SCALING_LEVELS_MAX).contains(&scaling.len()) {
            let reason = format!("it names {} levels; 1 to {SCALING_LEVELS_MAX} are possible", scaling.len());
            return Err(Error::invalid(SCALING, reason));
        }
        let is_possible = |scaling: &&Scaling| match scaling {
            Scaling::Neutral => true,
            Scaling::Tiered(fan) | Scaling::Leveled(fan) => (FAN_LEAST..=FAN_MOST).contains(fan),
        };
        if let Some(wrong) = scaling.iter().find(|scaling| !is_possible(scaling)) {
            return Err(no_scaling(&wrong.to_string()));
        }
        if !(1..=TARGET_MAX_MIB).contains(&target_size_mib) {
            let reason = format!("it is {target_size_mib}; 1 to {TARGET_MAX_MIB} are possible");
            return Err(Error::invalid(TARGET_SIZE_MIB, reason));
        }
        Ok(CompactionOptions { scaling, target_size_mib, window_s })
    }

    /// Options as words; what is not there has its default.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the key and what is possible.
    pub fn from_map(map: &BTreeMap<String, String>) -> Result<CompactionOptions> {
        let mut options = CompactionOptions::default();
        for (key, value) in map {
            match key.as_str() {
                SCALING => {
                    options.scaling = value.split(',').map(|scaling| scaling.trim().parse()).collect::<Result<_>>()?;
                }
                TARGET_SIZE_MIB => options.target_size_mib = number(key, value)?,
                WINDOW_S => {
                    let window = NonZeroU32::new(number(key, value)?);
                    let none = || Error::invalid(WINDOW_S, "it is 0; leave it out where no windows are wanted");
                    options.window_s = Some(window.ok_or_else(none)?);
                }
                _ => {
                    let reason =
                        format!("compaction has no such option; it has {SCALING}, {TARGET_SIZE_MIB} and {WINDOW_S}");
                    return Err(Error::invalid(key, reason));
                }
            }
        }
        CompactionOptions::new(options.scaling, options.target_size_mib, options.window_s)
    }

    /// All options as words, what has its default too; [`CompactionOptions::from_map`] reads them back.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        let scaling: Vec<String> = self.scaling.iter().map(Scaling::to_string).collect();
        let mut map = BTreeMap::from([
            (SCALING.to_owned(), scaling.join(", ")),
            (TARGET_SIZE_MIB.to_owned(), self.target_size_mib.to_string()),
        ]);
        if let Some(window) = self.window_s {
            map.insert(WINDOW_S.to_owned(), window.to_string());
        }
        map
    }

    /// The parameters as they were given, by level, 1..=16 of them.
    pub fn scaling_by_level(&self) -> &[Scaling] {
        &self.scaling
    }

    /// The size at which an output is cut, in MiB.
    pub fn target_size_mib(&self) -> u32 {
        self.target_size_mib
    }

    /// What level `level` does.
    pub fn scaling(&self, level: usize) -> Scaling {
        self.scaling.get(level).or(self.scaling.last()).copied().unwrap_or(Scaling::Neutral)
    }

    /// An output is cut once it has this many bytes.
    pub fn target_bytes(&self) -> u64 {
        u64::from(self.target_size_mib) << 20
    }

    /// The width of the windows of time, in seconds.
    pub fn window_s(&self) -> Option<NonZeroU32> {
        self.window_s
    }
}

fn number(key: &str, value: &str) -> Result<u32> {
    value.parse().map_err(|_| Error::invalid(key, format!("'{value}' is not a number from 1 to {}", u32::MAX)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn words_and_options_are_the_same() {
        let options = CompactionOptions::from_map(&map(&[("scaling", "T8,N, L10"), ("window_s", "86400")])).unwrap();
        assert_eq!(options.scaling(0), Scaling::Tiered(8));
        assert_eq!((options.scaling(2), options.scaling(40)), (Scaling::Leveled(10), Scaling::Leveled(10)));
        assert_eq!((options.target_bytes(), options.window_s().unwrap().get()), (256 << 20, 86_400));
        assert_eq!(options.to_map()["scaling"], "T8, N, L10");
        assert_eq!(CompactionOptions::from_map(&options.to_map()).unwrap(), options);
        assert_eq!(CompactionOptions::from_map(&map(&[])).unwrap(), CompactionOptions::default());
        let default = CompactionOptions::default();
        assert_eq!(CompactionOptions::from_map(&default.to_map()).unwrap(), default);
    }

    #[test]
    fn what_is_not_possible_is_named() {
        let long = vec!["N"; 17].join(",");
        let refused = [
            (("scaling", ""), "scaling", "T3 to T64"),
            (("scaling", "T2"), "scaling", "'T2'"),
            (("scaling", "L65"), "scaling", "L3 to L64"),
            (("scaling", "é4"), "scaling", "'é4'"),
            (("scaling", "N2"), "scaling", "'N2'"),
            (("scaling", "T4,"), "scaling", "''"),
            (("scaling", long.as_str()), "scaling", "17 levels"),
            (("target_size_mib", "0"), "target_size_mib", "1 to 1048576"),
            (("target_size_mib", "4 GiB"), "target_size_mib", "'4 GiB'"),
            (("window_s", "0"), "window_s", "leave it out"),
            (("window_s", "-1"), "window_s", "'-1'"),
            (("class", "LeveledCompactionStrategy"), "class", "scaling, target_size_mib and window_s"),
        ];
        for (pair, subject, words) in refused {
            let error = CompactionOptions::from_map(&map(&[pair])).unwrap_err().to_string();
            assert!(error.starts_with(subject) && error.contains(words), "{pair:?}: {error}");
        }
    }
}
