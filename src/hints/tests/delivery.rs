//! The delivery: decisions on plain values.

use super::{hint, number_of};
use crate::hints::delivery::{Counts, Delivery, Limits, Now, Outcome, Reach, Step};
use crate::hints::{Place, Stored};
use crate::model::Instant;

const LIMITS: Limits = Limits {
    window_hints: 8,
    window_bytes: 10_000,
    bytes_per_s: 1_000_000,
    kept_us: 1_000_000,
    pause_min_us: 100,
    pause_max_us: 1_000,
};

/// A log of hints of one size, each 100 bytes behind the one before.
struct Log {
    count: u64,
    size: usize,
}

fn place(number: u64) -> Place {
    Place { segment: 1, offset: (number + 1) * 100 }
}

impl Log {
    fn end(&self) -> Place {
        if self.count == 0 { Place::default() } else { place(self.count - 1) }
    }

    fn load(&self, from: Place, bytes: usize) -> (Vec<Stored>, Place) {
        let first = from.offset / 100;
        // A log reads in chunks: it may find more than was asked for.
        let most = (bytes / self.size).max(20) as u64;
        let stored = |number| Stored { end: place(number), hint: hint(number, self.size, 0) };
        let hints: Vec<_> = (first..self.count.min(first + most)).map(stored).collect();
        let next = hints.last().map_or(from, |last| last.end);
        (hints, next)
    }

    /// Sends until the delivery waits; what was sent, and until when it waits.
    fn run(&self, delivery: &mut Delivery, now: u64) -> (Vec<u64>, Option<Instant>) {
        let mut sent = Vec::new();
        loop {
            match delivery.step(self.end(), Reach::Alive, at(now)) {
                Step::Load(from, bytes) => {
                    let (hints, next) = self.load(from, bytes);
                    delivery.loaded(hints, next);
                }
                Step::Send(place, hint) => {
                    assert_eq!(place.offset, (number_of(&hint) + 1) * 100);
                    sent.push(number_of(&hint));
                }
                Step::Wait(until) => return (sent, until),
            }
        }
    }
}

fn at(now: u64) -> Now {
    Now { instant: Instant(now), wall_us: now as i64 }
}

fn new() -> Delivery {
    Delivery::new(LIMITS, Place::default())
}

#[test]
fn a_prefix_is_acknowledged_whatever_the_order() {
    let (log, mut delivery) = (Log { count: 3, size: 8 }, new());
    assert_eq!(log.run(&mut delivery, 0).0, [0, 1, 2]);
    delivery.outcome(place(2), Outcome::Acknowledged, Instant(0));
    delivery.outcome(place(1), Outcome::Acknowledged, Instant(0));
    assert_eq!(delivery.acknowledged(), Place::default());
    delivery.outcome(place(0), Outcome::Unacceptable, Instant(0));
    assert_eq!(delivery.acknowledged(), place(2));
    assert_eq!(delivery.counts(), Counts { delivered: 2, too_late: 0, unacceptable: 1, expired: 0 });
    assert_eq!(delivery.held_bytes(), 0);
}

/// Whether too much is in flight was asked in a way that always said no for other nodes: a slow one made the memory of the
/// sender grow without bound.
#[test]
fn b119_a_slow_node_holds_no_more_than_a_window() {
    let (log, mut delivery) = (Log { count: 100_000, size: 3_000 }, new());
    let (sent, until) = log.run(&mut delivery, 0);
    assert_eq!((sent.len(), until), (4, None), "as many as fill the window, the last one over its edge");
    assert!(delivery.held_bytes() < LIMITS.window_bytes + log.size);
    for second in 1..50 {
        assert!(log.run(&mut delivery, second * 1_000).0.is_empty());
        assert!(delivery.held_bytes() < LIMITS.window_bytes + log.size);
    }
    delivery.outcome(place(2), Outcome::Acknowledged, Instant(0));
    assert_eq!(log.run(&mut delivery, 0).0, [4]);
    let small = Log { count: 100, size: 8 };
    assert_eq!(small.run(&mut new(), 0).0.len(), LIMITS.window_hints);
}

#[test]
fn a_hint_larger_than_the_window_goes_alone() {
    let (log, mut delivery) = (Log { count: 3, size: 50_000 }, new());
    assert_eq!(log.run(&mut delivery, 0).0, [0]);
    delivery.outcome(place(0), Outcome::Acknowledged, Instant(0));
    assert_eq!(log.run(&mut delivery, 0).0, [1]);
}

