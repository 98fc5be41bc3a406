//! What the cluster says of a request beside its answer: warnings, and what a read has cost. Both go to the standard error.

use std::collections::BTreeSet;

use trefoil_client::{Page, ReadCost};

use super::output;

/// What was said so far.
#[derive(Debug, Default)]
pub struct Report {
    warned: BTreeSet<String>,
    cost: Option<ReadCost>,
    pages: u64,
}

impl Report {
    /// Takes in what a page says; each warning is printed once.
    pub fn page(&mut self, page: &Page) {
        self.warn(&page.warnings);
        self.pages += 1;
        if let Some(cost) = page.cost {
            let sum = self.cost.get_or_insert_default();
            sum.sstables_read += cost.sstables_read;
            sum.sstables_skipped += cost.sstables_skipped;
            sum.blocks_cached += cost.blocks_cached;
            sum.blocks_read += cost.blocks_read;
            sum.bytes_read += cost.bytes_read;
            sum.rows += cost.rows;
            sum.tombstones += cost.tombstones;
            sum.commands += cost.commands;
        }
    }

    /// Prints warnings that were not printed yet.
    pub fn warn(&mut self, warnings: &[String]) {
        for warning in warnings {
            if self.warned.insert(warning.clone()) {
                output::note(&format!("warning: {warning}"));
            }
        }
    }

    /// Prints what all pages have cost, if they said so: one line, or one JSON object.
    pub fn finish(&self, json: bool) {
        if let Some(cost) = &self.cost {
            output::note(&if json { as_json(cost, self.pages) } else { as_text(cost, self.pages) });
        }
    }
}

fn as_text(cost: &ReadCost, pages: u64) -> String {
    format!(
        "cost: {pages} pages, {} commands; SSTables {} read, {} skipped; blocks {} cached, {} read ({}); {} rows, \
         {} tombstones",
        cost.commands,
        cost.sstables_read,
        cost.sstables_skipped,
        cost.blocks_cached,
        cost.blocks_read,
        output::bytes(cost.bytes_read),
        cost.rows,
        cost.tombstones,
    )
}

fn as_json(cost: &ReadCost, pages: u64) -> String {
    serde_json::json!({ "cost": {
        "pages": pages,
        "commands": cost.commands,
        "sstables_read": cost.sstables_read,
        "sstables_skipped": cost.sstables_skipped,
        "blocks_cached": cost.blocks_cached,
        "blocks_read": cost.blocks_read,
        "bytes_read": cost.bytes_read,
        "rows": cost.rows,
        "tombstones": cost.tombstones,
    } })
    .to_string()
}
