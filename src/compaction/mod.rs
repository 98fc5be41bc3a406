//! Fewer files: which of a table's files to make into others, and the making.
//!
//! ```text
//! files of a table ─► windows of time, if the table has them ─► levels by density ─► sets that overlap ─► choices
//!                     time_window.rs                            density.rs
//!
//! a choice:  its files ─► merged ─► paced ─► purged ─► cut into files     (the store makes them live, in one edit)
//!                         model     pace.rs  purge.rs  outputs.rs
//! ```
//!
//! Deciding is a function of plain facts: the same files give the same choices, and no file is in two of them.
//!
//! **Invariant:** whatever set of files is merged, reads answer the same. Which set it is only decides what reading and
//! writing cost; what may be left out is decided by `purge.rs` from what is *not* in the set.

use std::collections::BTreeSet;

use uuid::Uuid;

pub use self::density::{density, overlap, settled_bytes};
pub use self::outputs::{Cut, write};
pub use self::pace::{Pace, Paced, Proceed, Unpaced};
pub use self::purge::{Purge, least_timestamp};
pub use self::time_window::{Window, gone, windows};
use crate::Result;
use crate::model::{CompactionOptions, Direction, Merge, Stamp, Stream, Timestamp, Token, Vnode, VnodeBits};
use crate::sstable::{Builder, FragmentStream, SstableMeta};

mod density;
mod outputs;
mod pace;
mod purge;
mod time_window;

#[cfg(test)]
mod tests;

/// Most files that are merged at once: each one costs a buffer, and an end to what a crash can waste.
pub const INPUTS_MAX: usize = 32;

/// What there is to know of a file to decide.
#[derive(Debug, Clone, PartialEq)]
pub struct FileFacts {
    /// Which file.
    pub id: Uuid,
    /// Its length.
    pub bytes: u64,
    /// Tokens of its first and last partition.
    pub tokens: (Token, Token),
    /// The vnodes of its first and last partition.
    pub vnodes: (Vnode, Vnode),
    /// Bounds of everything in it that has a timestamp.
    pub timestamps: (Timestamp, Timestamp),
    /// The greatest stamp of its records: older files go first.
    pub last_stamp: Stamp,
    /// Whether everything in it has expired or deletes, and would go if nothing outside it needed it.
    pub is_spent: bool,
}

/// By what is decided.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// What the table asks for.
    pub options: &'a CompactionOptions,
    /// How large flushes of the table are.
    pub flush_bytes: u64,
    /// How the ring is cut.
    pub bits: VnodeBits,
}

/// What to do with some files of one table.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// What to do.
    pub action: Action,
    /// With which files, ascending by id.
    pub inputs: Vec<Uuid>,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them hold some token, at most: more is more urgent.
    pub overlap: usize,
}

/// What to do with files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Merge them.
    Merge,
    /// Leave out, unread, those of which nothing is needed any more.
    Drop,
}

/// What to do with a table's `files`, most urgent first; the files of different choices are different. Files in `busy`
/// are in a choice that is being carried out, or set aside.
pub fn choose(files: &[FileFacts], terms: &Terms<'_>, busy: &BTreeSet<Uuid>) -> Vec<Choice> {
    let idle: Vec<&FileFacts> = files.iter().filter(|file| !busy.contains(&file.id)).collect();
    let (spent, left): (Vec<_>, Vec<_>) = idle.into_iter().partition(|file| file.is_spent);
    let mut choices = Vec::new();
    if !spent.is_empty() {
        choices.push(Choice::new(Action::Drop, &spent));
    }
    choices.extend(windows(&left, terms.options).iter().flat_map(|window| window.choose(terms)));
    choices.sort_by(|a, b| {
        let urgency = |choice: &Choice| (choice.action == Action::Drop, choice.overlap);
        urgency(b).cmp(&urgency(a)).then(a.bytes.cmp(&b.bytes)).then(a.inputs.cmp(&b.inputs))
    });
    choices
}

impl Choice {
    fn new(action: Action, files: &[&FileFacts]) -> Choice {
        let mut inputs: Vec<Uuid> = files.iter().map(|file| file.id).collect();
        inputs.sort();
        let bytes = files.iter().map(|file| file.bytes).sum();
        Choice { action, inputs, bytes, overlap: overlap(files.iter().copied()) }
    }
}

/// Merges streams of one table, forward, into a file.
pub fn merge(sources: Vec<FragmentStream>, mut builder: Builder) -> Result<SstableMeta> {
    let mut merged = Merge::new(sources, Direction::Forward);
    while let Some(fragment) = merged.next()? {
        builder.add(&fragment)?;
    }
    builder.finish()
}
