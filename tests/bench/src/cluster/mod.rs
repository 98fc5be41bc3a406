//! A real cluster on this machine: three zones, one node in each, every node a process of its own.

pub mod connections;
pub mod load;
pub mod metrics;

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trefoil_client::{Client, Consistency};

use crate::Result;

const ZONES: [&str; 3] = ["a", "b", "c"];

/// How long the birth of a cluster may take on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How long to wait between two looks at something that is not there yet.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The release binary beside this one, built first if cargo is at hand.
pub fn binary() -> Result<PathBuf> {
    if let Some(cargo) = std::env::var_os("CARGO") {
        let profile: &[&str] = if cfg!(debug_assertions) { &[] } else { &["--release"] };
        let built =
            Command::new(cargo).args(["build", "--quiet", "--package", "trefoil-server"]).args(profile).status()?;
        if !built.success() {
            return Err("trefoild could not be built".into());
        }
    }
    let binary = std::env::current_exe()?.with_file_name("trefoild");
    if !binary.exists() {
        return Err(format!("{} is missing: cargo build --release -p trefoil-server", binary.display()).into());
    }
    Ok(binary)
}

/// Three nodes. They end with this, by the end of their input, and by force if they do not.
pub struct Cluster {
    nodes: Vec<Node>,
    directory: TempDir,
}

struct Node {
    process: Child,
    client_address: SocketAddr,
    http_address: SocketAddr,
}

/// What the settings of nodes say beside who they are.
#[derive(Debug, Default)]
pub struct Settings {
    /// Memory of all memtables.
    pub memtable_mib: u64,
    /// Sections of their own.
    pub sections: String,
    /// What their environment has beside that of this process.
    pub variables: Vec<(&'static str, String)>,
}

impl Cluster {
    /// Starts the nodes in a new directory, each with so much memory for memtables.
    pub fn start(binary: &Path, memtable_mib: u64) -> Result<Cluster> {
        Cluster::start_with(binary, &Settings { memtable_mib, ..Settings::default() })
    }

    /// Starts the nodes in a new directory.
    pub fn start_with(binary: &Path, settings: &Settings) -> Result<Cluster> {
        let Settings { memtable_mib, sections, variables } = settings;
        let directory = tempfile::tempdir()?;
        let mut cluster = Cluster { nodes: Vec::new(), directory };
        let addresses = free_addresses(3 * ZONES.len())?;
        let addresses: Vec<&[SocketAddr]> = addresses.chunks(3).collect();
        let members: Vec<String> = ZONES
            .iter()
            .zip(&addresses)
            .map(|(zone, of_node)| format!("{{ address = \"{}\", region = \"local\", zone = \"{zone}\" }}", of_node[1]))
            .collect();
        for (zone, of_node) in ZONES.iter().zip(&addresses) {
            let [client, peer, http] = [of_node[0], of_node[1], of_node[2]];
            let data = cluster.directory.path().join(zone);
            fs::create_dir(&data)?;
            let config = data.with_extension("toml");
            fs::write(
                &config,
                format!(
                    "[cluster]\nname = \"bench\"\ninitial_members = [{}]\n[node]\ndata_dir = \"{zone}\"\n\
                     region = \"local\"\nzone = \"{zone}\"\nclient_address = \"{client}\"\npeer_address = \"{peer}\"\n\
                     http_address = \"{http}\"\n[storage]\nmemtable_mib = {memtable_mib}\n[log]\nlevel = \"warn\"\n{sections}",
                    members.join(", ")
                ),
            )?;
            let process = Command::new(binary)
                .arg("serve")
                .arg("--config")
                .arg(&config)
                .arg("--until-input-ends")
                .envs(variables.iter().cloned())
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(File::create(data.with_extension("log"))?)
                .spawn()?;
            cluster.nodes.push(Node { process, client_address: client, http_address: http });
        }
        Ok(cluster)
    }

    /// A client in the first zone, once every node serves; operations are at QUORUM.
    pub async fn connect(&mut self, in_flight_max: usize) -> Result<Client> {
        let give_up = Instant::now() + START_PATIENCE;
        let endpoints: Vec<String> = self.client_addresses().map(|address| address.to_string()).collect();
        loop {
            self.check()?;
            let client = Client::builder(endpoints.clone())
                .region("local")
                .zone(ZONES[0])
                .consistency(Consistency::Quorum)
                .timeout(Duration::from_secs(10))
                .in_flight_max(in_flight_max)
                .connect()
                .await;
            let error = match client {
                Ok(client) => match client.ring().await {
                    Ok(ring) if ring.nodes.iter().filter(|node| node.alive).count() == ZONES.len() => {
                        return Ok(client);
                    }
                    Ok(ring) => format!("not all nodes are alive: {:?}", ring.nodes),
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            if Instant::now() > give_up {
                return Err(format!("the cluster does not serve: {error}\n{}", self.logs()).into());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The processes of the nodes.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.process.id()).collect()
    }

    /// Where clients connect.
    pub fn client_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.nodes.iter().map(|node| node.client_address)
    }

    /// Where they tell metrics.
    pub fn http_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.nodes.iter().map(|node| node.http_address)
    }

    /// An error if a node has ended.
    pub fn check(&mut self) -> Result<()> {
        for (zone, node) in ZONES.iter().zip(&mut self.nodes) {
            if let Some(status) = node.process.try_wait()? {
                return Err(format!("the node in zone {zone} ended: {status}").into());
            }
        }
        Ok(())
    }

    /// What the nodes have logged: warnings and errors.
    pub fn logs(&self) -> String {
        let log = |zone: &&str| {
            let file = self.directory.path().join(zone).with_extension("log");
            format!("zone {zone}: {}\n", fs::read_to_string(file).unwrap_or_default())
        };
        ZONES.iter().map(log).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Their data goes too: nothing would be gained by an orderly end.
        for node in &mut self.nodes {
            let _ = node.process.kill();
        }
        for node in &mut self.nodes {
            let _ = node.process.wait();
        }
    }
}

/// Addresses on which nobody listens now.
fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    // All are held until all are known, so that no two are the same.
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<std::io::Result<_>>()?;
    Ok(listeners.iter().map(TcpListener::local_addr).collect::<std::io::Result<_>>()?)
}
