//! A plain log: length, checksum, bytes, and one write for each group.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use trefoil::codec::CheckedRecord;

use crate::Result;
use crate::engine::Durable;

/// Writes all records to a new file in groups; how many.
pub fn append(directory: &Path, records: &[CheckedRecord], group: usize, durable: Durable) -> Result<u64> {
    let mut file = File::create(directory.join("plain.log"))?;
    let mut buffer = Vec::new();
    for group in records.chunks(group) {
        buffer.clear();
        for record in group.iter().map(CheckedRecord::bytes) {
            buffer.extend_from_slice(&(record.len() as u32).to_le_bytes());
            buffer.extend_from_slice(&crc32fast::hash(record).to_le_bytes());
            buffer.extend_from_slice(record);
        }
        file.write_all(&buffer)?;
        if durable == Durable::Synced {
            file.sync_data()?;
        }
    }
    Ok(records.len() as u64)
}
