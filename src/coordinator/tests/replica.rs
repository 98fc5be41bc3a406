//! A replica as `model/query.rs` promises it: it answers what it holds, up to a limit, and says how far it got.

use crate::codec::EncodedRow;
use crate::codec::entry::put_entry;
use crate::model::naive::{Naive, partition_key};
use crate::model::{
    Bound, Direction, Fragment, Mutation, Page, PageEnd, PagePosition, PartitionHeader, PartitionKey, ReadCommand, Row,
    RowPosition, Slice, Target,
};

/// Partitions of the tests have numbers below this.
pub(super) const PARTITIONS: u8 = 5;

/// Everything that one replica was ever told.
#[derive(Debug, Clone, Default)]
pub(super) struct Replica {
    data: Naive,
}

impl Replica {
    pub(super) fn apply(&mut self, mutation: &Mutation) {
        self.data.apply(mutation);
    }

    /// All of it.
    pub(super) fn everything(&self) -> Vec<Fragment<Row>> {
        self.data.scan(&[Slice::all()], Direction::Forward)
    }

    pub(super) fn partition(&self, key: &PartitionKey, slices: &[Slice], direction: Direction) -> Vec<Fragment<Row>> {
        self.data.partition(key, slices, direction)
    }

    /// What an answer that reaches to `end` holds, said without any paging.
    pub(super) fn up_to(&self, command: &ReadCommand, end: &PageEnd) -> Vec<Fragment<Row>> {
        let mut fragments = Vec::new();
        for key in keys(&command.target) {
            let slices = match end {
                PageEnd::At(end) if end.partition < key => break,
                PageEnd::At(end) if end.partition == key && end.row == RowPosition::Header => Vec::new(),
                PageEnd::At(end) if end.partition == key => {
                    between(&command.slices, None, end.row.bound(command.direction), command.direction)
                }
                _ => Slice::joined(&command.slices),
            };
            fragments.extend(self.data.partition(&key, &slices, command.direction));
        }
        fragments
    }

    /// Answers a command.
    pub(super) fn read(&self, command: &ReadCommand) -> Page {
        let mut page = Filling { command, entries: Vec::new(), visible: 0 };
        for key in keys(&command.target) {
            let after = command.after.as_ref().filter(|after| after.partition == key).map(|after| &after.row);
            let is_over = command.after.as_ref().is_some_and(|after| after.partition > key);
            if is_over || after == Some(&RowPosition::End) {
                continue;
            }
            let bound = after.and_then(|row| row.bound(command.direction));
            let slices = between(&command.slices, bound, None, command.direction);
            let fragments = self.data.partition(&key, &slices, command.direction);
            if let Some(row) = page.take(fragments, after) {
                // The last row that one partition was asked for is known to be the last.
                let behind = between(&command.slices, row.bound(command.direction), None, command.direction);
                let is_last = row == RowPosition::End || (row != RowPosition::Header && behind.is_empty());
                return page.finish(match &command.target {
                    Target::Partition(_) if is_last => PageEnd::Complete,
                    _ => PageEnd::At(PagePosition { partition: key, row }),
                });
            }
        }
        page.finish(PageEnd::Complete)
    }
}

/// The partitions of a target, in their order.
pub(super) fn keys(target: &Target) -> Vec<PartitionKey> {
    let mut keys: Vec<_> = (0..PARTITIONS).map(partition_key).collect();
    keys.sort();
    keys.retain(|key| match target {
        Target::Partition(only) => key == only,
        Target::Scan(tokens) => tokens.contains(key.token()),
    });
    keys
}

/// What of `slices` lies behind `after` and before `end`, in the direction of the read.
fn between(slices: &[Slice], after: Option<Bound>, end: Option<Bound>, direction: Direction) -> Vec<Slice> {
    let (low, high) = match direction {
        Direction::Forward => (after, end),
        Direction::Reverse => (end, after),
    };
    let cut = Slice::joined(slices).into_iter().map(|slice| Slice {
        start: low.clone().map_or(slice.start.clone(), |low| low.max(slice.start)),
        end: high.clone().map_or(slice.end.clone(), |high| high.min(slice.end)),
    });
    cut.filter(|slice| !slice.is_empty()).collect()
}

/// A page being filled.
struct Filling<'a> {
    command: &'a ReadCommand,
    entries: Vec<u8>,
    visible: u32,
}

impl Filling<'_> {
    /// Puts a partition; `Some` if a limit ends the page within it. The header of the partition that the page before
    /// ended in comes again, and so does the deletion in force there: neither is progress, and no page ends at them.
    fn take(&mut self, fragments: Vec<Fragment<Row>>, after: Option<&RowPosition>) -> Option<RowPosition> {
        let ReadCommand { direction, now_s, .. } = *self.command;
        let (mut in_force, mut rows, mut static_rows, is_empty) = (false, 0, 0, fragments.is_empty());
        for fragment in fragments {
            let place = place(&fragment);
            let was_in_force = in_force;
            match &fragment {
                Fragment::Partition(header) => {
                    static_rows = u32::from(header.static_row.as_ref().is_some_and(|row| row.is_visible_at(now_s)));
                }
                Fragment::Row(_, row) => rows += u32::from(row.is_visible_at(now_s)),
                Fragment::Change(_, deletion) => in_force = deletion.is_some(),
            }
            let before = self.entries.len();
            put_entry(&mut self.entries, &encoded(fragment));
            if self.is_full(rows) && after.is_none_or(|after| after.compare(&place, direction).is_lt()) {
                if let RowPosition::At(_) = place {
                    self.entries.truncate(before);
                }
                if let Some(bound) = place.bound(direction).filter(|_| was_in_force) {
                    put_entry(&mut self.entries, &Fragment::Change(bound, None));
                }
                return Some(place);
            }
        }
        self.visible += if rows == 0 { static_rows } else { rows };
        (!is_empty && self.is_full(0)).then_some(RowPosition::End)
    }

    fn is_full(&self, rows: u32) -> bool {
        self.visible + rows >= self.command.limit_rows || self.entries.len() >= self.command.limit_bytes as usize
    }

    fn finish(self, end: PageEnd) -> Page {
        Page { entries: self.entries.into(), end }
    }
}

fn place(fragment: &Fragment<Row>) -> RowPosition {
    match fragment {
        Fragment::Partition(_) => RowPosition::Header,
        Fragment::Row(key, _) => RowPosition::After(key.clone()),
        Fragment::Change(bound, _) => RowPosition::At(bound.clone()),
    }
}

/// A fragment as it travels.
pub(super) fn encoded(fragment: Fragment<Row>) -> Fragment<EncodedRow> {
    match fragment {
        Fragment::Partition(PartitionHeader { key, deletion, static_row }) => {
            let static_row = static_row.as_ref().map(EncodedRow::encode);
            Fragment::Partition(PartitionHeader { key, deletion, static_row })
        }
        Fragment::Row(key, row) => Fragment::Row(key, EncodedRow::encode(&row)),
        Fragment::Change(bound, deletion) => Fragment::Change(bound, deletion),
    }
}
