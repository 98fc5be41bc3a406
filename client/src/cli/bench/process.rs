//! What this process has cost so far.

use std::time::Duration;

/// Ticks in a second, in which the system counts the time of processes; the same on every Linux.
const TICKS_PER_S: u64 = 100;

/// User and system time of this process; zero where the system does not tell.
pub fn cpu_time() -> Duration {
    let ticks = std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| ticks(&stat)).unwrap_or(0);
    Duration::from_millis(ticks * 1_000 / TICKS_PER_S)
}

/// Fields 14 and 15; the second, the name of the program, may hold blanks and parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_be_called_anything() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 17 5 0 0 20 0 1 0 100 1000 10";
        assert_eq!(ticks(stat), Some(22));
        assert_eq!(ticks("42 (x"), None);
    }
}
