//! A second copy of all backups, in another bucket: objects first, manifests behind them, the index last.
//!
//! What is there already is not copied again, so that a run goes on where the one before stopped. An object is compared with its
//! hash on the way, and is not finished where that does not fit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use trefoil::backup::{IndexEntry, Manifest};

use super::layout::{self, Key};
use super::{AT_ONCE, Repository, core_error, damaged};
use crate::{Class, Error, ObjectStore, Result, Source};

/// Objects up to this size are copied in one piece.
const WHOLE_BYTES: u64 = 8 << 20;

/// What a run of mirror has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mirrored {
    /// Objects that were copied, and their bytes.
    pub copied: (u64, u64),
    /// Objects that were there already, and their bytes.
    pub there: (u64, u64),
    /// Backups that the copy holds by now.
    pub backups: u64,
}

impl Repository {
    /// Copies all complete backups, and the logs behind them, to `to`, which is of the same cluster. `progress` is told of the
    /// objects done and those there are.
    pub async fn mirror(&self, to: &Repository, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Mirrored> {
        let index = self.index().await?;
        let mut manifests = Vec::new();
        for entry in &index.entries {
            manifests.push(self.manifest(entry.backup).await?);
        }
        let wanted = self.wanted(&manifests).await?;
        let there: BTreeMap<String, u64> =
            to.store.list_all("").await?.into_iter().map(|listed| (listed.key, listed.bytes)).collect();
        let mut done = Mirrored::default();
        let all = (wanted.len() + manifests.len()) as u64;
        let copies = wanted.iter().map(|(key, bytes)| async {
            if there.get(key) == Some(bytes) {
                return Ok::<_, Error>((*bytes, false));
            }
            self.copy(to, key, *bytes).await?;
            Ok((*bytes, true))
        });
        let mut copies = stream::iter(copies).buffer_unordered(AT_ONCE);
        while let Some(outcome) = copies.next().await {
            let (bytes, is_new) = outcome?;
            let count = if is_new { &mut done.copied } else { &mut done.there };
            *count = (count.0 + 1, count.1.saturating_add(bytes));
            progress(done.copied.0 + done.there.0, all);
        }
        drop(copies);
        for manifest in &manifests {
            to.store.create(&manifest.key(), manifest.encode()).await?;
            done.backups += 1;
            progress(done.copied.0 + done.there.0 + done.backups, all);
        }
        to.change_index(|index| manifests.iter().for_each(|manifest| index.add(IndexEntry::of(manifest)))).await?;
        Ok(done)
    }

    /// Every object that the manifests need, and the logs behind them, with their lengths.
    async fn wanted(&self, manifests: &[Manifest]) -> Result<BTreeMap<String, u64>> {
        let listed: BTreeMap<String, u64> =
            self.store.list_all("").await?.into_iter().map(|listed| (listed.key, listed.bytes)).collect();
        let mut keys = BTreeSet::new();
        let mut first: BTreeMap<_, u64> = BTreeMap::new();
        for manifest in manifests {
            keys.extend(manifest.pieces.iter().map(|piece| layout::piece(piece.node, piece.number)));
            for part in self.parts(manifest).await? {
                keys.insert(part.key());
                keys.extend(part.files.iter().map(|file| file.key()));
                let number = first.entry(part.node).or_insert(part.first_piece);
                *number = (*number).min(part.first_piece);
            }
        }
        keys.extend(listed.keys().filter_map(|key| match Key::parse(key) {
            Some(Key::Piece(node, number)) if first.get(&node).is_some_and(|first| number >= *first) => {
                Some(key.clone())
            }
            _ => None,
        }));
        let with_length = keys.into_iter().map(|key| match listed.get(&key) {
            Some(bytes) => Ok((key, *bytes)),
            None => Err(Error::new(Class::NotFound, "read", key, "a backup lists it, and it is not there")),
        });
        with_length.collect()
    }

    async fn copy(&self, to: &Repository, key: &str, bytes: u64) -> Result<()> {
        let hash = match Key::parse(key) {
            Some(Key::File(hash, _)) => Some(hash),
            _ => None,
        };
        if bytes > WHOLE_BYTES {
            let runtime = Handle::current();
            let source = Copied { store: self.store.clone(), runtime, key: key.to_owned(), bytes, hash };
            return to.store.upload(key, Arc::new(source)).await.map(drop);
        }
        let object = self.get(key).await?;
        if object.len() as u64 != bytes || hash.is_some_and(|hash| Sha256::digest(&object)[..] != hash[..]) {
            return Err(damaged(key, "it is not what its key says; it was not copied"));
        }
        to.store.create(key, object).await.map(drop)
    }
}

/// A large object on its way.
struct Copied {
    store: Arc<dyn ObjectStore>,
    runtime: Handle,
    key: String,
    bytes: u64,
    hash: Option<[u8; 32]>,
}

impl Source for Copied {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, range: Range<u64>) -> trefoil::Result<Bytes> {
        let got = self.runtime.block_on(self.store.get(&self.key, Some(range)));
        Ok(got.map_err(|error| core_error(&error))?.bytes)
    }

    fn sha256(&self) -> Option<[u8; 32]> {
        self.hash
    }
}
