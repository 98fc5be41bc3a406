//! How many nodes there are, where each stands, and what its settings say.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use serde::{Deserialize, Serialize};
use trefoil::model::VnodeBits;
use trefoil::ring::Zone;

use super::{DevError, DevOptions, io_error};
use crate::config::{ClusterConfig, Config, MemberConfig, NodeConfig};

/// The region of all nodes.
const REGION: &str = "local";

/// Commit log that each node keeps for the others: they are on one disk.
const LOG_KEPT_MIB: u64 = 256;

/// From the first node's client port to the bucket's.
pub(super) const BUCKET_OFFSET: u16 = 9;

/// Ports from one node to the next.
const PORT_STEP: u32 = 10;

/// What a cluster is made of; kept in its directory, since a born cluster keeps its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    zones: u16,
    nodes_per_zone: u16,
    port: u16,
}

/// One node of it.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// From 1 on, as in the metadata log.
    pub number: u32,
    /// The name of its zone.
    pub zone: String,
    directory: PathBuf,
    port: u16,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { zones, nodes_per_zone, port } = self;
        write!(f, "--zones {zones} --nodes-per-zone {nodes_per_zone} --port {port}")
    }
}

impl Shape {
    /// What the command line asks for, if there are ports enough.
    pub(super) fn new(options: &DevOptions) -> Result<Shape, DevError> {
        let DevOptions { zones, nodes_per_zone, port, .. } = *options;
        let shape = Shape { zones, nodes_per_zone, port };
        let last = u32::from(port) + ((shape.nodes() - 1) * PORT_STEP + 2).max(u32::from(BUCKET_OFFSET));
        match u16::try_from(last) {
            Ok(_) => Ok(shape),
            Err(_) => Err(DevError::Ports { nodes: shape.nodes(), port, last }),
        }
    }

    fn nodes(self) -> u32 {
        u32::from(self.zones) * u32::from(self.nodes_per_zone)
    }

    /// Writes the shape into an empty directory; another shape in it is an error.
    pub(super) fn settle(self, directory: &Path) -> Result<(), DevError> {
        let file = directory.join("dev.toml");
        let invalid = |error: String| io_error("read", &file)(std::io::Error::new(ErrorKind::InvalidData, error));
        match fs::read_to_string(&file) {
            Ok(text) => {
                let found: Shape = toml::from_str(&text).map_err(|error| invalid(error.message().to_owned()))?;
                if found == self {
                    return Ok(());
                }
                Err(DevError::Shape { directory: directory.to_owned(), found, asked: self })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(directory).map_err(io_error("make", directory))?;
                let text = toml::to_string(&self).map_err(|error| invalid(error.to_string()))?;
                fs::write(&file, text).map_err(io_error("write", &file))
            }
            Err(error) => Err(io_error("read", &file)(error)),
        }
    }

    /// The nodes: those of zone a, then those of zone b, ...
    pub(super) fn places(self, directory: &Path) -> Vec<Place> {
        let place = |index: u32| Place {
            number: index + 1,
            // There are at most 26 zones.
            zone: char::from(b'a' + (index / u32::from(self.nodes_per_zone)) as u8).to_string(),
            directory: directory.join(format!("node-{}", index + 1)),
            // The last port was found to be one.
            port: self.port + (index * PORT_STEP) as u16,
        };
        (0..self.nodes()).map(place).collect()
    }
}

impl Place {
    /// Where clients connect.
    pub(super) fn client_address(&self) -> String {
        self.address(0).to_string()
    }

    /// Where metrics and health are.
    pub(super) fn http_address(&self) -> SocketAddr {
        self.address(2)
    }

    fn address(&self, offset: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port + offset))
    }

    /// The file of its settings.
    pub(super) fn settings(&self) -> PathBuf {
        self.directory.join("node.toml")
    }

    /// The file that it logs to.
    pub(super) fn log(&self) -> PathBuf {
        self.directory.join("node.log")
    }

    /// Whether nobody else listens where this node will.
    pub(super) fn ports_are_free(&self) -> Result<(), DevError> {
        for (offset, what) in [(0, "client port"), (1, "peer port"), (2, "HTTP port")] {
            let address = self.address(offset);
            let port = address.port();
            TcpListener::bind(address).map_err(|source| DevError::Taken { port, what, node: self.number, source })?;
        }
        Ok(())
    }

    /// Writes the settings of this node if there are none: what somebody has changed in them stays.
    pub(super) fn write_settings(&self, shape: &Shape, places: &[Place]) -> Result<(), DevError> {
        let file = self.settings();
        if file.exists() {
            return Ok(());
        }
        fs::create_dir_all(&self.directory).map_err(io_error("make", &self.directory))?;
        fs::write(&file, self.config(shape, places).to_toml()).map_err(io_error("write", &file))
    }

    fn config(&self, shape: &Shape, places: &[Place]) -> Config {
        let zone = |name: &str| Zone { region: REGION.to_owned(), name: name.to_owned() };
        let member = |place: &Place| MemberConfig { address: place.address(1), zone: zone(&place.zone) };
        // All nodes share this machine's cores.
        let cores = available_parallelism().map_or(1, usize::from);
        let runtimes = (cores / 2 / shape.nodes() as usize).max(1);
        let cluster = ClusterConfig {
            name: "dev".to_owned(),
            vnodes: VnodeBits::DEFAULT,
            initial_members: places.iter().map(member).collect(),
        };
        let node = NodeConfig {
            data_dir: PathBuf::from("data"),
            zone: zone(&self.zone),
            client_address: self.address(0),
            peer_address: self.address(1),
            http_address: self.address(2),
            runtimes,
        };
        let mut config = Config::of_member(cluster, node);
        config.storage.log_kept_mib = LOG_KEPT_MIB;
        #[cfg(feature = "dev-s3")]
        {
            config.backup = Some(super::bucket::settings(shape.port));
        }
        config
    }
}
