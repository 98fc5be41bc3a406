//! Each rule of the exchange by itself. What they are worth together is for `tests/received` to show.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::received::told::Floors;

const SLICE: Slice = (KeyspaceId(1), Vnode(7));
const START: Instant = Instant(1_000);

fn name(origin: u32, incarnation: u64, sequence: u64) -> MutationName {
    MutationName { origin: NodeId(origin), incarnation, sequence }
}

fn set(names: &[(u32, u64, u64)]) -> ReceivedSet {
    let mut set = ReceivedSet::default();
    names.iter().for_each(|(origin, incarnation, sequence)| {
        set.add(name(*origin, *incarnation, *sequence));
    });
    set
}

/// Nodes 1, 2, 3 with the slice placed under number 1; node n's run began at n.
fn three() -> Vec<Exchange> {
    let nodes = [1, 2, 3].map(NodeId);
    let mut all: Vec<_> =
        nodes.iter().map(|node| Exchange::new(*node, u64::from(node.0), Stamp(0), PURGE_AFTER_US)).collect();
    all.iter_mut().for_each(|exchange| exchange.place(SLICE, 1, &nodes, START));
    all
}

/// One report from a node to another, arrived.
fn tell(all: &mut [Exchange], from: usize, to: usize) -> Taken {
    let report = all[from].report_for(NodeId(to as u32 + 1));
    let report = Report::decode(report.encode().into()).unwrap();
    all[to].on_report(NodeId(from as u32 + 1), report, START)
}

fn tell_all(all: &mut [Exchange]) {
    for from in 0..all.len() {
        (0..all.len()).filter(|to| *to != from).for_each(|to| {
            tell(all, from, to);
        });
    }
}

fn close(all: &mut [Exchange], through: i64) {
    for exchange in all {
        exchange.publish(Stamp(through));
        exchange.close(Stamp(through));
    }
}

#[test]
fn equal_replicas_reconcile_with_the_slowest_promise_and_say_nothing_more() {
    let mut all = three();
    tell_all(&mut all);
    close(&mut all, 500);
    all[2].publish(Stamp(400));
    tell_all(&mut all);
    tell_all(&mut all);
    assert!(all.iter().all(|exchange| exchange.reconciled(SLICE) == Stamp(500)));
    let report = all[0].report_for(NodeId(2));
    assert!(report.slices.is_empty() && report.encode().len() <= 40, "{report:?}");
    // One replica is silent: it holds the others.
    close(&mut all[..2], 900);
    tell(&mut all, 0, 1);
    tell(&mut all, 1, 0);
    assert_eq!(all[0].reconciled(SLICE), Stamp(500));
}

#[test]
fn nobody_counts_who_was_not_heard() {
    let mut all = three();
    close(&mut all, 500);
    tell(&mut all, 0, 1);
    assert_eq!(all[1].reconciled(SLICE), Stamp(0));
}

#[test]
fn a_name_holds_back_what_is_reconciled_until_all_have_it() {
    let mut all = three();
    tell_all(&mut all);
    close(&mut all, 500);
    tell_all(&mut all);
    let one = set(&[(1, 1, 1)]);
    all[0].own_changed(SLICE, &one, START);
    close(&mut all, 600);
    tell_all(&mut all);
    assert_eq!(all[1].reconciled(SLICE), Stamp(500), "what was equal before the name came");
    close(&mut all, 700);
    tell_all(&mut all);
    assert!(all[1].reconciled(SLICE) < Stamp(700));
    assert_eq!(all[1].holes(SLICE), [(NodeId(1), one.clone())]);
    assert_eq!(all[1].behind(0, START), [SLICE]);
    assert!(all[0].behind(0, START).is_empty() && all[0].holes(SLICE).is_empty());
    // The others get it, and the first has another meanwhile: all are never equal, yet what was told gets everywhere.
    let up_to = |last: u64| set(&(1..=last).map(|sequence| (1, 1, sequence)).collect::<Vec<_>>());
    for last in 2..5 {
        all[0].own_changed(SLICE, &up_to(last), START);
        all[1..].iter_mut().for_each(|exchange| exchange.own_changed(SLICE, &up_to(last - 1), START));
        close(&mut all, 1_000 * last as i64);
        tell_all(&mut all);
    }
    assert_eq!(all[1].reconciled(SLICE), Stamp(3_000));
}

