//! The only place that asks what time it is.

use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use trefoil::model::Instant;

/// Sets the wall clock of a process off by so many milliseconds: for tests, since there is no other way to give two
/// processes of one machine different clocks.
const OFFSET: &str = "TREFOIL_CLOCK_OFFSET_MS";

/// Microseconds since 1970 by the wall clock; 0 if it stands before 1970.
pub fn wall_us() -> i64 {
    static OFFSET_US: LazyLock<i64> = LazyLock::new(|| {
        let offset_ms = std::env::var(OFFSET).ok().and_then(|text| text.parse::<i64>().ok());
        offset_ms.map_or(0, |offset_ms| offset_ms.saturating_mul(1_000))
    });
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
    since.saturating_add(*OFFSET_US)
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
