//! One phase of a run: operations that are counted, and what they took.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::process;
use crate::Result;

/// Operations that are prepared at a time.
pub const PREPARED: usize = 2048;

/// What a phase took.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Phase {
    /// Operations: rows written, reads answered.
    pub ops: u64,
    /// Time that passed, without what prepared the operations.
    pub wall_s: f64,
    /// CPU of the whole process, without what prepared the operations.
    pub cpu_s: f64,
    /// p50, p99 and p99.9 of one call, in microseconds.
    pub latency_us: [f64; 3],
    /// Bytes given to the kernel to write.
    pub written: u64,
    /// Bytes that came from the disk.
    pub read_from_disk: u64,
    /// The most memory that was resident, in bytes.
    pub peak_bytes: u64,
}

impl Phase {
    /// Microseconds of CPU for each operation.
    pub fn cpu_us(&self) -> f64 {
        self.cpu_s * 1e6 / self.ops.max(1) as f64
    }
}

/// Counts a phase: begun with it, stopped where something is prepared.
pub struct Meter {
    wall: Duration,
    since: Instant,
    /// CPU at the beginning, and what was spent aside.
    cpu_uncounted: Duration,
    io: process::Io,
    latency: Histogram<u64>,
    ops: u64,
}

impl Meter {
    /// Begins.
    pub fn begin() -> Result<Meter> {
        process::forget_peak()?;
        Ok(Meter {
            wall: Duration::ZERO,
            io: process::io()?,
            latency: Histogram::new_with_bounds(1, 600_000_000_000, 3)?,
            ops: 0,
            since: Instant::now(),
            cpu_uncounted: process::cpu(),
        })
    }

    /// Does what must not be counted, on this thread. What other threads do meanwhile is counted.
    pub fn aside<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.wall += self.since.elapsed();
        let before = process::cpu_of_this_thread();
        let answer = work();
        self.cpu_uncounted += process::cpu_of_this_thread() - before;
        self.since = Instant::now();
        answer
    }

    /// Does one call of `ops` operations.
    pub fn call<T>(&mut self, ops: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let answer = work()?;
        self.latency.saturating_record(begun.elapsed().as_nanos() as u64);
        self.ops += ops;
        Ok(answer)
    }

    /// Ends.
    pub fn end(mut self) -> Result<Phase> {
        self.wall += self.since.elapsed();
        let cpu = process::cpu().saturating_sub(self.cpu_uncounted);
        let io = process::io()?;
        let quantile = |quantile| self.latency.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Phase {
            ops: self.ops,
            wall_s: self.wall.as_secs_f64(),
            cpu_s: cpu.as_secs_f64(),
            latency_us: [0.5, 0.99, 0.999].map(quantile),
            written: io.written - self.io.written,
            read_from_disk: io.read_from_disk - self.io.read_from_disk,
            peak_bytes: process::peak_bytes()?,
        })
    }
}
