//! Writes a file: once, in order, front to back.
//!
//! An entry is encoded before it is decided which block it goes into, so nothing is ever taken back (B113 in
//! `docs/testing.md`). The content hash is computed over the bytes as they leave. After an error the builder refuses to
//! finish: what it has written lacks something, and no manifest will ever list it.

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::block::{BlockBuilder, Continued};
use super::filter::FilterBuilder;
use super::format::{self, SECTIONS, Section};
use super::index::IndexBuilder;
use super::order::Order;
use super::partitions::{PartitionWatch, Size};
use super::stats::Stats;
use super::vnodes::VnodeBuilder;
use super::{BLOCK_BYTES_MAX, BuilderOptions, SstableMeta, file_name};
use crate::codec::EncodedRow;
use crate::codec::compress::put_block;
use crate::codec::entry::put_entry;
use crate::model::{Fragment, PartitionHeader, PartitionKey};
use crate::vfs::{File, Vfs};
use crate::{Error, Result};

/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 256 * 1024;

/// Writes a file, once, in order.
pub struct Builder {
    options: BuilderOptions,
    output: Output,
    order: Order<Bytes>,
    block: BlockBuilder,
    /// The partition being written, as a block that continues it would begin.
    partition: Option<Continued>,
    /// The encoded entry at hand.
    entry: Vec<u8>,
    /// The compressed block at hand.
    stored: Vec<u8>,
    index: IndexBuilder,
    filter: FilterBuilder,
    stats: Stats,
    vnodes: VnodeBuilder,
    /// Partition and place of the first entry of the block being filled, for the index; `None`: it is empty.
    first: Option<(PartitionKey, Bytes)>,
    failed: Option<Error>,
    watch: Option<Arc<PartitionWatch>>,
    /// Of the partition being written.
    size: Size,
}

impl Builder {
    /// Begins a file.
    pub fn create(vfs: &dyn Vfs, options: BuilderOptions) -> Result<Builder> {
        let file = vfs.create(&options.directory.join(file_name(options.id)))?;
        let mut output = Output::new(file);
        output.put(&format::header(options.id))?;
        Ok(Builder {
            output,
            order: Order::new(),
            block: BlockBuilder::default(),
            partition: None,
            entry: Vec::new(),
            stored: Vec::new(),
            index: IndexBuilder::default(),
            filter: FilterBuilder::new(options.expected_partitions.saturating_add(options.expected_rows)),
            stats: Stats::new(options.table, options.stamps, options.columns.clone()),
            vnodes: VnodeBuilder::new(options.vnode_bits),
            first: None,
            failed: None,
            watch: None,
            size: Size::default(),
            options,
        })
    }

    /// With an eye on how large partitions are.
    pub fn watched(self, watch: Arc<PartitionWatch>) -> Builder {
        Builder { watch: Some(watch), ..self }
    }

    /// Adds the next fragment; forward order, with the invariants of `model::fragment`. A fragment that breaks them is
    /// refused with [`Error::Invalid`], and the file cannot be finished any more.
    pub fn add(&mut self, fragment: &Fragment<EncodedRow>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let added = self.try_add(fragment);
        if let Err(error) = &added {
            self.failed = Some(error.clone());
        }
        added
    }

    /// Bytes of blocks written so far.
    pub fn bytes(&self) -> u64 {
        self.output.offset
    }

