//! A block: the unit that is compressed, checked, read and cached. It decodes without any other.
//!
//! ```text
//! block      prologue | entry (codec/entry.rs) ...          at least one entry; a row is never cut
//! prologue   flags u8 | [key length varint, key | [deletion] | [block varint] | [in force]]
//! flags      01 continued: the block begins within a partition, and what follows is there
//!            02 that partition is deleted   04 it has a static row   08 a range deletion is in force at the beginning
//! deletion, in force   timestamp i64 | ldt varint          block   number of the block that holds the static row
//! ```
//!
//! Entries have no table of offsets in the file: whoever reads a block walks over it once (which also checks that it is
//! whole and in order), and what is cached has the table made by that walk. So a row or partition is found by binary
//! search, and no row but the wanted one is decoded.

use bytes::Bytes;

use super::order::{Disorder, Order};
use crate::codec::EncodedRow;
use crate::codec::entry::{Trust, put_deletion, read_deletion, read_entry, read_header_behind_key, walked_row};
use crate::codec::skim::{Outline, skim_entry};
use crate::codec::varint::{Cursor, Reader, put_bytes, put_varint};
use crate::model::{ClusteringKey, Deletion, Fragment, PartitionKey, Token};
use crate::{Corrupt, Result};

const CONTINUED: u8 = 0x01;
const DELETED: u8 = 0x02;
const STATIC_ROW: u8 = 0x04;
const IN_FORCE: u8 = 0x08;

/// The partition that a block begins within, and how things stand there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Continued {
    pub(super) key: PartitionKey,
    /// The partition's own deletion.
    pub(super) deletion: Option<Deletion>,
    /// The block whose header entry holds the static row, if there is one.
    pub(super) static_row_in: Option<u32>,
    /// The range deletion in force before the first entry.
    pub(super) in_force: Option<Deletion>,
}

/// A block that is being filled.
#[derive(Default)]
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    prologue_len: usize,
}

impl BlockBuilder {
    /// Begins a block; within a partition unless the first entry will be a header.
    pub(super) fn begin(&mut self, continued: Option<&Continued>) {
        self.bytes.clear();
        put_prologue(&mut self.bytes, continued);
        self.prologue_len = self.bytes.len();
    }

    /// Appends an encoded entry.
    pub(super) fn push(&mut self, entry: &[u8]) {
        self.bytes.extend_from_slice(entry);
    }

    /// Bytes of the entries.
    pub(super) fn entries_len(&self) -> usize {
        self.bytes.len() - self.prologue_len
    }

    /// Forgets the block.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.prologue_len = 0;
    }

    /// What [`Block::decode`] reads.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A decoded block.
pub(super) struct Block {
    bytes: Bytes,
    continued: Option<Continued>,
    entries: Box<[Entry]>,
    /// The headers in it: tokens, and which entries they are.
    partitions: Box<[(Token, u32)]>,
    /// The changes of range deletions in it, by entry.
    changes: Box<[(u32, Option<Deletion>)]>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    end: u32,
    key_at: u32,
    key_end: u32,
}

/// The entries that a block holds of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// The entry that is its header, if that is in this block.
    pub(super) header: Option<u32>,
    /// Its first row or change.
    pub(super) start: u32,
    /// Behind its last one.
    pub(super) end: u32,
}

impl Block {
    /// Takes the bytes of a block apart, checking that the entries are whole and in order.
    pub(super) fn decode(bytes: Bytes) -> Result<Block> {
        let mut reader = Reader::new("SSTable block", bytes.clone());
        let continued = read_prologue(&mut reader)?;
        let entries_at = reader.offset();
        let mut walk = Walk {
            order: match &continued {
                Some(at) => Order::within(at.key.token(), at.key.bytes(), at.in_force),
                None => Order::new(),
            },
            entries: Vec::new(),
            partitions: Vec::new(),
            changes: Vec::new(),
        };
        walk.entries(&bytes, entries_at)?;
        if continued.is_some() && walk.partitions.first().is_some_and(|(_, header)| *header == 0) {
            return Err(reader.corrupt("it continues a partition of which nothing follows").into());
        }
        let Walk { entries, partitions, changes, .. } = walk;
        let (entries, partitions, changes) = (entries.into(), partitions.into(), changes.into());
        Ok(Block { bytes, continued, entries, partitions, changes })
    }

    /// Bytes of memory it takes.
    pub(super) fn weight_bytes(&self) -> u64 {
        let tables = size_of_val(&*self.entries) + size_of_val(&*self.partitions) + size_of_val(&*self.changes);
        (size_of::<Block>() + self.bytes.len() + tables) as u64
    }

    /// The partition it begins within.
    pub(super) fn continued(&self) -> Option<&Continued> {
        self.continued.as_ref()
    }

