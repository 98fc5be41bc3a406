//! A closed loop: callers that each wait for their answer before they call again. It shows cost and the most there is;
//! latencies under it are those of a full queue.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hdrhistogram::Histogram;

use crate::sample::{Sample, Series};
use crate::{Result, cpu};

/// The longest latency that is told apart, in microseconds.
const LATENCY_US_MAX: u64 = 60_000_000;

/// What was seen of one kind of operation in all rounds.
pub struct Load {
    /// With the CPU of every process.
    pub series: Series,
    /// The share of this process, the client, in that CPU; round by round.
    pub client_share: Vec<f64>,
    /// Microseconds of each operation within the windows.
    pub latency_us: Histogram<u64>,
}

/// How a loop is run.
#[derive(Debug, Clone)]
pub struct LoopPlan {
    /// Callers.
    pub in_flight: usize,
    /// Time in which nothing is counted.
    pub warm_up: Duration,
    /// Time in which operations are counted.
    pub window: Duration,
    /// Between an answer and the next operation of its caller, so that the cluster is not at its limit.
    pub pause: Duration,
    /// The processes of the cluster.
    pub nodes: Vec<u32>,
}

impl Load {
    /// Nothing yet.
    pub fn new() -> Result<Load> {
        let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, 2)?;
        Ok(Load { series: Series::default(), client_share: Vec::new(), latency_us })
    }

    /// p50, p99 and p99.9.
    pub fn percentiles(&self) -> [u64; 3] {
        [0.5, 0.99, 0.999].map(|quantile| self.latency_us.value_at_quantile(quantile))
    }

    /// Runs callers for a round; each operation gets a number of its own from `numbers`. An operation that fails ends it.
    pub async fn round<F, T>(&mut self, plan: &LoopPlan, numbers: &Arc<AtomicU64>, operation: F) -> Result<()>
    where
        F: Fn(u64) -> T + Clone + Send + 'static,
        T: Future<Output = Result<()>> + Send + 'static,
    {
        let tally = Arc::new(Tally {
            numbers: numbers.clone(),
            done: AtomicU64::new(0),
            counts: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            failure: Mutex::new(None),
            latency_us: Mutex::new(Histogram::new_from(&self.latency_us)),
        });
        let callers: Vec<_> =
            (0..plan.in_flight).map(|_| tokio::spawn(call(tally.clone(), plan.pause, operation.clone()))).collect();
        tokio::time::sleep(plan.warm_up).await;
        tally.counts.store(true, Ordering::Relaxed);
        let before = Reading::take(&tally, &plan.nodes)?;
        tokio::time::sleep(plan.window).await;
        let after = Reading::take(&tally, &plan.nodes)?;
        tally.counts.store(false, Ordering::Relaxed);
        tally.stops.store(true, Ordering::Relaxed);
        join_all(callers).await;
        if let Some(failure) = locked(&tally.failure).take() {
            return Err(failure);
        }
        let client = (after.client - before.client).as_secs_f64();
        let cpu = after.client - before.client + (after.nodes - before.nodes);
        self.series.0.push(Sample { ops: after.done - before.done, wall: after.at - before.at, cpu });
        self.client_share.push(client / cpu.as_secs_f64());
        self.latency_us.add(&*locked(&tally.latency_us))?;
        Ok(())
    }
}

/// What callers share.
struct Tally {
    numbers: Arc<AtomicU64>,
    done: AtomicU64,
    counts: AtomicBool,
    stops: AtomicBool,
    failure: Mutex<Option<Box<dyn std::error::Error + Send + Sync>>>,
    latency_us: Mutex<Histogram<u64>>,
}

async fn call<F, T>(tally: Arc<Tally>, pause: Duration, operation: F)
where
    F: Fn(u64) -> T,
    T: Future<Output = Result<()>>,
{
    while !tally.stops.load(Ordering::Relaxed) {
        let number = tally.numbers.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        if let Err(error) = operation(number).await {
            locked(&tally.failure).get_or_insert(error);
            tally.stops.store(true, Ordering::Relaxed);
            return;
        }
        tally.done.fetch_add(1, Ordering::Relaxed);
        if tally.counts.load(Ordering::Relaxed) {
            locked(&tally.latency_us).saturating_record(begun.elapsed().as_micros() as u64);
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where everything stands at one instant.
struct Reading {
    at: Instant,
    done: u64,
    client: Duration,
    nodes: Duration,
}

impl Reading {
    fn take(tally: &Tally, nodes: &[u32]) -> Result<Reading> {
        let client = cpu::of_process(std::process::id())?;
        let nodes = cpu::of_processes(nodes)?;
        Ok(Reading { at: Instant::now(), done: tally.done.load(Ordering::Relaxed), client, nodes })
    }
}
