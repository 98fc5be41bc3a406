//! The services that clients call: decode, call one function, encode. Nothing is decided here.
//!
//! ```text
//!   Data     ─► Lane (of the connection's runtime)             health, reflection: the libraries' own
//!   Schema   ─► MetadataLog, then wait for the nodes seen alive
//!   Cluster  ─► ClusterState, Peers, and single questions to other nodes ◄─ Control::answer on their side
//!   Backup   ─► Crew, which sees to the archive and to jobs
//! ```

mod backup;
mod cluster;
pub(crate) mod compaction;
mod control;
mod data;
mod deadline;
mod digests;
mod each;
mod hints;
mod replication;
mod restore;
mod schema;
mod shares;
mod snapshots;
#[cfg(test)]
mod tests;
mod verify;

use std::sync::Arc;

use futures_util::FutureExt;
use tonic::codec::CompressionEncoding;
use tonic::service::{Routes, RoutesBuilder};
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, HealthService};
use trefoil_proto::v1::backup_server::BackupServer;
use trefoil_proto::v1::cluster_server::ClusterServer;
use trefoil_proto::v1::data_server::DataServer;
use trefoil_proto::v1::restore_server::RestoreServer;
use trefoil_proto::v1::schema_server::SchemaServer;
use trefoil_proto::{FILE_DESCRIPTOR_SET, MESSAGE_BYTES_MAX};

use crate::coordinate::Lane;

pub use control::Control;

/// The services that reflection lists: those of the client port.
const SERVICES: [&str; 6] = [
    "trefoil.v1.Data",
    "trefoil.v1.Schema",
    "trefoil.v1.Cluster",
    "trefoil.v1.Restore",
    "trefoil.v1.Backup",
    "grpc.health.v1.Health",
];

/// Everything that is served on the client port, for the connections of one lane.
pub fn client_routes(lane: Arc<Lane>, control: Arc<Control>) -> Routes {
    macro_rules! limited {
        ($server:expr) => {
            $server
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX)
                .accept_compressed(CompressionEncoding::Gzip)
        };
    }
    let mut routes = RoutesBuilder::default();
    routes
        .add_service(limited!(DataServer::new(data::DataService::new(lane))))
        .add_service(limited!(SchemaServer::new(schema::SchemaService::new(control.clone()))))
        .add_service(limited!(ClusterServer::new(cluster::ClusterService::new(control.clone()))))
        .add_service(limited!(BackupServer::new(backup::BackupService::new(control.clone()))))
        .add_service(limited!(RestoreServer::new(restore::RestoreService::new(control))))
        .add_service(tonic_health::pb::health_server::HealthServer::new(health()));
    // The descriptors are made with the program: whether they can be read is tested, and nobody depends on them.
    let (v1, v1alpha) = (reflection().build_v1(), reflection().build_v1alpha());
    match (v1, v1alpha) {
        (Ok(v1), Ok(v1alpha)) => {
            routes.add_service(v1).add_service(v1alpha);
        }
        (Err(error), _) | (_, Err(error)) => tracing::error!(%error, "reflection is not served"),
    }
    routes.routes()
}

/// The client port is open only while the node serves, so that whoever can ask is told so.
fn health() -> HealthService {
    let reporter = HealthReporter::new();
    for service in SERVICES {
        // Nobody else holds the reporter's lock yet: this never waits.
        let _ = reporter.set_service_status(service, ServingStatus::Serving).now_or_never();
    }
    HealthService::from_health_reporter(reporter)
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    SERVICES.into_iter().fold(builder, |builder, service| builder.with_service_name(service))
}
