//! A Trefoil node: every thread, socket and timer is here; what is decided is decided in the core (crate `trefoil`).
//!
//! ```text
//!   service ─► coordinate ─► peers ─► other nodes
//!                  ├──────► replica ─► trefoil::store
//!                  └──────► hints ─► trefoil::hints ─► coordinate (back to whoever has missed a write)
//!   metadata_log ─► peer_rpc ─► other nodes       birth: who this node is, before anything else
//! ```

pub mod backup;
pub mod birth;
pub mod ceiling;
pub mod clock;
pub mod config;
pub mod coordinate;
pub mod dev;
pub mod hints;
pub mod http;
#[cfg(test)]
mod in_process;
pub mod metadata_log;
pub mod metrics;
pub mod node;
pub mod peer_rpc;
pub mod peers;
pub mod replica;
pub mod replication;
pub mod restore;
pub mod runtime;
pub mod serve;
pub mod service;
pub mod signal;
