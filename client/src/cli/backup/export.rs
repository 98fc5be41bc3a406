//! `trefoil backup export` and `get`: rows straight from the bucket, as they were at a time.

use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use tokio::runtime::Handle;
use trefoil::codec::EncodedRow;
use trefoil::model::{
    Bound, Fragment, Order, PartitionKey, Stamp, Stream, Table, Token, TokenRange, Type, Value, Vnode, VnodeBits,
};
use trefoil::sstable::FragmentStream;
use trefoil_s3::repository::TableAt;
use uuid::Uuid;

use super::super::error::{Error, Result};
use super::super::moment::{shown, time};
use super::super::rows::Form;
use super::super::table_name::TableName;
use super::super::{Global, json, merged, output};
use super::bucket::Bucket;

/// Prints the rows that a table had at a time, all replicas merged, straight from the bucket: no cluster takes part.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trefoil backup export --at 2026-01-31T12:30:00Z demo.flights > flights.jsonl
  trefoil backup export --at 2026-01-31T12:30:00Z demo.flights --part 2/8 > flights-2.jsonl")]
pub struct ExportBackup {
    /// The table, as it was called then
    #[arg(value_name = "KS.TABLE")]
    table: TableName,
    #[command(flatten)]
    moment: At,
    /// How to write rows
    #[arg(long, default_value = "jsonl")]
    format: Rows,
    /// Only the i-th of n parts of the ring: together they are the table
    #[arg(long, value_name = "I/N", default_value = "1/1", hide_default_value = true)]
    part: PartOf,
}

/// Prints the row that a key had at a time, or all rows whose keys begin with it, straight from the bucket.
#[derive(Debug, Args)]
pub struct GetBackup {
    /// The table, as it was called then
    #[arg(value_name = "KS.TABLE")]
    table: TableName,
    /// The key: the whole partition key, then any number of clustering columns in their order
    #[arg(value_name = "JSON-KEY", value_parser = json::object)]
    key: String,
    #[command(flatten)]
    moment: At,
}

/// Which time, of which backups.
#[derive(Debug, Args)]
struct At {
    /// The time; everything stamped at it or before counts
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Stamp,
    /// The backup to begin with, instead of the newest that fits
    #[arg(long, value_name = "ID")]
    backup: Option<Uuid>,
    #[command(flatten)]
    bucket: Bucket,
}

/// How rows are written. Other forms would have their place here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rows {
    /// One JSON object per line
    Jsonl,
}

impl Rows {
    fn form(self) -> Form<'static> {
        match self {
            Rows::Jsonl => Form::JsonLines,
        }
    }
}

/// `i/n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PartOf {
    number: u32,
    of: u32,
}

impl FromStr for PartOf {
    type Err = String;

    fn from_str(text: &str) -> Result<PartOf, String> {
        let parts = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((number, of)) if (1..=of).contains(&number) => Ok(PartOf { number, of }),
            _ => Err("a part is named like 2/8: the second of eight".to_owned()),
        }
    }
}

impl PartOf {
    /// The part's tokens: as many vnodes as the other parts have, give or take one. None if there are fewer vnodes than parts.
    fn tokens(self, bits: VnodeBits) -> Option<TokenRange> {
        let bound = |number: u32| (u64::from(bits.count()) * u64::from(number) / u64::from(self.of)) as u32;
        let (first, end) = (bound(self.number - 1), bound(self.number));
        let last = end.checked_sub(1).filter(|last| *last >= first)?;
        Some(TokenRange { after: bits.range(Vnode(first)).after, up_to: bits.range(Vnode(last)).up_to })
    }
}

impl ExportBackup {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let ExportBackup { table, moment, format, part } = self;
        let at = moment.at;
        let (source, table) = moment.open(&table, global).await?;
        let count = blocking(move || {
            let Some(range) = part.tokens(source.moment().vnode_bits()) else { return Ok(0) };
            merged::print(&table, source.rows(range), format.form(), at.seconds())
        })
        .await?;
        let text = format!("{count} rows as of {}", shown(at));
        output::note(&if global.json { serde_json::json!({ "rows": count, "at_us": at.0 }).to_string() } else { text });
        Ok(())
    }
}

