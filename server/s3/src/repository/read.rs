//! A table as it was at a time, straight from the bucket.
//!
//! ```text
//!   files(range)      SSTables of the copies that suffice, merged, vnode by vnode      ┐
//!   records(range)    records of their logs, stamped at the time or before             ├─ rows(range), in runs
//! ```
//!
//! To be used from threads that may block, outside of any runtime. Of the files only the blocks in the range are read; logs are read
//! whole, once for each call.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use trefoil::backup::StoredFile;
use trefoil::codec::{CheckedRecord, EncodedRow};
use trefoil::model::{
    Direction, Fragment, KeyspaceId, Merge, NodeId, ScanRange, Slice, Stream, TableId, Token, TokenRange, Vnode,
    VnodeBits,
};
use trefoil::sstable::{Access, BlockCache, FragmentStream, Sstable};
use trefoil::{Corrupt, Error, Result};
use uuid::Uuid;

use super::{AT_ONCE, Moment, Repository, core_error};
use crate::{ObjectFiles, Whereabouts};

/// Open files hold as much as this together, in bytes of what was read ahead.
const AHEAD_BYTES: u64 = 256 << 20;

/// The largest window of one file, in bytes.
const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// Every block is read once, so there is little to keep.
const CACHE_BYTES: u64 = 8 << 20;

/// A table at a time.
pub struct TableAt {
    repository: Repository,
    runtime: Handle,
    moment: Arc<Moment>,
    table: TableId,
    /// Whose copies suffice, by vnode.
    copies: Vec<Vec<NodeId>>,
    objects: ObjectFiles,
    /// Those that were opened.
    open: Mutex<BTreeMap<Uuid, Arc<Sstable>>>,
    cache: Arc<BlockCache>,
}

impl TableAt {
    /// The table `table` of `keyspace` at the moment; requests are run by `runtime`.
    pub fn new(
        repository: &Repository,
        moment: &Arc<Moment>,
        (keyspace, table): (KeyspaceId, TableId),
        runtime: Handle,
    ) -> TableAt {
        let vnodes = (0..moment.vnode_bits().count()).map(Vnode);
        let files: Vec<&StoredFile> = files_of(moment, table).map(|(_, file)| file).collect();
        let window = (AHEAD_BYTES / files.len().max(1) as u64).min(WINDOW_BYTES_MAX);
        let objects = files.iter().map(|file| {
            let whereabouts = Whereabouts { key: file.key(), bytes: file.meta.bytes };
            (PathBuf::from(file.key()), whereabouts)
        });
        TableAt {
            objects: ObjectFiles::new(repository.store().clone(), runtime.clone(), objects).with_window(window),
            repository: repository.clone(),
            runtime,
            moment: moment.clone(),
            table,
            copies: vnodes.map(|vnode| moment.copies((keyspace, vnode))).collect(),
            open: Mutex::default(),
            cache: Arc::new(BlockCache::new(CACHE_BYTES)),
        }
    }

    /// The moment.
    pub fn moment(&self) -> &Arc<Moment> {
        &self.moment
    }

    /// Bytes of files that were fetched so far, and by how many requests.
    pub fn fetched(&self) -> (u64, u64) {
        self.objects.fetched()
    }

    /// What the files hold of the tokens in `range`, merged: all of it lies before the backup's cut.
    pub fn files(self: &Arc<Self>, range: TokenRange) -> FragmentStream {
        let vnodes = vnodes_in(self.bits(), range);
        Box::new(ByVnode { table: self.clone(), range, vnodes, present: None, failed: None })
    }

    /// How many partitions and rows the files that are read for these ranges have there, or about there: those counted for each
    /// file that has them. Opens the files.
    pub fn contents(&self, ranges: &[TokenRange]) -> Result<(u64, u64)> {
        let wanted: BTreeSet<Vnode> = ranges.iter().flat_map(|range| vnodes_in(self.bits(), *range)).collect();
        let is_read =
            |node: &NodeId, vnode: &Vnode| self.copies.get(vnode.0 as usize).is_some_and(|nodes| nodes.contains(node));
        let files: Vec<_> = files_of(&self.moment, self.table)
            .filter(|(node, _)| wanted.iter().any(|vnode| is_read(node, vnode)))
            .collect();
        self.open_all(files.iter().map(|(_, file)| *file).collect())?;
        let (mut partitions, mut rows) = (0, 0);
        for (node, file) in files {
            let sstable = self.sstable(file)?;
            let spans = sstable.vnodes().spans.iter();
            for span in spans.filter(|span| wanted.contains(&span.vnode) && is_read(node, &span.vnode)) {
                (partitions, rows) = (partitions + span.partitions, rows + span.rows);
            }
        }
        Ok((partitions, rows))
    }

