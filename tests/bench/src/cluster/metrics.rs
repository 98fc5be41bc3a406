//! What nodes tell of themselves over HTTP, for whoever waits until they are at rest.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::Cluster;
use crate::Result;

/// How long whatever nodes still do may take, on a machine that is busy.
const REST_PATIENCE: Duration = Duration::from_secs(120);

/// How long to wait between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a node at rest has none of.
const UNREST: [&str; 4] = [
    "trefoil_memtables_frozen",
    "trefoil_compactions_running",
    "trefoil_compaction_backlog_bytes",
    "trefoil_backup_files_waiting",
];

impl Cluster {
    /// The sum of a metric over the nodes and its labels.
    pub fn metric(&self, name: &str) -> Result<f64> {
        self.http_addresses().map(|address| Ok(sum(&metrics(address)?, name))).sum()
    }

    /// Waits until nothing is left to be flushed, compacted or uploaded, twice in a row; `ignored` may be left.
    pub fn await_rest(&self, ignored: &[&str]) -> Result<()> {
        let give_up = Instant::now() + REST_PATIENCE;
        let mut at_rest = 0;
        while at_rest < 2 {
            let mut unrest: Vec<&str> = Vec::new();
            for address in self.http_addresses() {
                let told = metrics(address)?;
                unrest.extend(UNREST.into_iter().filter(|name| !ignored.contains(name) && sum(&told, name) > 0.0));
            }
            at_rest = if unrest.is_empty() { at_rest + 1 } else { 0 };
            if Instant::now() > give_up {
                return Err(format!("the nodes do not come to rest: {unrest:?}\n{}", self.logs()).into());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

fn metrics(address: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The sum of all lines of a metric, whatever their labels.
fn sum(told: &str, name: &str) -> f64 {
    let of_line = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let is_it = rest.starts_with(' ') || rest.starts_with('{');
        is_it.then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
    };
    told.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_of_one_metric_are_added_and_no_others() {
        let told = "# TYPE a gauge\na{x=\"1 2\"} 3\na{x=\"2\"} 4\na_b 100\na 0.5\n";
        assert_eq!(super::sum(told, "a").to_bits(), 7.5_f64.to_bits());
    }
}
