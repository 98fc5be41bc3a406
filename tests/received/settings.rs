//! What a history is like: drawn from its seed, so that some have none of one kind of trouble and much of another.

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

/// All lengths of time in microseconds.
#[derive(Debug, Clone)]
pub struct Settings {
    pub replicas: u32,
    pub keys: u8,
    /// Acknowledge after the write, sync at most ten seconds later.
    pub periodic: bool,
    /// How much older than its stamp a write's timestamp may be.
    pub lateness_us: i64,
    pub purge_after_us: u64,
    /// How long there is trouble.
    pub trouble_us: i64,
    pub between_writes_us: i64,
    pub between_faults_us: i64,
    /// Of a thousand messages.
    pub lost: u32,
    pub late: u32,
    /// Of a thousand resends, how many are the last.
    pub forgotten: u32,
    /// Whether disks lose something.
    pub losses: bool,
}

impl Settings {
    pub fn of(seed: u64) -> (Settings, SmallRng) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let pick = |rng: &mut SmallRng, of: &[i64]| of[rng.random_range(0..of.len())];
        let settings = Settings {
            replicas: pick(&mut rng, &[3, 3, 3, 4, 5]) as u32,
            keys: pick(&mut rng, &[1, 2, 4]) as u8,
            periodic: rng.random(),
            lateness_us: pick(&mut rng, &[0, 1_000_000, 10_000_000]),
            purge_after_us: pick(&mut rng, &[1_000_000, 10_000_000, 30_000_000]) as u64,
            trouble_us: pick(&mut rng, &[150_000_000, 300_000_000, 600_000_000]),
            between_writes_us: pick(&mut rng, &[500_000, 2_000_000, 8_000_000]),
            between_faults_us: pick(&mut rng, &[5_000_000, 20_000_000, 60_000_000]),
            lost: pick(&mut rng, &[0, 20, 100, 400]) as u32,
            late: pick(&mut rng, &[0, 5, 30]) as u32,
            forgotten: pick(&mut rng, &[0, 100, 1_000]) as u32,
            losses: rng.random(),
        };
        (settings, rng)
    }

    pub fn forgets(&self, rng: &mut SmallRng) -> bool {
        rng.random_range(0..1_000) < self.forgotten
    }

    /// How long a message takes; none if it is lost.
    pub fn transit_us(&self, rng: &mut SmallRng) -> Option<i64> {
        let fate = rng.random_range(0..1_000);
        if fate < self.lost {
            None
        } else if fate < self.lost + self.late {
            Some(rng.random_range(1_000_000..400_000_000))
        } else {
            Some(rng.random_range(500..50_000))
        }
    }
}
