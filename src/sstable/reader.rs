//! An open file, and the way to its blocks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::block::Block;
use super::cache::BlockCache;
use super::filter::{Filter, Knows};
use super::format::{self, BLOCK_CRC_BYTES, FOOTER_BYTES, HEADER_BYTES, Section};
use super::index::Index;
use super::stats::Stats;
use super::vnodes::VnodeDirectory;
use super::{Access, BLOCK_BYTES_MAX};
use crate::codec::compress::read_block;
use crate::model::{PartitionKey, ReadCost};
use crate::vfs::{File, Vfs};
use crate::{Corrupt, Error, Result};

/// An open file. Index and filter are mapped; everything else but the blocks is decoded.
pub struct Sstable {
    pub(super) id: Uuid,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
    pub(super) bytes: u64,
    pub(super) index: Index,
    pub(super) filter: Filter,
    pub(super) stats: Stats,
    pub(super) vnodes: VnodeDirectory,
    pub(super) cache: Arc<BlockCache>,
}

impl Sstable {
    /// Opens a file and checks header, footer, index, filter and statistics against their checksums.
    pub fn open(vfs: &dyn Vfs, path: &Path, cache: Arc<BlockCache>) -> Result<Sstable> {
        let file = vfs.open(path)?;
        let bytes = file.len()?;
        let Some(footer_at) = bytes.checked_sub(FOOTER_BYTES as u64).filter(|at| *at >= HEADER_BYTES as u64) else {
            let reason = format!("{bytes} bytes are too few for header and footer");
            return Err(Corrupt::new("SSTable", reason).at(path, bytes).into());
        };
        let header = read_at(&*file, 0, HEADER_BYTES)?;
        let footer = read_at(&*file, footer_at, FOOTER_BYTES)?;
        let (id, version) = match format::read_header(header, path) {
            // A newer build would have said so at both ends.
            Err(Error::Version { found, .. }) if format::is_readable_footer(footer.clone()) => {
                let reason = format!("its header says format version {found}, its footer does not");
                return Err(Corrupt::new("SSTable header", reason).at(path, 0).into());
            }
            read => read.map_err(|error| error.in_file(path, 0))?,
        };
        let sections =
            format::read_footer(footer, (id, version), bytes).map_err(|error| error.in_file(path, footer_at))?;
        let [index, filter, stats, vnodes] = sections;
        let blocks_end = index.offset;
        let index = section(&*file, path, id, index, |bytes| Index::open(bytes, blocks_end))?;
        let knows = if version > format::OLDEST_VERSION { Knows::Rows } else { Knows::Partitions };
        let filter = section(&*file, path, id, filter, |bytes| Filter::open(bytes, knows))?;
        let stats = section(&*file, path, id, stats, |bytes| Stats::decode(bytes, version))?;
        let vnodes = section(&*file, path, id, vnodes, VnodeDirectory::decode)?;
        Ok(Sstable { id, path: path.to_owned(), file, bytes, index, filter, stats, vnodes, cache })
    }

    /// Which file this is.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u32 {
        self.index.count()
    }

    /// The length of all its blocks, as they are stored.
    pub fn block_bytes(&self) -> u64 {
        self.index.blocks_end() - HEADER_BYTES as u64
    }

    /// What it says about its contents.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether the file may hold anything of the partition: surely not if this says no.
    pub fn may_hold_partition(&self, key: &PartitionKey) -> bool {
        let within = self.stats.keys.as_ref().is_some_and(|(first, last)| (first..=last).contains(&key));
        within && self.filter.may_hold_partition(key.token())
    }

    /// Where each vnode stands in it.
    pub fn vnodes(&self) -> &VnodeDirectory {
        &self.vnodes
    }

    /// A block, from the cache or into it; counted in `cost`.
    pub(super) fn block(&self, number: u32, access: Access, cost: &mut ReadCost) -> Result<Arc<Block>> {
        let id = (self.id, number);
        if let Some(block) = self.cache.get(&id) {
            cost.blocks_cached += 1;
            return Ok(block);
        }
        if access == Access::CachedOnly {
            return Err(Error::NotCached);
        }
        let entry = self.index.entry(number).map_err(|error| self.placed(error, self.bytes))?;
        let stored = read_at(&*self.file, entry.offset, entry.len as usize)?;
        cost.blocks_read += 1;
        cost.bytes_read += stored.len() as u64;
        let block = Arc::new(self.decode_block(stored, entry.offset)?);
        self.cache.insert(id, Arc::clone(&block));
        Ok(block)
    }

    /// Checks and decodes a block that stands at `offset`.
    pub(super) fn decode_block(&self, stored: Bytes, offset: u64) -> Result<Block> {
        self.try_decode_block(stored, offset).map_err(|error| self.placed(error, offset))
    }

    fn try_decode_block(&self, mut stored: Bytes, offset: u64) -> Result<Block> {
        let body_len = stored.len().checked_sub(BLOCK_CRC_BYTES);
        let body = stored.split_to(body_len.ok_or_else(|| Corrupt::new("SSTable block", "it has no checksum"))?);
        let computed = format::block_crc(self.id, offset, &body);
        if stored[..] != computed.to_le_bytes() {
            let reason =
                format!("its checksum is {:02x?}, its bytes give {:02x?}", &stored[..], computed.to_le_bytes());
            return Err(Corrupt::new("SSTable block", reason).into());
        }
        Block::decode(read_block(body, BLOCK_BYTES_MAX)?)
    }

    /// The error, placed in this file.
    pub(super) fn placed(&self, error: Error, offset: u64) -> Error {
        error.in_file(&self.path, offset)
    }

    /// A finding about this file as a whole.
    pub(super) fn corrupt(&self, reason: impl Into<String>) -> Error {
        Corrupt { file: Some(self.path.clone()), ..Corrupt::new("SSTable", reason) }.into()
    }
}

/// Reads bytes that are known to lie within the file.
pub(super) fn read_at(file: &dyn File, offset: u64, len: usize) -> Result<Bytes> {
    let mut buffer = vec![0; len];
    file.read_at(&mut buffer, offset)?;
    Ok(buffer.into())
}

fn section<T>(
    file: &dyn File,
    path: &Path,
    id: Uuid,
    section: Section,
    decode: impl FnOnce(Bytes) -> Result<T>,
) -> Result<T> {
    let too_long = || Corrupt::new("SSTable footer", "a section is larger than memory").at(path, section.offset);
    let bytes = file.map(section.offset, usize::try_from(section.len).map_err(|_| too_long())?)?;
    let computed = format::section_crc(id, &bytes);
    if computed != section.crc {
        let reason = format!("a section's checksum is {:08x}, its bytes give {computed:08x}", section.crc);
        return Err(Corrupt::new("SSTable", reason).at(path, section.offset).into());
    }
    decode(bytes).map_err(|error| error.in_file(path, section.offset))
}
