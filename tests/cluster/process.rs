//! One node as a child process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::slow_disk::SlowDisk;
use crate::small_disk::SmallDisk;
use crate::wait::until_or_last;

/// Lines of a node's log that a failed test prints.
const LOG_LINES_SHOWN: usize = 60;

/// Ports are sought here: below the range from which systems take ports for outgoing connections, so that nobody takes
/// one while its node is down.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// Where a node is to be found, and who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub zone: String,
    pub client: SocketAddr,
    pub peer: SocketAddr,
    pub http: SocketAddr,
}

/// What a file of settings says beside places.
#[derive(Debug, Clone)]
pub struct Settings {
    pub cluster_name: String,
    pub vnodes: u32,
    /// Further lines of the section `limits`.
    pub limits: String,
    /// Further lines of the section `storage`.
    pub storage: String,
    /// Further lines of the section `guardrails`.
    pub guardrails: String,
    /// Further lines of the section `hints`.
    pub hints: String,
    /// Lines of the section `scrub`.
    pub scrub: String,
    /// Further lines of the section `replication`.
    pub replication: String,
    /// The section `backup`, with its heading.
    pub backup: String,
    /// The region of all nodes.
    pub region: String,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            cluster_name: "test".to_owned(),
            vnodes: 64,
            limits: String::new(),
            storage: "segment_mib = 48\nmemtable_mib = 32\ncache_mib = 8\n".to_owned(),
            guardrails: String::new(),
            hints: String::new(),
            scrub: String::new(),
            replication: String::new(),
            backup: String::new(),
            region: "local".to_owned(),
        }
    }
}

/// A node: its directory with settings, data and log, and its process while there is one.
pub struct Process {
    pub place: Place,
    directory: PathBuf,
    child: Option<Child>,
    /// Where its data is, if not in the directory.
    disk: Option<SmallDisk>,
    /// What makes its disk slow, if it can be made so.
    slow_disk: Option<SlowDisk>,
    /// What its environment has beside that of the test.
    variables: BTreeMap<String, String>,
}

impl Place {
    /// A place in `zone` with three ports of its own.
    pub fn new(zone: impl Into<String>) -> Place {
        let zone = zone.into();
        Place { zone, client: free_address(), peer: free_address(), http: free_address() }
    }
}

/// An address that nobody listens on and that this run has not given out before.
fn free_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_run(1)))
}

/// The first of so many ports in a row.
pub fn free_run(count: u16) -> u16 {
    static GIVEN: LazyLock<Mutex<BTreeSet<u16>>> = LazyLock::new(Mutex::default);
    let mut given = GIVEN.lock().unwrap();
    // Runs beside this one begin elsewhere.
    let span = u32::from(PORTS.end - PORTS.start - count);
    let begin = std::process::id().wrapping_mul(7_919) % span;
    let is_free = |port: u16| !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let first = (0..span)
        .map(|offset| PORTS.start + ((begin + offset) % span) as u16)
        .find(|first| (*first..*first + count).all(is_free))
        .unwrap();
    given.extend(first..first + count);
    first
}

/// A file of settings for the node in `place` of a cluster that begins with `members`.
pub fn settings_text(place: &Place, members: &[Place], settings: &Settings) -> String {
    let Settings { cluster_name, vnodes, limits, storage, guardrails, hints, scrub, replication, backup, region } =
        settings;
    let member = |place: &Place| {
        format!("  {{ address = \"{}\", region = \"{region}\", zone = \"{}\" }},\n", place.peer, place.zone)
    };
    let members: String = members.iter().map(member).collect();
    let Place { zone, client, peer, http } = place;
    format!(
        "[cluster]\nname = \"{cluster_name}\"\nvnodes = {vnodes}\ninitial_members = [\n{members}]\n\
         [node]\ndata_dir = \"data\"\nregion = \"{region}\"\nzone = \"{zone}\"\nruntimes = 1\n\
         client_address = \"{client}\"\npeer_address = \"{peer}\"\nhttp_address = \"{http}\"\n\
         [storage]\n{storage}[limits]\n{limits}[guardrails]\n{guardrails}[hints]\n{hints}[scrub]\n{scrub}\
         [replication]\n{replication}{backup}[log]\nlevel = \"info\"\n"
    )
}

impl Process {
    /// A node that is not started yet, with a directory of its own.
    pub fn new(directory: PathBuf, place: Place, settings: &str) -> Process {
        fs::create_dir_all(&directory).unwrap();
        let process =
            Process { place, directory, child: None, disk: None, slow_disk: None, variables: BTreeMap::new() };
        process.configure(settings);
        process
    }

