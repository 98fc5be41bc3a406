//! Reads of replicas that agree, differ, fail and come late.

use std::sync::Arc;

use super::cluster::{Cluster, Fault, whole_table};
use super::replica::Replica;
use crate::coordinator::{
    Consistency, FailureReason, ReadAction, ReadAnswer, ReadError, ReadOp, Requirement, Want, digest,
};
use crate::model::naive::{deletion, partition_key, row_key, rows, value};
use crate::model::{Fragment, PageEnd, ReadCommand, Row, Slice, Target};

const P: u8 = 1;

/// The values of column 1 in an answer.
fn values(answer: &ReadAnswer) -> Vec<String> {
    let row = |fragment: &Fragment<crate::codec::EncodedRow>| match fragment {
        Fragment::Row(_, row) => Some(row.decode().unwrap()),
        _ => None,
    };
    let cells = answer.fragments.iter().filter_map(row).flat_map(|row| row.cells);
    cells.map(|(_, cell)| String::from_utf8(cell.value_at(0).unwrap().to_vec()).unwrap()).collect()
}

fn one_row() -> ReadCommand {
    ReadCommand { target: Target::Partition(partition_key(P)), slices: vec![Slice::one(&row_key(0))], ..whole_table() }
}

fn read(cluster: &mut Cluster, level: Consistency) -> ReadAnswer {
    cluster.log.clear();
    cluster.execute(one_row(), level).unwrap().unwrap()
}

/// Three replicas that hold `old`, of which those of `newer` hold `new` as well.
fn cluster_with(newer: u64) -> Cluster {
    let mut cluster = Cluster::of_three();
    cluster.write(0b111, &rows(P, [(0, value("old", 1))]));
    cluster.write(newer, &rows(P, [(0, value("new", 2))]));
    cluster
}

#[test]
fn equal_answers_of_as_many_as_the_level_needs_are_enough() {
    let mut cluster = cluster_with(0b111);
    let answer = read(&mut cluster, Consistency::Quorum);
    assert_eq!((values(&answer), answer.repaired), (vec!["new".to_owned()], false));
    assert_eq!(cluster.log, ["ask 0", "digest 1"]);
    read(&mut cluster, Consistency::One);
    assert_eq!(cluster.log, ["ask 0"]);
}

#[test]
fn the_next_nearest_stands_in_for_one_that_fails() {
    let mut cluster = cluster_with(0b111);
    cluster.nearest_first = vec![2, 0, 1];
    cluster.faults[2] = Fault::Fails;
    read(&mut cluster, Consistency::Quorum);
    assert_eq!(cluster.log, ["ask 2", "digest 0", "ask 1"]);
    cluster.faults[0] = Fault::Fails;
    let reasons = vec![(2, FailureReason::Disconnected), (0, FailureReason::Disconnected)];
    let failed = ReadError::Failed { required: 2, received: 0, reasons };
    assert_eq!(cluster.execute(one_row(), Consistency::Quorum).unwrap(), Err(failed));
    cluster.faults[0] = Fault::Dead;
    let refused = cluster.execute(one_row(), Consistency::All).unwrap_err();
    assert_eq!((refused.required, refused.alive), (3, 2));
}

#[test]
fn when_answers_differ_all_are_asked_and_all_become_equal() {
    let mut cluster = cluster_with(0b001);
    let answer = read(&mut cluster, Consistency::Quorum);
    assert_eq!((values(&answer), answer.repaired), (vec!["new".to_owned()], true));
    assert_eq!(cluster.log, ["ask 0", "digest 1", "ask 1", "ask 2", "repair 1", "repair 2"]);
    assert!(cluster.holds_the_same_everywhere());
}

