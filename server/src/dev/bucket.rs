//! The bucket that the nodes back up to: an S3 of the parent's own, whose objects are files beside the nodes' directories.
//!
//! It listens on loopback alone, at the port nine above that of the first node, and knows one pair of credentials, which is no
//! secret. With the parent it goes; nodes that run on find it again when the parent is back.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use tokio::net::TcpListener;
use trefoil_s3::Location;
use trefoil_s3::local::{Credentials, LocalS3};

use super::shape::BUCKET_OFFSET;
use super::{DevError, io_error};
use crate::config::BackupConfig;

/// What the bucket is called.
const BUCKET: &str = "backups";

/// The credentials of everybody who runs on this machine.
pub(super) const ACCESS_KEY: &str = "trefoil";
pub(super) const SECRET_KEY: &str = "trefoil-dev";

/// Serves the bucket of the cluster in `directory`.
pub(super) async fn serve(directory: &Path, first_port: u16) -> Result<LocalS3, DevError> {
    let address = address(first_port);
    let taken = |source| DevError::BucketTaken { port: address.port(), source };
    let listener = TcpListener::bind(address).await.map_err(taken)?;
    let root = directory.join("s3");
    LocalS3::make_bucket(&root, BUCKET).map_err(io_error("make", &root))?;
    let credentials = Credentials { access_key: ACCESS_KEY.to_owned(), secret_key: SECRET_KEY.to_owned() };
    LocalS3::serve(listener, &root, &credentials, None).map_err(io_error("serve", &root))
}

/// What the nodes' settings say of it.
pub(super) fn settings(first_port: u16) -> BackupConfig {
    BackupConfig::to(Location {
        endpoint: Some(format!("http://{}", address(first_port))),
        region: "us-east-1".to_owned(),
        bucket: BUCKET.to_owned(),
        prefix: String::new(),
        path_style: true,
    })
}

/// How it is used, in a line.
pub(super) fn about(first_port: u16) -> String {
    format!(
        "backups go to s3://{BUCKET} at http://{}, which this command serves; for tools: AWS_ACCESS_KEY_ID={ACCESS_KEY} \
         AWS_SECRET_ACCESS_KEY={SECRET_KEY}",
        address(first_port)
    )
}

fn address(first_port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, first_port + BUCKET_OFFSET))
}
