//! The same load on a cluster that backs up and on one that does not, in turn.
//!
//! Callers rest between two operations, so that the cluster is at about a third of what it can do: what backups take away then
//! shows as longer answers, fewer operations, and CPU.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::bucket::Bucket;
use super::{KEPT, Options, Side, await_backup, begin_backup, put};
use crate::cluster::load::{Load, LoopPlan};
use crate::report::{Goal, Report};
use crate::sample::{Sample, Series, Spread};
use crate::{Result, cpu, data};

/// Time in which nothing is counted, before each window.
const WARM_UP: Duration = Duration::from_millis(500);

/// Callers that keep a cluster at its limit.
const FULL: usize = 256;

/// How long a caller rests.
const PAUSE: Duration = Duration::from_millis(4);

/// Of what a cluster can do.
const SHARE: f64 = 1.0 / 3.0;

/// What was seen of one of the two.
struct Seen {
    load: Load,
    /// CPU of the nodes alone.
    nodes: Series,
    /// CPU of the bucket's server for each operation, in microseconds.
    server_us: Vec<f64>,
}

impl Seen {
    fn nothing() -> Result<Seen> {
        Ok(Seen { load: Load::new()?, nodes: Series::default(), server_us: Vec::new() })
    }
}

/// Whether a backup is made meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backup {
    None,
    Made,
}

/// Rounds of both, and what came to the bucket meanwhile.
pub(super) fn measure(
    options: &Options,
    bucket: &mut Bucket,
    bare: &mut Side,
    kept: &mut Side,
    report: &mut Report,
) -> Result<()> {
    let mut full = Load::new()?;
    let flat_out = |side: &Side| LoopPlan {
        in_flight: FULL,
        warm_up: WARM_UP,
        window: options.window / 6,
        pause: Duration::ZERO,
        nodes: side.cluster.pids(),
    };
    for side in [&mut *bare, &mut *kept] {
        fill(side)?;
        round(side, &flat_out(side), &mut full, Backup::None)?;
    }
    let most = full.series.per_second().median;
    let in_flight = (most * SHARE * (PAUSE + Duration::from_millis(1)).as_secs_f64()).ceil().max(1.0) as usize;
    let (mut without, mut with) = (Seen::nothing()?, Seen::nothing()?);
    for number in 0..options.rounds {
        let mut turns = [(&mut *bare, &mut without, Backup::None), (&mut *kept, &mut with, Backup::Made)];
        // The other one is first in each second round.
        if number % 2 == 1 {
            turns.reverse();
        }
        for (side, seen, backup) in turns {
            let plan = LoopPlan { in_flight, pause: PAUSE, window: options.window, ..flat_out(side) };
            let server_before = cpu::of_process(bucket.pid())?;
            round(side, &plan, &mut seen.load, backup)?;
            let server = cpu::of_process(bucket.pid())? - server_before;
            seen.count(server);
        }
    }
    without.list("not backing up", report);
    with.list("backing up", report);
    compare(&without, &with, most, report);
    copied_once(bucket, kept, report)
}

/// Rows that are there to be read.
fn fill(side: &mut Side) -> Result<()> {
    let mut load = Load::new()?;
    let plan = LoopPlan {
        in_flight: FULL,
        warm_up: Duration::ZERO,
        window: Duration::from_secs(1),
        pause: Duration::ZERO,
        nodes: side.cluster.pids(),
    };
    write_for(side, &plan, &mut load)
}

/// Writes new rows as a plan says.
pub(super) fn write_for(side: &mut Side, plan: &LoopPlan, load: &mut Load) -> Result<()> {
    let (client, rows) = (side.client.clone(), side.rows.clone());
    let write = move |_| {
        let (client, rows) = (client.clone(), rows.clone());
        async move { put(&client, &rows).await }
    };
    side.runtime.block_on(load.round(plan, &side.numbers, write)).map_err(|error| side.told(error))?;
    side.cluster.check()
}

