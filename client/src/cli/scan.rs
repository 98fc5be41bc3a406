//! `trefoil scan`: the rows of a table, or their number.

use clap::Args;
use futures_util::TryStreamExt;
use trefoil::model::{ColumnKind, Table};
use trefoil_client::{Client, Rows, Select};

use super::error::{Error, Result};
use super::progress::Progress;
use super::report::Report;
use super::rows::{Form, Format, Printer, columns_of};
use super::table_name::TableName;
use super::{Global, output};

/// Prints the rows of a table, by token and key. Rows that stand for static columns alone are printed with a null
/// clustering key; they are not counted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trefoil scan demo.flights --count
  trefoil scan demo.flights --format csv --columns origin,dest,dep_delay --null NA")]
pub struct Scan {
    /// The table
    #[arg(value_name = "KS.TABLE")]
    table: TableName,
    /// Print the number of rows only
    #[arg(long, conflicts_with_all = ["format", "columns", "null"])]
    count: bool,
    /// How to print rows
    #[arg(long, default_value = "jsonl")]
    format: Format,
    /// Only these columns, in this order
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// The word for null in CSV
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    null: String,
    /// Tell on the standard error what the read has cost
    #[arg(long)]
    trace: bool,
}

impl Scan {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let client = global.connect().await?;
        let name = self.table.to_string();
        if self.count {
            let rows = count(client.select(&name), self.trace, global.json).await?;
            let text = if global.json { serde_json::json!({ "rows": rows }).to_string() } else { rows.to_string() };
            return output::line(&text);
        }
        let view = client.table(&name).await?;
        let form = form(self.format, &self.null)?;
        let select = select(&client, &name, &view.table, self.columns.as_deref())?;
        let (mut pages, mut report) = (traced(select, self.trace).pages(), Report::default());
        let mut printer = Printer::new(&view.table, self.columns.as_deref(), form, std::io::stdout().lock())?;
        while let Some(page) = pages.try_next().await? {
            report.page(&page);
            page.rows.iter().try_for_each(|row| printer.print(row))?;
        }
        printer.finish().map(drop)?;
        report.finish(global.json);
        Ok(())
    }
}

/// How rows are printed in a format.
pub fn form(format: Format, null: &str) -> Result<Form<'_>> {
    if null.contains(['"', ',', '\n', '\r']) {
        return Err(Error::Usage("--null takes no quotes, commas or line ends"));
    }
    Ok(match format {
        Format::Jsonl => Form::JsonLines,
        Format::Csv => Form::Csv { null },
    })
}

/// All rows of a table with these columns, beside those of the key.
pub fn rows(client: &Client, name: &str, table: &Table, columns: Option<&[String]>) -> Result<Rows> {
    Ok(select(client, name, table, columns)?.stream())
}

fn select(client: &Client, name: &str, table: &Table, columns: Option<&[String]>) -> Result<Select> {
    let select = client.select(name);
    let Some(names) = columns else { return Ok(select) };
    let columns = columns_of(table, Some(names))?.into_iter();
    let others = columns.filter(|column| matches!(column.kind, ColumnKind::Static | ColumnKind::Regular));
    let mut others: Vec<&str> = others.map(|column| column.name.as_str()).collect();
    others.sort_unstable();
    others.dedup();
    Ok(select.columns(others))
}

fn traced(select: Select, is_traced: bool) -> Select {
    if is_traced { select.trace() } else { select }
}

async fn count(select: Select, is_traced: bool, json: bool) -> Result<u64> {
    let progress = Progress::rows();
    let mut pages = traced(select.columns(None::<String>), is_traced).pages();
    let (mut count, mut report) = (0, Report::default());
    while let Some(page) = pages.try_next().await? {
        report.page(&page);
        let rows = page.rows.iter().filter(|row| !row.is_static_only()).count() as u64;
        count += rows;
        progress.rows_done(rows);
    }
    progress.clear();
    report.finish(json);
    Ok(count)
}
