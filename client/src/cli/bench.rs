//! `trefoil bench`: reads and writes of single rows at random, timed.
//!
//! With `--rate` the loop is open: operation i begins at i / rate whether or not the cluster keeps up, and its time counts
//! from then, so that a stall shows in all the operations it delays. With `--in-flight` the loop is closed: so many workers
//! do one operation after the other.

mod load;
mod pace;
mod process;

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value as Json, json};
use trefoil::cql;
use trefoil_client::Client;

use super::error::{Error, Result};
use super::{Global, output};
use load::{Measured, Workload};
use pace::Pace;

/// How long one operation may take, with all attempts.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Operations in flight of a closed loop, unless said otherwise.
const IN_FLIGHT: u32 = 256;
/// Operations in flight of an open loop, at most; those that come later wait, and their time runs.
const OPEN_IN_FLIGHT_MAX: u32 = 8_192;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Writes of whole rows
    Write,
    /// Reads of whole rows
    Read,
    /// As many of the one as of the other
    Mixed,
}

/// When a replica acknowledges a write: each has a table of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Durable {
    /// After its fsync
    Commit,
    /// At once
    Periodic,
}

/// Measures the cluster with single rows at random keys, in the keyspace `bench`, which is made if there is none. Reads find
/// rows: all keys are written before they begin.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trefoil bench write --in-flight 256 --duration 20s
  trefoil bench mixed --rate 5000 --consistency QUORUM --json

JSON fields: ops, errors, retries, ops_per_s, p50_us, p90_us, p99_us, p999_us, max_us, cpu_us_per_op (this process alone).")]
pub struct Bench {
    /// What to do
    kind: Kind,
    /// Operations per second that are begun, come what may
    #[arg(long, value_name = "R", conflicts_with = "in_flight", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: Option<u32>,
    /// Operations in flight at any time [default: 256, unless there is a rate]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: Option<u32>,
    /// For how long
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = duration)]
    duration: Duration,
    /// How many different keys
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    keys: u64,
    /// The size of each value, random bytes
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    value_bytes: u32,
    /// Which durability to measure
    #[arg(long, default_value = "commit")]
    durability: Durable,
    /// Do not write the keys before reading
    #[arg(long)]
    no_fill: bool,
}

/// A length of time such as 20s, 500ms or 2m.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration = text.parse().map_err(|_| "it is written like 20s, 500ms or 2m".to_owned())?;
    match Duration::try_from(parsed) {
        Ok(duration) if !duration.is_zero() && duration <= Duration::from_secs(86_400) => Ok(duration),
        _ => Err("it is more than 0 and at most a day".to_owned()),
    }
}

impl Bench {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let in_flight = self.in_flight.unwrap_or(if self.rate.is_some() { OPEN_IN_FLIGHT_MAX } else { IN_FLIGHT });
        let client = global.connect_with(TIMEOUT, in_flight as usize).await?;
        let table = self.make_table(&client).await?;
        let workload = Workload::new(&client, table, self.keys, self.value_bytes as usize);
        if self.kind != Kind::Write && !self.no_fill {
            output::note(&format!("writing {} keys", self.keys));
            let filled = workload.fill(in_flight.min(IN_FLIGHT)).await;
            if let Some(last) = filled.last_error {
                // Reads of what is not there would be measured as if they had found something.
                return Err(Error::Fill { errors: filled.errors, keys: self.keys, last });
            }
        }
        let how = match self.rate {
            Some(rate) => format!("{rate} operations per second"),
            None => format!("{in_flight} operations in flight"),
        };
        output::note(&format!("{how} for {:?}", self.duration));
        let pace = Pace::new(self.rate, self.duration);
        let measured = workload.measure(self.kind, pace, in_flight).await;
        if let (Some(last), 0) = (&measured.last_error, measured.ops) {
            return Err(Error::Bench { errors: measured.errors, last: last.clone() });
        }
        output::line(&if global.json { self.as_json(&measured).to_string() } else { text(&measured) })
    }

    /// The name of the table, which there is now.
    async fn make_table(&self, client: &Client) -> Result<&'static str> {
        let (name, durability) = match self.durability {
            Durable::Commit => ("bench.kv", "commit"),
            Durable::Periodic => ("bench.kv_periodic", "periodic"),
        };
        let text = format!(
            "CREATE KEYSPACE IF NOT EXISTS bench;
             CREATE TABLE IF NOT EXISTS {name} (key bigint PRIMARY KEY, value blob) WITH durability = '{durability}';"
        );
        let statements = cql::parse(&text).map_err(|error| Error::Statements { file: "bench".to_owned(), error })?;
        for statement in &statements {
            client.apply(statement).await?;
        }
        Ok(name)
    }

    fn as_json(&self, measured: &Measured) -> Json {
        let at = |quantile: f64| measured.latency_us.value_at_quantile(quantile);
        json!({
            "kind": self.kind.to_possible_value().map(|kind| kind.get_name().to_owned()),
            "rate": self.rate,
            "in_flight": self.rate.is_none().then(|| self.in_flight.unwrap_or(IN_FLIGHT)),
            "keys": self.keys,
            "value_bytes": self.value_bytes,
            "elapsed_ms": measured.elapsed.as_millis() as u64,
            "ops": measured.ops,
            "errors": measured.errors,
            "last_error": measured.last_error,
            "retries": measured.retries,
            "ops_per_s": round(measured.ops_per_s()),
            "p50_us": at(0.5),
            "p90_us": at(0.9),
            "p99_us": at(0.99),
            "p999_us": at(0.999),
            "max_us": measured.latency_us.max(),
            "cpu_us_per_op": round(measured.cpu_us_per_op()),
        })
    }
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn text(measured: &Measured) -> String {
    let at = |quantile: f64| measured.latency_us.value_at_quantile(quantile);
    let mut text = format!(
        "{} operations in {:.1} s: {:.0}/s, {} errors, {} retries\n\
         latency  p50 {} us, p90 {} us, p99 {} us, p99.9 {} us, max {} us\n\
         CPU of this process  {:.1} us per operation",
        measured.ops,
        measured.elapsed.as_secs_f64(),
        measured.ops_per_s(),
        measured.errors,
        measured.retries,
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        measured.latency_us.max(),
        measured.cpu_us_per_op(),
    );
    if let Some(error) = &measured.last_error {
        text += &format!("\nlast error  {error}");
    }
    text
}