#[test]
fn refusals_are_answered_with_pauses_that_grow() {
    let (log, mut delivery) = (Log { count: 3, size: 8 }, new());
    log.run(&mut delivery, 0);
    for number in 0..3 {
        delivery.outcome(place(number), Outcome::NotNow, Instant(0));
    }
    assert_eq!(log.run(&mut delivery, 99), (vec![], Some(Instant(100))), "one pause for all of them");
    assert_eq!(log.run(&mut delivery, 100).0, [0, 1, 2]);
    delivery.outcome(place(1), Outcome::Lost, Instant(100));
    assert_eq!(log.run(&mut delivery, 299), (vec![], Some(Instant(300))));
    assert_eq!(log.run(&mut delivery, 300).0, [1]);
    delivery.outcome(place(0), Outcome::Acknowledged, Instant(300));
    delivery.outcome(place(2), Outcome::NotNow, Instant(300));
    assert_eq!(log.run(&mut delivery, 300).1, Some(Instant(400)), "an acknowledgement makes the next pause short");
    delivery.came_back();
    assert_eq!(log.run(&mut delivery, 300).0, [2]);
}

#[test]
fn no_more_bytes_are_sent_than_allowed() {
    // Small ones count as a KiB.
    for size in [8, 1_024] {
        throttled(size);
    }
}

fn throttled(size: usize) {
    let log = Log { count: 10_000, size };
    let mut delivery = Delivery::new(Limits { bytes_per_s: 10_000, kept_us: i64::MAX, ..LIMITS }, Place::default());
    let (mut sent, mut now) = (0, 0);
    while now < 10_000_000 {
        let (numbers, until) = log.run(&mut delivery, now);
        for number in &numbers {
            delivery.outcome(place(*number), Outcome::Acknowledged, Instant(now));
        }
        sent += numbers.len();
        now = until.map_or(now, |until| until.0);
    }
    assert!((103..=112).contains(&sent), "{sent} in ten seconds after a first one's worth");
}

#[test]
fn hints_that_are_too_old_are_not_sent_to_whoever_comes_back() {
    let (log, mut delivery) = (Log { count: 20, size: 8 }, new());
    assert_eq!(delivery.step(log.end(), Reach::Away, at(0)), Step::Load(Place::default(), 1));
    let (hints, next) = log.load(Place::default(), 1);
    delivery.loaded(hints, next);
    assert_eq!(delivery.step(log.end(), Reach::Away, at(1_000_000)), Step::Wait(None));
    assert_eq!(log.run(&mut delivery, 1_000_001).0, [0u64; 0]);
    assert_eq!((delivery.counts().expired, delivery.acknowledged()), (20, log.end()));
}

#[test]
fn what_was_dropped_is_not_waited_for() {
    let (log, mut delivery) = (Log { count: 3, size: 8 }, new());
    log.run(&mut delivery, 0);
    delivery.restart(place(2));
    delivery.outcome(place(1), Outcome::Acknowledged, Instant(0));
    assert_eq!((delivery.acknowledged(), delivery.counts(), delivery.held_bytes()), (place(2), Counts::default(), 0));
    assert_eq!(log.run(&mut delivery, 0), (vec![], None));
}

/// A segment that holds no hint behind the last one that is acknowledged.
#[test]
fn what_holds_no_hints_is_passed_over() {
    let mut delivery = new();
    let end = Place { segment: 2, offset: 65 };
    assert_eq!(delivery.step(end, Reach::Alive, at(0)), Step::Load(Place::default(), LIMITS.window_bytes));
    delivery.loaded(Vec::new(), end);
    assert_eq!((delivery.step(end, Reach::Alive, at(0)), delivery.acknowledged()), (Step::Wait(None), end));
}

/// Two answers to one sending: the second one is not taken for an answer to the next.
#[test]
fn what_waits_to_be_sent_again_is_not_given_up() {
    let (log, mut delivery) = (Log { count: 1, size: 8 }, new());
    log.run(&mut delivery, 0);
    delivery.outcome(place(0), Outcome::Lost, Instant(0));
    delivery.outcome(place(0), Outcome::Lost, Instant(0));
    delivery.outcome(place(0), Outcome::Acknowledged, Instant(0));
    assert_eq!(delivery.acknowledged(), Place::default());
    assert_eq!(log.run(&mut delivery, 100).0, [0]);
}

/// Others may have yet to tell the node of what it missed.
#[test]
fn what_comes_too_late_comes_some_times_more() {
    let (log, mut delivery) = (Log { count: 1, size: 8 }, new());
    let mut now = 0;
    for sent in 1.. {
        assert_eq!(log.run(&mut delivery, now).0, [0]);
        delivery.outcome(place(0), Outcome::TooLate, Instant(now));
        if delivery.counts().too_late == 1 {
            assert_eq!((sent, delivery.acknowledged()), (6, log.end()));
            return;
        }
        now += LIMITS.pause_max_us;
    }
}
