//! `trefoil put`: one row.

use clap::Args;

use super::error::Result;
use super::report::Report;
use super::row::RowInput;
use super::table_name::TableName;
use super::{Global, json, output};
use trefoil::model::Table;
use trefoil_client::{Client, Write};

/// Writes one row. Columns that the object leaves out stay as they are, null deletes them. With the partition key alone
/// static columns are written.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trefoil put demo.kv '{\"key\": 1, \"value\": \"one\"}'
  trefoil put demo.kv '{\"key\": 1, \"value\": null}' --consistency QUORUM")]
pub struct Put {
    /// The table
    #[arg(value_name = "KS.TABLE")]
    table: TableName,
    /// The row, an object with one member per column
    #[arg(value_name = "JSON", value_parser = json::object)]
    row: String,
    /// What is written is gone after so many seconds; 0: never
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u32>,
}

impl Put {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let client = global.connect().await?;
        let view = client.table(&self.table.to_string()).await?;
        let row = json::read_row(&self.row, &view.table)?;
        let mut write = insert(&client, &self.table.to_string(), &view.table, &row);
        if let Some(seconds) = self.ttl {
            write = write.ttl_s(seconds);
        }
        let result = write.send().await?;
        Report::default().warn(&result.warnings);
        if global.json {
            output::line(&serde_json::json!({ "timestamp_us": result.timestamp_us }).to_string())?;
        }
        Ok(())
    }
}

/// The write of a row.
pub fn insert(client: &Client, name: &str, table: &Table, row: &RowInput) -> Write {
    let mut write = client.insert(name);
    for (column, value) in table.partition_key().zip(&row.partition) {
        write = write.key(&column.name, value.clone());
    }
    for ((column, _), value) in table.clustering().zip(&row.clustering) {
        write = write.key(&column.name, value.clone());
    }
    for (place, value) in &row.cells {
        write = write.value(&table.columns[*place].name, value.clone());
    }
    write
}
