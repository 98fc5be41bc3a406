//! The logs: records that are in no file of the backup, up to the time.
//!
//! Pieces are read node by node, in the order of the log, some ahead. What a record says goes into a memtable of its table; when
//! those have grown they become files, and what was read up to there is noted. A record is left out that is in the
//! files of its node already (it stands before the part's position, or its name is in the part), and one that came from
//! another copy before.
//!
//! What is left out for being in the files matters: a deletion may have been purged there together with what it deleted, and
//! what it deleted must not come again without it.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use trefoil::backup::{Piece, PieceHead};
use trefoil::commitlog::Logged;
use trefoil::memtable::Memtable;
use trefoil::model::{Direction, KeyspaceId, NodeId, ScanRange, Slice as RowSlice, Stamp, TableId, Vnode, VnodeBits};
use trefoil::received::gathered::Gathered;
use trefoil::store::Expected;
use trefoil::{Error, Result};
use trefoil_s3::repository::{Moment, Repository, Source};

use super::job::{Failure, Job};

/// Memtables become files when they hold so much together, in bytes.
const MEMORY_BYTES: u64 = 64 << 20;

/// Pieces that are fetched while one is applied.
const AHEAD: usize = 4;

/// A row takes no less of a memtable. More may be expected of a file than comes.
const ROW_IN_MEMORY_LEAST_BYTES: u64 = 48;

impl Job {
    /// Loads what the logs say of the node's own vnodes of all tables.
    pub(super) fn load_logs(&self, repository: &Repository, moment: &Moment) -> Result<(), Failure> {
        let done = self.notes.lock().logs.clone();
        let all = moment.sources.iter().flat_map(|(node, source)| source.pieces.iter().map(move |head| (node, head)));
        let (behind, wanted): (Vec<_>, Vec<_>) =
            all.partition(|(node, head)| done.get(node).is_some_and(|number| head.number <= *number));
        self.share.progress.steps_done.fetch_add(behind.len() as u64, Ordering::Relaxed);
        let mut tail = Tail::new(self, moment);
        let mut pieces = Pieces::new(&self.ground.runtime, repository, moment.at, wanted.iter().map(|(_, head)| *head));
        for (node, head) in &wanted {
            self.proceed()?;
            if let Some(piece) = pieces.next(head)? {
                self.share.progress.bytes_fetched.fetch_add(piece.bytes(), Ordering::Relaxed);
                self.share.progress.requests.fetch_add(1, Ordering::Relaxed);
                tail.apply(**node, &moment.sources[*node], &piece)?;
            }
            tail.read.insert(**node, head.number);
            if tail.bytes() >= MEMORY_BYTES {
                tail.flush()?;
            }
            self.share.progress.steps_done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(tail.flush()?)
    }
}

/// Whether a piece may have a record that is not stamped later.
fn is_wanted(head: &PieceHead, at: Stamp) -> bool {
    head.stamps.is_some_and(|(lowest, _)| lowest <= at)
}

/// Pieces as they come, some of them fetched ahead.
struct Pieces<'a, I> {
    runtime: &'a Handle,
    repository: &'a Repository,
    at: Stamp,
    left: I,
    coming: VecDeque<JoinHandle<trefoil_s3::Result<Piece>>>,
}

impl<'a, I: Iterator<Item = &'a PieceHead>> Pieces<'a, I> {
    fn new(runtime: &'a Handle, repository: &'a Repository, at: Stamp, heads: I) -> Pieces<'a, I> {
        let mut pieces = Pieces { runtime, repository, at, left: heads, coming: VecDeque::new() };
        pieces.ask();
        pieces
    }

    fn ask(&mut self) {
        while self.coming.len() < AHEAD
            && let Some(head) = self.left.find(|head| is_wanted(head, self.at))
        {
            let (repository, node, number) = (self.repository.clone(), head.node, head.number);
            self.coming.push_back(self.runtime.spawn(async move { repository.piece(node, number).await }));
        }
    }

    /// The piece of the next head; `None` if nothing of it is wanted.
    fn next(&mut self, head: &PieceHead) -> Result<Option<Piece>, Failure> {
        if !is_wanted(head, self.at) {
            return Ok(None);
        }
        let Some(coming) = self.coming.pop_front() else { return Ok(None) };
        self.ask();
        match self.runtime.block_on(coming) {
            Ok(piece) => Ok(Some(piece?)),
            Err(error) => Err(Failure { reason: error.to_string(), retry: true }),
        }
    }
}

impl<I> Drop for Pieces<'_, I> {
    fn drop(&mut self) {
        self.coming.iter().for_each(JoinHandle::abort);
    }
}

