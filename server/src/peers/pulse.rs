//! The heartbeats of one stream: what each says of the other side's, so that both know whether they are heard, how long
//! a round takes and how far apart their clocks are.
//!
//! ```text
//! ours    sent_us = a ─────────►                            monotonic clocks of either side, which mean nothing to the other
//! theirs          ◄───────────── echo_us = a, unheard_us = how long ago that came, clock_us
//!         round trip = now - a - unheard_us
//! ```

use parking_lot::Mutex;
use trefoil::liveness::Heartbeat;
use trefoil::model::Instant;
use trefoil_proto::v1;

use crate::clock;

/// One side of a stream.
pub struct Pulse {
    state: Mutex<State>,
}

struct State {
    /// When the last heartbeat came, or the stream began.
    heard: Instant,
    /// What it said of when it was sent.
    echo_us: Option<u64>,
}

impl Pulse {
    /// A stream that begins.
    pub fn new() -> Pulse {
        Pulse { state: Mutex::new(State { heard: clock::now(), echo_us: None }) }
    }

    /// The next heartbeat to send.
    pub fn beat(&self, epoch: Option<v1::Epoch>) -> v1::Ping {
        let (state, now) = (self.state.lock(), clock::now());
        v1::Ping {
            clock_us: clock::wall_us(),
            epoch,
            unheard_us: Some(now.since_us(state.heard)),
            sent_us: Some(now.0),
            echo_us: state.echo_us,
        }
    }

    /// Whether any of the other side's came.
    pub fn has_heard(&self) -> bool {
        self.state.lock().echo_us.is_some()
    }

    /// Takes in one of the other side's.
    pub fn heard(&self, ping: &v1::Ping) -> Heartbeat {
        let (mut state, now) = (self.state.lock(), clock::now());
        (state.heard, state.echo_us) = (now, ping.sent_us);
        let round_trip = |sent_us| now.since_us(Instant(sent_us)).saturating_sub(ping.unheard_us.unwrap_or(0));
        Heartbeat {
            unheard_us: ping.unheard_us,
            round_trip_us: ping.echo_us.map(round_trip),
            ahead_us: ping.clock_us.saturating_sub(clock::wall_us()),
        }
    }
}
