//! The run: each part in alternating rounds, all yardsticks in the same run as what is measured against them.

mod cluster;
mod engine;
mod grpc;

use std::time::Instant;

pub use cluster::{Busy, keep_busy};

use crate::plan::Plan;
use crate::report::Report;
use crate::{Part, Result, machine};

/// Measures the parts named, or all.
pub fn run(plan: &Plan, only: &[Part]) -> Result<Report> {
    let wanted = |part| only.is_empty() || only.contains(&part);
    let (machine, begun, load_before) = (machine::look()?, Instant::now(), machine::load_average()?);
    let mut report = Report::new(machine, plan.rounds);
    if wanted(Part::Grpc) {
        eprintln!("gRPC ...");
        grpc::measure(plan, &mut report)?;
    }
    if wanted(Part::Engine) {
        eprintln!("log, memtable, store ...");
        engine::measure(plan, &mut report)?;
    }
    if wanted(Part::Cluster) {
        eprintln!("cluster ...");
        cluster::measure(plan, &mut report)?;
    }
    report.took = begun.elapsed();
    report.load_average = (load_before, machine::load_average()?);
    Ok(report)
}
