//! What a measurement gives, and what several of them say together.

use std::time::{Duration, Instant};

use crate::{Result, cpu};

/// One run of one thing.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// How many operations.
    pub ops: u64,
    /// How long they took.
    pub wall: Duration,
    /// User and system time of everyone involved.
    pub cpu: Duration,
}

impl Sample {
    /// Does work on this thread alone; it answers how many operations it was.
    pub fn of_this_thread(work: impl FnOnce() -> Result<u64>) -> Result<Sample> {
        let (started, cpu_before) = (Instant::now(), cpu::of_this_thread()?);
        let ops = work()?;
        Ok(Sample { ops, wall: started.elapsed(), cpu: cpu::of_this_thread()? - cpu_before })
    }

    /// Microseconds of CPU for each operation.
    pub fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.ops.max(1) as f64
    }

    /// Operations a second.
    pub fn per_second(&self) -> f64 {
        self.ops as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

/// The middle of several numbers and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Half lie below.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Of at least one number; all zero for none.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (sorted.first().copied(), sorted.last().copied()) else {
            return Spread { median: 0.0, min: 0.0, max: 0.0 };
        };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Spread { median, min, max }
    }
}

/// The same thing measured in several rounds.
#[derive(Debug, Clone, Default)]
pub struct Series(pub Vec<Sample>);

impl Series {
    /// CPU for each operation, in microseconds.
    pub fn cpu_us(&self) -> Spread {
        Spread::of(self.0.iter().map(Sample::cpu_us))
    }

    /// Operations a second.
    pub fn per_second(&self) -> Spread {
        Spread::of(self.0.iter().map(Sample::per_second))
    }

    /// CPU of this over CPU of `yardstick`, round by round.
    pub fn cpu_over(&self, yardstick: &Series) -> Spread {
        Spread::of(self.0.iter().zip(&yardstick.0).map(|(a, b)| a.cpu_us() / b.cpu_us()))
    }

    /// Operations a second of this over those of `other`, round by round.
    pub fn rate_over(&self, other: &Series) -> Spread {
        Spread::of(self.0.iter().zip(&other.0).map(|(a, b)| a.per_second() / b.per_second()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Sample, Series, Spread};
    use std::time::Duration;

    #[test]
    fn the_middle_is_the_middle() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([]), Spread { median: 0.0, min: 0.0, max: 0.0 });
    }

    /// A slow round slows both sides: ratios are taken within a round, not between medians.
    #[test]
    fn ratios_are_taken_round_by_round() {
        let sample = |cpu_us| Sample { ops: 1, wall: Duration::from_secs(1), cpu: Duration::from_micros(cpu_us) };
        let (ours, yardstick) = (Series(vec![sample(10), sample(40)]), Series(vec![sample(5), sample(20)]));
        assert_eq!(ours.cpu_over(&yardstick), Spread { median: 2.0, min: 2.0, max: 2.0 });
        assert_eq!(ours.rate_over(&yardstick), Spread { median: 1.0, min: 1.0, max: 1.0 });
    }
}
