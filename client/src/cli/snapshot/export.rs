//! `trefoil snapshot export`: the rows that snapshots hold of a table, as lines that `import` reads.
//!
//! The files of all directories that are given are merged by the same rule as reads merge them. A snapshot of one node
//! holds what that node held; only those of all nodes together hold what the cluster did.

use std::path::{Path, PathBuf};

use clap::Args;
use trefoil::model::{Direction, Merge, TableId};
use trefoil::snapshot::{self, Snapshot, TableInfo};
use trefoil::sstable::{FragmentStream, file_name};
use trefoil::vfs::disk::ReadOnlyDiskVfs;

use super::super::error::{Error, Result};
use super::super::rows::Format;
use super::super::table_name::TableName;
use super::super::{Global, merged, output, scan, stopped};

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
        let now_s = jiff::Timestamp::now().as_second();
        let form = scan::form(self.format, &self.null)?;
        let rows = merged::print(&table, Merge::new(sources, Direction::Forward), form, now_s)?;
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
}

fn read(directory: &Path) -> Result<Snapshot> {
    snapshot::read(&ReadOnlyDiskVfs, directory)?
        .ok_or_else(|| Error::NotASnapshot { directory: directory.display().to_string() })
}
