//! A member of the cluster, as the metadata log knows it.

use std::fmt;

use crate::model::NodeId;

/// A failure domain: at most one replica of a vnode lies in it. Ordered by region, then name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zone {
    /// The region it belongs to.
    pub region: String,
    /// Its name within the region.
    pub name: String,
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.region, self.name)
    }
}

/// What a node is allowed and expected to do. The numbers stand in files and are never reused.
///
/// Only [`NodeState::Serving`] comes about so far; the others are for moving vnodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NodeState {
    /// Receives the data of its vnodes.
    Joining = 1,
    /// Owns vnodes.
    Serving = 2,
    /// Owns vnodes but is about to stop; no leader and no coordinator by choice.
    Draining = 3,
    /// Hands its vnodes over.
    Leaving = 4,
    /// Declared lost by an operator; its vnodes are being replaced.
    Down = 5,
    /// Owns nothing and never comes back; its id is spent.
    Gone = 6,
}

impl NodeState {
    /// Every state, by ascending number.
    pub const ALL: [NodeState; 6] = [
        NodeState::Joining,
        NodeState::Serving,
        NodeState::Draining,
        NodeState::Leaving,
        NodeState::Down,
        NodeState::Gone,
    ];

    /// The number that stands for the state in files.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The state of a number, if there is one.
    pub fn from_code(code: u8) -> Option<NodeState> {
        NodeState::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Whether a node in this state may own vnodes.
    pub fn owns_vnodes(self) -> bool {
        !matches!(self, NodeState::Joining | NodeState::Gone)
    }

    /// The word that people read.
    pub fn name(self) -> &'static str {
        match self {
            NodeState::Joining => "joining",
            NodeState::Serving => "serving",
            NodeState::Draining => "draining",
            NodeState::Leaving => "leaving",
            NodeState::Down => "down",
            NodeState::Gone => "gone",
        }
    }
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number, never reused.
    pub id: NodeId,
    /// Where it stands. Fixed: a node does not change its zone.
    pub zone: Zone,
    /// What it does.
    pub state: NodeState,
    /// `host:port` where other nodes reach it.
    pub peer_address: String,
    /// `host:port` where clients reach it.
    pub client_address: String,
}
