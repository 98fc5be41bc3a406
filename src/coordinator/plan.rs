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