    /// Writes index, filter, statistics and footer and makes the file durable (its name is durable after `sync_dir`).
    pub fn finish(mut self) -> Result<SstableMeta> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.order.end().map_err(|reason| out_of_order(&self.options, reason))?;
        self.leave_partition();
        self.cut_block()?;
        let id = self.options.id;
        let parts = [self.index.finish(), self.filter.finish(), self.stats.encode(), self.vnodes.finish().encode()];
        let mut sections = [Section { offset: 0, len: 0, crc: 0 }; SECTIONS];
        for (section, bytes) in sections.iter_mut().zip(&parts) {
            let (offset, len) = (self.output.offset, bytes.len() as u64);
            *section = Section { offset, len, crc: format::section_crc(id, bytes) };
            self.output.put(bytes)?;
        }
        self.output.put(&format::footer(id, &sections))?;
        let (bytes, hash) = self.output.finish()?;
        Ok(SstableMeta { id, table: self.options.table, bytes, hash, stamps: self.options.stamps })
    }

    fn try_add(&mut self, fragment: &Fragment<EncodedRow>) -> Result<()> {
        self.check_order(fragment)?;
        self.stats.observe(fragment)?;
        self.filter.observe(fragment);
        self.entry.clear();
        put_entry(&mut self.entry, fragment);
        if self.entry.len() > BLOCK_BYTES_MAX / 2 {
            let reason = format!("a row of {} bytes is too large for a file", self.entry.len());
            return Err(Error::invalid(format!("table {}", self.options.table), reason));
        }
        if self.block.entries_len() + self.entry.len() > self.options.block_bytes {
            self.cut_block()?;
        }
        self.enter(fragment);
        self.size.bytes += self.entry.len() as u64;
        self.block.push(&self.entry);
        if let (Fragment::Change(_, deletion), Some(partition)) = (fragment, &mut self.partition) {
            partition.in_force = *deletion;
        }
        Ok(())
    }

    fn check_order(&mut self, fragment: &Fragment<EncodedRow>) -> Result<()> {
        let checked = match fragment {
            Fragment::Partition(header) => self.order.partition(header.key.token(), header.key.bytes().clone()),
            Fragment::Row(key, _) => self.order.row(key.bytes().clone()),
            Fragment::Change(bound, deletion) => self.order.change(bound.bytes().clone(), *deletion),
        };
        checked.map_err(|reason| out_of_order(&self.options, reason))
    }

    /// Notes what the next entry begins: a partition, more of a vnode, a block.
    fn enter(&mut self, fragment: &Fragment<EncodedRow>) {
        let place = match fragment {
            Fragment::Partition(header) => {
                self.enter_partition(header);
                Bytes::new()
            }
            Fragment::Row(key, _) => {
                self.vnodes.row();
                self.size.rows += 1;
                key.bytes().clone()
            }
            Fragment::Change(bound, _) => {
                self.vnodes.touch();
                bound.bytes().clone()
            }
        };
        if let (None, Some(partition)) = (&self.first, &self.partition) {
            let continued = (!place.is_empty()).then_some(partition);
            self.block.begin(continued);
            self.first = Some((partition.key.clone(), place));
        }
    }

    fn leave_partition(&mut self) {
        let size = std::mem::take(&mut self.size);
        if let (Some(watch), Some(partition)) = (&self.watch, &self.partition) {
            watch.written(self.options.table, &partition.key, &size);
        }
    }

    fn enter_partition(&mut self, header: &PartitionHeader<EncodedRow>) {
        self.leave_partition();
        self.vnodes.partition(header.key.token(), self.output.offset);
        self.partition = Some(Continued {
            key: header.key.clone(),
            deletion: header.deletion,
            static_row_in: header.static_row.as_ref().map(|_| self.index.count()),
            in_force: None,
        });
    }

    /// Writes the block at hand, if it holds anything.
    fn cut_block(&mut self) -> Result<()> {
        let Some((key, place)) = self.first.take() else { return Ok(()) };
        let offset = self.output.offset;
        self.stored.clear();
        put_block(&mut self.stored, self.block.bytes());
        let crc = format::block_crc(self.options.id, offset, &self.stored);
        self.stored.extend_from_slice(&crc.to_le_bytes());
        self.output.put(&self.stored)?;
        self.index.push(&key, &place, offset, self.stored.len() as u32)?;
        self.vnodes.block_written(self.output.offset);
        self.block.clear();
        Ok(())
    }
}

fn out_of_order(options: &BuilderOptions, reason: &str) -> Error {
    Error::invalid(format!("SSTable {} of table {}", options.id, options.table), reason)
}

/// The file at its end: buffered, hashed, counted.
struct Output {
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    /// Everything put so far, the buffer included.
    offset: u64,
    hasher: Sha256,
}

impl Output {
    fn new(file: Arc<dyn File>) -> Output {
        Output { file, buffer: Vec::with_capacity(WRITE_BYTES), offset: 0, hasher: Sha256::new() }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.buffer.is_empty() && self.buffer.len() + bytes.len() > WRITE_BYTES {
            self.flush()?;
        }
        self.buffer.extend_from_slice(bytes);
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write_at(&self.buffer, self.offset - self.buffer.len() as u64)?;
        self.hasher.update(&self.buffer);
        self.buffer.clear();
        self.buffer.shrink_to(WRITE_BYTES);
        Ok(())
    }

    /// Makes everything durable; answers length and hash.
    fn finish(mut self) -> Result<(u64, [u8; 32])> {
        self.flush()?;
        self.file.sync()?;
        Ok((self.offset, self.hasher.finalize().into()))
    }
}
