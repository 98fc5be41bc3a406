//! The plain LSM tree: the least that an engine of this kind can do, and the yardstick of the others.
//!
//! ```text
//! put   one write to a log for each group; sixteen ordered maps, the first bits of the key choosing one
//! run   block of lz4 ...    at a full buffer; in memory: first key and place of each block, a blocked bloom filter
//! rest  as soon as there are eight runs all become one
//! ```
//!
//! No recovery, no checksums of blocks, no deletions, no cells, one thread: what a real engine costs beyond it is the
//! price of those. Its log is cut when a run is written.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lz4_flex::block::{compress_prepend_size, decompress_size_prepended};
use trefoil::sstable::BLOCK_BYTES;

use super::rows::{Key, Wanted};
use super::{Engine, Found, GROUP, Limits, Read, Row, files_below};
use crate::Result;
use crate::data::mixed;

const SHARDS: usize = 16;
const RUNS_MOST: usize = 8;
/// About what an entry takes beside its bytes.
const ENTRY_OVERHEAD_BYTES: u64 = 64;
const WRITE_BYTES: usize = 256 << 10;

type Map = BTreeMap<Key, Box<[u8]>>;

pub struct Plain {
    directory: PathBuf,
    limits: Limits,
    log: File,
    log_buffer: Vec<u8>,
    shards: [Map; SHARDS],
    bytes: u64,
    /// Oldest first.
    runs: Vec<Run>,
    next_run: u64,
    cache: HashMap<(u64, usize), Arc<Vec<u8>>>,
    cached_bytes: u64,
    rows: Vec<Row>,
    reads: Vec<Wanted>,
}

/// A sorted file. `blocks` and `bloom` are written behind the blocks, to be read when the engine is opened again.
struct Run {
    number: u64,
    file: File,
    blocks: Vec<(Key, u64)>,
    end: u64,
    bloom: Vec<[u64; 8]>,
}

/// A block: entries of key, length of value, value.
struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = (Key, &'a [u8]);

    fn next(&mut self) -> Option<(Key, &'a [u8])> {
        let (key, rest) = self.0.split_first_chunk::<12>()?;
        let (len, rest) = rest.split_first_chunk::<2>()?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        self.0 = rest;
        Some((*key, value))
    }
}

