//! The memtable.

use std::sync::Arc;

use trefoil::codec::CheckedRecord;
use trefoil::memtable::Memtable;
use trefoil::model::{ClusteringKey, Direction, Fragment, PartitionKey, Slice};

use crate::Result;

/// Inserts all mutations; how many.
pub fn insert(memtable: &Memtable, records: &[CheckedRecord]) -> Result<u64> {
    for record in records {
        memtable.insert(record.token(), &record.mutation()?)?;
    }
    Ok(records.len() as u64)
}

/// Reads one row for each key; how many were found.
pub fn get(memtable: &Arc<Memtable>, keys: &[(PartitionKey, ClusteringKey)]) -> Result<u64> {
    let mut found = 0;
    for (partition, row) in keys {
        let Some(mut fragments) = memtable.partition(partition, &[Slice::one(row)], Direction::Forward)? else {
            continue;
        };
        while let Some(fragment) = fragments.next()? {
            found += u64::from(matches!(fragment, Fragment::Row(..)));
        }
    }
    Ok(found)
}
