//! What names and stamps the mutations of one run of an origin.
//!
//! ```text
//!   wall ──►  next(wall) = max(wall, last + 1)  ──►  Stamp       while it is below the ceiling on disk
//!   peers ─►  observe(stamp)                         Raise(to)   else: write `to` to the disk, then raised(to), again
//!                                                    Ahead       own wall clock is too far behind: answer CLOCK
//! ```
//!
//! **Invariant:** stamps strictly rise, over restarts too: none is given that is not below a ceiling on disk, and a new
//! run begins above the ceiling it finds. Both machines are pure: time is handed in, and the caller writes to the disk.

use std::collections::HashMap;

use crate::model::{KeyspaceId, MutationName, NodeId, Stamp, Vnode};
use crate::{Error, Result};

/// How far a stamp may lie ahead of one's own wall clock, in microseconds.
pub const AHEAD_MAX_US: i64 = 500_000;

/// How far ahead of the clock a new ceiling is put, in microseconds. Larger: fewer writes to the disk. Smaller: a node
/// that starts again right after a crash waits less until its wall clock reaches the old ceiling.
pub const CEILING_STEP_US: i64 = 2_000_000;

/// How far behind its clock a node promises to take nothing that nobody knows, in microseconds: longer than a mutation
/// is on its way.
pub const CLOSED_BEHIND_US: i64 = 60_000_000;

/// An origin's hybrid logical clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HybridClock {
    /// The largest stamp given or seen.
    last: Stamp,
    /// Stamps up to here may be given: it is on disk.
    ceiling: Stamp,
    /// See [`CLOSED_BEHIND_US`].
    closed_behind_us: i64,
}

/// What the clock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// The next stamp.
    Stamp(Stamp),
    /// None can be given before this ceiling is durable: make it so, call [`HybridClock::raised`] and ask again.
    Raise(Stamp),
    /// The next stamp would lie more than [`AHEAD_MAX_US`] ahead of the wall clock, by this many microseconds, so every
    /// peer would refuse it: the clock was set back, or the node has just started after a crash.
    Ahead(i64),
}

/// A stamp was refused because it lies this many microseconds ahead of the wall clock, more than [`AHEAD_MAX_US`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockAhead(pub i64);

impl HybridClock {
    /// The clock of a new run: behind the ceiling found on disk (`Stamp(0)` if none was ever written) and behind
    /// `seen`, the largest stamp in the node's data.
    pub fn new(ceiling: Stamp, seen: Stamp) -> HybridClock {
        HybridClock { last: ceiling.max(seen), ceiling, closed_behind_us: CLOSED_BEHIND_US }
    }

    /// The same, promising so far behind the clock.
    pub fn closing_behind(self, closed_behind_us: i64) -> HybridClock {
        HybridClock { closed_behind_us, ..self }
    }

    /// Takes the next stamp, if it can be given.
    pub fn next(&mut self, wall_us: i64) -> Tick {
        let stamp = Stamp(wall_us.max(self.last.0.saturating_add(1)));
        let ahead = stamp.0.saturating_sub(wall_us);
        if ahead > AHEAD_MAX_US || stamp <= self.last {
            return Tick::Ahead(ahead);
        }
        if stamp > self.ceiling {
            return Tick::Raise(Stamp(stamp.0.saturating_add(CEILING_STEP_US)));
        }
        self.last = stamp;
        Tick::Stamp(stamp)
    }

    /// Takes note of a stamp that came from elsewhere, so that the next one is later; refuses one that is too far
    /// ahead.
    pub fn observe(&mut self, stamp: Stamp, wall_us: i64) -> Result<(), ClockAhead> {
        let ahead = stamp.0.saturating_sub(wall_us);
        if ahead > AHEAD_MAX_US {
            return Err(ClockAhead(ahead));
        }
        self.last = self.last.max(stamp);
        Ok(())
    }

    /// A ceiling worth making durable now, so that [`HybridClock::next`] need not ask for it: the present one is less
    /// than half a step away.
    pub fn wants_ceiling(&self, wall_us: i64) -> Option<Stamp> {
        let now = wall_us.max(self.last.0);
        (self.ceiling.0.saturating_sub(now) < CEILING_STEP_US / 2).then(|| Stamp(now.saturating_add(CEILING_STEP_US)))
    }

    /// This ceiling is durable. A lower one than before changes nothing.
    pub fn raised(&mut self, ceiling: Stamp) {
        self.ceiling = self.ceiling.max(ceiling);
    }

    /// Up to which stamp the node may promise, [`CLOSED_BEHIND_US`] behind the clock, to take nothing that nobody
    /// knows. Never above what [`HybridClock::closed_at_start`] says after a crash. The promise concerns the node's own
    /// names too, so the clock is behind it from now on.
    pub fn closable(&mut self, wall_us: i64) -> Stamp {
        let now = wall_us.max(self.last.0).min(self.ceiling.0);
        let closable = Stamp(now.saturating_sub(self.closed_behind_us));
        self.last = self.last.max(closable);
        closable
    }

    /// What no promise of an earlier run exceeded, by the ceiling found on disk: a new run keeps it from the start.
    pub fn closed_at_start(&self) -> Stamp {
        Stamp(self.ceiling.0.saturating_sub(self.closed_behind_us))
    }

    /// The largest stamp given or seen.
    pub fn last(&self) -> Stamp {
        self.last
    }

    /// The highest durable ceiling.
    pub fn ceiling(&self) -> Stamp {
        self.ceiling
    }
}

/// Gives the names of one run.
#[derive(Debug, Clone)]
pub struct Namer {
    origin: NodeId,
    incarnation: u64,
    /// The last sequence given.
    last: HashMap<(KeyspaceId, Vnode), u64>,
}

impl Namer {
    /// The namer of a run of `origin` whose first stamp was `start`, durable before the first name is given. An error
    /// if it lies before 1970: incarnations are unsigned.
    pub fn new(origin: NodeId, start: Stamp) -> Result<Namer> {
        let incarnation = u64::try_from(start.0)
            .map_err(|_| Error::invalid("clock", format!("{} µs lies before 1970; set the clock", start.0)))?;
        Ok(Namer { origin, incarnation, last: HashMap::new() })
    }

    /// The next name in this slice of the keyspace. To be taken together with its stamp, so that both rise together.
    pub fn name(&mut self, keyspace: KeyspaceId, vnode: Vnode) -> MutationName {
        let last = self.last.entry((keyspace, vnode)).or_insert(0);
        *last += 1;
        MutationName { origin: self.origin, incarnation: self.incarnation, sequence: *last }
    }

    /// The last sequence given in this slice; 0 if none was.
    pub fn last(&self, keyspace: KeyspaceId, vnode: Vnode) -> u64 {
        self.last.get(&(keyspace, vnode)).copied().unwrap_or(0)
    }

    /// The start stamp of this run.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }
}