impl Plain {
    pub fn open(directory: &Path, limits: Limits) -> Result<Plain> {
        fs::create_dir_all(directory)?;
        let mut paths = files_below(directory)?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "run"));
        paths.sort();
        let runs = paths.iter().map(|path| Run::open(path)).collect::<Result<Vec<_>>>()?;
        Ok(Plain {
            log: File::create(directory.join("log"))?,
            directory: directory.to_owned(),
            limits,
            log_buffer: Vec::new(),
            shards: Default::default(),
            bytes: 0,
            next_run: runs.last().map_or(0, |run| run.number + 1),
            runs,
            cache: HashMap::new(),
            cached_bytes: 0,
            rows: Vec::new(),
            reads: Vec::new(),
        })
    }

    fn flush(&mut self) -> Result<()> {
        let shards = std::mem::take(&mut self.shards);
        let mut writer = RunWriter::create(&self.directory, self.next_run, shards.iter().map(Map::len).sum())?;
        for (key, value) in shards.iter().flatten() {
            writer.add(*key, value)?;
        }
        self.runs.push(writer.finish()?);
        self.next_run += 1;
        self.bytes = 0;
        self.log.set_len(0)?;
        self.log = File::create(self.directory.join("log"))?;
        if self.runs.len() >= RUNS_MOST { self.merge() } else { Ok(()) }
    }

    fn merge(&mut self) -> Result<()> {
        let mut sources = self.runs.iter().map(Source::open).collect::<Result<Vec<_>>>()?;
        let keys = self.runs.iter().map(|run| run.bloom.len() * 51).sum();
        let mut writer = RunWriter::create(&self.directory, self.next_run, keys)?;
        loop {
            // The newest run comes last: of equal keys it is the one that is taken.
            let heads = sources.iter().enumerate().filter_map(|(at, source)| Some((source.head?, at)));
            let Some((key, newest)) = heads.min_by_key(|(key, at)| (*key, usize::MAX - at)) else { break };
            writer.add(key, sources[newest].value())?;
            sources.iter_mut().filter(|source| source.head == Some(key)).try_for_each(Source::advance)?;
        }
        let merged = writer.finish()?;
        for run in self.runs.drain(..) {
            fs::remove_file(run_path(&self.directory, run.number))?;
        }
        self.cache.clear();
        self.cached_bytes = 0;
        self.runs.push(merged);
        self.next_run += 1;
        Ok(())
    }

    fn block(&mut self, run: usize, block: usize) -> Result<Arc<Vec<u8>>> {
        let id = (self.runs[run].number, block);
        if let Some(held) = self.cache.get(&id) {
            return Ok(Arc::clone(held));
        }
        let decoded = Arc::new(self.runs[run].read_block(block)?);
        // Nothing is evicted one by one: a full cache begins anew.
        if self.cached_bytes > self.limits.cache_bytes {
            self.cache.clear();
            self.cached_bytes = 0;
        }
        self.cached_bytes += decoded.len() as u64;
        self.cache.insert(id, Arc::clone(&decoded));
        Ok(decoded)
    }

    fn get(&mut self, key: &Key) -> Result<Option<Vec<u8>>> {
        if let Some(value) = self.shards[shard_of(key)].get(key) {
            return Ok(Some(value.to_vec()));
        }
        for run in (0..self.runs.len()).rev() {
            if !may_contain(&self.runs[run].bloom, key) {
                continue;
            }
            let Some(at) = self.runs[run].block_of(key) else { continue };
            let block = self.block(run, at)?;
            if let Some((_, value)) = Entries(&block).find(|(other, _)| other == key) {
                return Ok(Some(value.to_vec()));
            }
        }
        Ok(None)
    }

    fn range(&mut self, first: &Key, last: &Key, found: &mut Found) -> Result<()> {
        let mut merged: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        for run in 0..self.runs.len() {
            let begin = self.runs[run].block_of(first).unwrap_or(0);
            for at in begin..self.runs[run].blocks.len() {
                if self.runs[run].blocks[at].0 > *last {
                    break;
                }
                let block = self.block(run, at)?;
                let inside = Entries(&block).filter(|(key, _)| key >= first && key <= last);
                merged.extend(inside.map(|(key, value)| (key, value.to_vec())));
            }
        }
        let fresh = self.shards[shard_of(first)].range(*first..=*last);
        merged.extend(fresh.map(|(key, value)| (*key, value.to_vec())));
        merged.values().for_each(|value| found.value(value));
        Ok(())
    }
}

impl Engine for Plain {
    fn prepare_rows(&mut self, rows: &[Row]) -> Result<()> {
        self.rows = rows.to_vec();
        Ok(())
    }

    fn put(&mut self, from: usize) -> Result<()> {
        self.log_buffer.clear();
        for row in &self.rows[from..self.rows.len().min(from + GROUP)] {
            let (key, value) = (row.key(), row.value());
            let begin = self.log_buffer.len();
            put_entry(&mut self.log_buffer, key, value);
            let crc = crc32fast::hash(&self.log_buffer[begin..]);
            self.log_buffer.extend_from_slice(&crc.to_le_bytes());
            self.bytes += (key.len() + value.len()) as u64 + ENTRY_OVERHEAD_BYTES;
            self.shards[shard_of(&key)].insert(key, value.into());
        }
        self.log.write_all(&self.log_buffer)?;
        if self.bytes >= self.limits.write_buffer_bytes { self.flush() } else { Ok(()) }
    }

    fn prepare_reads(&mut self, reads: &[Read]) -> Result<()> {
        self.reads = reads.iter().map(|read| Wanted::of(*read)).collect();
        Ok(())
    }

    fn read(&mut self, at: usize) -> Result<Found> {
        let mut found = Found::default();
        match self.reads[at] {
            Wanted::One(key) => self.get(&key)?.iter().for_each(|value| found.value(value)),
            Wanted::Range(first, last) => self.range(&first, &last, &mut found)?,
        }
        Ok(found)
    }

