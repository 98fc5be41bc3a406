//! Whether a backup is whole: every object there, of its length and hash; the logs without a gap; a quorum of every vnode.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use sha2::{Digest, Sha256};
use trefoil::backup::{Listed, ListedPiece, Manifest, Part};
use uuid::Uuid;

use super::{AT_ONCE, Repository, decoded, layout};
use crate::{Class, Result};

/// What is read of an object at a time.
const WINDOW_BYTES: u64 = 8 << 20;

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thoroughness {
    /// Every byte of every object is read.
    Bytes,
    /// SSTables are only asked for their length. All other objects are read.
    Lengths,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Verified {
    /// Objects that were looked at.
    pub objects: u64,
    /// Bytes that they should have.
    pub bytes: u64,
    /// What is wrong: the object, and how. None: the backup is whole.
    pub faults: Vec<(String, String)>,
}

impl Verified {
    fn count(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn fault(&mut self, key: impl Into<String>, reason: impl Into<String>) {
        self.faults.push((key.into(), reason.into()));
    }
}

impl Repository {
    /// Looks at a backup; `progress` is told of the objects done and those there are. An error only if the bucket does not
    /// answer: what is wrong with the backup is in the answer.
    pub async fn verify(
        &self,
        backup: Uuid,
        how: Thoroughness,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Verified> {
        let mut found = Verified::default();
        found.count(0);
        let Some(manifest) = self.told(&mut found, layout::backup(backup), self.manifest(backup).await)? else {
            return Ok(found);
        };
        let parts = self.told_parts(&mut found, &manifest).await?;
        for piece in &manifest.pieces {
            self.verify_piece(&mut found, piece).await?;
        }
        let files: BTreeMap<String, (u64, [u8; 32])> = parts
            .iter()
            .flat_map(|part| &part.files)
            .map(|file| (file.key(), (file.meta.bytes, file.meta.hash)))
            .collect();
        let (done, all) = (found.objects, found.objects + files.len() as u64);
        let checks = files
            .iter()
            .map(|(key, (bytes, hash))| async move { (key, *bytes, self.verify_file(key, *bytes, hash, how).await) });
        let mut checks = stream::iter(checks).buffer_unordered(AT_ONCE);
        progress(done, all);
        while let Some((key, bytes, outcome)) = checks.next().await {
            found.count(bytes);
            if let Some(reason) = outcome? {
                found.fault(key, reason);
            }
            progress(found.objects, all);
        }
        // The logs and the quorums, by the same code that a restore goes by.
        match self.moment(manifest.cut, Some(backup), |_| true).await {
            Ok(_) => {}
            Err(error) if error.class == Class::Retry || error.class == Class::Denied => return Err(error),
            Err(error) if found.faults.is_empty() => found.fault(error.place, error.reason),
            Err(_) => {}
        }
        found.faults.sort();
        Ok(found)
    }

    /// The parts that can be read; the others are faults.
    async fn told_parts(&self, found: &mut Verified, manifest: &Manifest) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        for listed in &manifest.parts {
            found.count(listed.object.bytes);
            let one = Manifest { parts: vec![listed.clone()], ..manifest.clone() };
            let key = layout::part(manifest.backup, listed.node);
            parts.extend(self.told(found, key, self.parts(&one).await)?.into_iter().flatten());
        }
        Ok(parts)
    }

    async fn verify_piece(&self, found: &mut Verified, listed: &ListedPiece) -> Result<()> {
        let key = layout::piece(listed.node, listed.number);
        found.count(listed.object.bytes);
        let Some(bytes) = self.told(found, key.clone(), self.get(&key).await)? else { return Ok(()) };
        if Listed::of(&bytes) != listed.object {
            found.fault(key, "it is not the piece that the manifest lists");
            return Ok(());
        }
        let piece = decoded(&key, trefoil::backup::Piece::decode(&key, &bytes));
        let whole =
            piece.and_then(|piece| decoded(&key, piece.for_each(|logged| logged.record.mutation()?.check().map(drop))));
        self.told(found, key, whole)?;
        Ok(())
    }

    /// What is wrong with a file, if anything is.
    async fn verify_file(&self, key: &str, bytes: u64, hash: &[u8; 32], how: Thoroughness) -> Result<Option<String>> {
        let Some(meta) = self.store.head(key).await? else { return Ok(Some("it is not there".to_owned())) };
        if meta.bytes != bytes {
            return Ok(Some(format!("it has {} bytes, and should have {bytes}", meta.bytes)));
        }
        if how == Thoroughness::Lengths {
            return Ok(None);
        }
        let mut hasher = Sha256::new();
        let mut at = 0;
        while at < bytes {
            let window = at..(at + WINDOW_BYTES).min(bytes);
            at = window.end;
            hasher.update(&self.store.get(key, Some(window)).await?.bytes);
        }
        let fits = hasher.finalize()[..] == hash[..];
        Ok((!fits).then(|| "its SHA-256 is another one: it is damaged".to_owned()))
    }

    /// The value, or a fault; an error stays one where it says nothing of the object.
    fn told<T>(&self, found: &mut Verified, key: String, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.class == Class::NotFound => {
                found.fault(key, "it is not there");
                Ok(None)
            }
            Err(error) if error.class == Class::Damaged => {
                found.fault(key, error.reason);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
