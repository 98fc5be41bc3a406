//! Which mutation names a replica has, per (keyspace, vnode): intervals of sequences by origin and incarnation.
//!
//! ```text
//! origin 1, incarnation 1700.. :  1────────────────────412      a replica that missed nothing: one interval a run
//! origin 2, incarnation 1702.. :  1───87   90──────95           88 and 89 are missing, and everybody can see it
//! ```
//!
//! **Invariant:** a name enters a set only once its record is fsynced *and* inserted; only that is told to peers.
//!
//! ```text
//! namer     names and stamps             told      what a replica says of one slice: its set, and what all have
//! gathered  sets that grow name by name  report    what it says of all, once a second     exchange  who has what
//! ```

use std::cmp::Ordering;
use std::collections::BTreeMap;

use runs::{Run, Runs};

use crate::Result;
use crate::codec::varint::{Reader, put_varint};
use crate::model::{KeyspaceId, MutationName, NodeId, Vnode};

pub mod exchange;
pub mod gathered;
pub mod namer;
pub mod report;
mod runs;
#[cfg(test)]
mod tests;
pub mod told;

/// One vnode of one keyspace: what a set is about.
pub type Slice = (KeyspaceId, Vnode);

/// The names one replica has of one (keyspace, vnode).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReceivedSet {
    /// Per run of an origin: ascending intervals of sequences with at least one missing between two; never empty.
    runs: Runs,
}

/// Sequences `first..=last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// At least 1.
    pub first: u64,
    /// At least `first`.
    pub last: u64,
}

impl ReceivedSet {
    /// Adds a name; whether it is new. Sequence 0 names nothing and is never in a set.
    pub fn add(&mut self, name: MutationName) -> bool {
        if name.sequence == 0 {
            return false;
        }
        add(self.runs.of((name.origin, name.incarnation)), name.sequence)
    }

    /// Whether the set has the name.
    pub fn contains(&self, name: MutationName) -> bool {
        let intervals = self.runs.get(&(name.origin, name.incarnation)).map_or(&[][..], Vec::as_slice);
        let at = intervals.partition_point(|interval| interval.last < name.sequence);
        intervals.get(at).is_some_and(|interval| interval.first <= name.sequence)
    }

    /// Adds all names of `other`.
    pub fn union(&mut self, other: &ReceivedSet) {
        for (run, theirs) in other.runs.iter() {
            let ours = self.runs.of(*run);
            *ours = united(ours, theirs);
        }
    }

    /// Whether it has every name of `other`.
    pub fn covers(&self, other: &ReceivedSet) -> bool {
        other.runs.iter().all(|(run, theirs)| self.runs.get(run).is_some_and(|ours| within(theirs, ours)))
    }

    /// Lets go of the runs of `origin` before `incarnation`; whether there were any.
    pub fn forget(&mut self, origin: NodeId, incarnation: u64) -> bool {
        let before = self.runs.len();
        self.runs.retain(|(of, run)| *of != origin || *run >= incarnation);
        self.runs.len() < before
    }

    /// How many names it holds; saturates.
    pub fn count(&self) -> u64 {
        let intervals = self.runs.iter().flat_map(|(_, intervals)| intervals);
        intervals.fold(0, |count, interval| count.saturating_add((interval.last - interval.first).saturating_add(1)))
    }

    /// What `self` has and `other` has not.
    pub fn difference(&self, other: &ReceivedSet) -> ReceivedSet {
        let mut runs = Runs::default();
        for (run, ours) in self.runs.iter() {
            let left = other.runs.get(run).map_or_else(|| ours.clone(), |theirs| without(ours, theirs));
            if !left.is_empty() {
                runs.insert(*run, left);
            }
        }
        ReceivedSet { runs }
    }

    /// Whether both have a name.
    pub fn meets(&self, other: &ReceivedSet) -> bool {
        let meet =
            |(run, ours): (&Run, &Vec<Interval>)| other.runs.get(run).is_some_and(|theirs| have_common(ours, theirs));
        self.runs.iter().any(meet)
    }

    /// What both have.
    pub fn intersection(&self, other: &ReceivedSet) -> ReceivedSet {
        self.difference(&self.difference(other))
    }

    /// Whether it holds no name.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The intervals by origin and incarnation, ascending.
    pub fn runs(&self) -> impl Iterator<Item = (NodeId, u64, &[Interval])> {
        self.runs.iter().map(|((origin, incarnation), intervals)| (*origin, *incarnation, intervals.as_slice()))
    }

