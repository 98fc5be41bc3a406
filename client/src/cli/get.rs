//! `trefoil get`: one row, or the rows whose keys begin alike.

use clap::Args;
use futures_util::TryStreamExt;

use super::error::Result;
use super::report::Report;
use super::rows::{Form, Printer};
use super::table_name::TableName;
use super::{Global, json};

/// Reads the row of a key, or all rows whose keys begin with it. Prints one JSON object per line; nothing if there is no
/// such row.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trefoil get demo.kv '{\"key\": 1}'
  trefoil get demo.flights '{\"origin\": \"JFK\", \"year\": 2013, \"month\": 1, \"day\": 31}' --limit 10")]
pub struct Get {
    /// The table
    #[arg(value_name = "KS.TABLE")]
    table: TableName,
    /// The key: the whole partition key, then any number of clustering columns in their order
    #[arg(value_name = "JSON-KEY", value_parser = json::object)]
    key: String,
    /// At most so many rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Tell on the standard error what the read has cost
    #[arg(long)]
    trace: bool,
}

impl Get {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let client = global.connect().await?;
        let name = self.table.to_string();
        let view = client.table(&name).await?;
        let key = json::read_key(&self.key, &view.table)?;
        let mut select = client.select(&name).limit(self.limit.unwrap_or(0));
        for (column, value) in view.table.partition_key().zip(key.partition) {
            select = select.key(&column.name, value);
        }
        for ((column, _), value) in view.table.clustering().zip(key.clustering) {
            select = select.key(&column.name, value);
        }
        let mut printer = Printer::new(&view.table, None, Form::JsonLines, std::io::stdout().lock())?;
        if self.trace {
            select = select.trace();
        }
        let (mut pages, mut report) = (select.pages(), Report::default());
        while let Some(page) = pages.try_next().await? {
            report.page(&page);
            page.rows.iter().try_for_each(|row| printer.print(row))?;
        }
        printer.finish().map(drop)?;
        report.finish(global.json);
        Ok(())
    }
}
