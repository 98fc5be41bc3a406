//! Hints: the log against power loss, damage and failing disks; the delivery as plain decisions; where hints go.
#![allow(clippy::unwrap_used, reason = "tests")]

mod delivery;
mod log;
mod route;

use bytes::Bytes;

use super::Hint;
use crate::model::{KeyspaceId, Vnode};

/// The hint of this number, whose record has about `size` bytes.
fn hint(number: u64, size: usize, written_at_us: i64) -> Hint {
    let mut record = number.to_be_bytes().to_vec();
    record.resize(size.max(8), 0xa5);
    let vnode = Vnode((number % 16) as u32);
    Hint { written_at_us, keyspace: KeyspaceId(1), vnode, record: Bytes::from(record) }
}

fn number_of(hint: &Hint) -> u64 {
    u64::from_be_bytes(*hint.record.first_chunk().unwrap())
}
