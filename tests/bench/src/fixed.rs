//! Work whose amount never changes, for counting instructions: they repeat exactly where times do not.
//!
//! One thread, no sockets, no clock. Only the rows differ from one operation to the next.

use clap::ValueEnum;
use trefoil::codec::CheckedRecord;
use trefoil::model::{Slice, Stamp};
use trefoil::store::Store;

use crate::engine::store;
use crate::{Result, data};

/// Rows that are worked on: many times what the processor's caches hold of rows, few enough for a counting emulator.
const ROWS: u64 = 20_000;

/// What is done to them.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Work {
    /// Log and memtable of one node, in groups of 64.
    Write,
    /// The same, then each row read from the memtable, and again from files.
    Read,
    /// The same, then each partition read whole from one file, five times.
    Scan,
    /// Four files with a quarter of each partition's rows in each, written and then each partition read whole, five times.
    Interleaved,
    /// Each mutation encoded as a record and checked, as whoever it is sent to does.
    Codec,
}

/// Does it.
pub fn run(work: Work) -> Result<()> {
    match work {
        Work::Codec => codec(),
        Work::Write => write().map(drop),
        Work::Read => read(),
        Work::Scan => scan(),
        Work::Interleaved => interleaved(),
    }
}

fn codec() -> Result<()> {
    let (mut bytes, mut names) = (0, data::Names::behind(Stamp(0))?);
    for row in 0..ROWS {
        let record = names.record(&data::mutation(row)?);
        let (checked, _) = CheckedRecord::check(record.bytes().clone())?;
        let rows = checked.mutation()?.rows;
        if checked.token() != record.token() || checked.table() != record.table() || rows.len() != 1 {
            return Err(format!("row {row} is not what it was").into());
        }
        bytes += record.bytes().len();
    }
    println!("{ROWS} mutations, {bytes} bytes of records");
    Ok(())
}

fn write() -> Result<(tempfile::TempDir, Store)> {
    let directory = tempfile::tempdir()?;
    let opened = store::open(directory.path(), 1 << 30)?;
    let written = store::load(&opened, &data::records(ROWS)?)?;
    println!("{written} rows written");
    Ok((directory, opened))
}

fn read() -> Result<()> {
    let (_directory, opened) = write()?;
    let rows = data::shuffled(ROWS).into_iter();
    let commands: Vec<_> =
        rows.map(|row| store::command(row, Slice::one(&data::clustering(row)?), 1)).collect::<Result<_>>()?;
    let from_memory = store::read(&opened, &commands)?;
    opened.flush(None)?;
    println!("{from_memory} rows read from memory, {} from files", store::read(&opened, &commands)?);
    Ok(())
}

fn scan() -> Result<()> {
    let (_directory, opened) = write()?;
    opened.flush(None)?;
    read_partitions(&opened)
}

fn interleaved() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let opened = store::open(directory.path(), 1 << 30)?;
    for quarter in data::records(ROWS)?.chunks(ROWS as usize / 4) {
        store::load(&opened, quarter)?;
        opened.flush(None)?;
    }
    read_partitions(&opened)
}

fn read_partitions(opened: &Store) -> Result<()> {
    let firsts = (0..ROWS).step_by(data::ROWS_PER_PARTITION as usize);
    let commands: Vec<_> =
        firsts.map(|row| store::command(row, Slice::all(), data::ROWS_PER_PARTITION as u32)).collect::<Result<_>>()?;
    for _ in 0..5 {
        println!("{} partitions read", store::read(opened, &commands)?);
    }
    Ok(())
}
