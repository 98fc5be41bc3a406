//! Files on their way to the bucket: each is uploaded as soon as it exists, under its hash.
//!
//! What a compaction makes is uploaded as its inputs were: the bytes that go to the bucket are those that flushes and
//! compactions write, each once, so that their factor is the write amplification that `trefoil compaction` shows (B089).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use trefoil::backup::{Condemned, layout};
use trefoil::sstable::SstableMeta;
use trefoil::store::Store;
use trefoil::vfs::File;
use trefoil_s3::{Class, Creation, Source};
use uuid::Uuid;

use super::{Archive, LOOK, Pauses, Trouble, off_runtime};

/// Files under way at once; the door has its own bounds of requests and bytes.
pub(super) const AT_ONCE: usize = 4;

/// After so many failures a pass ends, if they are of the kind that passes: the bucket is out of reach, and to ask for all the rest
/// is of no use before the pause.
pub(super) const FAILURES_MAX: usize = 16;

/// A file as something to be uploaded.
struct FileSource {
    file: Arc<dyn File>,
    bytes: u64,
    hash: [u8; 32],
}

impl Source for FileSource {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, range: Range<u64>) -> trefoil::Result<Bytes> {
        let mut buffer = vec![0; (range.end - range.start) as usize];
        self.file.read_at(&mut buffer, range.start)?;
        Ok(buffer.into())
    }

    /// A file that was damaged since it was sealed must not lie in the bucket under the hash that it had.
    fn sha256(&self) -> Option<[u8; 32]> {
        Some(self.hash)
    }
}

impl Archive {
    /// Sees to it that the file is in the bucket, under a key with this suffix: asks, and uploads it if it is not.
    pub(super) async fn ensure(
        &self,
        store: &Arc<Store>,
        meta: &SstableMeta,
        suffix: Option<u32>,
    ) -> Result<(), Trouble> {
        let key = layout::file(&meta.hash, suffix);
        if self.has(&key, meta.bytes).await? {
            return Ok(());
        }
        let (opened, id) = (store.clone(), meta.id);
        let file = off_runtime(move || opened.open_sealed(id)).await?.ok_or(Trouble::FileGone(id))?;
        let source = Arc::new(FileSource { file, bytes: meta.bytes, hash: meta.hash });
        let uploaded = self.door.upload(&key, source).await;
        if uploaded.as_ref().is_err_and(|error| error.class == Class::Damaged) && self.is_damaged(store, id).await? {
            return Err(Trouble::Damaged(id));
        }
        match uploaded? {
            Creation::New => {
                self.counts.files.fetch_add(1, Ordering::Relaxed);
                self.counts.file_bytes.fetch_add(meta.bytes, Ordering::Relaxed);
                Ok(())
            }
            Creation::AlreadyThere if self.has(&key, meta.bytes).await? => Ok(()),
            // It went between two questions: whoever asks again uploads it.
            Creation::AlreadyThere => Err(Trouble::OtherLength(key, 0, meta.bytes)),
        }
    }

    /// Whether the file reads damaged a second time too. One that is in use is quarantined then.
    async fn is_damaged(&self, store: &Arc<Store>, id: Uuid) -> Result<bool, Trouble> {
        let store = store.clone();
        // Nothing live is called so: it is in a snapshot alone, and what was read of it is all that is known.
        Ok(off_runtime(move || store.scrub_file(id)).await?.is_none_or(|is_whole| !is_whole))
    }

    async fn has(&self, key: &str, bytes: u64) -> Result<bool, Trouble> {
        match self.door.head(key).await? {
            None => Ok(false),
            Some(found) if found.bytes == bytes => Ok(true),
            Some(found) => Err(Trouble::OtherLength(key.to_owned(), found.bytes, bytes)),
        }
    }
}

/// What prunes are about to delete, and which prune is.
#[derive(Default)]
pub(super) struct CondemnedKeys(BTreeMap<String, Uuid>);

impl CondemnedKeys {
    /// The suffix under which a file may be relied on: none, unless its plain key is about to be deleted.
    pub(super) fn suffix(&self, hash: &[u8; 32]) -> Option<u32> {
        let mut suffix = None;
        // Each prune condemns a key once, so that each round is about another one.
        for _ in 0..=self.0.len() {
            let Some(prune) = self.0.get(&layout::file(hash, suffix)) else { break };
            // The end of an id is random; 0 stands for none.
            suffix = Some((prune.as_u128() as u32).max(1));
        }
        suffix
    }
}

impl Archive {
    /// What is about to be deleted now.
    pub(super) async fn condemned(&self) -> Result<CondemnedKeys, Trouble> {
        let mut keys = BTreeMap::new();
        for listed in self.door.list_all(layout::CONDEMNED).await? {
            // Gone meanwhile: then all of it is deleted, which asking for each file finds out.
            let Some(found) = self.door.find(&listed.key).await? else { continue };
            let condemned = Condemned::decode(&listed.key, &found.bytes)?;
            keys.extend(condemned.keys.into_iter().map(|key| (key, condemned.prune)));
        }
        Ok(CondemnedKeys(keys))
    }
}

/// Uploads files as they come to be, until it is dropped.
pub(super) async fn run(archive: Arc<Archive>, store: Arc<Store>) {
    const WHAT: &str = "a file";
    let (mut seen, mut known, mut pauses) = (None, BTreeSet::new(), Pauses::default());
    loop {
        let made = store.files_made();
        if seen == Some(made) {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        match pass(&archive, &store, &mut known).await {
            Ok(()) => {
                seen = Some(made);
                archive.succeeded(WHAT);
                pauses.end();
            }
            Err(error) => {
                archive.failed(WHAT, error.to_string());
                pauses.wait().await;
            }
        }
    }
}

/// Looks at all files of the node, and uploads what the bucket lacks. `known` are those that the bucket was seen to have.
pub(super) async fn pass(
    archive: &Arc<Archive>,
    store: &Arc<Store>,
    known: &mut BTreeSet<[u8; 32]>,
) -> Result<(), Trouble> {
    let live: Vec<(SstableMeta, PathBuf)> = store.live_files();
    let hashes: BTreeSet<[u8; 32]> = live.iter().map(|(meta, _)| meta.hash).collect();
    known.retain(|hash| hashes.contains(hash));
    let missing: Vec<SstableMeta> =
        live.into_iter().map(|(meta, _)| meta).filter(|meta| !known.contains(&meta.hash)).collect();
    archive.files_waiting.store(missing.len() as u64, Ordering::Relaxed);
    let uploads = stream::iter(missing).map(|meta| async move { (archive.ensure(store, &meta, None).await, meta) });
    let mut uploads = std::pin::pin!(uploads.buffer_unordered(AT_ONCE));
    let (mut failed, mut failures) = (None, 0);
    while failures < FAILURES_MAX
        && let Some((ensured, meta)) = uploads.next().await
    {
        match ensured {
            // A compaction was faster: what it made is looked at next.
            // One that is damaged was told of when it was quarantined, and is in use no more.
            Ok(()) | Err(Trouble::FileGone(_) | Trouble::Damaged(_)) => {
                known.insert(meta.hash);
                archive.files_waiting.fetch_sub(1, Ordering::Relaxed);
            }
            Err(error) => {
                let is_out_of_reach = matches!(&error, Trouble::Bucket(error) if error.class == Class::Retry);
                failures += usize::from(is_out_of_reach);
                failed = failed.or(Some(error));
            }
        }
    }
    failed.map_or(Ok(()), Err)
}
