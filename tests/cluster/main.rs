//! Real nodes: `trefoild serve` as child processes, killed, paused and started again while clients look on.
//!
//! ```text
//!   cluster.rs   some nodes in a temporary directory          process.rs   one of them: its file of settings, its log
//!   door.rs      requests to one chosen node, never retried   wait.rs      conditions with a deadline; there are no sleeps
//!   small_disk.rs  a disk that can be filled                  proxy.rs     links that can be cut, one way or both
//!   slow_disk.rs   a disk that can be made slow               bucket.rs    an S3 that can be made to fail
//! ```
//!
//! The other files are the tests, each named for what it shows. `docs/testing.md` lists them, and how to run them for
//! longer.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests; what they print is shown where they fail")]

mod backup;
mod bad_requests;
mod bad_starts;
mod basics;
mod bucket;
mod chaos;
mod cluster;
mod collections;
mod compaction;
mod counters;
mod damaged;
mod dev;
mod disk_full;
mod door;
mod flights;
mod guardrails;
mod hints;
mod kills;
mod levels;
mod liveness;
mod loss;
mod observed;
mod overload;
mod peer_port;
mod process;
mod proxy;
mod repair;
mod replication;
mod restore;
mod schema;
mod slow_disk;
mod small_disk;
mod snapshots;
mod steps;
mod stopping;
mod types;
mod verify;
mod wait;
mod whole;
mod wide;
mod zone;
