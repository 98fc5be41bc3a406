//! How long a store of a given size takes to open that was closed in order: its log is clean.

use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use trefoil::codec::CheckedRecord;
use trefoil::model::Stamp;

use super::process;
use crate::data::{self, mixed};
use crate::{Result, engine};

/// Bytes of a value, random: what is stored is as large as what is written.
const VALUE_BYTES: usize = 1000;
const ROUNDS: usize = 3;
const MEMTABLES_BYTES: u64 = 128 << 20;
/// Records that are made at a time.
const PREPARED: u64 = 4096;

/// What was found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Findings {
    /// Bytes of its SSTables, and how many they are.
    pub sstable_bytes: u64,
    /// See there.
    pub sstables: u64,
    /// Seconds to open it when the kernel holds nothing of its files.
    pub cold_s: Vec<f64>,
    /// Seconds when the kernel holds them.
    pub warm_s: Vec<f64>,
    /// Seconds of CPU of a warm one.
    pub cpu_s: Vec<f64>,
}

/// Prints what was found.
pub fn run(bytes: u64, directory: &Path) -> Result<()> {
    let open = || engine::store::open_with(directory, MEMTABLES_BYTES, 32 << 20);
    let store = open()?;
    let mut names = data::Names::behind(Stamp(0))?;
    let rows = bytes / VALUE_BYTES as u64;
    for begin in (0..rows).step_by(PREPARED as usize) {
        let records: Vec<CheckedRecord> =
            (begin..rows.min(begin + PREPARED)).map(|row| record(&mut names, row)).collect::<Result<_>>()?;
        engine::store::load(&store, &records)?;
    }
    store.flush(None)?;
    let status = store.status();
    store.close()?;
    drop(store);
    let mut found = Findings { sstable_bytes: status.sstable_bytes, sstables: status.sstables, ..Findings::default() };
    for _ in 0..ROUNDS {
        process::forget_pages(directory)?;
        for seconds in [&mut found.cold_s, &mut found.warm_s] {
            let (begun, cpu) = (Instant::now(), process::cpu());
            let store = open()?;
            seconds.push(begun.elapsed().as_secs_f64());
            found.cpu_s.push((process::cpu() - cpu).as_secs_f64());
            store.close()?;
        }
    }
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

fn record(names: &mut data::Names, number: u64) -> Result<CheckedRecord> {
    let words = (0..VALUE_BYTES.div_ceil(8) as u64).flat_map(|word| mixed(number ^ (word << 48)).to_le_bytes());
    let value: Bytes = words.take(VALUE_BYTES).collect();
    Ok(names.record(&data::mutation_of(number, number, value)?))
}
