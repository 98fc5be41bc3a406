//! Where each vnode stands in a file.
//!
//! ```text
//! directory   vnode bits u8 | count varint | vnode ...    ascending, those without partitions are left out
//! vnode       number varint | start, end of its blocks in the file: u64 each | partitions varint | rows varint
//! ```
//!
//! Files are ordered by token, so a vnode is a run of blocks. Two neighbours may share the block in which one ends and the
//! other begins; it belongs to the runs of both. (Cutting blocks at vnodes would make a thousand tiny blocks of every
//! small file.)

use std::ops::Range;

use bytes::Bytes;

use crate::Result;
use crate::codec::varint::{Reader, put_varint};
use crate::model::{Token, Vnode, VnodeBits};

/// A vnode takes at least this many bytes of the directory.
const VNODE_LEAST_BYTES: usize = 19;

/// What a file holds of one vnode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VnodeSpan {
    /// Which vnode.
    pub vnode: Vnode,
    /// The bytes of the blocks that hold any of it.
    pub blocks: Range<u64>,
    /// Its partitions.
    pub partitions: u64,
    /// Its rows; static rows are not counted.
    pub rows: u64,
}

/// The vnodes of a file, by a number of vnodes fixed when it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VnodeDirectory {
    /// The number of vnodes.
    pub bits: VnodeBits,
    /// Those that have partitions here, ascending.
    pub spans: Vec<VnodeSpan>,
}

/// A directory that is being written.
pub(super) struct VnodeBuilder {
    directory: VnodeDirectory,
    /// Vnodes that the block being built holds something of: all from this position on.
    touched: usize,
}

impl VnodeBuilder {
    /// An empty directory.
    pub(super) fn new(bits: VnodeBits) -> VnodeBuilder {
        VnodeBuilder { directory: VnodeDirectory { bits, spans: Vec::new() }, touched: 0 }
    }

    /// A partition begins in the block that will stand at `block_at`.
    pub(super) fn partition(&mut self, token: Token, block_at: u64) {
        let VnodeDirectory { bits, spans } = &mut self.directory;
        let vnode = bits.vnode(token);
        if spans.last().is_none_or(|span| span.vnode != vnode) {
            spans.push(VnodeSpan { vnode, blocks: block_at..block_at, partitions: 0, rows: 0 });
        }
        spans.iter_mut().last().into_iter().for_each(|span| span.partitions += 1);
        self.touch();
    }

    /// A row of the present partition goes into the block being built.
    pub(super) fn row(&mut self) {
        self.directory.spans.iter_mut().last().into_iter().for_each(|span| span.rows += 1);
        self.touch();
    }

    /// A change of the range deletion of the present partition goes into the block being built.
    pub(super) fn touch(&mut self) {
        self.touched = self.touched.min(self.directory.spans.len().saturating_sub(1));
    }

    /// The block being built was written and ends at `end`.
    pub(super) fn block_written(&mut self, end: u64) {
        for span in &mut self.directory.spans[self.touched..] {
            span.blocks.end = end;
        }
        self.touched = self.directory.spans.len();
    }

    /// The directory of all that was noted.
    pub(super) fn finish(self) -> VnodeDirectory {
        self.directory
    }
}

impl VnodeDirectory {
    /// The section's bytes.
    pub(super) fn encode(self) -> Vec<u8> {
        let VnodeDirectory { bits, spans } = self;
        let mut out = vec![bits.bits()];
        put_varint(&mut out, spans.len() as u64);
        for span in spans {
            put_varint(&mut out, u64::from(span.vnode.0));
            out.extend_from_slice(&span.blocks.start.to_le_bytes());
            out.extend_from_slice(&span.blocks.end.to_le_bytes());
            put_varint(&mut out, span.partitions);
            put_varint(&mut out, span.rows);
        }
        out
    }

    /// Reads a section's bytes.
    pub(super) fn decode(bytes: Bytes) -> Result<VnodeDirectory> {
        let mut reader = Reader::new("vnode directory", bytes);
        let bits = reader.u8()?;
        let bits = VnodeBits::new(bits).ok_or_else(|| reader.corrupt(format!("{bits} bits of vnodes")))?;
        let count = reader.count(VNODE_LEAST_BYTES)?;
        let mut spans: Vec<VnodeSpan> = Vec::with_capacity(count);
        for _ in 0..count {
            let vnode = Vnode(reader.varint_u32()?);
            let blocks = reader.u64()?..reader.u64()?;
            let (partitions, rows) = (reader.varint()?, reader.varint()?);
            if vnode.0 >= bits.count() || spans.last().is_some_and(|before| before.vnode >= vnode) {
                return Err(reader.corrupt("its vnodes do not ascend").into());
            }
            spans.push(VnodeSpan { vnode, blocks, partitions, rows });
        }
        reader.end()?;
        Ok(VnodeDirectory { bits, spans })
    }

    /// What the file holds of `vnode`, if anything.
    pub fn span(&self, vnode: Vnode) -> Option<&VnodeSpan> {
        let at = self.spans.binary_search_by_key(&vnode, |span| span.vnode).ok()?;
        Some(&self.spans[at])
    }
}