/// Where records of a table go.
struct Table {
    id: TableId,
    /// By vnode of this cluster: whether it is the node's own.
    is_own: Vec<bool>,
    memtable: Arc<Memtable>,
    stamps: Option<(Stamp, Stamp)>,
}

/// Records that are in memory.
struct Tail<'a> {
    job: &'a Job,
    at: Stamp,
    source_bits: VnodeBits,
    /// By their ids in the backup.
    tables: BTreeMap<TableId, Table>,
    /// By keyspace of the backup and vnode there: whose copies are read.
    copies: BTreeMap<KeyspaceId, Vec<Vec<NodeId>>>,
    /// Names that have come.
    seen: Gathered,
    /// The last piece of each node that was read.
    read: BTreeMap<NodeId, u64>,
}

impl<'a> Tail<'a> {
    fn new(job: &'a Job, moment: &Moment) -> Tail<'a> {
        let (bits, source_bits) = (job.owned.bits, moment.vnode_bits());
        let mut tail = Tail {
            job,
            at: moment.at,
            source_bits,
            tables: BTreeMap::new(),
            copies: BTreeMap::new(),
            seen: Gathered::default(),
            read: BTreeMap::new(),
        };
        for ((source, id), vnodes) in job.order.tables.iter().zip(&job.owned.vnodes) {
            let mut is_own = vec![false; bits.count() as usize];
            vnodes.iter().for_each(|vnode| is_own[vnode.0 as usize] = true);
            tail.tables.insert(*source, Table { id: *id, is_own, memtable: Arc::default(), stamps: None });
            if let Some(table) = moment.state.table(*source) {
                let copies = |vnode| moment.copies((table.keyspace, Vnode(vnode)));
                let all = || (0..source_bits.count()).map(copies).collect();
                tail.copies.entry(table.keyspace).or_insert_with(all);
            }
        }
        tail
    }

    fn apply(&mut self, node: NodeId, source: &Source, piece: &Piece) -> Result<()> {
        let mut applied = 0;
        let outcome = piece.for_each(|logged| {
            applied += u64::from(self.take(node, source, &logged)?);
            Ok(())
        });
        self.job.share.progress.records.fetch_add(applied, Ordering::Relaxed);
        outcome.map_err(|error| error.in_file(Path::new(&piece.head.key()), 0))
    }

    /// Whether the record was wanted.
    fn take(&mut self, node: NodeId, source: &Source, logged: &Logged) -> Result<bool> {
        let record = &logged.record;
        let Some(table) = self.tables.get_mut(&record.table()) else { return Ok(false) };
        let vnode = self.job.owned.bits.vnode(record.token());
        if record.stamp() > self.at || !table.is_own[vnode.0 as usize] {
            return Ok(false);
        }
        let there = self.source_bits.vnode(record.token());
        let copies = self.copies.get(&record.keyspace()).and_then(|vnodes| vnodes.get(there.0 as usize));
        if !copies.is_some_and(|nodes| nodes.contains(&node)) {
            return Ok(false);
        }
        let is_new = |(slice, name)| self.seen.add(slice, name);
        if source.is_in_files(logged) || !record.name(self.source_bits).is_none_or(is_new) {
            return Ok(false);
        }
        table.memtable.insert(record.token(), &record.mutation()?)?;
        let (least, greatest) = table.stamps.unwrap_or((record.stamp(), record.stamp()));
        table.stamps = Some((least.min(record.stamp()), greatest.max(record.stamp())));
        Ok(true)
    }

    fn bytes(&self) -> u64 {
        self.tables.values().map(|table| table.memtable.bytes()).sum()
    }

    /// Makes files of what is in memory, and notes what was read.
    fn flush(&mut self) -> Result<(), Error> {
        let (job, store) = (self.job, &self.job.ground.store);
        for table in self.tables.values_mut() {
            let Some(stamps) = table.stamps.take() else { continue };
            let memtable = std::mem::take(&mut table.memtable);
            let expected = Expected {
                stamps,
                density_bytes: memtable.bytes() as f64,
                partitions: memtable.partitions(),
                rows: memtable.bytes() / ROW_IN_MEMORY_LEAST_BYTES,
            };
            let mut all = memtable.scan(ScanRange::default(), &[RowSlice::all()], Direction::Forward);
            let files = store.loader(table.id)?.write(&mut all, &expected)?;
            let bytes: u64 = files.iter().map(|file| file.bytes).sum();
            store.load(table.id, files)?;
            job.share.progress.bytes_loaded.fetch_add(bytes, Ordering::Relaxed);
        }
        job.note(|notes| notes.logs.extend(&self.read))
    }
}
