//! Recorded patterns of arrivals, silence, one-way links, and clocks.

#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;

const NODE: NodeId = NodeId(2);
const SECOND: u64 = 1_000_000;

/// Gaps between heartbeats, in milliseconds, that were seen on a machine that had two processors for nine nodes and their
/// compilers: what is late comes together with what follows.
const BUSY_MS: [u64; 40] = [
    500, 501, 500, 499, 502, 640, 361, 500, 503, 498, 520, 480, 890, 112, 500, 500, 1_210, 60, 231, 500, 505, 495, 500,
    700, 300, 500, 500, 1_020, 81, 400, 500, 500, 611, 389, 502, 500, 498, 500, 1_480, 20,
];

/// Gaps over a link with a loaded queue in between.
const SLOW_MS: [u64; 20] = [
    900, 1_100, 400, 1_300, 700, 650, 1_500, 800, 200, 1_250, 900, 1_000, 640, 1_120, 980, 300, 1_400, 500, 760, 1_000,
];

fn liveness() -> (Liveness, LinkId) {
    let mut liveness = Liveness::default();
    let link = liveness.connected(NODE, Instant(0));
    (liveness, link)
}

/// Lets heartbeats come with these gaps, looking in between; answers when the last one came.
fn beat(liveness: &mut Liveness, link: LinkId, from: Instant, gaps_ms: impl IntoIterator<Item = u64>) -> Instant {
    let mut now = from;
    for gap in gaps_ms {
        let next = now.plus_us(gap * 1_000);
        let just_before = Instant(next.0.saturating_sub(1));
        assert!(liveness.is_alive(NODE, just_before), "taken for dead {gap} ms after a heartbeat");
        now = next;
        liveness.heartbeat(NODE, link, Heartbeat::default(), now);
    }
    now
}

#[test]
fn patterns_that_were_seen_raise_no_alarm_and_silence_after_them_does() {
    for pattern in [&BUSY_MS[..], &SLOW_MS[..]] {
        let (mut liveness, link) = liveness();
        let last = beat(&mut liveness, link, Instant(0), pattern.iter().copied().cycle().take(400));
        assert!(!liveness.is_alive(NODE, last.plus_us(SILENCE_MAX_US + 1)));
        assert!(
            liveness.fault(NODE, link, last.plus_us(SILENCE_MAX_US + 1)).is_some_and(|fault| fault.contains("3000 ms"))
        );
    }
}

#[test]
fn regular_heartbeats_are_missed_sooner_than_irregular_ones() {
    let missed_after = |gaps: &[u64]| {
        let (mut liveness, link) = liveness();
        let last = beat(&mut liveness, link, Instant(0), gaps.iter().copied().cycle().take(200));
        (0..40)
            .map(|tenth| tenth * SECOND / 10)
            .find(|silence| !liveness.is_alive(NODE, last.plus_us(*silence)))
            .unwrap()
    };
    let (regular, irregular) = (missed_after(&[500]), missed_after(&SLOW_MS));
    assert!((1_700_000..=2_700_000).contains(&regular), "{regular}");
    assert!(regular < irregular && irregular <= SILENCE_MAX_US + SECOND / 10, "{irregular}");
}

proptest! {
    /// Whatever came before, with gaps of up to a second and a half: nobody is dead before a second of silence, and
    /// everybody is after three.
    #[test]
    fn silence_is_seen_within_three_seconds(gaps in prop::collection::vec(1..1_450u64, 0..200), silence in 0..6_000u64) {
        let (mut liveness, link) = liveness();
        let mut now = Instant(0);
        for gap in gaps {
            now = now.plus_us(gap * 1_000);
            liveness.heartbeat(NODE, link, Heartbeat::default(), now);
        }
        let then = now.plus_us(silence * 1_000);
        if silence <= 1_000 {
            prop_assert!(liveness.is_alive(NODE, then));
        }
        if silence > SILENCE_MAX_US / 1_000 {
            prop_assert!(!liveness.is_alive(NODE, then));
        }
        prop_assert_eq!(liveness.is_alive(NODE, then), liveness.fault(NODE, link, then).is_none());
    }
}