#[test]
fn two_that_wait_for_each_other_know_what_they_lack() {
    let mut all = three();
    // Each lacks what the other has, and has all of what it is waiting for the other to get.
    for (node, other, names) in [(0, 1, [(1, 1, 1)]), (1, 0, [(2, 2, 1)])] {
        all[node].own_changed(SLICE, &set(&names), START);
        tell(&mut all, other, node);
        tell(&mut all, 2, node);
    }
    tell_all(&mut all);
    let later = START.plus_us(10);
    assert_eq!(all[0].behind(10, later), [SLICE]);
    assert_eq!(all[1].behind(10, later), [SLICE]);
    assert!(all[1].behind(11, later).is_empty());
}

#[test]
fn a_lost_report_is_made_good_by_the_next() {
    let mut all = three();
    all[0].own_changed(SLICE, &set(&[(1, 1, 1)]), START);
    let lost = all[0].report_for(NodeId(2));
    assert_eq!(tell(&mut all, 0, 1), Taken::In(vec![SLICE]));
    assert_eq!(all[1].on_report(NodeId(1), lost, START), Taken::Old);
    assert_eq!(all[1].holes(SLICE).len(), 1);
    // Node 2 starts again and has nothing: it does not take in what builds on what it had, and gets all again.
    tell(&mut all, 1, 0);
    all[0].report_for(NodeId(2));
    all[1] = Exchange::new(NodeId(2), 20, Stamp(0), PURGE_AFTER_US);
    all[1].place(SLICE, 1, &[1, 2, 3].map(NodeId), START);
    assert_eq!(tell(&mut all, 0, 1), Taken::Gap);
    tell(&mut all, 1, 0);
    assert_eq!(tell(&mut all, 0, 1), Taken::In(vec![SLICE]));
    assert_eq!(all[1].holes(SLICE).len(), 1);
}

#[test]
fn what_is_told_counts_under_its_own_placement_only() {
    let mut all = three();
    tell_all(&mut all);
    let replicas = [1, 2, 3].map(NodeId);
    all[0].place(SLICE, 2, &replicas, START);
    close(&mut all, 500);
    tell_all(&mut all);
    tell_all(&mut all);
    assert!(all.iter().all(|exchange| exchange.reconciled(SLICE) < Stamp(500)));
    all[1].place(SLICE, 2, &replicas, START);
    all[2].place(SLICE, 2, &replicas, START);
    // The first told under the new number before the others knew it, and need not do so again.
    tell(&mut all, 1, 2);
    tell(&mut all, 2, 1);
    assert_eq!(all[1].reconciled(SLICE), Stamp(500));
}

#[test]
fn a_replica_that_is_rebuilt_holds_back_the_others() {
    let mut all = three();
    tell_all(&mut all);
    close(&mut all, 500);
    all[2].withdraw(SLICE, START);
    tell_all(&mut all);
    tell_all(&mut all);
    assert!(all[0].reconciled(SLICE) < Stamp(500));
    assert_eq!(all[0].status().next().unwrap().lacking, [(NodeId(2), Some(0)), (NodeId(3), None)]);
    all[2].rebuilt(SLICE, Told::default(), Stamp(0), START);
    tell_all(&mut all);
    assert_eq!(all[0].reconciled(SLICE), Stamp(500));
}

#[test]
fn a_promise_lets_pass_what_is_here_or_told_and_nothing_else() {
    let mut all = three();
    tell_all(&mut all);
    close(&mut all, 500);
    tell_all(&mut all);
    let late = |exchange: &Exchange| exchange.arrival(SLICE, name(1, 1, 1), Stamp(500));
    assert_eq!(late(&all[0]), Arrival::Closed);
    assert_eq!(all[0].arrival(SLICE, name(1, 1, 1), Stamp(501)), Arrival::Apply);
    all[1].own_changed(SLICE, &set(&[(1, 1, 1)]), START);
    assert_eq!(late(&all[1]), Arrival::Apply);
    tell(&mut all, 1, 0);
    assert_eq!(late(&all[0]), Arrival::Apply);
    assert_eq!(late(&all[2]), Arrival::Closed);
}

#[test]
fn deletions_may_go_ten_minutes_after_the_manifest_knows() {
    let mut all = three();
    tell_all(&mut all);
    close(&mut all, 500);
    tell_all(&mut all);
    let exchange = &mut all[0];
    let raised = exchange.raised();
    assert_eq!(raised, [(SLICE, Reconciled { through: Stamp(500), floors: Floors::default() })]);
    exchange.saved(&raised, START);
    assert!(exchange.raised().is_empty());
    let ripe = START.plus_us(PURGE_AFTER_US);
    assert!(exchange.purgeable(Instant(ripe.0 - 1)).is_empty());
    exchange.pin(SLICE);
    assert!(exchange.purgeable(ripe).is_empty());
    exchange.unpin(SLICE);
    assert_eq!(exchange.purgeable(ripe), [(SLICE, Stamp(500))]);
    assert!(exchange.purgeable(ripe).is_empty());
    assert_eq!(exchange.arrival(SLICE, name(1, 1, 1), Stamp(500)), Arrival::Purged);
    exchange.own_changed(SLICE, &set(&[(1, 1, 1)]), START);
    assert_eq!(exchange.arrival(SLICE, name(1, 1, 1), Stamp(500)), Arrival::Received);
}

