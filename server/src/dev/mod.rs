//! `trefoild dev`: a cluster of child processes on one machine, for developers.
//!
//! ```text
//!   DIR/dev.toml            the shape, which cannot change once the cluster is born
//!   DIR/node-1/node.toml    settings, written once; what stands there counts
//!             /node.log     what the node logs, over all its runs
//!             /data         its data
//!   DIR/s3                the bucket that the nodes back up to, served by the parent
//! ```
//!
//! Each child is `trefoild serve`, as it would be on a machine of its own, in a process group of its own: ctrl-C reaches
//! only the parent. It stops its children by closing their standard input, so that they end with it, however it ends.
//! A child that ends by itself is reported and never started again: whoever kills a node wants to see what happens then.

#[cfg(feature = "dev-s3")]
mod bucket;
mod child;
mod demo;
mod shape;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tokio::task::JoinSet;
use tokio::time::Instant;

use child::{Child, Ended};
use shape::{Place, Shape};

use crate::http;
use crate::signal::StopSignals;

/// How long the nodes may take until they serve.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a node that does not serve yet is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// How long the nodes may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// The command line of `trefoild dev`.
#[derive(Debug, Clone, Args)]
pub struct DevOptions {
    /// Where settings, logs and data are kept.
    #[arg(long, value_name = "DIR", default_value = "trefoil-dev")]
    pub dir: PathBuf,
    /// Zones; each holds one copy of all data.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=26))]
    pub zones: u16,
    /// Nodes that share the data of each zone.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub nodes_per_zone: u16,
    /// Client port of the first node; node i adds 10 i, its peer port is the next one, its HTTP port the one after that. The
    /// ninth after the first is that of the S3 that they back up to.
    #[arg(long, default_value_t = 9440, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Load a sample of real flights into the table demo.flights, read it back, and stay up.
    #[arg(long)]
    pub demo: bool,
}

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// The directory holds a cluster of another shape.
    #[error("{} holds a cluster of {found}, not of {asked}; ask for the same, or choose another --dir", directory.display())]
    Shape {
        /// The directory.
        directory: PathBuf,
        /// What it holds.
        found: Shape,
        /// What was asked for.
        asked: Shape,
    },
    /// More nodes than ports.
    #[error("{nodes} nodes from --port {port} on need ports up to {last}, but there is none above 65535")]
    Ports {
        /// How many.
        nodes: u32,
        /// The first port.
        port: u16,
        /// The last port.
        last: u32,
    },
    /// Somebody else listens there.
    #[error("port {port} is taken ({what} of node {node}): {source}; stop what uses it, or choose another --port")]
    Taken {
        /// The port.
        port: u16,
        /// What it was to be.
        what: &'static str,
        /// Of which node.
        node: u32,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else listens where the bucket is to be.
    #[error("port {port} is taken (S3 for backups): {source}; stop what uses it, or choose another --port")]
    BucketTaken {
        /// The port.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// Files or processes are not to be had.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was to be done.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A node ended instead of serving.
    #[error("node {node} ended before it served ({status}); its log {} ends with:\n{tail}", log.display())]
    Ended {
        /// Which.
        node: u32,
        /// How.
        status: String,
        /// Where it logs.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// A node took too long.
    #[error("node {node} does not serve after {seconds} s ({reason}); its log {} ends with:\n{tail}", log.display())]
    Slow {
        /// Which.
        node: u32,
        /// How long it had.
        seconds: u64,
        /// What it says itself.
        reason: String,
        /// Where it logs.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// A node did not stop well.
    #[error("node {node} did not stop cleanly ({status}); see its log {}", log.display())]
    Unclean {
        /// Which.
        node: u32,
        /// How it ended.
        status: String,
        /// Where it logs.
        log: PathBuf,
    },
    /// The sample could not be loaded.
    #[error("the demo failed: {0}")]
    Demo(#[from] trefoil_client::Error),
    /// The sample's schema is wrong.
    #[error("the demo's schema is wrong: {0}")]
    Schema(#[from] trefoil::Error),
    /// The sample reads back as something else.
    #[error("the demo wrote {written} rows and read back {read}")]
    Lost {
        /// What was written.
        written: u64,
        /// What was read.
        read: u64,
    },
}

/// Runs a cluster until it is told to stop.
pub fn run(options: &DevOptions) -> Result<(), DevError> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = built.map_err(|source| DevError::Io { what: "start threads of", path: program(), source })?;
    runtime.block_on(async {
        let shape = Shape::new(options)?;
        // Absolute, so that the printed commands work from anywhere.
        let directory = std::path::absolute(&options.dir);
        let directory = directory.map_err(|source| DevError::Io { what: "find", path: options.dir.clone(), source })?;
        shape.settle(&directory)?;
        let places = shape.places(&directory);
        // Before the settings are written: what cannot be served is not settled.
        #[cfg(feature = "dev-s3")]
        let _bucket = bucket::serve(&directory, options.port).await?;
        for place in &places {
            place.ports_are_free()?;
            place.write_settings(&shape, &places)?;
        }
        let signals = StopSignals::take_over();
        let signals =
            signals.map_err(|source| DevError::Io { what: "take over signals of", path: program(), source })?;
        Cluster::start(places)?.run(options, signals).await
    })
}

fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("trefoild"))
}

/// The running children.
struct Cluster {
    children: Vec<Child>,
    /// One task for each child, which ends with it.
    ends: JoinSet<Ended>,
}

impl Cluster {
    fn start(places: Vec<Place>) -> Result<Cluster, DevError> {
        let mut cluster = Cluster { children: Vec::new(), ends: JoinSet::new() };
        for place in places {
            let (child, end) = child::start(&program(), place)?;
            say(&format!(
                "node {}: pid {}, zone {}, endpoint {}, metrics http://{}/metrics, again: {}",
                child.place.number,
                child.pid,
                child.place.zone,
                child.place.client_address(),
                child.place.http_address(),
                child.again
            ));
            cluster.ends.spawn(end);
            cluster.children.push(child);
        }
        Ok(cluster)
    }

    async fn run(mut self, options: &DevOptions, mut signals: StopSignals) -> Result<(), DevError> {
        let ready = tokio::select! {
            ready = self.until_ready() => ready,
            _ = signals.next_signal() => return self.stop().await,
        };
        if let Err(error) = ready {
            // Why it did not start says more than how the others stopped.
            let _ = self.stop().await;
            return Err(error);
        }
        #[cfg(feature = "dev-s3")]
        say(&bucket::about(options.port));
        say("ready");
        if options.demo {
            let endpoints: Vec<String> = self.children.iter().map(|child| child.place.client_address()).collect();
            let loaded = tokio::select! {
                loaded = demo::run(&endpoints) => loaded,
                _ = signals.next_signal() => return self.stop().await,
            };
            match loaded {
                Ok(report) => say(&report),
                Err(error) => {
                    let _ = self.stop().await;
                    return Err(error);
                }
            }
        }
        loop {
            tokio::select! {
                _ = signals.next_signal() => return self.stop().await,
                Some(Ok(ended)) = self.ends.join_next() => self.report(&ended),
            }
        }
    }

    /// Waits until every node serves, or one has ended.
    async fn until_ready(&mut self) -> Result<(), DevError> {
        let deadline = Instant::now() + START_TIMEOUT;
        for at in 0..self.children.len() {
            loop {
                let reason = match http::ask_health(self.children[at].place.http_address()).await {
                    Ok((200, _)) => break,
                    Ok((_, reason)) => reason,
                    Err(error) => error.to_string(),
                };
                let place = &self.children[at].place;
                if Instant::now() >= deadline {
                    let (node, log, tail) = (place.number, place.log(), child::tail(&place.log()));
                    return Err(DevError::Slow { node, seconds: START_TIMEOUT.as_secs(), reason, log, tail });
                }
                if let Some(Ok(Ended { number: node, status, .. })) = self.ends.try_join_next() {
                    let log = self.children[node as usize - 1].place.log();
                    let tail = child::tail(&log);
                    return Err(DevError::Ended { node, status, log, tail });
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
        Ok(())
    }

    fn report(&self, ended: &Ended) {
        let Some(child) = self.children.iter().find(|child| child.place.number == ended.number) else { return };
        let (number, pid, status, again) = (ended.number, child.pid, &ended.status, &child.again);
        say(&format!("node {number}: pid {pid} has ended ({status}); start it again with: {again}"));
    }

    /// Stops the children that are left; the error is that of the first that did not stop well.
    async fn stop(mut self) -> Result<(), DevError> {
        let logs: Vec<PathBuf> = self.children.iter().map(|child| child.place.log()).collect();
        // Dropping a child closes its standard input.
        self.children.clear();
        let unclean = |node: u32, status: String| {
            let log = logs[node as usize - 1].clone();
            Err(DevError::Unclean { node, status, log })
        };
        let mut result = Ok(());
        let all = async {
            while let Some(ended) = self.ends.join_next().await {
                if let Ok(ended) = ended
                    && !ended.clean
                    && result.is_ok()
                {
                    result = unclean(ended.number, ended.status);
                }
            }
        };
        if tokio::time::timeout(STOP_TIMEOUT, all).await.is_err() {
            return unclean(1, format!("some node still runs after {} s", STOP_TIMEOUT.as_secs()));
        }
        if result.is_ok() {
            say("stopped");
        }
        result
    }
}

/// One line for whoever looks on; that nobody does is no reason to stop.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DevError {
    let path = path.to_owned();
    move |source| DevError::Io { what, path, source }
}
