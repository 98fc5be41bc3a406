//! Which compactions are under way, and which files are not to be tried for a while.
//!
//! **Invariant:** a file is an input of one compaction at a time. Claims are made and given back under one lock, and given
//! back only once the view no longer lists what was replaced.
//!
//! A compaction that fails sets aside the file that its error names, or all of its inputs, so that it neither takes the
//! place of others nor is tried in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use uuid::Uuid;

use super::table::Table;
use super::view::LiveFile;
use crate::compaction::Action;

/// So long, in seconds, nothing is tried with files whose compaction failed.
const ASIDE_S: i64 = 30;

/// So long, in seconds, a file that has expired and is still needed is not looked at again.
const NEEDED_S: i64 = 60;

#[derive(Default)]
pub(super) struct Compacting(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    running: BTreeMap<u64, Arc<Running>>,
    /// Not to be touched before this second.
    aside: BTreeMap<Uuid, i64>,
    /// Not to be dropped before this second.
    needed: BTreeMap<Uuid, i64>,
}

/// A compaction that is being carried out.
pub(super) struct Running {
    number: u64,
    pub(super) action: Action,
    pub(super) table: Arc<Table>,
    pub(super) inputs: Vec<Arc<LiveFile>>,
    /// Bytes of the inputs that were read so far.
    pub(super) read: Arc<AtomicU64>,
}

impl Running {
    pub(super) fn bytes(&self) -> u64 {
        self.inputs.iter().map(|file| file.meta.bytes).sum()
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed).min(self.bytes())
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = Uuid> {
        self.inputs.iter().map(|file| file.meta.id)
    }
}

/// What a chooser sees.
pub(super) struct Busy {
    /// Claimed, or set aside.
    pub(super) files: BTreeSet<Uuid>,
    /// Found to be needed a short while ago.
    pub(super) needed: BTreeSet<Uuid>,
    /// Set aside.
    pub(super) aside: BTreeSet<Uuid>,
}

/// What is to be done with which files of a table.
pub(super) type Job = (Action, Arc<Table>, Vec<Arc<LiveFile>>);

/// Inputs that are this compaction's alone until it is dropped.
pub(super) struct Claim<'a> {
    all: &'a Compacting,
    pub(super) running: Arc<Running>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.all.0.lock().running.remove(&self.running.number);
    }
}

impl Compacting {
    /// Claims what `choose` chooses; nothing is claimed or given back meanwhile.
    pub(super) fn claim(&self, now_s: i64, choose: impl FnOnce(&Busy) -> Option<Job>) -> Option<Claim<'_>> {
        let mut state = self.0.lock();
        state.forget(now_s);
        let (action, table, inputs) = choose(&state.busy())?;
        state.next += 1;
        let running = Arc::new(Running { number: state.next, action, table, inputs, read: Arc::default() });
        state.running.insert(running.number, running.clone());
        Some(Claim { all: self, running })
    }

    /// What a chooser would see.
    pub(super) fn busy(&self, now_s: i64) -> Busy {
        let mut state = self.0.lock();
        state.forget(now_s);
        state.busy()
    }

    /// What is being carried out, in the order in which it was begun.
    pub(super) fn running(&self) -> Vec<Arc<Running>> {
        self.0.lock().running.values().cloned().collect()
    }

    pub(super) fn set_aside(&self, files: impl IntoIterator<Item = Uuid>, now_s: i64) {
        let until = now_s.saturating_add(ASIDE_S);
        self.0.lock().aside.extend(files.into_iter().map(|file| (file, until)));
    }

    /// These files are damaged: they are set aside for as long as they are there.
    pub(super) fn give_up(&self, file: Uuid) {
        self.0.lock().aside.insert(file, i64::MAX);
    }

    pub(super) fn are_needed(&self, files: impl IntoIterator<Item = Uuid>, now_s: i64) {
        let until = now_s.saturating_add(NEEDED_S);
        self.0.lock().needed.extend(files.into_iter().map(|file| (file, until)));
    }
}

impl State {
    fn forget(&mut self, now_s: i64) {
        self.aside.retain(|_, until| *until > now_s);
        self.needed.retain(|_, until| *until > now_s);
    }

    fn busy(&self) -> Busy {
        let claimed = self.running.values().flat_map(|running| running.ids());
        Busy {
            files: claimed.chain(self.aside.keys().copied()).collect(),
            needed: self.needed.keys().copied().collect(),
            aside: self.aside.keys().copied().collect(),
        }
    }
}
