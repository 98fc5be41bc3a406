//! A compaction that can be watched, slowed and stopped: between fragments, on the side that reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::codec::EncodedRow;
use crate::model::{Fragment, Stream};
use crate::{Error, Result};

/// Looks are taken after this many fragments.
const FRAGMENTS_PER_LOOK: u32 = 64;

/// Whether work goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proceed {
    /// It does.
    On,
    /// It ends as soon as it can, without effect.
    Stop,
}

/// What a compaction asks on its way: it is told how many bytes it has read since it asked last, and may be made to wait.
pub trait Pace: Sync {
    /// Bytes were read; returns when more may be.
    fn spend(&self, bytes: u64) -> Proceed;
}

/// As fast as it goes, to the end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unpaced;

impl Pace for Unpaced {
    fn spend(&self, _: u64) -> Proceed {
        Proceed::On
    }
}

/// A stream that asks `pace` as it goes, and ends with [`Error::Stopped`] when that says so.
pub struct Paced<'a, S> {
    source: S,
    pace: &'a dyn Pace,
    /// Bytes that were read from files for `source`.
    read: Arc<AtomicU64>,
    spent: u64,
    unlooked: u32,
}

impl<'a, S: Stream<EncodedRow>> Paced<'a, S> {
    /// Paces `source`, for which so many bytes are `read`.
    pub fn new(source: S, read: Arc<AtomicU64>, pace: &'a dyn Pace) -> Paced<'a, S> {
        Paced { source, pace, read, spent: 0, unlooked: 0 }
    }
}

impl<S: Stream<EncodedRow>> Stream<EncodedRow> for Paced<'_, S> {
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        self.unlooked += 1;
        if self.unlooked >= FRAGMENTS_PER_LOOK {
            self.unlooked = 0;
            let read = self.read.load(Ordering::Relaxed);
            if self.pace.spend(read.saturating_sub(self.spent)) == Proceed::Stop {
                return Err(Error::Stopped);
            }
            self.spent = read;
        }
        self.source.next()
    }
}
