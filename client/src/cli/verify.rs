//! `trefoil verify`: whether all replicas of a table hold the same.

use std::collections::BTreeMap;

use clap::Args;
use futures_util::TryStreamExt;
use serde_json::{Value as Json, json};
use trefoil::model::Table;
use trefoil_client::Value;
use trefoil_proto::convert::value::to_bytes;
use trefoil_proto::v1::{DifferingPartition, PartitionHeld, VerifyProgress};

use super::error::{Error, Result};
use super::json::{print_string, print_value};
use super::progress::Progress;
use super::table_name::TableName;
use super::text::hex;
use super::{Global, output};

/// Compares what all replicas of a table hold, deletions included, and names the partitions that differ. Reads the whole
/// table on every node.
#[derive(Debug, Args)]
pub struct Verify {
    /// The table
    #[arg(value_name = "KS.TABLE")]
    table: TableName,
    /// Name at most so many partitions that differ; the others are counted
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    name_at_most: u32,
}

impl Verify {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let client = global.connect().await?;
        let name = self.table.to_string();
        let view = client.table(&name).await?;
        let mut messages = client.verify(&name, self.name_at_most).await?;
        let progress = Progress::vnodes();
        let mut last = VerifyProgress::default();
        while let Some(message) = messages.try_next().await? {
            progress.vnodes_done(message.vnodes_done, message.vnodes);
            for differing in &message.differing {
                progress.aside(|| output::line(&difference(differing, &view.table, global.json)))?;
            }
            for one in &message.not_compared {
                progress.note(&format!("node {}: {}", one.node, one.reason));
            }
            last = message;
        }
        progress.clear();
        output::line(&summary(&name, &last, global.json))?;
        outcome(&last)
    }
}

/// An error if replicas differ, or if nobody knows.
fn outcome(last: &VerifyProgress) -> Result<()> {
    if last.differing_partitions > 0 {
        return Err(Error::Differing { partitions: last.differing_partitions });
    }
    match last.vnodes - last.vnodes_done + last.vnodes_not_compared {
        0 if last.vnodes > 0 => Ok(()),
        vnodes => Err(Error::NotCompared { vnodes, all: last.vnodes }),
    }
}

fn summary(name: &str, last: &VerifyProgress, is_json: bool) -> String {
    let VerifyProgress { vnodes, vnodes_not_compared, partitions, differing_partitions, .. } = last;
    let is_equal = outcome(last).is_ok();
    if is_json {
        return json!({
            "table": name,
            "equal": is_equal,
            "partitions": partitions,
            "differing_partitions": differing_partitions,
            "vnodes": vnodes,
            "vnodes_not_compared": vnodes_not_compared,
        })
        .to_string();
    }
    let what = match (is_equal, differing_partitions) {
        (true, _) => "all replicas hold the same".to_owned(),
        (false, 0) => "no difference was found".to_owned(),
        (false, differing) => format!("{differing} differ"),
    };
    let unknown = match vnodes_not_compared {
        0 => String::new(),
        unknown => format!("; {unknown} of {vnodes} vnodes could not be compared on all replicas"),
    };
    format!("{name}: {partitions} partitions compared, {what}{unknown}")
}

fn difference(differing: &DifferingPartition, table: &Table, is_json: bool) -> String {
    let key = key_of(differing, table);
    if is_json {
        let held = differing.held.iter().map(|held| {
            let digest = (!held.digest.is_empty()).then(|| hex(&held.digest));
            json!({ "node": held.node, "digest": digest, "rows": held.rows })
        });
        let key: Json = serde_json::from_str(&key).unwrap_or(Json::Null);
        return json!({ "key": key, "held": held.collect::<Vec<_>>() }).to_string();
    }
    let mut groups: BTreeMap<&[u8], Vec<&PartitionHeld>> = BTreeMap::new();
    for held in &differing.held {
        groups.entry(held.digest.as_ref()).or_default().push(held);
    }
    let group = |(digest, holders): (&&[u8], &Vec<&PartitionHeld>)| {
        let nodes = holders.iter().map(|held| held.node.to_string()).collect::<Vec<_>>().join(", ");
        match digest.is_empty() {
            true => format!("node {nodes}: nothing"),
            false => format!("node {nodes}: {} rows ({})", holders[0].rows, &hex(digest)[2..10]),
        }
    };
    format!("{key}  {}", groups.iter().map(group).collect::<Vec<_>>().join("; "))
}

/// The key as `trefoil get` takes it.
fn key_of(differing: &DifferingPartition, table: &Table) -> String {
    let mut text = String::from("{");
    for (at, (column, value)) in table.partition_key().zip(&differing.key).enumerate() {
        if at > 0 {
            text.push(',');
        }
        print_string(&column.name, &mut text);
        text.push(':');
        let bytes = to_bytes(value.clone(), &column.ty).ok().flatten();
        match bytes.map(|bytes| Value::decode(&column.ty, &bytes)) {
            Some(Ok(Some(value))) => print_value(&value, &column.ty, &mut text),
            _ => text.push_str("null"),
        }
    }
    text.push('}');
    text
}
