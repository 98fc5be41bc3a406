//! Whom a node takes for alive: a peer with a connection that is heard on, and that says that it hears.
//!
//! ```text
//! each link    heartbeats both ways twice a second ──► Accrual: silent?        ┐
//!              the peer's say how long it has heard nothing ──► deaf?          ├─► alive: one link is well
//!              refused, reset, ended ──► gone at once                          ┘
//! each peer    its clock, half a round trip ago ──► Offsets ──► OwnClock::judge
//! ```
//!
//! Slow is not dead: a peer whose answers take long goes on being asked, after the others (`coordinator/plan.rs`). Liveness
//! routes requests. It never moves data and never decides who is a member: that stands in the metadata log.

mod accrual;
mod clocks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::model::{Instant, NodeId};

pub use accrual::{Accrual, HEARTBEAT_US, SILENCE_MAX_US};
pub use clocks::{OFF_US, Offsets, OwnClock, RIGHT_US};

/// A peer that says twice in a row that it has heard nothing on a link for longer does not hear it, in microseconds.
pub const DEAF_US: u64 = 1_500_000;

/// One of the connections to a peer: there may be several, one per runtime of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(u64);

/// What is known of each peer.
#[derive(Debug, Default)]
pub struct Liveness {
    peers: BTreeMap<NodeId, Peer>,
    links: u64,
    own_clock: OwnClock,
}

#[derive(Debug, Default)]
struct Peer {
    links: BTreeMap<LinkId, Link>,
    offsets: Offsets,
    round_trip_us: Option<u64>,
    /// Why the last connection ended, or could not be made.
    reason: Option<String>,
    was_alive: bool,
    /// Since when it has been in this state.
    since: Instant,
}

#[derive(Debug)]
struct Link {
    accrual: Accrual,
    /// Heartbeats in a row that said that nothing is heard.
    deaf: u32,
}

/// A heartbeat of a peer, as it came over one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heartbeat {
    /// How long the peer has had no heartbeat of this node on the link, in microseconds, if it says so.
    pub unheard_us: Option<u64>,
    /// The time from one's own last heartbeat to this one, without what it lay with the peer, in microseconds.
    pub round_trip_us: Option<u64>,
    /// How far the peer's clock was ahead when this one came, in microseconds.
    pub ahead_us: i64,
}

/// What a peer is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Requests go to it.
    Alive,
    /// There are connections, and nothing comes.
    Silent,
    /// There is no connection.
    Unlinked,
}

/// A peer as this node sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Which one.
    pub node: NodeId,
    /// What it is taken for.
    pub state: State,
    /// Why, if it is not taken for alive.
    pub reason: Option<String>,
    /// For how long, in microseconds.
    pub for_us: u64,
    /// The doubt that its best connection is alive, as a power of ten.
    pub phi: f64,
    /// The last round trip, in microseconds.
    pub round_trip_us: Option<u64>,
    /// How far its clock is ahead of this node's, in microseconds.
    pub ahead_us: Option<i64>,
}

impl State {
    /// The word that stands for it.
    pub fn name(self) -> &'static str {
        match self {
            State::Alive => "alive",
            State::Silent => "silent",
            State::Unlinked => "unlinked",
        }
    }
}

impl Liveness {
    /// A handshake with the peer was completed on a new link.
    pub fn connected(&mut self, node: NodeId, now: Instant) -> LinkId {
        self.links += 1;
        let (id, link) = (LinkId(self.links), Link { accrual: Accrual::new(now), deaf: 0 });
        self.peers.entry(node).or_default().links.insert(id, link);
        id
    }

