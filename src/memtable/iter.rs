//! Streams over a memtable. Fragments are taken in batches, each under one hold of one shard's lock.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use bytes::Bytes;

use super::partition::{Batch, Cursor, Progress};
use super::{Memtable, SHARDS, shard_of};
use crate::Result;
use crate::codec::EncodedRow;
use crate::model::{Direction, Fragment, PartitionKey, ScanRange, Slice, Stream, Token};

/// One partition.
pub(super) struct PartitionStream {
    table: Arc<Memtable>,
    key: PartitionKey,
    cursor: Cursor,
    progress: Progress,
    batch: Batch,
}

impl PartitionStream {
    /// Takes the first batch at once: a read that fits it sees every mutation whole.
    pub(super) fn open(
        table: Arc<Memtable>,
        key: &PartitionKey,
        slices: &[Slice],
        direction: Direction,
    ) -> Option<PartitionStream> {
        let mut cursor = Cursor::new(slices, direction);
        let mut batch = Batch::default();
        let progress = {
            let shard = table.shards[shard_of(key.token())].read();
            let partition = shard.partitions.get(key)?;
            batch.fragments.push_back(partition.header(key));
            partition.gather(&mut cursor, &mut batch)
        };
        Some(PartitionStream { table, key: key.clone(), cursor, progress, batch })
    }

    fn refill(&mut self) {
        let shard = self.table.shards[shard_of(self.key.token())].read();
        self.progress = match shard.partitions.get(&self.key) {
            Some(partition) => partition.gather(&mut self.cursor, &mut self.batch),
            None => Progress::Done,
        };
    }
}

impl Stream<EncodedRow> for PartitionStream {
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        if self.batch.fragments.is_empty() && self.progress == Progress::Cut {
            self.refill();
        }
        Ok(self.batch.fragments.pop_front())
    }
}

/// A range of partitions.
pub(super) struct ScanStream {
    table: Arc<Memtable>,
    place: Place,
    /// The last token to read.
    up_to: Option<Token>,
    /// The beginning of every partition.
    start: Cursor,
    batch: Batch,
}

/// Where a scan goes on.
enum Place {
    /// From the beginning of a shard.
    Shard(usize),
    /// From the first partition with this token or a later one.
    Token(Token),
    /// Behind this partition.
    Behind(PartitionKey),
    /// Within this partition.
    Within(PartitionKey, Cursor),
    /// Nowhere.
    End,
}

impl ScanStream {
    pub(super) fn new(table: Arc<Memtable>, range: ScanRange, slices: &[Slice], direction: Direction) -> ScanStream {
        let from_tokens = match range.tokens.after {
            Some(Token(i64::MAX)) => Place::End,
            Some(Token(after)) => Place::Token(Token(after + 1)),
            None => Place::Shard(0),
        };
        let place = match (range.after, from_tokens) {
            (Some((token, key)), Place::Token(first)) if token >= first => {
                Place::Behind(PartitionKey::with_token(token, key))
            }
            (Some((token, key)), Place::Shard(_)) => Place::Behind(PartitionKey::with_token(token, key)),
            (_, from_tokens) => from_tokens,
        };
        let start = Cursor::new(slices, direction);
        ScanStream { table, place, up_to: range.tokens.up_to, start, batch: Batch::default() }
    }

    /// Takes a batch from the shard at which the scan stands and moves the place behind it.
    fn refill(&mut self) {
        let (shard, lower) = match std::mem::replace(&mut self.place, Place::End) {
            Place::End => return,
            Place::Shard(shard) => (shard, Unbounded),
            Place::Token(token) => (shard_of(token), Included(PartitionKey::with_token(token, Bytes::new()))),
            Place::Behind(key) => (shard_of(key.token()), Excluded(key)),
            Place::Within(key, cursor) => {
                let shard = shard_of(key.token());
                if self.go_on_within(&key, cursor) == Progress::Cut {
                    return;
                }
                (shard, Excluded(key))
            }
        };
        self.place = self.gather_partitions(shard, lower);
    }

    fn go_on_within(&mut self, key: &PartitionKey, mut cursor: Cursor) -> Progress {
        let shard = self.table.shards[shard_of(key.token())].read();
        let progress = match shard.partitions.get(key) {
            Some(partition) => partition.gather(&mut cursor, &mut self.batch),
            None => Progress::Done,
        };
        if progress == Progress::Cut {
            self.place = Place::Within(key.clone(), cursor);
        }
        progress
    }

    fn gather_partitions(&mut self, number: usize, lower: std::ops::Bound<PartitionKey>) -> Place {
        let shard = self.table.shards[number].read();
        for (key, partition) in shard.partitions.range((lower, Unbounded)) {
            if self.up_to.is_some_and(|up_to| key.token() > up_to) {
                return Place::End;
            }
            let mut cursor = self.start.clone();
            self.batch.fragments.push_back(partition.header(key));
            if partition.gather(&mut cursor, &mut self.batch) == Progress::Cut {
                return Place::Within(key.clone(), cursor);
            }
            if self.batch.is_full() {
                return Place::Behind(key.clone());
            }
        }
        if number + 1 < SHARDS { Place::Shard(number + 1) } else { Place::End }
    }
}

impl Stream<EncodedRow> for ScanStream {
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        while self.batch.fragments.is_empty() && !matches!(self.place, Place::End) {
            self.refill();
        }
        Ok(self.batch.fragments.pop_front())
    }
}
