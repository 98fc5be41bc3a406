//! Durations as CQL writes them: `1y2mo3d4h5m6s7ms8us9ns`, a minus in front of the whole.

use std::fmt::Write;

use trefoil::model::Value;

/// What a unit counts.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Months,
    Days,
    Nanos,
}

struct Unit {
    name: &'static str,
    part: Part,
    /// How many of the part one unit is.
    size: u64,
}

const fn unit(name: &'static str, part: Part, size: u64) -> Unit {
    Unit { name, part, size }
}

/// Large units first, the order in which they are written and must be read.
const UNITS: [Unit; 10] = [
    unit("y", Part::Months, 12),
    unit("mo", Part::Months, 1),
    unit("w", Part::Days, 7),
    unit("d", Part::Days, 1),
    unit("h", Part::Nanos, 3_600_000_000_000),
    unit("m", Part::Nanos, 60_000_000_000),
    unit("s", Part::Nanos, 1_000_000_000),
    unit("ms", Part::Nanos, 1_000_000),
    unit("us", Part::Nanos, 1_000),
    unit("ns", Part::Nanos, 1),
];

/// The duration of a text, or why it is none.
pub fn parse(text: &str) -> Result<Value, String> {
    let wrong = |what: &str| format!("{text:?} is no duration: {what}; it is written like 1y2mo3d4h5m6s7ms8us9ns");
    let (sign, mut rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    if rest.is_empty() {
        return Err(wrong("it has no parts"));
    }
    let mut totals = [0i128; 3];
    let mut next = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let count: i64 = rest[..digits].parse().map_err(|_| wrong("a number of 64 bits is missing"))?;
        let word = &rest[digits..];
        let letters = word.bytes().take_while(u8::is_ascii_alphabetic).count();
        let Some(at) = UNITS.iter().position(|unit| unit.name == &word[..letters]) else {
            return Err(wrong("the units are y, mo, w, d, h, m, s, ms, us and ns"));
        };
        if at < next {
            return Err(wrong("each unit comes once, the larger ones first"));
        }
        next = at + 1;
        totals[UNITS[at].part as usize] += i128::from(count) * i128::from(UNITS[at].size) * sign;
        rest = &word[letters..];
    }
    let too_long = |_| wrong("a part is out of range");
    Ok(Value::Duration {
        months: totals[0].try_into().map_err(too_long)?,
        days: totals[1].try_into().map_err(too_long)?,
        nanos: totals[2].try_into().map_err(too_long)?,
    })
}

/// Writes a duration; weeks are written as days.
pub fn print(months: i32, days: i32, nanos: i64, out: &mut String) -> std::fmt::Result {
    if (months, days, nanos) == (0, 0, 0) {
        return out.write_str("0s");
    }
    if months < 0 || days < 0 || nanos < 0 {
        out.push('-');
    }
    let mut left = [u64::from(months.unsigned_abs()), u64::from(days.unsigned_abs()), nanos.unsigned_abs()];
    for unit in UNITS.iter().filter(|unit| unit.name != "w") {
        let rest = &mut left[unit.part as usize];
        if *rest >= unit.size {
            write!(out, "{}{}", *rest / unit.size, unit.name)?;
            *rest %= unit.size;
        }
    }
    Ok(())
}