    fn settle(&mut self) -> Result<()> {
        if self.bytes > 0 { self.flush() } else { Ok(()) }
    }

    fn files(&self) -> Result<u64> {
        Ok(self.runs.len() as u64)
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.settle()
    }
}

impl Run {
    fn open(path: &Path) -> Result<Run> {
        let cut_short = || format!("{} is cut short", path.display());
        let number =
            path.file_stem().and_then(|stem| stem.to_str()?.parse().ok()).ok_or("a run is named by a number")?;
        let bytes = fs::read(path)?;
        let (rest, counts) = bytes.split_last_chunk::<24>().ok_or_else(cut_short)?;
        let [blocks, lines, end] = counts.as_chunks::<8>().0 else { return Err(cut_short().into()) };
        let [blocks, lines, end] = [blocks, lines, end].map(|count| u64::from_le_bytes(*count));
        let places = rest.get(end as usize..).ok_or_else(cut_short)?;
        let (places, filter) = places.split_at_checked(blocks as usize * 20).ok_or_else(cut_short)?;
        let place = |place: &[u8; 20]| {
            let (key, offset) = (place[..12].try_into().ok()?, place[12..].try_into().ok()?);
            Some((key, u64::from_le_bytes(offset)))
        };
        let blocks = places.as_chunks::<20>().0.iter().map(place).collect::<Option<_>>().ok_or_else(cut_short)?;
        let words: Vec<u64> = filter.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let bloom = words.as_chunks::<8>().0[..lines as usize].to_vec();
        Ok(Run { number, file: File::open(path)?, blocks, end, bloom })
    }

    /// The block that may hold a key.
    fn block_of(&self, key: &Key) -> Option<usize> {
        self.blocks.partition_point(|(first, _)| first <= key).checked_sub(1)
    }

    fn read_block(&self, block: usize) -> Result<Vec<u8>> {
        let (begin, end) = (self.blocks[block].1, self.blocks.get(block + 1).map_or(self.end, |(_, next)| *next));
        let mut stored = vec![0; (end - begin) as usize];
        self.file.read_exact_at(&mut stored, begin)?;
        Ok(decompress_size_prepended(&stored)?)
    }
}

/// A run that is read from its beginning.
struct Source<'a> {
    run: &'a Run,
    next_block: usize,
    block: Vec<u8>,
    at: usize,
    head: Option<Key>,
    value: std::ops::Range<usize>,
}

impl<'a> Source<'a> {
    fn open(run: &'a Run) -> Result<Source<'a>> {
        let mut source = Source { run, next_block: 0, block: Vec::new(), at: 0, head: None, value: 0..0 };
        source.advance()?;
        Ok(source)
    }

    fn value(&self) -> &[u8] {
        &self.block[self.value.clone()]
    }

    fn advance(&mut self) -> Result<()> {
        if self.at == self.block.len() {
            if self.next_block == self.run.blocks.len() {
                self.head = None;
                return Ok(());
            }
            self.block = self.run.read_block(self.next_block)?;
            (self.at, self.next_block) = (0, self.next_block + 1);
        }
        let (key, value) = Entries(&self.block[self.at..]).next().ok_or("a block of a run is cut short")?;
        let begin = self.at + key.len() + 2;
        (self.head, self.value) = (Some(key), begin..begin + value.len());
        self.at = self.value.end;
        Ok(())
    }
}

struct RunWriter {
    number: u64,
    path: PathBuf,
    file: File,
    block: Vec<u8>,
    buffer: Vec<u8>,
    written: u64,
    blocks: Vec<(Key, u64)>,
    bloom: Vec<[u64; 8]>,
}

impl RunWriter {
    fn create(directory: &Path, number: u64, keys: usize) -> Result<RunWriter> {
        let path = run_path(directory, number);
        let (file, block, buffer) = (File::create(&path)?, Vec::new(), Vec::with_capacity(WRITE_BYTES * 2));
        let bloom = vec![[0; 8]; (keys * 10).div_ceil(512).max(1)];
        Ok(RunWriter { number, path, file, block, buffer, written: 0, blocks: Vec::new(), bloom })
    }

