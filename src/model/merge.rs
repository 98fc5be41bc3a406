//! Sorted runs become one run, by the rule of [`super::reconcile`].
//!
//! Every reader of data, a memtable, a file, a peer's answer, is a [`Stream`] of fragments; [`Merge`] turns any number
//! of them into one with the invariants of [`super::fragment`]. Rows are merged through [`Reconcile`] so that a row
//! that only one source holds, under no deletion, passes through untouched, in whatever form it is.
//!
//! ```text
//! a   Partition(p)  Row(1)               Change(3, D@5)  Row(4)         Change(6, None)
//! b   Partition(p)  Row(1)  Change(2, D@7)       Row(4)  Change(5, None)
//! out Partition(p)  Row(1)  Change(2, D@7)   Row(4)'     Change(5, D@5) Change(6, None)      Row(4)' = merged, under D@7
//! ```
//!
//! Between partitions the least key is looked for among all sources. Within a partition the sources that hold it are
//! kept sorted by what they yield next; the one that moved is sorted in again, which costs one comparison as long as it
//! stays in front. Each source is one fragment ahead, nothing else is held: memory does not grow with the data.

use std::cmp::Ordering;
use std::mem;

use super::cell::Deletion;
use super::cost::ReadCost;
use super::fragment::{Direction, Fragment, PartitionHeader};
use super::key::{Bound, ClusteringKey, PartitionKey};
use super::reconcile::merge_deletions;
use crate::{Corrupt, Error, Result};

/// A row as far as merging needs to know it.
pub trait Reconcile: Sized {
    /// Two versions of one row become one.
    fn merge(self, other: Self) -> Result<Self>;

    /// What is left under an enclosing deletion; `None` when nothing is.
    fn under(self, deletion: Deletion) -> Result<Option<Self>>;
}

/// A source of fragments with the invariants of [`super::fragment`].
///
/// After `Err` or `Ok(None)` it yields nothing more; an error is never swallowed (B112 in `docs/testing.md`).
pub trait Stream<R> {
    /// The next fragment, or `None` at the end.
    fn next(&mut self) -> Result<Option<Fragment<R>>>;

    /// Everything before `place`, in the direction of the stream, and behind what was yielded last is covered by
    /// `deletion`. Whether the stream can go on from there without looking at what lies between; then it does, and what it
    /// had looked at last is as if it had never been yielded. `seen` is the range deletion that counts as yielded.
    fn pass(&mut self, place: &Bound, deletion: Deletion, seen: Option<Deletion>) -> Result<bool> {
        let _ = (place, deletion, seen);
        Ok(false)
    }

    /// What it has touched so far to yield what it has.
    fn cost(&self) -> ReadCost {
        ReadCost::default()
    }
}

impl<R, S: Stream<R> + ?Sized> Stream<R> for Box<S> {
    fn next(&mut self) -> Result<Option<Fragment<R>>> {
        (**self).next()
    }

    fn pass(&mut self, place: &Bound, deletion: Deletion, seen: Option<Deletion>) -> Result<bool> {
        (**self).pass(place, deletion, seen)
    }

    fn cost(&self) -> ReadCost {
        (**self).cost()
    }
}

/// What a step of a [`Merge`] comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<R> {
    /// The next fragment.
    Fragment(Fragment<R>),
    /// Nothing, for so long that whoever has a limit should look at it: all that lay before this place, and behind the
    /// fragment before, is covered by deletions that were yielded.
    Passed(Bound),
    /// The end.
    End,
}

/// After so many covered rows and changes one behind the other a merge says so.
const PASSED_MAX: u64 = 4_096;

