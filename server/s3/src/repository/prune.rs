//! Removing what no kept backup needs: condemned first, removed by a later run.
//!
//! ```text
//!   look       list, read, mark: what would go                                         the default
//!   run        lease ─► index without the backups that go ─► condemned/<run>           at once
//!              a list that has stood longer than a backup may last, and is still unneeded: manifests, parts, pieces,
//!              files, in this order ─► the list itself                                 a day later
//! ```
//!
//! Each step may be the last one of a run: the next one goes on. Nothing is removed that is needed when it is looked at anew, so that a
//! backup which was under way meanwhile is whole or has failed (B080).

use std::collections::BTreeSet;

use futures_util::{StreamExt, TryStreamExt, stream};
use trefoil::backup::mark::{Facts, Marks, Retention, Seen, mark, parts_of};
use trefoil::backup::{Condemned, IndexEntry, Intent, LASTS_MAX_US, Lease, Manifest, Part};
use trefoil::model::Stamp;
use uuid::Uuid;

use super::layout::{self, Key};
use super::{AT_ONCE, Repository, decoded};
use crate::{Class, Creation, Error, Result, UnfinishedUpload};

/// How long what is condemned stays: longer than a backup may last, by an hour for clocks that differ.
pub const CONDEMNED_US: i64 = LASTS_MAX_US + 3_600 * 1_000_000;

/// How long a run may hold the lease without saying that it is still there.
const LEASE_US: i64 = 15 * 60 * 1_000_000;

/// Objects that are removed before the lease is renewed.
const REMOVED_AT_ONCE: usize = 1_000;

/// A run of prune.
#[derive(Debug, Clone)]
pub struct Prune {
    /// This run: a uuid of version 7.
    pub id: Uuid,
    /// Which backups stay.
    pub retention: Retention,
    /// Nothing younger than this goes, in microseconds.
    pub grace_us: i64,
}

/// What a run found, and did.
#[derive(Debug, Clone, Default)]
pub struct Pruned {
    /// Backups that go.
    pub backups: Vec<Uuid>,
    /// What is needed and what is not.
    pub marks: Marks,
    /// Objects that are condemned by now and wait, and their bytes as far as they are still there.
    pub waiting: (u64, u64),
    /// Objects that may be removed now: they have waited, and are still unneeded.
    pub due: Vec<Seen>,
    /// Objects that were removed.
    pub removed: (u64, u64),
    /// Uploads in parts that were begun and never finished, older than the grace period.
    pub uploads: Vec<UnfinishedUpload>,
}

impl Repository {
    /// Looks what a run would do; changes nothing.
    pub async fn look(&self, prune: &Prune, now: Stamp) -> Result<Pruned> {
        let facts = self.facts(prune, now).await?;
        let lists = self.condemned().await?;
        self.found(prune, &facts, &lists, now).await
    }

    /// Does what is to be done now; `clock` tells the time. The same call again goes on with it.
    pub async fn prune(&self, prune: &Prune, clock: &(dyn Fn() -> Stamp + Sync)) -> Result<Pruned> {
        self.lease(prune, clock()).await?;
        let outcome = self.prune_under_lease(prune, clock).await;
        let back = self.give_lease_back(prune, clock()).await;
        outcome.and_then(|pruned| back.map(|()| pruned))
    }

    async fn prune_under_lease(&self, prune: &Prune, clock: &(dyn Fn() -> Stamp + Sync)) -> Result<Pruned> {
        let now = clock();
        let facts = self.facts(prune, now).await?;
        let lists = self.condemned().await?;
        let mut pruned = self.found(prune, &facts, &lists, now).await?;
        self.drop_from_index(&facts.manifests, &pruned.backups).await?;
        let listed: BTreeSet<&String> = lists.iter().flat_map(|list| &list.keys).collect();
        let fresh = pruned.marks.unneeded.iter().filter(|seen| !listed.contains(&seen.key));
        let keys: BTreeSet<String> = fresh.map(|seen| seen.key.clone()).collect();
        if !keys.is_empty() {
            let bytes: u64 =
                pruned.marks.unneeded.iter().filter(|seen| keys.contains(&seen.key)).map(|seen| seen.bytes).sum();
            pruned.waiting = (pruned.waiting.0 + keys.len() as u64, pruned.waiting.1 + bytes);
            let list = Condemned { cluster: self.cluster, prune: prune.id, published_at: now, keys };
            if self.store.create(&list.key(), list.encode()).await? == Creation::AlreadyThere {
                return Err(Error::new(Class::Conflict, "PUT", list.key(), "another run has this id"));
            }
        }
        for batch in pruned.due.chunks(REMOVED_AT_ONCE) {
            self.lease(prune, clock()).await?;
            for seen in batch {
                self.store.delete(&seen.key).await?;
                pruned.removed = (pruned.removed.0 + 1, pruned.removed.1.saturating_add(seen.bytes));
            }
        }
        // What is needed again is no longer condemned either.
        for list in lists.iter().filter(|list| is_due(list, now)) {
            self.store.delete(&list.key()).await?;
        }
        for upload in &pruned.uploads {
            self.store.give_up_upload(upload).await?;
        }
        Ok(pruned)
    }

