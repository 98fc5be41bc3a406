//! A cluster of three zones, through the Rust client, beside the echo of the same round.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::runtime::Runtime;
use trefoil::cql;
use trefoil_client::{Client, Consistency};

use super::grpc::USUAL_IN_FLIGHT;
use crate::cluster::load::{Load, LoopPlan};
use crate::cluster::{self, Cluster, connections};
use crate::plan::Plan;
use crate::report::{Goal, Report};
use crate::sample::{Series, Spread};
use crate::yardstick::echo::{self, EchoThread};
use crate::{Result, data};

/// More in flight than usual.
const MANY_IN_FLIGHT: usize = 1024;

/// Operations that are offered to the client at once.
const OFFERED: u64 = 20_000;

/// Memtables that hold everything written here.
const ALL_MIB: u64 = 4096;
/// The smallest there are: flushed at half of this.
const SMALL_MIB: u64 = 32;

/// Rows that are read, once they are in files: all their blocks find room in the cache of a node.
const READ_ROWS: u64 = 100_000;

const SCHEMA: &str = "
    CREATE KEYSPACE bench WITH replication = {'local': 3};
    CREATE TABLE bench.synced (k bigint PRIMARY KEY, v blob) WITH durability = 'commit';
    CREATE TABLE bench.written (k bigint PRIMARY KEY, v blob) WITH durability = 'periodic';
";
const SYNCED: &str = "bench.synced";
const WRITTEN: &str = "bench.written";

/// Writes and reads at QUORUM.
pub fn measure(plan: &Plan, report: &mut Report) -> Result<()> {
    let binary = cluster::binary()?;
    let echo = EchoThread::start()?;
    in_memory(plan, &binary, &echo, report)?;
    with_flushes(plan, &binary, &echo, report)
}

/// A cluster, a client in this thread, and what both are measured against.
struct Bench<'a> {
    plan: Plan,
    echo: &'a EchoThread,
    cluster: Cluster,
    runtime: Runtime,
    client: Client,
    /// Numbers of the rows written to each table.
    synced: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
}

