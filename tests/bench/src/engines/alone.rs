//! One engine in this process, through a part of its phases.

use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::phase::{Meter, PREPARED, Phase};
use super::rows::{Draw, ROW_BYTES, Row, VALUE_BYTES};
use super::{Engine, Found, GROUP, Kind, Limits, Read, process};
use crate::Result;
use crate::data::{ROWS_PER_PARTITION, mixed};

/// Cold reads between two times that the kernel is told to forget the files.
const COLD_AT_A_TIME: u64 = 100;

/// What a process has found out about its engine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Findings {
    /// All rows in random order, until the engine is at rest.
    pub load: Phase,
    /// As many rows again, half of them drawn by Zipf's law, until the engine is at rest.
    pub overwrite: Phase,
    /// Rows drawn uniformly, all blocks in the engine's cache.
    pub cached: Phase,
    /// The same by Zipf's law.
    pub cached_zipf: Phase,
    /// Rows of partitions that are not there.
    pub absent: Phase,
    /// Partitions of 100 rows.
    pub scan: Phase,
    /// Rows drawn uniformly, the cache a tenth of the rows, files in the kernel's cache.
    pub small_cache: Phase,
    /// The same, and the kernel had forgotten the files.
    pub cold: Phase,
    /// The same by Zipf's law.
    pub cold_zipf: Phase,
    /// Bytes of all files at rest behind the load.
    pub loaded_bytes: u64,
    /// The same behind the overwrites.
    pub overwritten_bytes: u64,
    /// Sorted files behind the load.
    pub loaded_files: u64,
    /// The same behind the overwrites.
    pub overwritten_files: u64,
    /// Resident before the engine was opened.
    pub own_bytes: u64,
    /// Write buffers and cache, as the engine was told for load and overwrites.
    pub budget_bytes: u64,
}

/// The memory of a run of so many rows: as many flushes and as much in the cache whatever the number.
pub(super) fn limits(rows: u64) -> Limits {
    Limits { write_buffer_bytes: (rows * 8).max(1 << 20), cache_bytes: (rows * ROW_BYTES / 10).max(1 << 20) }
}

/// A part of the phases, each in a process of its own on the files of the one before: what one of them leaves in memory
/// is not the next one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// The load.
    Load,
    /// Reads whose blocks are all in the cache.
    Cached,
    /// Overwrites, and reads with a small cache.
    Overwrite,
    /// Cold reads.
    Cold,
}

impl Step {
    /// As it is named on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Step::Load => "load",
            Step::Cached => "cached",
            Step::Overwrite => "overwrite",
            Step::Cold => "cold",
        }
    }
}

impl Findings {
    /// Takes over what a process has found that took this step.
    pub fn add(&mut self, step: Step, found: Findings) {
        let so_far = std::mem::take(self);
        *self = match step {
            Step::Load => found,
            Step::Cached => Findings {
                cached: found.cached,
                cached_zipf: found.cached_zipf,
                absent: found.absent,
                scan: found.scan,
                ..so_far
            },
            Step::Overwrite => Findings {
                overwrite: found.overwrite,
                small_cache: found.small_cache,
                overwritten_bytes: found.overwritten_bytes,
                overwritten_files: found.overwritten_files,
                ..so_far
            },
            Step::Cold => Findings { cold: found.cold, cold_zipf: found.cold_zipf, ..so_far },
        };
    }
}

