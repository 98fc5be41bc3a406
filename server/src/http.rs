//! The HTTP port: `/metrics` for Prometheus, `/healthz` for whoever decides whether the node is sent requests.
//!
//! It opens before everything else and closes last, so that a node that starts slowly or stops can say so.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How long a node may take to say how it is.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// More than any node says of its health.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// What the node is doing, as `/healthz` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// It does not take requests yet: what it is waiting for.
    Starting(String),
    /// It takes requests.
    Serving,
    /// It takes no more requests.
    Stopping,
}

/// The node's [`Condition`], shared by whoever sets and asks it.
pub struct Health {
    condition: ArcSwap<Condition>,
}

/// Where the text of `/metrics` comes from; asked anew each time.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// What is wrong with a node that serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Why it should be sent no requests, if it should not.
    pub fatal: Option<String>,
    /// What somebody should look at, a line each.
    pub warnings: Vec<String>,
}

/// Where a node's trouble is seen; asked anew each time.
pub type Look = Arc<dyn Fn() -> Trouble + Send + Sync>;

#[derive(Clone)]
struct Page {
    health: Arc<Health>,
    look: Look,
    render: Render,
}

impl Health {
    /// A node that has just begun to start.
    pub fn starting() -> Arc<Health> {
        let condition = Condition::Starting("settings are read".to_owned());
        Arc::new(Health { condition: ArcSwap::from_pointee(condition) })
    }

    /// What the node is doing.
    pub fn condition(&self) -> Condition {
        Condition::clone(&self.condition.load())
    }

    /// Says what the node is doing from now on.
    pub fn set(&self, condition: Condition) {
        self.condition.store(Arc::new(condition));
    }
}

/// Serves the port until `stop` is done, then finishes what is under way.
pub async fn serve(
    listener: TcpListener,
    health: Arc<Health>,
    look: Look,
    render: Render,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router(health, look, render)).with_graceful_shutdown(stop).await
}

fn router(health: Arc<Health>, look: Look, render: Render) -> Router {
    Router::new().route("/healthz", get(healthz)).route("/metrics", get(metrics)).with_state(Page {
        health,
        look,
        render,
    })
}

async fn healthz(State(page): State<Page>) -> (StatusCode, String) {
    match page.health.condition() {
        Condition::Serving => match (page.look)() {
            Trouble { fatal: Some(reason), .. } => (StatusCode::SERVICE_UNAVAILABLE, format!("failed: {reason}\n")),
            Trouble { warnings, .. } => {
                let lines: String = warnings.iter().map(|line| format!("warning: {line}\n")).collect();
                (StatusCode::OK, format!("serving\n{lines}"))
            }
        },
        Condition::Starting(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("starting: {reason}\n")),
        Condition::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned()),
    }
}

async fn metrics(State(page): State<Page>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], (page.render)())
}

/// Asks a node for its health: the HTTP status and what it says.
pub async fn ask_health(address: SocketAddr) -> io::Result<(u16, String)> {
    let asked = tokio::time::timeout(ASK_TIMEOUT, ask(address, "/healthz"));
    let answer = asked.await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer from the HTTP port"))??;
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "what listens there does not speak HTTP");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(malformed)?;
    Ok((status, body.trim_end().to_owned()))
}

/// The whole answer to a question.
async fn ask(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    String::from_utf8(answer).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn health_follows_the_node_and_metrics_are_rendered_when_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let health = Health::starting();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let trouble = Arc::new(ArcSwap::from_pointee(Trouble::default()));
        let looked = trouble.clone();
        let look: Look = Arc::new(move || Trouble::clone(&looked.load()));
        let served = tokio::spawn(serve(listener, health.clone(), look, Arc::new(|| "up 1\n".to_owned()), stopped));

        health.set(Condition::Starting("2 of 3 members answer".to_owned()));
        assert_eq!(ask_health(address).await.unwrap(), (503, "starting: 2 of 3 members answer".to_owned()));
        health.set(Condition::Serving);
        assert_eq!(ask_health(address).await.unwrap(), (200, "serving".to_owned()));
        trouble.store(Arc::new(Trouble { fatal: None, warnings: vec!["a file".to_owned(), "another".to_owned()] }));
        let body = "serving\nwarning: a file\nwarning: another".to_owned();
        assert_eq!(ask_health(address).await.unwrap(), (200, body));
        trouble.store(Arc::new(Trouble { fatal: Some("the log".to_owned()), warnings: Vec::new() }));
        assert_eq!(ask_health(address).await.unwrap(), (503, "failed: the log".to_owned()));
        health.set(Condition::Stopping);
        assert_eq!(ask_health(address).await.unwrap(), (503, "stopping".to_owned()));
        assert!(ask(address, "/metrics").await.unwrap().ends_with("up 1\n"));
        assert!(ask(address, "/other").await.unwrap().starts_with("HTTP/1.1 404"));

        stop.send(()).unwrap();
        served.await.unwrap().unwrap();
    }
}
