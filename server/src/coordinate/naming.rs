//! Names and stamps for the mutations that this node coordinates.

use parking_lot::{Mutex, MutexGuard};
use trefoil::model::{KeyspaceId, MutationName, Stamp, Vnode};
use trefoil::received::namer::{ClockAhead, HybridClock, Namer, Tick};

use crate::clock;

/// The node's clock and namer. One lock: stamps must rise with the sequence.
pub struct Naming {
    state: Mutex<State>,
}

struct State {
    clock: HybridClock,
    namer: Namer,
    /// Why the ceiling could not be raised when it was tried last.
    obstacle: Option<String>,
}

/// Why no stamp can be given now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoStamp {
    /// The wall clock is behind what the node has seen or promised, by this many microseconds.
    Behind(i64),
    /// The ceiling on disk has been reached and is being raised.
    Ceiling,
    /// The ceiling on disk has been reached and cannot be raised, for this reason.
    Stuck(String),
}

/// The right to name: hold it from the stamp to the moment the mutation is queued.
pub struct Turn<'a> {
    state: MutexGuard<'a, State>,
    /// The stamp of this turn.
    pub stamp: Stamp,
}

impl Naming {
    /// Names by `namer`, stamped by `clock`.
    pub fn new(clock: HybridClock, namer: Namer) -> Naming {
        Naming { state: Mutex::new(State { clock, namer, obstacle: None }) }
    }

    /// Takes the next stamp, later than `observed` if that is credible.
    pub fn turn(&self, observed: Stamp) -> Result<Turn<'_>, NoStamp> {
        let mut state = self.state.lock();
        let wall_us = clock::wall_us();
        // A client's word that is too far ahead is not taken into the clock: it may come from a node that is wrong.
        let _ = state.clock.observe(observed, wall_us);
        match state.clock.next(wall_us) {
            Tick::Stamp(stamp) => Ok(Turn { state, stamp }),
            Tick::Raise(_) => Err(state.obstacle.clone().map_or(NoStamp::Ceiling, NoStamp::Stuck)),
            Tick::Ahead(behind_us) => Err(NoStamp::Behind(behind_us)),
        }
    }

    /// Takes note of a stamp from elsewhere; an error if it is too far ahead of this node's clock.
    pub fn observe(&self, stamp: Stamp) -> Result<(), ClockAhead> {
        self.state.lock().clock.observe(stamp, clock::wall_us())
    }

    /// Up to which stamp it can be promised now to take nothing new. Whatever is named from now on
    /// is stamped later, and what was named before is in the queue of the log.
    pub fn closable(&self) -> Stamp {
        self.state.lock().clock.closable(clock::wall_us())
    }

    /// The ceiling that should be made durable now, if any.
    pub fn ceiling_wanted(&self) -> Option<Stamp> {
        self.state.lock().clock.wants_ceiling(clock::wall_us())
    }

    /// The ceiling is on disk.
    pub fn ceiling_raised(&self, ceiling: Stamp) {
        let mut state = self.state.lock();
        state.clock.raised(ceiling);
        state.obstacle = None;
    }

    /// The ceiling could not be made durable; it will be tried again.
    pub fn ceiling_not_raised(&self, reason: String) {
        self.state.lock().obstacle = Some(reason);
    }

    /// Why no more mutations can be named soon, or now, if that is so.
    pub fn obstacle(&self) -> Option<String> {
        self.state.lock().obstacle.clone()
    }
}

impl Turn<'_> {
    /// The name of this turn's mutation.
    pub fn name(&mut self, keyspace: KeyspaceId, vnode: Vnode) -> MutationName {
        self.state.namer.name(keyspace, vnode)
    }
}
