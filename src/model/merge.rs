//! Sorted runs become one run, by the rule of [`super::reconcile`].
//!
//! Every reader of data, a memtable, a file, a peer's answer, is a [`Stream`] of fragments; [`Merge`] turns any number
//! of them into one with the invariants of [`super::fragment`]. Rows are merged through [`Reconcile`] so that a row
//! that only one source holds, under no deletion, passes through untouched, in whatever form it is.

use super::cell::Deletion;
use super::fragment::{Direction, Fragment};
use crate::Result;

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
}

impl<R, S: Stream<R> + ?Sized> Stream<R> for Box<S> {
    fn next(&mut self) -> Result<Option<Fragment<R>>> {
        (**self).next()
    }
}

/// The merge of several streams of one direction.
pub struct Merge<R, S> {
    sources: Vec<S>,
    direction: Direction,
    _row: std::marker::PhantomData<R>,
}

impl<R: Reconcile, S: Stream<R>> Merge<R, S> {
    /// Merges `sources`, all of which yield rows in `direction`.
    pub fn new(sources: Vec<S>, direction: Direction) -> Merge<R, S> {
        Merge { sources, direction, _row: std::marker::PhantomData }
    }
}

impl<R: Reconcile, S: Stream<R>> Stream<R> for Merge<R, S> {
    fn next(&mut self) -> Result<Option<Fragment<R>>> {
        let _ = (&mut self.sources, self.direction);
        todo!("k-way merge")
    }
}
