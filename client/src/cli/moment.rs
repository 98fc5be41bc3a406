//! Moments, as people write and read them.

use trefoil::model::Stamp;

/// A time as people give it: RFC 3339. To the millisecond it means all of that millisecond; finer, that very microsecond.
pub fn time(text: &str) -> Result<Stamp, String> {
    let time: jiff::Timestamp =
        text.parse().map_err(|_| format!("{text:?} is no time like 2026-01-31T12:30:00.250Z"))?;
    let us = time.as_microsecond();
    Ok(if us.rem_euclid(1_000) == 0 { Stamp::last_of_ms(us.div_euclid(1_000)) } else { Stamp(us) })
}

/// A time for people, to the millisecond, in UTC.
pub fn shown(at: Stamp) -> String {
    let ms = jiff::Timestamp::from_millisecond(at.0.div_euclid(1_000));
    ms.map_or_else(|_| at.0.to_string(), |time| format!("{time:.3}"))
}
