//! The files of a store that nobody has open: for tools, which read and never write.
//!
//! Opening a [`super::Store`] repairs what a crash has left: it cuts the log, writes the manifest anew, removes files. Whoever
//! wants to know what is on the disk must come before that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::{identity, manifest};
use crate::model::TableId;
use crate::snapshot::TableInfo;
use crate::sstable::SstableMeta;
use crate::vfs::{Lock, Vfs};
use crate::{Error, Result};

/// A stopped node's store. While it is held no node starts on it.
pub struct Stopped {
    pub(super) vfs: Arc<dyn Vfs>,
    pub(super) directory: PathBuf,
    /// `None` if the directory has no lock file: a copy, on which no node has been started.
    _lock: Option<Box<dyn Lock>>,
}

impl Stopped {
    /// Whether `directory` is that of a store.
    pub fn is_at(vfs: &dyn Vfs, directory: &Path) -> Result<bool> {
        Ok(vfs.exists(&manifest::Manifest::path(directory))? || vfs.exists(&identity::path(directory))?)
    }

    /// Takes hold of the store in `directory`; [`Error::Locked`] if a node has it open.
    pub fn open(vfs: Arc<dyn Vfs>, directory: &Path) -> Result<Stopped> {
        if !Stopped::is_at(&*vfs, directory)? {
            let reason = "it holds neither MANIFEST nor IDENTITY; name a node's data directory";
            return Err(Error::invalid(directory.display().to_string(), reason));
        }
        // Made by whoever opens the store first; a tool makes nothing.
        let path = identity::lock_path(directory);
        let lock = if vfs.exists(&path)? { Some(vfs.lock(&path)?) } else { None };
        Ok(Stopped { vfs, directory: directory.to_owned(), _lock: lock })
    }

    /// The files that the manifest lists.
    pub fn files(&self) -> Result<BTreeMap<Uuid, SstableMeta>> {
        manifest::read(&*self.vfs, &self.directory).map(|reading| reading.state.files)
    }

    /// The tables as the manifest knows them; not those to which nothing was ever written.
    pub fn tables(&self) -> Result<BTreeMap<TableId, TableInfo>> {
        manifest::read(&*self.vfs, &self.directory).map(|reading| reading.state.tables)
    }
}
