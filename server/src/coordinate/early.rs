//! What peers ask of tables that this node does not know yet: it waits until the metadata have come, or to its deadline.
//!
//! A table is created on every node at about the same time, and who hears of it first may use it at once. The node that
//! is behind has begun to fetch: whoever is ahead says so on its links before it sends its first write.

use trefoil::metadata::Epoch;
use trefoil::model::Instant;

use super::served::{Asked, Work};

/// Operations that may wait; more are refused as stale.
const WAITING_MAX: usize = 4_096;

/// Bytes of mutations that may wait.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// What waits on a lane.
#[derive(Default)]
pub(super) struct Early {
    waiting: Vec<Asked>,
    bytes: usize,
    /// The epoch by which they were looked at last.
    epoch: Epoch,
}

impl Early {
    /// Lets an operation wait; gives it back if there is no room.
    pub(super) fn put_aside(&mut self, asked: Asked) -> Result<(), Asked> {
        if self.waiting.len() >= WAITING_MAX || self.bytes >= WAITING_BYTES_MAX {
            return Err(asked);
        }
        self.bytes += bytes(&asked);
        self.waiting.push(asked);
        Ok(())
    }

    /// What is to be tried again now that the metadata are at `epoch`, and what cannot wait any longer.
    pub(super) fn take(&mut self, epoch: Epoch, now: Instant) -> (Vec<Asked>, Vec<Asked>) {
        if self.waiting.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let (late, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|asked| asked.deadline <= now);
        self.waiting = waiting;
        let is_news = std::mem::replace(&mut self.epoch, epoch) != epoch;
        let again = if is_news { std::mem::take(&mut self.waiting) } else { Vec::new() };
        self.bytes = self.waiting.iter().map(bytes).sum();
        (again, late)
    }
}

fn bytes(asked: &Asked) -> usize {
    match &asked.work {
        Work::Write(record, _) | Work::Hint(record, _) => record.bytes().len(),
        Work::Read(_) => 0,
        Work::Forward(handed, _) => handed.bytes(),
    }
}
