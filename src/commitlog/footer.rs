//! What a segment holds, as its footer tells: which names, and between which stamps.

use bytes::Bytes;

use super::kept::Everywhere;
use super::segment::FOOTER;
use crate::Result;
use crate::codec::CheckedRecord;
use crate::codec::varint::{Reader, put_varint};
use crate::model::{KeyspaceId, Stamp, Vnode, VnodeBits};
use crate::received::gathered::Gathered;
use crate::received::{ReceivedSet, ReceivedSets};

/// The contents of a segment so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// Named and nameless ones.
    records: u64,
    /// The lowest and the highest, if there is any record.
    stamps: Option<(Stamp, Stamp)>,
    /// By keyspace and vnode.
    names: Gathered,
}

impl Contents {
    /// Counts a record in.
    pub(super) fn add(&mut self, record: &CheckedRecord, vnode_bits: VnodeBits) {
        let stamp = record.stamp();
        let (lowest, highest) = self.stamps.unwrap_or((stamp, stamp));
        self.records += 1;
        self.stamps = Some((lowest.min(stamp), highest.max(stamp)));
        if let Some((slice, name)) = record.name(vnode_bits) {
            self.names.add(slice, name);
        }
    }

    /// Whether any of the names may be stamped behind what is everywhere; a slice that `everywhere` does not have is
    /// nobody else's.
    pub(super) fn may_be_lacked(&self, everywhere: &Everywhere) -> bool {
        let Some((_, highest)) = self.stamps else { return false };
        let through = |slice: &(KeyspaceId, Vnode)| everywhere.get(slice).is_some_and(|through| *through < highest);
        self.names.slices().any(through)
    }

    /// Whether it holds one of these names.
    pub(super) fn has_any(&self, wanted: &ReceivedSets) -> bool {
        let has = |(slice, set): (&(KeyspaceId, Vnode), &ReceivedSet)| self.names.meets(*slice, set);
        wanted.iter().any(has)
    }

    /// The payload of the footer.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FOOTER];
        put_varint(&mut out, self.records);
        if let Some((lowest, highest)) = self.stamps {
            out.extend_from_slice(&lowest.0.to_le_bytes());
            out.extend_from_slice(&highest.0.to_le_bytes());
        }
        let names = self.names.in_order();
        put_varint(&mut out, names.len() as u64);
        for ((keyspace, vnode), set) in names {
            out.extend_from_slice(&keyspace.0.to_le_bytes());
            put_varint(&mut out, u64::from(vnode.0));
            set.encode(&mut out);
        }
        out
    }

    /// Reads what [`Contents::encode`] wrote.
    pub(super) fn decode(payload: &Bytes) -> Result<Contents> {
        let mut reader = Reader::new("log segment footer", payload.slice(1..));
        let mut contents = Contents { records: reader.varint()?, ..Contents::default() };
        if contents.records > 0 {
            let (lowest, highest) = (Stamp(reader.i64()?), Stamp(reader.i64()?));
            if lowest > highest {
                return Err(reader.corrupt("the lowest stamp is above the highest").into());
            }
            contents.stamps = Some((lowest, highest));
        }
        let mut before = None;
        for _ in 0..reader.varint()? {
            let slice = (KeyspaceId(reader.u32()?), Vnode(reader.varint_u32()?));
            let set = ReceivedSet::decode(&mut reader)?;
            if before >= Some(slice) || set.is_empty() {
                return Err(reader.corrupt("its sets do not ascend, or one is empty").into());
            }
            before = Some(slice);
            contents.names.add_all(slice, set);
        }
        reader.end()?;
        Ok(contents)
    }
}
