//! What partitions hold, in few bytes each: how replicas are compared without sending their data.
//!
//! ```text
//!   memtables, files ─► merged ─► normal form ─► a digest for each partition ─► a summary of a range
//! ```
//!
//! Two replicas that would answer every read alike, now and after every merge to come, have equal digests, wherever their
//! files are cut and whatever their compactions did: what has expired counts without its value, columns that were dropped
//! do not count, and deletions below a bound, which may be purged on one replica and not yet on another, are left out.
//! Live data always counts.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::Store;
use crate::codec::entry::put_entry;
use crate::compaction::Purge;
use crate::model::{
    Direction, Fragment, Merge, PartitionKey, ReadCommand, ScanRange, Slice, Stream, TableId, Target, Timestamp,
    TokenRange,
};
use crate::sstable::{Access, FragmentStream};
use crate::{Error, Result};

/// Bytes of a digest: enough that differing data has differing digests, not to withstand somebody who forges them.
pub const DIGEST_BYTES: usize = 16;

/// What is looked at, and what counts.
#[derive(Debug, Clone)]
pub struct DigestRange {
    /// The table.
    pub table: TableId,
    /// Its partitions within these tokens ...
    pub tokens: TokenRange,
    /// ... that come behind this one.
    pub after: Option<PartitionKey>,
    /// What has expired by then, seconds since 1970, counts without its value.
    pub now_s: i64,
    /// Deletions with earlier timestamps do not count, nor what has expired with such a one; `None`: all count.
    pub purged_before: Option<Timestamp>,
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionDigest {
    /// Its key.
    pub key: PartitionKey,
    /// Its rows, deleted and expired ones included as long as they count.
    pub rows: u64,
    /// Of all that it holds.
    pub digest: [u8; DIGEST_BYTES],
}

/// Some partitions of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestPage {
    /// In the order of the ring. A partition that holds nothing that counts is not among them.
    pub partitions: Vec<PartitionDigest>,
    /// Whether more come behind the last one.
    pub has_more: bool,
}

/// All partitions of a range together.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Partitions.
    pub partitions: u64,
    /// Their rows.
    pub rows: u64,
    hash: Sha256,
}

/// What the pages of several replicas say together, up to where each of them reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// Partitions that any of them holds.
    pub partitions: u64,
    /// Those of which they hold not the same, in the order of the ring.
    pub differing: Vec<Difference>,
    /// All pages are to be asked for again behind this partition; `None`: nothing is left.
    pub next: Option<PartitionKey>,
}

/// A partition that replicas hold differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its key.
    pub key: PartitionKey,
    /// What each page says of it, in their order; `None`: nothing.
    pub held: Vec<Option<PartitionDigest>>,
}

/// Compares pages that begin behind the same partition of the same range.
pub fn compare(pages: &[DigestPage]) -> Comparison {
    let cut = pages.iter().filter(|page| page.has_more).filter_map(|page| page.partitions.last());
    let next = cut.map(|last| &last.key).min();
    let mut found: BTreeMap<&PartitionKey, Vec<Option<&PartitionDigest>>> = BTreeMap::new();
    for (at, page) in pages.iter().enumerate() {
        for partition in page.partitions.iter().filter(|partition| next.is_none_or(|next| partition.key <= *next)) {
            found.entry(&partition.key).or_insert_with(|| vec![None; pages.len()])[at] = Some(partition);
        }
    }
    let differ = |held: &[Option<&PartitionDigest>]| held.iter().any(|one| *one != held[0]);
    let partitions = found.len() as u64;
    let differing = found.into_iter().filter(|(_, held)| differ(held)).map(|(key, held)| {
        let held = held.into_iter().map(Option::<&PartitionDigest>::cloned).collect();
        Difference { key: key.clone(), held }
    });
    Comparison { partitions, differing: differing.collect(), next: next.cloned() }
}

impl Summary {
    /// Adds a partition. The order counts.
    pub fn add(&mut self, partition: &PartitionDigest) {
        self.partitions += 1;
        self.rows += partition.rows;
        self.hash.update((partition.key.bytes().len() as u64).to_le_bytes());
        self.hash.update(partition.key.bytes());
        self.hash.update(partition.digest);
    }

    /// The digest of all that was added.
    pub fn digest(&self) -> [u8; DIGEST_BYTES] {
        cut(self.hash.clone())
    }
}

impl Store {
    /// The digests of at most `limit` partitions. Reads files: for threads that may wait.
    pub fn partition_digests(&self, range: &DigestRange, limit: usize) -> Result<DigestPage> {
        let tables = self.memory.tables.load();
        let table = tables.get(&range.table).ok_or(Error::UnknownTable { table: range.table })?;
        let (view, spec) = (table.view(), table.spec());
        self.admit(spec.keyspace, &view, &whole_rows(range))?;
        let after = range.after.as_ref().map(|key| (key.token(), key.bytes().clone()));
        let (scan, all) = (ScanRange { after, tokens: range.tokens }, [Slice::all()]);
        let digests = || {
            let mut sources: Vec<FragmentStream> = Vec::new();
            sources.extend(view.memtables().map(|memtable| memtable.scan(scan.clone(), &all, Direction::Forward)));
            for file in view.files.iter().filter(|file| file.sstable.may_matter_to_scan(&scan, &all)) {
                sources.push(file.sstable.scan(scan.clone(), &all, Direction::Forward, Access::Disk)?);
            }
            let merged = Merge::new(sources, Direction::Forward);
            take(Purge::new(merged, range.now_s, spec.live.clone(), |_| Ok(range.purged_before)), limit)
        };
        digests().map_err(|error| self.on_failed_read(table, error, Access::Disk))
    }
}

/// The range as a read, which a quarantined file may forbid.
fn whole_rows(range: &DigestRange) -> ReadCommand {
    ReadCommand {
        table: range.table,
        target: Target::Scan(range.tokens),
        slices: Vec::new(),
        direction: Direction::Forward,
        after: None,
        now_s: range.now_s,
        limit_rows: u32::MAX,
        limit_bytes: u32::MAX,
    }
}

fn take(mut fragments: impl Stream<crate::codec::EncodedRow>, limit: usize) -> Result<DigestPage> {
    let mut partitions: Vec<PartitionDigest> = Vec::new();
    let mut open: Option<(PartitionKey, u64, Sha256)> = None;
    let mut bytes = Vec::new();
    while let Some(fragment) = fragments.next()? {
        if let Fragment::Partition(header) = &fragment {
            partitions.extend(open.take().map(close));
            if partitions.len() >= limit {
                return Ok(DigestPage { partitions, has_more: true });
            }
            open = Some((header.key.clone(), 0, Sha256::new()));
        }
        // A stream of fragments begins with a partition.
        let Some((_, rows, hash)) = &mut open else { continue };
        *rows += u64::from(matches!(fragment, Fragment::Row(..)));
        bytes.clear();
        put_entry(&mut bytes, &fragment);
        hash.update(&bytes);
    }
    partitions.extend(open.take().map(close));
    Ok(DigestPage { partitions, has_more: false })
}

fn close((key, rows, hash): (PartitionKey, u64, Sha256)) -> PartitionDigest {
    PartitionDigest { key, rows, digest: cut(hash) }
}

fn cut(hash: Sha256) -> [u8; DIGEST_BYTES] {
    let whole = hash.finalize();
    std::array::from_fn(|at| whole[at])
}
