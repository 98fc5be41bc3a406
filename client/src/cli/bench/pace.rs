//! When operations begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// The clock of the runtime ticks in milliseconds, too coarse for latencies; a thread can sleep for less.
const STEP: Duration = Duration::from_micros(250);

/// When operations begin.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// One when the one before has ended, for so long.
    Closed(Duration),
    /// By the clock.
    Open {
        /// Operations per second.
        rate: u32,
        /// All of them.
        operations: u64,
    },
    /// So many, one when the one before has ended.
    Counted(u64),
}

impl Pace {
    /// For so long: at a rate if there is one.
    pub fn new(rate: Option<u32>, duration: Duration) -> Pace {
        match rate {
            None => Pace::Closed(duration),
            Some(rate) => Pace::Open { rate, operations: ((f64::from(rate) * duration.as_secs_f64()) as u64).max(1) },
        }
    }

    /// Starts the clock.
    pub fn start(self) -> Clock {
        let started = Instant::now();
        let due = Arc::new(Semaphore::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        if let Pace::Open { rate, operations } = self {
            let (due, stop) = (due.clone(), stop.clone());
            std::thread::spawn(move || release(started, rate, operations, &due, &stop));
        }
        Clock { pace: self, started, due, stop, next: std::cell::Cell::new(0) }
    }
}

/// Lets operations begin as their time comes.
fn release(started: Instant, rate: u32, operations: u64, due: &Semaphore, stop: &AtomicBool) {
    let mut released = 0;
    while released < operations && !stop.load(Ordering::Relaxed) {
        let elapsed = started.elapsed();
        let reached = ((elapsed.as_secs_f64() * f64::from(rate)) as u64 + 1).min(operations);
        due.add_permits((reached - released) as usize);
        released = reached;
        let next = offset(reached, rate).saturating_sub(started.elapsed());
        std::thread::sleep(next.max(STEP));
    }
}

fn offset(operation: u64, rate: u32) -> Duration {
    Duration::from_secs_f64(operation as f64 / f64::from(rate))
}

/// Says when the next operation begins. Shared by the workers of one thread.
#[derive(Debug)]
pub struct Clock {
    pace: Pace,
    /// When it was started.
    pub started: Instant,
    due: Arc<Semaphore>,
    stop: Arc<AtomicBool>,
    next: std::cell::Cell<u64>,
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Clock {
    /// Waits for the turn of the next operation: its number, and when it should have begun. `None` when there are no more.
    pub async fn next(&self) -> Option<(u64, Instant)> {
        let number = self.next.get();
        self.next.set(number + 1);
        match self.pace {
            Pace::Closed(duration) if self.started.elapsed() >= duration => None,
            Pace::Counted(operations) if number >= operations => None,
            Pace::Closed(_) | Pace::Counted(_) => Some((number, Instant::now())),
            Pace::Open { operations, .. } if number >= operations => None,
            Pace::Open { rate, .. } => {
                self.due.acquire().await.ok()?.forget();
                Some((number, self.started + offset(number, rate)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn the_time_of_an_operation_runs_from_when_it_should_have_begun() {
        let pace = Pace::new(Some(1_000), Duration::from_millis(20));
        let clock = pace.start();
        let mut intended = Vec::new();
        while let Some((number, begin)) = clock.next().await {
            assert!(Instant::now() >= begin, "operation {number} began before its time");
            intended.push(begin - clock.started);
        }
        let expected: Vec<Duration> = (0..20).map(Duration::from_millis).collect();
        assert_eq!(intended, expected);
    }

    #[tokio::test]
    async fn a_counted_pace_ends() {
        let clock = Pace::Counted(3).start();
        let mut numbers = Vec::new();
        while let Some((number, _)) = clock.next().await {
            numbers.push(number);
        }
        assert_eq!(numbers, [0, 1, 2]);
    }
}