    fn add(&mut self, key: Key, value: &[u8]) -> Result<()> {
        if self.block.is_empty() {
            self.blocks.push((key, self.written + self.buffer.len() as u64));
        }
        put_entry(&mut self.block, key, value);
        let (line, bits) = place(&key, self.bloom.len());
        bits.for_each(|bit| self.bloom[line][bit / 64] |= 1 << (bit % 64));
        if self.block.len() >= BLOCK_BYTES { self.cut() } else { Ok(()) }
    }

    fn cut(&mut self) -> Result<()> {
        if !self.block.is_empty() {
            self.buffer.extend_from_slice(&compress_prepend_size(&self.block));
            self.block.clear();
        }
        if self.buffer.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.file.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Run> {
        self.cut()?;
        let end = self.written + self.buffer.len() as u64;
        for (key, offset) in &self.blocks {
            self.buffer.extend_from_slice(key);
            self.buffer.extend_from_slice(&offset.to_le_bytes());
        }
        self.buffer.extend(self.bloom.iter().flatten().flat_map(|word| word.to_le_bytes()));
        for count in [self.blocks.len() as u64, self.bloom.len() as u64, end] {
            self.buffer.extend_from_slice(&count.to_le_bytes());
        }
        self.write()?;
        self.file.sync_all()?;
        Ok(Run { number: self.number, file: File::open(&self.path)?, blocks: self.blocks, end, bloom: self.bloom })
    }
}

fn run_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:08}.run"))
}

fn put_entry(out: &mut Vec<u8>, key: Key, value: &[u8]) {
    out.extend_from_slice(&key);
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
}

fn shard_of(key: &Key) -> usize {
    usize::from(key[0]) * SHARDS / 256
}

/// The line of a blocked filter and the seven bits in it.
fn place(key: &Key, lines: usize) -> (usize, impl Iterator<Item = usize>) {
    let words = key.split_first_chunk::<8>().map(|(head, tail)| {
        let tail = tail.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        u64::from_le_bytes(*head) ^ mixed(tail)
    });
    let hash = mixed(words.unwrap_or_default());
    let bits = mixed(hash);
    (((hash >> 32) as usize * lines) >> 32, (0..7).map(move |probe| (bits >> (9 * probe)) as usize % 512))
}

fn may_contain(bloom: &[[u64; 8]], key: &Key) -> bool {
    let (line, mut bits) = place(key, bloom.len());
    bits.all(|bit| bloom[line][bit / 64] & (1 << (bit % 64)) != 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::Plain;
    use crate::engines::rows::{Row, key};
    use crate::engines::{Engine, Found, GROUP, Limits, Read};

    /// A yardstick that loses rows would be a fast one.
    #[test]
    fn the_yardstick_finds_the_last_version_of_every_row_before_and_behind_a_merge() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits { write_buffer_bytes: 64 << 10, cache_bytes: 1 << 20 };
        let mut plain = Plain::open(directory.path(), limits).unwrap();
        let rows: Vec<Row> = (0..6000).map(|draw| Row { number: draw * 7 % 2000, version: draw }).collect();
        plain.prepare_rows(&rows).unwrap();
        for from in (0..rows.len()).step_by(GROUP) {
            plain.put(from).unwrap();
        }
        Box::new(plain).close().unwrap();
        let mut plain = Plain::open(directory.path(), limits).unwrap();
        assert!(plain.next_run > 8, "{} runs never merged", plain.next_run);
        for number in 0..2000 {
            let last = rows.iter().rev().find(|row| row.number == number).unwrap();
            assert_eq!(plain.get(&key(number)).unwrap().unwrap(), last.value(), "row {number}");
        }
        plain.prepare_reads(&[Read::Partition(150), Read::Absent(2000)]).unwrap();
        assert_eq!(plain.read(0).unwrap(), Found { rows: 100, value_bytes: 100 * 180 });
        assert_eq!(plain.read(1).unwrap(), Found::default());
    }
}