#[test]
fn a_run_is_forgotten_by_one_after_the_other_and_nobody_misses_it() {
    let mut all = three();
    let both = set(&[(1, 1, 1), (1, 1, 3), (1, 90, 1)]);
    all.iter_mut().for_each(|exchange| exchange.own_changed(SLICE, &both, START));
    tell_all(&mut all);
    close(&mut all, 89);
    tell_all(&mut all);
    assert!(all[0].raised()[0].1.floors.is_empty(), "what is reconciled ends before the later run");
    close(&mut all, 500);
    tell_all(&mut all);
    let raised = all[0].raised();
    assert_eq!(raised[0].1.floors.of(NodeId(1)), 90);
    all[0].saved(&raised, START);
    all[0].own_changed(SLICE, &both, START);
    assert_eq!(all[0].report_for(NodeId(2)).slices[0].1.told.as_ref().unwrap().set(), &set(&[(1, 90, 1)]));
    close(&mut all, 600);
    tell_all(&mut all);
    tell_all(&mut all);
    for exchange in &all {
        assert_eq!(exchange.reconciled(SLICE), Stamp(600));
        assert!(exchange.holes(SLICE).is_empty());
        assert_eq!(exchange.arrival(SLICE, name(1, 1, 2), Stamp(50)), Arrival::Closed);
    }
    assert_eq!(all[1].raised()[0].1.floors.of(NodeId(1)), 90);
}

#[test]
fn a_directory_that_is_older_than_what_was_told_is_noticed() {
    let ceiling = Stamp(2_000_000);
    let mut all = three();
    all[0].own_changed(SLICE, &set(&[(1, 1, 1), (1, 1, 2)]), START);
    close(&mut all, 500);
    tell_all(&mut all);
    let remembered = all[1].remembered(NodeId(1)).unwrap();
    let clock = all[1].clock_of(NodeId(1)).unwrap();
    assert_eq!(clock, Stamp(500));
    let begin = |names: &[(u32, u64, u64)]| {
        let mut exchange = Exchange::new(NodeId(1), 10, Stamp(0), PURGE_AFTER_US);
        exchange.restore(SLICE, set(names), Reconciled::default(), Stamp(0), START);
        exchange.place(SLICE, 1, &[1, 2, 3].map(NodeId), START);
        exchange
    };
    let whole = begin(&[(1, 1, 1), (1, 1, 2), (1, 1, 3)]);
    assert!(whole.lost(NodeId(2), Some(&remembered), ceiling, ceiling).is_empty());
    assert_eq!(whole.lost(NodeId(2), None, Stamp(ceiling.0 + 1), ceiling), [SLICE]);
    assert_eq!(begin(&[(1, 1, 1)]).lost(NodeId(2), Some(&remembered), ceiling, ceiling), [SLICE]);
    // What was told under another placement counts no more, and what is withdrawn is lost already.
    let mut renumbered = begin(&[]);
    renumbered.place(SLICE, 2, &[1, 2, 3].map(NodeId), START);
    assert!(renumbered.lost(NodeId(2), Some(&remembered), ceiling, ceiling).is_empty());
    let mut withdrawn = begin(&[]);
    withdrawn.withdraw(SLICE, START);
    assert!(withdrawn.lost(NodeId(2), Some(&remembered), ceiling, ceiling).is_empty());
}

#[test]
fn nothing_is_answered_before_what_the_greeted_held_is_here() {
    let mut all = three();
    all[0].own_changed(SLICE, &set(&[(1, 1, 1)]), START);
    tell(&mut all, 0, 1);
    assert!(all[1].may_answer(SLICE));
    all[1].want(NodeId(1));
    assert!(!all[1].may_answer(SLICE));
    all[1].own_changed(SLICE, &set(&[(1, 1, 1)]), START);
    assert!(all[1].may_answer(SLICE));
    all[1].withdraw(SLICE, START);
    assert!(!all[1].may_answer(SLICE));
}
