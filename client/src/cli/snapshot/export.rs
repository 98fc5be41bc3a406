//! `trefoil snapshot export`: the rows that snapshots hold of a table, as lines that `import` reads.
//!
//! The files of all directories that are given are merged by the same rule as reads merge them. A snapshot of one node
//! holds what that node held; only those of all nodes together hold what the cluster did.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use trefoil::codec::EncodedRow;
use trefoil::model::{Direction, Fragment, Merge, PartitionHeader, Stream, Table, TableId};
use trefoil::snapshot::{self, Snapshot, TableInfo};
use trefoil::sstable::{FragmentStream, file_name};
use trefoil::vfs::disk::ReadOnlyDiskVfs;
use trefoil_client::{Heading, Row};
use trefoil_proto::convert::answer::Projector;
use trefoil_proto::convert::read::projection;
use trefoil_proto::v1;

use super::super::error::{Error, Result};
use super::super::rows::{Format, Printer};
use super::super::table_name::TableName;
use super::super::{Global, output, scan, stopped};

/// Prints the rows of a table from the directories of snapshots, to the standard output. The nodes may be running.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  trefoil snapshot export --table demo.kv node-*/data/store/snapshots/ID > kv.csv
  trefoil snapshot export --schema --table demo.kv node-1/data/store/snapshots/ID")]
pub struct Export {
    /// Directories of snapshots of the same table, of as many nodes as there are; copies will do
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// The table, as it was called when the snapshot was made
    #[arg(long, value_name = "KS.TABLE")]
    table: TableName,
    /// Print the statements that make the table and the types it is made of, instead of its rows
    #[arg(long)]
    schema: bool,
    /// How to write rows
    #[arg(long, default_value = "csv")]
    format: Format,
    /// The word for null in CSV
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    null: String,
}

impl Export {
    /// Does it.
    pub fn run(self, global: &Global) -> Result<()> {
        let snapshots: Vec<(&Path, Snapshot)> =
            self.directories.iter().map(|path| Ok((path.as_path(), read(path)?))).collect::<Result<_>>()?;
        let info = self.one_table(&snapshots)?;
        let table = stopped::table_of(info)?;
        if self.schema {
            return output::line(trefoil::cql::describe_with_types(&info.label.keyspace, &table).trim_end());
        }
        let mut sources = Vec::new();
        for (directory, snapshot) in &snapshots {
            for file in snapshot.files.iter().filter(|file| file.table == info.id) {
                let path = directory.join(file_name(file.id));
                let stream: FragmentStream =
                    stopped::open(&path)?.read_through().map_err(|error| error.in_file(&path, 0))?;
                sources.push(stream);
            }
        }
        let rows = self.print(&table, Merge::new(sources, Direction::Forward))?;
        let text = format!("{rows} rows of {} snapshots", snapshots.len());
        output::note(&if global.json { serde_json::json!({ "rows": rows }).to_string() } else { text });
        Ok(())
    }

    /// The table, which must be the same one in all snapshots; the latest that is known of it.
    fn one_table<'a>(&self, snapshots: &'a [(&Path, Snapshot)]) -> Result<&'a TableInfo> {
        let name = self.table.to_string();
        let mut found: Option<&TableInfo> = None;
        for (path, snapshot) in snapshots {
            let is_it = |info: &&TableInfo| format!("{}.{}", info.label.keyspace, info.label.table) == name;
            let here = snapshot
                .tables
                .iter()
                .find(is_it)
                .ok_or_else(|| Error::NotInSnapshot { table: name.clone(), directory: path.display().to_string() })?;
            let ids: Vec<TableId> = found.iter().map(|info| info.id).filter(|id| *id != here.id).collect();
            if let [other] = ids.as_slice() {
                return Err(Error::TwoTables { table: name, ids: [other.to_string(), here.id.to_string()] });
            }
            found = found.filter(|found| found.label.version >= here.label.version).or(Some(here));
        }
        found.ok_or(Error::Usage("name the directory of a snapshot"))
    }

    fn print(&self, table: &Table, mut merged: impl Stream<EncodedRow>) -> Result<u64> {
        let now_s = jiff::Timestamp::now().as_second();
        let form = scan::form(self.format, &self.null)?;
        let raw = v1::Projection { value_form: v1::ValueForm::Raw.into(), ..v1::Projection::default() };
        let parts = projection(raw, table).map_err(|detail| trefoil::Error::invalid("table", detail.reason))?;
        let projector = Projector::new(table, &parts, now_s);
        let heading = Arc::new(Heading::of(table));
        let mut printer = Printer::new(table, None, form, io::stdout().lock())?;
        let mut count = 0;
        let mut partition: Option<Partition> = None;
        while let Some(fragment) = merged.next()? {
            let row = match fragment {
                Fragment::Partition(header) => {
                    let before = partition.replace(Partition { header, shown: 0 });
                    before.and_then(|before| before.alone(&projector, now_s).transpose()).transpose()?
                }
                Fragment::Row(key, row) if row.is_visible_at(now_s)? => {
                    let Some(open) = &mut partition else { continue };
                    open.shown += 1;
                    let values = projector.partition(&open.header.key)?;
                    let static_row = open.header.static_row.as_ref().map(EncodedRow::decode).transpose()?;
                    Some(projector.row(&values, &key, &row.decode()?, static_row.as_ref())?)
                }
                Fragment::Row(..) | Fragment::Change(..) => None,
            };
            if let Some(row) = row {
                printer.print(&Row::new(&heading, row)?)?;
                count += 1;
            }
        }
        if let Some(row) = partition.and_then(|last| last.alone(&projector, now_s).transpose()).transpose()? {
            printer.print(&Row::new(&heading, row)?)?;
            count += 1;
        }
        drop(printer.finish()?);
        Ok(count)
    }
}

/// The partition whose rows are being printed.
struct Partition {
    header: PartitionHeader<EncodedRow>,
    shown: u64,
}

impl Partition {
    /// The row that stands for static values alone.
    fn alone(&self, projector: &Projector<'_>, now_s: i64) -> trefoil::Result<Option<v1::Row>> {
        let Some(row) = self.header.static_row.as_ref().filter(|_| self.shown == 0) else { return Ok(None) };
        let row = row.decode()?;
        if !row.is_visible_at(now_s) {
            return Ok(None);
        }
        projector.static_row(&projector.partition(&self.header.key)?, &row).map(Some)
    }
}

fn read(directory: &Path) -> Result<Snapshot> {
    snapshot::read(&ReadOnlyDiskVfs, directory)?
        .ok_or_else(|| Error::NotASnapshot { directory: directory.display().to_string() })
}
