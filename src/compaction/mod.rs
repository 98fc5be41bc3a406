//! Fewer files: which of a table's files to make one, and the making.
//!
//! This is the plain form: a table with many files has all of them merged. What deletions cover is left out; deletions
//! themselves and what has expired stay, since nothing is known here of what other replicas hold: no purge.

use crate::Result;
use crate::model::{Direction, Merge, Stream};
use crate::sstable::{Builder, FragmentStream, SstableMeta};

/// With fewer files a table is left alone: each row is written again once per this many flushes.
pub const FILES_LEAST: usize = 8;

/// The table to compact, of tables with their numbers of files: the one that has most, if that is enough.
pub fn choose<T>(tables: impl IntoIterator<Item = (T, usize)>) -> Option<T> {
    let most = tables.into_iter().max_by_key(|(_, files)| *files)?;
    (most.1 >= FILES_LEAST).then_some(most.0)
}

/// Merges streams of one table, forward, into a file.
pub fn merge(sources: Vec<FragmentStream>, mut builder: Builder) -> Result<SstableMeta> {
    let mut merged = Merge::new(sources, Direction::Forward);
    while let Some(fragment) = merged.next()? {
        builder.add(&fragment)?;
    }
    builder.finish()
}
