//! The ceiling of gRPC.

use crate::Result;
use crate::plan::Plan;
use crate::report::Report;
use crate::sample::Series;
use crate::yardstick::echo::{self, EchoThread};

/// At this number in flight goals are stated.
pub const USUAL_IN_FLIGHT: usize = 256;

/// Calls that are offered to one channel at once.
const OFFERED: u64 = 20_000;

/// One stream and single calls, at each number in flight.
pub fn measure(plan: &Plan, report: &mut Report) -> Result<()> {
    let echo = EchoThread::start()?;
    let mut pipes = vec![Series::default(); plan.echo_in_flight.len()];
    let mut calls = pipes.clone();
    let mut alone = Series::default();
    for _ in 0..plan.rounds {
        for (at, in_flight) in plan.echo_in_flight.iter().enumerate() {
            pipes[at].0.push(echo::pipe(&echo, *in_flight, plan.warm_up, plan.echo_window)?);
            calls[at].0.push(echo::unary(&echo, *in_flight, plan.warm_up, plan.echo_window)?);
        }
        alone.0.push(echo::stream_alone(&echo, USUAL_IN_FLIGHT, plan.warm_up, plan.echo_window)?);
    }
    let table = report.table("gRPC on loopback: client and server, 100-byte payload");
    for (in_flight, series) in plan.echo_in_flight.iter().zip(pipes) {
        table.row(format!("calls on one stream (bidi echo), {in_flight} in flight"), &series);
    }
    table.row(format!("one stream without callers, {USUAL_IN_FLIGHT} items under way"), &alone);
    for (in_flight, series) in plan.echo_in_flight.iter().zip(calls) {
        table.row(format!("unary calls, {in_flight} in flight"), &series);
    }
    offer_many(&echo, report)
}

/// Calls beyond all measure on one channel do not end its connection.
fn offer_many(echo: &EchoThread, report: &mut Report) -> Result<()> {
    let before = echo.connections();
    let answered = echo::single_threaded()?.block_on(async { echo::offer(echo.connect().await?, OFFERED).await })?;
    let connections = echo.connections() - before;
    report.fact(format!(
        "{OFFERED} unary calls offered at once to one channel of the echo: {answered} answered, {connections} connection"
    ));
    match (answered, connections) {
        (OFFERED, 1) => Ok(()),
        _ => Err("a channel under many calls lost its connection".into()),
    }
}
