//! Whom to ask first.

/// How far a replica is from the coordinator; nearer is smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// The coordinator itself.
    Own,
    /// In its zone.
    Zone,
    /// In its region.
    Region,
    /// In another region.
    Remote,
}

/// The live replicas by their index, nearest first; equally near ones begin with a different one each time that `turn`
/// rises, so that they share the work.
pub fn nearest_first(distances: &[Distance], alive: u64, turn: usize) -> Vec<usize> {
    let count = distances.len().max(1);
    let mut order: Vec<usize> = (0..distances.len()).filter(|replica| alive >> replica & 1 == 1).collect();
    order.sort_by_key(|&replica| (distances[replica], (replica + turn) % count));
    order
}

/// How busy and how fast a replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// What its answers usually take, if that is known.
    pub usual_us: Option<u64>,
    /// What was asked of it and is not answered.
    pub in_flight: u64,
}

/// So much slower than the fastest counts as slow: a multiple of its time and some more.
const SLOW: (u64, u64) = (4, 5_000);

/// So much more in flight than at the least busy counts as slow.
const BUSY: (u64, u64) = (4, 256);

/// As [`nearest_first`], with those that are slow behind the others that are not in another region. Slow is not dead:
/// they come last, and are asked where nobody else is left.
pub fn best_first(distances: &[Distance], loads: &[Load], alive: u64, turn: usize) -> Vec<usize> {
    let mut order = nearest_first(distances, alive, turn);
    let is_remote = |replica: usize| distances[replica] == Distance::Remote;
    let peers = |remote: bool| order.iter().filter(move |replica| is_remote(**replica) == remote).map(|at| loads[*at]);
    let limits = [false, true].map(|remote| {
        // Nobody is slower than one of whom nothing is known.
        let usual = peers(remote).filter_map(|load| load.usual_us).min();
        let busy = peers(remote).map(|load| load.in_flight).min();
        let limit = |least: Option<u64>, (times, more)| least.unwrap_or(0).saturating_mul(times).saturating_add(more);
        (limit(usual, SLOW), limit(busy, BUSY))
    });
    let is_slow = |replica: usize| {
        let (usual, busy) = limits[usize::from(is_remote(replica))];
        loads[replica].usual_us.is_some_and(|us| us > usual) || loads[replica].in_flight > busy
    };
    order.sort_by_key(|&replica| (is_remote(replica), is_slow(replica)));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_and_busy_replicas_come_last_within_their_reach() {
        use Distance::{Own, Region, Remote};
        let distances = [Own, Region, Region, Remote, Remote];
        let order = |loads: [(Option<u64>, u64); 5]| {
            let loads = loads.map(|(usual_us, in_flight)| Load { usual_us, in_flight });
            best_first(&distances, &loads, 0b11111, 0)
        };
        let fast = (Some(300), 3);
        assert_eq!(order([fast; 5]), [0, 1, 2, 3, 4]);
        assert_eq!(
            order([(Some(40_000), 0), (None, 0), (None, 0), fast, fast]),
            [0, 1, 2, 3, 4],
            "others are not known"
        );
        assert_eq!(order([(Some(40_000), 0), fast, fast, fast, fast]), [1, 2, 0, 3, 4]);
        assert_eq!(order([fast, (Some(7_000), 3), fast, (Some(90_000), 3), (Some(70_000), 3)]), [0, 2, 1, 3, 4]);
        assert_eq!(order([fast, (Some(300), 400), fast, (Some(900_000), 3), (Some(70_000), 3)]), [0, 2, 1, 4, 3]);
        let (all, dead) = ([Load::default(); 5], 0b10110);
        assert_eq!(best_first(&distances, &all, dead, 0), [1, 2, 4]);
    }
}
