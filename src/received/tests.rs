//! Sets against a model that lists every name; the clock and the namer by example and by law.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

use super::gathered::Gathered;
use super::namer::{AHEAD_MAX_US, CEILING_STEP_US, ClockAhead, HybridClock, Namer, Tick};
use super::{Interval, ReceivedSet};
use crate::Result;
use crate::codec::varint::Reader;
use crate::model::{KeyspaceId, MutationName, NodeId, Stamp, Vnode};

type Model = BTreeSet<MutationName>;

fn name(origin: u32, incarnation: u64, sequence: u64) -> MutationName {
    MutationName { origin: NodeId(origin), incarnation, sequence }
}

/// Few origins and sequences, so that they meet; some at the upper end of the numbers.
fn names() -> impl Strategy<Value = Vec<MutationName>> {
    let sequence = proptest::prop_oneof![4 => 1u64..24, 1 => u64::MAX - 6..=u64::MAX];
    let one =
        (1u32..3, 1u64..3, sequence).prop_map(|(origin, incarnation, sequence)| name(origin, incarnation, sequence));
    proptest::collection::vec(one, 0..60)
}

fn set_of<'a>(names: impl IntoIterator<Item = &'a MutationName>) -> ReceivedSet {
    let mut set = ReceivedSet::default();
    for name in names {
        set.add(*name);
    }
    set
}

fn listed(set: &ReceivedSet) -> Model {
    let mut all = Model::new();
    for (origin, incarnation, intervals) in set.runs() {
        for interval in intervals {
            all.extend((interval.first..=interval.last).map(|sequence| name(origin.0, incarnation, sequence)));
        }
    }
    all
}

fn check(set: &ReceivedSet) {
    for (_, _, intervals) in set.runs() {
        assert!(!intervals.is_empty());
        assert!(intervals.iter().all(|interval| 1 <= interval.first && interval.first <= interval.last));
        assert!(intervals.windows(2).all(|pair| pair[0].last + 1 < pair[1].first), "{intervals:?} touch");
    }
}

fn decode(bytes: &[u8]) -> Result<ReceivedSet> {
    let mut reader = Reader::new("received set", Bytes::copy_from_slice(bytes));
    let set = ReceivedSet::decode(&mut reader)?;
    reader.end()?;
    Ok(set)
}

fn encoded(set: &ReceivedSet) -> Vec<u8> {
    let mut bytes = Vec::new();
    set.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn adding_is_adding_to_a_set(names in names()) {
        let (mut set, mut model) = (ReceivedSet::default(), Model::new());
        for name in &names {
            prop_assert_eq!(set.add(*name), model.insert(*name));
            check(&set);
        }
        prop_assert_eq!(listed(&set), model.clone());
        prop_assert_eq!(set.is_empty(), model.is_empty());
        for origin in 1..4 {
            for sequence in (0..30).chain(u64::MAX - 8..=u64::MAX) {
                let name = name(origin, 1, sequence);
                prop_assert_eq!(set.contains(name), model.contains(&name));
            }
        }
    }

    #[test]
    fn gathering_by_slice_is_adding_to_the_set_of_each(names in names(), slices in proptest::collection::vec(0u32..5, 60)) {
        let slice = |at: usize| (KeyspaceId(slices[at] % 2), Vnode(slices[at]));
        let (mut gathered, mut model) = (Gathered::default(), BTreeMap::<_, ReceivedSet>::new());
        for (at, name) in names.iter().enumerate() {
            gathered.add(slice(at), *name);
            model.entry(slice(at)).or_default().add(*name);
        }
        prop_assert!(gathered.in_order().into_iter().eq(&model));
        let mut joined = gathered.clone();
        gathered.clone().drain().for_each(|(slice, names)| joined.add_all(slice, names));
        prop_assert!(joined == gathered);
        prop_assert_eq!(gathered.drain().collect::<BTreeMap<_, _>>(), model);
    }

    #[test]
    fn unions_and_differences_are_those_of_sets(left in names(), right in names()) {
        let (a, b) = (set_of(&left), set_of(&right));
        let mut both = a.clone();
        both.union(&b);
        check(&both);
        prop_assert_eq!(listed(&both), &listed(&a) | &listed(&b));
        prop_assert_eq!(&both, &set_of(left.iter().chain(&right)));
        let less = a.difference(&b);
        check(&less);
        prop_assert_eq!(listed(&less), &listed(&a) - &listed(&b));
        prop_assert!(a.difference(&a).is_empty());
    }

    #[test]
    fn encodings_round_trip(names in names()) {
        let set = set_of(&names);
        prop_assert_eq!(decode(&encoded(&set)).unwrap(), set);
    }

    #[test]
    fn what_decodes_is_what_encodes(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(set) = decode(&bytes) {
            check(&set);
            prop_assert_eq!(encoded(&set), bytes);
        }
    }

    #[test]
    fn damage_is_refused_or_another_set(names in names(), at in any::<proptest::sample::Index>(), bit in 0..8u8) {
        let set = set_of(&names);
        let mut bytes = encoded(&set);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(other) = decode(&bytes) {
            prop_assert!(other != set);
            prop_assert_eq!(encoded(&other), bytes);
        }
    }
}

#[test]
fn a_run_without_holes_is_one_interval() {
    let mut set = ReceivedSet::default();
    for sequence in 1..=10_000 {
        assert!(set.add(name(1, 7, sequence)));
    }
    assert_eq!(set.runs().next().unwrap().2, [Interval { first: 1, last: 10_000 }]);
    assert!(!set.add(name(1, 7, 0)), "sequence 0 names nothing");
    assert!(!set.contains(name(1, 7, 0)));
}

