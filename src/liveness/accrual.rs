//! How much the silence of one connection says, by how regularly it was heard before.
//!
//! The phi accrual detector (Hayashibara, Défago, Yared, Katayama: The phi accrual failure detector, 2004). Intervals between
//! heartbeats are taken for normally distributed; `phi` is how unlikely it is that the next one still comes, as a power of
//! ten: at 8 one in a hundred million. A connection whose heartbeats come irregularly is therefore given more time. Mean
//! and deviation move with each heartbeat, so there is no window to keep.
//!
//! Time is monotonic and handed in: what anybody does to the wall clock does not matter.

use crate::model::Instant;

/// How often each side sends a heartbeat, in microseconds.
pub const HEARTBEAT_US: u64 = 500_000;

/// Silence after which nobody is taken for alive, however irregular its heartbeats, in microseconds.
pub const SILENCE_MAX_US: u64 = 3_000_000;

/// A pause that is nothing unusual: a process that waits for its disk or its turn.
const PAUSE_US: f64 = 1_200_000.0;

/// Even the most regular heartbeats are taken to vary so much.
const DEVIATION_MIN_US: f64 = 150_000.0;

/// The doubt at which a connection counts as silent.
const PHI_MAX: f64 = 8.0;

/// How much one interval moves what is known.
const STEP: f64 = 1.0 / 16.0;

/// What is known of one connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accrual {
    mean_us: f64,
    variance: f64,
    beat: Option<Instant>,
    heard: Instant,
}

impl Accrual {
    /// A connection that is made now.
    pub fn new(now: Instant) -> Accrual {
        let variance = DEVIATION_MIN_US * DEVIATION_MIN_US;
        Accrual { mean_us: HEARTBEAT_US as f64, variance, beat: None, heard: now }
    }

    /// Something came.
    pub fn heard(&mut self, now: Instant) {
        self.heard = self.heard.max(now);
    }

    /// A heartbeat came.
    pub fn heartbeat(&mut self, now: Instant) {
        if let Some(before) = self.beat {
            let off = now.since_us(before) as f64 - self.mean_us;
            self.mean_us += off * STEP;
            self.variance = (1.0 - STEP) * (self.variance + off * off * STEP);
        }
        self.beat = Some(now);
        self.heard(now);
    }

    /// How long nothing has come, in microseconds.
    pub fn silence_us(&self, now: Instant) -> u64 {
        now.since_us(self.heard)
    }

    /// The doubt that anything comes any more.
    pub fn phi(&self, now: Instant) -> f64 {
        let deviation = self.variance.sqrt().max(DEVIATION_MIN_US);
        let late = (self.silence_us(now) as f64 - self.mean_us - PAUSE_US) / deviation;
        if late <= 0.0 {
            return 0.0;
        }
        // The tail of the normal distribution, by its logistic approximation.
        let odds = (-late * (1.597_6 + 0.070_566 * late * late)).exp();
        -(odds / (1.0 + odds)).max(f64::MIN_POSITIVE).log10()
    }

    /// Whether it is silent for so long that it must be taken for broken.
    pub fn is_silent(&self, now: Instant) -> bool {
        self.silence_us(now) > SILENCE_MAX_US || self.phi(now) > PHI_MAX
    }
}
