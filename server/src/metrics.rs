//! Every counter, named once.
use crate::coordinate::Kind;

/// A request of a client was answered.
pub fn request(kind: Kind, code: tonic::Code, elapsed_us: u64) {
    let labels = [("kind", kind.name()), ("outcome", code.description())];
    metrics::counter!("trefoil_requests_total", &labels).increment(1);
    metrics::histogram!("trefoil_request_seconds", "kind" => kind.name()).record(elapsed_us as f64 / 1e6);
}

/// Replicas differed and mutations were written back.
pub fn read_repair(mutations: usize) {
    metrics::counter!("trefoil_read_repair_mutations_total").increment(mutations as u64);
}
