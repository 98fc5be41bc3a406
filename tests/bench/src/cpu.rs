//! CPU time as the kernel counts it, user and system together.
//!
//! A process is read from `/proc/PID/stat`, which counts every thread, those that ended too, in hundredths of a second:
//! windows of a second are exact to 1 %. Work of one thread is read from `schedstat` in nanoseconds.

use std::fs;
use std::io;
use std::time::Duration;

/// The unit of `/proc/PID/stat` is fixed for programs, whatever the kernel's own clock is.
const TICKS_PER_SECOND: u64 = 100;

/// Fields of `stat` behind the closing parenthesis of the name: the state is the first, utime and stime are these.
const UTIME: usize = 11;
const STIME: usize = 12;

/// The CPU time of a process since it began.
pub fn of_process(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = ticks(&stat).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not as proc(5) says")))?;
    Ok(Duration::from_micros(ticks * 1_000_000 / TICKS_PER_SECOND))
}

/// The CPU time of several processes together.
pub fn of_processes(pids: &[u32]) -> io::Result<Duration> {
    pids.iter().map(|pid| of_process(*pid)).sum()
}

/// The CPU time of the calling thread since it began.
pub fn of_this_thread() -> io::Result<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split_whitespace().next().and_then(|first| first.parse().ok());
    nanos.map(Duration::from_nanos).ok_or_else(|| io::Error::other("/proc/thread-self/schedstat is not a number"))
}

fn ticks(stat: &str) -> Option<u64> {
    // The name may hold spaces and parentheses.
    let (_, behind_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    Some(fields.get(UTIME)?.parse::<u64>().ok()? + fields.get(STIME)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::{Duration, Instant};

    #[test]
    fn a_name_may_look_like_the_line_it_stands_in() {
        let line = "7 (a) b 1 (2) R 1 1 1 0 -1 4 100 0 0 0 250 50 0 0 20 0 3 0 9 1 2";
        assert_eq!(super::ticks(line), Some(300));
        assert_eq!(super::ticks("7 (a) R 1"), None);
    }

    #[test]
    fn work_is_counted_and_both_clocks_agree() {
        let before = (super::of_process(std::process::id()).unwrap(), super::of_this_thread().unwrap());
        let started = Instant::now();
        while super::of_this_thread().unwrap() < before.1 + Duration::from_millis(200) {
            assert!(started.elapsed() < Duration::from_secs(60), "a busy thread gets no CPU time");
        }
        let process = super::of_process(std::process::id()).unwrap() - before.0;
        assert!(process >= Duration::from_millis(180), "{process:?} of the process, 200 ms of this thread");
    }
}
