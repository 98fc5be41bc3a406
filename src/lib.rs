//! The core of Trefoil, a replicated wide-column store.
//!
//! Nothing in this crate awaits, sleeps, spawns a thread, opens a socket or asks what time it is: protocols are
//! state machines, files are behind [`vfs`], time is handed in. The same code therefore runs in production (crate
//! `trefoil-server`) and in a seeded simulation.
//!
//! ```text
//!  write   coordinator ──record──► commitlog ──position──► memtable ──flush──► sstable
//!                 (names, stamps)     (fsync)                             (listed in the manifest)
//!  read    coordinator ◄─fragments── store: one view = memtables + sstables, merged by model::merge
//! ```
//!
//! Layers, lowest first; `tests/layering.rs` counts the arrows:
//! [`model`], [`vfs`] · [`codec`] · [`received`] · [`commitlog`], [`memtable`], [`sstable`] · [`compaction`],
//! [`snapshot`] · [`store`], [`backup`] · [`hints`] · and beside them, knowing no files: [`ring`], [`metadata`], [`liveness`], [`coordinator`], [`cql`].

pub mod backup;
pub mod codec;
pub mod commitlog;
pub mod compaction;
pub mod coordinator;
pub mod cql;
mod error;
pub mod hints;
pub mod liveness;
pub mod memtable;
pub mod metadata;
pub mod model;
pub mod received;
pub mod ring;
pub mod snapshot;
pub mod sstable;
pub mod store;
pub mod vfs;

pub use error::{Class, Corrupt, Error, Result};
