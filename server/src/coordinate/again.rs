//! Writes that are made again.
//!
//! ```text
//!   the level cannot be met ─┬─ a replica goes by another placement, or lacks the table ─► a little later: the same record, by the
//!                            │                                                             metadata of then
//!                            ├─ it came too late for a replica ─► the same mutation under another name, once
//!                            └─ anything else, or no time is left ─► failed; nobody knows what became of it
//! ```
//!
//! **Invariants:** acknowledgements are counted afresh, since those under another placement count no more: it is another
//! operation, and what comes under the old id meets nobody · its cells keep their timestamps, so that a replica that has
//! the mutation twice has what it had · whoever misses the last attempt gets a hint of that one.

use std::time::Duration;

use trefoil::codec::CheckedRecord;
use trefoil::coordinator::{FailureReason, Requirement, WriteError, WriteOp};
use trefoil::model::{Durability, Instant, Stamp};
use trefoil_proto::v1;

use super::Lane;
use super::write::{Kept, Named, Write};
use crate::clock;

/// How soon a write is made again; twice as long each time, as its record is logged each time.
const FIRST: Duration = Duration::from_millis(20);

/// So many times it is doubled at most.
const DOUBLED_MAX: u32 = 6;

/// What was tried before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Attempts {
    stale: u32,
    /// A name is recent when it is given: what comes too late a second time would come too late ever again.
    late: u32,
}

/// A write that waits to be made again.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) at: Instant,
    how: How,
    /// What is answered if it cannot be.
    pub(super) error: WriteError,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    AsItWas,
    NamedAnew,
}

impl Again {
    /// Whether, and when, a write that failed is made again.
    pub(super) fn after(error: &WriteError, attempts: Attempts, deadline: Instant) -> Option<Again> {
        let WriteError::Failed { reasons, .. } = error else { return None };
        let has = |wanted| reasons.iter().any(|(_, reason)| *reason == wanted);
        let how = match (has(FailureReason::TooLate), has(FailureReason::Stale)) {
            (true, _) if attempts.late == 0 => How::NamedAnew,
            (false, true) => How::AsItWas,
            _ => return None,
        };
        let at = clock::after(FIRST * (1 << attempts.stale.min(DOUBLED_MAX)));
        (at < deadline).then(|| Again { at, how, error: error.clone() })
    }
}

impl Lane {
    /// The time has come to look at a write: its deadline, or before.
    pub(super) fn write_due(&self, id: u64) {
        let Some(mut write) = self.take_write(id) else { return };
        let begun = write.again.as_ref().and_then(|again| self.begun_anew(&write, again.how));
        match (begun, write.request.take()) {
            (Some((named, durability)), Some(request)) => self.send_write(named, durability, request),
            (_, request) => {
                write.request = request;
                self.end_write(write);
            }
        }
    }

    /// The write, begun by the metadata of now; `None` if that is not possible.
    fn begun_anew(&self, write: &Write, how: How) -> Option<(Named<'_>, Durability)> {
        if clock::now() >= write.deadline {
            return None;
        }
        let state = self.shared.cluster.load_full();
        let record = CheckedRecord::trusted(write.kept.record.clone()).ok()?;
        let (keyspace, table) = (state.keyspace(write.kept.keyspace)?, state.table(record.table())?);
        let replicas = state.ring().replicas(keyspace, record.token());
        if !self.shared.may_coordinate(keyspace.id, &replicas) {
            return None;
        }
        let regions: Vec<u16> = replicas.nodes.iter().map(|replica| replica.region.0).collect();
        let requirement = Requirement::new(write.level, &regions, self.shared.own_region(&state).0);
        let op = WriteOp::start(requirement, self.shared.alive_mask(&replicas)).ok()?;
        let Attempts { stale, late } = write.attempts;
        let (record, turn, attempts) = match how {
            How::AsItWas => (record, None, Attempts { stale: stale + 1, late }),
            How::NamedAnew => {
                let mut turn = self.shared.naming.turn(Stamp::default()).ok()?;
                let name = turn.name(keyspace.id, replicas.vnode);
                (record.named_anew(name, turn.stamp), Some(turn), Attempts { stale, late: late + 1 })
            }
        };
        let again = Write {
            op,
            nodes: replicas.nodes,
            placement: replicas.placement,
            request: None,
            level: write.level,
            result: v1::WriteResult { stamp: record.stamp().0, ..write.result.clone() },
            deadline: write.deadline,
            kept: Kept { keyspace: keyspace.id, vnode: replicas.vnode, record: record.bytes().clone() },
            attempts,
            again: None,
        };
        Some((Named { write: Box::new(again), record, turn }, table.options.durability))
    }
}
