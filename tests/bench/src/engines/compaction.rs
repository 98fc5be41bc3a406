//! Compaction beside the compressor it feeds: files of interleaved rows become one, and lz4 alone compresses the same blocks.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trefoil::codec::EncodedRow;
use trefoil::codec::compress::put_block;
use trefoil::codec::entry::put_entry;
use trefoil::model::{
    ClusteringKey, ColumnId, Direction, Fragment, Merge, PartitionHeader, PartitionKey, Stamp, Stream, Type, VnodeBits,
};
use trefoil::sstable::{BLOCK_BYTES, BlockCache, Builder, BuilderOptions, FragmentStream, Sstable, file_name};
use trefoil::vfs::disk::DiskVfs;
use uuid::Uuid;

use super::process;
use super::rows::Row;
use crate::Result;
use crate::data::{self, ROWS_PER_PARTITION};

/// Files that become one; each has every fourth row of every partition.
const FILES: u64 = 4;

/// Both are measured so often, by turns.
const ROUNDS: usize = 3;

/// What was found in each round.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Findings {
    /// Bytes of blocks before compression for each second of CPU: merged, built and synced.
    pub compaction: Vec<f64>,
    /// The same: compressed and nothing else.
    pub lz4: Vec<f64>,
    /// Rows for each second of CPU of the compaction.
    pub rows: Vec<f64>,
}

/// Prints what was found.
pub fn run(rows: u64, directory: &Path) -> Result<()> {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let mut inputs = Vec::new();
    for file in 0..FILES {
        build(directory, u128::from(file) + 1, rows, &mut Numbers::of(rows, file)?)?;
        let path = directory.join(file_name(Uuid::from_u128(u128::from(file) + 1)));
        inputs.push(Arc::new(Sstable::open(&DiskVfs, &path, cache.clone())?));
    }
    let blocks = blocks(rows)?;
    let bytes = blocks.iter().map(Vec::len).sum::<usize>() as f64;
    let mut found = Findings::default();
    for round in 0..ROUNDS {
        let begun = process::cpu_of_this_thread();
        let sources: Vec<FragmentStream> = inputs.iter().map(Sstable::read_through).collect::<Result<_, _>>()?;
        build(directory, 100 + round as u128, rows, &mut Merge::new(sources, Direction::Forward))?;
        let merged = (process::cpu_of_this_thread() - begun).as_secs_f64();
        let begun = process::cpu_of_this_thread();
        let mut out = Vec::new();
        for block in &blocks {
            out.clear();
            put_block(&mut out, block);
        }
        let compressed = (process::cpu_of_this_thread() - begun).as_secs_f64();
        found.compaction.push(bytes / merged);
        found.rows.push(rows as f64 / merged);
        found.lz4.push(bytes / compressed);
    }
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

fn build(directory: &Path, id: u128, rows: u64, fragments: &mut dyn Stream<EncodedRow>) -> Result<()> {
    let options = BuilderOptions {
        directory: directory.to_owned(),
        id: Uuid::from_u128(id),
        table: data::table(),
        columns: vec![(ColumnId(1), Type::BigInt), (ColumnId(2), Type::Int), (data::VALUE, Type::Blob)],
        vnode_bits: VnodeBits::DEFAULT,
        stamps: (Stamp(0), Stamp(i64::MAX)),
        expected_partitions: rows / ROWS_PER_PARTITION,
        expected_rows: rows,
        block_bytes: BLOCK_BYTES,
    };
    let mut builder = Builder::create(&DiskVfs, options)?;
    while let Some(fragment) = fragments.next()? {
        builder.add(&fragment)?;
    }
    builder.finish()?;
    Ok(())
}

/// All rows as they stand in blocks.
fn blocks(rows: u64) -> Result<Vec<Vec<u8>>> {
    let mut blocks = vec![Vec::new()];
    let all = (0..FILES).map(|file| Numbers::of(rows, file)).collect::<Result<Vec<_>>>()?;
    let mut all = Merge::new(all, Direction::Forward);
    let mut entry = Vec::new();
    while let Some(fragment) = all.next()? {
        entry.clear();
        put_entry(&mut entry, &fragment);
        if blocks.last().is_none_or(|block| block.len() + entry.len() > BLOCK_BYTES) {
            blocks.push(Vec::with_capacity(BLOCK_BYTES));
        }
        blocks.last_mut().into_iter().for_each(|block| block.extend_from_slice(&entry));
    }
    Ok(blocks)
}

/// The rows of one of the files, in the order of a file.
struct Numbers {
    partitions: std::vec::IntoIter<(PartitionKey, u64)>,
    rows: std::ops::Range<u64>,
    file: u64,
}

impl Numbers {
    fn of(rows: u64, file: u64) -> Result<Numbers> {
        let firsts = (0..rows / ROWS_PER_PARTITION).map(|partition| partition * ROWS_PER_PARTITION);
        let mut partitions: Vec<_> = firsts.map(|first| Ok((data::partition(first)?, first))).collect::<Result<_>>()?;
        partitions.sort();
        Ok(Numbers { partitions: partitions.into_iter(), rows: 0..0, file })
    }

    fn row(number: u64) -> Result<(ClusteringKey, EncodedRow)> {
        let row = Row { number, version: number };
        let mut mutation = row.mutation()?;
        let (key, row) = mutation.rows.remove(0);
        Ok((key, EncodedRow::encode(&row)))
    }
}

impl Stream<EncodedRow> for Numbers {
    fn next(&mut self) -> trefoil::Result<Option<Fragment<EncodedRow>>> {
        if let Some(number) = self.rows.find(|number| number % FILES == self.file) {
            let invalid = |error: crate::Error| trefoil::Error::invalid("row", error.to_string());
            let (key, row) = Numbers::row(number).map_err(invalid)?;
            return Ok(Some(Fragment::Row(key, row)));
        }
        let Some((key, first)) = self.partitions.next() else { return Ok(None) };
        self.rows = first..first + ROWS_PER_PARTITION;
        Ok(Some(Fragment::Partition(PartitionHeader { key, deletion: None, static_row: None })))
    }
}