/// The merge of several streams of one direction.
///
/// What a deletion covers is left out: rows and range deletions under the partition's deletion, rows under the range
/// deletion in force. A partition of which nothing remains, or of which its sources say no more than its key, is left
/// out whole: its header waits until something follows. Sources are not trusted: one that breaks the order of its
/// fragments ends the merge with [`Error::Corrupt`]. An error is repeated by every later call.
pub struct Merge<R, S> {
    sources: Vec<Source<R, S>>,
    direction: Direction,
    started: bool,
    failed: Option<Error>,
    /// The partition that was begun last.
    key: Option<PartitionKey>,
    /// Its deletion.
    deletion: Option<Deletion>,
    /// The range deletion that was yielded last; none between partitions, since every source has closed its own.
    in_force: Option<Deletion>,
    /// The sources that yield more of this partition, sorted by what they yield next.
    order: Vec<usize>,
    /// What follows a header that waited for it.
    held: Option<Fragment<R>>,
    /// Rows that were taken from sources.
    rows: u64,
    /// Rows and changes of which nothing was left, since the last step.
    passed: u64,
}

struct Source<R, S> {
    stream: S,
    /// What it yields next.
    head: Option<Fragment<R>>,
    /// The range deletion it has opened.
    in_force: Option<Deletion>,
}

impl<R: Reconcile, S: Stream<R>> Merge<R, S> {
    /// Merges `sources`, all of which yield rows in `direction`.
    pub fn new(sources: Vec<S>, direction: Direction) -> Merge<R, S> {
        let order = Vec::with_capacity(sources.len());
        let sources = sources.into_iter().map(|stream| Source { stream, head: None, in_force: None }).collect();
        Merge {
            sources,
            direction,
            started: false,
            failed: None,
            key: None,
            deletion: None,
            in_force: None,
            order,
            held: None,
            rows: 0,
            passed: 0,
        }
    }