impl<'a> Bench<'a> {
    fn start(plan: &Plan, binary: &Path, echo: &'a EchoThread, memtable_mib: u64) -> Result<Bench<'a>> {
        let mut cluster = Cluster::start(binary, memtable_mib)?;
        let runtime = echo::single_threaded()?;
        let client = runtime.block_on(async {
            let client = cluster.connect(MANY_IN_FLIGHT).await?;
            for statement in cql::parse(SCHEMA)? {
                client.apply(&statement).await?;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(client)
        })?;
        let (synced, written) = Default::default();
        Ok(Bench { plan: *plan, echo, cluster, runtime, client, synced, written })
    }

    fn loop_plan(&self, in_flight: usize) -> LoopPlan {
        let Plan { cluster_warm_up: warm_up, cluster_window: window, .. } = self.plan;
        LoopPlan { in_flight, warm_up, window, pause: Duration::ZERO, nodes: self.cluster.pids() }
    }

    fn echo(&self, series: &mut Series) -> Result<()> {
        series.0.push(echo::pipe(self.echo, USUAL_IN_FLIGHT, self.plan.warm_up, self.plan.echo_window)?);
        Ok(())
    }

    /// A round of writes of new rows.
    fn write(&mut self, table: &'static str, in_flight: usize, load: &mut Load) -> Result<()> {
        let numbers = if table == SYNCED { &self.synced } else { &self.written };
        let (plan, client) = (self.loop_plan(in_flight), self.client.clone());
        let write = move |number| {
            let client = client.clone();
            async move { Ok(put(&client, table, number).await?) }
        };
        self.runtime.block_on(load.round(&plan, numbers, write)).map_err(|error| self.told(error))?;
        self.cluster.check()
    }

    /// A round of reads of rows of [`WRITTEN`] in random order.
    fn read(&mut self, in_flight: usize, load: &mut Load) -> Result<()> {
        let rows = self.written.load(Ordering::Relaxed).min(READ_ROWS);
        let (plan, client) = (self.loop_plan(in_flight), self.client.clone());
        let read = move |number| {
            let client = client.clone();
            async move { get(&client, data::mixed(number) % rows).await }
        };
        self.runtime.block_on(load.round(&plan, &Arc::default(), read)).map_err(|error| self.told(error))?;
        self.cluster.check()
    }

    /// Writes everything to files and reads every row, at ALL so that each node has its blocks in memory.
    fn flush_and_warm(&mut self) -> Result<()> {
        let rows = self.written.load(Ordering::Relaxed).min(READ_ROWS);
        self.runtime.block_on(async {
            let flushed = self.client.flush(None).await?;
            if let Some(failed) = flushed.nodes.iter().find(|node| !node.error.is_empty()) {
                return Err(format!("node {} did not flush: {}", failed.node, failed.error).into());
            }
            let mut reads = stream::iter((0..rows).map(|row| {
                let read = self.client.select(WRITTEN).key("k", row as i64).consistency(Consistency::All);
                async move { read.one().await }
            }))
            .buffer_unordered(USUAL_IN_FLIGHT);
            while let Some(row) = reads.next().await {
                row?;
            }
            Ok(())
        })
    }

    fn told(&self, error: Box<dyn std::error::Error + Send + Sync>) -> Box<dyn std::error::Error + Send + Sync> {
        format!("{error}\n{}", self.cluster.logs()).into()
    }
}

async fn put(client: &Client, table: &'static str, number: u64) -> trefoil_client::Result<()> {
    client.insert(table).key("k", number as i64).value("v", data::value(number)).send().await.map(drop)
}

async fn get(client: &Client, row: u64) -> Result<()> {
    match client.select(WRITTEN).key("k", row as i64).one().await? {
        Some(_) => Ok(()),
        None => Err(format!("row {row} was written and is not read").into()),
    }
}

const TITLE: &str =
    "Cluster: 3 zones, 3 copies, QUORUM, client and nodes together, one row in a partition, 100 random bytes";

/// What was measured while nothing was flushed, and after everything was.
struct Found {
    echoes: Series,
    /// Of the rounds in which files were read.
    echoes_of_files: Series,
    written: Load,
    written_many: Load,
    synced: Load,
    synced_many: Load,
    memory: Load,
    memory_many: Load,
    cached: Load,
    cached_many: Load,
}

impl Found {
    fn nothing() -> Result<Found> {
        Ok(Found {
            echoes: Series::default(),
            echoes_of_files: Series::default(),
            written: Load::new()?,
            written_many: Load::new()?,
            synced: Load::new()?,
            synced_many: Load::new()?,
            memory: Load::new()?,
            memory_many: Load::new()?,
            cached: Load::new()?,
            cached_many: Load::new()?,
        })
    }

    fn compare(&self, report: &mut Report) {
        let echoes = &self.echoes;
        let cpu = |what: &str, load: &Load, echoes| {
            (format!("QUORUM {what} ÷ bidi echo, CPU, 256 in flight"), load.series.cpu_over(echoes))
        };
        let (what, ratio) = cpu("write, periodic, no flush", &self.written, echoes);
        report.goal(what, ratio, Goal::AtMost(20.0));
        let (what, ratio) = cpu("write, commit, no flush", &self.synced, echoes);
        report.ratio(what, ratio);
        let (what, ratio) = cpu("read from memtables", &self.memory, echoes);
        report.goal(what, ratio, Goal::AtMost(18.0));
        let (what, ratio) = cpu("read from cached blocks", &self.cached, &self.echoes_of_files);
        report.goal(what, ratio, Goal::AtMost(30.0));
        let rate = self.synced.series.rate_over(&self.written.series);
        report.goal("commit ÷ periodic, writes a second, 256 in flight".into(), rate, Goal::AtLeast(0.4));
        let rate = self.synced_many.series.rate_over(&self.written_many.series);
        report.goal("commit ÷ periodic, writes a second, 1024 in flight".into(), rate, Goal::AtLeast(0.6));
        for (what, load) in [("write, periodic", &self.written), ("read from memtables", &self.memory)] {
            let share = Spread::of(load.client_share.iter().copied());
            report.ratio(format!("client's share of the CPU of a {what}, 256 in flight"), share);
        }
    }

    fn list(&self, report: &mut Report) {
        let table = report.table(TITLE);
        table.row("bidi echo of the same rounds, 256 in flight".into(), &self.echoes);
        for (what, load) in [
            ("write, periodic, 256 in flight", &self.written),
            ("write, periodic, 1024 in flight", &self.written_many),
            ("write, commit, 256 in flight", &self.synced),
            ("write, commit, 1024 in flight", &self.synced_many),
            ("read from memtables, 256 in flight", &self.memory),
            ("read from memtables, 1024 in flight", &self.memory_many),
            ("read from cached blocks, 256 in flight", &self.cached),
            ("read from cached blocks, 1024 in flight", &self.cached_many),
        ] {
            table.row_with_latency(what.into(), &load.series, load.percentiles());
        }
    }
}

/// Nothing is flushed while it is measured; then everything is, and read again.
fn in_memory(plan: &Plan, binary: &Path, echo: &EchoThread, report: &mut Report) -> Result<()> {
    let mut bench = Bench::start(plan, binary, echo, ALL_MIB)?;
    let mut found = Found::nothing()?;
    for _ in 0..plan.rounds {
        bench.echo(&mut found.echoes)?;
        bench.write(WRITTEN, USUAL_IN_FLIGHT, &mut found.written)?;
        bench.write(SYNCED, USUAL_IN_FLIGHT, &mut found.synced)?;
        bench.write(WRITTEN, MANY_IN_FLIGHT, &mut found.written_many)?;
        bench.write(SYNCED, MANY_IN_FLIGHT, &mut found.synced_many)?;
        bench.read(USUAL_IN_FLIGHT, &mut found.memory)?;
        bench.read(MANY_IN_FLIGHT, &mut found.memory_many)?;
    }
    offer_many(&bench, report)?;
    bench.flush_and_warm()?;
    for _ in 0..plan.rounds {
        bench.echo(&mut found.echoes_of_files)?;
        bench.read(USUAL_IN_FLIGHT, &mut found.cached)?;
        bench.read(MANY_IN_FLIGHT, &mut found.cached_many)?;
    }
    found.compare(report);
    found.list(report);
    Ok(())
}

/// What a cluster is kept busy with for a profiler.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Busy {
    /// Writes, periodic.
    Write,
    /// Writes, commit.
    WriteCommit,
    /// Reads from memtables.
    Read,
    /// Reads from cached blocks.
    ReadFiles,
}

/// Keeps a cluster busy with one thing for about a window, and tells the processes as soon as they are.
pub fn keep_busy(plan: &Plan, busy: Busy, in_flight: usize) -> Result<()> {
    let echo = EchoThread::start()?;
    let mut bench = Bench::start(plan, &cluster::binary()?, &echo, ALL_MIB)?;
    let mut load = Load::new()?;
    if let Busy::Read | Busy::ReadFiles = busy {
        bench.plan.cluster_window = Duration::from_secs(3);
        bench.write(WRITTEN, in_flight, &mut load)?;
        bench.plan = *plan;
        load = Load::new()?;
    }
    if let Busy::ReadFiles = busy {
        bench.flush_and_warm()?;
    }
    println!("client {}, nodes {:?}", std::process::id(), bench.cluster.pids());
    match busy {
        Busy::Write => bench.write(WRITTEN, in_flight, &mut load)?,
        Busy::WriteCommit => bench.write(SYNCED, in_flight, &mut load)?,
        Busy::Read | Busy::ReadFiles => bench.read(in_flight, &mut load)?,
    }
    let (cpu_us, rate) = (load.series.cpu_us().median, load.series.per_second().median);
    println!("{cpu_us:.1} µs of CPU an operation, {rate:.0} a second, {:?} of it the client's", load.client_share);
    Ok(())
}

/// Small memtables: each node flushes all the time.
fn with_flushes(plan: &Plan, binary: &Path, echo: &EchoThread, report: &mut Report) -> Result<()> {
    let mut bench = Bench::start(plan, binary, echo, SMALL_MIB)?;
    let mut echoes = Series::default();
    let mut written = Load::new()?;
    for _ in 0..plan.rounds {
        bench.echo(&mut echoes)?;
        bench.write(WRITTEN, USUAL_IN_FLIGHT, &mut written)?;
    }
    let status = bench.runtime.block_on(bench.client.status())?;
    let files: u64 = status.nodes.iter().filter_map(|node| node.report.as_ref()).map(|report| report.sstables).sum();
    report.fact(format!("writes with flush and compaction left {files} SSTables on the three nodes"));
    let what = "QUORUM write, periodic, with flush and compaction ÷ bidi echo, CPU, 256 in flight";
    report.goal(what.into(), written.series.cpu_over(&echoes), Goal::AtMost(35.0));
    let what = format!("write, periodic, 256 in flight, flushed at {} MiB", SMALL_MIB / 2);
    report.table(TITLE).row_with_latency(what, &written.series, written.percentiles());
    Ok(())
}

/// Operations beyond all measure do not end a connection: the nodes have the same ones before and behind.
fn offer_many(bench: &Bench, report: &mut Report) -> Result<()> {
    let servers: Vec<_> = bench.cluster.client_addresses().collect();
    let (before, answered, after) = bench.runtime.block_on(async {
        let client = bench.cluster_client_for_many(&servers).await?;
        put(&client, WRITTEN, 0).await?;
        let before = connections::to(&servers)?;
        let writes = (0..OFFERED).map(|number| put(&client, WRITTEN, number));
        let answered = futures_util::future::join_all(writes).await.iter().filter(|write| write.is_ok()).count();
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((before, answered, connections::to(&servers)?))
    })?;
    report.fact(format!(
        "{OFFERED} writes offered at once to one client without a limit of its own: {answered} acknowledged; \
         {} connections at the nodes before, {} of them still there, {} new",
        before.len(),
        before.intersection(&after).count(),
        after.difference(&before).count()
    ));
    if before == after { Ok(()) } else { Err("a connection under many operations was lost".into()) }
}

impl Bench<'_> {
    async fn cluster_client_for_many(&self, servers: &[std::net::SocketAddr]) -> Result<Client> {
        let endpoints = servers.iter().map(|address| address.to_string());
        let builder = Client::builder(endpoints).region("local").zone("a").consistency(Consistency::Quorum);
        Ok(builder.in_flight_max(OFFERED as usize).connect().await?)
    }
}
