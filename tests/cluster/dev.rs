//! `trefoild dev`: a cluster from one command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use trefoil_client::Client;

use crate::process::{free_run, signal};
use crate::wait::until;

/// Ports that three nodes take: each ten above the one before, and three of its own.
const PORTS: u16 = 23;

/// `trefoild dev` with what it says in a file.
struct Dev {
    child: Child,
    output: PathBuf,
    port: u16,
}

impl Dev {
    fn start(directory: &Path, port: u16, more: &[&str]) -> Dev {
        let output = directory.join("output.txt");
        let file = std::fs::File::create(&output).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_trefoild"))
            .args(["dev", "--dir"])
            .arg(directory.join("dev"))
            .args(["--port", &port.to_string()])
            .args(more)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Dev { child, output, port }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap()
    }

    async fn says(&self, line: &str) {
        until(&format!("it says {line:?}"), async || {
            let said = self.said();
            if said.lines().any(|found| found.starts_with(line)) { Ok(()) } else { Err(said) }
        })
        .await;
    }

    /// The nodes it said it has started, and their processes.
    fn nodes(&self) -> BTreeMap<u32, u32> {
        let number = |text: &str| text.trim_end_matches([',', ':']).parse::<u32>().unwrap();
        let said = self.said();
        let lines = said.lines().filter(|line| line.starts_with("node "));
        let node = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            (number(words[1]), number(words[3]))
        };
        lines.map(node).collect()
    }

    async fn ended(&mut self) -> ExitStatus {
        until("it ends", async || self.child.try_wait().unwrap().ok_or("it runs")).await
    }

    /// Rows of the demo, read through the node at this place in the order of ports.
    async fn flights(&self, node: u16) -> usize {
        let client = Client::connect(format!("127.0.0.1:{}", self.port + 10 * node)).await.unwrap();
        client.select("demo.flights").columns(Vec::<String>::new()).all().await.unwrap().len()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // Its nodes end when it does.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is in a directory, if it is there.
fn entries(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).map_or(Vec::new(), |read| read.flatten().map(|entry| entry.path()).collect())
}

async fn are_gone(nodes: &BTreeMap<u32, u32>) {
    until("its nodes have ended", async || {
        let alive: Vec<u32> = nodes.values().copied().filter(|process| signal(*process, "0").is_ok()).collect();
        if alive.is_empty() { Ok(()) } else { Err(format!("{alive:?} run")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_starts_stops_and_resumes_a_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_run(PORTS);
    let mut dev = Dev::start(directory.path(), port, &["--demo"]);
    dev.says("ready").await;
    dev.says("demo: 3007 flights").await;
    let nodes = dev.nodes();
    assert_eq!(nodes.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(dev.flights(1).await, 3_007);

    // Each node has found its bucket, and was let in.
    let bucket = directory.path().join("dev/s3/backups");
    until("three nodes have archived their logs", async || {
        let nodes: usize = entries(&bucket).iter().map(|cluster| entries(&cluster.join("log")).len()).sum();
        if nodes == 3 { Ok(()) } else { Err(format!("{nodes} did")) }
    })
    .await;

    // A node that dies stays dead, and the others serve.
    signal(nodes[&2], "KILL").unwrap();
    dev.says("node 2").await;
    assert_eq!(dev.flights(2).await, 3_007);
    assert!(dev.child.try_wait().unwrap().is_none(), "it stays up: {}", dev.said());
    signal(dev.child.id(), "INT").unwrap();
    assert_eq!(dev.ended().await.code(), Some(0), "{}", dev.said());
    are_gone(&nodes).await;

    let mut other = Dev::start(directory.path(), port, &["--zones", "2"]);
    assert!(!other.ended().await.success());
    assert!(other.said().contains("--zones 3") && other.said().contains("--zones 2"), "{}", other.said());

    let dev = Dev::start(directory.path(), port, &[]);
    dev.says("ready").await;
    assert_eq!(dev.flights(0).await, 3_007, "what was there is there");
    let nodes = dev.nodes();
    // kill -9 of dev itself leaves no node behind.
    drop(dev);
    are_gone(&nodes).await;
}