    /// Opens files, many at once: each takes a few requests, one after the other. The first failure ends all.
    fn open_all(&self, mut files: Vec<&StoredFile>) -> Result<()> {
        let open = self.open.lock();
        files.retain(|file| !open.contains_key(&file.meta.id));
        drop(open);
        let next = AtomicUsize::new(0);
        let outcome = Mutex::new(Ok(()));
        let work = || {
            while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.sstable(file) {
                    next.store(files.len(), Ordering::Relaxed);
                    *outcome.lock() = Err(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..AT_ONCE.min(files.len()) {
                scope.spawn(work);
            }
            work();
        });
        outcome.into_inner()
    }

    /// Hands out every record of the logs that is of the table, in the range, not stamped later and not in files already. Once or several times:
    /// each copy that is read has its own. In no order.
    pub fn records(&self, range: TokenRange, mut take: impl FnMut(CheckedRecord) -> Result<()>) -> Result<()> {
        let vnodes = vnodes_in(self.bits(), range).filter_map(|vnode| self.copies.get(vnode.0 as usize));
        let nodes: BTreeSet<NodeId> = vnodes.flatten().copied().collect();
        let wanted = self.moment.sources.iter().filter(|(node, _)| nodes.contains(node));
        for (source, head) in wanted.flat_map(|(_, source)| source.pieces.iter().map(move |head| (source, head))) {
            if head.stamps.is_none_or(|(lowest, _)| lowest > self.moment.at) {
                continue;
            }
            let piece = self.runtime.block_on(self.repository.piece(head.node, head.number));
            let piece = piece.map_err(|error| core_error(&error))?;
            piece
                .for_each(|logged| {
                    let record = &logged.record;
                    let vnode = self.bits().vnode(record.token());
                    let is_wanted = record.table() == self.table
                        && record.stamp() <= self.moment.at
                        && range.contains(record.token())
                        && self.copies.get(vnode.0 as usize).is_some_and(|nodes| nodes.contains(&head.node))
                        && !source.is_in_files(&logged);
                    if is_wanted { take(logged.record) } else { Ok(()) }
                })
                .map_err(|error| error.in_file(Path::new(&head.key()), 0))?;
        }
        Ok(())
    }

    fn bits(&self) -> VnodeBits {
        self.moment.vnode_bits()
    }

    fn copies_of(&self, vnode: Vnode, range: TokenRange) -> Result<Merge<EncodedRow, FragmentStream>> {
        let nodes = self.copies.get(vnode.0 as usize).map_or(&[][..], Vec::as_slice);
        let tokens = both(self.bits().range(vnode), range);
        let mut sources = Vec::new();
        for (_, file) in files_of(&self.moment, self.table).filter(|(node, _)| nodes.contains(node)) {
            let sstable = self.sstable(file)?;
            let scan = ScanRange { after: None, tokens };
            sources.push(sstable.scan(scan, &[Slice::all()], Direction::Forward, Access::Disk)?);
        }
        Ok(Merge::new(sources, Direction::Forward))
    }

    fn sstable(&self, file: &StoredFile) -> Result<Arc<Sstable>> {
        if let Some(sstable) = self.open.lock().get(&file.meta.id) {
            return Ok(sstable.clone());
        }
        let path = PathBuf::from(file.key());
        let sstable = Sstable::open(&self.objects, &path, self.cache.clone())?;
        if sstable.id() != file.meta.id || sstable.stats().table != self.table {
            let reason = "it is another file than the one that is listed";
            return Err(Corrupt::new("SSTable", reason).at(&path, 0).into());
        }
        // Somebody else may have been sooner.
        Ok(self.open.lock().entry(file.meta.id).or_insert_with(|| Arc::new(sstable)).clone())
    }
}

/// The files of one vnode after the other.
struct ByVnode<V> {
    table: Arc<TableAt>,
    range: TokenRange,
    vnodes: V,
    present: Option<Merge<EncodedRow, FragmentStream>>,
    failed: Option<Error>,
}

impl<V: Iterator<Item = Vnode>> ByVnode<V> {
    fn step(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        loop {
            if let Some(present) = &mut self.present
                && let Some(fragment) = present.next()?
            {
                return Ok(Some(fragment));
            }
            let Some(vnode) = self.vnodes.next() else {
                self.present = None;
                return Ok(None);
            };
            self.present = Some(self.table.copies_of(vnode, self.range)?);
        }
    }
}

impl<V: Iterator<Item = Vnode>> Stream<EncodedRow> for ByVnode<V> {
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.step().inspect_err(|error| self.failed = Some(error.clone()))
    }
}

/// The files of a table, with the node whose they are.
fn files_of(moment: &Moment, table: TableId) -> impl Iterator<Item = (&NodeId, &StoredFile)> {
    let all = moment.sources.iter().flat_map(|(node, source)| source.part.files.iter().map(move |file| (node, file)));
    all.filter(move |(_, file)| file.meta.table == table)
}

/// The vnodes that a range touches.
fn vnodes_in(bits: VnodeBits, range: TokenRange) -> impl Iterator<Item = Vnode> + Send {
    let first = range.after.map_or(0, |after| bits.vnode(Token(after.0.saturating_add(1))).0);
    let last = range.up_to.map_or(bits.count() - 1, |up_to| bits.vnode(up_to).0);
    (first..=last).map(Vnode)
}

/// The tokens that lie in both ranges.
fn both(one: TokenRange, other: TokenRange) -> TokenRange {
    let up_to = match (one.up_to, other.up_to) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    TokenRange { after: one.after.max(other.after), up_to }
}
