//! `trefoil check`: whether a stopped node's files are as they must be.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value as Json, json};
use trefoil::store::CheckReport;

use super::error::{Error, Result};
use super::{Global, output, stopped};

/// Checks the files of a stopped node: identity, manifest, every byte of every SSTable, the commit log, and that they fit
/// together. Nothing is written. A running node's directory is refused.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 nothing is wrong, 1 something is, or the directory cannot be checked.")]
pub struct Check {
    /// The node's data directory (`node.data_dir`), or the folder `store` in it
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

impl Check {
    /// Does it.
    pub fn run(self, global: &Global) -> Result<()> {
        let report = stopped::store(&self.dir)?.check();
        if global.json {
            output::line(&as_json(&report).to_string())?;
        } else {
            print(&report)?;
        }
        if report.findings.is_empty() { Ok(()) } else { Err(Error::Faults(report.findings.len())) }
    }
}

fn print(report: &CheckReport) -> Result<()> {
    report.findings.iter().try_for_each(|finding| output::line(&finding.to_string()))?;
    report.notes.iter().try_for_each(|note| output::line(&format!("note: {note}")))?;
    let owner = report
        .identity
        .map_or("somebody".to_owned(), |identity| format!("node {} of cluster {}", identity.node.0, identity.cluster));
    output::line(&format!(
        "{owner}: {} SSTables, {}; {} snapshots; {} log segments, {}, {} records; {}",
        report.sstables,
        output::bytes(report.sstable_bytes),
        report.snapshots,
        report.log_segments,
        output::bytes(report.log_bytes),
        report.log_records,
        if report.findings.is_empty() { "nothing is wrong" } else { "not as it must be" }
    ))
}

fn as_json(report: &CheckReport) -> Json {
    json!({
        "cluster": report.identity.map(|identity| identity.cluster.to_string()),
        "node": report.identity.map(|identity| identity.node.0),
        "sstables": report.sstables,
        "sstable_bytes": report.sstable_bytes,
        "snapshots": report.snapshots,
        "log_segments": report.log_segments,
        "log_bytes": report.log_bytes,
        "log_records": report.log_records,
        "findings": report.findings.iter().map(stopped::fault).collect::<Vec<_>>(),
        "notes": report.notes,
    })
}
