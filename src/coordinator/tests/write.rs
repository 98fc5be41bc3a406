//! Writes: every order of acknowledgements and failures, counted once.

use proptest::prelude::*;

use crate::coordinator::{Consistency, FailureReason, Requirement, Unavailable, WriteError, WriteOp, bit};

const THREE: [u16; 3] = [0, 0, 0];
const SIX: [u16; 6] = [0, 0, 0, 1, 1, 1];

fn quorum_of_three(alive: u64) -> Result<WriteOp, Unavailable> {
    WriteOp::start(Requirement::new(Consistency::Quorum, &THREE, 0), alive)
}

#[test]
fn a_quorum_answers_at_the_second_acknowledgement_and_never_again() {
    let mut op = quorum_of_three(0b111).unwrap();
    assert_eq!(op.acknowledge(1), None);
    assert_eq!(op.acknowledge(1), None, "one replica is one acknowledgement");
    assert_eq!(op.acknowledge(2), Some(Ok(())));
    assert_eq!(op.acknowledge(0), None);
    assert_eq!(op.fail(0, FailureReason::Storage), None);
    assert_eq!(op.expire(), None);
}

#[test]
fn acknowledgements_of_others_do_not_count() {
    let mut op = quorum_of_three(0b011).unwrap();
    assert_eq!(op.acknowledge(0), None);
    assert_eq!(op.acknowledge(2), None, "it was not sent to replica 2");
    assert_eq!(op.acknowledge(1), Some(Ok(())));
}

/// B110: with too few replicas alive the answer is "unavailable" at once, and nothing was sent; as long as one lives, a
/// write at ONE goes to it and not to a dead one.
#[test]
fn b110_what_cannot_be_met_is_refused_before_anything_is_sent() {
    assert_eq!(quorum_of_three(0b100).err(), Some(Unavailable { required: 2, alive: 1 }));
    let one = Requirement::new(Consistency::One, &THREE, 0);
    assert_eq!(WriteOp::start(one.clone(), 0).err(), Some(Unavailable { required: 1, alive: 0 }));
    assert_eq!(WriteOp::start(one, 0b010).unwrap().targets(), 0b010);
}

#[test]
fn a_write_fails_once_the_level_is_out_of_reach() {
    let mut op = quorum_of_three(0b111).unwrap();
    assert_eq!(op.fail(0, FailureReason::Overloaded), None);
    assert_eq!(op.fail(0, FailureReason::Overloaded), None, "one replica is one failure");
    assert_eq!(op.outstanding(), 0b110);
    let reasons = vec![(0, FailureReason::Overloaded), (2, FailureReason::Clock)];
    let failed = WriteError::Failed { required: 2, received: 0, reasons };
    assert_eq!(op.fail(2, FailureReason::Clock), Some(Err(failed)));
    assert_eq!(op.acknowledge(1), None);
    assert_eq!(op.outstanding(), 0);
}

/// A broken connection says nothing about the write: the acknowledgement that comes by another way counts.
#[test]
fn an_acknowledgement_after_a_failure_counts() {
    let mut op = quorum_of_three(0b111).unwrap();
    assert_eq!(op.fail(0, FailureReason::Disconnected), None);
    assert_eq!(op.acknowledge(0), None);
    assert_eq!(op.fail(2, FailureReason::Disconnected), None, "replicas 0 and 1 can still do it");
    assert_eq!(op.acknowledge(1), Some(Ok(())));
}

#[test]
fn the_deadline_tells_how_many_had_come() {
    let mut op = quorum_of_three(0b111).unwrap();
    assert_eq!(op.acknowledge(2), None);
    assert_eq!(op.expire(), Some(Err(WriteError::Timeout { required: 2, received: 1 })));
    assert_eq!((op.expire(), op.acknowledge(0)), (None, None));
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Acknowledge(usize),
    Fail(usize),
    Expire,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..6usize).prop_map(Event::Acknowledge),
        3 => (0..6usize).prop_map(Event::Fail),
        1 => Just(Event::Expire),
    ]
}

