//! Verifies what a store promises about itself, while it works: a function per invariant.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::Store;
use super::manifest::Manifest;
use super::view::LiveFile;
use crate::{Corrupt, Error};

impl Store {
    /// Everything that is not as it must be; empty if all is well. Reads every live file from the disk, so it takes as long
    /// as that does; writes, flushes and compactions go on.
    ///
    /// - What the manifest lists is what the tables read, and every file is of the table and the stamps it is listed with.
    /// - Every byte of every file fits its checksums and the hash in the manifest.
    /// - No record that is not in a file lies before the position from which the log would be replayed.
    /// - No name that the manifest has saved is missing from what is told to peers.
    pub fn check(&self) -> Vec<Error> {
        let (mut faults, files) = {
            // Edits and views change together under this lock.
            let manifest = self.manifest.lock();
            let files = self.live_files();
            let mut faults = check_listed(&manifest, &files);
            faults.extend(self.check_replay(&manifest));
            faults.extend(self.check_received(&manifest));
            (faults, files)
        };
        for file in files {
            let outcome = file.sstable.verify(&file.meta.hash);
            faults.extend(outcome.err().map(|error| error.in_file(&self.file_path(file.meta.id), 0)));
        }
        faults
    }

    fn live_files(&self) -> Vec<Arc<LiveFile>> {
        self.memory.tables.load().values().flat_map(|table| table.view().files.clone()).collect()
    }

    fn check_replay(&self, manifest: &Manifest) -> Vec<Error> {
        let replay_from = manifest.state().replay_from;
        let tables = self.memory.tables.load();
        let early =
            tables.iter().filter(|(_, table)| table.unflushed_from(None).is_some_and(|begin| begin < replay_from));
        early.map(|(id, _)| fault(format!("table {id} holds records that replay would not reach"))).collect()
    }

    fn check_received(&self, manifest: &Manifest) -> Vec<Error> {
        let names = self.memory.names.lock();
        let saved = manifest.state().received.iter();
        let lost = saved.filter(|(place, set)| match names.sets().get(place) {
            Some(told) => !set.difference(told).is_empty(),
            None => !set.is_empty(),
        });
        lost.map(|((keyspace, vnode), _)| {
            fault(format!("names of keyspace {}, vnode {} were saved and are no longer told", keyspace.0, vnode.0))
        })
        .collect()
    }
}

fn check_listed(manifest: &Manifest, files: &[Arc<LiveFile>]) -> Vec<Error> {
    let listed: BTreeSet<Uuid> = manifest.state().files.keys().copied().collect();
    let live: BTreeSet<Uuid> = files.iter().map(|file| file.meta.id).collect();
    let one_sided =
        listed.symmetric_difference(&live).map(|id| fault(format!("file {id} is listed or live, not both")));
    let mislabelled = files.iter().filter(|file| {
        let stats = file.sstable.stats();
        (stats.table, stats.stamps) != (file.meta.table, file.meta.stamps)
    });
    one_sided
        .chain(mislabelled.map(|file| fault(format!("file {} is not what it is listed as", file.meta.id))))
        .collect()
}

fn fault(reason: String) -> Error {
    Corrupt::new("store", reason).into()
}
