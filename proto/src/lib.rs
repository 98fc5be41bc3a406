//! The wire of Trefoil: what clients ask nodes and nodes ask each other.
//!
//! [`v1`] is generated from `trefoil/v1/*.proto`, where everything is explained; one file per service. [`convert`] is the
//! only place where these types and the core's model meet, [`status`] says how errors travel.

pub mod convert;
pub mod status;

/// Messages, clients and servers of the package `trefoil.v1`.
#[allow(missing_docs, unused_qualifications, clippy::all, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("trefoil.v1");
}

/// The encoded descriptors of all services, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trefoil.descriptors"));

/// The largest message that client and server take, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 20 << 20;

/// The largest mutation of one partition, in bytes as encoded by the core.
pub const MUTATION_BYTES_MAX: usize = 16 << 20;

/// The largest value of a cell, in bytes.
pub const VALUE_BYTES_MAX: usize = 8 << 20;

/// The largest batch of keys that one read may name.
pub const MULTI_GET_KEYS_MAX: usize = 1_000;

/// The longest request id, in bytes.
pub const REQUEST_ID_BYTES_MAX: usize = 64;