/// Takes one engine through a part of the phases and prints what was found.
pub fn run(kind: Kind, step: Step, rows: u64, directory: &Path) -> Result<()> {
    // The text of the values is made before anything is counted.
    let _ = Row { number: 0, version: 0 }.value();
    let limits = limits(rows);
    let budget_bytes = 2 * limits.write_buffer_bytes + limits.cache_bytes;
    let mut found = Findings { own_bytes: process::peak_bytes()?, budget_bytes, ..Findings::default() };
    match step {
        Step::Load => {
            let mut engine = kind.open(directory, limits)?;
            found.load = write(&mut *engine, rows, |draw| Row { number: permuted(draw, rows), version: draw })?;
            (found.loaded_bytes, found.loaded_files) = (process::bytes_below(directory)?, engine.files()?);
            engine.close()?;
        }
        Step::Cached => cached(kind, rows, directory, &mut found)?,
        Step::Overwrite => {
            let mut engine = kind.open(directory, limits)?;
            let overwrite = |draw| Row { number: Draw::Mixed.row(5, draw, rows), version: rows + draw };
            found.overwrite = write(&mut *engine, rows, overwrite)?;
            (found.overwritten_bytes, found.overwritten_files) = (process::bytes_below(directory)?, engine.files()?);
            let reads = (0..(rows / 20).clamp(1_000, 200_000)).map(|draw| Read::Row(Draw::Uniform.row(6, draw, rows)));
            found.small_cache = read(&mut *engine, reads, 1)?;
            engine.close()?;
        }
        Step::Cold => {
            found.cold = cold(kind, directory, rows, limits, Draw::Uniform)?;
            found.cold_zipf = cold(kind, directory, rows, limits, Draw::Zipf)?;
        }
    }
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

fn cached(kind: Kind, rows: u64, directory: &Path, found: &mut Findings) -> Result<()> {
    let mut engine = kind.open(directory, Limits { cache_bytes: rows * ROW_BYTES * 3, ..limits(rows) })?;
    let all = (0..rows / ROWS_PER_PARTITION).map(|partition| Read::Partition(partition * ROWS_PER_PARTITION));
    read(&mut *engine, all, ROWS_PER_PARTITION)?;
    let count = (rows / 5).clamp(1_000, 1_000_000);
    found.cached = read(&mut *engine, (0..count).map(|draw| Read::Row(Draw::Uniform.row(1, draw, rows))), 1)?;
    found.cached_zipf = read(&mut *engine, (0..count).map(|draw| Read::Row(Draw::Zipf.row(2, draw, rows))), 1)?;
    found.absent = read(&mut *engine, (0..count).map(|draw| Read::Absent(rows + mixed(draw) % rows)), 0)?;
    let scans = (0..count / 20).map(|draw| Read::Partition(Draw::Uniform.row(4, draw, rows)));
    found.scan = read(&mut *engine, scans, ROWS_PER_PARTITION)?;
    engine.close()
}

/// The `draw`-th of all rows in an order that looks random: each comes once.
fn permuted(draw: u64, rows: u64) -> u64 {
    // Walks along the cycle of a bijection of the numbers below a power of two until it is back among the rows.
    let bits = rows.next_power_of_two().ilog2().max(2);
    let mask = (1_u64 << bits) - 1;
    let mut at = draw;
    loop {
        for _ in 0..3 {
            at = at.wrapping_mul(0x9e37_79b9_7f4a_7c15 | 1) & mask;
            at ^= at >> (bits / 2);
        }
        if at < rows {
            return at;
        }
    }
}

fn write(engine: &mut dyn Engine, rows: u64, row: impl Fn(u64) -> Row) -> Result<Phase> {
    let mut meter = Meter::begin()?;
    let mut drawn = 0;
    while drawn < rows {
        let chunk: Vec<Row> = meter.aside(|| {
            let chunk: Vec<Row> = (drawn..rows.min(drawn + PREPARED as u64)).map(&row).collect();
            engine.prepare_rows(&chunk)?;
            Ok(chunk)
        })?;
        for from in (0..chunk.len()).step_by(GROUP) {
            meter.call(GROUP.min(chunk.len() - from) as u64, || engine.put(from))?;
        }
        drawn += chunk.len() as u64;
    }
    engine.settle()?;
    meter.end()
}

/// Answers all reads, each of which must find so many rows.
fn read(engine: &mut dyn Engine, reads: impl Iterator<Item = Read>, each: u64) -> Result<Phase> {
    let mut meter = Meter::begin()?;
    let mut reads = reads.peekable();
    while reads.peek().is_some() {
        let chunk: Vec<Read> = reads.by_ref().take(PREPARED).collect();
        read_chunk(engine, &mut meter, &chunk, each)?;
    }
    meter.end()
}

fn read_chunk(engine: &mut dyn Engine, meter: &mut Meter, chunk: &[Read], each: u64) -> Result<()> {
    meter.aside(|| engine.prepare_reads(chunk))?;
    for (at, read) in chunk.iter().enumerate() {
        let found = meter.call(1, || engine.read(at))?;
        if found != (Found { rows: each, value_bytes: each * VALUE_BYTES as u64 }) {
            return Err(format!("{read:?} should find {each} rows, and found {found:?}").into());
        }
    }
    Ok(())
}

fn cold(kind: Kind, directory: &Path, rows: u64, limits: Limits, draw: Draw) -> Result<Phase> {
    process::forget_pages(directory)?;
    let mut engine = kind.open(directory, Limits { cache_bytes: 1 << 20, ..limits })?;
    let mut meter = Meter::begin()?;
    let count = (rows / 500).clamp(500, 5_000);
    for begin in (0..count).step_by(COLD_AT_A_TIME as usize) {
        meter.aside(|| process::forget_pages(directory))?;
        let reads = (begin..begin + COLD_AT_A_TIME).map(|at| Read::Row(draw.row(7, at, rows)));
        read_chunk(&mut *engine, &mut meter, &reads.collect::<Vec<_>>(), 1)?;
    }
    let phase = meter.end()?;
    engine.close()?;
    Ok(phase)
}

#[cfg(test)]
mod tests {
    use super::permuted;

    #[test]
    fn each_row_is_written_once_and_not_in_order() {
        for rows in [1, 2, 3, 100, 1000, 4096] {
            let mut drawn: Vec<u64> = (0..rows).map(|draw| permuted(draw, rows)).collect();
            let in_order = drawn.windows(2).filter(|pair| pair[0] < pair[1]).count();
            assert!(rows < 100 || in_order < rows as usize * 2 / 3, "{in_order} of {rows} ascend");
            drawn.sort_unstable();
            assert!(drawn.into_iter().eq(0..rows), "{rows}");
        }
    }
}
