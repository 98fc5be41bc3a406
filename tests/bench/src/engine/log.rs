//! The commit log.

use std::path::Path;
use std::sync::Arc;

use trefoil::codec::CheckedRecord;
use trefoil::commitlog::{CommitLog, LogOptions, Position};
use trefoil::model::{Identity, NodeId, VnodeBits};
use trefoil::vfs::disk::DiskVfs;
use uuid::Uuid;

use super::Durable;
use crate::Result;

/// The default of nodes.
const SEGMENT_BYTES: u64 = 64 << 20;

/// Whose data it is, in every directory here.
pub fn identity() -> Identity {
    Identity { cluster: Uuid::from_u128(1), node: NodeId(1), vnode_bits: VnodeBits::DEFAULT }
}

/// A new log in a directory, with a spare segment made ahead of time as a node does.
pub fn open(directory: &Path) -> Result<CommitLog> {
    let vfs = Arc::new(DiskVfs);
    let options = LogOptions {
        directory: directory.to_owned(),
        segment_bytes: SEGMENT_BYTES,
        owner: identity(),
        kept_bytes_max: 0,
    };
    let log = CommitLog::open(vfs, options, Position::default(), &mut |_| Ok(()))?;
    log.spares().prepare()?;
    Ok(log)
}

/// Appends all records in groups; how many.
pub fn append(log: &mut CommitLog, records: &[CheckedRecord], group: usize, durable: Durable) -> Result<u64> {
    let mut ends = Vec::new();
    for group in records.chunks(group) {
        ends.clear();
        log.append(group, &mut ends)?;
        if durable == Durable::Synced {
            log.sync()?;
        }
    }
    Ok(records.len() as u64)
}
