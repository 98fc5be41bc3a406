//! A partition of which a read sees one row: what most reads find, without streams.
//!
//! The same as what [`super::Merge`] makes of sources that yield a header and at most one row: reads that ask for one
//! row take this way first, and leave it where a source holds more.

use super::cell::Deletion;
use super::key::ClusteringKey;
use super::merge::{Reconcile, merge_options};
use super::reconcile::merge_deletions;
use crate::Result;

/// What there is of a partition within one slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Glance<R> {
    /// Nothing of the partition.
    Absent,
    /// At most one row, and no range deletion.
    Lone(Lone<R>),
    /// More than that.
    More,
}

/// A partition with at most one row and no range deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lone<R> {
    /// The partition's deletion.
    pub deletion: Option<Deletion>,
    /// Its static row.
    pub static_row: Option<R>,
    /// The row.
    pub row: Option<(ClusteringKey, R)>,
}

impl<R> Glance<R> {
    /// The partition's deletion, as far as it was seen.
    pub fn deletion(&self) -> Option<Deletion> {
        match self {
            Glance::Lone(lone) => lone.deletion,
            Glance::Absent | Glance::More => None,
        }
    }

    /// How many rows it holds.
    pub fn rows(&self) -> u64 {
        match self {
            Glance::Lone(lone) => u64::from(lone.row.is_some()),
            Glance::Absent | Glance::More => 0,
        }
    }
}

impl<R: Reconcile> Glance<R> {
    /// What two sources hold together.
    pub fn merge(self, other: Self) -> Result<Self> {
        match (self, other) {
            (Glance::Absent, glance) | (glance, Glance::Absent) => Ok(glance),
            (Glance::Lone(lone), Glance::Lone(other)) => lone.merge(other),
            (Glance::More, _) | (_, Glance::More) => Ok(Glance::More),
        }
    }
}

impl<R: Reconcile> Lone<R> {
    fn merge(self, other: Self) -> Result<Glance<R>> {
        let row = match (self.row, other.row) {
            (Some((key, _)), Some((other, _))) if key != other => return Ok(Glance::More),
            (Some((key, row)), Some((_, other))) => Some((key, row.merge(other)?)),
            (row, other) => row.or(other),
        };
        let deletion = merge_deletions(self.deletion, other.deletion);
        let static_row = merge_options(self.static_row, other.static_row)?;
        Lone { deletion, static_row, row }.shadowed().map(Glance::Lone)
    }

    /// Without what its deletion covers.
    pub fn shadowed(self) -> Result<Self> {
        let Some(deletion) = self.deletion else { return Ok(self) };
        let static_row = self.static_row.map(|row| row.under(deletion)).transpose()?.flatten();
        let row = match self.row {
            Some((key, row)) => row.under(deletion)?.map(|row| (key, row)),
            None => None,
        };
        Ok(Lone { deletion: self.deletion, static_row, row })
    }

    /// Whether it says no more than that there was something once.
    pub fn says_nothing(&self) -> bool {
        self.deletion.is_none() && self.static_row.is_none() && self.row.is_none()
    }
}
