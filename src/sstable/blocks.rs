//! The blocks of one file, as one stream asks for them: through the cache, or read ahead and past it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::block::Block;
use super::index::Index;
use super::reader::Sstable;
use super::{Access, READ_AHEAD_BYTES};
use crate::model::{Bound, Deletion, PartitionKey, ReadCost};
use crate::vfs::File;
use crate::{Error, Result};

/// See the module. The block used last is held.
pub(super) struct Blocks {
    file: Arc<Sstable>,
    way: Way,
    held: Option<(u32, Arc<Block>)>,
    cost: ReadCost,
}

enum Way {
    Cache(Access),
    Ahead(Ahead),
}

/// What was read ahead. One buffer serves a whole file: fresh memory for each read would be filled with zeros first, and
/// the allocator would walk through as much of it as it keeps for such sizes.
struct Ahead {
    buffer: Vec<u8>,
    /// So many bytes of the buffer are the file's, from `begin` on.
    filled: usize,
    begin: u64,
    /// How many were read so far, by all who count there.
    read: Arc<AtomicU64>,
}

impl Ahead {
    /// Where these bytes of the file stand in the buffer, if all of them do.
    fn place(&self, offset: u64, len: usize) -> Option<usize> {
        let at = usize::try_from(offset.checked_sub(self.begin)?).ok()?;
        (at.checked_add(len)? <= self.filled).then_some(at)
    }

    fn fill(&mut self, file: &dyn File, offset: u64, wanted: usize) -> Result<()> {
        // After an error nobody knows what it holds.
        self.filled = 0;
        if self.buffer.len() < wanted || self.buffer.len() > wanted.max(READ_AHEAD_BYTES) {
            self.buffer = vec![0; wanted];
        }
        file.read_at(&mut self.buffer[..wanted], offset)?;
        (self.begin, self.filled) = (offset, wanted);
        self.read.fetch_add(wanted as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Blocks {
    /// Through the cache.
    pub(super) fn cached(file: &Arc<Sstable>, access: Access) -> Blocks {
        Blocks { file: Arc::clone(file), way: Way::Cache(access), held: None, cost: ReadCost::default() }
    }

    /// In large reads, leaving the cache as it is: for reading everything, front to back. What is read is added to `read`.
    pub(super) fn ahead(file: &Arc<Sstable>, read: Arc<AtomicU64>) -> Blocks {
        let ahead = Ahead { buffer: Vec::new(), filled: 0, begin: 0, read };
        Blocks { file: Arc::clone(file), way: Way::Ahead(ahead), held: None, cost: ReadCost::default() }
    }

    pub(super) fn index(&self) -> &Index {
        &self.file.index
    }

    /// The blocks that were asked for.
    pub(super) fn cost(&self) -> ReadCost {
        self.cost
    }

    /// See [`Sstable::is_older_than`].
    pub(super) fn is_older_than(&self, deletion: Deletion) -> bool {
        self.file.is_older_than(deletion)
    }

    /// A block.
    pub(super) fn get(&mut self, number: u32) -> Result<Arc<Block>> {
        if let Some((held, block)) = &self.held
            && *held == number
        {
            return Ok(Arc::clone(block));
        }
        let block = match self.way {
            Way::Cache(access) => self.file.block(number, access, &mut self.cost)?,
            Way::Ahead(..) => Arc::new(self.read_ahead(number)?),
        };
        self.held = Some((number, Arc::clone(&block)));
        Ok(block)
    }

    /// A block out of turn; what is held stays.
    pub(super) fn get_aside(&mut self, number: u32) -> Result<Arc<Block>> {
        let access = match self.way {
            Way::Cache(access) => access,
            Way::Ahead(..) => Access::Disk,
        };
        self.file.block(number, access, &mut self.cost)
    }

    fn read_ahead(&mut self, number: u32) -> Result<Block> {
        let entry = self.file.index.entry(number)?;
        let Way::Ahead(ahead) = &mut self.way else { return Err(Error::NotCached) };
        let len = entry.len as usize;
        let at = match ahead.place(entry.offset, len) {
            Some(at) => at,
            None => {
                let left = self.file.index.blocks_end() - entry.offset;
                let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(READ_AHEAD_BYTES).max(len);
                ahead.fill(&*self.file.file, entry.offset, wanted)?;
                0
            }
        };
        // A copy, lest a row that somebody keeps holds all that was read with it.
        self.file.decode_block(Bytes::copy_from_slice(&ahead.buffer[at..at + len]), entry.offset)
    }

    /// Whether block `number` exists and begins within the partition `key`.
    pub(super) fn continues(&self, number: u32, key: &PartitionKey) -> Result<bool> {
        self.continues_if(number, key, |_| true)
    }

    /// Whether block `number` exists and begins within the partition `key`, below `end`.
    pub(super) fn continues_below(&self, number: u32, key: &PartitionKey, end: &Bound) -> Result<bool> {
        self.continues_if(number, key, |place| place < end.bytes().as_ref())
    }

    fn continues_if(&self, number: u32, key: &PartitionKey, place: impl Fn(&[u8]) -> bool) -> Result<bool> {
        if number >= self.index().count() {
            return Ok(false);
        }
        let entry = self.index().entry(number)?;
        Ok((entry.token, entry.key) == (key.token(), key.bytes()) && place(entry.place))
    }

    /// A finding about the file.
    pub(super) fn corrupt(&self, reason: impl Into<String>) -> Error {
        self.file.corrupt(reason)
    }

    /// The error, placed at the block's beginning.
    pub(super) fn placed(&self, error: Error, number: u32) -> Error {
        let offset = self.index().entry(number).map_or(0, |entry| entry.offset);
        self.file.placed(error, offset)
    }
}
