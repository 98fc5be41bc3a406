//! A bucket in an S3 of the test's own, which can be made to fail on the wire.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tempfile::TempDir;
use tokio::net::TcpListener;
use trefoil_proto::v1::BackupPlace;
use trefoil_s3::local::{Credentials, HttpFault, LocalS3, Request};

use crate::process::{Process, Settings};

const NAME: &str = "backups";
const ACCESS_KEY: &str = "test";
const SECRET_KEY: &str = "nobody-is-told-this";

/// Decides what becomes of a request.
type Hook = dyn Fn(&Request) -> Option<HttpFault> + Send;

/// The bucket. It ends with the test.
pub struct Bucket {
    directory: TempDir,
    server: LocalS3,
    hook: Arc<Mutex<Box<Hook>>>,
}

impl Bucket {
    /// An empty one.
    pub async fn serve() -> Bucket {
        let directory = tempfile::tempdir().unwrap();
        LocalS3::make_bucket(directory.path(), NAME).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let credentials = Credentials { access_key: ACCESS_KEY.to_owned(), secret_key: SECRET_KEY.to_owned() };
        let hook: Arc<Mutex<Box<Hook>>> = Arc::new(Mutex::new(Box::new(|_| None)));
        let asked = hook.clone();
        let ask = Arc::new(move |request: &Request| (asked.lock().unwrap())(request));
        let server = LocalS3::serve(listener, directory.path(), &credentials, Some(ask)).unwrap();
        Bucket { directory, server, hook }
    }

    /// From now on requests fail where this says so.
    pub fn fail(&self, hook: impl Fn(&Request) -> Option<HttpFault> + Send + 'static) {
        *self.hook.lock().unwrap() = Box::new(hook);
    }

    /// Settings of nodes that back up to it often, and close soon what they log.
    pub fn settings(&self) -> Settings {
        let backup = format!(
            "[backup]\nendpoint = \"{}\"\nregion = \"us-east-1\"\nbucket = \"{NAME}\"\npath_style = true\nlog_every_s = 5\n\
             every_h = 0\nabsent_after_s = 5\n",
            self.server.endpoint()
        );
        let replication = "closed_behind_s = 5\n".to_owned();
        Settings { backup, replication, ..Settings::default() }
    }

    /// What an object says, if it is there.
    pub fn object(&self, key: &str) -> Option<Bytes> {
        std::fs::read(self.directory.path().join(NAME).join(key)).ok().map(Bytes::from)
    }

    /// Where it is, as a request names it.
    pub fn place(&self) -> BackupPlace {
        BackupPlace {
            endpoint: self.server.endpoint(),
            region: "us-east-1".to_owned(),
            bucket: NAME.to_owned(),
            prefix: String::new(),
            path_style: true,
        }
    }

    /// The files that its objects are, those whose keys contain `part`, ascending.
    pub fn objects(&self, part: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut directories = vec![self.directory.path().join(NAME)];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.to_string_lossy().contains(part) {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    /// Lets a node use it.
    pub fn give_credentials(node: &mut Process) {
        node.set_variable("AWS_ACCESS_KEY_ID", ACCESS_KEY);
        node.set_variable("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    }
}
