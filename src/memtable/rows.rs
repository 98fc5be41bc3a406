//! The rows of one partition, sorted by key: one in place, a vector of places while they are some hundred, leaves once they
//! are more.
//!
//! ```text
//! One    place
//! Few    places, ascending by the keys in the arena
//! Many   leaves, none of them empty; every key of a leaf is below every key of the next one
//! ```
//!
//! Most partitions have one row or a handful. A single row is found without another miss of the processor's caches, and
//! stored without an allocation. A tree of nodes that point to nodes would keep keys or handles to them; here eight bytes
//! stay of a row, so that a vector of many is moved as fast as a node is walked.

use std::iter::{Chain, Flatten};
use std::ops::Range;
use std::slice;

use super::arena::{Arena, Place};
use crate::Result;
use crate::codec::row::{self, Merged, Touch};
use crate::model::{Deletion, Direction, Slice};

/// The most rows of a leaf: inserting in its midst moves eight bytes for each, a kilobyte on average.
const LEAF_ROWS: usize = 256;

#[derive(Debug)]
pub(super) enum Rows {
    One(Place),
    Few(Vec<Place>),
    #[expect(clippy::box_collection, reason = "partitions are many, those with so many rows few: the slot stays small")]
    Many(Box<Vec<Vec<Place>>>),
}

impl Default for Rows {
    fn default() -> Self {
        Rows::Few(Vec::new())
    }
}

impl Rows {
    /// Merges a row into what stands at `key`, a clustering key. Both are copied into the arena.
    pub(super) fn put(&mut self, key: &[u8], row: &[u8], arena: &mut Arena) -> Result<()> {
        let (leaf, found) = match self {
            Rows::One(held) => (0, search(slice::from_ref(held), key, arena)),
            Rows::Few(rows) => (0, search(rows, key, arena)),
            Rows::Many(leaves) => {
                let leaf = leaf_of(leaves, key, arena);
                (leaf, search(&leaves[leaf], key, arena))
            }
        };
        match found {
            Ok(at) => {
                let held = self.place_mut(leaf, at);
                match row::merged(arena.row_bytes(*held), row)? {
                    Merged::Held => {}
                    Merged::Other => *held = arena.put_row(key, row),
                    Merged::Both(both) => *held = arena.put_row(key, both.bytes()),
                }
            }
            Err(at) => {
                let place = arena.put_row(key, row);
                self.insert(leaf, at, place, arena);
            }
        }
        Ok(())
    }

    fn place_mut(&mut self, leaf: usize, at: usize) -> &mut Place {
        match self {
            Rows::One(held) => held,
            Rows::Few(rows) => &mut rows[at],
            Rows::Many(leaves) => &mut leaves[leaf][at],
        }
    }

    /// Inserts a row whose key is not there yet where it belongs.
    fn insert(&mut self, leaf: usize, at: usize, place: Place, arena: &mut Arena) {
        match self {
            Rows::Few(rows) if rows.is_empty() => *self = Rows::One(place),
            Rows::One(held) => {
                let mut rows = Vec::with_capacity(2);
                rows.push(*held);
                rows.insert(at, place);
                arena.account(rows.capacity() * size_of::<Place>());
                *self = Rows::Few(rows);
            }
            Rows::Few(rows) if rows.len() < LEAF_ROWS => insert_into(rows, at, place, arena),
            Rows::Few(rows) => {
                let mut leaves = vec![std::mem::take(rows)];
                insert_into_leaves(&mut leaves, leaf, at, place, arena);
                *self = Rows::Many(Box::new(leaves));
            }
            Rows::Many(leaves) => insert_into_leaves(leaves, leaf, at, place, arena),
        }
    }

    /// Drops what `deletion` covers in the rows within `slice`.
    pub(super) fn shadow(&mut self, slice: &Slice, deletion: Deletion, arena: &mut Arena) -> Result<()> {
        if slice.start >= slice.end {
            return Ok(());
        }
        match self {
            Rows::One(held) if within(slice::from_ref(held), slice, arena).is_empty() => {}
            Rows::One(held) => match left_of(*held, deletion, arena)? {
                Some(left) => *held = left,
                None => *self = Rows::default(),
            },
            Rows::Few(rows) => shadow_leaf(rows, slice, deletion, arena)?,
            Rows::Many(leaves) => {
                let first = leaf_of(leaves, slice.start.bytes(), arena);
                let last = leaf_of(leaves, slice.end.bytes(), arena);
                let shadowed =
                    leaves[first..=last].iter_mut().try_for_each(|leaf| shadow_leaf(leaf, slice, deletion, arena));
                leaves.retain(|leaf| !leaf.is_empty());
                if leaves.is_empty() {
                    *self = Rows::default();
                }
                shadowed?;
            }
        }
        Ok(())
    }

