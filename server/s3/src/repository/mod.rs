//! The backups of one cluster, as they lie in a bucket: what is read of them, and the tools that need no cluster.
//!
//! ```text
//!   Repository   objects of the cluster, decoded, and refused by name where they are not what they should be
//!     moment     the base of a time: a backup, the logs behind it, whose copy of a vnode suffices
//!     read       a table at that time: merged files, records of the logs, both
//!     verify     is a backup whole     prune   what no kept one needs goes     mirror   a second copy of all
//! ```
//!
//! **Invariant:** nothing is read of an object of another cluster, of a damaged one, or of one that a later build wrote; the
//! error names the object.

mod mirror;
mod moment;
mod prune;
mod read;
mod runs;
#[cfg(test)]
mod tests;
mod verify;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use trefoil::backup::{Index, Manifest, Part, Piece, PieceHead, layout};
use trefoil::model::NodeId;
use uuid::Uuid;

pub use self::mirror::Mirrored;
pub use self::moment::{Moment, Source};
pub use self::prune::{CONDEMNED_US, Prune, Pruned};
pub use self::read::TableAt;
pub use self::verify::{Thoroughness, Verified};
use crate::{Below, Class, Error, ObjectStore, Result};

/// What is got of a piece to read its head: nearly always enough.
const HEAD_BYTES: u64 = 64 << 10;

/// Requests of one listing or check that are under way at once.
pub(crate) const AT_ONCE: usize = 16;

/// The objects of one cluster.
#[derive(Clone)]
pub struct Repository {
    store: Arc<dyn ObjectStore>,
    cluster: Uuid,
}

impl Repository {
    /// The objects of `cluster` in `bucket`.
    pub fn new(bucket: Arc<dyn ObjectStore>, cluster: Uuid) -> Repository {
        Repository { store: Arc::new(Below::new(bucket, &layout::cluster_prefix(cluster))), cluster }
    }

    /// The cluster.
    pub fn cluster(&self) -> Uuid {
        self.cluster
    }

    /// Its objects, by the keys of [`layout`].
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// All complete backups; none if there was never one.
    pub async fn index(&self) -> Result<Index> {
        match self.store.find(layout::INDEX).await? {
            None => Ok(Index { cluster: self.cluster, entries: Vec::new() }),
            Some(object) => {
                let index = decoded(layout::INDEX, Index::decode(&object.bytes))?;
                self.own(layout::INDEX, index.cluster)?;
                Ok(index)
            }
        }
    }

    /// A complete backup.
    pub async fn manifest(&self, backup: Uuid) -> Result<Manifest> {
        let key = layout::backup(backup);
        let manifest = decoded(&key, Manifest::decode(&key, &self.get(&key).await?))?;
        self.own(&key, manifest.cluster)?;
        Ok(manifest)
    }

    /// The parts of a backup, each compared with what the manifest says of it.
    pub async fn parts(&self, manifest: &Manifest) -> Result<Vec<Part>> {
        let parts = manifest.parts.iter().map(|listed| async move {
            let key = layout::part(manifest.backup, listed.node);
            let bytes = self.get(&key).await?;
            if trefoil::backup::Listed::of(&bytes) != listed.object {
                return Err(damaged(&key, "it is not the part that the manifest lists"));
            }
            let part = decoded(&key, Part::decode(&key, &bytes))?;
            self.own(&key, part.cluster)?;
            Ok(part)
        });
        stream::iter(parts).buffered(AT_ONCE).try_collect().await
    }

    /// The numbers of the pieces of a node's log, from `first` on, ascending.
    pub async fn pieces(&self, node: NodeId, first: u64) -> Result<Vec<u64>> {
        let prefix = layout::log_of(node);
        let mut numbers = Vec::new();
        let mut after = first.checked_sub(1).map(|before| layout::piece(node, before));
        loop {
            let page = self.store.list(&prefix, after.as_deref()).await?;
            after = page.objects.last().map(|object| object.key.clone());
            let keys = page.objects.iter().filter_map(|object| layout::parse_piece(&object.key));
            numbers.extend(keys.map(|(_, number)| number));
            if !page.more {
                return Ok(numbers);
            }
        }
    }

    /// What a piece says of itself.
    pub async fn head(&self, node: NodeId, number: u64) -> Result<PieceHead> {
        let key = layout::piece(node, number);
        let mut wanted = HEAD_BYTES;
        loop {
            let whole = match self.store.head(&key).await? {
                Some(meta) => meta.bytes,
                None => return Err(Error::new(Class::NotFound, "GET", &key, "it is not there")),
            };
            let object = self.store.get(&key, Some(0..wanted.min(whole))).await?;
            match decoded(&key, PieceHead::read(&key, &object.bytes))? {
                Ok(head) => {
                    self.own(&key, head.cluster)?;
                    return Ok(head);
                }
                Err(needed) if needed > wanted && needed <= whole => wanted = needed,
                Err(_) => return Err(damaged(&key, "it is shorter than its head")),
            }
        }
    }

    /// A whole piece.
    pub async fn piece(&self, node: NodeId, number: u64) -> Result<Piece> {
        let key = layout::piece(node, number);
        let piece = decoded(&key, Piece::decode(&key, &self.get(&key).await?))?;
        self.own(&key, piece.head.cluster)?;
        Ok(piece)
    }

    /// Changes the index by comparing and setting it, as often as it takes.
    async fn change_index(&self, change: impl Fn(&mut Index)) -> Result<()> {
        loop {
            let found = self.store.find(layout::INDEX).await?;
            let before = match &found {
                Some(object) => decoded(layout::INDEX, Index::decode(&object.bytes))?,
                None => Index { cluster: self.cluster, entries: Vec::new() },
            };
            self.own(layout::INDEX, before.cluster)?;
            let mut after = before.clone();
            change(&mut after);
            if after == before {
                return Ok(());
            }
            let tag = found.map(|object| object.tag);
            match self.store.replace(layout::INDEX, after.encode(), tag.as_ref()).await {
                Err(error) if error.is_conflict() => {}
                other => return other.map(drop),
            }
        }
    }

    async fn get(&self, key: &str) -> Result<Bytes> {
        Ok(self.store.get(key, None).await?.bytes)
    }

    /// Refuses an object of another cluster.
    fn own(&self, key: &str, cluster: Uuid) -> Result<()> {
        if cluster == self.cluster {
            return Ok(());
        }
        Err(damaged(key, format!("it is an object of cluster {cluster}, not of {}", self.cluster)))
    }
}

/// The outcome of decoding the object at `key`.
fn decoded<T>(key: &str, outcome: trefoil::Result<T>) -> Result<T> {
    outcome.map_err(|error| damaged(key, error.to_string()))
}

fn damaged(key: &str, reason: impl Into<String>) -> Error {
    Error::new(Class::Damaged, "read", key, reason)
}

/// A failure of the store, for whoever reads through the core: damage stays damage, everything else may heal.
fn core_error(error: &Error) -> trefoil::Error {
    let place = PathBuf::from(&error.place);
    match error.class {
        Class::NotFound | Class::Damaged => {
            trefoil::Corrupt { file: Some(place), ..trefoil::Corrupt::new("object", error.to_string()) }.into()
        }
        Class::Retry | Class::Denied | Class::Conflict | Class::Invalid => {
            trefoil::Error::io("read", &place, std::io::Error::other(error.to_string()))
        }
    }
}