#[test]
fn a_peer_is_alive_while_one_link_is_well() {
    let mut liveness = Liveness::default();
    assert!(!liveness.is_alive(NODE, Instant(0)));
    liveness.refused(NODE, "connection refused".into());
    let (one, two) = (liveness.connected(NODE, Instant(10)), liveness.connected(NODE, Instant(10)));
    assert_eq!(liveness.refresh(Instant(10)), [NODE]);
    liveness.heard(NODE, two, Instant(2 * SECOND));
    assert!(liveness.fault(NODE, one, Instant(3 * SECOND)).is_some());
    assert!(liveness.is_alive(NODE, Instant(3 * SECOND)), "something came on the other link");
    liveness.disconnected(NODE, two, "reset".into());
    let now = Instant(3 * SECOND + 1);
    assert!(!liveness.is_alive(NODE, now), "the one that is left is silent");
    assert_eq!(liveness.refresh(now), []);
    let view = liveness.views(now.plus_us(5)).next().unwrap();
    assert_eq!((view.state, view.for_us), (State::Silent, 5));
    liveness.disconnected(NODE, one, "it ended".into());
    let view = liveness.views(now).next().unwrap();
    assert_eq!((view.state, view.reason), (State::Unlinked, Some("it ended".into())));
    liveness.heard(NODE, one, now);
    assert!(!liveness.is_alive(NODE, now), "hearing without a link is not enough");
}

/// The way back is cut: this node hears the peer, which says that it hears nothing.
#[test]
fn a_peer_that_does_not_hear_is_not_alive() {
    let (mut liveness, link) = liveness();
    let beat = |liveness: &mut Liveness, at: u64, unheard_us| {
        let heartbeat = Heartbeat { unheard_us: Some(unheard_us), ..Heartbeat::default() };
        liveness.heartbeat(NODE, link, heartbeat, Instant(at));
        liveness.is_alive(NODE, Instant(at))
    };
    assert!(beat(&mut liveness, 500_000, 400_000));
    assert!(beat(&mut liveness, 1_000_000, DEAF_US + 1), "it may have been stopped for a while itself");
    assert!(beat(&mut liveness, 1_500_000, 10));
    assert!(beat(&mut liveness, 2_000_000, DEAF_US + 1));
    assert!(!beat(&mut liveness, 2_500_000, DEAF_US + 1));
    assert!(liveness.fault(NODE, link, Instant(2_500_000)).unwrap().contains("does not hear"));
}

#[test]
fn a_clock_is_wrong_if_most_others_say_so() {
    let off = |judged: OwnClock| if let OwnClock::Off(by) = judged { Some(by) } else { None };
    let judge = |offsets: &[i64]| off(OwnClock::Right.judge(offsets));
    assert_eq!(judge(&[]), None);
    assert_eq!(judge(&[-9 * OFF_US]), None, "of two nobody can say which is wrong");
    assert_eq!(judge(&[0, -9 * OFF_US]), None, "the other one is wrong");
    assert_eq!(judge(&[-2 * OFF_US, -2 * OFF_US]), Some(2 * OFF_US));
    assert_eq!(judge(&[3 * OFF_US, 2 * OFF_US]), Some(-3 * OFF_US));
    assert_eq!(judge(&[-2 * OFF_US, 2 * OFF_US]), None, "they do not agree");
    assert_eq!(judge(&[0, 0, -2 * OFF_US, -2 * OFF_US]), None);
    assert_eq!(judge(&[0, -2 * OFF_US, -2 * OFF_US, -2 * OFF_US]), Some(2 * OFF_US));
    // It is right again only some way below.
    let was_off = OwnClock::Off(OFF_US);
    assert_eq!(off(was_off.judge(&[-RIGHT_US - 1, -RIGHT_US - 1])), Some(RIGHT_US + 1));
    assert_eq!(off(was_off.judge(&[-RIGHT_US, -RIGHT_US])), None);
    assert_eq!(off(was_off.judge(&[-RIGHT_US, -9 * OFF_US])), None, "two of three agree");
    assert_eq!(off(was_off.judge(&[])), Some(OFF_US), "alone it stays as it was");
}

#[test]
fn measurements_that_were_held_up_do_not_count() {
    let mut offsets = Offsets::default();
    assert_eq!(offsets.now(), None);
    [5, 7, 900_000, 6, 4].into_iter().for_each(|offset| offsets.measured(offset));
    assert_eq!(offsets.now(), Some(6));
    (0..5).for_each(|_| offsets.measured(1_000));
    assert_eq!(offsets.now(), Some(1_000));
}

/// A clock that may be right counts as right: over a slow link, or where the other node had no processor for a while, whichever
/// way was held up. Of one that is surely off what is certain counts.
#[test]
fn the_way_is_taken_into_account() {
    for (ahead_us, certain_us) in [(-300_000, 0), (-600_000, 0), (0, 0), (200_000, 200_000), (-900_000, -300_000)] {
        let (mut liveness, link) = liveness();
        let heartbeat = Heartbeat { unheard_us: Some(0), round_trip_us: Some(600_000), ahead_us };
        liveness.heartbeat(NODE, link, heartbeat, Instant(1));
        let view = liveness.views(Instant(1)).next().unwrap();
        assert_eq!((view.ahead_us, view.round_trip_us), (Some(certain_us), Some(600_000)), "{ahead_us}");
    }
}
