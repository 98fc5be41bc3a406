//! How much a node takes on at once: requests in flight, by number and by bytes. More is refused before it is begun.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tonic::Code;
use trefoil_proto::v1;

/// When to come again after a refusal.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// The requests in flight on a node, over all lanes.
pub struct Admission {
    requests_max: u64,
    bytes_max: u64,
    requests: AtomicU64,
    bytes: AtomicU64,
    closed: AtomicBool,
}

/// A place taken, given back when dropped.
pub struct Permit {
    admission: Arc<Admission>,
    bytes: u64,
}

impl Admission {
    /// Admits so many requests and bytes of requests.
    pub fn new(requests_max: u64, bytes_max: u64) -> Admission {
        Admission {
            requests_max,
            bytes_max,
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Takes a place for a request of `bytes`, or says what is full.
    pub fn admit(self: &Arc<Self>, bytes: usize) -> Result<Permit, v1::Error> {
        let bytes = bytes as u64;
        if self.closed.load(Ordering::Relaxed) {
            return Err(v1::Error::new(Code::Unavailable, "the node is stopping", v1::Outcome::NotApplied));
        }
        if self.requests.fetch_add(1, Ordering::Relaxed) >= self.requests_max {
            self.requests.fetch_sub(1, Ordering::Relaxed);
            return Err(v1::Error::overloaded("requests", RETRY_AFTER));
        }
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.bytes_max {
            self.requests.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(v1::Error::overloaded("bytes", RETRY_AFTER));
        }
        Ok(Permit { admission: self.clone(), bytes })
    }

    /// Admits nothing more: the node stops. Streams that are open are told so with each request.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Requests in flight.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.requests.fetch_sub(1, Ordering::Relaxed);
        self.admission.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_and_given_back() {
        let admission = Arc::new(Admission::new(2, 100));
        let first = admission.admit(60).ok();
        assert!(first.is_some());
        let refused = admission.admit(60).err().map(|error| error.message);
        assert!(refused.is_some_and(|text| text.contains("bytes")));
        let second = admission.admit(40).ok();
        let refused = admission.admit(0).err().map(|error| error.message);
        assert!(refused.is_some_and(|text| text.contains("requests")));
        drop((first, second));
        assert_eq!((admission.requests(), admission.bytes()), (0, 0));
        admission.close();
        let refused = admission.admit(0).err();
        assert!(refused.is_some_and(|error| error.outcome() == v1::Outcome::NotApplied));
        assert_eq!((admission.requests(), admission.bytes()), (0, 0));
    }
}
