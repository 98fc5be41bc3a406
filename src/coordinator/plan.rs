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
    /// What its answers usually take; 0 if that is not known.
    pub usual_us: u64,
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
    let least = |remote: bool, number: fn(&Load) -> u64| {
        let numbers =
            order.iter().filter(|replica| is_remote(**replica) == remote).map(|replica| number(&loads[*replica]));
        numbers.min().unwrap_or(0)
    };
    let limits = [false, true].map(|remote| {
        let usual = least(remote, |load| load.usual_us).saturating_mul(SLOW.0).saturating_add(SLOW.1);
        let busy = least(remote, |load| load.in_flight).saturating_mul(BUSY.0).saturating_add(BUSY.1);
        (usual, busy)
    });
    let is_slow = |replica: usize| {
        let (usual, busy) = limits[usize::from(is_remote(replica))];
        loads[replica].usual_us > usual || loads[replica].in_flight > busy
    };
    order.sort_by_key(|&replica| (is_remote(replica), is_slow(replica)));
    order
}