    /// The next fragment, the end, or that there was nothing for long; an error is repeated by every later call.
    pub fn step(&mut self) -> Result<Step<R>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.passed = 0;
        let answer = self.advance();
        self.failed = answer.as_ref().err().cloned();
        answer
    }

    fn advance(&mut self) -> Result<Step<R>> {
        if let Some(fragment) = self.held.take() {
            return Ok(Step::Fragment(fragment));
        }
        if !self.started {
            self.started = true;
            for source in &mut self.sources {
                source.head = source.stream.next()?;
            }
        }
        match self.next_within()? {
            Step::End => {}
            step => return Ok(step),
        }
        while let Some(header) = self.next_partition()? {
            if header.deletion.is_none() && header.static_row.is_none() {
                // Nothing is passed here: no row is covered before a deletion was yielded.
                match self.next_within()? {
                    Step::Fragment(fragment) => self.held = Some(fragment),
                    Step::Passed(_) | Step::End => continue,
                }
            }
            return Ok(Step::Fragment(Fragment::Partition(header)));
        }
        Ok(Step::End)
    }

    /// Begins the least partition that any source is at.
    fn next_partition(&mut self) -> Result<Option<PartitionHeader<R>>> {
        let Some(key) = self.gather_least()? else { return Ok(None) };
        if self.key.as_ref().is_some_and(|last| *last >= key) {
            return Err(out_of_order("a partition does not follow the one before it"));
        }
        let mut deletion = None;
        let mut static_row: Option<R> = None;
        for &index in &self.order {
            let source = &mut self.sources[index];
            if let Some(Fragment::Partition(header)) = source.take(self.direction)? {
                deletion = merge_deletions(deletion, header.deletion);
                static_row = merge_options(static_row, header.static_row)?;
            }
        }
        let (sources, direction) = (&self.sources, self.direction);
        self.order.retain(|index| sources[*index].position().is_some());
        self.order.sort_unstable_by(|a, b| compare(direction, sources[*a].position(), sources[*b].position()));
        if let Some(deletion) = deletion {
            static_row = static_row.map(|row| row.under(deletion)).transpose()?.flatten();
        }
        self.key = Some(key.clone());
        self.deletion = deletion;
        Ok(Some(PartitionHeader { key, deletion, static_row }))
    }

    /// Leaves in `order` the sources that are at the least partition, which is returned.
    fn gather_least(&mut self) -> Result<Option<PartitionKey>> {
        let mut least: Option<&PartitionKey> = None;
        self.order.clear();
        for (index, source) in self.sources.iter().enumerate() {
            let key = match &source.head {
                None => continue,
                Some(Fragment::Partition(header)) => &header.key,
                Some(_) => return Err(out_of_order("a row or a change stands before any partition")),
            };
            let order = least.map_or(Ordering::Less, |least| key.cmp(least));
            if order == Ordering::Less {
                self.order.clear();
                least = Some(key);
            }
            if order != Ordering::Greater {
                self.order.push(index);
            }
        }
        Ok(least.cloned())
    }

    /// The next row or change of the partition, or its end.
    fn next_within(&mut self) -> Result<Step<R>> {
        while let Some(&first) = self.order.first() {
            let ties = self.ties();
            let step = match self.sources[first].take(self.direction)? {
                Some(Fragment::Row(key, row)) => {
                    self.rows += ties as u64;
                    match self.merge_ties(row, ties)? {
                        Some(row) => Some(Step::Fragment(Fragment::Row(key, row))),
                        None => self.pass(|direction| beyond(&key, direction)),
                    }
                }
                Some(Fragment::Change(bound, deletion)) => {
                    self.sources[first].in_force = deletion;
                    self.change_ties(ties)?;
                    let in_force = self.strongest();
                    let changed = in_force != self.in_force;
                    self.in_force = in_force;
                    match changed {
                        true => Some(Step::Fragment(Fragment::Change(bound, in_force))),
                        false => self.pass(|_| bound),
                    }
                }
                _ => return Err(out_of_order("a partition begins within a partition")),
            };
            self.sort_in(ties)?;
            if self.in_force.is_some() {
                self.pass_covered(first)?;
            }
            if let Some(step) = step {
                return Ok(step);
            }
        }
        Ok(Step::End)
    }

    /// Where the source that has opened the deletion in force says next that another one is, the others may go there.
    fn pass_covered(&mut self, by: usize) -> Result<()> {
        let source = &self.sources[by];
        let (Some(deletion), Some(Fragment::Change(place, _))) = (self.in_force, &source.head) else { return Ok(()) };
        if source.in_force != Some(deletion) {
            return Ok(());
        }
        let (place, direction) = (place.clone(), self.direction);
        let mut has_passed = false;
        for index in self.order.iter().filter(|index| **index != by) {
            let source = &mut self.sources[*index];
            let is_before = compare(direction, source.position(), Some(place.bytes())) == Ordering::Less;
            if is_before && source.stream.pass(&place, deletion, source.in_force)? {
                source.head = source.stream.next()?;
                has_passed = true;
            }
        }
        if has_passed {
            let sources = &self.sources;
            self.order.retain(|index| sources[*index].position().is_some());
            self.order.sort_by(|a, b| compare(direction, sources[*a].position(), sources[*b].position()));
        }
        Ok(())
    }

    /// Nothing is left of a row or a change that lies before `place`.
    fn pass(&mut self, place: impl FnOnce(Direction) -> Bound) -> Option<Step<R>> {
        self.passed += 1;
        (self.passed >= PASSED_MAX).then(|| Step::Passed(place(self.direction)))
    }

    /// How many sources are at the least position.
    fn ties(&self) -> usize {
        let position = |index: usize| self.sources[index].position();
        let first = position(self.order[0]);
        1 + self.order[1..].iter().take_while(|index| position(**index) == first).count()
    }

    /// `row` of the first source, with the versions of the others at the same position, under what covers them.
    fn merge_ties(&mut self, mut row: R, ties: usize) -> Result<Option<R>> {
        for &index in &self.order[1..ties] {
            match self.sources[index].take(self.direction)? {
                Some(Fragment::Row(_, other)) => row = row.merge(other)?,
                _ => return Err(out_of_order("a change stands at the position of a row")),
            }
        }
        match merge_deletions(self.deletion, self.in_force) {
            Some(deletion) => row.under(deletion),
            None => Ok(Some(row)),
        }
    }

    fn change_ties(&mut self, ties: usize) -> Result<()> {
        for &index in &self.order[1..ties] {
            let source = &mut self.sources[index];
            match source.take(self.direction)? {
                Some(Fragment::Change(_, deletion)) => source.in_force = deletion,
                _ => return Err(out_of_order("a row stands at the position of a change")),
            }
        }
        Ok(())
    }

    /// The range deletion that wins among those the sources have opened, unless the partition's covers it.
    fn strongest(&self) -> Option<Deletion> {
        let opened = self.order.iter().map(|index| self.sources[*index].in_force);
        let strongest = opened.fold(None, merge_deletions)?;
        self.deletion.is_none_or(|deletion| !deletion.covers(strongest.timestamp)).then_some(strongest)
    }

    /// Sorts the first `moved` sources of `order` in again; those that are done with the partition leave it.
    fn sort_in(&mut self, moved: usize) -> Result<()> {
        for at in (0..moved).rev() {
            let source = &self.sources[self.order[at]];
            let position = source.position();
            if position.is_none() {
                if source.in_force.is_some() {
                    return Err(out_of_order("a range deletion is still open at the end of its partition"));
                }
                self.order.remove(at);
                continue;
            }
            let precedes =
                |other: &usize| compare(self.direction, self.sources[*other].position(), position) == Ordering::Less;
            let behind = &self.order[at + 1..];
            if behind.first().is_some_and(precedes) {
                let places = behind.partition_point(precedes);
                self.order[at..=at + places].rotate_left(1);
            }
        }
        Ok(())
    }
}