    /// Writes the file of settings; counts from the next start on.
    pub fn configure(&self, settings: &str) {
        fs::write(self.settings_file(), settings).unwrap();
    }

    pub fn settings_file(&self) -> PathBuf {
        self.directory.join("node.toml")
    }

    pub fn data_directory(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Starts the process; returns at once.
    pub fn start(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log = OpenOptions::new().create(true).append(true).open(self.log_file()).unwrap();
        let program = env!("CARGO_BIN_EXE_trefoild");
        let mut command = self.disk.as_ref().map_or_else(|| Command::new(program), |disk| disk.command(program));
        command.envs(&self.variables);
        self.child = Some(serve(command, &self.settings_file(), &log));
    }

    /// Sets a variable of its environment; counts from the next start on.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    /// Puts its data, of which there is none yet, on a disk of so many bytes; the reason where that cannot be.
    pub fn use_small_disk(&mut self, bytes: u64) -> Result<(), String> {
        assert!(self.child.is_none(), "it runs already");
        self.disk = Some(SmallDisk::mount(&self.data_directory(), bytes)?);
        Ok(())
    }

    /// The disk of [`Process::use_small_disk`].
    pub fn disk(&self) -> &SmallDisk {
        self.disk.as_ref().unwrap()
    }

    /// Lets its disk be made slow from its next start on; the reason where that cannot be.
    pub fn use_slow_disk(&mut self) -> Result<(), String> {
        let disk = SlowDisk::make(&self.directory)?;
        self.variables.extend(disk.variables());
        self.slow_disk = Some(disk);
        Ok(())
    }

    /// That of [`Process::use_slow_disk`].
    pub fn slow_disk(&self) -> &SlowDisk {
        self.slow_disk.as_ref().unwrap()
    }

    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Waits until the node says that it serves.
    pub async fn ready(&mut self) {
        let (http, what) = (self.place.http, format!("{} serves", self.place.client));
        let child = self.child.as_mut().unwrap();
        let waited = until_or_last(&what, async || {
            if let Some(status) = child.try_wait().unwrap() {
                return Err(format!("it ended: {status}"));
            }
            match get(http, "/healthz").await {
                Ok(answer) if answer.starts_with("HTTP/1.1 200") => Ok(()),
                Ok(answer) => Err(answer),
                Err(error) => Err(error.to_string()),
            }
        });
        if let Err(last) = waited.await {
            panic!("{last}");
        }
    }

    /// kill -9. Returns when the process is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends SIGTERM and waits for the end.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended().await
    }

    /// SIGSTOP: its connections stay open, and nothing answers.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Waits until the process ends by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        ended(&mut child).await
    }

    fn signal(&self, name: &str) {
        signal(self.child.as_ref().unwrap().id(), name).unwrap();
    }

    /// The most memory that it has held since the last call, in KiB.
    pub fn memory_peak_kib(&self) -> u64 {
        let process = PathBuf::from(format!("/proc/{}", self.child.as_ref().unwrap().id()));
        let status = fs::read_to_string(process.join("status")).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        // 5 sets the mark back to what is held now.
        fs::write(process.join("clear_refs"), "5").unwrap();
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Everything that the node has logged, over all its runs.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.join("log.txt")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // The test is over: what cannot be killed is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n");
            println!("-- log of the node at {} in zone {}:\n{last}", self.place.client, self.place.zone);
        }
    }
}

/// `trefoild serve` with a file of settings; all it says goes to `log`. It ends when this process does, however that ends.
fn serve(mut trefoild: Command, settings: &Path, log: &File) -> Child {
    trefoild
        .args(["serve", "--until-input-ends", "--config"])
        .arg(settings)
        .stdin(Stdio::piped())
        .stdout(log.try_clone().unwrap())
        .stderr(log.try_clone().unwrap())
        .spawn()
        .unwrap()
}

/// Sends a signal by its name (`0` only asks); an error if there is no such process.
pub fn signal(process: u32, name: &str) -> Result<(), String> {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).output().unwrap();
    if sent.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&sent.stderr).into_owned()) }
}

async fn ended(child: &mut Child) -> ExitStatus {
    let waited = until_or_last("the process ends", async || child.try_wait().unwrap().ok_or("it runs")).await;
    waited.unwrap_or_else(|last| {
        let _ = child.kill();
        let _ = child.wait();
        panic!("{last}");
    })
}

/// An HTTP answer with its head.
pub async fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
            .await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    tokio::time::timeout(Duration::from_secs(5), exchange).await?
}
