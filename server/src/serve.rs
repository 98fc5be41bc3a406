//! `trefoild serve`: one node, from its settings to its orderly end.
//!
//! ```text
//!   settings ─► log, metrics ─► HTTP port (starting: ...) ─► Node::start ─► serving ─► signal ─► Node::stop ─► exit 0
//! ```

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing::Level;
use tracing_subscriber::EnvFilter;
use trefoil::snapshot::TableLabel;
use trefoil::vfs::disk::DiskVfs;

use crate::config::{Config, ConfigError, LogConfig, LogFormat};
use crate::coordinate::Shared;
use crate::http::{self, Condition, Health, Trouble};
use crate::metrics;
use crate::node::{Node, NodeSettings, StartError};
use crate::signal::StopSignals;

/// Threads of the runtime that everything but the data path runs on.
const CONTROL_THREADS: usize = 2;

/// How often counted values are folded together; they would take memory without bound if nobody asked for them.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);

/// How long what still runs is waited for when the process ends early.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);

/// What ends a node beside signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopWhen {
    /// Nothing.
    Signalled,
    /// The end of standard input: whoever started the node is gone, or says so.
    InputEnds,
}

/// Why a node did not start, or not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The settings are wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A part that every process needs is not to be had.
    #[error("cannot {what}: {source}")]
    Process {
        /// What was to be done.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The HTTP port could not be opened.
    #[error("cannot listen on node.http_address = {address}: {source}")]
    Http {
        /// The setting.
        address: std::net::SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The node did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Memtables could not be written to files; the log still holds what was in them.
    #[error("the node did not stop cleanly, the next start replays the log: {0}")]
    Stop(#[source] trefoil::Error),
    /// Somebody was in a hurry.
    #[error("a second signal came before the node had stopped; the next start replays the log")]
    Hurried,
}

/// Runs a node until it is told to stop.
pub fn serve(file: &Path, stop_when: StopWhen) -> Result<(), ServeError> {
    let config = Config::load(file)?;
    start_log(&config.log);
    let handle = metrics::install().map_err(|source| ServeError::Process { what: "count", source })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("control")
        .enable_all()
        .build()
        .map_err(|source| ServeError::Process { what: "start threads", source })?;
    let served = runtime.block_on(run(&config, &handle, stop_when));
    runtime.shutdown_timeout(LEAVE_PATIENCE);
    served
}

/// Logs to standard error: what Trefoil says from the chosen level on, and what libraries say from warnings on. Only Raft
/// is silent unless details are wanted: it reports every message to a node that is away as an error.
fn start_log(config: &LogConfig) {
    let of_libraries = if config.level == Level::ERROR { "error" } else { "warn" };
    let of_raft = if config.level > Level::INFO { of_libraries } else { "off" };
    let own = config.level.as_str().to_ascii_lowercase();
    let filter = format!("{of_libraries},openraft={of_raft},trefoil={own},trefoil_server={own}");
    let filter = EnvFilter::new(filter);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match config.format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
}

async fn run(config: &Config, handle: &PrometheusHandle, stop_when: StopWhen) -> Result<(), ServeError> {
    let mut signals =
        StopSignals::take_over().map_err(|source| ServeError::Process { what: "take over signals", source })?;
    let mut input = input_end(stop_when);
    let health = Health::starting();
    let parts = Arc::new(OnceLock::new());
    let stop_http = start_http(config, handle, &health, &parts).await?;
    health.set(Condition::Starting("other members are asked who this node is, then the log is replayed".to_owned()));
    let started = tokio::select! {
        started = Node::start(NodeSettings::new(config), Arc::new(DiskVfs)) => started?,
        signal = signals.next_signal() => {
            tracing::info!(signal, "stopped before the node had started");
            return Ok(());
        }
        () = &mut input => return Ok(()),
    };
    // Set once, here.
    let _ = parts.set(started.shared().clone());
    health.set(Condition::Serving);
    tracing::info!(
        node = started.shared().identity.node.0,
        client_address = %config.node.client_address,
        http_address = %config.node.http_address,
        "serving"
    );
    tokio::select! {
        signal = signals.next_signal() => tracing::info!(signal, "stopping"),
        () = &mut input => tracing::info!("standard input has ended, stopping"),
    }
    health.set(Condition::Stopping);
    tokio::select! {
        stopped = started.stop() => stopped.map_err(ServeError::Stop)?,
        _ = signals.next_signal() => return Err(ServeError::Hurried),
    }
    // The HTTP port is gone already if nobody listens.
    let _ = stop_http.send(());
    tracing::info!("stopped");
    Ok(())
}

async fn start_http(
    config: &Config,
    handle: &PrometheusHandle,
    health: &Arc<Health>,
    parts: &Arc<OnceLock<Arc<Shared>>>,
) -> Result<oneshot::Sender<()>, ServeError> {
    let address = config.node.http_address;
    let listener = TcpListener::bind(address).await.map_err(|source| ServeError::Http { address, source })?;
    let (stop, stopped) = oneshot::channel::<()>();
    let (asked, shown, looked) = (handle.clone(), parts.clone(), parts.clone());
    let render = Arc::new(move || metrics::render(&asked, &shown));
    let look = Arc::new(move || looked.get().map(|shared| trouble(shared)).unwrap_or_default());
    let served = http::serve(listener, health.clone(), look, render, async { drop(stopped.await) });
    tokio::spawn(async move {
        if let Err(error) = served.await {
            tracing::error!(%error, "the HTTP port is closed");
        }
    });
    let kept = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(METRICS_UPKEEP).await;
            kept.run_upkeep();
        }
    });
    Ok(stop)
}

/// What is wrong with a node that serves.
fn trouble(shared: &Shared) -> Trouble {
    let store = shared.replica.store();
    let quarantined = store.quarantined().into_iter().map(|file| {
        let TableLabel { keyspace, table, .. } = &file.label;
        format!("{} of {keyspace}.{table} is quarantined: {}", file.path.display(), file.reason)
    });
    let fatal = store.log_failure().map(|cause| format!("the commit log takes no more writes since {cause}"));
    let full = shared.storage_failure();
    let full = full.map(|reason| format!("files cannot be written, writes are refused meanwhile: {reason}"));
    Trouble { fatal, warnings: full.into_iter().chain(quarantined).collect() }
}

/// Done when standard input ends, if that is to stop the node.
fn input_end(stop_when: StopWhen) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
    if stop_when == StopWhen::Signalled {
        return Box::pin(std::future::pending());
    }
    let (ended, end) = oneshot::channel::<()>();
    let reader = std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        let mut bytes = [0; 64];
        while matches!(std::io::stdin().read(&mut bytes), Ok(1..)) {}
        drop(ended);
    });
    if let Err(error) = reader {
        tracing::error!(%error, "the end of standard input is not noticed");
        return Box::pin(std::future::pending());
    }
    Box::pin(async { drop(end.await) })
}