/// A round of writes and reads by turns, begun and ended at rest.
fn round(side: &mut Side, plan: &LoopPlan, load: &mut Load, backup: Backup) -> Result<()> {
    let (client, rows) = (side.client.clone(), side.rows.clone());
    let there = rows.load(Ordering::Relaxed).max(1);
    let operation = move |number: u64| {
        let (client, rows) = (client.clone(), rows.clone());
        async move {
            if number.is_multiple_of(2) {
                return put(&client, &rows).await;
            }
            let row = data::mixed(number) % there;
            match client.select(KEPT).key("k", row as i64).one().await? {
                Some(_) => Ok(()),
                None => Err(format!("row {row} was written and is not read").into()),
            }
        }
    };
    let (client, numbers) = (side.client.clone(), Arc::clone(&side.numbers));
    let outcome = side.runtime.block_on(async {
        let begun = if backup == Backup::Made { Some(begin_backup(&client).await?) } else { None };
        load.round(plan, &numbers, operation).await?;
        match begun {
            Some(begun) => await_backup(&client, begun).await,
            None => Ok(()),
        }
    });
    outcome.map_err(|error| side.told(error))?;
    side.cluster.check()?;
    side.cluster.await_rest(&[])
}

impl Seen {
    /// Counts the last round's CPU: that of the nodes alone, and what the server has used.
    fn count(&mut self, server: Duration) {
        if let (Some(all), Some(client_share)) = (self.load.series.0.last(), self.load.client_share.last()) {
            self.nodes.0.push(Sample { cpu: all.cpu.mul_f64(1.0 - client_share), ..*all });
            self.server_us.push(server.as_secs_f64() * 1e6 / all.ops.max(1) as f64);
        }
    }

    fn list(&self, what: &str, report: &mut Report) {
        let table = report.table(
            "Writes and reads by turns at a third of what is possible; 3 zones, 3 copies, QUORUM, 100 random bytes",
        );
        table.row_with_latency(format!("{what}, nodes and client"), &self.load.series, self.load.percentiles());
        table.row(format!("{what}, the nodes alone"), &self.nodes);
    }
}

fn compare(without: &Seen, with: &Seen, most: f64, report: &mut Report) {
    let rate = with.load.series.rate_over(&without.load.series);
    report.goal("operations a second, backing up ÷ not".into(), rate, Goal::AtLeast(0.9));
    report.ratio("CPU an operation, the nodes alone, backing up ÷ not".into(), with.nodes.cpu_over(&without.nodes));
    let share = Spread::of(without.load.series.0.iter().map(|sample| sample.per_second() / most));
    report.ratio("operations a second, not backing up ÷ the most at 256 in flight".into(), share);
    let server = Spread::of(with.server_us.iter().copied());
    report.fact(format!("the bucket's server took {:.1} µs of CPU for each operation beside that", server.median));
}

/// What came to the bucket, beside what is in it: what was never deleted came once.
fn copied_once(bucket: &mut Bucket, kept: &Side, report: &mut Report) -> Result<()> {
    kept.cluster.await_rest(&[])?;
    let came = bucket.put_bytes()?;
    let objects = bucket.objects("")?;
    let of =
        |part: &str| objects.iter().filter(|stored| stored.key.contains(part)).map(|stored| stored.bytes).sum::<u64>();
    let (files, log) = (of("/obj/"), of("/log/"));
    let sealed = kept.cluster.metric("trefoil_backup_file_bytes_total")?;
    let ratio = Spread::of([came as f64 / (files + log).max(1) as f64]);
    report.goal("bytes that came to the bucket ÷ bytes of files and log in it".into(), ratio, Goal::AtMost(1.05));
    report.fact(format!(
        "{} MB of files and {} MB of log for {} rows of some 110 bytes on three nodes; the nodes counted {} MB of files uploaded",
        files / 1_000_000,
        log / 1_000_000,
        kept.rows.load(Ordering::Relaxed),
        sealed as u64 / 1_000_000,
    ));
    Ok(())
}