/// B037: X' on all; X acknowledged by N1 and N2; N2 loses its data. A quorum read of N2 and N3, neither of which has X,
/// must not spread X' over the only copy of X: it asks N1 too.
#[test]
fn b037_a_lost_and_a_stale_replica_do_not_outvote_the_newest() {
    let mut cluster = cluster_with(0b011);
    cluster.replicas[1] = Replica::default();
    cluster.nearest_first = vec![1, 2, 0];
    assert_eq!(values(&read(&mut cluster, Consistency::Quorum)), ["new"]);
    assert_eq!(cluster.log, ["ask 1", "digest 2", "ask 2", "ask 0", "repair 1", "repair 2"]);
    assert!(cluster.holds_the_same_everywhere());
    cluster.nearest_first = vec![0, 2, 1];
    assert_eq!(values(&read(&mut cluster, Consistency::Quorum)), ["new"]);
    assert_eq!(cluster.log, ["ask 0", "digest 2"]);
}

/// B109: two regions and a cut link; replicas of the own region differ. LOCAL_QUORUM reads and repairs within the
/// region alone.
#[test]
fn b109_a_local_read_sends_nothing_to_other_regions() {
    let mut cluster = Cluster::of_regions(&[0, 1, 0, 1, 0, 1]);
    cluster.write(0b111111, &rows(P, [(0, value("old", 1))]));
    cluster.write(0b000001, &rows(P, [(0, value("new", 2))]));
    [1, 3, 5].into_iter().for_each(|remote| cluster.faults[remote] = Fault::Fails);
    assert_eq!(values(&read(&mut cluster, Consistency::LocalQuorum)), ["new"]);
    assert_eq!(cluster.log, ["ask 0", "digest 2", "ask 2", "ask 4", "repair 2", "repair 4"]);
}

/// B115: N2 is stale and has no room for writes. Quorum reads go on: replicas that have everything count without being
/// written to, and the third one can be.
#[test]
fn b115_a_replica_that_refuses_the_write_back_stops_no_quorum() {
    for newer in [0b001, 0b101] {
        let mut cluster = cluster_with(newer);
        cluster.faults[1] = Fault::RefusesWrites;
        assert_eq!(values(&read(&mut cluster, Consistency::Quorum)), ["new"]);
    }
    let mut cluster = cluster_with(0b001);
    cluster.faults = vec![Fault::None, Fault::RefusesWrites, Fault::RefusesWrites];
    let reasons = vec![(1, FailureReason::Storage), (2, FailureReason::Storage)];
    let failed = ReadError::Failed { required: 2, received: 1, reasons };
    assert_eq!(cluster.execute(one_row(), Consistency::Quorum).unwrap(), Err(failed));
}

#[test]
fn a_malformed_page_is_a_failure_of_its_replica_alone() {
    for level in [Consistency::One, Consistency::Quorum] {
        for broken in 0..3 {
            let mut cluster = cluster_with(0b111);
            cluster.faults[broken] = Fault::Malformed;
            assert_eq!(values(&read(&mut cluster, level)), ["new"], "{level}, replica {broken} is broken");
            assert!(!cluster.log.iter().any(|step| step.starts_with("repair")), "{:?}", cluster.log);
        }
    }
    let mut cluster = cluster_with(0b111);
    cluster.faults = vec![Fault::Malformed, Fault::Malformed, Fault::None];
    let answer = cluster.execute(one_row(), Consistency::Quorum).unwrap();
    assert!(matches!(answer, Err(ReadError::Failed { required: 2, received: 0 | 1, .. })), "{answer:?}");
}