    /// How many entries it has.
    pub(super) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The bytes that an entry is ordered by within its partition; of a header, the partition key.
    pub(super) fn key(&self, entry: u32) -> &[u8] {
        let Entry { key_at, key_end, .. } = self.entries[entry as usize];
        &self.bytes[key_at as usize..key_end as usize]
    }

    /// The same, and its first eight bytes as a number, with zeros for those that it lacks: of two keys with different
    /// numbers the one with the smaller number comes first.
    pub(super) fn key_and_head(&self, entry: u32) -> (&[u8], u64) {
        let key = self.key(entry);
        let head = match (self.bytes.get(self.entries[entry as usize].key_at as usize..), key.len()) {
            (_, 0) => 0,
            // What stands behind a shorter key is shifted out.
            (Some([a, b, c, d, e, f, g, h, ..]), len) => {
                let missing_bits = 64 - 8 * len.min(8) as u32;
                u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]) >> missing_bits << missing_bits
            }
            _ => key.iter().chain(std::iter::repeat(&0)).take(8).fold(0, |head, byte| (head << 8) | u64::from(*byte)),
        };
        (key, head)
    }

    /// The bytes of an entry, and those of them behind its key.
    pub(super) fn entry(&self, entry: u32) -> (&[u8], &[u8]) {
        let (at, end) = self.extent(entry);
        let key_end = self.entries[entry as usize].key_end as usize;
        (&self.bytes[at..end], &self.bytes[key_end..end])
    }

    /// How many bytes the entries from one up to another take.
    pub(super) fn bytes_between(&self, from: u32, to: u32) -> usize {
        match to > from {
            true => self.extent(to - 1).1 - self.extent(from).0,
            false => 0,
        }
    }

    /// Decodes an entry that is a row.
    pub(super) fn row(&self, entry: u32) -> Result<(ClusteringKey, EncodedRow)> {
        match self.fragment(entry)? {
            Fragment::Row(key, row) => Ok((key, row)),
            _ => Err(Corrupt::new("SSTable block", "there is something else in the place of a row").into()),
        }
    }

    /// Whether range deletions begin or end among these entries.
    pub(super) fn has_changes(&self, span: Span) -> bool {
        let before = self.changes.partition_point(|(at, _)| *at < span.start);
        self.changes.get(before).is_some_and(|(at, _)| *at < span.end)
    }

    /// Decodes an entry.
    pub(super) fn fragment(&self, entry: u32) -> Result<Fragment<EncodedRow>> {
        let (at, end) = self.extent(entry);
        let Entry { key_at, key_end, .. } = self.entries[entry as usize];
        if let Some((key, row)) = walked_row(&self.bytes, at, key_at as usize..key_end as usize, end)? {
            return Ok(Fragment::Row(key, row));
        }
        read_entry(&mut Reader::new("SSTable block entry", self.bytes.slice(at..end)), Trust::Trusted)
    }

    /// Deletion and static row of the partition whose header an entry is.
    pub(super) fn header(&self, entry: u32) -> Result<(Option<Deletion>, Option<EncodedRow>)> {
        let Entry { end, key_end, .. } = self.entries[entry as usize];
        let behind_key = self.bytes.slice(key_end as usize..end as usize);
        read_header_behind_key(&mut Reader::new("SSTable block entry", behind_key), Trust::Trusted)
    }

    #[inline]
    fn extent(&self, entry: u32) -> (usize, usize) {
        let Entry { end, key_at, key_end } = self.entries[entry as usize];
        // Before the key stand its kind, one byte, and its length.
        let length_bytes = varint_len(key_end - key_at);
        ((key_at - length_bytes - 1) as usize, end as usize)
    }

    /// What it holds of a partition.
    pub(super) fn span(&self, key: &PartitionKey) -> Option<Span> {
        if let Some(continued) = &self.continued
            && continued.key == *key
        {
            let end = self.partitions.first().map_or(self.len(), |(_, header)| *header);
            return Some(Span { header: None, start: 0, end });
        }
        let at = self.partitions_up_to(key.token(), Some(key.bytes())).checked_sub(1)?;
        let (token, header) = self.partitions[at];
        if (token, self.key(header)) != (key.token(), key.bytes()) {
            return None;
        }
        Some(self.span_of_header(at))
    }

    fn span_of_header(&self, at: usize) -> Span {
        let (_, header) = self.partitions[at];
        let end = self.partitions.get(at + 1).map_or(self.len(), |(_, next)| *next);
        Span { header: Some(header), start: header + 1, end }
    }

    /// The first partition that begins in this block behind the given place: behind all partitions of `token` if `key` is
    /// absent.
    pub(super) fn first_header_behind(&self, token: Token, key: Option<&[u8]>) -> Option<u32> {
        self.partitions.get(self.partitions_up_to(token, key)).map(|(_, header)| *header)
    }

    /// The first partition that begins in this block at this entry or behind it.
    pub(super) fn first_header_from(&self, entry: u32) -> Option<u32> {
        self.partitions.get(self.partitions.partition_point(|(_, header)| *header < entry)).map(|(_, header)| *header)
    }

    fn partitions_up_to(&self, token: Token, key: Option<&[u8]>) -> usize {
        self.partitions.partition_point(|(other, header)| {
            *other < token || (*other == token && key.is_none_or(|key| self.key(*header) <= key))
        })
    }

    /// The first entry of `span` for which `before` does not hold; it must hold for a leading run only.
    pub(super) fn seek(&self, span: Span, before: impl Fn(&[u8]) -> bool) -> u32 {
        let (mut low, mut high) = (span.start, span.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.key(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The range deletion in force just before an entry of `span`, in ascending order; or behind its last entry.
    pub(super) fn in_force_before(&self, entry: u32, span: Span) -> Option<Deletion> {
        let earlier = self.changes.partition_point(|(at, _)| *at < entry);
        match earlier.checked_sub(1).map(|last| self.changes[last]) {
            Some((at, deletion)) if at >= span.start => deletion,
            _ if span.header.is_some() => None,
            _ => self.continued.as_ref().and_then(|continued| continued.in_force),
        }
    }
}

/// Goes over a block's entries once.
struct Walk<'a> {
    order: Order<&'a [u8]>,
    entries: Vec<Entry>,
    partitions: Vec<(Token, u32)>,
    changes: Vec<(u32, Option<Deletion>)>,
}

impl<'a> Walk<'a> {
    fn entries(&mut self, bytes: &'a [u8], entries_at: usize) -> Result<()> {
        let mut cursor = Cursor::new("SSTable block", bytes);
        cursor.take(entries_at)?;
        while cursor.remaining() > 0 {
            let at = cursor.offset();
            let (outline, key) = skim_entry(&mut cursor)?;
            self.order(outline, key).map_err(|reason| cursor.corrupt(reason))?;
            let key_at = at as u32 + 1 + varint_len(key.len() as u32);
            self.entries.push(Entry { end: cursor.offset() as u32, key_at, key_end: key_at + key.len() as u32 });
        }
        if self.entries.is_empty() {
            return Err(Corrupt::new("SSTable block", "it has no entries").into());
        }
        Ok(())
    }

    fn order(&mut self, outline: Outline, key: &'a [u8]) -> Result<(), Disorder> {
        let entry = self.entries.len() as u32;
        match outline {
            Outline::Header => {
                let token = Token::of(key);
                self.partitions.push((token, entry));
                self.order.partition(token, key)
            }
            Outline::Row => self.order.row(key),
            Outline::Change(deletion) => {
                self.changes.push((entry, deletion));
                self.order.change(key, deletion)
            }
        }
    }
}

fn varint_len(value: u32) -> u32 {
    (32 - (value | 1).leading_zeros()).div_ceil(7)
}

fn put_prologue(out: &mut Vec<u8>, continued: Option<&Continued>) {
    let Some(Continued { key, deletion, static_row_in, in_force }) = continued else {
        out.push(0);
        return;
    };
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.push(
        CONTINUED
            | flag(deletion.is_some(), DELETED)
            | flag(static_row_in.is_some(), STATIC_ROW)
            | flag(in_force.is_some(), IN_FORCE),
    );
    put_bytes(out, key.bytes());
    deletion.iter().for_each(|deletion| put_deletion(out, *deletion));
    static_row_in.iter().for_each(|block| put_varint(out, u64::from(*block)));
    in_force.iter().for_each(|deletion| put_deletion(out, *deletion));
}

fn read_prologue(reader: &mut Reader) -> Result<Option<Continued>> {
    let flags = reader.u8()?;
    let known = CONTINUED | DELETED | STATIC_ROW | IN_FORCE;
    if flags & !known != 0 || (flags != 0 && flags & CONTINUED == 0) {
        return Err(reader.corrupt(format!("unknown flags {flags:02x}")).into());
    }
    if flags == 0 {
        return Ok(None);
    }
    let key = PartitionKey::from_bytes(reader.bytes()?);
    let deletion = if flags & DELETED != 0 { Some(read_deletion(reader)?) } else { None };
    let static_row_in = if flags & STATIC_ROW != 0 { Some(reader.varint_u32()?) } else { None };
    let in_force = if flags & IN_FORCE != 0 { Some(read_deletion(reader)?) } else { None };
    Ok(Some(Continued { key, deletion, static_row_in, in_force }))
}
