//! Points in time, as plain numbers that are handed in. The core has no clock.
//!
//! Three kinds that must never be mixed up: a [`Timestamp`] decides which of two writes wins and may be chosen by a
//! client; a [`Stamp`] is an origin's hybrid logical clock and orders mutations causally; an [`Instant`] drives timers
//! and has no meaning outside one process. Seconds since 1970 (expiry, local deletion time, "now" of a request) are
//! `i64` fields whose names end in `_s`.

/// Microseconds since 1970 that decide between two versions of a cell. Any `i64` from [`Timestamp::MIN`] on.
///
/// Absence is always an `Option`, never a special number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The smallest timestamp that a request may carry: the two below it are refused, so that "one before" always exists.
    pub const MIN: Timestamp = Timestamp(i64::MIN + 2);
}

/// Microseconds of an origin's hybrid logical clock, strictly rising with the sequence of the mutations it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp(pub i64);

impl Stamp {
    /// Whole seconds since 1970: what expiry and local deletion time are counted from.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// The last microsecond of a millisecond since 1970: what is stamped so or before is all that people mean by "at" it.
    pub fn last_of_ms(ms: i64) -> Stamp {
        Stamp(ms.saturating_mul(1_000).saturating_add(999))
    }

    /// The default cell timestamp of the mutation that bears this stamp.
    pub fn timestamp(self) -> Timestamp {
        Timestamp(self.0)
    }
}

/// Microseconds on a monotonic clock of this process. Drives deadlines and timers, decides nothing about data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// This instant, `micros` later; saturates.
    pub fn plus_us(self, micros: u64) -> Instant {
        Instant(self.0.saturating_add(micros))
    }

    /// Microseconds from `earlier` to `self`, 0 if `earlier` is not earlier.
    pub fn since_us(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Largest time to live of a cell, in seconds: 20 years.
pub const TTL_MAX_S: u32 = 630_720_000;

/// Largest expiry and local deletion time, in seconds since 1970: what fits an unsigned 32-bit number (year 2106).
pub const EXPIRY_MAX_S: i64 = u32::MAX as i64;
