//! Whom a node takes for alive: a peer whose handshake is done and from which something came within the last seconds.
//!
//! Liveness routes requests. It never moves data and never decides who is a member: that stands in the metadata log.

use std::collections::BTreeMap;

use crate::model::{Instant, NodeId};

/// Silence after which a connected peer is no longer taken for alive, in microseconds.
pub const SILENCE_MAX_US: u64 = 3_000_000;

/// What is known of each peer's connections. A peer may be connected several times, once per runtime of the server.
#[derive(Debug, Default)]
pub struct Liveness {
    peers: BTreeMap<NodeId, Peer>,
}

#[derive(Debug, Default)]
struct Peer {
    connections: u32,
    heard: Instant,
}

impl Liveness {
    /// A handshake with the peer was completed.
    pub fn connected(&mut self, node: NodeId, now: Instant) {
        let peer = self.peers.entry(node).or_default();
        peer.connections += 1;
        peer.heard = now;
    }

    /// A connection on which a handshake had been completed is gone. With the last one the peer is at once not alive.
    pub fn disconnected(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.connections = peer.connections.saturating_sub(1);
        }
    }

    /// Something came from the peer.
    pub fn heard(&mut self, node: NodeId, now: Instant) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.heard = peer.heard.max(now);
        }
    }

    /// Whether requests go to the peer.
    pub fn is_alive(&self, node: NodeId, now: Instant) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.connections > 0 && now.since_us(peer.heard) <= SILENCE_MAX_US)
    }

    /// The peers that are connected, alive or silent.
    pub fn connected_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.peers.iter().filter(|(_, peer)| peer.connections > 0).map(|(node, _)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_alive_while_connected_and_heard() {
        let mut liveness = Liveness::default();
        let node = NodeId(2);
        assert!(!liveness.is_alive(node, Instant(0)));
        liveness.heard(node, Instant(0));
        assert!(!liveness.is_alive(node, Instant(0)), "hearing without a handshake is not enough");
        liveness.connected(node, Instant(10));
        assert!(liveness.is_alive(node, Instant(10 + SILENCE_MAX_US)));
        assert!(!liveness.is_alive(node, Instant(11 + SILENCE_MAX_US)));
        liveness.heard(node, Instant(5_000_000));
        assert!(liveness.is_alive(node, Instant(5_000_001)));
        liveness.connected(node, Instant(5_000_002));
        liveness.disconnected(node);
        assert!(liveness.is_alive(node, Instant(5_000_003)), "one of two connections is left");
        liveness.disconnected(node);
        assert!(!liveness.is_alive(node, Instant(5_000_003)));
    }
}
