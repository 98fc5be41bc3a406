//! The thread of a share: what is to be done, in order, and why it ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use trefoil::Error;
use trefoil::model::{TableId, Vnode};
use trefoil_s3::repository::{Moment, Repository};
use trefoil_s3::{Class, Limits};

use super::notes::{Notes, NotesFile};
use super::order::{Order, Owned};
use super::{Ground, Share, Standing};

/// Why a share has stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// For people; names the object, if one is to blame.
    pub(super) reason: String,
    /// Whether going on may help.
    pub(super) retry: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let retry = !matches!(error, Error::Corrupt(_) | Error::Version { .. } | Error::Invalid { .. });
        Failure { reason: error.to_string(), retry }
    }
}

impl From<trefoil_s3::Error> for Failure {
    fn from(error: trefoil_s3::Error) -> Failure {
        // Who is denied may be let in a moment later, by whoever reads this.
        let retry = matches!(error.class, Class::Retry | Class::Denied | Class::Conflict);
        Failure { reason: error.to_string(), retry }
    }
}

/// What a share has to do.
pub(super) struct Job {
    pub(super) ground: Arc<Ground>,
    pub(super) share: Arc<Share>,
    pub(super) order: Order,
    pub(super) owned: Owned,
    pub(super) notes: Mutex<Notes>,
    pub(super) file: NotesFile,
}

impl Job {
    /// Does all of it, unless it fails or is stopped, and tells how it ended.
    pub(super) fn carry_out(self) {
        let restore = self.share.restore;
        let standing = match self.load() {
            Ok(()) => {
                tracing::info!(%restore, "this node's share of a restore is loaded");
                Standing::Done
            }
            Err(failure) => {
                tracing::error!(%restore, reason = failure.reason, "this node's share of a restore has stopped");
                Standing::Stopped(failure)
            }
        };
        *self.share.standing.lock() = standing;
    }

    fn load(&self) -> Result<(), Failure> {
        let Order { location, cluster, backup, through, bytes_per_s, .. } = &self.order;
        let runtime = &self.ground.runtime;
        let limits = Limits { bytes_per_s: *bytes_per_s, ..Limits::default() };
        let bucket = runtime.block_on(self.ground.buckets.open(location.clone(), limits))?;
        let repository = Repository::new(bucket, *cluster);
        let moment = Arc::new(runtime.block_on(repository.moment(*through, Some(*backup), |_| true))?);
        self.check_tables(&moment)?;
        let pieces: usize = moment.sources.values().map(|source| source.pieces.len()).sum();
        let vnodes: usize = self.owned.vnodes.iter().map(Vec::len).sum();
        self.share.progress.steps.store((pieces + vnodes) as u64, Ordering::Relaxed);
        for (number, (source, table)) in self.order.tables.iter().enumerate() {
            self.load_files(&repository, &moment, (*source, *table), &self.owned.vnodes[number])?;
        }
        self.load_logs(&repository, &moment)?;
        self.note(|notes| notes.is_done = true)?;
        Ok(())
    }

    fn check_tables(&self, moment: &Moment) -> Result<(), Failure> {
        match self.order.tables.iter().find(|(source, _)| moment.state.table(*source).is_none()) {
            None => Ok(()),
            Some((source, _)) => {
                let (backup, at) = (self.order.backup, self.order.through.0);
                let reason = format!("backup {backup} knows no table {source} at {at} µs");
                Err(Failure { reason, retry: false })
            }
        }
    }

    /// An error if the share is to stop.
    pub(super) fn proceed(&self) -> Result<(), Error> {
        if self.share.stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Makes notes of what is live.
    pub(super) fn note(&self, change: impl FnOnce(&mut Notes)) -> Result<(), Error> {
        let mut notes = self.notes.lock();
        change(&mut notes);
        self.file.write(&notes)
    }

    /// The vnodes of a table whose files are not loaded yet.
    pub(super) fn left(&self, table: TableId, vnodes: &[Vnode]) -> Vec<Vnode> {
        let notes = self.notes.lock();
        let is_loaded = |vnode: &Vnode| notes.vnodes.get(&table).is_some_and(|loaded| loaded.contains(vnode));
        vnodes.iter().filter(|vnode| !is_loaded(vnode)).copied().collect()
    }
}