impl<R: Reconcile, S: Stream<R>> Stream<R> for Merge<R, S> {
    fn next(&mut self) -> Result<Option<Fragment<R>>> {
        loop {
            match self.step()? {
                Step::Fragment(fragment) => return Ok(Some(fragment)),
                Step::Passed(_) => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// What its sources have touched, and the rows that it has taken from them.
    fn cost(&self) -> ReadCost {
        let mut cost = ReadCost { rows: self.rows, ..ReadCost::default() };
        self.sources.iter().for_each(|source| cost += source.stream.cost());
        cost
    }
}

impl<R, S: Stream<R>> Source<R, S> {
    /// What it is at, after reading one further and checking that the two are in order.
    fn take(&mut self, direction: Direction) -> Result<Option<Fragment<R>>> {
        let next = self.stream.next()?;
        let taken = mem::replace(&mut self.head, next);
        let position = self.position();
        let taken_position = taken.as_ref().and_then(position_of);
        if position.is_some()
            && taken_position.is_some()
            && compare(direction, taken_position, position) != Ordering::Less
        {
            return Err(out_of_order("a row or a change does not follow the one before it"));
        }
        Ok(taken)
    }

    /// Where in its partition it is; `None` if it is at the partition's end.
    fn position(&self) -> Option<&[u8]> {
        self.head.as_ref().and_then(position_of)
    }
}

fn position_of<R>(fragment: &Fragment<R>) -> Option<&[u8]> {
    match fragment {
        Fragment::Partition(_) => None,
        Fragment::Row(key, _) => Some(key.bytes()),
        Fragment::Change(bound, _) => Some(bound.bytes()),
    }
}

/// The place just behind a row.
fn beyond(key: &ClusteringKey, direction: Direction) -> Bound {
    match direction {
        Direction::Forward => key.after(),
        Direction::Reverse => key.before(),
    }
}

fn compare(direction: Direction, a: Option<&[u8]>, b: Option<&[u8]>) -> Ordering {
    match direction {
        Direction::Forward => a.cmp(&b),
        Direction::Reverse => b.cmp(&a),
    }
}

pub(super) fn merge_options<R: Reconcile>(a: Option<R>, b: Option<R>) -> Result<Option<R>> {
    match (a, b) {
        (Some(a), Some(b)) => a.merge(b).map(Some),
        (a, b) => Ok(a.or(b)),
    }
}

fn out_of_order(reason: &'static str) -> Error {
    Corrupt::new("fragment stream", reason).into()
}

#[cfg(test)]
mod tests;
