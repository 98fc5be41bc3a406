//! Files that are made elsewhere than by flushes and compactions, and join all at once.
//!
//! ```text
//! loader ─► write(stream): files of the table, cut as compactions cut them, synced ─► load: one manifest edit ─► view swapped
//!              nothing lists them yet: garbage if the node stops here
//! ```
//!
//! Only a table that is being loaded takes them ([`super::Content::Loading`]): nobody writes to it, and nothing of it is purged
//! meanwhile, since a deletion in one file may be met by what it deletes in a later one.
//!
//! **Invariant:** either all files of a load are live or none, and then they are removed; what was live stays.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::change::Change;
use super::table::Table;
use super::view::LiveFile;
use super::{Content, Store};
use crate::codec::EncodedRow;
use crate::compaction::{self, Cut};
use crate::model::{Stamp, Stream, TableId, Vnode};
use crate::sstable::{BLOCK_BYTES, Builder, BuilderOptions, SstableMeta};
use crate::{Error, Result};

/// Makes files of a table that nothing lists yet.
pub struct Loader<'a> {
    store: &'a Store,
    table: Arc<Table>,
}

/// What is known of the rows beforehand that a loader writes.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// Stamp bounds of the records that they were written by.
    pub stamps: (Stamp, Stamp),
    /// How many bytes the table would have on this node, spread over the whole ring, once all is loaded: what files are cut by.
    pub density_bytes: f64,
    /// How many partitions one file may get: better too many than too few.
    pub partitions: u64,
    /// The same for rows.
    pub rows: u64,
}

impl Store {
    /// The means to make files for [`Store::load`]. An error if the table is not being loaded.
    pub fn loader(&self, table: TableId) -> Result<Loader<'_>> {
        Ok(Loader { store: self, table: self.loading(table)? })
    }

    /// Makes files live that loaders of the table have made: all of them by one edit of the manifest, visible at once. After
    /// an error none is, and they are gone, now or at the next start.
    ///
    /// # Errors
    /// [`Error::UnknownTable`], [`Error::Invalid`] if the table is not being loaded or a file is not one of its own or is live
    /// already; those of the disk.
    pub fn load(&self, id: TableId, files: Vec<SstableMeta>) -> Result<()> {
        let table = self.loading(id)?;
        if files.is_empty() {
            return Ok(());
        }
        let opened = self.open_loaded(&table, &files);
        let opened = opened.inspect_err(|_| self.discard_loaded(&files))?;
        let mut manifest = self.manifest.lock();
        if !self.is_live(&table) {
            drop(manifest);
            self.discard_loaded(&files);
            return Err(Error::UnknownTable { table: id });
        }
        let changes = files.iter().cloned().map(Change::FileAdded).collect();
        if let Err(error) = manifest.commit(changes) {
            files.iter().for_each(|file| manifest.remove_once_settled(self.file_path(file.id)));
            return Err(error);
        }
        table.change_view(|view| view.with_loaded(opened));
        drop(manifest);
        let last = files.iter().map(|file| file.stamps.1.0).max().unwrap_or(0);
        self.memory.last_stamp.fetch_max(last, Ordering::Relaxed);
        self.loads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn loading(&self, id: TableId) -> Result<Arc<Table>> {
        let table = self.memory.tables.load().get(&id).cloned().ok_or(Error::UnknownTable { table: id })?;
        match table.spec().content {
            Content::Loading => Ok(table),
            Content::Whole => Err(Error::invalid(format!("load into table {id}"), "it is in use, not being loaded")),
        }
    }

    /// Opens what was made and looks whether it is what it is said to be; their names are durable then.
    fn open_loaded(&self, table: &Arc<Table>, files: &[SstableMeta]) -> Result<Vec<Arc<LiveFile>>> {
        let id = table.spec().id;
        self.vfs.sync_dir(&self.data_directory())?;
        let open = |meta: &SstableMeta| {
            let refused = |reason: &str| Err(Error::invalid(format!("file {} to be loaded", meta.id), reason));
            if meta.table != id {
                return refused("it is of another table");
            }
            let file = self.open_file(meta.clone())?;
            let (found, bytes) = (&file.sstable, file.sstable.bytes());
            if (found.id(), found.stats().table, bytes) != (meta.id, id, meta.bytes) {
                return refused("it is not what it is said to be");
            }
            Ok(Arc::new(file))
        };
        files.iter().map(open).collect()
    }

    /// Removes files that were made for a load and are not to be loaded after all. What is live stays.
    pub fn discard_loaded(&self, files: &[SstableMeta]) {
        let manifest = self.manifest.lock();
        let unlisted = files.iter().filter(|file| !manifest.state().files.contains_key(&file.id));
        unlisted.for_each(|file| self.remove_file(&self.file_path(file.id)));
    }
}

impl<'a> Loader<'a> {
    /// For whoever in the store writes files of a table that is not being loaded.
    pub(super) fn of(store: &'a Store, table: &Arc<Table>) -> Loader<'a> {
        Loader { store, table: table.clone() }
    }
}

impl Loader<'_> {
    /// Writes a stream into files, cut as a compaction would, durable but for their names. Columns that were dropped are the
    /// caller's to leave out. After an error nothing is left.
    pub fn write(&self, stream: &mut impl Stream<EncodedRow>, expected: &Expected) -> Result<Vec<SstableMeta>> {
        let Loader { store, table } = self;
        let (spec, bits) = (table.spec(), store.identity.vnode_bits);
        let cut = Cut::new(bits, expected.density_bytes, spec.compaction.target_bytes());
        let mut begun = Vec::new();
        let mut begin = |_: Vnode| {
            let id = store.next_file_id(expected.stamps);
            begun.push(id);
            let options = BuilderOptions {
                directory: store.data_directory(),
                id,
                table: spec.id,
                columns: spec.columns.clone(),
                vnode_bits: bits,
                stamps: expected.stamps,
                expected_partitions: expected.partitions,
                expected_rows: expected.rows,
                block_bytes: BLOCK_BYTES,
            };
            Ok(Builder::create(&*store.vfs, options)?.watched(store.partitions.clone()))
        };
        let written = compaction::write(stream, cut, &mut begin);
        written.inspect_err(|_| begun.iter().for_each(|id| store.remove_file(&store.file_path(*id))))
    }
}