    /// Appends the encoding (docs/formats.md, "received set").
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.runs.len() as u64);
        for (origin, incarnation, intervals) in self.runs() {
            out.extend_from_slice(&origin.0.to_le_bytes());
            out.extend_from_slice(&incarnation.to_le_bytes());
            put_varint(out, intervals.len() as u64);
            let mut lowest = 1;
            for interval in intervals {
                put_varint(out, interval.first - lowest);
                put_varint(out, interval.last - interval.first);
                lowest = interval.last.saturating_add(2);
            }
        }
    }

    /// Reads what [`ReceivedSet::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<ReceivedSet> {
        let mut runs = Runs::default();
        let mut previous = None;
        for _ in 0..reader.varint()? {
            let run = (NodeId(reader.u32()?), reader.u64()?);
            if previous >= Some(run) {
                return Err(reader.corrupt("the runs of a received set do not ascend").into());
            }
            previous = Some(run);
            runs.insert(run, decode_intervals(reader)?);
        }
        Ok(ReceivedSet { runs })
    }
}

/// Intervals as gaps and lengths, so that every encoding stands for intervals that ascend and do not touch.
fn decode_intervals(reader: &mut Reader) -> Result<Vec<Interval>> {
    let count = reader.varint()?;
    if count == 0 {
        return Err(reader.corrupt("a run of a received set has no interval").into());
    }
    let mut intervals = Vec::new();
    let mut lowest = Some(1u64);
    for _ in 0..count {
        let (gap, length) = (reader.varint()?, reader.varint()?);
        let first = lowest.and_then(|lowest| lowest.checked_add(gap));
        let Some((first, last)) = first.and_then(|first| Some((first, first.checked_add(length)?))) else {
            return Err(reader.corrupt("an interval of sequences does not fit 64 bits").into());
        };
        intervals.push(Interval { first, last });
        lowest = last.checked_add(2);
    }
    Ok(intervals)
}

/// Adds one sequence, at least 1. Nearly always it follows the last one, which costs nothing.
fn add(intervals: &mut Vec<Interval>, sequence: u64) -> bool {
    match intervals.last_mut() {
        Some(last) if last.last.checked_add(1) == Some(sequence) => {
            last.last = sequence;
            return true;
        }
        Some(last) if last.last >= sequence => {}
        _ => {
            intervals.push(Interval { first: sequence, last: sequence });
            return true;
        }
    }
    // The sequence is not behind the last one, so there is an interval that ends at or behind it.
    let at = intervals.partition_point(|interval| interval.last < sequence);
    if intervals[at].first <= sequence {
        return false;
    }
    let follows = at > 0 && intervals[at - 1].last + 1 == sequence;
    let leads = sequence + 1 == intervals[at].first;
    match (follows, leads) {
        (true, true) => {
            intervals[at - 1].last = intervals[at].last;
            intervals.remove(at);
        }
        (true, false) => intervals[at - 1].last = sequence,
        (false, true) => intervals[at].first = sequence,
        (false, false) => intervals.insert(at, Interval { first: sequence, last: sequence }),
    }
    true
}

fn united(left: &[Interval], right: &[Interval]) -> Vec<Interval> {
    let mut all: Vec<Interval> = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    loop {
        let side = match (left.peek(), right.peek()) {
            (Some(l), Some(r)) if l.first.cmp(&r.first) == Ordering::Greater => &mut right,
            (Some(_), _) => &mut left,
            (None, _) => &mut right,
        };
        let Some(next) = side.next() else {
            return all;
        };
        match all.last_mut() {
            Some(last) if next.first <= last.last.saturating_add(1) => last.last = last.last.max(next.last),
            _ => all.push(*next),
        }
    }
}

/// Whether every sequence of `inner` is in `outer`: as intervals of one set do not touch, each lies within one of the
/// other's.
fn within(inner: &[Interval], outer: &[Interval]) -> bool {
    let mut at = 0;
    inner.iter().all(|interval| {
        while outer.get(at).is_some_and(|candidate| candidate.last < interval.last) {
            at += 1;
        }
        outer.get(at).is_some_and(|candidate| candidate.first <= interval.first)
    })
}

fn have_common(left: &[Interval], right: &[Interval]) -> bool {
    let meets = |interval: &Interval| {
        let at = right.partition_point(|other| other.last < interval.first);
        right.get(at).is_some_and(|other| other.first <= interval.last)
    };
    left.iter().any(meets)
}

fn without(ours: &[Interval], theirs: &[Interval]) -> Vec<Interval> {
    let mut left = Vec::new();
    let mut at = 0;
    for interval in ours {
        // `first` is the lowest sequence of the interval not yet decided; none once all are.
        let mut first = Some(interval.first);
        while let (Some(start), Some(taken)) = (first, theirs.get(at)) {
            if taken.first > interval.last {
                break;
            }
            if start < taken.first {
                left.push(Interval { first: start, last: taken.first - 1 });
            }
            if taken.last >= interval.last {
                first = None;
            } else {
                first = Some(start.max(taken.last + 1));
                at += 1;
            }
        }
        left.extend(first.map(|first| Interval { first, last: interval.last }));
    }
    left
}

/// All sets of a node.
pub type ReceivedSets = BTreeMap<(KeyspaceId, Vnode), ReceivedSet>;
