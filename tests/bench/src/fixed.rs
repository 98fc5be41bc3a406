//! Work whose amount never changes, for counting instructions: they repeat exactly where times do not.
//!
//! One thread, no sockets, no clock. Only the rows differ from one operation to the next.

use clap::ValueEnum;
use trefoil::codec::Record;
use trefoil::codec::mutation::{decode_mutation, table_of, token_of};
use trefoil::model::Slice;

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
    /// Each mutation encoded as a record, taken apart again and checked.
    Codec,
}

/// Does it.
pub fn run(work: Work) -> Result<()> {
    match work {
        Work::Codec => codec(),
        Work::Write => write().map(drop),
        Work::Read => read(),
    }
}

fn codec() -> Result<()> {
    let mut bytes = 0;
    for row in 0..ROWS {
        let record = Record::decode(data::record_of(&data::mutation(row)?, row + 1).bytes)?;
        let token = token_of(&record.mutation)?;
        let parts = decode_mutation(record.mutation.clone())?;
        if parts.key.token() != token || table_of(&record.mutation)? != parts.table {
            return Err(format!("row {row} is not what it was").into());
        }
        bytes += record.bytes.len();
    }
    println!("{ROWS} mutations, {bytes} bytes of records");
    Ok(())
}

fn write() -> Result<(tempfile::TempDir, trefoil::store::Store)> {
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
