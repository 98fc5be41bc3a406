//! One node: a warm channel with one pipe, kept up for as long as the node is part of the cluster.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use trefoil_proto::MESSAGE_BYTES_MAX;
use trefoil_proto::v1::data_client::DataClient;
use trefoil_proto::v1::{PipeResponse, pipe_operation};

use crate::pipe::{Answer, Pipe};
use crate::retry::{Failure, backoff};

/// Windows, fixed on both sides: with small or adaptive ones the transport takes many small answers for an attack.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// See [`STREAM_WINDOW_BYTES`].
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// A silent connection is probed so often ...
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// ... and given up if the probe is not answered for so long.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for a connection to be made, and for a stream on it to begin.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A channel to an address, with the settings that matter; not connected yet.
pub(crate) fn endpoint(address: &str) -> Result<Endpoint, tonic::transport::Error> {
    let uri = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    Ok(Endpoint::from_shared(uri)?
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true))
}

/// A node and its connection. Dropping it ends the connection.
#[derive(Debug)]
pub(crate) struct Node {
    /// Where it is reached.
    pub(crate) address: String,
    up: Arc<ArcSwapOption<Up>>,
    keeper: JoinHandle<()>,
}

/// A connection that works, as far as is known.
#[derive(Debug)]
struct Up {
    channel: Channel,
    pipe: Arc<Pipe>,
}

impl Node {
    /// Begins to connect, and goes on whenever the connection ends. `changed` is told of every change.
    pub(crate) fn start(address: String, in_flight_max: usize, changed: watch::Sender<()>) -> Node {
        let up = Arc::new(ArcSwapOption::empty());
        let keeper = tokio::spawn(keep_up(address.clone(), in_flight_max, up.clone(), changed));
        Node { address, up, keeper }
    }

    /// Whether there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load().is_some()
    }

    /// The channel, for calls beside the pipe.
    pub(crate) fn channel(&self) -> Option<Channel> {
        self.up.load().as_ref().map(|up| up.channel.clone())
    }

    /// Sends an operation and waits for its answer, until `deadline`.
    pub(crate) async fn call(&self, op: pipe_operation::Op, deadline: Instant) -> Answer {
        match self.up.load_full() {
            Some(up) => up.pipe.call(op, deadline).await,
            None => Err(Failure::NotSent(format!("no connection to {}", self.address))),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.keeper.abort();
        if let Some(up) = self.up.swap(None) {
            up.pipe.close("the node has left the cluster");
        }
    }
}

async fn keep_up(address: String, in_flight_max: usize, up: Arc<ArcSwapOption<Up>>, changed: watch::Sender<()>) {
    let mut failures = 0;
    loop {
        match connect(&address, in_flight_max).await {
            Ok((connection, answers)) => {
                failures = 0;
                let pipe = connection.pipe.clone();
                up.store(Some(Arc::new(connection)));
                changed.send_replace(());
                let reason = read_answers(&pipe, answers).await;
                up.store(None);
                pipe.close(&reason);
                tracing::debug!(%address, reason, "connection ended");
            }
            Err(reason) => tracing::debug!(%address, reason, "cannot connect"),
        }
        changed.send_replace(());
        failures += 1;
        // At least half of the delay: a node that takes connections and drops them is not hammered.
        sleep(backoff(failures + 1, rand::random_range(0.5..=1.0))).await;
    }
}

async fn connect(address: &str, in_flight_max: usize) -> Result<(Up, tonic::Streaming<PipeResponse>), String> {
    let endpoint = endpoint(address).map_err(|error| error.to_string())?;
    let channel = endpoint.connect().await.map_err(|error| describe(&error))?;
    let pipe = Pipe::new(in_flight_max);
    let mut client = DataClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let opened = timeout(CONNECT_TIMEOUT, client.pipe(pipe.outgoing())).await;
    let answers = opened.map_err(|_| "the node takes no stream".to_owned())?.map_err(|status| status.to_string())?;
    Ok((Up { channel, pipe }, answers.into_inner()))
}

/// Hands out answers until the stream ends; why it did.
async fn read_answers(pipe: &Pipe, mut answers: tonic::Streaming<PipeResponse>) -> String {
    loop {
        match answers.message().await {
            Ok(Some(response)) => pipe.answer(response.answers),
            Ok(None) => return "the node has ended the stream".to_owned(),
            Err(status) => return status.message().to_owned(),
        }
    }
}

/// An error with its causes: the outermost alone says "transport error".
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
