//! What a node holds for a backup: a snapshot of its own, uploaded, and then the list of it.

use std::sync::Arc;

use futures_util::{TryStreamExt, stream};
use trefoil::backup::{Part, Scope, StoredFile, layout};
use trefoil::commitlog::Position;
use trefoil::model::Stamp;
use trefoil::snapshot::Snapshot;
use trefoil::sstable::SstableMeta;
use trefoil::store::{SnapshotScope, backup_snapshot_name};
use uuid::Uuid;

use super::files::{AT_ONCE, CondemnedKeys};
use super::log::End;
use super::{Archive, Pauses, Trouble, off_runtime};
use crate::clock;
use crate::coordinate::Shared;

/// How far a part is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartProgress {
    /// What it is about.
    pub stage: Stage,
    /// Why it did not go on when it was tried last; empty: it did.
    pub trouble: String,
    /// Files of it.
    pub files: u64,
    /// Of these, those that are in the bucket.
    pub files_done: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Of these, those that are in the bucket.
    pub bytes_done: u64,
}

/// What a part is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// It is being made.
    #[default]
    Working,
    /// It is in the bucket.
    Ready,
    /// It cannot be made.
    Failed,
}

impl Archive {
    /// How far a part is; begins it if nobody has.
    pub fn part(self: &Arc<Self>, shared: &Arc<Shared>, backup: Uuid, scope: Scope) -> PartProgress {
        let mut parts = self.parts.lock();
        if let Some(progress) = parts.get(&backup) {
            return progress.clone();
        }
        parts.insert(backup, PartProgress::default());
        drop(parts);
        self.start(make(self.clone(), shared.clone(), backup, scope));
        PartProgress::default()
    }

    /// How far a part is, if this node makes one.
    pub fn part_progress(&self, backup: Uuid) -> Option<PartProgress> {
        self.parts.lock().get(&backup).cloned()
    }

    /// The backup is over: what the node kept for it goes.
    pub async fn drop_part(&self, shared: &Arc<Shared>, backup: Uuid) -> Result<(), trefoil::Error> {
        self.parts.lock().remove(&backup);
        let replica = shared.replica.clone();
        let removed = off_runtime(move || {
            let name = backup_snapshot_name(backup);
            let is_there = replica.store().snapshots().whole.values().any(|snapshot| snapshot.name == name);
            if is_there { replica.store().remove_snapshot(&name).map(drop) } else { Ok(()) }
        });
        match removed.await {
            Err(Trouble::Store(error)) => Err(error),
            Err(other) => {
                tracing::error!(error = %other, %backup, "the snapshot of a backup that is over is still there");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn note(&self, backup: Uuid, change: impl FnOnce(&mut PartProgress)) {
        if let Some(progress) = self.parts.lock().get_mut(&backup) {
            change(progress);
        }
    }

    /// Where to begin in the archived log for what is not in files that hold everything before `position`.
    async fn first_piece(&self, end: End, position: Position) -> Result<u64, Trouble> {
        let mut number = end.number + 1;
        let mut from = end.to;
        // More than one step only where a snapshot is older than this run.
        while from > position && number > 1 {
            let Some(head) = self.piece_head(self.identity.node, number - 1).await? else { break };
            (number, from) = (number - 1, head.from);
        }
        Ok(number)
    }

    async fn make_once(&self, shared: &Arc<Shared>, backup: Uuid, scope: Scope) -> Result<(), Trouble> {
        let node = self.identity.node;
        let key = layout::part(backup, node);
        if let Some(found) = self.door.find(&key).await? {
            // Made before a restart: nothing that it lists has gone.
            Part::decode(&key, &found.bytes)?;
            return Ok(());
        }
        let replica = shared.replica.clone();
        let scope = snapshot_scope(scope);
        let made = off_runtime(move || replica.store().create_backup_snapshot(backup, scope, clock::wall_us()));
        let snapshot = made.await?;
        self.note(backup, |progress| {
            (progress.files, progress.bytes) = (snapshot.files.len() as u64, snapshot.bytes());
            (progress.files_done, progress.bytes_done) = (0, 0);
        });
        let condemned = self.condemned().await?;
        self.upload(shared, backup, &snapshot, &condemned).await?;
        let end = self.end().ok_or(Trouble::LogUnknown)?;
        let stored = |meta: &SstableMeta| StoredFile { meta: meta.clone(), suffix: condemned.suffix(&meta.hash) };
        let part = Part {
            cluster: self.identity.cluster,
            backup,
            node,
            vnode_bits: self.identity.vnode_bits,
            made_at: Stamp(snapshot.made_at_us.max(clock::wall_us())),
            position: snapshot.position,
            first_piece: self.first_piece(end, snapshot.position).await?,
            highest: snapshot.last_stamp().unwrap_or_default(),
            tables: snapshot.tables.clone(),
            files: snapshot.files.iter().map(stored).collect(),
            received: snapshot.received.clone(),
            state: shared.cluster.load().encode().into(),
        };
        self.door.create(&key, part.encode()).await?;
        Ok(())
    }

    /// Every file is asked for, whatever was known of it: a prune may have taken what no backup had needed.
    async fn upload(
        &self,
        shared: &Arc<Shared>,
        backup: Uuid,
        snapshot: &Snapshot,
        condemned: &CondemnedKeys,
    ) -> Result<(), Trouble> {
        let store = shared.replica.store();
        let uploads = stream::iter(snapshot.files.iter().cloned().map(Ok));
        uploads
            .try_for_each_concurrent(AT_ONCE, async |meta| {
                self.ensure(store, &meta, condemned.suffix(&meta.hash)).await?;
                self.note(backup, |progress| {
                    progress.files_done += 1;
                    progress.bytes_done += meta.bytes;
                });
                Ok(())
            })
            .await
    }
}

async fn make(archive: Arc<Archive>, shared: Arc<Shared>, backup: Uuid, scope: Scope) {
    let mut pauses = Pauses::default();
    loop {
        let made = archive.make_once(&shared, backup, scope).await;
        match made {
            Ok(()) => return archive.note(backup, |progress| progress.stage = Stage::Ready),
            Err(error) if is_final(&error) => {
                tracing::error!(%error, %backup, "this node has no part in a backup");
                return archive.note(backup, |progress| {
                    (progress.stage, progress.trouble) = (Stage::Failed, error.to_string());
                });
            }
            Err(error) => {
                archive.failed("a part of a backup", error.to_string());
                archive.note(backup, |progress| progress.trouble = error.to_string());
            }
        }
        pauses.wait().await;
        if archive.part_progress(backup).is_none() {
            return; // The backup is over.
        }
    }
}

/// Whether the same will be so whenever it is tried again.
fn is_final(error: &Trouble) -> bool {
    matches!(
        error,
        Trouble::Store(trefoil::Error::Quarantined { .. } | trefoil::Error::Withdrawn { .. })
            | Trouble::FileGone(_)
            | Trouble::Damaged(_)
    )
}

fn snapshot_scope(scope: Scope) -> SnapshotScope {
    match scope {
        Scope::All => SnapshotScope::All,
        Scope::Keyspace(id) => SnapshotScope::Keyspace(id),
        Scope::Table(id) => SnapshotScope::Table(id),
    }
}