#[test]
fn what_comes_late_or_from_strangers_changes_nothing() {
    let cluster = cluster_with(0b001);
    let command = Arc::new(one_row());
    let page = |replica: usize| cluster.replicas[replica].read(&command);
    let requirement = Requirement::new(Consistency::Quorum, &[0, 0, 0], 0);
    let mut out = Vec::new();
    let mut op = ReadOp::start(command.clone(), requirement, &[0, 1, 2], None, &mut out).unwrap();
    assert!(matches!(out[..], [ReadAction::Ask(0, Want::Page), ReadAction::Ask(1, Want::Digest)]));
    out.clear();
    op.page(2, page(2), &mut out);
    op.repaired(0, &mut out);
    op.fail(2, FailureReason::Stale, &mut out);
    op.page(0, page(0), &mut out);
    op.page(0, page(0), &mut out);
    op.fail(0, FailureReason::Disconnected, &mut out);
    assert!(out.is_empty(), "replica 1 is still to answer: {out:?}");
    op.page(1, page(1), &mut out);
    assert!(matches!(out[..], [ReadAction::Ask(2, Want::Page)]), "they differ: {out:?}");
    out.clear();
    op.page(2, page(2), &mut out);
    assert!(matches!(out[..], [ReadAction::Repair(1, _), ReadAction::Repair(2, _)]), "{out:?}");
    out.clear();
    op.page(1, page(1), &mut out);
    op.repaired(0, &mut out);
    assert!(out.is_empty(), "{out:?}");
    op.repaired(2, &mut out);
    assert!(matches!(&out[..], [ReadAction::Answer(Ok(answer))] if answer.repaired), "{out:?}");
    out.clear();
    op.repaired(1, &mut out);
    op.fail(1, FailureReason::Storage, &mut out);
    op.expire(&mut out);
    assert!(out.is_empty(), "answered already: {out:?}");
}

#[test]
fn the_deadline_tells_what_was_missing() {
    let cluster = cluster_with(0b001);
    let command = Arc::new(one_row());
    let page = |replica: usize| cluster.replicas[replica].read(&command);
    let expired = |pages: &[usize]| {
        let requirement = Requirement::new(Consistency::Quorum, &[0, 0, 0], 0);
        let mut out = Vec::new();
        let mut op = ReadOp::start(command.clone(), requirement, &[0, 1, 2], None, &mut out).unwrap();
        pages.iter().for_each(|replica| op.page(*replica, page(*replica), &mut out));
        op.expire(&mut out);
        match out.pop() {
            Some(ReadAction::Answer(Err(error))) => error,
            other => panic!("{other:?}"),
        }
    };
    let timeout = |received, data_present| ReadError::Timeout { required: 2, received, data_present };
    assert_eq!(expired(&[]), timeout(0, false));
    assert_eq!(expired(&[0]), timeout(1, true));
    assert_eq!(expired(&[0, 1, 2]), timeout(1, true), "one replica has everything, its repair of the others is late");
}

#[test]
fn an_answer_reaches_to_where_the_shortest_page_does() {
    let mut cluster = Cluster::of_three();
    cluster.write(0b111, &rows(P, [(0, value("a", 1)), (2, value("c", 1))]));
    cluster.write(0b001, &rows(P, [(1, value("b", 1))]));
    let command = ReadCommand { slices: vec![Slice::all()], limit_rows: 2, ..one_row() };
    let answer = cluster.execute(command, Consistency::Quorum).unwrap().unwrap();
    assert_eq!(values(&answer), ["a", "b"], "replica 0 says nothing of what lies behind b");
    assert!(matches!(&answer.end, PageEnd::At(end) if end.partition == partition_key(P)));
}

/// B038: one replica had let a tombstone go, another still held it and a third only the row below it; the tombstone was
/// held back as expired, so that reads flipped. Whatever pair a quorum asks first, differing answers draw in the third;
/// tombstones are sent however old they are, and after one read the row is deleted everywhere and for ever.
#[test]
fn b038_a_tombstone_that_one_replica_still_has_is_found_and_spread() {
    let deleted = Row { deletion: Some(deletion(2)), ..Row::default() };
    for nearest_first in [[0, 1, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1], [1, 0, 2], [2, 1, 0]] {
        let mut cluster = Cluster::of_three();
        cluster.write(0b011, &rows(P, [(0, value("old", 1))]));
        cluster.write(0b010, &rows(P, [(0, deleted.clone())]));
        cluster.nearest_first = nearest_first.into();
        for _ in 0..3 {
            let answer = read(&mut cluster, Consistency::Quorum);
            assert_eq!(values(&answer), Vec::<String>::new(), "{nearest_first:?}");
        }
        assert!(cluster.holds_the_same_everywhere(), "{nearest_first:?}");
        cluster.nearest_first.reverse();
        assert_eq!(values(&read(&mut cluster, Consistency::One)), Vec::<String>::new());
    }
}

