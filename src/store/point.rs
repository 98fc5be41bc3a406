//! Reads of one row of one partition, the most frequent ones: found in each source and encoded, without streams and
//! without a merge. They answer the same bytes as the general path, to which they are left where a source holds more
//! than one row within the slice, or a range deletion.

use super::view::View;
use crate::Result;
use crate::codec::EncodedRow;
use crate::model::{Direction, Glance, Order, PartitionKey, ReadCommand, ReadCost, Slice, Target, Type};
use crate::sstable::{Access, RowHash};

/// The partition and the slice of a read that begins at the slice's start and may find no more than one row, by the form
/// of the slice: from before to after one key. It may be the key's beginning, and then there may be more.
pub(super) fn sought(command: &ReadCommand) -> Option<(&PartitionKey, Slice)> {
    let (Target::Partition(key), None, Direction::Forward) = (&command.target, &command.after, command.direction)
    else {
        return None;
    };
    match command.slices.as_slice() {
        [] => Some((key, Slice::all())),
        [slice] if slice.surrounds_one_prefix() => Some((key, slice.clone())),
        _ => None,
    }
}

/// The most rows that a read looks for in the filters of files one by one.
const ROWS_MAX: usize = 16;

/// The rows that the slices are, by which files may be passed over; none if one of them may hold several.
pub(super) fn rows_sought(key: &PartitionKey, slices: &[Slice], types: &[(Type, Order)]) -> Vec<RowHash> {
    if slices.len() > ROWS_MAX {
        return Vec::new();
    }
    let row = |slice: &Slice| slice.only_row(types).map(|components| RowHash::of(key, components));
    slices.iter().map(row).collect::<Option<_>>().unwrap_or_default()
}

/// What the view holds of the partition within the slice. `row`: the only one that can lie in it, if there is but one.
pub(super) fn glance(
    view: &View,
    key: &PartitionKey,
    slice: &Slice,
    row: Option<RowHash>,
    access: Access,
    cost: &mut ReadCost,
) -> Result<Glance<EncodedRow>> {
    let mut glance = Glance::Absent;
    for memtable in view.memtables() {
        glance = glance.merge(memtable.glance(key, slice))?;
        if matches!(glance, Glance::More) {
            return Ok(glance);
        }
    }
    cost.rows += glance.rows();
    for (at, file) in view.files.iter().enumerate() {
        if let Some(deletion) = glance.deletion()
            && file.sstable.is_older_than(deletion)
        {
            cost.sstables_skipped += (view.files.len() - at) as u64;
            break;
        }
        let found = file.sstable.glance(key, slice, row, &glance, access, cost)?;
        glance = glance.merge(found)?;
        if matches!(glance, Glance::More) {
            break;
        }
    }
    Ok(glance)
}
