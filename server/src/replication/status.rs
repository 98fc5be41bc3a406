//! How this node and the other replicas of its vnodes stand, for people and metrics.

use std::collections::BTreeMap;

use trefoil::model::{Instant, KeyspaceId, NodeId, Stamp, Vnode};
use trefoil::received::exchange::{SliceStatus, Standing};

use super::Replication;
use crate::clock;

/// So many of the vnodes that are worst are named.
const WORST_MAX: usize = 5;

/// All vnodes of one keyspace that this node has.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// How many there are.
    pub vnodes: u64,
    /// In how many of them others have what is missing here.
    pub vnodes_behind: u64,
    /// How many writes are missing here.
    pub holes: u64,
    /// Of how many of them something was lost here: they come anew from the others.
    pub vnodes_withdrawn: u64,
    /// How many of them are not read here, those included, before what is missing has come.
    pub vnodes_not_read: u64,
    /// Vnodes of which nothing is known to be on all replicas.
    pub unknown: u64,
    /// Vnodes in which no deletion may go.
    pub unpurged: u64,
    /// The age of what is known to be on all replicas, in seconds, in the worst of the other vnodes.
    pub lag_s: f64,
    /// The age of deletions that may go, in seconds, in the worst of the other vnodes.
    pub purge_lag_s: f64,
    /// The other replicas.
    pub others: BTreeMap<NodeId, Other>,
    /// The vnodes with the greatest lag, worst first.
    pub worst: Vec<(Vnode, SliceStatus)>,
}

/// Another replica, as this node knows it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Other {
    /// Vnodes that it has in common with this node.
    pub vnodes: u64,
    /// Those of which it has told nothing yet.
    pub silent: u64,
    /// Writes that this node has and the other one lacks.
    pub lacks: u64,
    /// When its last report came.
    pub reported: Option<Instant>,
}

impl Replication {
    /// How each keyspace stands.
    pub fn summaries(&self) -> BTreeMap<KeyspaceId, Summary> {
        let now_us = clock::wall_us();
        let mut summaries: BTreeMap<KeyspaceId, Summary> = BTreeMap::new();
        for status in self.status() {
            summaries.entry(status.slice.0).or_default().add(status, now_us);
        }
        for summary in summaries.values_mut() {
            summary.worst.sort_by_key(|(_, status)| status.reconciled);
            summary.worst.truncate(WORST_MAX);
            let heard = self.heard.lock();
            summary.others.iter_mut().for_each(|(node, other)| other.reported = heard.get(node).copied());
        }
        summaries
    }
}

impl Summary {
    fn add(&mut self, status: SliceStatus, now_us: i64) {
        self.vnodes += 1;
        self.vnodes_behind += u64::from(status.holes > 0);
        self.vnodes_withdrawn += u64::from(status.standing != Standing::Whole);
        self.vnodes_not_read += u64::from(!status.may_answer);
        self.holes += status.holes;
        self.unknown += u64::from(status.reconciled.0 <= 0);
        self.unpurged += u64::from(status.purged.0 <= 0);
        self.lag_s = self.lag_s.max(age_s(status.reconciled, now_us));
        self.purge_lag_s = self.purge_lag_s.max(age_s(status.purged, now_us));
        for (node, lacks) in &status.lacking {
            let other = self.others.entry(*node).or_default();
            other.vnodes += 1;
            other.silent += u64::from(lacks.is_none());
            other.lacks += lacks.unwrap_or(0);
        }
        self.worst.push((status.slice.1, status));
    }
}

/// Seconds from a stamp to now; 0 where nothing is known yet, since that is no age.
pub fn age_s(stamp: Stamp, now_us: i64) -> f64 {
    if stamp.0 <= 0 { 0.0 } else { now_us.saturating_sub(stamp.0).max(0) as f64 / 1e6 }
}