/// B107: a read was woken when as many had answered as its level needs, before the data itself was to be seen. An answer is
/// counted by being there: whatever the order, none is given before the last page that it needs, and none lacks one.
#[test]
fn b107_an_answer_is_counted_with_what_it_brings() {
    let replicas = cluster_with(0b001).replicas;
    for order in [[0, 1], [1, 0]] {
        let mut actions = Vec::new();
        let requirement = Requirement::new(Consistency::Quorum, &[0, 0], 0);
        let mut op = ReadOp::start(Arc::new(one_row()), requirement, &[0, 1], None, &mut actions).unwrap();
        actions.clear();
        op.page(order[0], replicas[order[0]].read(op.command()), &mut actions);
        assert!(actions.is_empty(), "one of two has answered: {actions:?}");
        // The same replica again is no second answer.
        op.page(order[0], replicas[order[0]].read(op.command()), &mut actions);
        assert!(actions.is_empty(), "one of two has answered: {actions:?}");
        op.page(order[1], replicas[order[1]].read(op.command()), &mut actions);
        assert!(matches!(actions.as_slice(), [ReadAction::Repair(1, _)]), "{actions:?}");
        op.repaired(1, &mut actions);
        let Some(ReadAction::Answer(Ok(answer))) = actions.pop() else { panic!("{actions:?}") };
        assert_eq!(values(&answer), ["new"]);
    }
}

/// The one whose page was asked for fails when the other's digest is there: that one is asked for its page.
#[test]
fn a_replica_of_which_the_digest_is_known_stands_in_for_the_page() {
    let cluster = cluster_with(0b111);
    let command = Arc::new(one_row());
    let page = cluster.replicas[1].read(&command);
    let mut out = Vec::new();
    let requirement = Requirement::new(Consistency::One, &[0, 0, 0], 0);
    let mut op = ReadOp::start(command, requirement, &[0, 1], None, &mut out).unwrap();
    assert_eq!(op.speculate(&mut out), Some(1));
    assert_eq!(op.speculate(&mut out), None, "nobody is left");
    assert!(matches!(out[..], [ReadAction::Ask(0, Want::Page), ReadAction::Ask(1, Want::Page)]), "{out:?}");
    out.clear();
    op.page(1, page.clone(), &mut out);
    assert!(matches!(&out[..], [ReadAction::Answer(Ok(answer))] if values(answer) == ["new"]), "{out:?}");
    // At QUORUM, where two are alive and the better one fails, the level is not met.
    out.clear();
    let requirement = Requirement::new(Consistency::Quorum, &[0, 0, 0], 0);
    let mut op = ReadOp::start(op.command().clone(), requirement, &[0, 1, 2], None, &mut out).unwrap();
    let own = digest(&page, op.unseen()).unwrap();
    op.digest(1, own, &mut out);
    op.fail(0, FailureReason::Disconnected, &mut out);
    let Some(ReadAction::Ask(2, Want::Page)) = out.pop() else { panic!("{out:?}") };
    op.fail(2, FailureReason::Disconnected, &mut out);
    let Some(ReadAction::Answer(Err(ReadError::Failed { required: 2, received: 1, .. }))) = out.pop() else {
        panic!("{out:?}")
    };
}

/// Answers differ and the third replica is silent: once it had its time, two that answered are enough for a quorum.
#[test]
fn a_silent_replica_is_not_waited_for_once_the_level_is_met() {
    let mut cluster = cluster_with(0b001);
    cluster.faults[2] = Fault::Silent;
    assert_eq!(values(&read(&mut cluster, Consistency::Quorum)), ["new"]);
    assert_eq!(cluster.log, ["ask 0", "digest 1", "ask 1", "ask 2", "settle", "repair 1"]);
    let late = cluster.execute(one_row(), Consistency::All).unwrap();
    assert_eq!(late, Err(ReadError::Timeout { required: 3, received: 2, data_present: true }));
}
