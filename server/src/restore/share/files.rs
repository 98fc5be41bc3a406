//! The files of a table: group by group of the node's own vnodes, whatever vnodes the backup had.
//!
//! A group is as many vnodes as are worth a file. It is read in the order of the ring, merged, written anew under the table's
//! id here, and live before the next one is noted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use trefoil::Result;
use trefoil::codec::EncodedRow;
use trefoil::model::{Fragment, Stamp, Stream, TableId, TokenRange, Vnode};
use trefoil::sstable::FragmentStream;
use trefoil::store::Expected;
use trefoil_s3::repository::{Moment, Repository, TableAt};

use super::WORKERS;
use super::job::{Failure, Job};
use super::notes::runs;

/// What a group has about, in bytes of the backup's files.
const GROUP_BYTES: u64 = 64 << 20;

/// What is known beforehand of a table's data.
struct Facts {
    /// Bytes of one copy of all of it.
    copy_bytes: u64,
    stamps: (Stamp, Stamp),
}

impl Facts {
    /// `None` if there are no files.
    fn of(moment: &Moment, table: TableId) -> Option<Facts> {
        let files = moment.sources.values().flat_map(|source| &source.part.files);
        let metas = files.map(|file| &file.meta).filter(|meta| meta.table == table);
        let (mut bytes, mut stamps) = (0_u64, None);
        for meta in metas {
            let (least, greatest) = stamps.unwrap_or(meta.stamps);
            stamps = Some((meta.stamps.0.min(least), meta.stamps.1.max(greatest)));
            bytes = bytes.saturating_add(meta.bytes);
        }
        let keyspace = moment.state.table(table).and_then(|table| moment.state.keyspace(table.keyspace));
        let copies = keyspace.map_or(1, |keyspace| moment.state.ring().replicas_of(keyspace, Vnode(0)).len().max(1));
        Some(Facts { copy_bytes: bytes / copies as u64, stamps: stamps? })
    }
}

impl Job {
    /// Loads what the files of the backup hold of these vnodes of a table.
    pub(super) fn load_files(
        &self,
        repository: &Repository,
        moment: &Arc<Moment>,
        (source, table): (TableId, TableId),
        vnodes: &[Vnode],
    ) -> Result<(), Failure> {
        let left = self.left(table, vnodes);
        self.share.progress.steps_done.fetch_add((vnodes.len() - left.len()) as u64, Ordering::Relaxed);
        let Some(facts) = Facts::of(moment, source) else {
            self.share.progress.steps_done.fetch_add(left.len() as u64, Ordering::Relaxed);
            return Ok(());
        };
        let Some(keyspace) = moment.state.table(source).map(|table| table.keyspace) else { return Ok(()) };
        let at = TableAt::new(repository, moment, (keyspace, source), self.ground.runtime.clone());
        let loading = Loading { job: self, at: Arc::new(at), facts, table, told: Mutex::default() };
        let own_bytes = loading.facts.copy_bytes as f64 * vnodes.len() as f64 / f64::from(self.owned.bits.count());
        let groups = ((own_bytes / GROUP_BYTES as f64).ceil() as usize).clamp(1, left.len().max(1));
        loading.all(&left.chunks(left.len().div_ceil(groups).max(1)).collect::<Vec<_>>())
    }
}

/// A table whose files are being loaded.
struct Loading<'a> {
    job: &'a Job,
    at: Arc<TableAt>,
    facts: Facts,
    table: TableId,
    /// What was counted already of what was fetched: bytes and requests.
    told: Mutex<(u64, u64)>,
}

impl Loading<'_> {
    /// Several at once. The first failure ends all.
    fn all(&self, groups: &[&[Vnode]]) -> Result<(), Failure> {
        let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let failure: Mutex<Option<Failure>> = Mutex::default();
        let work = || {
            while !has_failed.load(Ordering::Relaxed)
                && let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed))
            {
                if let Err(error) = self.one(group) {
                    has_failed.store(true, Ordering::Relaxed);
                    failure.lock().get_or_insert_with(|| error.into());
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..WORKERS.min(groups.len()) {
                scope.spawn(work);
            }
            work();
        });
        self.count();
        failure.into_inner().map_or(Ok(()), Err)
    }

    fn one(&self, group: &[Vnode]) -> Result<()> {
        let Loading { job, at, facts, table, .. } = self;
        job.proceed()?;
        let bits = job.owned.bits;
        let ranges: Vec<TokenRange> = runs(&group.iter().copied().collect())
            .into_iter()
            .map(|(first, last)| TokenRange { after: bits.range(Vnode(first)).after, ..bits.range(Vnode(last)) })
            .collect();
        let (partitions, rows) = at.contents(&ranges)?;
        let expected = Expected { stamps: facts.stamps, density_bytes: facts.copy_bytes as f64, partitions, rows };
        let mut stream = InTurn { job, at, ranges: ranges.into_iter(), present: None };
        let store = &job.ground.store;
        let files = store.loader(*table)?.write(&mut stream, &expected)?;
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        store.load(*table, files)?;
        job.note(|notes| notes.vnodes.entry(*table).or_insert_with(BTreeSet::new).extend(group))?;
        job.share.progress.bytes_loaded.fetch_add(bytes, Ordering::Relaxed);
        job.share.progress.steps_done.fetch_add(group.len() as u64, Ordering::Relaxed);
        self.count();
        Ok(())
    }

    /// Counts what was fetched since this was called before.
    fn count(&self) {
        let mut told = self.told.lock();
        let (bytes, requests) = self.at.fetched();
        let progress = &self.job.share.progress;
        let more = |counter: &AtomicU64, now: u64, before: u64| counter.fetch_add(now - before, Ordering::Relaxed);
        more(&progress.bytes_fetched, bytes, told.0);
        more(&progress.requests, requests, told.1);
        *told = (bytes, requests);
    }
}

/// What the files hold of some ranges, one after the other.
struct InTurn<'a> {
    job: &'a Job,
    at: &'a Arc<TableAt>,
    ranges: std::vec::IntoIter<TokenRange>,
    present: Option<FragmentStream>,
}

impl Stream<EncodedRow> for InTurn<'_> {
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        loop {
            if let Some(present) = &mut self.present {
                let next = present.next()?;
                if let Some(Fragment::Partition(_)) = &next {
                    self.job.proceed()?;
                }
                if next.is_some() {
                    return Ok(next);
                }
            }
            let Some(range) = self.ranges.next() else { return Ok(None) };
            self.present = Some(self.at.files(range));
        }
    }
}
