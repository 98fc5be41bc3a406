//! A disk that is slow when a test wants it to be: its calls of the C library are made to wait, in a process that does not
//! know of it. And what a node with such a disk is to the others: slow, and not dead.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use trefoil_proto::v1::Consistency::{All, Quorum};

use crate::cluster::Cluster;
use crate::process::Settings;

const SOURCE: &str = include_str!("slow_disk.c");

/// What makes the disk of one process slow.
pub struct SlowDisk {
    library: PathBuf,
    /// How much longer each call takes: milliseconds, four bytes.
    longer: PathBuf,
}

impl SlowDisk {
    /// Made in `directory`; the reason, where there is no C compiler.
    pub fn make(directory: &Path) -> Result<SlowDisk, String> {
        let (source, library) = (directory.join("slow_disk.c"), directory.join("slow_disk.so"));
        let disk = SlowDisk { library, longer: directory.join("slow_disk") };
        fs::write(&source, SOURCE).unwrap();
        fs::write(&disk.longer, 0u32.to_ne_bytes()).unwrap();
        let compiler = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&disk.library, &source])
            .arg("-ldl")
            .output()
            .map_err(|error| format!("cc: {error}"))?;
        if compiler.status.success() { Ok(disk) } else { Err(String::from_utf8_lossy(&compiler.stderr).into_owned()) }
    }

    /// What a process needs in its environment to have it.
    pub fn variables(&self) -> [(String, String); 2] {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        [("LD_PRELOAD".to_owned(), text(&self.library)), ("TREFOIL_SLOW_DISK".to_owned(), text(&self.longer))]
    }

    /// From now on each call takes so much longer, in whole milliseconds.
    pub fn takes(&self, longer: Duration) {
        let ms = longer.as_millis() as u32;
        OpenOptions::new().write(true).open(&self.longer).unwrap().write_all_at(&ms.to_ne_bytes(), 0).unwrap();
    }
}

const LONGER: Duration = Duration::from_millis(200);

/// Whoever needs its answer waits for it; nobody else does, and nobody takes it for dead.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_slow_disk_is_waited_for_by_nobody_who_need_not() {
    let mut cluster = Cluster::prepare(1, Settings::default());
    if let Err(reason) = cluster.node_mut(3).use_slow_disk() {
        println!("skipped: no disk is slow: {reason}");
        return;
    }
    cluster.begin().await;
    cluster.door(1).write(0, 0, All).await.unwrap();
    cluster.node(3).slow_disk().takes(LONGER);
    let (mut at_quorum, rounds) = (Vec::new(), 40);
    for round in 1..=rounds {
        let by = cluster.door(1 + round as u32 % 2);
        let begun = Instant::now();
        by.write(round, round, Quorum).await.unwrap();
        assert_eq!(by.read(round, Quorum).await.unwrap(), Some(round));
        at_quorum.push(begun.elapsed());
    }
    at_quorum.sort_unstable();
    println!("a write and a read at QUORUM: {at_quorum:?}");
    assert!(at_quorum[rounds as usize / 2] < LONGER, "half of them waited for no slow disk");
    let begun = Instant::now();
    cluster.door(1).write(0, 1, All).await.unwrap();
    assert!(begun.elapsed() >= LONGER, "its disk is slow: {:?}", begun.elapsed());
    cluster.settled().await;
    cluster.node(3).slow_disk().takes(Duration::ZERO);
    for round in 1..=rounds {
        assert_eq!(cluster.door(3).read(round, All).await.unwrap(), Some(round));
    }
}
