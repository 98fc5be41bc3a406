//! `fjall`, with the sizes that the others have and its own defaults in everything else.

use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use trefoil::sstable::BLOCK_BYTES;

use super::rows::Wanted;
use super::{Engine, Found, GROUP, Limits, Read, Row};
use crate::Result;

/// As many as the others have threads in the background.
const WORKERS: usize = 2;

/// How often it is looked whether anything goes on in the background.
const LOOK: Duration = Duration::from_millis(10);
/// For how many looks nothing must go on.
const QUIET: usize = 5;

pub struct Fjall {
    database: Database,
    keyspace: Keyspace,
    rows: Vec<Row>,
    reads: Vec<Wanted>,
}

impl Fjall {
    pub fn open(directory: &Path, limits: Limits) -> Result<Fjall> {
        let database = Database::builder(directory).cache_size(limits.cache_bytes).worker_threads(WORKERS).open()?;
        let keyspace = database.keyspace("rows", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(limits.write_buffer_bytes)
                .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES as u32))
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
                .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(limits.write_buffer_bytes)))
        })?;
        Ok(Fjall { database, keyspace, rows: Vec::new(), reads: Vec::new() })
    }
}

impl Engine for Fjall {
    fn prepare_rows(&mut self, rows: &[Row]) -> Result<()> {
        self.rows = rows.to_vec();
        Ok(())
    }

    fn put(&mut self, from: usize) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        for row in &self.rows[from..self.rows.len().min(from + GROUP)] {
            batch.insert(&self.keyspace, row.key(), row.value());
        }
        Ok(batch.commit()?)
    }

    fn prepare_reads(&mut self, reads: &[Read]) -> Result<()> {
        self.reads = reads.iter().map(|read| Wanted::of(*read)).collect();
        Ok(())
    }

    fn read(&mut self, at: usize) -> Result<Found> {
        let mut found = Found::default();
        match self.reads[at] {
            Wanted::One(key) => self.keyspace.get(key)?.iter().for_each(|value| found.value(value)),
            Wanted::Range(first, last) => {
                for row in self.keyspace.range(first..=last) {
                    found.value(&row.value()?);
                }
            }
        }
        Ok(found)
    }

    fn settle(&mut self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait()?;
        let (mut quiet, mut before) = (0, self.database.compactions_completed());
        while quiet < QUIET {
            sleep(LOOK);
            let completed = self.database.compactions_completed();
            let is_idle = self.database.active_compactions() == 0 && self.database.outstanding_flushes() == 0;
            quiet = if is_idle && completed == before { quiet + 1 } else { 0 };
            before = completed;
        }
        Ok(())
    }

    fn files(&self) -> Result<u64> {
        Ok(self.keyspace.table_count() as u64)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}
