//! Whole clusters, simulated: the core's own parts on every node, and around them a network, disks, clocks and clients that a
//! seed decides. Nothing runs by itself and nobody asks what time it is, so that a seed is a history.
//!
//! ```text
//!   seed ─► shape (nodes, zones, speeds, luck)
//!           scheduler ─► event ─┬─► node: Store, HybridClock, Namer, WriteOp, ReadOp, ...  ─► messages ─► network ─► events
//!                               ├─► workload: clients ─► history: may this answer be?
//!                               └─► faults: power, processes, wires, clocks, disks
//!   nine minutes of that, then calm; a minute later everything must be equal, whole and empty-handed
//! ```
//!
//! A seed that fails is run again with its trace, and printed with the command that repeats it.
//!
//! ```text
//! TREFOIL_SIM_SEED=17 cargo test --test simulation seeds                       one seed, and its trace
//! TREFOIL_SIM_SEEDS=100000 TREFOIL_SIM_SECONDS=36000 cargo test --release --test simulation seeds -- --nocapture
//! ```
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stdout, reason = "a soak tells how far it is")]
#![allow(clippy::disallowed_methods, reason = "how long a soak takes is real time")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::Report;
use scheduler::Tally;

mod cluster;
mod event;
mod faults;
mod hints;
mod history;
mod log;
mod network;
mod node;
mod oracle;
#[allow(dead_code, reason = "shared with the model, which draws more kinds")]
#[path = "../model/random.rs"]
mod random;
mod read;
mod replication;
mod scheduler;
mod schema;
mod shape;
mod workload;
mod write;

/// Seeds when nobody says otherwise.
const SEEDS: u64 = 300;

/// What so many seeds must have met, or they show little.
const REACHED: [&str; 17] = [
    "writes acknowledged",
    "writes unknown",
    "reads",
    "reads repaired",
    "hints delivered",
    "records fetched",
    "records too late",
    "bounds of purging raised",
    "processes killed",
    "losses of power",
    "partitions",
    "connections broken",
    "slow nodes",
    "unruly networks",
    "clocks set",
    "full disks",
    "syncs that hang",
];

/// Lines of the trace of a failure that are printed.
const TRACE_LINES: u64 = 80;

#[test]
fn seeds() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    if let Some(seed) = number("TREFOIL_SIM_SEED") {
        return replay(seed, number("TREFOIL_SIM_TRACE").unwrap_or(TRACE_LINES));
    }
    let count = number("TREFOIL_SIM_SEEDS").unwrap_or(SEEDS);
    let first = number("TREFOIL_SIM_FIRST").unwrap_or(1);
    let until = number("TREFOIL_SIM_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (next, failed, reached) = (AtomicU64::new(first), Mutex::new(None), Mutex::new(Tally::new()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = number("TREFOIL_SIM_THREADS").map_or(cores, |threads| threads as usize);
    // Each seed is a world of its own; several of them are run side by side.
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while failed.lock().unwrap().is_none() && until.is_none_or(|until| Instant::now() < until) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let report = attempt(seed, false);
                    let mut reached = reached.lock().unwrap();
                    *reached.entry("seeds").or_default() += 1;
                    report.tally.iter().for_each(|(what, times)| *reached.entry(what).or_default() += times);
                    if report.failure.is_some() {
                        failed.lock().unwrap().get_or_insert(seed);
                    }
                    if reached["seeds"] % 1_000 == 0 {
                        println!("{reached:?}");
                    }
                }
            });
        }
    });
    if let Some(seed) = failed.into_inner().unwrap() {
        replay(seed, TRACE_LINES);
        panic!("seed {seed} failed, and did not when it was run again");
    }
    let reached = reached.into_inner().unwrap();
    println!("{reached:?}");
    let missing: Vec<_> = REACHED.iter().filter(|what| !reached.contains_key(*what)).collect();
    assert!(missing.is_empty(), "what the seeds are to reach and did not: {missing:?}");
}

/// A history that cannot be repeated cannot be understood.
#[test]
fn a_seed_is_one_history() {
    let (first, second) = (attempt(1, false), attempt(1, true));
    assert_eq!((first.events, first.hash), (second.events, second.hash));
}

/// Runs one seed and tells what happened.
fn replay(seed: u64, lines: u64) {
    let report = attempt(seed, true);
    println!("seed {seed}: {} events, hash {:016x}, {:?}", report.events, report.hash, report.tally);
    let Some(failure) = report.failure else { return };
    let skipped = report.trace.len().saturating_sub(lines as usize);
    report.trace[skipped..].iter().for_each(|line| println!("{line}"));
    panic!("{failure}\nrepeat it: TREFOIL_SIM_SEED={seed} cargo test --test simulation seeds -- --nocapture");
}

/// Runs one seed. A panic of the core is a failure like any other.
fn attempt(seed: u64, is_traced: bool) -> Report {
    catch_unwind(AssertUnwindSafe(|| cluster::run(seed, is_traced))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = panic.downcast_ref::<String>().cloned().or(text).unwrap_or_default();
        Report { failure: Some(format!("panicked: {said}")), ..Report::default() }
    })
}
