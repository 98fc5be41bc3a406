//! A bucket in an S3 that is a process of its own: the same server that `trefoild dev` has.
//!
//! ```text
//!   trefoil-bench bucket DIR ── its endpoint ──► whoever started it
//!        ▲ a line ───────────── what came so far ──►      the end of its input ends it
//! ```

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use tempfile::TempDir;
use tokio::net::TcpListener;
use trefoil_proto::v1::BackupPlace;
use trefoil_s3::local::{Credentials, LocalS3, Request};

use crate::Result;
use crate::cluster::Settings;

/// The bucket's name.
pub const NAME: &str = "bench";
/// Who may use it.
pub const ACCESS_KEY: &str = "bench";
/// No secret: it opens nothing but this.
pub const SECRET_KEY: &str = "opens-nothing-but-a-bench";

/// A server and its bucket. Both go with it.
pub struct Bucket {
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    endpoint: String,
    directory: TempDir,
}

/// An object, as the file that the server made of it.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its key.
    pub key: String,
    /// The file.
    pub file: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// When it was whole.
    pub at: SystemTime,
}

impl Bucket {
    /// An empty one.
    pub fn start() -> Result<Bucket> {
        let directory = tempfile::tempdir()?;
        LocalS3::make_bucket(directory.path(), NAME)?;
        let mut process = Command::new(std::env::current_exe()?)
            .arg("bucket")
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (ask, answers) = pipes.ok_or("the server of the bucket has no pipes")?;
        let mut answers = BufReader::new(answers);
        let endpoint = line(&mut answers)?;
        Ok(Bucket { process, ask, answers, endpoint, directory })
    }

    /// Where it is.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Bytes that came to be stored, since it began: each as often as it came.
    pub fn put_bytes(&mut self) -> Result<u64> {
        self.ask.write_all(b"\n")?;
        Ok(line(&mut self.answers)?.parse()?)
    }

    /// Settings of nodes that back up to it, as fast as they can, and close soon what they log.
    pub fn settings(&self, memtable_mib: u64) -> Settings {
        let endpoint = &self.endpoint;
        let sections = format!(
            "[replication]\nclosed_behind_s = 5\n[backup]\nendpoint = \"{endpoint}\"\nregion = \"us-east-1\"\n\
             bucket = \"{NAME}\"\npath_style = true\nlog_every_s = 5\nevery_h = 0\nmib_per_s = 1048576\n"
        );
        Settings { sections, ..Bucket::settings_without_backups(memtable_mib) }
    }

    /// Settings of nodes that do not back up, but may read the bucket.
    pub fn settings_without_backups(memtable_mib: u64) -> Settings {
        let variables =
            vec![("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned())];
        Settings { memtable_mib, variables, ..Settings::default() }
    }

    /// Where it is, as a request names it.
    pub fn place(&self) -> BackupPlace {
        BackupPlace {
            endpoint: self.endpoint.clone(),
            region: "us-east-1".to_owned(),
            bucket: NAME.to_owned(),
            prefix: String::new(),
            path_style: true,
        }
    }

    /// All objects whose keys contain `part`.
    pub fn objects(&self, part: &str) -> Result<Vec<Stored>> {
        let root = self.directory.path().join(NAME);
        let mut found = Vec::new();
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory)? {
                let file = entry?.path();
                let Ok(key) = file.strip_prefix(&root) else { continue };
                let key = key.to_string_lossy().into_owned();
                // What is being made may be gone by now.
                let Ok(meta) = fs::metadata(&file) else { continue };
                if meta.is_dir() {
                    directories.push(file);
                } else if key.contains(part) {
                    found.push(Stored { key, file, bytes: meta.len(), at: meta.modified()? });
                }
            }
        }
        Ok(found)
    }

    /// The server answers nothing until [`Bucket::resume`].
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// See [`Bucket::pause`].
    pub fn resume(&self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> Result<()> {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status()?;
        if sent.success() { Ok(()) } else { Err(format!("the server of the bucket took no SIG{name}").into()) }
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn line(from: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    match from.read_line(&mut line)? {
        0 => Err("the server of the bucket has ended".into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}

/// What the process of the server does.
pub fn serve(directory: &Path) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let came = Arc::new(AtomicU64::new(0));
    let counted = came.clone();
    let count = move |request: &Request| {
        counted.fetch_add(request.body_bytes, Ordering::Relaxed);
        None
    };
    let credentials = Credentials { access_key: ACCESS_KEY.to_owned(), secret_key: SECRET_KEY.to_owned() };
    let server = runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        LocalS3::serve(listener, directory, &credentials, Some(Arc::new(count)))
    })?;
    println!("{}", server.endpoint());
    for line in std::io::stdin().lines() {
        line?;
        println!("{}", came.load(Ordering::Relaxed));
    }
    Ok(())
}
