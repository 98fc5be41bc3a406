//! The runs of one set: a sorted list, since they are few.
//!
//! A node meets every name three times and has a set for each vnode of each keyspace, most of them of one run for each
//! replica. A tree's first node alone would take half a kilobyte for each of them, and a miss of the processor's caches more.

use super::Interval;
use crate::model::NodeId;

/// A life of an origin: the origin and its incarnation.
pub(super) type Run = (NodeId, u64);

/// The intervals of each run, ascending by run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Runs(Vec<(Run, Vec<Interval>)>);

impl Runs {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, run: &Run) -> Option<&Vec<Interval>> {
        self.place(run).ok().map(|at| &self.0[at].1)
    }

    /// The intervals of a run; none at first.
    pub(super) fn of(&mut self, run: Run) -> &mut Vec<Interval> {
        let at = self.place(&run).unwrap_or_else(|vacant| {
            if self.0.is_empty() {
                // By far the most have one.
                self.0.reserve_exact(1);
            }
            self.0.insert(vacant, (run, Vec::new()));
            vacant
        });
        &mut self.0[at].1
    }

    pub(super) fn insert(&mut self, run: Run, intervals: Vec<Interval>) {
        *self.of(run) = intervals;
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&Run) -> bool) {
        self.0.retain(|(run, _)| is_kept(run));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Run, &Vec<Interval>)> {
        self.0.iter().map(|(run, intervals)| (run, intervals))
    }

    fn place(&self, run: &Run) -> Result<usize, usize> {
        match self.0.last() {
            // The latest run, or a later one, nearly always.
            Some((last, _)) if last == run => Ok(self.0.len() - 1),
            Some((last, _)) if last < run => Err(self.0.len()),
            _ => self.0.binary_search_by(|(other, _)| other.cmp(run)),
        }
    }
}