impl GetBackup {
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<()> {
        let at = self.moment.at;
        let (source, table) = self.moment.open(&self.table, global).await?;
        let key = json::read_key(&self.key, &table)?;
        let types: Vec<Type> = table.partition_key().map(|column| column.ty.clone()).collect();
        let partition = PartitionKey::encode(&encoded(&key.partition, &types)?, &types)?;
        let clustering: Vec<(Type, Order)> =
            table.clustering().map(|(column, order)| (column.ty.clone(), order)).collect();
        let prefix_types: Vec<Type> = clustering.iter().map(|(ty, _)| ty.clone()).collect();
        let prefix = encoded(&key.clustering, &prefix_types)?;
        let rows = (Bound::before(&prefix, &clustering)?, Bound::after(&prefix, &clustering)?);
        let token = partition.token();
        let range = TokenRange { after: token.0.checked_sub(1).map(Token), up_to: Some(token) };
        let count = blocking(move || {
            let stream = source.rows(range);
            let only = Only { stream, partition, rows, is_inside: false };
            merged::print(&table, only, Form::JsonLines, at.seconds())
        })
        .await?;
        // As for `trefoil get` that is no failure; but here somebody looks for what was lost.
        if count == 0 && !global.json {
            output::note(&format!("there was no such row as of {}", shown(at)));
        }
        Ok(())
    }
}

impl At {
    /// The table at the time.
    async fn open(self, name: &TableName, global: &Global) -> Result<(Arc<TableAt>, Arc<Table>)> {
        let repository = self.bucket.open(global).await?;
        let moment = Arc::new(repository.moment(self.at, self.backup, |_| true).await?);
        let table = moment.state.table_named(&name.keyspace, &name.table).cloned();
        let table = table.ok_or(Error::Missing { what: "table", name: name.to_string() })?;
        moment.check_whole(table.id)?;
        let source = TableAt::new(&repository, &moment, (table.keyspace, table.id), Handle::current());
        Ok((Arc::new(source), table))
    }
}

/// Runs what reads the bucket and waits for it, beside the runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::io("run", "the reading thread", std::io::Error::other(error)))?
}

fn encoded(values: &[Value], types: &[Type]) -> Result<Vec<Bytes>> {
    Ok(values.iter().zip(types).map(|(value, ty)| value.encode(ty)).collect::<trefoil::Result<_>>()?)
}

/// The rows between two bounds of one partition.
struct Only {
    stream: FragmentStream,
    partition: PartitionKey,
    rows: (Bound, Bound),
    is_inside: bool,
}

impl Stream<EncodedRow> for Only {
    fn next(&mut self) -> trefoil::Result<Option<Fragment<EncodedRow>>> {
        while let Some(fragment) = self.stream.next()? {
            match &fragment {
                Fragment::Partition(header) => {
                    self.is_inside = header.key == self.partition;
                    if self.is_inside {
                        return Ok(Some(fragment));
                    }
                }
                Fragment::Row(key, _) => {
                    let (first, last) = (self.rows.0.bytes(), self.rows.1.bytes());
                    if self.is_inside && (first..last).contains(&key.bytes()) {
                        return Ok(Some(fragment));
                    }
                }
                Fragment::Change(..) => {}
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn parts_are_the_whole_ring_and_do_not_overlap() {
        for (bits, of) in [(3, 1), (3, 3), (3, 8), (3, 11), (10, 7), (0, 2)] {
            let bits = VnodeBits::new(bits).unwrap();
            let parts = (1..=of).filter_map(|number| PartOf { number, of }.tokens(bits));
            let mut vnodes = Vec::new();
            for range in parts {
                vnodes.extend((0..bits.count()).map(Vnode).filter(|vnode| {
                    let last = bits.range(*vnode).up_to.unwrap_or(Token(i64::MAX));
                    range.contains(last)
                }));
            }
            assert_eq!(
                vnodes,
                (0..bits.count()).map(Vnode).collect::<Vec<_>>(),
                "{of} parts of {} vnodes",
                bits.count()
            );
        }
        for wrong in ["0/2", "3/2", "1", "a/b", "1/0"] {
            assert!(wrong.parse::<PartOf>().is_err(), "{wrong}");
        }
    }

    /// A mark to the second or the millisecond takes in all of that millisecond, a finer one only what lies before it.
    #[test]
    fn b088_a_mark_means_all_of_its_millisecond() {
        let at = |text| time(text).unwrap().0;
        assert_eq!(at("2026-01-01T00:00:00Z"), 1_767_225_600_000_999);
        assert_eq!(at("2026-01-01T00:00:00.250Z"), 1_767_225_600_250_999);
        assert_eq!(at("2026-01-01T01:00:00.250001+01:00"), 1_767_225_600_250_001);
        assert!(time("yesterday").is_err());
    }
}
