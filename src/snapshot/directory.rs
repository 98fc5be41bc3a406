//! The directory of all snapshots: how one is made, found again and removed.
//!
//! ```text
//! make    directory ─► links ─► directory synced ─► manifest written, synced, renamed ─► directory synced
//! remove  manifest removed ─► directory synced ─► the rest removed
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::Snapshot;
use super::manifest;
use crate::sstable::file_name;
use crate::vfs::Vfs;
use crate::{Corrupt, Error, Result};

/// The directory `snapshots` of a store.
pub struct Directory {
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
}

/// What is in it.
#[derive(Debug, Default)]
pub struct Found {
    /// Snapshots that can be relied on.
    pub whole: Vec<Snapshot>,
    /// Those whose manifest was whole once and is not any more, or that lack a file. They are left as they are.
    pub damaged: Vec<Damaged>,
    /// Directories without a manifest: what was cut short.
    pub unfinished: Vec<Uuid>,
}

/// A snapshot of which nobody can say what it holds.
#[derive(Debug, Clone)]
pub struct Damaged {
    /// Its directory's name.
    pub id: Uuid,
    /// What is wrong.
    pub error: Error,
}

/// A snapshot that is being made.
pub struct Draft<'a> {
    vfs: &'a dyn Vfs,
    path: PathBuf,
}

impl Directory {
    /// The one at `path`, which need not be there yet.
    pub fn new(vfs: Arc<dyn Vfs>, path: PathBuf) -> Directory {
        Directory { vfs, path }
    }

    /// The directory of one snapshot.
    pub fn of(&self, id: Uuid) -> PathBuf {
        self.path.join(id.to_string())
    }

    /// Whether anything is kept under this id.
    pub fn has(&self, id: Uuid) -> Result<bool> {
        self.vfs.exists(&self.of(id))
    }

    /// Looks at everything there and changes nothing.
    pub fn find(&self) -> Result<Found> {
        let mut found = Found::default();
        if !self.vfs.exists(&self.path)? {
            return Ok(found);
        }
        for name in self.vfs.list(&self.path)? {
            // Whatever else somebody has put there is none of ours.
            let Ok(id) = Uuid::try_parse(&name) else { continue };
            match manifest::read(&*self.vfs, &self.of(id)) {
                Ok(Some(snapshot)) if snapshot.id == id => match self.missing_from(&snapshot)? {
                    None => found.whole.push(snapshot),
                    Some(error) => found.damaged.push(Damaged { id, error }),
                },
                Ok(Some(other)) => found.damaged.push(Damaged { id, error: self.misplaced(id, &other) }),
                Ok(None) => found.unfinished.push(id),
                Err(error @ (Error::Corrupt(_) | Error::Version { .. })) => {
                    found.damaged.push(Damaged { id, error });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// What a snapshot lacks of what it says that it has.
    fn missing_from(&self, snapshot: &Snapshot) -> Result<Option<Error>> {
        let directory = self.of(snapshot.id);
        let there = self.vfs.list(&directory)?;
        let missing = snapshot.files.iter().map(|file| file_name(file.id)).find(|name| !there.contains(name));
        Ok(missing.map(|name| {
            let reason = "a file that the snapshot lists is missing";
            Corrupt { file: Some(directory.join(name)), ..Corrupt::new("table", reason) }.into()
        }))
    }

    fn misplaced(&self, id: Uuid, other: &Snapshot) -> Error {
        let corrupt = Corrupt::new("snapshot", format!("it is that of snapshot {}", other.id));
        corrupt.at(&manifest::path(&self.of(id)), 0).into()
    }

    /// Makes a snapshot durable, or leaves nothing of it. `link` links the files into it and says what they are.
    pub fn make(&self, id: Uuid, link: impl FnOnce(&Draft) -> Result<Snapshot>) -> Result<Snapshot> {
        let path = self.of(id);
        let draft = Draft { vfs: &*self.vfs, path: path.clone() };
        let make = || {
            self.vfs.create_dir(&path)?;
            let snapshot = link(&draft)?;
            draft.finish(&snapshot)?;
            Ok(snapshot)
        };
        make().inspect_err(|_| {
            if let Err(error) = self.remove(id) {
                tracing::warn!(snapshot = %id, %error, "what was begun of a snapshot stays until the next start");
            }
        })
    }

    /// Removes a snapshot; what of it has gone already is not missed. After an error it must not be used any more, and
    /// can be removed again.
    pub fn remove(&self, id: Uuid) -> Result<()> {
        let path = self.of(id);
        if !self.vfs.exists(&path)? {
            return Ok(());
        }
        let manifest = manifest::path(&path);
        if self.vfs.exists(&manifest)? {
            self.vfs.remove(&manifest)?;
        }
        // Else a loss of power could bring it back without its files.
        self.vfs.sync_dir(&path)?;
        for name in self.vfs.list(&path)? {
            self.vfs.remove(&path.join(name))?;
        }
        self.vfs.remove_dir(&path)
    }
}

impl Draft<'_> {
    /// Gives an SSTable a second name in the snapshot.
    pub fn link(&self, file: &Path, id: Uuid) -> Result<()> {
        self.vfs.link(file, &self.path.join(file_name(id)))
    }

    fn finish(&self, snapshot: &Snapshot) -> Result<()> {
        // The links first: a manifest that survives a loss of power must find them.
        self.vfs.sync_dir(&self.path)?;
        let (new, path) = (self.path.join("SNAPSHOT.new"), manifest::path(&self.path));
        let file = self.vfs.create(&new)?;
        file.write_at(&manifest::encode(snapshot), 0)?;
        file.sync()?;
        self.vfs.rename(&new, &path)?;
        self.vfs.sync_dir(&self.path)
    }
}