#[test]
fn the_largest_sequence_is_a_sequence() {
    let set = set_of(&[name(1, 1, u64::MAX), name(1, 1, 1)]);
    assert_eq!(decode(&encoded(&set)).unwrap(), set);
    let mut bytes = vec![1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
    for interval in [(0, u64::MAX - 1), (0, 0)] {
        crate::codec::varint::put_varint(&mut bytes, interval.0);
        crate::codec::varint::put_varint(&mut bytes, interval.1);
    }
    assert!(matches!(decode(&bytes), Err(crate::Error::Corrupt(_))), "nothing follows the largest sequence");
}

#[test]
fn a_run_stands_once() {
    let one = encoded(&set_of(&[name(2, 3, 4)]));
    let twice = [&[2], &one[1..], &one[1..]].concat();
    assert!(decode(&one).is_ok());
    assert!(matches!(decode(&twice), Err(crate::Error::Corrupt(_))));
}

fn stamp(clock: &mut HybridClock, wall_us: i64) -> i64 {
    match clock.next(wall_us) {
        Tick::Stamp(stamp) => stamp.0,
        other => panic!("no stamp: {other:?}"),
    }
}

#[test]
fn stamps_follow_the_wall_and_never_go_back() {
    let mut clock = HybridClock::new(Stamp(0), Stamp(0));
    clock.raised(Stamp(i64::MAX));
    assert_eq!(stamp(&mut clock, 1_000), 1_000);
    assert_eq!(stamp(&mut clock, 1_000), 1_001);
    assert_eq!(stamp(&mut clock, 400), 1_002);
    clock.observe(Stamp(5_000), 1_100).unwrap();
    assert_eq!(stamp(&mut clock, 1_100), 5_001);
    assert_eq!(stamp(&mut clock, 9_000), 9_000);
}

#[test]
fn a_stamp_too_far_ahead_is_neither_taken_nor_given() {
    let mut clock = HybridClock::new(Stamp(0), Stamp(0));
    clock.raised(Stamp(i64::MAX));
    assert_eq!(clock.observe(Stamp(AHEAD_MAX_US + 1), 0), Err(ClockAhead(AHEAD_MAX_US + 1)));
    assert_eq!(clock.last(), Stamp(0));
    clock.observe(Stamp(AHEAD_MAX_US), 0).unwrap();
    assert_eq!(clock.next(0), Tick::Ahead(AHEAD_MAX_US + 1));
    assert_eq!(stamp(&mut clock, 1), AHEAD_MAX_US + 1);
    assert_eq!(clock.observe(Stamp(i64::MAX), i64::MIN), Err(ClockAhead(i64::MAX)));
}

#[test]
fn no_stamp_is_given_beyond_the_ceiling_on_disk() {
    let mut clock = HybridClock::new(Stamp(0), Stamp(0));
    assert_eq!(clock.next(1_000), Tick::Raise(Stamp(1_000 + CEILING_STEP_US)));
    assert_eq!(clock.next(2_000), Tick::Raise(Stamp(2_000 + CEILING_STEP_US)), "asking gives nothing away");
    clock.raised(Stamp(1_000 + CEILING_STEP_US));
    assert_eq!(stamp(&mut clock, 2_000), 2_000);
    assert_eq!(clock.wants_ceiling(2_000), None);
    let near = 1_001 + CEILING_STEP_US / 2;
    assert_eq!(clock.wants_ceiling(near), Some(Stamp(near + CEILING_STEP_US)));
    clock.raised(Stamp(5));
    assert_eq!(clock.ceiling(), Stamp(1_000 + CEILING_STEP_US), "a ceiling does not sink");
}

#[test]
fn the_clock_ends_before_it_wraps() {
    let mut clock = HybridClock::new(Stamp(i64::MAX), Stamp(0));
    assert_eq!(clock.next(i64::MAX), Tick::Ahead(0));
}

proptest! {
    /// A run gives stamps, loses power at any time (the ceiling on disk remains), and the next run gives later ones only,
    /// wherever its wall clock stands.
    #[test]
    fn stamps_rise_over_restarts(walls in proptest::collection::vec((0i64..20_000_000, any::<bool>()), 1..60)) {
        let (mut on_disk, mut largest) = (Stamp(0), Stamp(0));
        let mut clock = HybridClock::new(on_disk, Stamp(0));
        for (wall, restart) in walls {
            if restart {
                clock = HybridClock::new(on_disk, Stamp(0));
            }
            let mut tick = clock.next(wall);
            if let Tick::Raise(ceiling) = tick {
                on_disk = ceiling;
                clock.raised(ceiling);
                tick = clock.next(wall);
            }
            match tick {
                Tick::Stamp(stamp) => {
                    prop_assert!(stamp > largest && stamp.0 >= wall && stamp <= on_disk);
                    largest = stamp;
                }
                Tick::Ahead(by) => prop_assert!(by > AHEAD_MAX_US),
                Tick::Raise(_) => panic!("a raised ceiling does not suffice"),
            }
        }
    }
}

#[test]
fn names_count_per_slice_of_a_keyspace() {
    let mut namer = Namer::new(NodeId(3), Stamp(77)).unwrap();
    let slices = [(KeyspaceId(1), Vnode(5)), (KeyspaceId(1), Vnode(6)), (KeyspaceId(2), Vnode(5))];
    for sequence in 1..4 {
        for (keyspace, vnode) in slices {
            assert_eq!(namer.name(keyspace, vnode), name(3, 77, sequence));
            assert_eq!(namer.last(keyspace, vnode), sequence);
        }
    }
    assert_eq!(namer.last(KeyspaceId(9), Vnode(0)), 0);
    assert_eq!(namer.incarnation(), 77);
    assert!(Namer::new(NodeId(3), Stamp(-1)).is_err());
}
