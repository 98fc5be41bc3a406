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
    /// them, must differ from it in the same direction: of two nodes nobody can say which is wrong.
    pub fn judge(self, offsets: &[i64]) -> OwnClock {
        let limit = if self == OwnClock::Right { OFF_US } else { RIGHT_US };
        let nodes = offsets.len() + 1;
        let is_majority = |count: usize| count * 2 > nodes;
        let ahead = offsets.iter().filter(|offset| **offset < -limit).count();
        let behind = offsets.iter().filter(|offset| **offset > limit).count();
        if !is_majority(ahead) && !is_majority(behind) {
            return OwnClock::Right;
        }
        let mut sorted = offsets.to_vec();
        sorted.sort_unstable();
        OwnClock::Off(sorted[sorted.len() / 2].saturating_neg())
    }
}
