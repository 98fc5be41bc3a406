//! How much is moved at a time, how fast, and how long anybody waits for it.

use std::num::NonZeroU64;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

/// Bounds of a door. The defaults are those of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of objects moved in a second, both ways together; none: no limit.
    pub bytes_per_s: Option<NonZeroU64>,
    /// Requests under way at once; at least 1.
    pub requests_at_once: usize,
    /// How long one attempt of a request may take to connect.
    pub connect: Duration,
    /// How long one attempt may take beyond the time that its bytes need at [`Limits::slowest_bytes_per_s`].
    pub attempt: Duration,
    /// A transfer slower than this is taken for stalled.
    pub slowest_bytes_per_s: NonZeroU64,
    /// Attempts at one request; at least 1.
    pub attempts: u32,
    /// The first pause between two attempts; each further one is twice as long, and all are shortened by chance.
    pub pause: Duration,
    /// The longest pause between two attempts.
    pub pause_max: Duration,
    /// Objects larger than this are uploaded in parts of this size. S3 wants at least 5 MiB, and at most 10,000 parts.
    pub part_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bytes_per_s: None,
            requests_at_once: 16,
            connect: Duration::from_secs(5),
            attempt: Duration::from_secs(30),
            slowest_bytes_per_s: NonZeroU64::new(64 << 10).unwrap_or(NonZeroU64::MIN),
            attempts: 5,
            pause: Duration::from_millis(100),
            pause_max: Duration::from_secs(20),
            part_bytes: 16 << 20,
        }
    }
}

/// Parts of one upload, as S3 allows them.
const PARTS_MAX: u64 = 10_000;

impl Limits {
    /// How long an attempt at `bytes` may take.
    pub(crate) fn deadline(&self, bytes: u64) -> Duration {
        self.attempt + Duration::from_secs(bytes / self.slowest_bytes_per_s.get())
    }

    /// The size of the parts of an upload of `bytes`, so that there are not too many.
    pub(crate) fn part_bytes(&self, bytes: u64) -> u64 {
        self.part_bytes.max(bytes.div_ceil(PARTS_MAX))
    }

    /// The pause before attempt `attempt` (from 1), of which `chance` in 0..1 is taken, at least half.
    pub(crate) fn pause_before(&self, attempt: u32, chance: f64) -> Duration {
        let doubled = self.pause.saturating_mul(1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(self.pause_max).mul_f64(0.5 + chance / 2.0)
    }
}

/// Lets through as many requests and bytes as [`Limits`] say.
pub(crate) struct Gate {
    requests: Semaphore,
    bytes_per_s: Option<NonZeroU64>,
    /// When the bytes that were let through so far will have been moved at that rate.
    busy_until: Mutex<Instant>,
}

impl Gate {
    pub(crate) fn new(limits: &Limits) -> Gate {
        Gate {
            requests: Semaphore::new(limits.requests_at_once.max(1)),
            bytes_per_s: limits.bytes_per_s,
            busy_until: Mutex::new(Instant::now()),
        }
    }

    /// Waits until a request of so many bytes may begin; it is under way as long as the permit is held.
    pub(crate) async fn enter(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        let permit = self.requests.acquire().await.ok();
        if let Some(rate) = self.bytes_per_s {
            let begin = {
                let mut busy_until = self.busy_until.lock();
                let begin = (*busy_until).max(Instant::now());
                *busy_until = begin + Duration::from_secs_f64(bytes as f64 / rate.get() as f64);
                begin
            };
            sleep_until(begin).await;
        }
        permit
    }
}
