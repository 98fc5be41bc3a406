//! Streams over a memtable. Fragments are taken in batches, each under one hold of one shard's lock.

use std::sync::Arc;

use bytes::Bytes;

use super::partition::{Batch, Cursor, Partition, Progress};
use super::{Memtable, Shard, first_token, shard_of};
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
            let partition = shard.partition(key)?;
            batch.fragments.push_back(partition.header(key));
            partition.gather(&mut cursor, &mut batch, &shard.arena)
        };
        Some(PartitionStream { table, key: key.clone(), cursor, progress, batch })
    }

    fn refill(&mut self) {
        let shard = self.table.shards[shard_of(self.key.token())].read();
        self.progress = match shard.partition(&self.key) {
            Some(partition) => partition.gather(&mut self.cursor, &mut self.batch, &shard.arena),
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
    /// From the first partition with this token or a later one; of this token itself, behind this key.
    From(Token, Option<Bytes>),
    /// In a shard.
    Inside(Inside),
    /// Nowhere.
    End,
}

/// A place in a shard.
struct Inside {
    shard: usize,
    /// The shard's tokens when the scan came to it, in order.
    tokens: Arc<[Token]>,
    /// The token that is being read.
    at: usize,
    /// The last partition of this token that was begun.
    behind: Option<Bytes>,
    /// The rest of it.
    within: Option<Cursor>,
}

impl ScanStream {
    pub(super) fn new(table: Arc<Memtable>, range: ScanRange, slices: &[Slice], direction: Direction) -> ScanStream {
        let first = match range.tokens.after {
            Some(Token(after)) => after.checked_add(1).map(Token),
            None => Some(Token(i64::MIN)),
        };
        let place = match (range.after, first) {
            (_, None) => Place::End,
            (Some((token, key)), Some(first)) if token >= first => Place::From(token, Some(key)),
            (_, Some(first)) => Place::From(first, None),
        };
        let start = Cursor::new(slices, direction);
        ScanStream { table, place, up_to: range.tokens.up_to, start, batch: Batch::default() }
    }

    /// Takes a batch from the shard at which the scan stands and moves the place behind it.
    fn refill(&mut self) {
        let inside = match std::mem::replace(&mut self.place, Place::End) {
            Place::End => return,
            Place::From(token, behind) => self.enter(token, behind),
            Place::Inside(inside) => inside,
        };
        self.place = self.gather(inside);
    }

    fn enter(&self, token: Token, behind: Option<Bytes>) -> Inside {
        let shard = shard_of(token);
        let tokens = self.table.shards[shard].read().partitions.tokens();
        let at = tokens.partition_point(|other| *other < token);
        let behind = behind.filter(|_| tokens.get(at) == Some(&token));
        Inside { shard, tokens, at, behind, within: None }
    }

    /// Takes what follows `inside` until the batch is full, the shard has no more, or the range ends.
    fn gather(&mut self, mut inside: Inside) -> Place {
        let shard = self.table.shards[inside.shard].read();
        while let Some(&token) = inside.tokens.get(inside.at) {
            if self.up_to.is_some_and(|up_to| token > up_to) {
                return Place::End;
            }
            let next = inside.partition(token, &shard, &self.start, &mut self.batch);
            let Some((partition, mut cursor)) = next else {
                inside.at += 1;
                continue;
            };
            if partition.gather(&mut cursor, &mut self.batch, &shard.arena) == Progress::Cut {
                inside.within = Some(cursor);
                return Place::Inside(inside);
            }
            if self.batch.is_full() {
                return Place::Inside(inside);
            }
        }
        first_token(inside.shard + 1).map_or(Place::End, |token| Place::From(token, None))
    }
}

impl Inside {
    /// The partition to go on with and the place in it: the one in which a batch was full, or the next one of the token,
    /// whose header goes to the batch.
    fn partition<'a>(
        &mut self,
        token: Token,
        shard: &'a Shard,
        start: &Cursor,
        batch: &mut Batch,
    ) -> Option<(&'a Partition, Cursor)> {
        if let (Some(cursor), Some(key)) = (self.within.take(), &self.behind)
            && let Some(partition) = shard.partition(&PartitionKey::with_token(token, key.clone()))
        {
            return Some((partition, cursor));
        }
        let next = shard.partitions.of_token(token, self.behind.as_ref(), &shard.arena);
        self.behind = next.as_ref().map(|(key, _)| key.bytes().clone());
        let (key, partition) = next?;
        batch.fragments.push_back(partition.header(&key));
        Some((partition, start.clone()))
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