proptest! {
    /// Whatever comes in whatever order: one answer at most, success only if the level is met by distinct targets, and
    /// failure only if it cannot be.
    #[test]
    fn a_write_is_answered_once_and_truly(
        level in proptest::sample::select(&Consistency::EVERY[..]),
        alive in 0..64u64,
        events in proptest::collection::vec(any_event(), 0..14),
    ) {
        let requirement = Requirement::new(level, &SIX, 0);
        let Ok(mut op) = WriteOp::start(requirement.clone(), alive) else {
            prop_assert!(!requirement.met_by(alive));
            return Ok(());
        };
        let (mut acknowledged, mut failed, mut answers) = (0, 0, Vec::new());
        for event in events {
            let answer = match event {
                Event::Acknowledge(replica) => {
                    acknowledged |= bit(replica) & alive;
                    op.acknowledge(replica)
                }
                Event::Fail(replica) => {
                    failed |= bit(replica) & alive & !acknowledged;
                    op.fail(replica, FailureReason::Storage)
                }
                Event::Expire => op.expire(),
            };
            prop_assert_eq!(op.outstanding(), alive & !acknowledged & !failed);
            match &answer {
                Some(Ok(())) => prop_assert!(requirement.met_by(acknowledged)),
                Some(Err(WriteError::Failed { required, received, .. })) => {
                    prop_assert!(!requirement.met_by(acknowledged | op.outstanding()));
                    prop_assert!(received < required);
                }
                Some(Err(WriteError::Timeout { required, received })) => prop_assert!(received < required),
                None => prop_assert!(!answers.is_empty() || !requirement.met_by(acknowledged)),
            }
            answers.extend(answer);
            prop_assert!(answers.len() <= 1);
        }
    }
}

/// Whoever does not have the mutation is told of once, and as soon as that is sure.
#[test]
fn every_replica_that_misses_the_mutation_is_told_of_once() {
    let level = Requirement::new(Consistency::LocalOne, &SIX, 0);
    let mut op = WriteOp::start(level, 0b101111).unwrap();
    assert_eq!((op.take_missed(), op.take_missed()), (0b010000, 0), "a replica that is not seen alive, of any region");
    assert_eq!(op.acknowledge(0), Some(Ok(())));
    assert_eq!(op.fail(1, FailureReason::Storage), None);
    assert_eq!((op.take_missed(), op.take_missed()), (0b000010, 0));
    assert_eq!(op.fail(2, FailureReason::Malformed), None);
    assert_eq!(op.acknowledge(3), None);
    assert_eq!(op.take_missed(), 0, "it can never take it");
    assert_eq!(op.expire(), None);
    assert_eq!((op.take_missed(), op.take_missed()), (0b100000, 0), "silent until the deadline");
}

proptest! {
    /// In whatever order things happen: at the end each replica has acknowledged, or was told of exactly once.
    #[test]
    fn a_replica_acknowledges_or_gets_one_hint(
        alive in 1u64..64,
        steps in proptest::collection::vec((0usize..6, any::<bool>()), 0..12),
    ) {
        let mut op = WriteOp::start(Requirement::new(Consistency::One, &SIX, 0), alive).unwrap();
        let (mut acknowledged, mut hinted) = (0, 0);
        let mut told = |mask: u64| {
            assert_eq!(hinted & mask, 0);
            hinted |= mask;
        };
        told(op.take_missed());
        for (replica, well) in steps {
            if well {
                op.acknowledge(replica);
                acknowledged |= bit(replica) & alive;
            } else {
                op.fail(replica, FailureReason::Disconnected);
            }
            told(op.take_missed());
        }
        op.expire();
        told(op.take_missed());
        prop_assert_eq!((acknowledged | hinted) & 0b111111, 0b111111);
    }
}
