//! Which hint for a node goes out next, how fast, and when it is given up: decisions only, no files and no peers.
//!
//! ```text
//!   log ──load──► window:  done | sent | sent | waiting | waiting      few hints, few bytes, in the order of the log
//!                   └─ acknowledged up to here                         sends wait for the node, for back-off, for the throttle
//! ```
//!
//! **Invariants:** the window bounds what is held in memory (B119) · what is acknowledged is a prefix of the log: a hint
//! that goes out again and again holds back those files that are behind it, and never loses one · what the node has no room
//! for now goes out later, not faster.

use std::collections::VecDeque;

use super::{Hint, Place, Stored};
use crate::model::Instant;

/// What the smallest hint counts as by the throttle: taking it in costs the node more than its bytes do.
const COST_LEAST_BYTES: usize = 1 << 10;

/// How often a hint that comes too late is sent once more: a node that has just come back takes old writes only once another
/// replica has told it of them.
const LATE_MAX: u32 = 5;

/// Bounds of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Hints in memory at once.
    pub window_hints: usize,
    /// Bytes of records in memory at once; a single one may be larger.
    pub window_bytes: usize,
    /// Bytes of records in a second; each counts as a KiB at least.
    pub bytes_per_s: u64,
    /// Hints older than this are not delivered any more, in microseconds.
    pub kept_us: i64,
    /// The pause after a first refusal, in microseconds; it doubles with each further one.
    pub pause_min_us: u64,
    /// The longest pause.
    pub pause_max_us: u64,
}

/// The clocks as they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Drives pauses and the throttle.
    pub instant: Instant,
    /// Tells how old hints are, in microseconds since 1970.
    pub wall_us: i64,
}

/// Whether the node that is to have the hints can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It is seen alive.
    Alive,
    /// It is not, or nothing is to be sent: hints only grow old.
    Away,
}

/// What became of a hint that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The node has it.
    Acknowledged,
    /// It comes too late: the node has purged what this might have changed, or knows no other replica that has it.
    TooLate,
    /// The node can never take it.
    Unacceptable,
    /// Not now: the node has no room, or does not agree on the placement or the schema yet.
    NotNow,
    /// Nobody knows: the connection broke, or no answer came.
    Lost,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read about so many bytes of hints from here on, and tell by [`Delivery::loaded`].
    Load(Place, usize),
    /// Send this hint, and tell by [`Delivery::outcome`] of the place what became of it.
    Send(Place, Hint),
    /// Nothing before this; `None`: before something happens.
    Wait(Option<Instant>),
}

/// What was done, in hints, since the delivery began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// The node has them.
    pub delivered: u64,
    /// They were too old to be sent.
    pub expired: u64,
    /// They came too late to have an effect.
    pub too_late: u64,
    /// The node could not take them, ever.
    pub unacceptable: u64,
}

/// The delivery of the hints for one node.
#[derive(Debug)]
pub struct Delivery {
    limits: Limits,
    window: VecDeque<Slot>,
    /// Bytes of the records in the window.
    held_bytes: usize,
    /// Where to read on.
    next: Place,
    /// What is done before this.
    acknowledged: Place,
    /// Nothing is sent before.
    not_before: Instant,
    pause_us: u64,
    /// Bytes that may be sent now, and when that was so; below 0 while a large one is paid off.
    allowance: i64,
    refilled: Option<Instant>,
    counts: Counts,
}

#[derive(Debug)]
struct Slot {
    end: Place,
    state: State,
    /// How often it came too late.
    late: u32,
}

#[derive(Debug)]
enum State {
    Waiting(Hint),
    Sent(Hint),
    Done,
}

impl Delivery {
    /// A delivery of what is behind `from`.
    pub fn new(limits: Limits, from: Place) -> Delivery {
        Delivery {
            limits,
            window: VecDeque::new(),
            held_bytes: 0,
            next: from,
            acknowledged: from,
            not_before: Instant(0),
            pause_us: 0,
            allowance: 0,
            refilled: None,
            counts: Counts::default(),
        }
    }

    /// Begins again behind `from`: what is under way is not waited for.
    pub fn restart(&mut self, from: Place) {
        self.window.clear();
        self.held_bytes = 0;
        (self.next, self.acknowledged) = (from, from);
    }

    /// The node has come back: there is no reason to wait any longer.
    pub fn came_back(&mut self) {
        (self.not_before, self.pause_us) = (Instant(0), 0);
    }

