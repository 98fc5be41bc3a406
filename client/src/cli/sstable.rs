//! `trefoil sstable`: single files of a stopped node, or of a copy.

mod dump;
mod stats;
mod verify;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::error::{Error, Result};
use super::stopped::{self, Sstables};
use super::{Global, output};

/// Looks into SSTables: one file, or every .sst in a directory. Nothing is written. Files of a running node are refused.
#[derive(Debug, Subcommand)]
pub enum SstableCommand {
    /// Print partitions, rows and range deletions as JSON lines; keys in hex where no manifest beside the file knows the table
    Dump(Target),
    /// Show counts, bounds, sizes and vnodes
    Stats(Target),
    /// Compare every byte with its checksum, and with the hash if a manifest beside it lists the file
    Verify(Target),
}

/// What to look into.
#[derive(Debug, Args)]
pub struct Target {
    /// A file, or a directory: then every .sst in it
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
}

impl SstableCommand {
    /// Does it.
    pub fn run(self, global: &Global) -> Result<()> {
        match self {
            SstableCommand::Dump(target) => target.each(global, |path, sstables| dump::dump(path, &sstables.tables())),
            SstableCommand::Stats(target) => target.each(global, |path, _| stats::show(path, global)),
            SstableCommand::Verify(target) => verify::run(&Sstables::at(&target.path)?, global),
        }
    }
}

impl Target {
    /// Does something with each file. One that is damaged is named, and the next ones have their turn.
    fn each(&self, global: &Global, mut show: impl FnMut(&Path, &Sstables) -> Result<()>) -> Result<()> {
        let sstables = Sstables::at(&self.path)?;
        let mut faults = 0;
        for path in &sstables.paths {
            match show(path, &sstables) {
                Err(Error::Store(error)) => {
                    faults += 1;
                    output::note(&if global.json { stopped::fault(&error).to_string() } else { error.to_string() });
                }
                other => other?,
            }
        }
        if faults == 0 { Ok(()) } else { Err(Error::Faults(faults)) }
    }
}
