//! `trefoil import`: a file of rows into a table.
//!
//! ```text
//! file ─► source (a thread: unpack, split, parse, at most a few chunks ahead) ─► groups by partition ─► load (many in flight)
//! ```
//!
//! Every row has a timestamp that rises with its line and is fixed when the line is read. So a row may be written any
//! number of times, and of two lines with one key the later wins, in whatever order they arrive: an import survives nodes
//! that come and go, and may be begun again at any line.

mod load;
mod source;

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::json;

use super::error::{Error, Result};
use super::progress::{Progress, Summary};
use super::rows::Format;
use super::table_name::TableName;
use super::{Global, output, scan};
use load::{Load, Loaded, Target};
use source::{Rejects, Source};

/// Requests in flight, unless said otherwise.
const IN_FLIGHT: &str = "64";

/// Loads a file into a table. CSV begins with a header that names columns of the table, in any order; in JSON lines each
/// line is an object. Null in CSV is a field without quotes that is the word for null.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trefoil import demo.flights flights.csv.gz --null NA --consistency QUORUM
  trefoil import demo.flights flights.csv.gz --null NA --max-errors 100 --reject bad.csv
  trefoil import demo.flights flights.csv.gz --null NA --skip-lines 120000

A bad line stops the import; it then says with which --skip-lines to go on. Doing lines again does no harm.")]
pub struct Import {
    /// The table
    #[arg(value_name = "KS.TABLE")]
    table: TableName,
    /// The file, unpacked if its name ends in .gz; - is the standard input
    #[arg(value_name = "FILE[.gz]")]
    file: PathBuf,
    /// What the file is; else its name says (.csv, .jsonl)
    #[arg(long)]
    format: Option<Format>,
    /// The word for null in CSV
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    null: String,
    /// Leave out the first lines of the file; the header of a CSV is read all the same
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_lines: u64,
    /// Go on after so many bad lines
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_errors: u64,
    /// Where bad lines are written as they were
    #[arg(long, value_name = "FILE", requires = "max_errors")]
    reject: Option<PathBuf>,
    /// Requests in flight
    #[arg(long, value_name = "N", default_value = IN_FLIGHT, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: u32,
}

/// Why an import stopped, and how to go on.
#[derive(Debug)]
pub struct Stopped {
    /// The line that did not get in, if it is one line's fault.
    pub line: Option<u64>,
    /// Column and reason.
    pub reason: String,
    /// Everything up to this line is in the table, or was rejected.
    pub done_through: u64,
    /// Rows that were written.
    pub rows: u64,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.reason)?,
            None => f.write_str(&self.reason)?,
        }
        write!(f, "\n{} rows were written; go on with --skip-lines {}", self.rows, self.done_through)?;
        match self.line.filter(|line| *line == self.done_through + 1) {
            Some(line) => write!(f, " once the line is right, or leave it out with --skip-lines {line}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Stopped {}

impl Import {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let started = Instant::now();
        let format = self.format()?;
        scan::form(format, &self.null)?;
        let client = global.connect_with(load::TIMEOUT, self.in_flight as usize).await?;
        let name = self.table.to_string();
        let view = client.table(&name).await?;
        let rejects = Rejects::new(self.max_errors, self.reject.as_deref())?;
        let source = Source::open(&self.file, format, view.table.clone().into(), self.null, self.skip_lines)?;
        let progress = Progress::of_file(source.file_bytes());
        let position = source.position();
        let (chunks, thread) = source.start(rejects, progress.clone());
        let target = Target { client: &client, name, view };
        let load = Load::new(target, self.in_flight as usize, self.skip_lines, progress.clone(), position.clone());
        let loaded = load.run(chunks).await;
        progress.clear();
        // The thread has ended, or ends at its next chunk since nobody takes it any more.
        let rejected = thread.join().unwrap_or_default();
        let loaded = loaded?;
        let summary = Summary { rows: loaded.rows, bytes: position.unpacked(), elapsed: started.elapsed() };
        print_summary(global, &summary, &loaded, rejected)
    }

    fn format(&self) -> Result<Format> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        let name = self.file.to_string_lossy();
        match name.trim_end_matches(".gz").rsplit_once('.') {
            Some((_, "csv")) => Ok(Format::Csv),
            Some((_, "jsonl" | "ndjson")) => Ok(Format::Jsonl),
            _ => Err(Error::Usage("the name of the file does not say what it is; add --format csv or --format jsonl")),
        }
    }
}

fn print_summary(global: &Global, summary: &Summary, loaded: &Loaded, rejected: u64) -> Result<()> {
    if !global.json {
        let mut text = summary.text();
        if rejected > 0 {
            text += &format!(", {rejected} bad lines left out");
        }
        if loaded.retries > 0 {
            text += &format!(", {} requests sent again", loaded.retries);
        }
        return output::line(&text);
    }
    let mut summary = summary.json();
    if let Some(fields) = summary.as_object_mut() {
        fields.insert("rejected".to_owned(), json!(rejected));
        fields.insert("requests".to_owned(), json!(loaded.requests));
        fields.insert("retries".to_owned(), json!(loaded.retries));
    }
    output::line(&summary.to_string())
}

#[cfg(test)]
mod tests;
