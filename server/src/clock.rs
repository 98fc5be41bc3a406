//! The only place that asks what time it is.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use trefoil::model::Instant;

/// Microseconds since 1970 by the wall clock; 0 if it stands before 1970.
pub fn wall_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// Now, on the monotonic clock that drives timers.
pub fn now() -> Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(std::time::Instant::now);
    Instant(origin.elapsed().as_micros() as u64)
}

/// The instant `timeout` from now.
pub fn after(timeout: Duration) -> Instant {
    now().plus_us(u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX))
}