    async fn found(&self, prune: &Prune, facts: &Facts, lists: &[Condemned], now: Stamp) -> Result<Pruned> {
        let marks = mark(facts, &prune.retention, now, prune.grace_us);
        let kept = prune.retention.kept(&facts.manifests, now);
        let backups =
            facts.manifests.iter().map(|manifest| manifest.backup).filter(|id| !kept.contains_key(id)).collect();
        let due_keys: BTreeSet<&String> =
            lists.iter().filter(|list| is_due(list, now)).flat_map(|list| &list.keys).collect();
        let waiting_keys: BTreeSet<&String> = lists.iter().flat_map(|list| &list.keys).collect();
        let mut due: Vec<Seen> = marks.unneeded.iter().filter(|seen| due_keys.contains(&seen.key)).cloned().collect();
        due.sort_by_key(|seen| (order(&seen.key), seen.key.clone()));
        let still =
            marks.unneeded.iter().filter(|seen| waiting_keys.contains(&seen.key) && !due_keys.contains(&seen.key));
        let waiting = still.fold((0, 0), |(count, bytes), seen| (count + 1, bytes + seen.bytes));
        let uploads = self.store.unfinished_uploads("").await?;
        let old = |upload: &UnfinishedUpload| {
            now.0.saturating_sub(upload.begun_at_s.saturating_mul(1_000_000)) >= prune.grace_us.max(LASTS_MAX_US)
        };
        let uploads = uploads.into_iter().filter(old).collect();
        Ok(Pruned { backups, marks, waiting, due, removed: (0, 0), uploads })
    }

    /// All that marking looks at. An object that cannot be read ends it: nobody can tell what it needs.
    async fn facts(&self, prune: &Prune, now: Stamp) -> Result<Facts> {
        let objects = self.store.list_all("").await?.into_iter().map(|listed| Seen {
            key: listed.key,
            bytes: listed.bytes,
            modified_at: Stamp(listed.modified_at_s.saturating_mul(1_000_000)),
        });
        let mut facts = Facts { objects: objects.collect(), ..Facts::default() };
        // Intents before manifests: one that has become complete meanwhile is known by its manifest.
        facts.intents = self.all(layout::INTENTS, Intent::decode).await?;
        facts.manifests = self.all(layout::BACKUPS, Manifest::decode).await?;
        for backup in parts_of(&facts, &prune.retention, now) {
            let parts: Vec<Part> = self.all(&format!("{}{backup}/", layout::PARTS), Part::decode).await?;
            facts.parts.extend(parts);
        }
        let missing =
            facts.manifests.iter().flat_map(|manifest| manifest.parts.iter().map(|part| (manifest.backup, part.node)));
        let kept = prune.retention.kept(&facts.manifests, now);
        for (backup, node) in missing.filter(|(backup, _)| kept.contains_key(backup)) {
            if !facts.parts.iter().any(|part| (part.backup, part.node) == (backup, node)) {
                let reason =
                    "a kept backup lists it, and it is not there; verify the backup before anything is removed";
                return Err(Error::new(Class::Damaged, "read", layout::part(backup, node), reason));
            }
        }
        Ok(facts)
    }

    async fn condemned(&self) -> Result<Vec<Condemned>> {
        self.all(layout::CONDEMNED, Condemned::decode).await
    }

    /// Every object of a kind.
    async fn all<T>(&self, prefix: &str, decode: impl Fn(&str, &bytes::Bytes) -> trefoil::Result<T>) -> Result<Vec<T>> {
        let keys: Vec<String> = self.store.list_all(prefix).await?.into_iter().map(|listed| listed.key).collect();
        let ours = keys.into_iter().filter(|key| Key::parse(key).is_some());
        let reads = ours.map(|key| async move {
            let found = self.store.find(&key).await?;
            Ok::<_, Error>((key, found))
        });
        let read: Vec<_> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
        let there = read.into_iter().filter_map(|(key, found)| Some((key, found?)));
        there.map(|(key, object)| decoded(&key, decode(&key, &object.bytes))).collect()
    }

    /// Takes backups that go out of the index, and puts those in that stay and are not there.
    async fn drop_from_index(&self, manifests: &[Manifest], gone: &[Uuid]) -> Result<()> {
        let stay = manifests.iter().filter(|manifest| !gone.contains(&manifest.backup));
        let entries: Vec<IndexEntry> = stay.map(IndexEntry::of).collect();
        self.change_index(|index| {
            index.entries.retain(|entry| !gone.contains(&entry.backup));
            entries.iter().for_each(|entry| index.add(entry.clone()));
        })
        .await
    }

    async fn lease(&self, prune: &Prune, now: Stamp) -> Result<()> {
        let found = self.store.find(layout::LEASE).await?;
        let present = found.as_ref().map(|object| decoded(layout::LEASE, Lease::decode(&object.bytes))).transpose()?;
        let lease = Lease::taken(self.cluster, present, prune.id, now, LEASE_US)
            .map_err(|error| Error::new(Class::Conflict, "PUT", layout::LEASE, error.to_string()))?;
        self.store.replace(layout::LEASE, lease.encode(), found.map(|object| object.tag).as_ref()).await.map(drop)
    }

    async fn give_lease_back(&self, prune: &Prune, now: Stamp) -> Result<()> {
        let lease = Lease { cluster: self.cluster, holder: prune.id, until: now };
        let found = self.store.find(layout::LEASE).await?;
        self.store.replace(layout::LEASE, lease.encode(), found.map(|object| object.tag).as_ref()).await.map(drop)
    }
}

fn is_due(list: &Condemned, now: Stamp) -> bool {
    now.0.saturating_sub(list.published_at.0) >= CONDEMNED_US
}

/// Manifests go first, then what they list, so that none is ever there without what it lists.
fn order(key: &str) -> u8 {
    match Key::parse(key) {
        Some(Key::Manifest(_)) => 0,
        Some(Key::Intent(_) | Key::Part(..)) => 1,
        Some(Key::Piece(..)) => 2,
        _ => 3,
    }
}
