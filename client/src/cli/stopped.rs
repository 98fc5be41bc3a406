//! The files of a stopped node, for commands that look at them without a cluster. Everything is opened for reading alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value as Json, json};
use trefoil::metadata::decode_table;
use trefoil::model::{Table, TableId};
use trefoil::snapshot::{self, Snapshot, TableInfo};
use trefoil::sstable::{BlockCache, Sstable, SstableMeta};
use trefoil::store::Stopped;
use trefoil::vfs::disk::ReadOnlyDiskVfs;
use uuid::Uuid;

use super::error::{Error, Result};

/// Everything is read once, so there is little to keep.
const CACHE_BYTES: u64 = 4 << 20;

/// The store in `directory`: a node's data directory, or the folder `store` in it.
pub fn store(directory: &Path) -> Result<Stopped> {
    let inside = directory.join("store");
    let is_around = !Stopped::is_at(&ReadOnlyDiskVfs, directory)? && Stopped::is_at(&ReadOnlyDiskVfs, &inside)?;
    Ok(Stopped::open(Arc::new(ReadOnlyDiskVfs), if is_around { &inside } else { directory })?)
}

/// The SSTables that a command is about.
pub struct Sstables {
    /// Never empty.
    pub paths: Vec<PathBuf>,
    /// The store whose files they are, if they lie in one; held, so that no node starts on it meanwhile.
    pub store: Option<Stopped>,
    /// The snapshot whose files they are. Nobody changes those, so that the node may be running.
    pub snapshot: Option<Snapshot>,
}

impl Sstables {
    /// What a manifest lists, of the store or of the snapshot; nothing where there is none.
    pub fn listed(&self) -> trefoil::Result<BTreeMap<Uuid, SstableMeta>> {
        let store = self.store.as_ref().map(Stopped::files).transpose()?;
        let snapshot = self.snapshot.iter().flat_map(|snapshot| snapshot.files.iter().cloned());
        Ok(store.unwrap_or_else(|| snapshot.map(|file| (file.id, file)).collect()))
    }

    /// What a manifest says of tables; nothing where there is none, or it does not read.
    pub fn tables(&self) -> BTreeMap<TableId, Table> {
        let store = self.store.as_ref().and_then(|store| store.tables().ok()).unwrap_or_default();
        let snapshot = self.snapshot.iter().flat_map(|snapshot| snapshot.tables.iter().map(|info| (info.id, info)));
        let known = store.iter().map(|(id, info)| (*id, info)).chain(snapshot);
        known.filter_map(|(id, info)| Some((id, table_of(info).ok()?))).collect()
    }

    /// One file, or every `.sst` in a directory.
    pub fn at(path: &Path) -> Result<Sstables> {
        let path_failed = |source| Error::file("open", path, source);
        let is_directory = fs::metadata(path).map_err(path_failed)?.is_dir();
        let paths = if is_directory { list(path)? } else { vec![path.to_owned()] };
        let whole = fs::canonicalize(path).map_err(path_failed)?;
        let folder = if is_directory { Some(whole.as_path()) } else { whole.parent() };
        if let Some(folder) = folder
            && let Some(snapshot) = snapshot::read(&ReadOnlyDiskVfs, folder)?
        {
            return Ok(Sstables { paths, store: None, snapshot: Some(snapshot) });
        }
        // Files lie in a folder of their store; a set of files may have its manifest beside them.
        for candidate in folder.into_iter().flat_map(|folder| folder.ancestors().take(2)) {
            if Stopped::is_at(&ReadOnlyDiskVfs, candidate)? {
                let store = Some(Stopped::open(Arc::new(ReadOnlyDiskVfs), candidate)?);
                return Ok(Sstables { paths, store, snapshot: None });
            }
        }
        Ok(Sstables { paths, store: None, snapshot: None })
    }
}

/// The table as it is described beside its files. Its definition only names user-defined types, its columns know them.
pub fn table_of(info: &TableInfo) -> trefoil::Result<Table> {
    let mut table = decode_table(info.label.definition.clone())?;
    for column in &mut table.columns {
        if let Some((_, ty)) = info.columns.iter().find(|(id, _)| *id == column.id) {
            column.ty = ty.clone();
        }
    }
    Ok(table)
}

fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let failed = |source| Error::file("list", directory, source);
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "sst") {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(Error::NoSstables { directory: directory.display().to_string() });
    }
    paths.sort();
    Ok(paths)
}

/// Opens one.
pub fn open(path: &Path) -> trefoil::Result<Arc<Sstable>> {
    let sstable = Sstable::open(&ReadOnlyDiskVfs, path, Arc::new(BlockCache::new(CACHE_BYTES)));
    sstable.map(Arc::new).map_err(|error| error.in_file(path, 0))
}

/// A fault for programs. `file` is there unless none is to blame, `offset` if the place is known.
pub fn fault(error: &trefoil::Error) -> Json {
    let (file, offset) = match error {
        trefoil::Error::Corrupt(corrupt) => (corrupt.file.as_deref(), corrupt.offset),
        trefoil::Error::Version { file, .. } => (Some(file.as_path()), None),
        trefoil::Error::Io { path, .. } => (Some(path.as_path()), None),
        trefoil::Error::WrongDirectory { directory, .. } => (Some(directory.as_path()), None),
        _ => (None, None),
    };
    json!({ "file": file.map(|file| file.display().to_string()), "offset": offset, "error": error.to_string() })
}
