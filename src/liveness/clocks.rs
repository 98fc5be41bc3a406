//! Whose clock is wrong: that of a node from which a majority of all nodes differ the same way.

/// A clock is off once it differs by more than this, in microseconds: before stamps are refused for it.
pub const OFF_US: i64 = 400_000;

/// It is right again below this.
pub const RIGHT_US: i64 = 250_000;

/// Measurements that are looked at together.
const RECENT: usize = 5;

/// What was measured lately of one other clock: how far it is ahead of one's own, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offsets {
    recent: [i64; RECENT],
    count: usize,
}

/// What a node finds of its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OwnClock {
    /// A majority does not say that it is off.
    #[default]
    Right,
    /// It is ahead of the others by so many microseconds; less than 0: behind.
    Off(i64),
}

impl Offsets {
    /// The other clock was so far ahead.
    pub fn measured(&mut self, offset_us: i64) {
        self.recent[self.count % RECENT] = offset_us;
        self.count += 1;
    }

    /// The median of the last measurements, of which one or two may have been held up on the way; `None` before the first.
    pub fn now(&self) -> Option<i64> {
        let mut recent = self.recent;
        let recent = &mut recent[..self.count.min(RECENT)];
        recent.sort_unstable();
        recent.get(recent.len() / 2).copied()
    }
}

impl OwnClock {
    /// What is found next, where the others' clocks are so far ahead. More than half of all nodes, this one counted among
    /// them, must differ from it in the same direction: of two nodes nobody can say which is wrong. What a majority has
    /// found stands until a majority finds otherwise: a wrong clock is no better for being alone.
    pub fn judge(self, offsets: &[i64]) -> OwnClock {
        let nodes = offsets.len() + 1;
        let is_majority = |count: usize| count * 2 > nodes;
        let mut sorted = offsets.to_vec();
        sorted.sort_unstable();
        let off_us = sorted.get(sorted.len() / 2).map(|median| median.saturating_neg());
        let ahead = offsets.iter().filter(|offset| **offset < -OFF_US).count();
        let behind = offsets.iter().filter(|offset| **offset > OFF_US).count();
        let agree = offsets.iter().filter(|offset| offset.unsigned_abs() <= RIGHT_US as u64).count();
        match (self, off_us) {
            (_, Some(off_us)) if is_majority(ahead) || is_majority(behind) => OwnClock::Off(off_us),
            (OwnClock::Off(_), Some(off_us)) if agree == 0 || !is_majority(agree + 1) => OwnClock::Off(off_us),
            (OwnClock::Off(off_us), None) => OwnClock::Off(off_us),
            _ => OwnClock::Right,
        }
    }
}
