//! Page positions as bytes: where a page ended, in the paging state that a client hands back.
//!
//! ```text
//! position   key bytes | 0 header  ·  1 after, clustering bytes  ·  2 at, bound bytes  ·  3 end
//! ```
//!
//! `bytes` stands for a varint length and that many bytes.

use super::varint::{Reader, put_bytes};
use crate::Result;
use crate::model::{Bound, ClusteringKey, PagePosition, PartitionKey, RowPosition};

/// Appends a position.
pub fn put_position(out: &mut Vec<u8>, position: &PagePosition) {
    put_bytes(out, position.partition.bytes());
    match &position.row {
        RowPosition::Header => out.push(0),
        RowPosition::After(key) => {
            out.push(1);
            put_bytes(out, key.bytes());
        }
        RowPosition::At(bound) => {
            out.push(2);
            put_bytes(out, bound.bytes());
        }
        RowPosition::End => out.push(3),
    }
}

/// Reads what [`put_position`] wrote.
pub fn read_position(reader: &mut Reader) -> Result<PagePosition> {
    let partition = PartitionKey::from_bytes(reader.bytes()?);
    let row = match reader.u8()? {
        0 => RowPosition::Header,
        1 => RowPosition::After(ClusteringKey::from_bytes(reader.bytes()?)?),
        2 => RowPosition::At(Bound::from_bytes(reader.bytes()?)?),
        3 => RowPosition::End,
        other => return Err(reader.corrupt(format!("{other} is no kind of position")).into()),
    };
    Ok(PagePosition { partition, row })
}
