//! Windows of time, for series that expire.
//!
//! A file belongs to the window of its greatest timestamp, and files of different windows are never merged. Within the
//! newest window density decides as anywhere; in older ones, which get no more than what comes late, as few files as that
//! allows are the aim, so that a read of an old range meets one. When everything in a file has expired and may go, it goes
//! whole: nothing is read, and one edit of the manifest takes out all that are that far.

use std::collections::BTreeMap;

use crate::model::{CompactionOptions, Timestamp};

use super::{Choice, FileFacts, Terms, density};

/// In a window that is past, two files that overlap are enough to merge them.
const THRESHOLD_PAST: usize = 2;

/// Files that may be merged with each other.
#[derive(Debug)]
pub struct Window<'a> {
    /// The files.
    pub files: Vec<&'a FileFacts>,
    is_past: bool,
}

/// The files by window, the oldest window first; all in one if the table has none.
pub fn windows<'a>(files: &[&'a FileFacts], options: &CompactionOptions) -> Vec<Window<'a>> {
    let Some(width_s) = options.window_s() else {
        return vec![Window { files: files.to_vec(), is_past: false }];
    };
    let width_us = i64::from(width_s.get()) * 1_000_000;
    let mut windows: BTreeMap<i64, Vec<&FileFacts>> = BTreeMap::new();
    for file in files {
        windows.entry(file.timestamps.1.0.div_euclid(width_us)).or_default().push(file);
    }
    let newest = windows.keys().next_back().copied();
    windows.into_iter().map(|(number, files)| Window { files, is_past: Some(number) != newest }).collect()
}

impl Window<'_> {
    /// What is to be merged in it.
    pub(super) fn choose(&self, terms: &Terms<'_>) -> Vec<Choice> {
        let threshold_most = if self.is_past { THRESHOLD_PAST } else { usize::MAX };
        density::choose(&self.files, terms, threshold_most)
    }
}

/// Of the files that are `spent`, those that can go at once: what they hold is older than the limit, which is that of the
/// times and of everything in memory, and than everything in a file that overlaps and stays.
pub fn gone<'a>(
    spent: &[&'a FileFacts],
    staying: &[&FileFacts],
    limit: impl Fn(&FileFacts) -> Option<Timestamp>,
) -> Vec<&'a FileFacts> {
    let is_below = |file: &FileFacts| limit(file).is_some_and(|limit| file.timestamps.1 < limit);
    let (mut going, kept): (Vec<&FileFacts>, Vec<&FileFacts>) = spent.iter().copied().partition(|file| is_below(file));
    let mut staying: Vec<&FileFacts> = staying.iter().copied().chain(kept).collect();
    loop {
        let is_needed = |file: &&FileFacts| {
            let overlaps = |other: &FileFacts| other.tokens.0 <= file.tokens.1 && file.tokens.0 <= other.tokens.1;
            staying.iter().any(|other| overlaps(other) && other.timestamps.0 <= file.timestamps.1)
        };
        let (needed, free): (Vec<&FileFacts>, Vec<&FileFacts>) = going.into_iter().partition(is_needed);
        if needed.is_empty() {
            return free;
        }
        going = free;
        staying.extend(needed);
    }
}
