//! An S3 of one's own, on loopback: for `trefoild dev`, and for tests that need a real one.
//!
//! ```text
//!   connection ─► hook: let through | answer with an error | drop the answer | close | stall ─► s3s ─► files in a directory
//! ```
//!
//! It serves one pair of credentials from a directory. What it stores is as durable as files that nobody syncs: it is for
//! trying things out, not for backups that matter.

mod hook;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

pub use hook::{Hook, HttpFault, Request};

/// Who may use it.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// Told with each request.
    pub access_key: String,
    /// Never told.
    pub secret_key: String,
}

/// A server that runs until it is dropped.
pub struct LocalS3 {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl LocalS3 {
    /// Serves what is in `directory`, in which each directory is a bucket, on `listener`. Each request passes `hook` first.
    pub fn serve(
        listener: TcpListener,
        directory: &Path,
        credentials: &Credentials,
        hook: Option<Arc<Hook>>,
    ) -> io::Result<LocalS3> {
        let address = listener.local_addr()?;
        std::fs::create_dir_all(directory)?;
        let files = FileSystem::new(directory).map_err(|error| io::Error::other(format!("{error:?}")))?;
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(credentials.access_key.as_str(), credentials.secret_key.as_str()));
        let task = tokio::spawn(accept(listener, builder.build(), hook));
        Ok(LocalS3 { address, task })
    }

    /// Makes a bucket in the directory of a server, unless it is there.
    pub fn make_bucket(directory: &Path, bucket: &str) -> io::Result<PathBuf> {
        let path = directory.join(bucket);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as an endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for LocalS3 {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Connections end with the task that accepts them.
async fn accept(listener: TcpListener, service: S3Service, hook: Option<Arc<Hook>>) {
    let mut connections = JoinSet::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the local S3 could not accept a connection");
                tokio::task::yield_now().await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let (service, hook) = (service.clone(), hook.clone());
        connections.spawn(async move {
            let service = hook::Hooked { service, hook };
            let connection = auto::Builder::new(TokioExecutor::new());
            // A client that goes away in the middle is nothing to tell of.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
