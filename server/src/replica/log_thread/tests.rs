//! The bounds of the queue.

#![allow(clippy::unwrap_used, reason = "tests")]

use trefoil::codec::{CheckedRecord, RecordKind};
use trefoil::model::{KeyspaceId, Mutation, NodeId, PartitionKey, Stamp, TableId};

use super::super::Ticket;
use super::*;

fn job(bytes: usize) -> WriteJob {
    let ticket = Ticket { lane: 0, id: 1 };
    let key = PartitionKey::from_bytes(vec![0; bytes].into());
    let mutation = Mutation::new(TableId(uuid::Uuid::from_u128(1)), key);
    let kind = RecordKind::Nameless { composer: NodeId(1), known_through: Stamp(0) };
    let record = CheckedRecord::encode(kind, KeyspaceId(1), Stamp(1), &mutation);
    WriteJob { record, durability: Durability::Commit, deadline: clock::now(), ticket }
}

#[test]
fn records_that_nobody_takes_are_refused_at_last() {
    let queue = LogQueue::default();
    let taken = (0..1_000).take_while(|_| queue.push(job(1 << 20)).is_ok()).count();
    assert_eq!(taken, QUEUE_BYTES_MAX >> 20);
    assert_eq!(queue.push(job(1)).unwrap_err().0, FailureReason::Overloaded);
    let mut jobs = Vec::new();
    assert!(matches!(queue.take(Duration::ZERO, &mut jobs), Wake::Jobs) && jobs.len() == taken);
    assert!(queue.push(job(1)).is_ok());
}

/// A record that was queued behind the last group would never be answered.
#[test]
fn a_closed_queue_gives_what_it_has_and_takes_nothing() {
    let queue = LogQueue::default();
    queue.push(job(1)).unwrap();
    queue.close();
    assert!(queue.push(job(1)).is_err());
    let mut jobs = Vec::new();
    assert!(matches!(queue.take(Duration::ZERO, &mut jobs), Wake::Jobs) && jobs.len() == 1);
    jobs.clear();
    assert!(matches!(queue.take(Duration::ZERO, &mut jobs), Wake::Closed));
}
