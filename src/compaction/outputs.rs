//! One stream into several files, cut between vnodes.
//!
//! ```text
//! vnodes      0 1 2 3 | 4 5 6 7 | 8 9 ...      shards: runs of 2^k vnodes, aligned, so that shards of any two sizes are
//! files       ──────── ── ────── ──────        either disjoint or one within the other; a shard that is much larger
//!                                               than the rest is cut within, where it has more than one vnode
//! ```
//!
//! **Invariant:** a partition is never split (B049 in `docs/testing.md`): cuts lie between partitions, where no range
//! deletion is in force.

use std::ops::Range;

use crate::Result;
use crate::codec::EncodedRow;
use crate::model::{Fragment, Stream, Vnode, VnodeBits};
use crate::sstable::{Builder, SstableMeta};

/// Within a shard a file is cut once it is this many times the target.
const OVERSIZE: u64 = 2;

/// Where files end.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    bits: VnodeBits,
    /// Vnodes of a shard, as a power of two.
    shard_bits: u8,
    target_bytes: u64,
}

impl Cut {
    /// Cuts for data that, spread over the whole ring at the density it has, would take `density` bytes.
    pub fn new(bits: VnodeBits, density: f64, target_bytes: u64) -> Cut {
        let mut shards = 0;
        // A file may be half as large again before twice as many are made.
        while shards < bits.bits() && density / f64::from(1u32 << shards) > target_bytes as f64 * 1.5 {
            shards += 1;
        }
        Cut { bits, shard_bits: bits.bits() - shards, target_bytes }
    }

    /// The vnodes that a file which begins with `first` can reach.
    pub fn shard(&self, first: Vnode) -> Range<u32> {
        let begin = first.0 >> self.shard_bits << self.shard_bits;
        first.0..begin + (1 << self.shard_bits)
    }

    /// Whether a file of so many bytes, whose last partition is in vnode `last`, ends before `vnode`.
    fn ends_before(&self, vnode: Vnode, last: Vnode, bytes: u64) -> bool {
        (vnode.0 >> self.shard_bits) != (last.0 >> self.shard_bits)
            || (vnode != last && bytes >= self.target_bytes.saturating_mul(OVERSIZE))
    }
}

/// Writes `stream` into files that `begin` begins, and answers them. Files that were begun are the caller's to remove
/// after an error.
pub fn write(
    stream: &mut impl Stream<EncodedRow>,
    cut: Cut,
    begin: &mut dyn FnMut(Vnode) -> Result<Builder>,
) -> Result<Vec<SstableMeta>> {
    let mut finished = Vec::new();
    let mut present: Option<(Builder, Vnode)> = None;
    while let Some(fragment) = stream.next()? {
        if let Fragment::Partition(header) = &fragment {
            let vnode = cut.bits.vnode(header.key.token());
            present = Some(match present.take() {
                Some((builder, last)) if !cut.ends_before(vnode, last, builder.bytes()) => (builder, vnode),
                before => {
                    if let Some((builder, _)) = before {
                        finished.push(builder.finish()?);
                    }
                    (begin(vnode)?, vnode)
                }
            });
        }
        if let Some((builder, _)) = &mut present {
            builder.add(&fragment)?;
        }
    }
    if let Some((builder, _)) = present {
        finished.push(builder.finish()?);
    }
    Ok(finished)
}
