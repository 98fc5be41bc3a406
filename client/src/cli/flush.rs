//! `trefoil flush`: memtables to files.

use clap::Args;
use serde_json::json;

use super::error::{Error, Result};
use super::table_name::TableName;
use super::{Global, output};

/// Writes memtables to files on every node that is alive, and waits for it.
#[derive(Debug, Args)]
pub struct Flush {
    /// Only this table
    #[arg(value_name = "KS.TABLE")]
    table: Option<TableName>,
}

impl Flush {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let client = global.connect().await?;
        let name = self.table.map(|table| table.to_string());
        let nodes = client.flush(name.as_deref()).await?.nodes;
        for node in &nodes {
            let error = (!node.error.is_empty()).then_some(&node.error);
            output::line(&if global.json {
                json!({ "node": node.node, "error": error }).to_string()
            } else {
                format!("node {}: {}", node.node, error.map_or("flushed", |error| error))
            })?;
        }
        let failed = nodes.iter().filter(|node| !node.error.is_empty()).count();
        if failed > 0 { Err(Error::Nodes { failed, asked: nodes.len() }) } else { Ok(()) }
    }
}
