//! Rows of a table at a time, with no more of the logs in memory at once than is said.
//!
//! ```text
//!   tokens   ├── run 1 ──────┼── run 2 ──┼── run 3 ──────────┤
//!            the logs are read once for each run; what lies behind the run's end is let go
//! ```
//!
//! Where a run ends is found out while it is read: whenever there is too much of it, its last tokens are left to the next one. So
//! logs that fit are read once, and others as often as they are larger than the room.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use trefoil::codec::{CheckedRecord, EncodedRow};
use trefoil::memtable::Memtable;
use trefoil::model::{Direction, Fragment, Merge, ScanRange, Slice, Stream, Token, TokenRange};
use trefoil::sstable::FragmentStream;
use trefoil::{Error, Result};

use super::TableAt;

/// Records of the logs that are held at once, in bytes.
const RUN_BYTES: u64 = 256 << 20;

/// Records of one partition that are held at most, in bytes.
const PARTITION_BYTES_MAX: u64 = 4 << 30;

/// What a record takes beside its bytes, about.
const RECORD_BESIDE_BYTES: u64 = 96;

impl TableAt {
    /// What the table holds of the tokens in `range` at the time: files and records. An error where the logs hold more than
    /// 4 GiB of one partition; all else is read in runs of some 256 MiB of records.
    pub fn rows(self: &Arc<Self>, range: TokenRange) -> FragmentStream {
        self.rows_in_runs(range, RUN_BYTES)
    }

    /// The same, in runs of about `run_bytes`.
    pub(super) fn rows_in_runs(self: &Arc<Self>, range: TokenRange, run_bytes: u64) -> FragmentStream {
        Box::new(InRuns { table: self.clone(), run_bytes, left: Some(range), present: None, failed: None })
    }
}

/// One run after the other.
struct InRuns {
    table: Arc<TableAt>,
    run_bytes: u64,
    left: Option<TokenRange>,
    present: Option<Merge<EncodedRow, FragmentStream>>,
    failed: Option<Error>,
}

impl InRuns {
    fn step(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        loop {
            if let Some(present) = &mut self.present
                && let Some(fragment) = present.next()?
            {
                return Ok(Some(fragment));
            }
            // Its memory goes before more is read.
            self.present = None;
            let Some(range) = self.left.take() else { return Ok(None) };
            let mut run = Run { range, bytes_max: self.run_bytes, bytes: 0, records: BTreeMap::new(), next: None };
            self.table.records(range, |record| run.take(&record))?;
            (self.present, self.left) = (Some(run.rows(&self.table)?), run.left());
        }
    }
}

impl Stream<EncodedRow> for InRuns {
    fn next(&mut self) -> Result<Option<Fragment<EncodedRow>>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.step().inspect_err(|error| self.failed = Some(error.clone()))
    }
}

/// The records of as many of the first tokens of a range as there is room for.
struct Run {
    range: TokenRange,
    bytes_max: u64,
    bytes: u64,
    records: BTreeMap<Token, Vec<CheckedRecord>>,
    /// The first token that is left to the next run.
    next: Option<Token>,
}

impl Run {
    fn take(&mut self, record: &CheckedRecord) -> Result<()> {
        let token = record.token();
        if self.next.is_some_and(|next| token >= next) {
            return Ok(());
        }
        // A copy, since it would keep the whole block that it came in.
        let record = CheckedRecord::trusted(Bytes::copy_from_slice(record.bytes()))?;
        self.bytes += held(&record);
        self.records.entry(token).or_default().push(record);
        while self.bytes > self.bytes_max && self.records.len() > 1 {
            let Some((last, gone)) = self.records.pop_last() else { break };
            self.bytes -= gone.iter().map(held).sum::<u64>();
            self.next = Some(last);
        }
        if self.bytes > self.bytes_max.max(PARTITION_BYTES_MAX) {
            let reason =
                format!("the logs behind the backup hold more than {PARTITION_BYTES_MAX} bytes of one partition");
            return Err(Error::invalid("table", reason));
        }
        Ok(())
    }

    /// What files and records hold of the run's tokens. The records go.
    fn rows(&mut self, table: &Arc<TableAt>) -> Result<Merge<EncodedRow, FragmentStream>> {
        let memtable = Arc::new(Memtable::new());
        while let Some((token, records)) = self.records.pop_first() {
            records.iter().try_for_each(|record| memtable.insert(token, &record.mutation()?).map(drop))?;
        }
        let up_to = self.next.map(|next| Token(next.0.saturating_sub(1))).or(self.range.up_to);
        let tokens = TokenRange { up_to, ..self.range };
        let logs = memtable.scan(ScanRange { after: None, tokens }, &[Slice::all()], Direction::Forward);
        Ok(Merge::new(vec![table.files(tokens), logs], Direction::Forward))
    }

    /// The tokens that are left to the next run.
    fn left(&self) -> Option<TokenRange> {
        self.next.map(|next| TokenRange { after: Some(Token(next.0.saturating_sub(1))), ..self.range })
    }
}

fn held(record: &CheckedRecord) -> u64 {
    record.bytes().len() as u64 + RECORD_BESIDE_BYTES
}
