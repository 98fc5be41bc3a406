//! `trefoil delete`: a row, a range of rows, or a partition.

use clap::Args;

use super::error::Result;
use super::table_name::TableName;
use super::{Global, json, output};

/// Deletes the row of a whole key, all rows whose keys begin with a shorter one, or with the partition key alone the
/// partition, static columns too.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trefoil delete demo.kv '{\"key\": 1}'
  trefoil delete demo.flights '{\"origin\": \"JFK\", \"year\": 2013, \"month\": 1, \"day\": 31}'")]
pub struct Delete {
    /// The table
    #[arg(value_name = "KS.TABLE")]
    table: TableName,
    /// The key: the whole partition key, then any number of clustering columns in their order
    #[arg(value_name = "JSON-KEY", value_parser = json::object)]
    key: String,
}

impl Delete {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let client = global.connect().await?;
        let name = self.table.to_string();
        let view = client.table(&name).await?;
        let key = json::read_key(&self.key, &view.table)?;
        let mut write = client.delete(&name);
        for (column, value) in view.table.partition_key().zip(key.partition) {
            write = write.key(&column.name, value);
        }
        for ((column, _), value) in view.table.clustering().zip(key.clustering) {
            write = write.key(&column.name, value);
        }
        let result = write.send().await?;
        if global.json {
            output::line(&serde_json::json!({ "timestamp_us": result.timestamp_us }).to_string())?;
        }
        Ok(())
    }
}
