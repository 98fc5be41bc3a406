//! How fast replicas usually answer, and how much may be spent on not waiting for a slow one.

/// Answers after which the late ones are known.
const SAMPLES_MIN: u32 = 20;

/// The share of answers that come before what counts as late.
const LATE: f64 = 0.97;

/// How much one answer moves what is known.
const STEP: f64 = 0.125;

/// What counts for no more than it is, however fast the other answers are.
const HICCUP_US: f64 = 1_000.0;

/// How fast one replica answers, as of its recent answers: a moving mean, and the time that few of them take longer than.
///
/// The latter rises by `STEP x LATE` of itself with each answer that took longer, and falls by `STEP x (1 - LATE)` with
/// each other one: it stands still where the shares balance. Two numbers, no history.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Speed {
    mean_us: f64,
    late_us: f64,
    samples: u32,
}

impl Speed {
    /// An answer took so long.
    pub fn record(&mut self, elapsed_us: u64) {
        let elapsed = elapsed_us.max(1) as f64;
        if self.samples == 0 {
            (self.mean_us, self.late_us) = (elapsed, elapsed);
        }
        self.samples = self.samples.saturating_add(1);
        // One that took very long is one hiccup: the mean follows only if others do, too.
        self.mean_us += (elapsed.min(4.0 * self.mean_us + HICCUP_US) - self.mean_us) * STEP;
        self.late_us *= if elapsed > self.late_us { 1.0 + STEP * LATE } else { 1.0 - STEP * (1.0 - LATE) };
    }

    /// An answer that is not waited for any more has not come for so long.
    pub fn record_at_least(&mut self, elapsed_us: u64) {
        if elapsed_us as f64 > self.mean_us {
            self.record(elapsed_us);
        }
    }

    /// What an answer usually takes; 0 while nothing is known.
    pub fn usual_us(&self) -> u64 {
        self.mean_us as u64
    }

    /// What some three of a hundred answers take longer than; `None` while too little is known.
    pub fn late_us(&self) -> Option<u64> {
        (self.samples >= SAMPLES_MIN).then_some(self.late_us as u64)
    }
}

/// What may be asked beyond what is needed: a share of what is asked at all, with a little in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    hundredths: u32,
}

/// Extra work for a hundred commands.
const EXTRA_PER_HUNDRED: u32 = 3;

/// Extra work that may be saved up.
const EXTRA_SAVED_MAX: u32 = 20;

impl Default for Budget {
    fn default() -> Budget {
        Budget { hundredths: EXTRA_SAVED_MAX * 100 }
    }
}

impl Budget {
    /// One command was begun.
    pub fn earn(&mut self) {
        self.hundredths = (self.hundredths + EXTRA_PER_HUNDRED).min(EXTRA_SAVED_MAX * 100);
    }

    /// Whether one replica more may be asked; if so it is paid for.
    pub fn spend(&mut self) -> bool {
        let can = self.hundredths >= 100;
        if can {
            self.hundredths -= 100;
        }
        can
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recorded pattern: 96 quick answers of 1 to 2 ms in a hundred and 4 slow ones of 20 ms.
    fn answers() -> impl Iterator<Item = u64> {
        (0..10_000u64).map(|at| if at % 25 == 7 { 20_000 } else { 1_000 + at * 7_919 % 1_000 })
    }

    #[test]
    fn usual_and_late_are_told_apart_and_follow_a_change() {
        let mut speed = Speed::default();
        assert_eq!((speed.usual_us(), speed.late_us()), (0, None));
        answers().for_each(|elapsed| speed.record(elapsed));
        assert!((1_000..4_500).contains(&speed.usual_us()), "{speed:?}");
        assert!(speed.late_us().is_some_and(|late| (2_000..30_000).contains(&late)), "{speed:?}");
        (0..40).for_each(|_| speed.record(100_000));
        assert!(speed.usual_us() > 90_000, "{speed:?}");
        assert!(speed.late_us().is_some_and(|late| late >= 95_000), "{speed:?}");
        answers().take(2_000).for_each(|elapsed| speed.record(elapsed));
        assert!(speed.usual_us() < 6_000, "{speed:?}");
    }

    #[test]
    fn one_hiccup_makes_nobody_slow() {
        let mut speed = Speed::default();
        (0..100).for_each(|_| speed.record(100));
        speed.record(2_000_000);
        assert!(speed.usual_us() < 400, "{speed:?}");
    }

    #[test]
    fn an_answer_not_waited_for_makes_nobody_faster() {
        let mut speed = Speed::default();
        speed.record(10_000);
        speed.record_at_least(5);
        assert_eq!(speed.usual_us(), 10_000);
        speed.record_at_least(50_000);
        assert!(speed.usual_us() > 10_000);
    }

    #[test]
    fn extra_work_is_a_share_of_all_work() {
        let mut budget = Budget::default();
        let saved = std::iter::from_fn(|| budget.spend().then_some(())).count();
        assert_eq!(saved, EXTRA_SAVED_MAX as usize);
        let spent = (0..10_000).filter(|_| {
            budget.earn();
            budget.spend()
        });
        assert_eq!(spent.count(), 100 * EXTRA_PER_HUNDRED as usize);
    }
}
