//! `trefoil export`: a table as a file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::TryStreamExt;

use super::error::{Error, Result};
use super::progress::{Progress, Summary};
use super::rows::{Format, Printer};
use super::table_name::TableName;
use super::{Global, output, scan};

/// Writes all rows of a table to a file, which appears under its name once it is whole; without a file to the standard
/// output. What is exported can be imported again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trefoil export demo.flights flights.csv.gz --null NA
  trefoil export demo.flights --format jsonl > flights.jsonl")]
pub struct Export {
    /// The table
    #[arg(value_name = "KS.TABLE")]
    table: TableName,
    /// The file, compressed if its name ends in .gz
    #[arg(value_name = "FILE[.gz]")]
    file: Option<PathBuf>,
    /// How to write rows
    #[arg(long, default_value = "csv")]
    format: Format,
    /// Only these columns, in this order
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// The word for null in CSV
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    null: String,
}

impl Export {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let Some(file) = &self.file else {
            let (summary, _) = self.write(global, io::stdout().lock()).await?;
            output::note(&if global.json { summary.json().to_string() } else { summary.text() });
            return Ok(());
        };
        let part = part_of(file);
        let created = File::create(&part).map_err(|source| Error::file("create", &part, source))?;
        let done = if file.extension().is_some_and(|extension| extension == "gz") {
            let gzip = GzEncoder::new(created, Compression::fast());
            match self.write(global, gzip).await {
                Ok((summary, gzip)) => gzip.finish().map(|file| (summary, file)).map_err(|error| failed(&part, error)),
                Err(error) => Err(error),
            }
        } else {
            self.write(global, created).await
        };
        let named = done.and_then(|(summary, created)| {
            created.sync_all().and_then(|()| std::fs::rename(&part, file)).map_err(|error| failed(file, error))?;
            Ok(summary)
        });
        if named.is_err() {
            // What is left is not whole and would only be taken for it.
            let _ = std::fs::remove_file(&part);
        }
        let summary = named?;
        output::line(&if global.json { summary.json().to_string() } else { summary.text() })
    }

    async fn write<W: Write>(&self, global: &Global, out: W) -> Result<(Summary, W)> {
        let started = Instant::now();
        let client = global.connect().await?;
        let name = self.table.to_string();
        let view = client.table(&name).await?;
        let form = scan::form(self.format, &self.null)?;
        let columns = self.columns.as_deref();
        let mut rows = scan::rows(&client, &name, &view.table, columns)?;
        let mut printer = Printer::new(&view.table, columns, form, out)?;
        let progress = Progress::rows();
        let mut count = 0;
        while let Some(row) = rows.try_next().await? {
            printer.print(&row)?;
            count += 1;
            progress.rows_done(1);
        }
        progress.clear();
        let bytes = printer.bytes;
        let out = printer.finish()?;
        Ok((Summary { rows: count, bytes, elapsed: started.elapsed() }, out))
    }
}

/// Where a file is written before it is whole.
fn part_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::file("write to", path, source)
}
