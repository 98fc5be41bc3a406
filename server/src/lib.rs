//! A Trefoil node: every thread, socket and timer is here; what is decided is decided in the core (crate `trefoil`).
//!
//! ```text
//!   service ─► coordinate ─► peers ─► other nodes
//!                  └──────► replica ─► trefoil::store
//! ```

pub mod clock;
pub mod config;
pub mod coordinate;
pub mod http;
pub mod metrics;
pub mod peers;
pub mod replica;
