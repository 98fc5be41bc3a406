//! Operations, and what they took.

use std::cell::RefCell;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hdrhistogram::Histogram;
use trefoil_client::{Client, Error as ClientError};

use super::Kind;
use super::pace::{Clock, Pace};
use super::process::cpu_time;

/// Random bytes of which values are pieces.
const POOL_BYTES: usize = 4 << 20;
/// The longest time that is told apart; longer ones count as this.
const LATENCY_US_MAX: u64 = 600_000_000;

/// Rows to read and write.
pub struct Workload<'a> {
    client: &'a Client,
    table: &'static str,
    keys: u64,
    value_bytes: usize,
    pool: Bytes,
}

/// What operations took.
#[derive(Debug)]
pub struct Measured {
    /// How many succeeded.
    pub ops: u64,
    /// How many failed.
    pub errors: u64,
    /// Why the last one did.
    pub last_error: Option<String>,
    /// Attempts beyond the first.
    pub retries: u64,
    /// From the first begin to the last end.
    pub elapsed: Duration,
    /// Time of those that succeeded.
    pub latency_us: Histogram<u64>,
    /// User and system time of this process.
    pub cpu: Duration,
}

impl Measured {
    /// Operations that succeeded, by the time all took.
    pub fn ops_per_s(&self) -> f64 {
        self.ops as f64 / self.elapsed.as_secs_f64().max(0.001)
    }

    /// What one operation cost this process.
    pub fn cpu_us_per_op(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.ops.max(1) as f64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Write(u64),
    Read(u64),
}

impl<'a> Workload<'a> {
    /// Rows of a table of `key bigint, value blob`.
    pub fn new(client: &'a Client, table: &'static str, keys: u64, value_bytes: usize) -> Workload<'a> {
        let mut pool = vec![0; POOL_BYTES + value_bytes];
        rand::fill(pool.as_mut_slice());
        Workload { client, table, keys, value_bytes, pool: pool.into() }
    }

    /// Writes every key once.
    pub async fn fill(&self, in_flight: u32) -> Measured {
        self.run(Pace::Counted(self.keys), in_flight, Operation::Write).await
    }

    /// Does operations at random keys and times them.
    pub async fn measure(&self, kind: Kind, pace: Pace, in_flight: u32) -> Measured {
        let choose = |number: u64| {
            let key = rand::random_range(0..self.keys);
            match kind {
                Kind::Write => Operation::Write(key),
                Kind::Read => Operation::Read(key),
                Kind::Mixed if number.is_multiple_of(2) => Operation::Write(key),
                Kind::Mixed => Operation::Read(key),
            }
        };
        self.run(pace, in_flight, choose).await
    }

    async fn run(&self, pace: Pace, in_flight: u32, choose: impl Fn(u64) -> Operation) -> Measured {
        let (retries, cpu) = (self.client.retries(), cpu_time());
        let measured = RefCell::new(Measured {
            ops: 0,
            errors: 0,
            last_error: None,
            retries: 0,
            elapsed: Duration::ZERO,
            latency_us: histogram(),
            cpu: Duration::ZERO,
        });
        let clock = pace.start();
        join_all((0..in_flight).map(|_| self.work(&clock, &choose, &measured))).await;
        let mut measured = measured.into_inner();
        measured.elapsed = clock.started.elapsed();
        measured.retries = self.client.retries() - retries;
        measured.cpu = cpu_time().saturating_sub(cpu);
        measured
    }

    /// One worker: one operation after the other.
    async fn work(&self, clock: &Clock, choose: &impl Fn(u64) -> Operation, measured: &RefCell<Measured>) {
        while let Some((number, begin)) = clock.next().await {
            let result = self.operate(choose(number)).await;
            let mut measured = measured.borrow_mut();
            match result {
                Ok(()) => {
                    measured.ops += 1;
                    measured.latency_us.saturating_record(begin.elapsed().as_micros() as u64);
                }
                Err(error) => {
                    measured.errors += 1;
                    measured.last_error = Some(error.to_string());
                }
            }
        }
    }

    async fn operate(&self, operation: Operation) -> Result<(), ClientError> {
        match operation {
            Operation::Write(key) => {
                let begin = rand::random_range(0..POOL_BYTES);
                let value = self.pool.slice(begin..begin + self.value_bytes);
                let write = self.client.insert(self.table).key("key", key as i64).value("value", value);
                write.send().await.map(drop)
            }
            Operation::Read(key) => self.client.select(self.table).key("key", key as i64).one().await.map(drop),
        }
    }
}

fn histogram() -> Histogram<u64> {
    // The only errors are bounds below 2 and more than 5 digits.
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are in order")
}
