//! The parts of one node, each by itself, on one thread and without sockets.

pub mod log;
pub mod memory;
pub mod store;

/// Whether each group is made durable before the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// Left to the operating system.
    Written,
    /// One fdatasync for each group.
    Synced,
}
