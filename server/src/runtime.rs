//! The runtimes of the data path: one thread, one current-thread runtime and one lane each.
//!
//! A socket is handed to one runtime when it is accepted and stays there: a request never crosses threads but for the
//! log and for cold reads.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::service::Routes;
use tonic::transport::Server;

/// Windows of HTTP/2, as on the client side: fixed, never adaptive.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Calls that one connection may have open.
const STREAMS_MAX: u32 = 1_024;

/// What a runtime's server takes sockets from. They belong to no runtime on the way.
pub type Sockets = mpsc::UnboundedReceiver<std::net::TcpStream>;

/// A thread with a runtime on which tasks can be started from anywhere.
pub struct LaneRuntime {
    handle: tokio::runtime::Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LaneRuntime {
    /// Starts the thread.
    pub fn start(number: usize) -> io::Result<LaneRuntime> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(format!("lane-{number}")).spawn(move || {
            // An error says that the runtime's owner is gone: the same as being told to stop.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(Duration::from_millis(200));
        })?;
        Ok(LaneRuntime { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Where tasks of this runtime are started.
    pub fn handle(&self) -> &tokio::runtime::Handle {
        &self.handle
    }

    /// Serves `routes` on the sockets that come, until `stop` turns true.
    pub fn serve(&self, routes: Routes, sockets: Sockets, mut stop: watch::Receiver<bool>) {
        self.handle.spawn(async move {
            let stopped = async move {
                // An error says that the node is gone.
                let _ = stop.wait_for(|stop| *stop).await;
            };
            let served = Server::builder()
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .max_concurrent_streams(STREAMS_MAX)
                .http2_keepalive_interval(Some(Duration::from_secs(10)))
                .http2_keepalive_timeout(Some(Duration::from_secs(10)))
                .add_routes(routes)
                .serve_with_incoming_shutdown(UnboundedReceiverStream::new(sockets).map(TcpStream::from_std), stopped)
                .await;
            if let Err(error) = served {
                tracing::error!(%error, "a server ended");
            }
        });
    }
}

impl Drop for LaneRuntime {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a lane's thread panicked");
        }
    }
}

/// Accepts sockets and deals them out to the lanes in turn, until the task is dropped. A listener that cannot accept (no
/// file descriptors left) is tried again.
pub async fn accept(listener: TcpListener, lanes: Vec<mpsc::UnboundedSender<std::net::TcpStream>>) {
    for lane in lanes.iter().cycle() {
        let accepted = match listener.accept().await {
            Ok((socket, _)) => socket.set_nodelay(true).and_then(|()| socket.into_std()),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        match accepted {
            Ok(socket) => {
                if lane.send(socket).is_err() {
                    return;
                }
            }
            Err(error) => tracing::debug!(%error, "a socket was gone before it was served"),
        }
    }
}