    /// The rows within `slice`, in `direction`.
    pub(super) fn within<'a>(&'a self, slice: &Slice, direction: Direction, arena: &Arena) -> RowsWithin<'a> {
        let (first, leaves, last): (&[Place], &[Vec<Place>], &[Place]) = match self {
            _ if slice.start >= slice.end => (&[], &[], &[]),
            Rows::One(held) => {
                let one = slice::from_ref(held);
                (&one[within(one, slice, arena)], &[], &[])
            }
            Rows::Few(rows) => (&rows[within(rows, slice, arena)], &[], &[]),
            Rows::Many(leaves) => {
                let first = leaf_of(leaves, slice.start.bytes(), arena);
                let last = leaf_of(leaves, slice.end.bytes(), arena);
                let from = within(&leaves[first], slice, arena);
                match last - first {
                    0 => (&leaves[first][from], &[], &[]),
                    _ => {
                        let to = within(&leaves[last], slice, arena);
                        (&leaves[first][from], &leaves[first + 1..last], &leaves[last][to])
                    }
                }
            }
        };
        RowsWithin { places: first.iter().chain(leaves.iter().flatten()).chain(last), direction }
    }
}

/// Where a key is in some rows, or would be.
fn search(rows: &[Place], key: &[u8], arena: &Arena) -> Result<usize, usize> {
    rows.binary_search_by(|held| arena.key(*held).cmp(key))
}

/// The leaf in which a key or a bound belongs: the last one that begins below it, or the first.
fn leaf_of(leaves: &[Vec<Place>], key: &[u8], arena: &Arena) -> usize {
    let behind = leaves.partition_point(|leaf| leaf.first().is_some_and(|first| arena.key(*first) <= key));
    behind.saturating_sub(1)
}

/// A bound never equals a key, so it does not matter on which side it counts.
fn within(rows: &[Place], slice: &Slice, arena: &Arena) -> Range<usize> {
    let below = |bound: &[u8]| rows.partition_point(|held| arena.key(*held) < bound);
    below(slice.start.bytes())..below(slice.end.bytes())
}

fn insert_into(rows: &mut Vec<Place>, at: usize, place: Place, arena: &mut Arena) {
    let before = rows.capacity();
    rows.insert(at, place);
    arena.account((rows.capacity() - before) * size_of::<Place>());
}

fn insert_into_leaves(leaves: &mut Vec<Vec<Place>>, leaf: usize, at: usize, place: Place, arena: &mut Arena) {
    if leaves[leaf].len() < LEAF_ROWS {
        return insert_into(&mut leaves[leaf], at, place, arena);
    }
    arena.account(size_of::<Vec<Place>>() * 2);
    let is_behind_all = at == LEAF_ROWS && leaf + 1 == leaves.len();
    // Keys that come in ascending order leave full leaves behind.
    let cut = if is_behind_all { LEAF_ROWS } else { LEAF_ROWS / 2 };
    let mut upper = Vec::with_capacity(LEAF_ROWS);
    arena.account(LEAF_ROWS * size_of::<Place>());
    upper.extend(leaves[leaf].drain(cut..));
    if at < cut || (at == cut && !is_behind_all) {
        leaves[leaf].insert(at, place);
    } else {
        upper.insert(at - cut, place);
    }
    leaves.insert(leaf + 1, upper);
}

fn shadow_leaf(rows: &mut Vec<Place>, slice: &Slice, deletion: Deletion, arena: &mut Arena) -> Result<()> {
    let within = within(rows, slice, arena);
    let left = rows[within.clone()].iter().filter_map(|held| left_of(*held, deletion, arena).transpose());
    let left = left.collect::<Result<Vec<Place>>>()?;
    rows.splice(within, left);
    Ok(())
}

/// What a deletion leaves of a row.
fn left_of(held: Place, deletion: Deletion, arena: &mut Arena) -> Result<Option<Place>> {
    Ok(match row::touched(arena.row_bytes(held), deletion)? {
        Touch::Not => Some(held),
        Touch::Wholly => None,
        Touch::Partly(left) => {
            let key = arena.row(held).0;
            Some(arena.put_row(key.bytes(), left.bytes()))
        }
    })
}

/// See [`Rows::within`].
pub(super) struct RowsWithin<'a> {
    places: Places<'a>,
    direction: Direction,
}

/// The end of a leaf, whole ones, the beginning of one.
type Places<'a> = Chain<Chain<slice::Iter<'a, Place>, Flatten<slice::Iter<'a, Vec<Place>>>>, slice::Iter<'a, Place>>;

impl Iterator for RowsWithin<'_> {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        match self.direction {
            Direction::Forward => self.places.next(),
            Direction::Reverse => self.places.next_back(),
        }
        .copied()
    }
}
