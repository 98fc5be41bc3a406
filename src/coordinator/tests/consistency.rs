//! Levels against their definitions, over every set of replicas.

use crate::coordinator::{Consistency, ReplicaMask, Requirement, bit, indices};

const ONE_REGION: [u16; 3] = [4, 4, 4];
const TWO_REGIONS: [u16; 6] = [4, 7, 4, 7, 4, 7];

fn count(regions: &[u16], mask: ReplicaMask, admit: impl Fn(u16) -> bool) -> usize {
    regions.iter().enumerate().filter(|(at, region)| mask >> at & 1 == 1 && admit(**region)).count()
}

/// What each level means, in so many words. The coordinator is in region 4.
fn is_met(level: Consistency, regions: &[u16], mask: ReplicaMask) -> bool {
    let anywhere = count(regions, mask, |_| true);
    let local = count(regions, mask, |region| region == 4);
    let majority = |region: u16| {
        2 * count(regions, mask, |other| other == region) > count(regions, ReplicaMask::MAX, |other| other == region)
    };
    match level {
        Consistency::One => anywhere >= 1,
        Consistency::Two => anywhere >= 2,
        Consistency::Three => anywhere >= 3,
        Consistency::Quorum => 2 * anywhere > regions.len(),
        Consistency::All => anywhere == regions.len(),
        Consistency::LocalOne => local >= 1,
        Consistency::LocalQuorum => majority(4),
        Consistency::EachQuorum => regions.iter().all(|region| majority(*region)),
    }
}

fn every_case(check: impl Fn(Consistency, &[u16], &Requirement, ReplicaMask)) {
    for level in Consistency::EVERY {
        for regions in [&ONE_REGION[..], &TWO_REGIONS[..]] {
            let requirement = Requirement::new(level, regions, 4);
            (0..1 << regions.len()).for_each(|mask| check(level, regions, &requirement, mask));
        }
    }
}

#[test]
fn a_level_is_met_by_what_its_definition_says() {
    every_case(|level, regions, requirement, mask| {
        assert_eq!(requirement.met_by(mask), is_met(level, regions, mask), "{level} {mask:06b}");
    });
}

/// No error may say that three of three acknowledged and still it was not enough.
#[test]
fn what_counts_falls_short_of_what_is_required_until_the_level_is_met() {
    every_case(|level, _, requirement, mask| {
        let short = requirement.counted(mask) < requirement.required();
        assert_eq!(short, !requirement.met_by(mask), "{level} {mask:06b}");
    });
}

/// The fewest replicas, and the nearest of those that serve.
#[test]
fn the_fewest_and_nearest_are_chosen() {
    every_case(|level, regions, requirement, alive| {
        let order: Vec<usize> = indices(alive).collect();
        let chosen = requirement.choose(&order, 0);
        assert_eq!(chosen & !(alive & requirement.scope()), 0, "{level} chose dead or remote replicas");
        assert_eq!(requirement.met_by(chosen), requirement.met_by(alive), "{level} {alive:06b}");
        if requirement.met_by(alive) {
            assert_eq!(chosen.count_ones(), requirement.required());
            for replica in indices(chosen) {
                assert!(!requirement.met_by(chosen & !bit(replica)), "{level}: {replica} was not needed");
            }
            for (nearer, farther) in indices(alive).flat_map(|a| indices(chosen).map(move |b| (a, b))) {
                let rivals = level != Consistency::EachQuorum || regions[nearer] == regions[farther];
                let passed_over = requirement.scope() & !chosen & bit(nearer) != 0;
                assert!(!(nearer < farther && rivals && passed_over), "{level} {alive:06b}");
            }
        }
    });
}

#[test]
fn what_is_there_already_is_not_chosen_again() {
    every_case(|level, regions, requirement, have| {
        let order: Vec<usize> = (0..regions.len()).collect();
        let chosen = requirement.choose(&order, have);
        assert_eq!(chosen & have, 0);
        assert!(requirement.met_by(chosen | have), "{level} {have:06b}");
    });
}

/// A keyspace without copies in the coordinator's region, or in any: nothing is ever acknowledged by nobody.
#[test]
fn no_level_is_met_by_no_one() {
    for regions in [&[][..], &[7, 7, 7], &ONE_REGION] {
        for level in Consistency::EVERY {
            assert!(!Requirement::new(level, regions, 4).met_by(0), "{level}");
        }
    }
    assert!(!Requirement::new(Consistency::LocalQuorum, &[7, 7, 7], 4).met_by(0b111));
}

#[test]
fn words_stand_for_levels() {
    for level in Consistency::EVERY {
        assert_eq!(Consistency::from_name(&level.to_string().to_lowercase()), Some(level));
    }
    assert_eq!(Consistency::from_name("MOST"), None);
}
