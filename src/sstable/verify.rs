//! Reads a file whole and believes nothing.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::READ_AHEAD_BYTES;
use super::block::Block;
use super::blocks::Blocks;
use super::filter::Known;
use super::format::HEADER_BYTES;
use super::order::Order;
use super::reader::Sstable;
use super::stats::Stats;
use super::vnodes::VnodeBuilder;
use crate::Result;
use crate::codec::EncodedRow;
use crate::model::{Fragment, Stream};

impl Sstable {
    /// As [`Sstable::verify_unlisted`], which can name the place of a fault, and compares every byte with `hash`.
    pub fn verify(self: &Arc<Self>, hash: &[u8; 32]) -> Result<()> {
        self.verify_unlisted()?;
        self.verify_hash(hash, |_| Ok(()))
    }

    /// Verifies a file of which no hash is recorded: compares every byte with its checksum and checks that the blocks
    /// follow each other as the index says, that all fragments are in order and their rows well-formed, that the filter
    /// admits every partition and row and that the statistics and the vnode directory are true.
    pub fn verify_unlisted(self: &Arc<Self>) -> Result<()> {
        self.verify_index()?;
        self.verify_contents()
    }

    /// Compares every byte with `hash`, the one recorded when the file was written. `go_on` is told of each piece that was
    /// read, in bytes; its error ends it.
    pub fn verify_hash(&self, hash: &[u8; 32], mut go_on: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let mut hasher = Sha256::new();
        let piece = |at: u64| usize::try_from(self.bytes - at).unwrap_or(usize::MAX).min(READ_AHEAD_BYTES);
        // One buffer for the whole file, as in `Blocks::ahead`.
        let (mut buffer, mut at) = (vec![0; piece(0)], 0);
        while at < self.bytes {
            let len = piece(at);
            self.file.read_at(&mut buffer[..len], at)?;
            hasher.update(&buffer[..len]);
            at += len as u64;
            go_on(len as u64)?;
        }
        if hasher.finalize()[..] != hash[..] {
            return Err(self.corrupt("its SHA-256 is not the one recorded when it was written"));
        }
        Ok(())
    }

    fn verify_index(self: &Arc<Self>) -> Result<()> {
        let mut blocks = Blocks::ahead(self, Arc::default());
        let mut vnodes = VnodeBuilder::new(self.vnodes.bits);
        let mut end = HEADER_BYTES as u64;
        for number in 0..self.index.count() {
            let entry = self.index.entry(number)?;
            let block = blocks.get(number)?;
            let begins = match block.continued() {
                Some(continued) => entry.key == continued.key.bytes() && entry.place == block.key(0),
                None => entry.key == block.key(0) && entry.place.is_empty(),
            };
            if entry.offset != end || !begins {
                return Err(self.corrupt(format!("block {number} is not what the index says")));
            }
            note_vnodes(&mut vnodes, &block, end).map_err(|error| self.placed(error, entry.offset))?;
            end += u64::from(entry.len);
            vnodes.block_written(end);
        }
        if vnodes.finish() != self.vnodes {
            return Err(self.corrupt("its vnode directory is not true"));
        }
        if end != self.index.blocks_end() {
            return Err(self.corrupt("there are bytes behind the last block of the index"));
        }
        Ok(())
    }

    fn verify_contents(self: &Arc<Self>) -> Result<()> {
        let mut order = Order::new();
        let mut known = Known::default();
        let mut stats = Stats::new(self.stats.table, self.stats.stamps, self.stats.columns.clone());
        let mut stream = self.read_through()?;
        while let Some(fragment) = stream.next()? {
            stats.observe(&fragment)?;
            if !self.filter.admits(&mut known, &fragment) {
                return Err(self.corrupt("its filter denies a partition or a row that is there"));
            }
            self.verify_fragment(&mut order, fragment)?;
        }
        order.end().map_err(|reason| self.corrupt(reason))?;
        if self.stats.row_columns.is_none() {
            stats.row_columns = None;
        }
        if stats != self.stats {
            return Err(self.corrupt("its statistics are not true"));
        }
        Ok(())
    }

    fn verify_fragment(&self, order: &mut Order<bytes::Bytes>, fragment: Fragment<EncodedRow>) -> Result<()> {
        let ordered = match fragment {
            Fragment::Partition(header) => order.partition(header.key.token(), header.key.bytes().clone()),
            Fragment::Row(key, _) => order.row(key.bytes().clone()),
            Fragment::Change(bound, deletion) => order.change(bound.bytes().clone(), deletion),
        };
        ordered.map_err(|reason| self.corrupt(reason))
    }
}

/// Notes what a block that stands at `offset` holds of which vnodes, as the builder did.
fn note_vnodes(vnodes: &mut VnodeBuilder, block: &Block, offset: u64) -> Result<()> {
    for entry in 0..block.len() {
        match block.fragment(entry)? {
            Fragment::Partition(header) => vnodes.partition(header.key.token(), offset),
            Fragment::Row(..) => vnodes.row(),
            Fragment::Change(..) => vnodes.touch(),
        }
    }
    Ok(())
}
