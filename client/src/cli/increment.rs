//! `trefoil increment`: additions to counters.

use clap::Args;

use super::error::Result;
use super::table_name::TableName;
use super::{Global, json, output};

/// Adds to counters of a row. It is sent once: if the outcome is unknown, nobody can say whether it counts.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  trefoil increment demo.hits '{\"page\": \"/\"}' views=1 bytes=1432")]
pub struct Increment {
    /// The table
    #[arg(value_name = "KS.TABLE")]
    table: TableName,
    /// The key: the whole partition key, then the clustering columns; without these: static counters
    #[arg(value_name = "JSON-KEY", value_parser = json::object)]
    key: String,
    /// What to add to which counter; negative to subtract
    #[arg(value_name = "COLUMN=N", required = true, value_parser = add)]
    adds: Vec<(String, i64)>,
}

fn add(text: &str) -> std::result::Result<(String, i64), String> {
    let (column, number) = text.rsplit_once('=').ok_or("expected COLUMN=N, as in views=1")?;
    let number = number.parse().map_err(|error| format!("{number} is no number to add: {error}"))?;
    Ok((column.to_owned(), number))
}

impl Increment {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let client = global.connect().await?;
        let name = self.table.to_string();
        let view = client.table(&name).await?;
        let key = json::read_key(&self.key, &view.table)?;
        let mut increment = client.increment(&name);
        for (column, value) in view.table.partition_key().zip(key.partition) {
            increment = increment.key(&column.name, value);
        }
        for ((column, _), value) in view.table.clustering().zip(key.clustering) {
            increment = increment.key(&column.name, value);
        }
        for (column, number) in self.adds {
            increment = increment.add(column, number);
        }
        let result = increment.send().await?;
        if global.json {
            output::line(&serde_json::json!({ "stamp": result.stamp }).to_string())?;
        }
        Ok(())
    }
}
