//! Single questions to other nodes, and the settings of every channel between nodes.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use trefoil_proto::v1::peer_client::PeerClient as Stub;
use trefoil_proto::{MESSAGE_BYTES_MAX, v1};

/// Time to a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Windows of HTTP/2. Fixed, never adaptive: with many small frames under way the library ends a connection whose window
/// is small or adaptive.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Where nodes are to be dialled, if not where they say: `address=other,...`. For tests, which put something in between that
/// loses what they want lost.
const ROUTES: &str = "TREFOIL_PEER_ROUTES";

fn routed(address: &str) -> &str {
    static GIVEN: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
        let given = std::env::var(ROUTES).unwrap_or_default();
        let pair = |route: &str| route.split_once('=').map(|(address, other)| (address.to_owned(), other.to_owned()));
        given.split(',').filter_map(pair).collect()
    });
    GIVEN.get(address).map_or(address, String::as_str)
}

/// How a channel between nodes is set up; errors name the address.
pub(super) fn endpoint(address: &str) -> Result<Endpoint, String> {
    let address = routed(address);
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| format!("{address}: {error}"))?;
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(Duration::from_secs(2))
        .keep_alive_timeout(Duration::from_secs(4))
        .keep_alive_while_idle(true))
}

pub(super) fn stub(stub: Stub<Channel>) -> Stub<Channel> {
    stub.max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Asks single questions of nodes by address, over one channel each.
#[derive(Default)]
pub struct PeerClient {
    channels: Mutex<HashMap<String, Channel>>,
}

/// Who asks.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// Its cluster, 16 bytes; empty before birth.
    pub cluster: Bytes,
    /// Its number; 0 before birth.
    pub node: u32,
}

impl PeerClient {
    /// Asks `address` and waits at most `timeout`.
    pub async fn call(
        &self,
        caller: &Caller,
        address: &str,
        kind: v1::CallKind,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, Status> {
        let request =
            v1::CallRequest { kind: kind.into(), body, cluster_id: caller.cluster.clone(), node_id: caller.node };
        let mut request = tonic::Request::new(request);
        request.set_timeout(timeout);
        let mut stub = stub(Stub::new(self.channel(address)?));
        let answer = tokio::time::timeout(timeout, stub.call(request)).await;
        match answer {
            Ok(response) => Ok(response?.into_inner().body),
            Err(_) => Err(Status::deadline_exceeded(format!("{address} did not answer within {timeout:?}"))),
        }
    }

    fn channel(&self, address: &str) -> Result<Channel, Status> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(address) {
            return Ok(channel.clone());
        }
        let channel = endpoint(address).map_err(Status::invalid_argument)?.connect_lazy();
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }
}