    /// What to do next; `end` is where the log ends.
    pub fn step(&mut self, end: Place, reach: Reach, now: Now) -> Step {
        self.expire(now.wall_us);
        if reach == Reach::Away {
            // One hint is looked at, to see when it grows too old.
            let may_load = self.next < end && self.window.is_empty();
            return if may_load { Step::Load(self.next, 1) } else { Step::Wait(None) };
        }
        if now.instant < self.not_before {
            return Step::Wait(Some(self.not_before));
        }
        let is_waiting = |slot: &Slot| matches!(slot.state, State::Waiting(_));
        let Some(at) = self.window.iter().position(is_waiting) else {
            let room = self.limits.window_bytes.saturating_sub(self.held_bytes);
            let may_load = self.next < end && room > 0 && self.window.len() < self.limits.window_hints;
            return if may_load { Step::Load(self.next, room) } else { Step::Wait(None) };
        };
        if let Some(later) = self.throttled_until(now.instant) {
            return Step::Wait(Some(later));
        }
        let slot = &mut self.window[at];
        let State::Waiting(hint) = std::mem::replace(&mut slot.state, State::Done) else {
            return Step::Wait(None);
        };
        slot.state = State::Sent(hint.clone());
        self.allowance -= hint.record.len().max(COST_LEAST_BYTES) as i64;
        Step::Send(slot.end, hint)
    }

    /// Takes in hints that were read, and where to read on. What does not fit in the window is left in the log.
    pub fn loaded(&mut self, hints: Vec<Stored>, next: Place) {
        self.next = next;
        for Stored { end, hint } in hints {
            let is_full = self.held_bytes >= self.limits.window_bytes || self.window.len() >= self.limits.window_hints;
            if is_full && !self.window.is_empty() {
                // Read again from here.
                self.next = self.window.back().map_or(next, |slot| slot.end);
                return;
            }
            self.held_bytes += hint.record.len();
            self.window.push_back(Slot { end, state: State::Waiting(hint), late: 0 });
        }
        self.advance();
    }

    /// What became of the hint that ends at `place`. One that is not under way is not known any more.
    pub fn outcome(&mut self, place: Place, outcome: Outcome, now: Instant) {
        let Ok(at) = self.window.binary_search_by(|slot| slot.end.cmp(&place)) else { return };
        let slot = &mut self.window[at];
        // Whoever waits to be sent again does not care what became of the time before.
        if !matches!(slot.state, State::Sent(_)) {
            return;
        }
        let State::Sent(hint) = std::mem::replace(&mut slot.state, State::Done) else { return };
        match outcome {
            Outcome::Acknowledged => {
                self.counts.delivered += 1;
                self.pause_us = 0;
            }
            Outcome::TooLate if slot.late < LATE_MAX => {
                slot.late += 1;
                slot.state = State::Waiting(hint);
                return self.back_off(now);
            }
            Outcome::TooLate => self.counts.too_late += 1,
            Outcome::Unacceptable => self.counts.unacceptable += 1,
            Outcome::NotNow | Outcome::Lost => {
                self.window[at].state = State::Waiting(hint);
                return self.back_off(now);
            }
        }
        self.held_bytes -= hint.record.len();
        self.advance();
    }

    /// Everything before this is done.
    pub fn acknowledged(&self) -> Place {
        self.acknowledged
    }

    /// What was done.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes of records in memory.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// One pause for all that were under way together.
    fn back_off(&mut self, now: Instant) {
        if now < self.not_before {
            return;
        }
        let Limits { pause_min_us, pause_max_us, .. } = self.limits;
        self.pause_us = self.pause_us.saturating_mul(2).clamp(pause_min_us, pause_max_us);
        self.not_before = now.plus_us(self.pause_us);
    }

    fn expire(&mut self, wall_us: i64) {
        for slot in &mut self.window {
            if let State::Waiting(hint) = &slot.state
                && wall_us.saturating_sub(hint.written_at_us) > self.limits.kept_us
            {
                self.held_bytes -= hint.record.len();
                self.counts.expired += 1;
                slot.state = State::Done;
            }
        }
        self.advance();
    }

    fn advance(&mut self) {
        while let Some(Slot { end, state: State::Done, .. }) = self.window.front() {
            self.acknowledged = *end;
            self.window.pop_front();
        }
        if self.window.is_empty() {
            self.acknowledged = self.next;
        }
    }

    /// When bytes may be sent again; `None`: now. What was not used is kept for a second.
    fn throttled_until(&mut self, now: Instant) -> Option<Instant> {
        let per_s = i64::try_from(self.limits.bytes_per_s).unwrap_or(i64::MAX).max(1);
        let passed_us = self.refilled.map_or(1_000_000, |before| now.since_us(before).min(60_000_000)) as i64;
        let gained = (i128::from(per_s) * i128::from(passed_us) / 1_000_000) as i64;
        if gained > 0 {
            self.allowance = self.allowance.saturating_add(gained).min(per_s);
            self.refilled = Some(now);
        }
        if self.allowance > 0 {
            return None;
        }
        let missing_us = (i128::from(1 - self.allowance) * 1_000_000).div_euclid(i128::from(per_s)) + 1;
        Some(now.plus_us(u64::try_from(missing_us).unwrap_or(u64::MAX)))
    }
}
