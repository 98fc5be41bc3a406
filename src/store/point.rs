//! Reads of one row of one partition, the most frequent ones: found in each source and encoded, without streams and
//! without a merge. They answer the same bytes as the general path, to which they are left where a source holds more
//! than one row within the slice, or a range deletion.

use super::view::View;
use crate::Result;
use crate::codec::EncodedRow;
use crate::model::{Direction, Glance, PartitionKey, ReadCommand, ReadCost, Slice, Target};
use crate::sstable::Access;

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

/// What the view holds of the partition within the slice.
pub(super) fn glance(
    view: &View,
    key: &PartitionKey,
    slice: &Slice,
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
        glance = glance.merge(file.sstable.glance(key, slice, access, cost)?)?;
        if matches!(glance, Glance::More) {
            break;
        }
    }
    Ok(glance)
}
