//! Files are read again now and then, though nobody asks for them, and compared with their hashes: damage is to be found
//! while other replicas can still help, not by the read that needs the file.
//!
//! ```text
//!   period   ├───────────┬───────────────────────┬───────────────────────┬──►  time
//!   file a         turn ─┘ (its id says where)    └─ turn again           └─ ...
//! ```
//!
//! Each file has its turn once in a period, at a moment that follows from its id alone. So turns are spread evenly, and
//! nothing has to be kept on disk for that to hold over restarts: a run begins with the turns of the day before it, lest a
//! node that is started often passes over some for ever. Whatever waits longest comes first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use super::Store;
use super::table::Table;
use super::view::LiveFile;
use crate::compaction::{Pace, Proceed};
use crate::{Error, Result};

/// A run begins with the turns of so many seconds before it.
const BEFORE_START_S: i64 = 24 * 3_600;

/// What was read so far.
#[derive(Default)]
pub(super) struct Scrub(pub(super) Mutex<State>);

#[derive(Default)]
pub(super) struct State {
    /// Turns before this second are those of an earlier run.
    since_s: Option<i64>,
    /// When each live file was read last in this run.
    pub(super) read_s: BTreeMap<Uuid, i64>,
    files: u64,
    bytes: u64,
    damaged: u64,
}

/// How far the reading of files has come, for people and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Files that were read whole since the start.
    pub files: u64,
    /// Bytes that were read since the start.
    pub bytes: u64,
    /// Of the files those that were found damaged.
    pub damaged: u64,
    /// Files whose turn has come and that are not read yet.
    pub waiting_files: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
}

/// A file whose turn has come.
struct Turn {
    table: Arc<Table>,
    file: Arc<LiveFile>,
    /// Since when it waits: when it was read last, then when its turn came.
    since_s: (i64, i64),
}

impl Store {
    /// Reads the file that has waited longest of those whose turn has come and compares it with its hash; one that is damaged
    /// is quarantined. Answers whether there was one. Each has its turn once in `period_s` seconds, `now_s` is the present
    /// one. One thread at a time.
    ///
    /// # Errors
    /// [`Error::Stopped`] if `pace` said so: the file is begun anew. After any other error its turn is over.
    pub fn scrub_next(&self, now_s: i64, period_s: i64, pace: &dyn Pace) -> Result<bool> {
        let Some(turn) = self.turns(now_s, period_s).into_iter().min_by_key(|turn| (turn.since_s, turn.file.meta.id))
        else {
            return Ok(false);
        };
        let Turn { table, file, .. } = turn;
        let verified = file.sstable.verify_hash(&file.meta.hash, |bytes| {
            self.scrub.0.lock().bytes += bytes;
            match pace.spend(bytes) {
                Proceed::On => Ok(()),
                Proceed::Stop => Err(Error::Stopped),
            }
        });
        if matches!(verified, Err(Error::Stopped)) {
            return Err(Error::Stopped);
        }
        self.scrub.0.lock().note(file.meta.id, now_s);
        self.is_whole(&table, verified)?;
        Ok(true)
    }

    /// Reads a live file now and compares it with its hash; one that is damaged is quarantined. Answers whether it is whole;
    /// `None` if no live file is called so. Blocks for as long as the whole file takes to read.
    pub fn scrub_file(&self, id: Uuid) -> Result<Option<bool>> {
        let tables = self.memory.tables.load_full();
        let found = tables.values().find_map(|table| {
            let view = table.view();
            view.files.iter().find(|file| file.meta.id == id).map(|file| (table, file.clone()))
        });
        let Some((table, file)) = found else { return Ok(None) };
        let verified = file.sstable.verify_hash(&file.meta.hash, |_| Ok(()));
        self.is_whole(table, verified).map(Some)
    }

    /// What came of a file's reading; damage is dealt with here.
    fn is_whole(&self, table: &Arc<Table>, verified: Result<()>) -> Result<bool> {
        let Err(error) = verified else { return Ok(true) };
        if !self.quarantine_for(table, &error) {
            return Err(error);
        }
        self.scrub.0.lock().damaged += 1;
        Ok(false)
    }

    /// See [`ScrubStatus`].
    pub fn scrub_status(&self, now_s: i64, period_s: i64) -> ScrubStatus {
        let waiting = self.turns(now_s, period_s);
        let state = self.scrub.0.lock();
        ScrubStatus {
            files: state.files,
            bytes: state.bytes,
            damaged: state.damaged,
            waiting_files: waiting.len() as u64,
            waiting_bytes: waiting.iter().map(|turn| turn.file.meta.bytes).sum(),
        }
    }

    fn turns(&self, now_s: i64, period_s: i64) -> Vec<Turn> {
        let period_s = period_s.max(1);
        let tables = self.memory.tables.load_full();
        let live: Vec<_> = tables.values().map(|table| (table, table.view())).collect();
        let files = || live.iter().flat_map(|(table, view)| view.files.iter().map(move |file| (*table, file)));
        let mut state = self.scrub.0.lock();
        let begin_s = *state.since_s.get_or_insert(now_s.saturating_sub(period_s.min(BEFORE_START_S)));
        if state.read_s.len() > 2 * files().count() {
            let ids: BTreeSet<Uuid> = files().map(|(_, file)| file.meta.id).collect();
            state.read_s.retain(|id, _| ids.contains(id));
        }
        let turn = |(table, file): (&Arc<Table>, &Arc<LiveFile>)| {
            let turn_s = last_turn(file.meta.id, now_s, period_s);
            let read_s = state.read_s.get(&file.meta.id).copied().unwrap_or(begin_s);
            let turn = || Turn { table: table.clone(), file: file.clone(), since_s: (read_s, turn_s) };
            (turn_s > read_s).then(turn)
        };
        files().filter_map(turn).collect()
    }
}

impl State {
    fn note(&mut self, id: Uuid, now_s: i64) {
        self.read_s.insert(id, now_s);
        self.files += 1;
    }
}

/// The last moment up to now at which it was the file's turn.
fn last_turn(id: Uuid, now_s: i64, period_s: i64) -> i64 {
    let (high, low) = id.as_u64_pair();
    let phase_s = ((high ^ low) >> 1) as i64 % period_s;
    now_s - now_s.wrapping_sub(phase_s).rem_euclid(period_s)
}