    /// A link is gone, for this reason. With the last one the peer is at once not alive.
    pub fn disconnected(&mut self, node: NodeId, link: LinkId, reason: String) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.links.remove(&link);
            peer.reason = Some(reason);
        }
    }

    /// No connection can be made, for this reason.
    pub fn refused(&mut self, node: NodeId, reason: String) {
        self.peers.entry(node).or_default().reason = Some(reason);
    }

    /// Something came from the peer over a link.
    pub fn heard(&mut self, node: NodeId, link: LinkId, now: Instant) {
        if let Some(link) = self.link(node, link) {
            link.accrual.heard(now);
        }
    }

    /// A heartbeat of the peer came over a link.
    pub fn heartbeat(&mut self, node: NodeId, link: LinkId, heartbeat: Heartbeat, now: Instant) {
        let Some(link) = self.link(node, link) else { return };
        link.accrual.heartbeat(now);
        if let Some(unheard_us) = heartbeat.unheard_us {
            link.deaf = if unheard_us > DEAF_US { link.deaf + 1 } else { 0 };
        }
        let Some(peer) = self.peers.get_mut(&node) else { return };
        if let Some(round_trip_us) = heartbeat.round_trip_us {
            peer.round_trip_us = Some(round_trip_us);
            // It was sent at some time of the round trip, nobody knows when: what counts is what surely differs.
            let (least, most) = (heartbeat.ahead_us, heartbeat.ahead_us.saturating_add_unsigned(round_trip_us));
            peer.offsets.measured(0.clamp(least, most));
        }
    }

    /// Why a link must be given up, if it must.
    pub fn fault(&self, node: NodeId, link: LinkId, now: Instant) -> Option<String> {
        let link = self.peers.get(&node)?.links.get(&link)?;
        if link.is_deaf() {
            return Some("it is heard and says that it does not hear this node".to_owned());
        }
        let silence_ms = link.accrual.silence_us(now) / 1_000;
        link.accrual.is_silent(now).then(|| format!("nothing was heard for {silence_ms} ms"))
    }

    /// Whether requests go to the peer.
    pub fn is_alive(&self, node: NodeId, now: Instant) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.is_alive(now))
    }

    /// Looks again who is alive and whose clock is wrong; to be called a few times a second, since silence is no event.
    pub fn refresh(&mut self, now: Instant) -> Vec<NodeId> {
        let mut alive = Vec::new();
        let mut offsets = Vec::new();
        for (node, peer) in &mut self.peers {
            let is_alive = peer.is_alive(now);
            if is_alive != peer.was_alive {
                (peer.was_alive, peer.since) = (is_alive, now);
            }
            if is_alive {
                alive.push(*node);
                offsets.extend(peer.offsets.now());
            }
        }
        self.own_clock = self.own_clock.judge(&offsets);
        alive
    }

    /// What was found of the own clock when it was looked at last.
    pub fn own_clock(&self) -> OwnClock {
        self.own_clock
    }

    /// The peers that are known, as this node sees them.
    pub fn views(&self, now: Instant) -> impl Iterator<Item = View> {
        self.peers.iter().map(move |(node, peer)| peer.view(*node, now))
    }

    fn link(&mut self, node: NodeId, link: LinkId) -> Option<&mut Link> {
        self.peers.get_mut(&node)?.links.get_mut(&link)
    }
}

impl Link {
    fn is_deaf(&self) -> bool {
        self.deaf >= 2
    }

    fn is_well(&self, now: Instant) -> bool {
        !self.is_deaf() && !self.accrual.is_silent(now)
    }
}

impl Peer {
    fn is_alive(&self, now: Instant) -> bool {
        self.links.values().any(|link| link.is_well(now))
    }

    fn view(&self, node: NodeId, now: Instant) -> View {
        let state = match (self.is_alive(now), self.links.is_empty()) {
            (true, _) => State::Alive,
            (false, false) => State::Silent,
            (false, true) => State::Unlinked,
        };
        let reason = match state {
            State::Alive => None,
            State::Silent => Some("nothing is heard of it".to_owned()),
            State::Unlinked => self.reason.clone().or_else(|| Some("no connection was made yet".to_owned())),
        };
        let least = |least: f64, link: &Link| least.min(link.accrual.phi(now));
        let phi = if self.links.is_empty() { 0.0 } else { self.links.values().fold(f64::INFINITY, least) };
        View {
            node,
            state,
            reason,
            for_us: now.since_us(self.since),
            phi,
            round_trip_us: self.round_trip_us,
            ahead_us: self.offsets.now(),
        }
    }
}
